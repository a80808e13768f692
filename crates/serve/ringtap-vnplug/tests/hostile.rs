// SPDX-License-Identifier: MIT OR Apache-2.0
//! Guests that send without end, over a QEMU that is played by a thread.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::io::{IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ringtap_vnplug::ctrl::frame;
use ringtap_vnplug::ctrl::message::{ApplicationMessage, Message};
use ringtap_vnplug::device::{DeviceKind, SharedId};
use ringtap_vnplug::host::{FromGuest, GuestLimits, GuestVm, Monitor, VmError};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use serde_json::{Value, json};

const GREETING: &str = r#"{"QMP": {"version": {"qemu": {"major": 7, "minor": 2}}}}"#;
/// How long a guest floods the host.
const FLOOD: Duration = Duration::from_secs(3);

/// Answers as QEMU would; returns the guest's end of the command port.
fn play_qemu(listener: &UnixListener) -> (UnixStream, UnixStream) {
    let (mut qmp, _) = listener.accept().unwrap();
    qmp.write_all(format!("{GREETING}\n").as_bytes()).unwrap();
    let mut port = None;
    loop {
        let (command, fd) = receive(&qmp);
        port = port.or(fd.map(UnixStream::from));
        let name = command["execute"].as_str().unwrap().to_owned();
        let argument = |name: &str| command["arguments"][name].as_str().unwrap_or_default();
        let result = match name.as_str() {
            "query-status" => json!({ "status": "running" }),
            "qom-list" if argument("path") == "/machine/peripheral" => {
                json!([{ "name": "p1", "type": "child<pcie-root-port>" }])
            }
            "qom-list" | "query-chardev" => json!([]),
            "qom-get" if argument("property") == "hotplug" => json!(true),
            "qom-get" => json!(64 << 20),
            _ => json!({}),
        };
        let answer = json!({ "return": result });
        qmp.write_all(format!("{answer}\n").as_bytes()).unwrap();
        // The command port is plugged: the turn to plug ends.
        if name == "chardev-remove" {
            return (qmp, port.unwrap());
        }
    }
}

/// The next command, and the descriptor that came with it.
fn receive(qmp: &UnixStream) -> (Value, Option<OwnedFd>) {
    let mut bytes = [0; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut into = [IoSliceMut::new(&mut bytes)];
    let read = recvmsg(qmp, &mut into, &mut beside, RecvFlags::empty()).unwrap();
    let fd = beside.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    (serde_json::from_slice(&bytes[..read.bytes]).unwrap(), fd)
}

fn attach(folder: &Path) -> (GuestVm, UnixStream, UnixStream) {
    let path = folder.join("qmp");
    let listener = UnixListener::bind(&path).unwrap();
    let qemu = thread::spawn(move || play_qemu(&listener));
    let vm = GuestVm::attach(&Monitor::Qmp(path), "test", GuestLimits::default()).unwrap();
    let (qmp, port) = qemu.join().unwrap();
    port.set_nonblocking(false).unwrap();
    (vm, qmp, port)
}

fn framed(message: &Message) -> Vec<u8> {
    frame::encode(&message.encode())
}

fn hello(instance: u64) -> Message {
    Message::Hello {
        oldest: 1,
        newest: 1,
        instance,
    }
}

/// Time that this thread has used a CPU, and that it has waited for one.
fn used_and_waited() -> (Duration, Duration) {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let mut numbers = text.split(' ').map(|number| number.parse().unwrap());
    let mut next = || Duration::from_nanos(numbers.next().unwrap());
    (next(), next())
}

#[test]
fn a_guest_that_sends_without_end_takes_at_most_half_of_its_threads_time() {
    let folder = tempfile::tempdir().unwrap();
    let (mut vm, _qmp, mut port) = attach(folder.path());
    let signal = Message::Signal {
        device: SharedId(1),
        vector: 0,
    };
    // Each `hello` is a new agent, which takes none of its answers.
    let flood: Vec<u8> = (0..100)
        .flat_map(hello_and_noise)
        .chain(framed(&signal))
        .collect();
    thread::spawn(move || while port.write_all(&flood).is_ok() {});
    let (begun, before) = (Instant::now(), used_and_waited());
    let mut arrived = 0;
    while begun.elapsed() < FLOOD {
        match vm.next(Some(FLOOD)).unwrap() {
            Some(FromGuest::Arrived) => arrived += 1,
            Some(FromGuest::Gone) => panic!("the connection ended"),
            _ => {}
        }
    }
    let (wall, after) = (begun.elapsed(), used_and_waited());
    assert!(arrived > 0 && vm.refused_messages() > 0);
    let used = after.0 - before.0;
    let could = wall.saturating_sub(after.1 - before.1);
    assert!(used * 10 < could * 6, "{used:?} of {could:?}");
}

fn hello_and_noise(instance: u64) -> Vec<u8> {
    [framed(&hello(instance)), vec![0x55; 40]].concat()
}

#[test]
fn a_guest_that_takes_no_messages_costs_its_limit_and_the_next_agent_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let (mut vm, _qmp, mut port) = attach(folder.path());
    let message = ApplicationMessage {
        application: 3,
        kind: 1,
        request: 2,
        payload: Vec::new(),
    };
    assert!(matches!(vm.send(message.clone()), Err(VmError::NoAgent)));
    port.write_all(&framed(&hello(1))).unwrap();
    assert_eq!(vm.next(None).unwrap(), Some(FromGuest::Arrived));
    for bytes in [10_000, 0] {
        let message = ApplicationMessage {
            payload: vec![9; bytes],
            ..message.clone()
        };
        let sent = (0..100_000).find_map(|_| vm.send(message.clone()).err());
        assert!(matches!(sent, Some(VmError::Unsent(_))), "{sent:?}");
    }
    port.write_all(&framed(&hello(2))).unwrap();
    assert_eq!(vm.next(None).unwrap(), Some(FromGuest::Left));
    assert_eq!(vm.next(None).unwrap(), Some(FromGuest::Arrived));
    // The new agent finds its `Welcome` behind what was on the way to the old one.
    let welcome = framed(&Message::Welcome {
        version: 1,
        instance: 2,
    });
    let reader = thread::spawn(move || {
        let mut seen: Vec<u8> = Vec::new();
        let mut bytes = [0; 65_536];
        while !seen.windows(welcome.len()).any(|window| window == welcome) {
            let read = std::io::Read::read(&mut port, &mut bytes).unwrap();
            assert!(read > 0, "no answer");
            seen.drain(..seen.len().saturating_sub(welcome.len()));
            seen.extend(&bytes[..read]);
        }
        // A port that closes is the end of QEMU.
        port
    });
    let deadline = Instant::now() + Duration::from_secs(120);
    while !reader.is_finished() {
        assert!(Instant::now() < deadline, "the new agent gets no answer");
        vm.next(Some(Duration::from_millis(10))).unwrap();
    }
    let _port = reader.join().unwrap();
}

#[test]
fn a_qemu_that_ends_is_reported_once_and_everything_is_refused_from_then_on() {
    let folder = tempfile::tempdir().unwrap();
    let (mut vm, qmp, port) = attach(folder.path());
    drop((qmp, port));
    while vm.next(None).unwrap() != Some(FromGuest::Gone) {}
    assert!(matches!(vm.next(None), Err(VmError::Gone)));
    let plugged = vm.plug(1, DeviceKind::Bulk, 4096);
    assert!(matches!(plugged, Err(VmError::Gone)));
    vm.detach(FLOOD).unwrap();
}
