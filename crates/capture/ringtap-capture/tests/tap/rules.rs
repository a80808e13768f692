// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules in the kernel: filters, members, balance modes, and changes.

use std::time::Instant;

use ringtap_capture::tap::{Direction, Mode, Taking, Tap, TapOptions};
use ringtap_filter::{Balance, FilterLocation, LinkType, Program, Rule, Rules, text};
use ringtap_pool::counters::Counters;
use ringtap_pool::ids::LaneId;
use ringtap_pool::source::Pause;
use ringtap_testkit::{Namespace, require_root, require_tool, with};

use crate::limits::ping;
use crate::packets::Maker;
use crate::support::{SOON, Tagging, attach, finish, frame, options, own, whole};

pub(crate) const HOOKS: [Mode; 3] = [Mode::Native, Mode::Generic, Mode::Tc];

/// Compiles a filter in pcap-filter syntax.
pub(crate) fn program(expression: &str) -> Program {
    text::compile(expression, LinkType(1), 65_535).unwrap()
}

/// A rule that gives packets that pass the filter to these members.
pub(crate) fn rule(expression: &str, members: u64) -> Rule {
    Rule {
        filter: program(expression),
        ..Rule::everything(members)
    }
}

pub(crate) fn sum(counts: &ringtap_pool::source::Counts, of: fn(&Counters) -> u64) -> u64 {
    counts.lanes.iter().map(of).sum()
}

