// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time stamps of the NIC. A veth answers a program as a NIC does, with the stamp of a packet that no NIC
//! has stamped.

use ringtap_capture::tap::{Mode, TapOptions};
use ringtap_device::StampClock;
use ringtap_filter::FilterLocation;
use ringtap_ipc::time::now_ns;
use ringtap_pool::format::flag;
use ringtap_testkit::{Namespace, require_root, require_tool, with};

use crate::rules::{classify, rule};
use crate::support::{Tagging, attach, finish, frame, options, own, tagged, try_attach};

fn by_nic() -> TapOptions {
    with(options("rx0"), |it| it.on.stamps = StampClock::Nic)
}

#[test]
fn a_packet_that_the_nic_did_not_stamp_has_the_hosts_time_and_is_not_marked() {
    require_root!();
    require_tool!("ip", "python3");
    let net = Namespace::with_veth("nic_time");
    let _tagging = Tagging::on(&net, "tx0");
    let mut tap = attach(&net, &by_nic());
    assert!(tap.facts.time_from.is_some());
    assert_eq!(
        tap.horizon_ns(),
        None,
        "nothing is known of the NIC's clock"
    );
    // Rules load a copy of the program, which is bound to the interface too.
    let places = classify(&mut tap, vec![rule("len <= 1518", 1)]);
    assert_eq!(places, [FilterLocation::Source]);
    let frames: Vec<_> = [60, 64, 1514].map(|size| frame(3, size)).into();
    let before = now_ns();
    net.inject("tx0", &frames);
    let (captured, _) = finish(tap);
    let expected: Vec<_> = frames.iter().map(|frame| tagged(frame, 5)).collect();
    assert_eq!(
        own(&captured),
        expected,
        "VLAN tags are restored beside stamps"
    );
    for packet in &captured {
        assert_eq!(packet.slot.flags & flag::NIC_TIME, 0);
        assert!(
            (before..=now_ns()).contains(&packet.slot.time_ns),
            "{:?}",
            packet.slot
        );
    }
}

#[test]
fn only_native_xdp_reads_stamps_of_a_nic() {
    require_root!();
    require_tool!("ip");
    let net = Namespace::with_veth("nic_hook");
    let tap = attach(&net, &by_nic());
    assert!(tap.facts.offered_from.contains("native XDP"));
    drop(tap);
    // Without a driver's hook there is no fall-back.
    net.ip(&["link", "set", "lo", "up"]);
    let refused = try_attach(
        &net,
        &with(by_nic(), |it| {
            it.on.interface = "lo".to_owned();
            it.on.mode = Mode::Auto;
        }),
    );
    assert!(refused.is_err(), "the loopback has no native XDP");
}
