// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages for the user on standard error, each printed once.
//!
//! Invariants
//! - Nothing is printed if `RINGTAP_QUIET` is set, or if standard error differs from that of
//!   `ringtap exec`: Wireshark, for example, parses dumpcap's standard error.
//! - A hub that gives another reason each time can make a process print [`MAX_TEXTS`] lines, and remember as
//!   many.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Mutex, OnceLock};

use ringtap_ipc::environment;
use ringtap_ipc::mutex::lock;

/// Most different messages of a process.
const MAX_TEXTS: usize = 100;

/// Prints a message, unless it was printed before.
pub(crate) fn once(text: &str) {
    static PRINTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if is_quiet() {
        return;
    }
    let mut printed = lock(&PRINTED);
    if printed.len() < MAX_TEXTS && printed.insert(text.to_owned()) {
        // Fails when standard error is closed.
        let _unread = writeln!(std::io::stderr(), "ringtap: {text}");
    }
}

/// Whether messages are suppressed.
pub(crate) fn is_quiet() -> bool {
    static QUIET: OnceLock<bool> = OnceLock::new();
    *QUIET.get_or_init(|| environment::is_set("RINGTAP_QUIET") || is_redirected())
}

/// Whether standard error differs from that of `ringtap exec`.
fn is_redirected() -> bool {
    let Some(original) = environment::variable("RINGTAP_STDERR") else {
        return false;
    };
    let now = std::fs::metadata("/proc/self/fd/2");
    now.is_ok_and(|now| original != *format!("{}:{}", now.dev(), now.ino()))
}
