// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands for a running probe over a UNIX socket: `ringtap probe ctl`.
//!
//! Invariants
//! - Only root and the probe's own user are heard.
//! - One thread answers one connection after the other, each for at most [`TIMEOUT`]; no worker waits for it.

use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use ringtap_ipc::environment;
use ringtap_ipc::event::{Event, readable_among, sleep_until_readable};
use ringtap_ipc::folder::{FolderError, ROOT_FOLDER};
use ringtap_ipc::peer::Peer;
use ringtap_ipc::socket::{ListenError, Listener, Socket};
use ringtap_ipc::text::{MAX_TEXT_BYTES, from_json};
use ringtap_ipc::thread::join;
use ringtap_ipc::transport::{MAX_BYTES, Transport as _};
use ringtap_pool::wake::Signal as _;
use serde::{Deserialize, Serialize};

use crate::action::ProbeCommand;
use crate::control::{CommandError, ProbeControl};
use crate::folder::folder_of;

/// Name of the socket of root's probe.
const SOCKET: &str = "probe.sock";
/// Longest wait for a command on an open connection.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Longest wait for an answer: the probe reads its configuration for `reload`.
const ANSWER: Duration = Duration::from_secs(60);
/// Pause after a failed accept, for example when no descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why a probe has no socket for commands.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CtlError {
    /// The folder of root's sockets cannot be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The socket cannot be bound.
    #[error("{0}: choose another --control")]
    Listen(#[from] ListenError),
}

/// A probe's answer.
#[derive(Serialize, Deserialize)]
enum CtlAnswer {
    /// A text for the user.
    #[serde(rename = "Ok")]
    Done(String),
    /// Why the command was not carried out.
    #[serde(rename = "Err")]
    Refused(String),
}

/// The socket of a running probe; closes when this is dropped.
pub struct CtlServer {
    closing: Event,
    thread: Option<JoinHandle<()>>,
}

impl CtlServer {
    /// Answers commands that come to `listener`.
    ///
    /// # Errors
    ///
    /// The system has no thread or no descriptor left.
    pub fn open(listener: Listener, control: Arc<ProbeControl>) -> io::Result<Self> {
        let closing = Event::new()?;
        let closed = closing.clone();
        let builder = std::thread::Builder::new().name("ctl".into());
        let thread = builder.spawn(move || {
            let _cannot_wait = serve(&listener, &closed, &control);
        })?;
        Ok(CtlServer {
            closing,
            thread: Some(thread),
        })
    }
}

impl Drop for CtlServer {
    fn drop(&mut self) {
        self.closing.signal();
        if let Some(thread) = self.thread.take() {
            join(thread);
        }
    }
}

fn serve(listener: &Listener, closing: &Event, control: &ProbeControl) -> io::Result<()> {
    let mut buffer = vec![0; MAX_BYTES];
    loop {
        if readable_among(&[closing.as_fd(), listener.as_fd()], None)?[0] {
            return Ok(());
        }
        match listener.accept() {
            // One that leaves early, or does not read, has no answer.
            Ok(Some(socket)) => drop(answer(&socket, control, &mut buffer)),
            Ok(None) => {}
            Err(_) => std::thread::sleep(ACCEPT_PAUSE),
        }
    }
}

fn answer(socket: &Socket, control: &ProbeControl, buffer: &mut [u8]) -> io::Result<()> {
    let own = Peer::this_process().uid;
    let uid = Peer::from_socket(socket)?.uid;
    if uid != 0 && uid != own {
        return Ok(());
    }
    if !sleep_until_readable(&[socket.as_fd()], Some(TIMEOUT))? {
        return Ok(());
    }
    let (message, _refused) = socket.receive(buffer)?;
    let answer = match from_json::<ProbeCommand>(message, MAX_TEXT_BYTES) {
        Err(error) => CtlAnswer::Refused(format!("not a command: {error}")),
        Ok(command) => match control.apply(&command) {
            Ok(text) => CtlAnswer::Done(text),
            Err(error) => CtlAnswer::Refused(error.to_string()),
        },
    };
    socket.send(&serde_json::to_vec(&answer)?, &[])
}

/// Sends a command to the probe at `path`; returns its answer.
///
/// # Errors
///
/// No probe of this user answers there, or it refused the command.
pub fn send(path: &Path, command: &ProbeCommand) -> Result<String, CommandError> {
    let asked = || -> io::Result<CtlAnswer> {
        let socket = Socket::connect(path)?;
        socket.send(&serde_json::to_vec(command)?, &[])?;
        if !sleep_until_readable(&[socket.as_fd()], Some(ANSWER))? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut buffer = vec![0; MAX_BYTES];
        let (answer, _none) = socket.receive(&mut buffer)?;
        if answer.is_empty() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        // The ledger is one text of the message.
        Ok(from_json(answer, MAX_BYTES)?)
    };
    match asked() {
        Ok(CtlAnswer::Done(text)) => Ok(text),
        Ok(CtlAnswer::Refused(why)) => Err(CommandError::Refused(why)),
        Err(reason) => Err(CommandError::NoProbe {
            socket: path.to_owned(),
            reason,
        }),
    }
}

/// The socket of a probe whose user named none: `/run/ringtap-root/probe.sock` for root, else in the user's own
/// runtime folder; `None` without such a folder.
pub fn default_path() -> Option<PathBuf> {
    match Peer::this_process().uid {
        0 => Some(Path::new(ROOT_FOLDER).join(SOCKET)),
        _ => environment::runtime_folder().map(|own| own.join("ringtap-probe.sock")),
    }
}

/// Listens at `path`, or at the usual socket if it is `None`, for the user that the probe becomes, if any. `None`:
/// there is no usual socket, because the user has no runtime folder.
///
/// # Errors
///
/// Every [`CtlError`].
pub fn listen(path: Option<&Path>, becomes: Option<u32>) -> Result<Option<Listener>, CtlError> {
    let path = match path {
        Some(path) => Some(path.to_owned()),
        None => folder_of(becomes)?
            .map(|folder| folder.join(SOCKET))
            .or_else(default_path),
    };
    let uid = becomes.unwrap_or_else(|| Peer::this_process().uid);
    let bind = |path: PathBuf| Listener::bind_for(&path, uid);
    Ok(path.map(bind).transpose()?)
}
