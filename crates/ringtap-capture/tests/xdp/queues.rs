// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queues: some, all, none such, and those that somebody else has.

use std::thread;
use std::time::Duration;

use ringtap_capture::device::DeviceSpec;
use ringtap_capture::xdp::{XdpError, XdpOptions};
use ringtap_pool::source::{Source, Status};
use ringtap_testkit::{Namespace, require_root, require_tool};

use crate::support::{finish, frame, open, options, own, try_open};

fn on(device: &str) -> XdpOptions {
    let device: DeviceSpec = device.parse().unwrap();
    XdpOptions {
        pool_bytes: 8 << 20,
        ..XdpOptions::from_device(&device)
    }
}

/// A veth pair with two queues each way.
fn with_two_queues(test: &str) -> Namespace {
    let net = Namespace::new(test);
    let two = ["numrxqueues", "2", "numtxqueues", "2"];
    let mut command = vec!["link", "add", "tx0"];
    command.extend(two);
    command.extend(["type", "veth", "peer", "name", "rx0"]);
    command.extend(two);
    net.ip(&command);
    for end in ["tx0", "rx0"] {
        net.ip(&["link", "set", end, "arp", "off"]);
        net.ip(&["link", "set", end, "up"]);
    }
    net
}

/// Sends from one CPU, past the queueing discipline, so that the CPU chooses the queue.
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
}

#[test]
fn every_queue_is_a_lane_and_others_go_their_way() {
    require_root!();
    require_tool!("ip", "python3", "taskset");
    let net = with_two_queues("two_queues");
    let source = open(&net, &on("xdp:rx0"));
    assert_eq!(source.pool().geometry().lane_count, 2);
    send_from(&net, "0", 30);
    send_from(&net, "1", 40);
    let (captured, counts) = finish(source);
    assert_eq!(own(&captured).len(), 70);
    let seen: Vec<_> = counts.lanes.iter().map(|lane| lane.seen).collect();
    for (lane, seen) in (0..).zip(&seen) {
        let of_lane = captured.iter().filter(|packet| packet.slot.queue == lane);
        assert_eq!(u64::try_from(of_lane.count()).unwrap(), *seen);
    }
    let one = open(&net, &on("xdp:rx0@1"));
    assert_eq!(one.facts().device, "xdp:rx0@1");
    send_from(&net, "0", 30);
    send_from(&net, "1", 40);
    let (captured, counts) = finish(one);
    assert_eq!(counts.lanes.len(), 1);
    assert_eq!(
        counts.lanes[0].seen, seen[1],
        "as many as the second queue had before"
    );
    assert!(captured.iter().all(|packet| packet.slot.queue == 1));
}

#[test]
fn a_queue_that_is_not_there_is_refused() {
    require_root!();
    require_tool!("ip");
    let net = Namespace::with_veth("no_queue");
    let refused = try_open(&net, &on("xdp:rx0?mode=tc")).err();
    let error = refused.expect("there is no such mode").to_string();
    assert!(error.contains("use tap:rx0?mode=tc"), "{error}");
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
        matches!(error, XdpError::Program(_) | XdpError::Busy { .. }),
        "{error}"
    );
    assert!(
        error.to_string().starts_with("rx0: another XDP program"),
        "{error}"
    );
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
            Status::Running => thread::sleep(Duration::from_millis(5)),
            other => break other,
        }
    };
    let Status::Failed(reason) = status else {
        panic!("{status:?}")
    };
    assert!(reason.to_string().contains("was removed"), "{reason}");
    let (captured, _) = finish(source);
    assert_eq!(own(&captured), [frame(1, 100)], "what came before is there");
}