/// Sets rules from outside the namespace of the interface.
pub(crate) fn classify(tap: &mut Tap, rules: Vec<Rule>) -> Vec<FilterLocation> {
    let places = tap.rules.classify(&Rules::from(rules));
    places.unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn members_are_the_bits_of_what_is_captured() {
    require_root!();
    require_tool!("ip", "python3");
    for mode in HOOKS {
        let net = Namespace::with_veth("members");
        let mut tap = attach(&net, &with(options("rx0"), |it| it.on.mode = mode));
        net.inject("tx0", &[frame(1, 60)]);
        for members in [5, 1 << 63, u64::MAX, 0] {
            let places = classify(&mut tap, vec![Rule::everything(members)]);
            assert_eq!(places, [FilterLocation::Source]);
            net.inject("tx0", &[frame(2, 60)]);
        }
        classify(&mut tap, Vec::new());
        net.inject("tx0", &[frame(3, 60)]);
        let (captured, counts) = finish(tap);
        let mut masks: Vec<_> = captured.iter().map(|it| it.slot.mask).collect();
        masks.sort_unstable();
        assert_eq!(masks, [5, 1 << 63, u64::MAX, u64::MAX], "{mode:?}");
        assert_eq!(sum(&counts, |lane| lane.filtered), 2, "{counts:?}");
        assert_eq!(sum(&counts, |lane| lane.offered), 6, "{counts:?}");
    }
}

#[test]
fn a_paused_lane_counts_packets_as_lost_for_want_of_a_chunk() {
    require_root!();
    require_tool!("ip", "python3");
    let net = Namespace::with_veth("paused");
    let mut tap = attach(&net, &options("rx0"));
    let lanes = tap.pool.geometry().lane_count;
    let pause = |tap: &mut Tap, how| {
        (0..lanes).for_each(|lane| tap.pause(LaneId(lane), how));
    };
    net.inject("tx0", &vec![frame(1, 60); 3]);
    pause(&mut tap, Pause::Paused);
    net.inject("tx0", &vec![frame(2, 60); 5]);
    pause(&mut tap, Pause::Capturing);
    net.inject("tx0", &vec![frame(3, 60); 7]);
    let (captured, counts) = finish(tap);
    let captured_of = |number| {
        let own = own(&captured).into_iter();
        own.filter(|data| *data == frame(number, 60)).count()
    };
    assert_eq!([1, 2, 3].map(captured_of), [3, 0, 7]);
    assert_eq!(sum(&counts, |lane| lane.dropped.pool_full), 5, "{counts:?}");
}

/// Filters of all kinds that libpcap's compiler generates.
const FILTERS: [&str; 24] = [
    "ip",
    "ip6",
    "tcp",
    "udp",
    "udp port 53",
    "tcp dst port 80",
    "host 10.0.0.1",
    "src net 10.0.0.0/31",
    "ip[6:2] & 0x1fff != 0",
    "ip6 proto 17",
    "ip6 host 2001:db8::1",
    "vlan",
    "vlan and ip",
    "vlan and vlan and udp",
    "vlan 5",
    "ether dst 02:00:00:00:00:01",
    "greater 100",
    "less 64",
    "len - 14 = 60",
    "udp[8:4] = 0",
    "sctp or icmp",
    "ip[2:2] / ip[8] > 2",
    "not ip and not ip6",
    "ether[60:4] & 1 = 1",
];

/// Expected mask: one bit for each filter that the captured bytes pass.
fn expected_mask(filters: &[Program], data: &[u8], wire_length: u32) -> u64 {
    let bit =
        |(number, filter): (u32, &Program)| u64::from(filter.matches(data, wire_length)) << number;
    (0..).zip(filters).map(bit).sum()
}

/// Sends `sent` through a tap with all filters and compares each packet's mask; returns the number of
/// packets for each filter.
fn compare(net: &Namespace, options: &TapOptions, sent: &[Vec<u8>]) -> Vec<usize> {
    let filters: Vec<_> = FILTERS.iter().map(|it| program(it)).collect();
    let mut tap = attach(net, options);
    let rules = (0..).zip(FILTERS).map(|(number, it)| rule(it, 1 << number));
    // A rule for packets that no filter takes.
    let rules: Vec<_> = rules.chain([Rule::everything(1 << 63)]).collect();
    let places = classify(&mut tap, rules);
    assert!(
        places.iter().all(|it| *it == FilterLocation::Source),
        "{places:?}"
    );
    net.inject("tx0", sent);
    if options.on.direction == Direction::InOut {
        net.inject("rx0", sent);
    }
    let (captured, counts) = finish(tap);
    assert!(captured.len() * 100 >= sent.len() * 95, "{counts:?}");
    assert_eq!(sum(&counts, |lane| lane.filtered), 0);
    for packet in &captured {
        let whole = whole(packet, sent);
        let expected = expected_mask(&filters, whole, packet.slot.wire_length);
        let found = packet.slot.mask;
        assert_eq!(
            found,
            expected | 1 << 63,
            "{options:?}: {:02x?}",
            packet.data
        );
    }
    let with = |number: usize| {
        captured
            .iter()
            .filter(|it| it.slot.mask >> number & 1 == 1)
            .count()
    };
    (0..FILTERS.len()).map(with).collect()
}

#[test]
fn filters_in_the_kernel_take_what_they_take_in_user_space_on_every_hook() {
    require_root!();
    require_tool!("ip", "python3");
    let mut maker = Maker::new(11);
    for mode in HOOKS {
        let net = Namespace::with_veth("filters");
        let sent: Vec<_> = (0..1500).map(|_| maker.packet()).collect();
        let direction = Direction::InOut;
        let taken = compare(
            &net,
            &with(options("rx0"), |it| {
                it.on.mode = mode;
                it.on.direction = direction;
            }),
            &sent,
        );
        let unused = taken.iter().zip(FILTERS).filter(|(taken, _)| **taken == 0);
        assert_eq!(unused.count(), 0, "each filter took something: {taken:?}");
    }
}

#[test]
fn filters_see_tags_that_were_stripped() {
    require_root!();
    require_tool!("ip", "python3");
    let mut maker = Maker::new(12);
    for mode in [Mode::Native, Mode::Tc] {
        let net = Namespace::with_veth("filters_stripped");
        let _tagging = Tagging::on(&net, "tx0");
        let sent: Vec<_> = (0..500).map(|_| maker.packet()).collect();
        let taken = compare(&net, &with(options("rx0"), |it| it.on.mode = mode), &sent);
        assert_eq!(taken[14], 500, "vlan 5: {taken:?}");
        assert!(taken[12] > 50, "vlan and ip: {taken:?}");
    }
}

#[test]
fn filters_see_what_is_beyond_the_first_buffer() {
    require_root!();
    require_tool!("ip", "python3");
    for mode in HOOKS {
        let net = Namespace::with_veth("filters_jumbo");
        for end in ["tx0", "rx0"] {
            net.ip(&["link", "set", end, "mtu", "9000"]);
        }
        let mut tap = attach(&net, &with(options("rx0"), |it| it.on.mode = mode));
        let at = |offset: usize| rule(&format!("ether[{offset}] = 77"), 1);
        for offset in [20, 3000, 4000, 5001, 8999] {
            classify(&mut tap, vec![at(offset)]);
            for length in [9014, 9000, 4100, 2000] {
                let mut other = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];
                other.resize(length, 0);
                let mut wanted = other.clone();
                if let Some(byte) = wanted.get_mut(offset) {
                    *byte = 77;
                }
                net.inject("tx0", &[other, wanted]);
            }
        }
        let (captured, counts) = finish(tap);
        // Each offset lies within this many of the four lengths.
        assert_eq!(captured.len(), 4 + 3 + 3 + 2 + 2, "{mode:?}: {counts:?}");
        assert_eq!(sum(&counts, |lane| lane.filtered), 40 - 14, "{mode:?}");
    }
}

