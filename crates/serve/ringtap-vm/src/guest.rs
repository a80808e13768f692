// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest's side: an agent that offers each group of the host as a hub of its own.
//!
//! A hub's only source is the host's part of shared memory, from which one thread copies into an ordinary
//! pool of the agent. So readers in the guest need no access to the devices, and keep their
//! subscriptions when the devices are unplugged and plugged again.
//!
//! Invariants
//! - The agent asks the host only for packets that some filter of its readers matches, as far as these
//!   filters can be joined; without readers it subscribes to nothing.
//! - The copying thread never waits for a reader.

mod agent;
mod group;
mod source;
mod status;
#[cfg(test)]
mod tests;

pub use agent::{Agent, AgentError, AgentOptions};
pub use status::{STATUS_FILE, is_agent_running};
