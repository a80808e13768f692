// SPDX-License-Identifier: MIT OR Apache-2.0
//! Client of QEMU's machine protocol, with descriptors, time limits and bounded answers.
//!
//! Invariants
//! - A call takes at most the time that the limits of the guest say; at most [`MAX_ANSWER_BYTES`] of an answer are kept.
//! - Of events, only the latest state and the devices of this process are kept.
#![forbid(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ringtap_ipc::event::sleep_until_readable;
use ringtap_ipc::text;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use serde_json::{Value, json};
use thiserror::Error;

use super::budget::GuestLimits;
use super::doorbell::send_with;
use super::libvirt;

/// Most bytes of an answer: the longest, a list of a machine's objects, has some kilobytes.
const MAX_ANSWER_BYTES: usize = 1024 * 1024;

/// Where a QEMU takes commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Monitor {
    /// QEMU's QMP socket.
    Qmp(PathBuf),
    /// A running domain of libvirt, which `virsh` reaches.
    Libvirt(String),
}

/// Why QEMU did not do what it was asked.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum QmpError {
    /// The socket cannot be connected to.
    #[error("{path}: {error}: is QEMU running, with -qmp unix:{path},server=on,wait=off?")]
    Connect {
        /// The socket.
        path: String,
        /// The system's error.
        error: io::Error,
    },
    /// `virsh` does not reach the domain.
    #[error("virsh: {0}")]
    Libvirt(String),
    /// No greeting within the limit.
    #[error(
        "{path}: QEMU does not greet: another program uses this QMP socket, which serves one at a time: give QEMU \
         a further -qmp unix:…,server=on,wait=off for each program"
    )]
    Busy {
        /// The socket.
        path: String,
    },
    /// The socket of another program.
    #[error("the socket belongs to a program that does not speak QMP")]
    NotQmp,
    /// QEMU does not answer within the limit.
    #[error("QEMU does not answer {0} within the limit answer_ms")]
    NoAnswer(&'static str),
    /// QEMU has closed the connection.
    #[error("QEMU has ended, or closed the QMP connection")]
    Gone,
    /// QEMU refuses.
    #[error("QEMU refuses {command}: {text}")]
    Refused {
        /// The command.
        command: &'static str,
        /// QEMU's reason.
        text: String,
    },
    /// A system call failed.
    #[error("QMP connection: {0}")]
    Io(#[from] io::Error),
}

/// Events that QEMU reported since the last call.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct QmpNews {
    /// Devices of this process that are unplugged.
    pub(super) deleted: Vec<String>,
    /// Whether an agent has the command port open, if that changed.
    pub(super) port_open: Option<bool>,
}

/// A connection with a QEMU process.
pub(super) struct Qmp {
    socket: UnixStream,
    pending: Vec<u8>,
    prefix: String,
    limit: Duration,
    news: QmpNews,
    /// Version of QEMU: major and minor.
    pub(super) version: (u64, u64),
}

