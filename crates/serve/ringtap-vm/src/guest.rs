// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest's side: an agent that offers each group of the host as a hub of its own.
//!
//! A hub's only source is the host's part of shared memory, which readers in the guest map read-only and read in
//! place: one thread of the agent passes its chunks on. When the devices are unplugged, readers keep their
//! subscriptions, and what they still have of the memory as a copy.
//!
//! Invariants
//! - The agent asks the host only for packets that some filter of its readers matches, as far as these
//!   filters can be joined; without readers it subscribes to nothing.
//! - The agent's thread never waits for a reader.

mod agent;
mod claim;
mod group;
mod memory;
mod rules;
mod source;
mod status;
#[cfg(test)]
mod tests;

pub use agent::{Agent, AgentError, AgentOptions};
pub use status::{STATUS_FILE, is_agent_running};
