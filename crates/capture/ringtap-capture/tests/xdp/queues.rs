// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queues: some, all, missing ones, and those that another process holds.

use std::thread;
use std::time::Duration;

use ringtap_bpf::BpfError;
use ringtap_capture::CaptureError;
use ringtap_capture::xdp::XdpOptions;
use ringtap_device::DeviceSpec;
use ringtap_pool::source::{Source, Status};
use ringtap_testkit::{LIMIT, Namespace, require_root, require_tool, settle, with};
use rustix::process::Signal;

use crate::support::{finish, frame, open, options, own, try_open};

fn on(device: &str) -> XdpOptions {
    let device: DeviceSpec = device.parse().unwrap();
    with(XdpOptions::from_device(&device), |it| {
        it.on.pool.bytes = Some(8 << 20)
    })
}

/// A veth pair with `count` queues in each direction.
fn with_queues(test: &str, count: &str) -> Namespace {
    let net = Namespace::new(test);
    let queues = ["numrxqueues", count, "numtxqueues", count];
    let mut command = vec!["link", "add", "tx0"];
    command.extend(queues);
    command.extend(["type", "veth", "peer", "name", "rx0"]);
    command.extend(queues);
    net.ip(&command);
    for end in ["tx0", "rx0"] {
        net.ip(&["link", "set", end, "arp", "off"]);
        net.ip(&["link", "set", end, "up"]);
    }
    net
}

/// Sends from one CPU, bypassing the queueing discipline, so that the CPU determines the queue.
fn send_from(net: &Namespace, cpu: &str, count: u32) {
    let script = format!(
        "import socket\n\
         s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\n\
         s.setsockopt(263, 20, 1)\n\
         s.bind(('tx0', 0))\n\
         for n in range({count}):\n    s.send(bytes([2,0,0,0,0,2, 2,0,0,0,0,1, 0x88,0xb5]) + bytes(50))\n"
    );
    let end = net.run("taskset", &["-c", cpu, "python3", "-c", &script]);
    assert!(end.status.success(), "{}", end.stderr);
    settle(cpu.parse().expect("a CPU's number"));
}

#[test]
fn every_queue_is_a_lane_and_others_go_their_way() {
    require_root!();
    require_tool!("ip", "python3", "taskset");
    let net = with_queues("two_queues", "2");
    let source = open(&net, &on("xdp:rx0"));
    assert_eq!(source.pool().geometry().lane_count, 2);
    send_from(&net, "0", 30);
    send_from(&net, "1", 40);
    let (captured, counts) = finish(source);
    assert_eq!(own(&captured).len(), 70);
    let offered: Vec<_> = counts.lanes.iter().map(|lane| lane.offered).collect();
    for (lane, offered) in (0..).zip(&offered) {
        let of_lane = captured.iter().filter(|packet| packet.slot.queue == lane);
        assert_eq!(u64::try_from(of_lane.count()).unwrap(), *offered);
    }
    let one = open(&net, &on("xdp:rx0@1"));
    assert_eq!(one.facts().device, "xdp:rx0@1");
    send_from(&net, "0", 30);
    send_from(&net, "1", 40);
    let (captured, counts) = finish(one);
    assert_eq!(counts.lanes.len(), 1);
    assert_eq!(
        counts.lanes[0].offered, offered[1],
        "as many as the second queue had before"
    );
    assert!(captured.iter().all(|packet| packet.slot.queue == 1));
}

#[test]
fn some_queues_are_captured_and_the_one_between_them_is_not() {
    require_root!();
    require_tool!("ip", "python3", "taskset");
    let net = with_queues("some_queues", "3");
    let send = || {
        send_from(&net, "0", 30);
        send_from(&net, "1", 40);
    };
    let all = open(&net, &on("xdp:rx0"));
    send();
    let (_, counts) = finish(all);
    let offered: Vec<_> = counts.lanes.iter().map(|lane| lane.offered).collect();
    assert_eq!(offered.iter().sum::<u64>(), 70, "{offered:?}");
    let some = open(&net, &on("xdp:rx0@0,2"));
    assert_eq!(some.pool().geometry().lane_count, 2);
    send();
    let (captured, counts) = finish(some);
    let lanes: Vec<_> = counts.lanes.iter().map(|lane| lane.offered).collect();
    assert_eq!(lanes, [offered[0], offered[2]]);
    assert_eq!(
        u64::try_from(own(&captured).len()).unwrap(),
        offered[0] + offered[2]
    );
    assert!(captured.iter().all(|packet| packet.slot.queue != 1));
}

