// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a hub lost packets, since when, why, and what to change: from its status, as data and as sentences.
//!
//! [`explain_hub`] asks a running hub; [`explain`] compares two statuses and reads no clock and no files. The
//! other modules make tables, log lines and OpenMetrics of a status.
//!
//! # Examples
//!
//! ```
//! use ringtap_explain::{Finding, explain};
//! use ringtap_ipc::protocol::{HubStatus, SourceStatus};
//!
//! let mut source = SourceStatus {
//!     device: "tap:eth0".into(),
//!     balanced: true,
//!     ..SourceStatus::default()
//! };
//! let at = |time_ns, source: &SourceStatus| HubStatus {
//!     time_ns,
//!     sources: vec![source.clone()],
//!     ..HubStatus::default()
//! };
//! let before = at(60_000_000_000, &source);
//! source.dropped.nic = 500;
//! let now = at(62_000_000_000, &source);
//!
//! let findings = explain(Some(&before), &now, &|_pid| false);
//! assert!(findings[0].kind() == "nic" && findings[0].lost_packets() == 500);
//! assert!(findings[0].to_string().starts_with(
//!     "tap:eth0: the network card or its driver lost 500 packets"
//! ));
//! assert!(findings[0].advice()[0].contains("`ethtool -g eth0`"));
//! println!("{}", serde_json::to_string(&findings)?);
//! # Ok::<(), serde_json::Error>(())
//! ```
#![forbid(unsafe_code)]

mod advice;
pub mod change;
mod explain;
mod explanation;
mod exposition;
mod finding;
#[cfg(feature = "http")]
pub mod http;
pub mod losses;
pub mod report;
mod sentences;
pub mod tables;
pub mod text;

pub use explain::explain;
pub use explanation::{Explanation, explain_hub};
pub use exposition::exposition;
pub use finding::{Finding, Loss};

#[cfg(test)]
mod tests;
