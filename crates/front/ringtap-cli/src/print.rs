// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prints lines, also when the program that reads them has closed the pipe.
//!
//! Invariants
//! - Nothing here panics: a closed pipe or a full disk is an error, or is ignored.
//! - The text is written when the call returns: nothing is buffered.
//! - No control character of a text reaches the terminal.
//! - No peer (a guest, a reader, a network) can print without limit: see [`from_peer`].

use std::fmt::Display;
use std::io::{self, ErrorKind, Write as _};
use std::sync::{LazyLock, Mutex};
use std::time::Instant;

use anyhow::{Error, Result};
use ringtap_hub::SOURCE_NOTES;
use ringtap_ipc::environment;
use ringtap_ipc::mutex::lock;
use ringtap_ipc::rate::LineLimit;
use ringtap_ipc::text::clean;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::{
    Layer as _, fmt, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

/// The peer that causes the notes of sources: links, interfaces, and programs of others at them.
pub(crate) const NETWORK: &str = "network";

/// Prints a line on standard output.
///
/// # Errors
///
/// The pipe is closed, or the disk is full.
pub(crate) fn line(text: impl Display) -> Result<()> {
    write(text).map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Error::new(NobodyReads),
        _ => Error::new(error).context("the output cannot be written"),
    })
}

/// The program that reads standard output has ended.
#[derive(Debug, thiserror::Error)]
#[error("nobody reads the output")]
pub(crate) struct NobodyReads;

/// As [`line`], with the system's error.
pub(crate) fn write(text: impl Display) -> io::Result<()> {
    let mut out = io::stdout().lock();
    // One call, so that the line appears whole or not at all.
    out.write_all(format!("{}\n", printable(text)).as_bytes())?;
    out.flush()
}

/// Prints a line on standard error, and ignores a failure to do so.
///
/// A failed message does not end a capture.
pub(crate) fn note(text: impl Display) {
    let _lost = io::stderr().write_all(format!("{}\n", printable(text)).as_bytes());
}

/// Prints a line that a peer caused, as [`note`] does, within the limits for this peer and for all peers. The
/// next line states how many were left out.
pub(crate) fn from_peer(peer: &str, text: impl Display) {
    static LINES: LazyLock<Mutex<LineLimit<String>>> = LazyLock::new(Mutex::default);
    let line = lock(&LINES).pass(peer.to_owned(), text.to_string(), Instant::now());
    line.into_iter().for_each(note);
}

/// Prints an error on standard error, which the journal shows as one.
pub(crate) fn error(text: impl Display) {
    let priority = if is_journal() { "<3>" } else { "" };
    note(format_args!("{priority}ringtap: {text}"));
}

/// Whether standard error is the journal, by the variable that systemd sets.
pub(crate) fn is_journal() -> bool {
    let journal = environment::variable("JOURNAL_STREAM").unwrap_or_default();
    let stderr = rustix::fs::fstat(io::stderr());
    stderr.is_ok_and(|file| journal == *format!("{}:{}", file.st_dev, file.st_ino))
}

/// Prints each note on its own line of standard error.
pub(crate) fn notes(notes: impl IntoIterator<Item = impl Display>) {
    for one in notes {
        note(format_args!("ringtap: {one}"));
    }
}

/// Prints the messages of sources in this process as notes, from now on.
pub(crate) fn show_source_notes() {
    let only = Targets::new().with_target(SOURCE_NOTES, LevelFilter::TRACE);
    let lines = fmt::layer()
        .with_writer(|| NoteWriter)
        .without_time()
        .with_level(false)
        .with_target(false)
        .with_ansi(false)
        .log_internal_errors(false);
    let subscriber = tracing_subscriber::registry().with(lines.with_filter(only));
    // Fails only in tests, where a subscriber is set already.
    let _already = subscriber.try_init();
}

/// Writes each line as a note that the network caused.
struct NoteWriter;

impl io::Write for NoteWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        from_peer(NETWORK, format_args!("ringtap: {}", text.trim_end()));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Overwrites the last line of standard error, which must be a terminal.
pub(crate) fn over(text: impl Display) {
    let text = printable(text);
    let _lost = io::stderr().write_all(format!("\r{text}\x1b[K").as_bytes());
}

/// The text without control characters, which could change the terminal: texts may come from a file or a
/// packet.
fn printable(text: impl Display) -> String {
    clean(&text.to_string()).into_owned()
}

#[cfg(test)]
mod tests {
    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let hostile = "a\tb\nc\u{1b}]0;title\u{7}\u{9b}2J\r";
        let shown = super::printable(hostile);
        assert_eq!(shown, "a\tb\nc\u{fffd}]0;title\u{fffd}\u{fffd}2J\u{fffd}");
    }
}
