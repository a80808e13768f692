// SPDX-License-Identifier: MIT OR Apache-2.0
//! Failures of queries and changes of interfaces.

use std::io;

/// Reason why an interface cannot be queried, watched or changed.
#[expect(missing_docs, reason = "messages show what each field means")]
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InterfaceError {
    /// No interface has this name.
    #[error("no interface \"{name}\" here{meant} (there are: {})", .existing.join(", "))]
    NotFound {
        name: String,
        meant: String,
        existing: Vec<String>,
    },
    /// The interface was removed.
    #[error("interface {name} (index {index}) was removed")]
    Removed { name: String, index: u32 },
    /// The interface is down.
    #[error("interface {name} is down: set it up with `ip link set {name} up`")]
    Down { name: String },
    /// The process lacks the right.
    #[error("{action} needs CAP_NET_RAW: run with sudo, or give the program the capability")]
    NoRights { action: &'static str },
    /// The kernel refused, or its answer is invalid.
    #[error("{action}: {source}")]
    Kernel {
        action: &'static str,
        source: io::Error,
    },
}

impl InterfaceError {
    /// Whether the interface is missing or down, so that it may come later.
    #[must_use]
    pub fn is_absence(&self) -> bool {
        use InterfaceError::{Down, NotFound, Removed};
        matches!(self, NotFound { .. } | Down { .. } | Removed { .. })
    }

    pub(crate) fn kernel(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Kernel { action, source }
    }
}
