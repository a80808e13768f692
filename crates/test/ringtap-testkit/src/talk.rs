// SPDX-License-Identifier: MIT OR Apache-2.0
//! tcpdump on `lo`, while programs talk to each other.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use crate::{LIMIT, Namespace, Running};

/// tcpdump, which writes each packet of a namespace's `lo` at once.
#[derive(Debug)]
pub struct LoCapture {
    tcpdump: Running,
    file: String,
}

impl LoCapture {
    /// Starts tcpdump, and waits until it captures.
    ///
    /// # Panics
    ///
    /// When tcpdump does not start: call [`require_tool!`](crate::require_tool) first.
    #[must_use]
    pub fn start(net: &Namespace, file: &str) -> Self {
        let words = [
            "-i",
            "lo",
            "-Z",
            "root",
            "-U",
            "--immediate-mode",
            "-w",
            file,
        ];
        let tcpdump = net.spawn("tcpdump", &words);
        tcpdump.wait_for_stderr("listening on", LIMIT);
        LoCapture {
            tcpdump,
            file: file.to_owned(),
        }
    }

    /// Ends tcpdump once the file has all that the caller waits for.
    ///
    /// # Panics
    ///
    /// When the file does not have it within [`LIMIT`].
    pub fn finish_when(self, is_complete: impl Fn(&[u8]) -> bool) {
        let begun = Instant::now();
        while !is_complete(&fs::read(&self.file).expect("tcpdump made the file")) {
            assert!(begun.elapsed() < LIMIT, "{}", self.tcpdump.stderr());
            thread::sleep(Duration::from_millis(50));
        }
        self.tcpdump.interrupt();
        let _ended = self.tcpdump.wait(LIMIT).success();
    }
}
