// SPDX-License-Identifier: MIT OR Apache-2.0
//! Output of exporters that write lines.

use std::io::{ErrorKind, Write};

use super::ExportError;

/// A file or a pipe, and whether its reader is gone.
pub(super) struct LineOutput<W> {
    output: W,
    unread: bool,
}

impl<W: Write> LineOutput<W> {
    pub(super) fn new(output: W) -> Self {
        let unread = false;
        LineOutput { output, unread }
    }

    /// Writes whole lines at once.
    pub(super) fn write(&mut self, lines: &[u8]) -> Result<(), ExportError> {
        let written = self
            .output
            .write_all(lines)
            .and_then(|()| self.output.flush());
        self.unread |= written
            .as_ref()
            .is_err_and(|error| error.kind() == ErrorKind::BrokenPipe);
        Ok(written?)
    }

    /// Whether the reading program ended first.
    pub(super) fn is_unread(&self) -> bool {
        self.unread
    }
}
