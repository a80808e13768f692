// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a tap does not take rules; those before stay in force.
//!
//! Invariants
//! - A message says all; no variant has a source that would say it again.
#![forbid(unsafe_code)]

use std::io;
use std::path::PathBuf;

use ringtap_filter::MAX_RULES;

use super::user::MOST_PROGRAMS;

/// Why a tap does not take rules; those before stay in force.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RulesError {
    /// The tap captures no more.
    #[error("{interface}: the tap was stopped and takes no rules any more")]
    Stopped {
        /// The interface.
        interface: String,
    },
    /// More rules than a mask has bits.
    #[error(
        "{interface}: {count} rules, and a tap takes at most {MAX_RULES}: let some groups share \
         a rule without a filter"
    )]
    TooMany {
        /// The interface.
        interface: String,
        /// How many were given.
        count: usize,
    },
    /// More different users' programs than one tap calls.
    #[error(
        "{path}: one program more than a tap calls, which is {MOST_PROGRAMS}: balance by fewer \
         different programs"
    )]
    TooManyPrograms {
        /// The first that is too many.
        path: PathBuf,
    },
    /// A user's program cannot be used for balancing.
    #[error("{path}: {reason}")]
    Program {
        /// Its object file.
        path: PathBuf,
        /// What is wrong with it, and the end of the verifier's log.
        reason: String,
    },
    /// The kernel does not load the tap's program with these rules.
    #[error("{interface}: the kernel does not load the program with these rules: {reason}")]
    Load {
        /// The interface.
        interface: String,
        /// The verifier's last words, or the error.
        reason: String,
    },
    /// The new program cannot take the place of the old one.
    #[error("{interface}: the program cannot be replaced by one with these rules: {reason}")]
    Replace {
        /// The interface.
        interface: String,
        /// What the kernel said.
        reason: io::Error,
    },
}
