// SPDX-License-Identifier: MIT OR Apache-2.0
//! The private network keeps its promises: traffic crosses it, and nothing outlives its guard.

use std::{fs, panic, path::PathBuf, time::Duration};

use ringtap_testkit::{Namespace, require_root, require_tool};

fn path_of(namespace: &Namespace) -> PathBuf {
    PathBuf::from("/run/netns").join(namespace.name())
}

#[test]
fn what_enters_one_end_of_the_pair_comes_out_of_the_other() {
    require_root!();
    require_tool!("python3");
    let net = Namespace::with_veth("what_enters");
    net.inject("tx0", &[vec![0xff; 64], vec![0x11; 1500]]);
    assert_eq!(net.counter("rx0", "rx_packets"), 2);
    assert_eq!(net.counter("rx0", "rx_bytes"), 1564);
}

#[test]
fn the_pair_is_silent_until_somebody_sends() {
    require_root!();
    let net = Namespace::with_veth("silent");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(net.counter("rx0", "rx_packets"), 0);
    assert_eq!(net.counter("tx0", "rx_packets"), 0);
}

#[test]
fn a_thread_that_enters_sees_the_interfaces_inside_and_leaves_the_others_outside() {
    require_root!();
    let net = Namespace::with_veth("enter");
    let devices = || fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    assert!(net.enter(devices).contains("rx0"));
    assert!(!devices().contains("rx0"));
}

#[test]
fn a_device_can_move_to_a_second_namespace() {
    require_root!();
    require_tool!("python3");
    let here = Namespace::with_veth("move-here");
    let there = Namespace::new("move-there");
    here.move_device("rx0", &there);
    here.inject("tx0", &[vec![0xff; 60]]);
    assert_eq!(there.counter("rx0", "rx_packets"), 1);
}

#[test]
fn a_panic_removes_the_namespace_and_the_processes_inside() {
    require_root!();
    let net = Namespace::new("panic");
    let path = path_of(&net);
    let sleeper = net.spawn("sleep", &["60"]);
    assert!(path.exists());
    let caught = panic::catch_unwind(panic::AssertUnwindSafe(move || {
        let _net = net;
        panic!("on purpose");
    }));
    assert!(caught.is_err());
    assert!(!path.exists());
    let end = sleeper.wait(Duration::from_secs(10));
    assert!(!end.status.success(), "the sleeper was killed");
}

#[test]
fn no_xdp_program_is_seen_where_none_is_attached() {
    require_root!();
    let net = Namespace::with_veth("xdp");
    assert!(!net.has_xdp("rx0"));
}
