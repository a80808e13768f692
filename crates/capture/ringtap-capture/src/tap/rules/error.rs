// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reasons why a tap refuses rules; the old rules stay in force.
//!
//! Invariants
//! - A message is complete; no variant has a source that would repeat it.

use std::io;
use std::path::PathBuf;

use ringtap_filter::MAX_RULES;

use super::user::MOST_PROGRAMS;

/// Reason why a tap refuses rules; the old rules stay in force.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages describe the fields")]
pub enum RulesError {
    /// The tap has stopped.
    #[error("{interface}: the tap was stopped and accepts no rules")]
    Stopped { interface: String },
    /// The rules outnumber the bits of a mask.
    #[error(
        "{interface}: {count} rules are more than the {MAX_RULES} of a tap: let some groups share \
         a rule without a filter"
    )]
    TooMany { interface: String, count: usize },
    /// More users' programs than one tap can call.
    #[error(
        "{path}: a tap calls at most {MOST_PROGRAMS} programs: balance by fewer different programs"
    )]
    TooManyPrograms { path: PathBuf },
    /// A user's program cannot balance packets.
    #[error("{path}: {reason}")]
    Program { path: PathBuf, reason: String },
    /// The kernel refuses the tap's program with these rules.
    #[error("{interface}: the kernel does not load the program with these rules: {reason}")]
    Load { interface: String, reason: String },
    /// The kernel refuses to replace the attached program.
    #[error("{interface}: the program cannot be replaced by one with these rules: {reason}")]
    Replace {
        interface: String,
        reason: io::Error,
    },
}
