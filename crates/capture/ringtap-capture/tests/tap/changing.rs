// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rule changes under traffic: no packet is lost, duplicated, or classified by parts of both sets.

use std::collections::BTreeMap;
use std::time::Duration;

use ringtap_capture::tap::{Direction, Mode, Tap};
use ringtap_device::Rate;
use ringtap_filter::{Balance, Headers, Rule};
use ringtap_packet::{Traffic, stamp};
use ringtap_pool::source::Source;
use ringtap_send::{Load, Method, Sender, SenderOptions};
use ringtap_testkit::{Namespace, require_root, require_tool, settle_everywhere, with};

use crate::rules::{classify, rule, sum};
use crate::support::{Captured, attach, finish, options};

/// Number of changes at the driver's hook, and at each of the others.
const CHANGES: [u64; 2] = [100, 25];
/// Both rules of a change contain its number; the second one from this bit on.
const SECOND: u32 = 32;

/// Rules of a change; every third change only has other members than the one before.
fn rules(number: u64) -> Vec<Rule> {
    let (first, balance) = match number % 6 {
        0 | 1 => ("udp", Balance::Everyone),
        2 => ("ip or ip6", Balance::Flow(Headers::Outer)),
        3 | 4 => ("udp port 9 and ip", Balance::Vlan),
        _ => ("", Balance::Address(Headers::Inner)),
    };
    let first = Rule {
        balance,
        ..rule(first, number)
    };
    vec![first, rule("udp and not ip6", number << SECOND)]
}

fn endless(interface: &str) -> SenderOptions {
    let traffic = Traffic {
        stamp: true,
        flows: 64,
        ..Traffic::default()
    };
    let rate = Rate::PacketsPerSecond(4_000);
    let mut options = SenderOptions::new(interface, Load::Made { traffic, rate });
    // Far longer than the changes take.
    options.duration = Some(Duration::from_secs(120));
    options.method = Some(Method::Packet);
    options
}

/// Changes the rules many times; returns the number of packets that each lane had captured at each
/// change.
fn change_many_times(tap: &mut Tap, changes: u64) -> Vec<Vec<u64>> {
    let mut marks = Vec::new();
    for number in 1..=changes {
        classify(tap, rules(number));
        let lanes = tap.counts().lanes;
        marks.push(lanes.iter().map(|lane| lane.delivered).collect());
    }
    marks
}

fn check(captured: &[Captured], sent: u64, marks: &[Vec<u64>]) {
    let numbers: Vec<_> = captured
        .iter()
        .filter_map(|it| stamp::parse(&it.data))
        .map(|it| it.sequence)
        .collect();
    let mut sorted = numbers.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..sent).collect::<Vec<_>>(), "each packet once");

    let mut places = BTreeMap::<u32, u64>::new();
    for packet in captured {
        let place = places.entry(packet.lane).or_default();
        let number = match packet.slot.mask {
            // Before the first rules.
            u64::MAX => 0,
            mask => {
                assert_eq!(
                    mask >> SECOND,
                    mask & 0xffff,
                    "parts of two changes: {mask:#x}"
                );
                mask >> SECOND
            }
        };
        let lane = usize::try_from(packet.lane).unwrap();
        let in_force = marks.iter().filter(|mark| mark[lane] <= *place).count() as u64;
        assert!(
            number >= in_force,
            "rules {number}, when {in_force} were in force"
        );
        *place += 1;
    }
}

#[test]
fn rules_that_change_under_traffic_lose_no_packet_and_mix_in_none() {
    require_root!();
    require_tool!("ip");
    for (mode, direction) in [
        (Mode::Native, Direction::In),
        (Mode::Generic, Direction::In),
        (Mode::Tc, Direction::In),
        (Mode::Native, Direction::Out),
    ] {
        let net = Namespace::with_veth("changing");
        let (tapped, sending) = match direction {
            Direction::Out => ("rx0", "rx0"),
            _ => ("rx0", "tx0"),
        };
        let changes = CHANGES[usize::from((mode, direction) != (Mode::Native, Direction::In))];
        let mut tap = attach(
            &net,
            &with(options(tapped), |it| {
                it.on.mode = mode;
                it.on.direction = direction;
                it.on.pool.bytes = Some(128 << 20);
            }),
        );
        let sender = net.enter(|| Sender::start(endless(sending))).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        let marks = change_many_times(&mut tap, changes);
        std::thread::sleep(Duration::from_millis(50));
        sender.stop();
        let sent = sender.finish().unwrap();
        settle_everywhere();
        let lost = net.counter(sending, "tx_dropped");
        let (captured, counts) = finish(tap);
        assert_eq!(
            (sent.refused, lost),
            (0, 0),
            "the veth itself loses nothing"
        );
        assert_eq!(sum(&counts, |lane| lane.filtered), 0, "{counts:?}");
        for lane in &counts.lanes {
            assert_eq!(lane.offered, lane.delivered, "{counts:?}");
        }
        assert!(sent.sent > changes, "there was traffic");
        check(&captured, sent.sent, &marks);
    }
}