#[test]
fn filters_see_the_whole_packet_whatever_is_kept_of_it() {
    require_root!();
    require_tool!("ip", "python3");
    let mut maker = Maker::new(13);
    for snap_length in [14, 20, 34, 40, 60] {
        let net = Namespace::with_veth("filters_snap");
        // By its length each is known again.
        let mut packet = |number: usize| {
            let mut bytes = maker.packet();
            bytes.resize(100 + number, 0x5a);
            bytes
        };
        let sent: Vec<_> = (0..200).map(&mut packet).collect();
        compare(
            &net,
            &with(options("rx0"), |it| it.on.snap_length = Some(snap_length)),
            &sent,
        );
    }
}

#[test]
fn what_nobody_wants_is_dropped_by_an_exclusive_tap_and_passes_another() {
    require_root!();
    require_tool!("ip", "python3");
    for (taking, replies) in [(Taking::Exclusive, 0), (Taking::Pass, 1)] {
        for mode in HOOKS {
            let net = Namespace::with_veth("filtered");
            let mut tap = attach(
                &net,
                &with(options("rx0"), |it| {
                    it.on.mode = mode;
                    it.taking = taking;
                }),
            );
            classify(&mut tap, vec![rule("udp port 99", 1)]);
            net.ip(&["addr", "add", "10.9.9.1/24", "dev", "rx0"]);
            net.inject("tx0", &[ping()]);
            let begun = Instant::now();
            while net.counter("tx0", "rx_packets") < replies && begun.elapsed() < SOON {}
            assert_eq!(net.counter("tx0", "rx_packets"), replies, "{mode:?}");
            let (captured, counts) = finish(tap);
            assert_eq!((captured.len(), sum(&counts, |lane| lane.filtered)), (0, 1));
        }
    }
}

#[test]
fn sixty_four_rules_classify_at_once() {
    require_root!();
    require_tool!("ip", "python3");
    for mode in HOOKS {
        let net = Namespace::with_veth("sixty_four");
        let mut tap = attach(&net, &with(options("rx0"), |it| it.on.mode = mode));
        let rules = (0..64).map(|n| rule(&format!("ether[14] = {n}"), 1 << (63 - n)));
        let places = classify(&mut tap, rules.collect());
        assert_eq!(places, vec![FilterLocation::Source; 64]);
        let sent: Vec<_> = (0..70).map(|number| frame(number, 60)).collect();
        net.inject("tx0", &sent);
        let (captured, counts) = finish(tap);
        assert_eq!(sum(&counts, |lane| lane.filtered), 6);
        assert_eq!(captured.len(), 64);
        for packet in captured {
            assert_eq!(packet.slot.mask, 1 << (63 - packet.data[14]), "{mode:?}");
        }
    }
}

