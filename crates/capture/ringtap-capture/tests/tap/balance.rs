// SPDX-License-Identifier: MIT OR Apache-2.0
//! Balance modes: by hashes, VLANs, round-robin, and users' programs.

use ringtap_capture::tap::{Direction, Mode, Tap};
use ringtap_filter::hash::{HashKeys, HashSeed, Link, Tunnels};
use ringtap_filter::{BUCKETS, Balance, BucketMasks, Headers, Rule, Rules, hash};
use ringtap_pool::format::flag;
use ringtap_pool::source::Source;
use ringtap_testkit::{Namespace, require_root, require_tool, with};

use crate::packets::Maker;
use crate::rules::{HOOKS, classify};
use crate::support::{Captured, Tagging, attach, finish, frame, options, own, whole};

/// Rules that store the bucket in the mask: in 11 bits from `place * 11` on.
fn telling(balance: Balance, place: u32) -> [Rule; 2] {
    let part = |range: std::ops::Range<usize>| Rule {
        balance: balance.clone(),
        members: BucketMasks::new(|bucket| {
            let bits = bucket / range.start % (range.end / range.start) * range.start;
            (bits as u64) << (place * 11)
        }),
        ..Rule::everything(0)
    };
    [part(1..64), part(64..BUCKETS)]
}

/// The bucket stored by the rules of [`telling`].
fn told(packet: &Captured, place: u32) -> u32 {
    u32::try_from(packet.slot.mask >> (place * 11) & 0x7ff).unwrap()
}

fn set(tap: &mut Tap, each: Vec<Rule>) {
    let rules = Rules {
        seed: SEED,
        ..Rules::from(each)
    };
    tap.classify(&rules).unwrap();
}

/// All hashes and the VLAN, in places 0 to 4, and a bit that all packets have.
fn all_keys() -> Vec<Rule> {
    let balances = [
        Balance::Flow(Headers::Outer),
        Balance::Flow(Headers::Inner),
        Balance::Address(Headers::Outer),
        Balance::Address(Headers::Inner),
        Balance::Vlan,
    ];
    let telling = (0..)
        .zip(balances)
        .flat_map(|(place, balance)| telling(balance, place));
    telling.chain([Rule::everything(1 << 63)]).collect()
}

const SEED: HashSeed = HashSeed(0x1234_5678_9abc_def0);
const KEYS: HashKeys = HashKeys::new(SEED);

/// Compares the program's results with `ringtap_filter::hash`.
fn assert_same(packet: &Captured, context: &str) {
    assert_same_as(packet, &packet.data, context);
}

fn assert_same_as(packet: &Captured, data: &[u8], context: &str) {
    // The tunnels that the table marks for the kernel.
    let (inner, outer) = (Tunnels::InKernel, Tunnels::None);
    let expected = [
        KEYS.flow(data, Link::Ethernet, outer),
        KEYS.flow(data, Link::Ethernet, inner),
        KEYS.addresses(data, Link::Ethernet, outer),
        KEYS.addresses(data, Link::Ethernet, inner),
        hash::vlan(data, Link::Ethernet),
    ];
    assert_eq!(packet.slot.hash, expected[0], "{context}: {data:02x?}");
    assert_ne!(packet.slot.flags & flag::HASHED, 0);
    for (place, expected) in (0..).zip(expected) {
        assert_eq!(
            told(packet, place),
            expected & 0x7ff,
            "{context}, {place}: {data:02x?}"
        );
    }
}

#[test]
fn the_kernel_finds_the_hashes_of_the_library_for_thousands_of_packets() {
    require_root!();
    require_tool!("ip", "python3");
    let mut maker = Maker::new(1);
    for mode in HOOKS {
        let net = Namespace::with_veth("hashes");
        let mut tap = attach(&net, &with(options("rx0"), |it| it.on.mode = mode));
        set(&mut tap, all_keys());
        let sent: Vec<_> = (0..3000).map(|_| maker.packet()).collect();
        net.inject("tx0", &sent);
        let (captured, counts) = finish(tap);
        match mode {
            // The kernel drops packets that end within a tag before this hook.
            Mode::Tc => assert!(captured.len() > 2900, "{counts:?}"),
            _ => assert_eq!(captured.len(), sent.len(), "{counts:?}"),
        }
        for packet in &captured {
            assert_same(packet, &format!("{mode:?}"));
        }
    }
}

