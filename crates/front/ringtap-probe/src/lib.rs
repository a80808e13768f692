// SPDX-License-Identifier: MIT OR Apache-2.0
//! Traffic probe: analyses on the packets of a capture, flow records, exporters.
#![deny(unsafe_code)]

pub mod action;
pub mod analysis;
pub mod application;
mod board;
mod condition;
pub mod config;
mod connection;
mod control;
pub mod ctl;
pub mod export;
pub mod flows;
mod folder;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod interval;
mod ledger;
pub mod library;
mod merge;
mod outside;
mod packet;
mod plan;
mod probe;
#[cfg(feature = "rate")]
pub mod rate;
pub mod record;
mod start;
mod watcher;
mod worker;

pub use action::ProbeCommand;
pub use condition::{Condition, ConditionError};
pub use control::{CommandError, PlanReader, ProbeControl, ReloadError};
pub use ledger::ProbeLedger;
pub use plan::{PlanError, ProbePlan};
pub use probe::{Probe, ProbeError, ProbeOutcome, usual_workers};
pub use start::{LibraryStart, LibraryStartError, ProbeEnd, ending, open_exporters, plan_reader};
#[cfg(feature = "report")]
pub mod report;
