// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time stamps of the NIC. A veth answers a program as a NIC does, with the stamp of a packet that no NIC
//! has stamped.

use ringtap_capture::xdp::XdpOptions;
use ringtap_device::StampClock;
use ringtap_ipc::time::now_ns;
use ringtap_pool::format::flag;
use ringtap_pool::source::Source;
use ringtap_testkit::{Namespace, require_root, require_tool, with};

use crate::support::{finish, frame, open, options, own, try_open};

fn by_nic(interface: &str) -> XdpOptions {
    with(options(interface), |it| it.on.stamps = StampClock::Nic)
}

#[test]
fn a_packet_that_the_nic_did_not_stamp_has_the_hosts_time_and_is_not_marked() {
    require_root!();
    require_tool!("ip", "python3");
    let net = Namespace::with_veth("xdp_nic_time");
    let source = open(&net, &by_nic("rx0"));
    assert!(source.facts().time_from.is_some());
    let frames = [60, 64, 1514].map(|size| frame(3, size));
    let before = now_ns();
    net.inject("tx0", &frames);
    let (captured, _) = finish(source);
    assert_eq!(own(&captured), frames);
    for packet in &captured {
        assert_eq!(packet.slot.flags & flag::NIC_TIME, 0);
        let time_ns = packet.slot.time_ns;
        assert!((before..=now_ns()).contains(&time_ns), "{time_ns}");
    }
}

#[test]
fn an_interface_without_native_xdp_has_no_stamps_of_the_nic() {
    require_root!();
    require_tool!("ip");
    let net = Namespace::with_veth("xdp_nic_hook");
    net.ip(&["link", "set", "lo", "up"]);
    assert!(try_open(&net, &by_nic("lo")).is_err());
}
