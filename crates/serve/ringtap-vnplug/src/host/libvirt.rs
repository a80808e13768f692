// SPDX-License-Identifier: MIT OR Apache-2.0
//! QMP of a domain of libvirt, which keeps QEMU's QMP socket for itself and passes commands on.
//!
//! A thread takes the place of QEMU at one end of a socket, and runs `virsh` for each command; one more process of
//! `virsh` reports events. The connection ends with that process, and so with libvirt's daemon, while QEMU goes on.
//!
//! Invariants
//! - The thread of the guest waits for libvirt no longer than for QEMU: its limits hold at its end.
//! - The process of `virsh` that reports events ends with the connection.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::io::{self, BufRead as _, BufReader, IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use ringtap_ipc::mutex::lock;
use ringtap_ipc::text;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use serde_json::{Value, json};

use super::qmp::QmpError;

/// Most bytes of a command: the longest of this crate have some hundreds.
const MAX_COMMAND_BYTES: usize = 64 * 1024;

/// Longest run of `virsh` for a command: so a daemon that hangs costs at most one process for each attempt.
const MAX_SECONDS: &str = "60";
/// Class of the errors of libvirt, as distinct from those of QEMU. The connection ends with such an error.
pub(super) const FAILED: &str = "Libvirt";

/// A running domain, and QEMU's end of the socket.
struct Domain {
    name: String,
    socket: UnixStream,
    /// The same socket, for all threads that write lines.
    lines: Arc<Mutex<UnixStream>>,
}

/// Connects with the QMP of a running domain. What `virsh` says instead is the first line: an error.
pub(super) fn connect(domain: &str) -> Result<UnixStream, QmpError> {
    let (client, socket) = UnixStream::pair()?;
    let domain = Domain {
        name: domain.to_owned(),
        lines: Arc::new(Mutex::new(socket.try_clone()?)),
        socket,
    };
    thread::Builder::new()
        .name("virsh".into())
        .spawn(move || domain.serve())?;
    Ok(client)
}

impl Domain {
    /// Carries out commands until either end leaves.
    fn serve(self) {
        let outcome = self.greeting().and_then(|greeting| {
            // This thread starts the process, which gets a signal when the thread ends.
            let mut events = self.watch_events()?;
            let greeted = write_line(&self.lines, greeting.to_string().as_bytes());
            let end = greeted.and_then(|()| self.answer_commands());
            // It may have ended by itself.
            let _ended = events.kill();
            let _status = events.wait();
            end
        });
        if let Err(error) = outcome {
            let error = json!({ "class": FAILED, "desc": error.to_string() });
            let line = json!({ "error": error }).to_string();
            // Fails if the other side has left.
            let _unread = write_line(&self.lines, line.as_bytes());
        }
        let _closed = self.socket.shutdown(Shutdown::Both);
    }

    /// QEMU's greeting.
    fn greeting(&self) -> io::Result<Value> {
        let version = json!({ "execute": "query-version" }).to_string();
        let version = monitor_command(&self.name, version.as_ref(), None)?;
        let version: Value = serde_json::from_slice(&version)?;
        Ok(json!({ "QMP": { "version": version.get("return") } }))
    }

    fn answer_commands(&self) -> io::Result<()> {
        loop {
            let Some((command, fd)) = receive(&self.socket)? else {
                return Ok(());
            };
            let parsed: Value = serde_json::from_slice(&command)?;
            let name = parsed.get("execute").and_then(Value::as_str);
            let answer = match name {
                // Libvirt has negotiated.
                Some("qmp_capabilities") => json!({ "return": {} }).to_string().into_bytes(),
                _ => {
                    let command = String::from_utf8_lossy(&command).into_owned();
                    monitor_command(&self.name, command.as_ref(), fd)?
                }
            };
            write_line(&self.lines, &answer)?;
        }
    }

    /// Starts a `virsh` that passes QEMU's events on; its end is the end of the connection.
    fn watch_events(&self) -> io::Result<Child> {
        let mut command = Command::new("setpriv");
        let words = "--pdeathsig KILL stdbuf -oL virsh qemu-monitor-event --loop --domain";
        command.args(words.split(' ')).arg(&self.name);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        // Ctrl-C on the terminal is for this process alone.
        let mut child = command.stdout(Stdio::piped()).process_group(0).spawn()?;
        let said = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let (lines, socket) = (Arc::clone(&self.lines), self.socket.try_clone()?);
        let follow = move || {
            let _end = BufReader::new(said).lines().try_for_each(|line| {
                let event = event(&line?);
                event.map_or(Ok(()), |event| {
                    write_line(&lines, event.to_string().as_bytes())
                })
            });
            let _closed = socket.shutdown(Shutdown::Both);
        };
        thread::Builder::new().name("events".into()).spawn(follow)?;
        Ok(child)
    }
}

/// Sends QEMU a command with at most one descriptor, and waits for the answer.
///
/// # Errors
///
/// libvirt's words, if it has no answer of QEMU.
fn monitor_command(domain: &str, command: &OsStr, fd: Option<OwnedFd>) -> io::Result<Vec<u8>> {
    let mut virsh = Command::new("timeout");
    virsh.args([
        MAX_SECONDS,
        "virsh",
        "qemu-monitor-command",
        "--domain",
        domain,
    ]);
    virsh.stdin(Stdio::null()).process_group(0);
    if let Some(fd) = fd {
        // Only this process of `virsh` gets it, as its standard input.
        virsh.args(["--pass-fds", "0"]).stdin(fd);
    }
    let done = virsh
        .arg(command)
        .output()
        .map_err(|error| io::Error::other(format!("{error}: install coreutils")))?;
    if done.status.success() {
        return Ok(done.stdout);
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Err(io::Error::other(match said.trim() {
        "" => format!("no answer within {MAX_SECONDS} s"),
        said => text::clean(said).into_owned(),
    }))
}

/// The next command with its descriptor; `None` when the client has left.
fn receive(socket: &UnixStream) -> io::Result<Option<(Vec<u8>, Option<OwnedFd>)>> {
    let mut bytes = vec![0; MAX_COMMAND_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut into = [IoSliceMut::new(&mut bytes)];
    let read = recvmsg(socket, &mut into, &mut beside, RecvFlags::CMSG_CLOEXEC)?.bytes;
    let fd = beside.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    bytes.truncate(read);
    Ok((read > 0).then_some((bytes, fd)))
}

/// Writes a line of QMP.
fn write_line(lines: &Mutex<UnixStream>, line: &[u8]) -> io::Result<()> {
    let line = [line.trim_ascii(), b"\n"].concat();
    lock(lines).write_all(&line)
}

/// QEMU's event in a line of `virsh qemu-monitor-event`, as QMP has it.
fn event(line: &str) -> Option<Value> {
    let (head, data) = line.split_once("': ")?;
    let (name, _time_and_domain) = head.strip_prefix("event ")?.split_once(' ')?;
    let data: Value = text::from_json(data.as_bytes(), text::MAX_TEXT_BYTES).ok()?;
    Some(json!({ "event": name, "data": data }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_virsh_become_events() {
        let line = r#"event DEVICE_DELETED at 1795399174.100000 for domain 'vm1': {"device":"a","path":"/b"}"#;
        let seen = event(line).expect("an event");
        assert_eq!(seen["event"], "DEVICE_DELETED");
        assert_eq!(seen["data"]["device"], "a");
        assert_eq!(event("events received: 0"), None);
        assert_eq!(event("event RESET at 1.0 for domain 'vm1': nothing"), None);
    }
}
