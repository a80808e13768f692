// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a user is told of the choices made for a program: on standard error, each thing once.
//!
//! Invariants
//! - Nothing is said where `RINGTAP_QUIET` is set, and in `dumpcap -Z`, whose standard error is a
//!   channel of messages to Wireshark.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::{Mutex, OnceLock, PoisonError};

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
    *QUIET.get_or_init(|| {
        let asked = std::env::var_os("RINGTAP_QUIET");
        let arguments: Vec<_> = std::env::args_os().collect();
        asked.is_some_and(|value| value != "0") || speaks_protocol(&arguments)
    })
}

/// Whether the program has this name.
pub(crate) fn program_is(name: &str) -> bool {
    static NAME: OnceLock<Option<std::ffi::OsString>> = OnceLock::new();
    let own = NAME.get_or_init(|| {
        let first = std::env::args_os().next()?;
        Some(std::path::Path::new(&first).file_name()?.to_owned())
    });
    own.as_deref().is_some_and(|own| own == name)
}

fn speaks_protocol(arguments: &[std::ffi::OsString]) -> bool {
    let program = arguments.first().map(std::path::Path::new);
    let name = program.and_then(std::path::Path::file_name);
    name.is_some_and(|name| name == "dumpcap") && arguments.iter().any(|word| word == "-Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dumpcap_that_talks_to_wireshark_is_left_alone() {
        let words = |text: &str| text.split(' ').map(Into::into).collect::<Vec<_>>();
        assert!(speaks_protocol(&words("/usr/bin/dumpcap -n -Z none")));
        assert!(!speaks_protocol(&words("/usr/bin/dumpcap -n")));
        assert!(!speaks_protocol(&words("tcpdump -Z root")));
    }
}
