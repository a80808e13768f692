// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions that are not simply forwarded: most take a handle, which may be Ringtap's.
//!
//! Invariants
//! - Every pointer of the caller is checked for null before use, and none is kept.
//! - A call for a handle of the real library goes there with the same arguments.
//! - A thread is cancelled only in `border.c`, never below these functions.
#![expect(missing_docs, reason = "libpcap's manual has the documentation")]
#![expect(
    clippy::missing_safety_doc,
    reason = "libpcap's manual has the documentation"
)]

pub mod ask;
pub mod file;
pub mod find;
pub mod open;
pub mod packets;
pub mod set;

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// `PTHREAD_CANCEL_DISABLE` of Linux's C libraries.
const CANCEL_DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// Keeps this thread from being cancelled until it is dropped: a cancelled thread unwinds its stack in a
/// way that ends a process with Rust on that stack.
struct Uncancelled(c_int);

impl Uncancelled {
    fn new() -> Self {
        let mut before = 0;
        // SAFETY: a state, and a place for the state before.
        let _never = unsafe { pthread_setcancelstate(CANCEL_DISABLE, &raw mut before) };
        Uncancelled(before)
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: the state before.
        let _never = unsafe { pthread_setcancelstate(self.0, std::ptr::null_mut()) };
    }
}

/// Runs `work` without cancellation; after a panic, prints a message and returns `otherwise`.
pub(crate) fn guarded<T>(otherwise: T, work: impl FnOnce() -> T) -> T {
    let _until_the_end = Uncancelled::new();
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        crate::messages::once("an error in libringtap-pcap itself, please report it");
        otherwise
    })
}

/// Defines functions that take a handle by what they do with one of Ringtap's handles.
macro_rules! on_handle {
    ($(fn $name:ident($p:ident $(, $given:ident: $kind:ty)*) -> $gives:ty => |$handle:ident| $ours:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($p: *mut $crate::abi::Pcap $(, $given: $kind)*) -> $gives {
            use $crate::{handles::HandleOwner, list::Absent};
            $crate::calls::guarded(Absent::VALUE, || match $crate::handles::owner($p) {
                HandleOwner::Ringtap($handle) => $ours,
                HandleOwner::Libpcap(real) => match $crate::real::functions() {
                    // SAFETY: the same call with the real library's handle, and the same caller's guarantee.
                    Ok(functions) => unsafe { (functions.$name)(real $(, $given)*) },
                    Err(_) => Absent::VALUE,
                },
                HandleOwner::None => Absent::VALUE,
            })
        }
    )*};
}
use on_handle;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_ends_at_the_border() {
        let status = guarded(crate::abi::ERROR, || panic!("on purpose"));
        assert_eq!(status, crate::abi::ERROR);
    }
}
