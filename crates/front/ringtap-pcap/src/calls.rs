// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions that are not simply forwarded: most take a handle, which may be Ringtap's.
//!
//! Invariants
//! - Every pointer of the caller is checked for null before use, and none is kept.
//! - A call for a handle of the real library goes there with the same arguments.
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

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `work`; after a panic, prints a message and returns `otherwise`.
fn guarded<T>(otherwise: T, work: impl FnOnce() -> T) -> T {
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
