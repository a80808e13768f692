// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions that are not only passed on: about handles, which may be ours.
//!
//! Invariants
//! - Every pointer of the caller's is checked for null before use, and none is kept.
//! - A handle of the real library's goes there with the same arguments.
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

/// Runs `work`; a panic in it becomes `otherwise`, and a word on standard error.
fn guarded<T>(otherwise: T, work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        crate::say::once("a mistake in libringtap-pcap, please report it");
        otherwise
    })
}

/// A function about a handle: what is done with one of ours, and what is returned for none.
macro_rules! about_a_handle {
    ($(fn $name:ident($p:ident $(, $given:ident: $kind:ty)*) -> $gives:ty, or $nobody:expr => |$handle:ident| $ours:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($p: *mut $crate::abi::Pcap $(, $given: $kind)*) -> $gives {
            $crate::calls::guarded($nobody, || match $crate::handles::owner($p) {
                $crate::handles::Owner::Ringtap($handle) => $ours,
                $crate::handles::Owner::Libpcap(real) => match $crate::real::functions() {
                    // SAFETY: the same call about the library's own handle, by the caller's word.
                    Ok(functions) => unsafe { (functions.$name)(real $(, $given)*) },
                    Err(_) => $nobody,
                },
                $crate::handles::Owner::None => $nobody,
            })
        }
    )*};
}
use about_a_handle;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_ends_at_the_border() {
        let status = guarded(crate::abi::ERROR, || panic!("a mistake of ours"));
        assert_eq!(status, crate::abi::ERROR);
    }
}
