// SPDX-License-Identifier: MIT OR Apache-2.0
//! QMP of a domain of libvirt, which keeps QEMU's QMP socket for itself and passes commands on.
//!
//! A thread takes the place of QEMU at one end of a socket, and runs `virsh` for each command; two more
//! processes of `virsh` report events and the end of the domain.
//!
//! Invariants
//! - The thread of the guest waits for libvirt no longer than for QEMU: its limits hold at its end.
//! - Processes of `virsh` that report events end with the connection.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::io::{self, BufRead as _, BufReader, IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use ringtap_ipc::mutex::lock;
use ringtap_ipc::text;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use serde_json::{Value, json};

use super::qmp::QmpError;

/// Most bytes of a command: the longest of this crate have some hundreds.
const MOST_COMMAND_BYTES: usize = 64 * 1024;

/// A running domain, and QEMU's end of the socket.
struct Domain {
    name: String,
    socket: UnixStream,
    /// The same socket, for all threads that write lines.
    lines: Arc<Mutex<UnixStream>>,
}

/// Connects with the QMP of a running domain; the socket closes when the domain ends.
pub(super) fn connect(domain: &str) -> Result<UnixStream, QmpError> {
    let version = json!({ "execute": "query-version" }).to_string();
    let version = monitor_command(domain, version.as_ref(), None).map_err(QmpError::Libvirt)?;
    let version: Value =
        text::from_json(&version, text::MOST_TEXT_BYTES).map_err(|_| QmpError::NotQmp)?;
    let greeting = json!({ "QMP": { "version": version.get("return") } });
    let (client, socket) = UnixStream::pair()?;
    let domain = Domain {
        name: domain.to_owned(),
        lines: Arc::new(Mutex::new(socket.try_clone()?)),
        socket,
    };
    write_line(&domain.lines, greeting.to_string().as_bytes())?;
    thread::Builder::new()
        .name("virsh".into())
        .spawn(move || domain.serve())?;
    Ok(client)
}

impl Domain {
    /// Carries out commands until either end leaves.
    fn serve(self) {
        // This thread starts the processes: they get a signal when it ends.
        let watches = [self.watch_events(), self.watch_life()];
        if watches.iter().all(Result::is_ok) {
            // An error is the end of the other side.
            let _end = self.answer_commands();
        }
        let _closed = self.socket.shutdown(Shutdown::Both);
        for mut child in watches.into_iter().flatten() {
            // It may have ended by itself.
            let _ended = child.kill();
            let _status = child.wait();
        }
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
                    let refused = |text: String| {
                        json!({ "error": { "desc": text } })
                            .to_string()
                            .into_bytes()
                    };
                    monitor_command(&self.name, command.as_ref(), fd).unwrap_or_else(refused)
                }
            };
            write_line(&self.lines, &answer)?;
        }
    }

    /// Passes QEMU's events on.
    fn watch_events(&self) -> io::Result<Child> {
        let lines = Arc::clone(&self.lines);
        self.watch(
            &["qemu-monitor-event", "--loop", "--domain"],
            move |line| match event(line) {
                Some(event) => write_line(&lines, event.to_string().as_bytes()),
                None => Ok(()),
            },
        )
    }

    /// Ends the connection with the domain.
    fn watch_life(&self) -> io::Result<Child> {
        let args = ["event", "--event", "lifecycle", "--loop", "--domain"];
        self.watch(&args, |line| match is_end(line) {
            true => Err(io::ErrorKind::ConnectionReset.into()),
            false => Ok(()),
        })
    }

    /// Starts a `virsh` whose lines `each` takes; its end, or an error of `each`, ends the connection.
    fn watch(
        &self,
        args: &[&str],
        mut each: impl FnMut(&str) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Child> {
        let mut command = Command::new("setpriv");
        command.args("--pdeathsig KILL stdbuf -oL virsh".split(' '));
        command.args(args).arg(&self.name);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let said = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let socket = self.socket.try_clone()?;
        let follow = move || {
            let _end = BufReader::new(said)
                .lines()
                .try_for_each(|line| each(&line?));
            let _closed = socket.shutdown(Shutdown::Both);
        };
        thread::Builder::new().name("events".into()).spawn(follow)?;
        Ok(child)
    }
}

/// Sends QEMU a command with at most one descriptor, and waits for the answer; libvirt's words if it has
/// none.
fn monitor_command(domain: &str, command: &OsStr, fd: Option<OwnedFd>) -> Result<Vec<u8>, String> {
    let mut virsh = Command::new("virsh");
    virsh.args(["qemu-monitor-command", "--domain", domain]);
    if let Some(fd) = &fd {
        // For the process of `virsh`, which has it under the same number.
        fcntl_setfd(fd, FdFlags::empty()).map_err(|error| error.to_string())?;
        virsh.arg("--pass-fds").arg(fd.as_raw_fd().to_string());
    }
    let done = virsh.arg(command).stdin(Stdio::null()).output();
    let done = done.map_err(|error| format!("{error}: install libvirt's clients"))?;
    match done.status.success() {
        true => Ok(done.stdout),
        false => Err(text::clean(String::from_utf8_lossy(&done.stderr).trim()).into_owned()),
    }
}

/// The next command with its descriptor; `None` when the client has left.
fn receive(socket: &UnixStream) -> io::Result<Option<(Vec<u8>, Option<OwnedFd>)>> {
    let mut bytes = vec![0; MOST_COMMAND_BYTES];
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
    let data: Value = text::from_json(data.as_bytes(), text::MOST_TEXT_BYTES).ok()?;
    Some(json!({ "event": name, "data": data }))
}

/// Whether a line of `virsh event` reports the end of the domain.
fn is_end(line: &str) -> bool {
    let state = line.split_once("': ").map_or("", |(_, state)| state);
    ["Stopped", "Crashed"]
        .iter()
        .any(|end| state.starts_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_virsh_become_events_and_the_end_of_a_domain_is_seen() {
        let line = r#"event DEVICE_DELETED at 1795399174.100000 for domain 'vm1': {"device":"a","path":"/b"}"#;
        let seen = event(line).expect("an event");
        assert_eq!(seen["event"], "DEVICE_DELETED");
        assert_eq!(seen["data"]["device"], "a");
        assert_eq!(event("events received: 0"), None);
        assert_eq!(event("event RESET at 1.0 for domain 'vm1': nothing"), None);
        assert!(is_end("event 'lifecycle' for domain 'vm1': Stopped Failed"));
        assert!(is_end(
            "event 'lifecycle' for domain 'vm1': Crashed Panicked"
        ));
        assert!(!is_end(
            "event 'lifecycle' for domain 'vm1': Suspended Paused"
        ));
    }
}