#[test]
fn a_filter_that_cannot_run_in_the_kernel_is_left_to_the_readers() {
    require_root!();
    require_tool!("ip", "python3");
    let net = Namespace::with_veth("left_out");
    let mut tap = attach(&net, &options("rx0"));
    let rules = vec![rule("udp port 99", 1), rule("ip6 protochain 17", 2)];
    let places = classify(&mut tap, rules);
    assert_eq!(places[0], FilterLocation::Source);
    let FilterLocation::Reader(reason) = &places[1] else {
        panic!("{places:?}")
    };
    assert!(reason.contains("protochain"), "{reason}");
    net.inject("tx0", &[frame(1, 60)]);
    let (captured, _) = finish(tap);
    assert_eq!(captured[0].slot.mask, 2, "it takes everything here");
}

#[test]
fn wrong_rules_leave_those_before_in_force() {
    require_root!();
    require_tool!("ip", "python3");
    let net = Namespace::with_veth("wrong_rules");
    let mut tap = attach(&net, &options("rx0"));
    classify(&mut tap, vec![Rule::everything(4)]);
    let mut refused = |rules| {
        let error = tap.rules.classify(&Rules::from(rules));
        error.expect_err("they are wrong").to_string()
    };
    let text = refused(vec![Rule::everything(1); 65]);
    assert!(text.contains("65 rules"), "{text}");
    let text = refused(vec![Rule {
        balance: Balance::Program("/no/such/file".into()),
        ..Rule::everything(1)
    }]);
    assert!(text.contains("/no/such/file"), "{text}");
    net.inject("tx0", &[frame(1, 60)]);
    let (captured, _) = finish(tap);
    assert_eq!(captured[0].slot.mask, 4);
}

/// A filter with 150 comparisons of words at offsets that the verifier does not know.
fn large(number: u64) -> Rule {
    let (load_x, load, equal, take, pass) = (0xb1, 0x40, 0x15 | 1 << 24, 0x06 | 1 << 32, 0x06);
    let test = |n: u64| [load | (n % 16) << 32, equal | (n * 64 + number) << 32, take];
    let tests = (0..150).flat_map(test);
    let entries: Vec<_> = [load_x | 14 << 32]
        .into_iter()
        .chain(tests)
        .chain([pass])
        .collect();
    Rule {
        filter: Program::from_entries(&entries).unwrap(),
        ..Rule::everything(1 << number)
    }
}

#[test]
fn filters_that_are_too_large_together_are_left_to_the_readers_and_the_others_are_not() {
    require_root!();
    require_tool!("ip", "python3");
    let net = Namespace::with_veth("too_large");
    let mut tap = attach(&net, &options("rx0"));
    let rule = |number: u64| match number % 4 {
        0 => large(number),
        _ => rule(&format!("ether[14] = {number}"), 1 << number),
    };
    let places = classify(&mut tap, (0..64).map(rule).collect());
    let left = |place: &FilterLocation| matches!(place, FilterLocation::Reader(why) if why.contains("does not fit"));
    let out: Vec<_> = (0..64).filter(|number| left(&places[*number])).collect();
    assert!(!out.is_empty() && out.len() <= 16, "{places:?}");
    net.inject(
        "tx0",
        &(0..64).map(|number| frame(number, 60)).collect::<Vec<_>>(),
    );
    let everything: u64 = out.iter().map(|number| 1 << number).sum();
    let (captured, _) = finish(tap);
    assert_eq!(captured.len(), 64);
    for packet in captured {
        let number = packet.data[14];
        let own = if number % 4 == 0 { 0 } else { 1 << number };
        assert_eq!(packet.slot.mask, everything | own);
    }
}

