// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reasons why filters cannot run in the kernel.

/// Maximum number of filters in one function: one bit of the result each.
pub const MAX_FILTERS: usize = 64;

/// Why filters cannot run in the kernel; user space can run them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages describe the fields")]
pub enum TranslateError {
    /// A filter loops over a packet's headers.
    #[error("filter {filter} loops over headers (protochain): it has to run in user space")]
    Loops { filter: usize },
    /// The filters outnumber the bits of the result.
    #[error("{count} filters: at most {MAX_FILTERS} fit into one program")]
    TooMany { count: usize },
    /// A jump is too long for one instruction.
    #[error(
        "the filters need at least {instructions} eBPF instructions, too many for one function"
    )]
    TooLong { instructions: usize },
}
