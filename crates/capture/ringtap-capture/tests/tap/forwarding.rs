// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets that a bridge's program forwards, and those that it leaves to the network stack's buffers.

use ringtap_capture::tap::{Checksums, Forward, Mode, Passing, Tap};
use ringtap_filter::Rules;
use ringtap_net::interface::Interface;
use ringtap_testkit::{Namespace, require_root, require_tool, with};

use crate::support::{Tagging, attach, finish, frame, options, own, tagged};

/// Two pairs: packets into `tx0` arrive at `rx0`, are forwarded to `rx1`, and arrive at `tx1`.
fn with_two_pairs(test: &str) -> Namespace {
    let net = Namespace::with_veth(test);
    net.add_veth("tx1", "rx1");
    for end in ["tx0", "tx1"] {
        let done = net.run("ethtool", &["-K", end, "gro", "on"]);
        assert!(done.status.success(), "{}", done.stderr);
    }
    net
}

/// Taps that forward to each other's interface.
fn bridge(net: &Namespace, mode: Mode) -> [Tap; 2] {
    let open = |from: &str, to: &str| {
        let to = net.enter(|| Interface::find(to)).unwrap();
        let options = with(options(from), |it| {
            it.on.mode = mode;
            it.forward = Some(Forward {
                interface: to.index,
                largest_frame: to.mtu_bytes + 18,
                checksums: Checksums::MayBeMissing,
                passing: Passing::All,
                decided: None,
            });
        });
        let mut tap = attach(net, &options);
        // Forwarding begins with the first rules.
        tap.rules.classify(&Rules::default()).unwrap();
        tap
    };
    [open("rx0", "rx1"), open("rx1", "rx0")]
}

#[test]
fn a_tag_that_lies_beside_the_packet_is_forwarded_with_it() {
    require_root!();
    require_tool!("ip", "python3", "ethtool");
    for mode in [Mode::Auto, Mode::Tc] {
        let net = with_two_pairs("forward-tag");
        let receiver = attach(&net, &options("tx1"));
        let mut bridge = bridge(&net, mode);
        let plain = frame(1, 100);
        net.inject("tx0", std::slice::from_ref(&plain));
        let tagging = Tagging::on(&net, "tx0");
        net.inject("tx0", std::slice::from_ref(&plain));
        drop(tagging);
        bridge.iter_mut().for_each(|tap| tap.stop());
        let counts = bridge[0].forwarded.counts();
        let (captured, _) = finish(receiver);
        assert_eq!(
            own(&captured),
            [plain.clone(), tagged(&plain, 5)],
            "{mode:?}"
        );
        let left = counts.redirected + counts.from_stack;
        assert_eq!((counts.offered, left), (2, 2), "{counts:?}");
        let by_stack = if mode == Mode::Auto { 1 } else { 2 };
        assert_eq!(counts.from_stack, by_stack, "{mode:?}: {counts:?}");
    }
}

/// An IPv4 packet of 60 bytes whose checksum field is the pseudo header's sum plus `more`.
fn segment(protocol: u8, more: u16) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    let length = 46_u16;
    bytes.extend([0x45, 0]);
    bytes.extend(length.to_be_bytes());
    bytes.extend([0, 0, 0, 0, 64, protocol, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2]);
    let mut sum: u32 = [
        0x0a09,
        1,
        0x0a09,
        2,
        u32::from(protocol),
        u32::from(length) - 20,
    ]
    .iter()
    .sum();
    sum = (sum & 0xffff) + (sum >> 16) + u32::from(more);
    let mut payload = vec![0; 26];
    let field = if protocol == 6 { 16 } else { 6 };
    payload[..2].copy_from_slice(&7_u16.to_be_bytes());
    payload[field..field + 2].copy_from_slice(&u16::try_from(sum).unwrap().to_be_bytes());
    bytes.extend(payload);
    bytes
}

#[test]
fn only_packets_that_may_lack_a_checksum_take_the_longer_way() {
    require_root!();
    require_tool!("ip", "python3", "ethtool");
    let net = with_two_pairs("forward-sum");
    let mut bridge = bridge(&net, Mode::Native);
    for (protocol, more, by_stack) in [
        (6, 0, 1),
        (17, 0, 1),
        (6, 1, 0),
        (17, 1, 0),
        (1, 0, 0),
        (47, 0, 1),
    ] {
        let before = bridge[0].forwarded.counts();
        net.inject("tx0", &[segment(protocol, more)]);
        let after = bridge[0].forwarded.counts();
        let (offered, left) = (
            after.offered - before.offered,
            after.to_stack - before.to_stack,
        );
        assert_eq!(
            (offered, left),
            (1, by_stack),
            "protocol {protocol}, {more} more"
        );
    }
    bridge.iter_mut().for_each(|tap| tap.stop());
    let counts = bridge[0].forwarded.counts();
    let left = counts.redirected + counts.from_stack;
    assert_eq!((counts.offered, left), (6, 6), "{counts:?}");
}