/// A short filter with more paths than the verifier can follow: scratch words with one of two
/// constants each, and jumps on them.
fn hard() -> Rule {
    let (load, above, constant, store) = (0x30, 0x25 | 2 << 24, 0x00, 0x02);
    let (skip, fetch, equal) = (0x05 | 1 << 32, 0x60, 0x15 | 1 << 24);
    let mut entries: Vec<u64> = Vec::new();
    for word in 0..14_u64 {
        let (one, zero) = (constant | (word + 1) << 32, constant);
        let at = load | (14 + word) << 32;
        entries.extend([at, above | 127 << 32, one, skip, zero, store | word << 32]);
    }
    for word in 0..14_u64 {
        entries.extend([fetch | word << 32, equal | (word + 1) << 32, 0x87]);
    }
    entries.push(0x06 | 1 << 32);
    Rule {
        filter: Program::from_entries(&entries).unwrap(),
        ..Rule::everything(2)
    }
}

/// A guest's readers are one reader of the host.
#[test]
fn the_joined_filters_of_twelve_ports_run_in_the_source() {
    require_root!();
    require_tool!("ip", "python3");
    let net = Namespace::with_veth("joined");
    let mut tap = attach(&net, &options("rx0"));
    let ports: Vec<_> = (1..=12)
        .map(|port| rule(&format!("udp port {port}"), 1).filter)
        .collect();
    let joined = Rule {
        filter: Program::any_of(&ports, 262_144),
        ..Rule::everything(1)
    };
    assert!(!joined.filter.takes_everything());
    let places = classify(&mut tap, vec![joined]);
    assert!(matches!(places[..], [FilterLocation::Source]), "{places:?}");
    let _captured = finish(tap);
}

/// Paths meet again and again, each time with nothing that is needed.
#[test]
fn the_verifier_follows_what_is_behind_a_meeting_of_paths_once() {
    require_root!();
    require_tool!("ip", "python3");
    let net = Namespace::with_veth("meet");
    let mut tap = attach(&net, &options("rx0"));
    let (load, equal) = (0x30, 0x15 | 1 << 16);
    let tests = (0..1300_u64).flat_map(|at| {
        let (first, second) = (at % 50, (at + 1) % 50);
        [
            load | first << 32,
            equal | (at % 256) << 32,
            load | second << 32,
        ]
    });
    let entries: Vec<u64> = tests.chain([0x06 | 1 << 32]).collect();
    let filter = Program::from_entries(&entries).unwrap();
    assert!(filter.steps_of_all_paths() < Some(20_000));
    let long = Rule {
        filter,
        ..Rule::everything(1)
    };
    let places = classify(&mut tap, vec![long]);
    assert!(matches!(places[..], [FilterLocation::Source]), "{places:?}");
    let _captured = finish(tap);
}

#[test]
fn a_filter_that_is_too_hard_for_the_verifier_is_left_out_alone() {
    require_root!();
    require_tool!("ip", "python3");
    let net = Namespace::with_veth("hard");
    let mut tap = attach(&net, &options("rx0"));
    for _ in 0..3 {
        let places = classify(&mut tap, vec![rule("ether[14] = 1", 1), hard()]);
        let [FilterLocation::Source, FilterLocation::Reader(reason)] = &places[..] else {
            panic!("{places:?}")
        };
        assert!(reason.contains("ways through the filter"), "{reason}");
    }
    net.inject("tx0", &[frame(1, 60), frame(2, 60)]);
    let (captured, _) = finish(tap);
    let masks: Vec<_> = captured.iter().map(|packet| packet.slot.mask).collect();
    assert_eq!(masks, [3, 2]);
}
