// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines for people and programs, where the reader may have left.
//!
//! Invariants
//! - Nothing here panics: a pipe that is closed, or a full disk, is an error or is passed over.
//! - What is printed has left the process when the call returns.
#![forbid(unsafe_code)]

use std::fmt::Display;
use std::io::{self, ErrorKind, Write as _};

use anyhow::{Error, Result};

/// Prints a line on standard output.
///
/// # Errors
///
/// It could not be written: nobody reads any more, or there is no room.
pub(crate) fn line(text: impl Display) -> Result<()> {
    let mut out = io::stdout().lock();
    // One call: a line is whole, or not there.
    let written = out.write_all(format!("{text}\n").as_bytes());
    written.and_then(|()| out.flush()).map_err(|error| {
        let what = match error.kind() {
            ErrorKind::BrokenPipe => "nobody reads the output",
            _ => "the output cannot be written",
        };
        Error::new(error).context(what)
    })
}

/// Prints a line on standard error; without a reader there, or room, it is lost.
///
/// A capture does not end because nobody listens to what it has to say.
pub(crate) fn note(text: impl Display) {
    let _lost = io::stderr().write_all(format!("{text}\n").as_bytes());
}

/// Prints what a part has to say to the user, each on a line of standard error.
pub(crate) fn notes(notes: impl IntoIterator<Item = impl Display>) {
    for one in notes {
        note(format_args!("ringtap: {one}"));
    }
}

/// Writes over the last line of standard error, which is a terminal.
pub(crate) fn over(text: impl Display) {
    let _lost = io::stderr().write_all(format!("\r{text}\x1b[K").as_bytes());
}