#[test]
fn a_thread_that_polls_all_the_time_captures_the_same() {
    require_root!();
    require_tool!("ip", "python3");
    let net = Namespace::with_veth("busy_poll");
    let options = on("xdp:rx0?busy-poll");
    assert!(options.busy_poll);
    let frames: Vec<_> = (0..100).map(|number| frame(number, 100)).collect();
    let source = open(&net, &options);
    net.inject("tx0", &frames);
    let (captured, _) = finish(source);
    assert_eq!(own(&captured), frames);
}

/// Binds an AF_XDP socket to the first queue, without an XDP program.
const HOLD: &str = "
import ctypes, mmap, socket, struct, time
memory = mmap.mmap(-1, 64 * 2048)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
held = socket.socket(44, socket.SOCK_RAW)
held.setsockopt(283, 4, struct.pack('=QQIIII', address, 64 * 2048, 2048, 0, 0, 0))
for ring in (5, 6, 2): held.setsockopt(283, ring, struct.pack('=I', 64))
where = struct.pack('=HHIII', 44, 2, socket.if_nametoindex('rx0'), 0, 0)
assert ctypes.CDLL(None).bind(held.fileno(), where, len(where)) == 0
print('held', flush=True)
time.sleep(600)
";

#[test]
fn a_queue_of_a_foreign_socket_is_told_and_taken_when_that_is_gone() {
    require_root!();
    require_tool!("ip", "python3");
    let net = Namespace::with_veth("foreign");
    let occupant = net.spawn("python3", &["-c", HOLD]);
    occupant.wait_for_stdout("held", LIMIT);
    let error = try_open(&net, &options("rx0")).err().expect("it is held");
    let is_first = matches!(error, CaptureError::Busy { queue: 0, .. });
    assert!(is_first, "{error}");
    assert!(error.to_string().contains("queue 0"), "{error}");
    assert!(!net.has_xdp("rx0"), "nothing is left behind");
    // The kernel may still be removing the socket.
    occupant.signal(Signal::KILL);
    let source = open(&net, &options("rx0"));
    net.inject("tx0", &[frame(1, 100)]);
    let (captured, _) = finish(source);
    assert_eq!(own(&captured), [frame(1, 100)]);
}

#[test]
fn a_queue_that_is_not_there_is_refused() {
    require_root!();
    require_tool!("ip");
    let net = Namespace::with_veth("no_queue");
    let refused = try_open(&net, &on("xdp:rx0?mode=tc")).err();
    let error = refused.expect("there is no such mode").to_string();
    assert!(error.contains("or tap:rx0?mode=tc"), "{error}");
    let error = try_open(&net, &on("xdp:rx0@0-7"))
        .err()
        .expect("one queue")
        .to_string();
    assert!(
        error.starts_with("rx0 has no receive queue 7: it has 1"),
        "{error}"
    );
}

#[test]
fn a_queue_that_is_held_is_told_and_one_that_is_given_up_is_taken() {
    require_root!();
    require_tool!("ip", "python3");
    let net = Namespace::with_veth("held");
    let first = open(&net, &options("rx0"));
    let error = try_open(&net, &options("rx0")).err().expect("it is held");
    assert!(
        matches!(error, CaptureError::Bpf(BpfError::AnotherRingtap { .. })),
        "{error}"
    );
    let process = format!("process {}", std::process::id());
    assert!(error.to_string().contains(&process), "{error}");
    let gives_up = thread::spawn(move || {
        thread::sleep(Duration::from_millis(500));
        drop(first);
    });
    let second = open(&net, &options("rx0"));
    gives_up.join().unwrap();
    net.inject("tx0", &[frame(1, 100)]);
    let (captured, _) = finish(second);
    assert_eq!(own(&captured), [frame(1, 100)]);
    assert!(!net.has_xdp("rx0"), "nothing is left behind");
}

#[test]
fn an_interface_that_goes_away_ends_the_capture_with_the_reason() {
    require_root!();
    require_tool!("ip", "python3");
    let net = Namespace::with_veth("gone");
    let mut source = open(&net, &options("rx0"));
    net.inject("tx0", &[frame(1, 100)]);
    net.ip(&["link", "delete", "rx0"]);
    let status = loop {
        source.clear_wake();
        match source.status() {
            Status::Running | Status::Waiting => thread::sleep(Duration::from_millis(5)),
            other => break other,
        }
    };
    let Status::Removed(reason) = status else {
        panic!("{status:?}")
    };
    assert!(reason.to_string().contains("was removed"), "{reason}");
    let (captured, _) = finish(source);
    assert_eq!(own(&captured), [frame(1, 100)], "what came before is there");
}
