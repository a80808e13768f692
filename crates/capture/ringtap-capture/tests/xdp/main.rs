// SPDX-License-Identifier: MIT OR Apache-2.0
//! AF_XDP in private networks; needs root.
//!
//! `cfg(test)` on the modules tells clippy that helpers are tests too.

#[cfg(test)]
#[path = "../shared/captured.rs"]
mod captured;
#[cfg(test)]
mod conformance;
#[cfg(test)]
#[path = "../shared/flow_sources.rs"]
mod flow_sources;
#[cfg(test)]
mod flows;
#[cfg(test)]
mod packets;
#[cfg(test)]
mod queues;
#[cfg(test)]
mod rules;
#[cfg(test)]
mod stamps;
#[cfg(test)]
mod support;
#[cfg(test)]
#[path = "../shared/tagging.rs"]
mod tagging;
