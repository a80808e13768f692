// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whose a handle is, and what is done when it is the real library's.
#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::abi::Pcap;
use crate::handle::Handle;
use crate::handles;

/// Whom to ask.
pub(crate) enum Whose {
    /// Us.
    Ours(Arc<Handle>),
    /// The real library, about this handle of its own.
    Real(*mut Pcap),
    /// Nobody: NULL, or a handle of ours that was closed.
    Nobody,
}

/// Whose this handle is.
pub(crate) fn whose(p: *mut Pcap) -> Whose {
    if p.is_null() {
        return Whose::Nobody;
    }
    if !handles::is_ours(p) {
        return Whose::Real(p);
    }
    match handles::find(p) {
        None => Whose::Nobody,
        Some(handle) => match handle.place().real() {
            Some(real) => Whose::Real(real),
            None => Whose::Ours(handle),
        },
    }
}