#[test]
fn a_tag_that_was_stripped_counts_as_one_in_the_packet() {
    require_root!();
    require_tool!("ip", "python3");
    let mut maker = Maker::new(2);
    for mode in [Mode::Native, Mode::Tc] {
        let net = Namespace::with_veth("hash_stripped");
        let _tagging = Tagging::on(&net, "tx0");
        let mut tap = attach(&net, &with(options("rx0"), |it| it.on.mode = mode));
        set(&mut tap, all_keys());
        let sent: Vec<_> = (0..500).map(|_| maker.packet()).collect();
        net.inject("tx0", &sent);
        let (captured, _) = finish(tap);
        assert_eq!(captured.len(), sent.len());
        for packet in &captured {
            assert_eq!(packet.data[12..14], [0x81, 0], "{mode:?}");
            assert_same(packet, &format!("{mode:?}"));
        }
    }
}

#[test]
fn hashes_are_those_of_the_whole_packet_whatever_is_kept_of_it() {
    require_root!();
    require_tool!("ip", "python3");
    let mut maker = Maker::new(3);
    for snap_length in [13, 14, 17, 30, 36, 42, 60, 90] {
        let net = Namespace::with_veth("hash_snap");
        let mut tap = attach(
            &net,
            &with(options("rx0"), |it| {
                it.on.snap_length = Some(snap_length);
                it.on.direction = Direction::InOut;
            }),
        );
        set(&mut tap, all_keys());
        // By its length each is known again.
        let mut packet = |number: usize| {
            let mut bytes = maker.packet();
            bytes.resize(100 + number, 0x5a);
            bytes
        };
        let sent: Vec<_> = (0..100).map(&mut packet).collect();
        net.inject("tx0", &sent);
        net.inject("rx0", &sent);
        let (captured, _) = finish(tap);
        assert_eq!(captured.len(), 2 * sent.len());
        for packet in &captured {
            assert_same_as(packet, whole(packet, &sent), &format!("snap {snap_length}"));
        }
    }
}

#[test]
fn packets_are_given_out_in_turn_on_each_lane() {
    require_root!();
    require_tool!("ip", "python3");
    let net = Namespace::with_veth("turn");
    let mut tap = attach(&net, &options("rx0"));
    // Each rule counts its own turns.
    let [low, _] = telling(Balance::RoundRobin, 0);
    let [other, _] = telling(Balance::RoundRobin, 1);
    classify(&mut tap, vec![low, other, Rule::everything(1 << 63)]);
    net.inject("tx0", &vec![frame(1, 60); BUCKETS + 10]);
    let (captured, _) = finish(tap);
    assert_eq!(own(&captured).len(), BUCKETS + 10);
    let lanes = captured.iter().map(|packet| packet.lane).max().unwrap();
    for lane in 0..=lanes {
        let of_lane = captured.iter().filter(|packet| packet.lane == lane);
        let told_by = |packet| [0, 1].map(|place| told(packet, place));
        let found: Vec<_> = of_lane.map(told_by).collect();
        let turns = (0..64).map(|turn| [turn; 2]).cycle();
        let expected: Vec<_> = turns.take(found.len()).collect();
        assert_eq!(found, expected, "lane {lane}");
    }
}

/// Four members with a quarter of the buckets each.
fn quarters(balance: Balance) -> Rule {
    Rule {
        balance,
        members: BucketMasks::new(|bucket| 1 << (bucket % 4)),
        ..Rule::everything(0)
    }
}

#[test]
fn each_packet_has_one_of_four_members_and_both_directions_the_same() {
    require_root!();
    require_tool!("ip", "python3");
    let mut maker = Maker::new(4);
    let net = Namespace::with_veth("quarters");
    let mut tap = attach(&net, &options("rx0"));
    classify(&mut tap, vec![quarters(Balance::Flow(Headers::Outer))]);
    let conversations: Vec<_> = (0..400).map(|_| maker.conversation()).collect();
    let sent: Vec<_> = conversations.iter().flatten().cloned().collect();
    net.inject("tx0", &sent);
    let (captured, _) = finish(tap);
    let mask_of = |sent: &Vec<u8>| {
        let found = captured.iter().find(|packet| packet.data == *sent);
        let slot = found.expect("it was captured").slot;
        assert_ne!(slot.flags & flag::HASHED, 0);
        slot.mask
    };
    let mut share = [0; 4];
    for conversation in &conversations {
        let masks: Vec<_> = conversation.iter().map(mask_of).collect();
        assert_eq!(masks[0].count_ones(), 1);
        assert!(
            masks.iter().all(|mask| *mask == masks[0]),
            "{conversation:02x?}"
        );
        share[masks[0].trailing_zeros() as usize] += 1;
    }
    assert!(share.iter().all(|share| *share > 50), "{share:?}");
}
