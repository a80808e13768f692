// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules classify packets with their tags, and change while packets arrive.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use ringtap_filter::hash::{HashKeys, HashSeed, Link};
use ringtap_filter::{Balance, FilterLocation, Headers, LinkType, Rule, Rules, text};
use ringtap_pool::format::flag;
use ringtap_testkit::{Namespace, require_root, with};

use crate::{capture::Capture, frame, options};

/// Packets that pass the filter get these bits.
fn rule(expression: &str, balance: Balance, members: u64) -> Rule {
    let compiled = text::compile(expression, LinkType::ETHERNET, 65535);
    Rule {
        filter: compiled.expect("a filter"),
        balance,
        ..Rule::everything(members)
    }
}

#[test]
fn rules_see_packets_with_their_tags_and_the_rest_is_counted() {
    require_root!();
    let net = Namespace::with_veth("packet_rules");
    let mut capture = Capture::start(&net, &options());
    let rules = Rules::from(vec![
        rule("vlan 7", Balance::Flow(Headers::Outer), 1),
        rule("greater 100", Balance::Everyone, 2),
    ]);
    let places = capture.source().rules.classify(&rules).unwrap();
    assert_eq!(places, [FilterLocation::Source, FilterLocation::Source]);
    let sent = [
        frame(&[], 60),
        frame(&[(0x8100, 7)], 64),
        frame(&[(0x8100, 8)], 64),
        frame(&[(0x88a8, 7)], 104),
        frame(&[], 200),
    ];
    net.inject("tx0", &sent);
    capture.read_until(3);
    let (packets, counts) = capture.finish();
    let masks: Vec<_> = packets.iter().map(|one| one.slot.mask).collect();
    assert_eq!(masks, [1, 3, 2]);
    assert_eq!(counts.lanes[0].filtered, 2);
    assert_eq!(
        packets[0].slot.hash,
        HashKeys::new(HashSeed(0)).flow(&sent[1], Link::Ethernet, Headers::Outer)
    );
    let hashed: Vec<_> = packets.iter().map(|one| one.has(flag::HASHED)).collect();
    assert_eq!(hashed, [true; 3]);
}

#[test]
fn rules_change_under_traffic_without_loss() {
    require_root!();
    let net = Namespace::with_veth("packet_rule_changes");
    let mut capture = Capture::start(&net, &options());
    let is_sent = AtomicBool::new(false);
    let mut changes = 0;
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..15 {
                net.inject("tx0", &vec![frame(&[], 60); 200]);
            }
            is_sent.store(true, Relaxed);
        });
        while !is_sent.load(Relaxed) {
            changes += 1;
            let rules = Rules::from(vec![rule("less 1000", Balance::Everyone, changes)]);
            capture.source().rules.classify(&rules).unwrap();
            thread::sleep(Duration::from_micros(200));
        }
    });
    capture.read_until(3_000);
    let (packets, counts) = capture.finish();
    assert_eq!((packets.len(), counts.lanes[0].filtered), (3_000, 0));
    let masks: Vec<_> = packets.iter().map(|one| one.slot.mask).collect();
    let classified = masks.iter().filter(|mask| **mask != u64::MAX).count();
    assert!(
        changes > 20 && classified > 100,
        "{changes} changes, {classified} classified"
    );
    let in_order = masks
        .iter()
        .skip_while(|mask| **mask == u64::MAX)
        .is_sorted();
    assert!(in_order, "replaced rules classified a packet");
}

#[test]
fn filters_see_the_whole_packet_and_the_snap_length_cuts_afterwards() {
    require_root!();
    for (snap_length, tags) in [(40, &[][..]), (8, &[(0x8100, 7)][..])] {
        let net = Namespace::with_veth("packet_rules_snap");
        let options = with(options(), |it| it.snap_length = Some(snap_length));
        let mut capture = Capture::start(&net, &options);
        let rules = Rules::from(vec![rule(
            "len > 100 and ether[99] = 0x5a",
            Balance::Everyone,
            1,
        )]);
        capture.source().rules.classify(&rules).unwrap();
        let long = |last: u8| {
            let mut bytes = frame(tags, 120);
            bytes[99] = last;
            bytes
        };
        let sent = [long(0x5a), long(0x5b), frame(tags, 80), long(0x5a)];
        net.inject("tx0", &sent);
        capture.read_until(2);
        let (packets, counts) = capture.finish();
        assert_eq!((packets.len(), counts.lanes[0].filtered), (2, 2));
        let kept = usize::try_from(snap_length).unwrap();
        for packet in packets {
            assert_eq!(packet.data, sent[0][..kept]);
            assert_eq!(packet.slot.wire_length, 120);
            assert_eq!(packet.has(flag::VLAN_RESTORED), !tags.is_empty());
        }
    }
}