impl Qmp {
    /// Connects; events about devices whose names start with `prefix` are kept.
    pub(super) fn connect(
        monitor: &Monitor,
        prefix: &str,
        limits: &GuestLimits,
    ) -> Result<Self, QmpError> {
        let limit = Duration::from_millis(limits.answer_ms);
        let (socket, greets_within) = match monitor {
            Monitor::Qmp(path) => (
                connect(path)?,
                Duration::from_millis(limits.greeting_ms).min(limit),
            ),
            Monitor::Libvirt(domain) => (libvirt::connect(domain)?, limit),
        };
        let mut qmp = Qmp {
            socket,
            pending: Vec::new(),
            prefix: prefix.to_owned(),
            limit,
            news: QmpNews::default(),
            version: (0, 0),
        };
        let greeting = match (qmp.line(Instant::now() + greets_within), monitor) {
            (Ok(Some(line)), _) => line,
            (Ok(None), Monitor::Qmp(path)) => {
                let path = path.display().to_string();
                return Err(QmpError::Busy { path });
            }
            (Ok(None), Monitor::Libvirt(_)) => return Err(QmpError::NoAnswer("query-version")),
            (Err(QmpError::Gone), _) => return Err(QmpError::NotQmp),
            (Err(error), _) => return Err(error),
        };
        if let Some(error) = libvirt_failure(&greeting) {
            return Err(error);
        }
        let version = greeting.pointer("/QMP/version/qemu");
        let part = |name| version.and_then(|version| version.get(name)?.as_u64());
        qmp.version = part("major").zip(part("minor")).ok_or(QmpError::NotQmp)?;
        qmp.run("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    /// Runs a command; returns its result.
    pub(super) fn run(
        &mut self,
        command: &'static str,
        arguments: Value,
    ) -> Result<Value, QmpError> {
        self.run_with(command, arguments, None)
    }

    /// Gives QEMU a file's descriptor; returns its number in a set of QEMU, and the path by which QEMU opens
    /// the file. So QEMU may run as any user and in any namespace.
    pub(super) fn add_fd(&mut self, fd: BorrowedFd<'_>) -> Result<(u64, String), QmpError> {
        let added = self.run_with("add-fd", json!({}), Some(fd))?;
        let number = |key| added.get(key).and_then(Value::as_u64);
        let (set, fd) = number("fdset-id")
            .zip(number("fd"))
            .ok_or(QmpError::NotQmp)?;
        Ok((set, format!("/proc/self/fd/{fd}")))
    }

    /// Gives QEMU a connected socket as a character device of this name.
    pub(super) fn add_socket(
        &mut self,
        name: &str,
        socket: BorrowedFd<'_>,
    ) -> Result<(), QmpError> {
        self.run_with("getfd", json!({ "fdname": name }), Some(socket))?;
        let address = json!({ "type": "fd", "data": { "str": name } });
        let backend = json!({ "type": "socket", "data": { "addr": address, "server": false } });
        let arguments = json!({ "id": name, "backend": backend });
        self.run("chardev-add", arguments).map(drop)
    }

    fn run_with(
        &mut self,
        command: &'static str,
        arguments: Value,
        fd: Option<BorrowedFd<'_>>,
    ) -> Result<Value, QmpError> {
        let text = json!({ "execute": command, "arguments": arguments }).to_string();
        match send_with(self.socket.as_fd(), text.as_bytes(), fd) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(QmpError::NoAnswer(command));
            }
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Err(QmpError::Gone),
            sent => sent?,
        }
        let deadline = Instant::now() + self.limit;
        loop {
            let mut line = self.line(deadline)?.ok_or(QmpError::NoAnswer(command))?;
            if let Some(result) = line.get_mut("return") {
                return Ok(result.take());
            }
            if let Some(error) = libvirt_failure(&line) {
                return Err(error);
            }
            if let Some(text) = line.pointer("/error/desc") {
                let text = text.as_str().unwrap_or_default().to_owned();
                return Err(QmpError::Refused { command, text });
            }
            self.note(&line);
        }
    }

    /// Whether [`Qmp::news`] would return something that was read together with an answer: the socket does not
    /// become readable for it again.
    pub(super) fn has_news(&self) -> bool {
        self.news != QmpNews::default() || self.pending.contains(&b'\n')
    }

    /// Takes in the events that have arrived; returns what they say.
    pub(super) fn news(&mut self) -> Result<QmpNews, QmpError> {
        let now = Instant::now();
        while let Some(line) = self.line(now)? {
            self.note(&line);
        }
        Ok(std::mem::take(&mut self.news))
    }

    fn note(&mut self, line: &Value) {
        let text = |pointer| line.pointer(pointer).and_then(Value::as_str);
        match text("/event") {
            Some("DEVICE_DELETED") => {
                let device = text("/data/device").filter(|name| name.starts_with(&self.prefix));
                self.news.deleted.extend(device.map(str::to_owned));
            }
            Some("VSERPORT_CHANGE")
                if text("/data/id").is_some_and(|name| name.starts_with(&self.prefix)) =>
            {
                self.news.port_open = line.pointer("/data/open").and_then(Value::as_bool);
            }
            _ => {}
        }
    }

    /// The next line, or `None` if none is complete at the deadline.
    fn line(&mut self, deadline: Instant) -> Result<Option<Value>, QmpError> {
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                let value = text::from_json(&line, MAX_ANSWER_BYTES);
                return value.map(Some).map_err(|_| QmpError::NotQmp);
            }
            if self.pending.len() > MAX_ANSWER_BYTES {
                return Err(QmpError::NotQmp);
            }
            let mut bytes = [0; 16 * 1024];
            match recv(&self.socket, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((0, _)) | Err(Errno::CONNRESET) => return Err(QmpError::Gone),
                Ok((read, _)) => self.pending.extend(bytes.iter().take(read)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Ok(None);
                    }
                    sleep_until_readable(&[self.socket.as_fd()], Some(left))?;
                }
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
    }
}

/// The error, if a line is one of libvirt: `virsh` has no answer of QEMU.
fn libvirt_failure(line: &Value) -> Option<QmpError> {
    let text = |pointer| line.pointer(pointer).and_then(Value::as_str);
    let is_failure = text("/error/class") == Some(libvirt::FAILED);
    let text = text("/error/desc").filter(|_| is_failure)?;
    Some(QmpError::Libvirt(text.to_owned()))
}

/// Connects with a QMP socket.
fn connect(path: &Path) -> Result<UnixStream, QmpError> {
    let connected = UnixStream::connect(path);
    connected.map_err(
        |error| match error.raw_os_error().map(Errno::from_raw_os_error) {
            // A socket of another type: QMP has streams.
            Some(Errno::PROTOTYPE) => QmpError::NotQmp,
            _ => QmpError::Connect {
                path: path.display().to_string(),
                error,
            },
        },
    )
}

impl AsFd for Qmp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
