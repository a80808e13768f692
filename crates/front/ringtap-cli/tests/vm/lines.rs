// SPDX-License-Identifier: MIT OR Apache-2.0
//! A guest that says hello without end, over a QEMU that is played by a thread.

use std::io::{IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ringtap_testkit::{LIMIT, Running};
use ringtap_vnplug::ctrl::frame;
use ringtap_vnplug::ctrl::message::Message;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::kit::BINARY;

const GREETING: &str = r#"{"QMP": {"version": {"qemu": {"major": 7, "minor": 2}}}}"#;
/// How long the guest floods the host.
const FLOOD: Duration = Duration::from_secs(3);

/// Answers as QEMU would, until the host leaves. Sends the guest's end of the command port once the host has plugged
/// `devices` devices beside it.
fn play_qemu(listener: &UnixListener, devices: usize, ready: &mpsc::Sender<UnixStream>) {
    let (mut qmp, _) = listener.accept().unwrap();
    qmp.write_all(format!("{GREETING}\n").as_bytes()).unwrap();
    let (mut port, mut plugged) = (None, 0);
    let mut characters: Vec<String> = Vec::new();
    while let Some((command, fd)) = receive(&qmp) {
        port = port.or(fd.map(UnixStream::from));
        let name = command["execute"].as_str().unwrap().to_owned();
        let argument = |name: &str| command["arguments"][name].as_str().unwrap_or_default();
        match name.as_str() {
            "chardev-add" => characters.push(argument("id").to_owned()),
            "chardev-remove" => characters.retain(|one| one != argument("id")),
            _ => {}
        }
        let result = match name.as_str() {
            "query-status" => json!({ "status": "running" }),
            "qom-list" if argument("path") == "/machine/peripheral" => {
                json!([{ "name": "p1", "type": "child<pcie-root-port>" }])
            }
            "query-chardev" => characters
                .iter()
                .map(|label| json!({ "label": label, "filename": "unix:", "frontend-open": false }))
                .collect(),
            "qom-list" => json!([]),
            "qom-get" if argument("property") == "hotplug" => json!(true),
            "qom-get" => json!(1_u64 << 32),
            "add-fd" => json!({ "fdset-id": 1, "fd": 9 }),
            _ => json!({}),
        };
        plugged += usize::from(argument("driver").starts_with("ivshmem"));
        let answer = json!({ "return": result });
        if qmp.write_all(format!("{answer}\n").as_bytes()).is_err() {
            return;
        }
        if plugged == devices {
            plugged += 1;
            ready.send(port.take().unwrap()).unwrap();
        }
    }
}

/// The next command, and the descriptor that came with it; `None` when the host has left.
fn receive(qmp: &UnixStream) -> Option<(Value, Option<OwnedFd>)> {
    let mut bytes = [0; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut into = [IoSliceMut::new(&mut bytes)];
    let read = recvmsg(qmp, &mut into, &mut beside, RecvFlags::empty()).ok()?;
    let fd = beside.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    let command = serde_json::from_slice(&bytes[..read.bytes]).ok()?;
    Some((command, fd))
}

fn hello(instance: u64) -> Vec<u8> {
    let hello = Message::Hello {
        oldest: 1,
        newest: 1,
        instance,
    };
    frame::encode(&hello.encode())
}

#[test]
fn a_guest_that_says_hello_without_end_prints_a_bounded_number_of_lines() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    let mut command = Command::new(BINARY);
    command.args(["hub", "-i", "sim:1kpps", "-g", "all", "--socket"]);
    command.arg(path("hub.sock"));
    let hub = Running::start(command);
    hub.wait_for_stderr("ringtap: hub of", LIMIT);
    let listener = UnixListener::bind(path("qmp")).unwrap();
    let (ready, plugged) = mpsc::channel();
    thread::spawn(move || play_qemu(&listener, 2, &ready));
    let mut command = Command::new(BINARY);
    command.args([
        "vm", "attach", "--memory", "16MiB", "--group", "all", "--qmp",
    ]);
    command
        .arg(path("qmp"))
        .arg("--socket")
        .arg(path("hub.sock"));
    command.arg("--folder").arg(path("vm"));
    let host = Running::start(command);
    let mut port = plugged.recv_timeout(LIMIT).unwrap();
    host.wait_for_stderr("attached, for groups all", LIMIT);
    // The control: one hello is one line.
    port.set_nonblocking(false).unwrap();
    port.write_all(&hello(1)).unwrap();
    host.wait_for_stderr("the agent in the guest has connected", LIMIT);
    let lines = |host: &Running| {
        let text = host.stderr();
        text.lines()
            .filter(|line| line.contains("the agent in the guest"))
            .count()
    };
    assert_eq!(lines(&host), 1);

    let flood: Vec<u8> = (2..100).flat_map(hello).collect();
    let begun = Instant::now();
    let (mut sent, mut rounds) = (0, 0);
    while begun.elapsed() < FLOOD {
        port.write_all(&flood).unwrap();
        (sent, rounds) = (sent + 98, rounds + 1);
    }
    // Later than the flood, so that the next line is printed in any case.
    thread::sleep(Duration::from_secs(2));
    let seconds = usize::try_from(begun.elapsed().as_secs()).unwrap();
    let lines = lines(&host);
    assert!(sent > 1000, "{sent} in {rounds} rounds");
    assert!(
        (2..=10 * (seconds + 3)).contains(&lines),
        "{lines} in {seconds} s"
    );
    port.write_all(&hello(1)).unwrap();
    host.wait_for_stderr("lines left out before this one", LIMIT);
}
