// SPDX-License-Identifier: MIT OR Apache-2.0
//! `-z COMMAND`: runs a command for each closed file, one file after the other.
//!
//! Invariants
//! - The recorder does not wait for the command while it records: it writes names into a pipe, and a name
//!   for which the pipe has no room is left out. A note names the first; the rest are counted.
//! - The shell that runs the commands starts before the process gives up its rights, because a confined
//!   process starts no program.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use ringtap::User;
use rustix::fs::{OFlags, fcntl_setfl};

use crate::{Note, RecordError};

/// Reads a name per line and runs the command with it.
const SCRIPT: &str = r#"while IFS= read -r file; do eval "$1 \"\$file\"" </dev/null; done"#;

/// The shell that runs the commands.
pub struct ClosedFiles {
    shell: Child,
    /// Number of files for which the command was not run.
    skipped: u64,
}

impl ClosedFiles {
    /// Starts the shell, as this user if one is given.
    pub(crate) fn start(command: &str, user: Option<&User>) -> Result<Self, RecordError> {
        let mut shell = Command::new("sh");
        shell.args(["-c", SCRIPT, "sh", command]);
        // Standard output may be the packets' or a program's; Ctrl-C ends the recorder only.
        shell
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0);
        if let Some(user) = user {
            shell.uid(user.uid).gid(user.gid);
        }
        let child = shell.spawn().map_err(RecordError::Shell)?;
        if let Some(names) = &child.stdin {
            fcntl_setfl(names, OFlags::NONBLOCK)
                .map_err(|error| RecordError::Shell(error.into()))?;
        }
        Ok(ClosedFiles {
            shell: child,
            skipped: 0,
        })
    }

    /// Runs the command for this file, after those of earlier files.
    pub(crate) fn add(&mut self, file: &str) -> Option<Note> {
        let names = self.shell.stdin.as_mut()?;
        // Shorter than PIPE_BUF, so that the pipe takes it whole or not at all.
        if names.write_all(format!("{file}\n").as_bytes()).is_ok() {
            return None;
        }
        self.skipped += 1;
        let file = file.to_owned();
        (self.skipped == 1).then_some(Note::CommandSkipped { file })
    }

    /// Waits until the commands for all files have ended.
    pub(crate) fn finish(&mut self) -> Option<Note> {
        drop(self.shell.stdin.take());
        let _status = self.shell.wait();
        let files = self.skipped;
        (files > 1).then_some(Note::CommandsSkipped { files })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_gets_the_command_in_order_whatever_its_name() {
        let folder = tempfile::TempDir::new().unwrap();
        let out = folder.path().join("out");
        let command = format!("printf '%s|' >>{}", out.display());
        let mut closed = ClosedFiles::start(&command, None).unwrap();
        for name in ["a b", "$(touch x)", "\"c'", "-n"] {
            assert_eq!(closed.add(name), None);
        }
        assert_eq!(closed.finish(), None);
        assert_eq!(
            std::fs::read_to_string(out).unwrap(),
            "a b|$(touch x)|\"c'|-n|"
        );
    }

    #[test]
    fn a_command_that_hangs_does_not_stop_the_recorder() {
        let mut closed = ClosedFiles::start("exec sleep 1000 #", None).unwrap();
        let name = "x".repeat(1000);
        let notes: Vec<_> = (0..1000).filter_map(|_| closed.add(&name)).collect();
        assert_eq!(notes, [Note::CommandSkipped { file: name }]);
        closed.shell.kill().unwrap();
        let left_out = closed.finish();
        assert!(
            matches!(left_out, Some(Note::CommandsSkipped { files: 901.. })),
            "{left_out:?}"
        );
    }
}
