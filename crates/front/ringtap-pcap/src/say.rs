// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a user is told of the choices made for a program: on standard error, each thing once.
//!
//! Invariants
//! - Nothing is said where `RINGTAP_QUIET` is set, and to a standard error that another program
//!   than `ringtap exec` gave: it may be a channel of messages.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::real::is_set;

/// Says this, unless it was said before.
pub(crate) fn once(text: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if is_quiet() {
        return;
    }
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if said.insert(text.to_owned()) {
        // Nobody reads it: then nobody needs it.
        let _unread = writeln!(std::io::stderr(), "ringtap: {text}");
    }
}

/// Whether nothing is to be said.
pub(crate) fn is_quiet() -> bool {
    static QUIET: OnceLock<bool> = OnceLock::new();
    *QUIET.get_or_init(|| is_set("RINGTAP_QUIET") || is_redirected())
}

/// Whether standard error is another file than the one that `ringtap exec` had: whoever starts a
/// program with a pipe there may expect messages of a protocol of its own, as Wireshark does of
/// dumpcap.
fn is_redirected() -> bool {
    let Some(original) = std::env::var_os("RINGTAP_STDERR") else {
        return false;
    };
    let now = std::fs::metadata("/proc/self/fd/2");
    now.is_ok_and(|now| original != *format!("{}:{}", now.dev(), now.ino()))
}
