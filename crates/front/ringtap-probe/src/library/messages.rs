// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages between the probe, the supervisor of its libraries, and their processes.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use ringtap_ipc::socket::Socket;
use ringtap_ipc::text;
use ringtap_ipc::transport::{MAX_BYTES, Transport as _};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::interval::Interval;

/// A library as the user asked for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LibraryPlan {
    /// Name in results; unique among all analyses.
    pub name: String,
    /// The shared library.
    pub library: PathBuf,
    /// Files, and folders with all below them, that the library may read.
    pub reads: Vec<PathBuf>,
    /// Text for the library.
    pub settings: String,
    /// Number of processes; `None`: as many as the probe has workers.
    pub processes: Option<u32>,
    /// Time between results; `None`: one result at the end.
    pub every: Option<Duration>,
    /// A process that does not answer for this long is killed.
    pub timeout: Duration,
    /// Pause before a process that ended is started again; twice as long each time, at most [`LONGEST_PAUSE`].
    pub pause: Duration,
}

/// Longest pause before a process is started again, unless the first one is longer.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Settings with which a process starts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProcessSetup {
    pub(super) plan: LibraryPlan,
    /// Number of the library among all libraries.
    pub(super) library: u32,
    /// The probe's hub, the group of the library there, and the filter.
    pub(super) socket: PathBuf,
    pub(super) group: String,
    pub(super) filter: String,
    pub(super) worker: u32,
    pub(super) starts: u32,
}

/// A message of a process, or of the supervisor about it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ProcessMessage {
    /// The library has started, and the process reads packets.
    Ready {
        /// The kernel limits the files that the library reads.
        has_listed_files: bool,
    },
    /// The library cannot start.
    Refused(String),
    /// The process works.
    Alive,
    /// The results of an interval.
    Part(ProcessResult),
    /// The capture has ended; all results are out.
    Ended,
    /// Of the supervisor: the process ended before the capture did.
    Down {
        why: String,
        did_hang: bool,
        /// Time until the process is started again.
        pause: Duration,
    },
}

/// The results of an interval of one process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ProcessResult {
    pub(super) interval: Interval,
    pub(super) seen: Interval,
    pub(super) packets: u64,
    /// Names, keys and values.
    pub(super) values: Vec<(String, Option<String>, f64)>,
    pub(super) left_out: u64,
}

/// A message with the number of its process among all libraries' processes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SlotMessage {
    pub(super) slot: u32,
    pub(super) message: ProcessMessage,
}

pub(super) fn send(socket: &Socket, message: &impl Serialize) -> io::Result<()> {
    send_with(socket, message, &[])
}

pub(super) fn send_with(
    socket: &Socket,
    message: &impl Serialize,
    files: &[BorrowedFd<'_>],
) -> io::Result<()> {
    socket.send(&serde_json::to_vec(message)?, files)
}

/// The next message; `None` when the other end has left.
pub(super) fn receive<T: DeserializeOwned>(
    socket: &Socket,
    buffer: &mut Vec<u8>,
) -> io::Result<Option<T>> {
    let received = receive_with(socket, buffer)?;
    Ok(received.map(|(message, _none)| message))
}

/// The next message and its files; `None` when the other end has left.
pub(super) fn receive_with<T: DeserializeOwned>(
    socket: &Socket,
    buffer: &mut Vec<u8>,
) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    buffer.resize(MAX_BYTES, 0);
    let (message, files) = socket.receive(buffer)?;
    if message.is_empty() {
        return Ok(None);
    }
    Ok(Some((
        text::from_json(message, text::MAX_TEXT_BYTES)?,
        files,
    )))
}
