// SPDX-License-Identifier: MIT OR Apache-2.0
//! Network namespaces: calls that name an interface run in the namespace of that interface.
//!
//! Invariants
//! - The calling thread stays in its namespace.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::panic;
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

const HERE: &str = "/proc/thread-self/ns/net";

/// A network namespace.
#[derive(Debug)]
pub(crate) struct NetworkNamespace(File);

impl NetworkNamespace {
    /// The namespace of the calling thread.
    pub(crate) fn here() -> io::Result<Self> {
        File::open(HERE).map(NetworkNamespace)
    }

    /// Runs `work` in the namespace: on this thread if it is there, else on a new thread.
    pub(crate) fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> io::Result<R> {
        let (here, there) = (fs::metadata(HERE)?, self.0.metadata()?);
        if (here.dev(), here.ino()) == (there.dev(), there.ino()) {
            return Ok(work());
        }
        let moved = || {
            move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(work())
        };
        thread::scope(|scope| match scope.spawn(moved).join() {
            Ok(result) => result,
            Err(cause) => panic::resume_unwind(cause),
        })
    }
}
