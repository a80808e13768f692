// SPDX-License-Identifier: MIT OR Apache-2.0
//! C texts: names that programs pass, and error texts that they read.

use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use crate::abi::ERRBUF_SIZE;

/// Copies the text at this address and replaces invalid UTF-8; `None` for NULL.
///
/// # Safety
///
/// `text` is NULL or points to a text that ends with NUL.
pub(crate) unsafe fn take(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: not null; the caller guarantees the rest.
    let text = unsafe { CStr::from_ptr(text) };
    Some(text.to_string_lossy().into_owned())
}

/// Writes a text, cut to fit, into an error buffer of libpcap's size.
///
/// # Safety
///
/// `errbuf` is NULL or has [`ERRBUF_SIZE`] bytes.
pub(crate) unsafe fn give(errbuf: *mut c_char, text: &str) {
    if errbuf.is_null() {
        return;
    }
    let bytes = cut(text);
    // SAFETY: not null; the caller guarantees room for the cut text and a NUL.
    unsafe { errbuf.copy_from_nonoverlapping(bytes.as_ptr().cast(), bytes.len()) };
    // SAFETY: as above.
    let end = unsafe { errbuf.add(bytes.len()) };
    // SAFETY: as above.
    unsafe { end.write(0) };
}

/// The part of a text that fits an error buffer: whole characters, up to the first NUL.
fn cut(text: &str) -> &[u8] {
    let line = text.split('\0').next().unwrap_or_default();
    let mut end = line.len().min(ERRBUF_SIZE - 1);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    &line.as_bytes()[..end]
}

/// The error text of a handle. C may read it at any time.
#[derive(Debug)]
pub(crate) struct ErrorText([AtomicU8; ERRBUF_SIZE]);

impl ErrorText {
    pub(crate) const fn new() -> Self {
        ErrorText([const { AtomicU8::new(0) }; ERRBUF_SIZE])
    }

    pub(crate) fn set(&self, text: &str) {
        let bytes = cut(text).iter().copied().chain([0]);
        for (old, byte) in self.0.iter().zip(bytes) {
            old.store(byte, Relaxed);
        }
    }

    pub(crate) fn get(&self) -> String {
        let bytes = self.0.iter().map(|byte| byte.load(Relaxed));
        let bytes: Vec<_> = bytes.take_while(|byte| *byte != 0).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Address of the text, valid while the handle is open.
    pub(crate) fn address(&self) -> *mut c_char {
        self.0[0].as_ptr().cast()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        let long = "ä".repeat(200);
        assert_eq!(cut(&long).len(), 254);
        assert_eq!(cut("a\0b"), b"a");
        let text = ErrorText::new();
        text.set(&long);
        text.set("short");
        assert_eq!(text.get(), "short");
    }
}
