// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads that do a reader's work, behind the threads that serve all readers.

use std::io;
use std::thread::JoinHandle;

/// Lower than the hub's thread, which then gets nine times the time of one such thread.
const NICE: i32 = 10;

/// Starts a thread that leaves the processor to the hub's thread.
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
        // Only fails for a thread that is not the caller's.
        let _lowered = rustix::process::setpriority_process(None, NICE);
        work();
    })
}
