// SPDX-License-Identifier: MIT OR Apache-2.0
//! Traffic probe: analyses on the packets of a capture, flow records, exporters.
#![deny(unsafe_code)]

pub mod analysis;
pub mod application;
pub mod config;
pub mod export;
pub mod flows;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod merge;
mod outlets;
mod packet;
mod plan;
mod probe;
pub mod record;
mod worker;

pub use plan::ProbePlan;
pub use probe::{
    ExportOptions, KernelLedger, Probe, ProbeControl, ProbeError, ProbeLedger, ProbeOutcome,
    usual_workers,
};
#[cfg(feature = "report")]
pub mod report;
