// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kinds of programs that call a translated function.

/// Kind of program that calls the function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterHook {
    /// An XDP program, whose context is `struct xdp_md`.
    Xdp,
    /// A tc or tcx program, whose context is `struct __sk_buff`.
    Tc,
}
