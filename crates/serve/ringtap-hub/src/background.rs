// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads that work for one reader, with a lower priority than threads that work for all readers.

use std::io;
use std::thread::JoinHandle;

/// Nice value: on a busy processor the hub's thread gets nine times the time of a background thread.
const NICE: i32 = 10;

/// Starts a thread with this lower priority.
///
/// # Errors
///
/// The system's, when no thread can start.
pub(crate) fn spawn(
    name: &str,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let thread = std::thread::Builder::new().name(name.into());
    thread.spawn(move || {
        // A thread may always lower its own priority.
        let _lowered = rustix::process::setpriority_process(None, NICE);
        work();
    })
}
