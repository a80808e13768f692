// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tap in private networks; needs root.
//!
//! `cfg(test)` on the modules tells clippy that helpers are tests too.

#[cfg(test)]
mod balance;
#[cfg(test)]
mod bytes;
#[cfg(test)]
#[path = "../shared/captured.rs"]
mod captured;
#[cfg(test)]
mod changing;
#[cfg(test)]
mod chunks;
#[cfg(test)]
mod conformance;
#[cfg(test)]
#[path = "../shared/flow_sources.rs"]
mod flow_sources;
#[cfg(test)]
mod flows;
#[cfg(test)]
mod forwarding;
#[cfg(test)]
mod leaving;
#[cfg(test)]
mod limits;
#[cfg(test)]
#[path = "../shared/multicast.rs"]
mod multicast;
#[cfg(test)]
mod packets;
#[cfg(test)]
mod protection;
#[cfg(test)]
mod recycling;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod rules;
#[cfg(test)]
#[path = "../shared/stack.rs"]
mod stack;
#[cfg(test)]
mod stamps;
#[cfg(test)]
mod steering;
#[cfg(test)]
mod support;
#[cfg(test)]
#[path = "../shared/tagging.rs"]
mod tagging;
