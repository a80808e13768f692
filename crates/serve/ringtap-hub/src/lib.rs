// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hub: captures from sources once, and delivers the packets to groups of readers.
//!
//! A [`Hub`] is a thread that moves chunks, never packets. A process can use it alone; a
//! [`server::Server`] accepts readers of other processes.

mod answer;
mod background;
pub mod buddies;
mod budgets;
mod capture;
#[cfg(feature = "config")]
pub mod config;
mod control;
mod elsewhere;
mod engine;
#[cfg(test)]
#[path = "../tests/shared/fed.rs"]
mod fed;
mod flows;
pub mod group;
mod hub;
pub mod limits;
mod membership;
mod memory;
mod options;
mod relay;
pub mod server;
mod signal_thread;
mod sources;
mod subscribers;

pub use capture::SOURCE_NOTES;
pub use elsewhere::{FlowAnswer, RulesElsewhere};
pub use group::{AccessList, AdmissionOption, Group, GroupFilter};
pub use hub::{Handle, Hub, HubError};
pub use limits::Limits;
pub use memory::{MEMORY_TIME, MemoryStep};
pub use options::HubOptions;
