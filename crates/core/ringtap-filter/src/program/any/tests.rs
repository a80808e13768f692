// SPDX-License-Identifier: MIT OR Apache-2.0
//! What joined programs match, and what they take.

use proptest::prelude::*;

use super::*;
use crate::FilterTime;

fn given(entries: &[(u16, u8, u8, u32)]) -> Program {
    let instructions: Vec<_> = entries
        .iter()
        .map(|(code, jump_true, jump_false, k)| {
            Instruction::new(*code, *jump_true, *jump_false, *k)
        })
        .collect();
    Program::new(&instructions).unwrap()
}

/// `udp port PORT`, for IPv4 only, as libpcap compiles it.
fn udp_port(port: u32) -> Program {
    given(&[
        (0x28, 0, 0, 12),
        (0x15, 0, 10, 0x800),
        (0x30, 0, 0, 23),
        (0x15, 0, 8, 17),
        (0x28, 0, 0, 20),
        (0x45, 6, 0, 0x1fff),
        (0xb1, 0, 0, 14),
        (0x48, 0, 0, 14),
        (0x15, 2, 0, port),
        (0x48, 0, 0, 16),
        (0x15, 0, 1, port),
        (0x06, 0, 0, 262_144),
        (0x06, 0, 0, 0),
    ])
}

fn vlan(number: u32) -> Program {
    given(&[
        (0x28, 0, 0, 12),
        (0x15, 0, 3, 0x8100),
        (0x28, 0, 0, 14),
        (0x15, 0, 1, number),
        (0x06, 0, 0, 262_144),
        (0x06, 0, 0, 0),
    ])
}

/// Looks at two bytes of the payload, or only at the one farther behind.
fn one_way_to_the_second_load() -> Program {
    given(&[
        (0xb1, 0, 0, 14),
        (0x30, 0, 0, 1),
        (0x45, 2, 0, 2),
        (0x50, 0, 0, 22),
        (0x15, 0, 3, 7),
        (0x50, 0, 0, 20),
        (0x15, 0, 1, 9),
        (0x06, 0, 0, 262_144),
        (0x06, 0, 0, 0),
    ])
}

fn first_byte_is_odd() -> Program {
    given(&[
        (0x30, 0, 0, 0),
        (0x45, 0, 1, 1),
        (0x06, 0, 0, 262_144),
        (0x06, 0, 0, 0),
    ])
}

fn udp(from: u16, to: u16) -> Vec<u8> {
    let mut packet = vec![0; 64];
    packet[12] = 8;
    packet[14] = 0x45;
    packet[23] = 17;
    packet[34..36].copy_from_slice(&from.to_be_bytes());
    packet[36..38].copy_from_slice(&to.to_be_bytes());
    packet
}

#[test]
fn exactly_the_packets_of_each_program_match_among_whole_ones() {
    let all = Program::any_of(&[udp_port(53), vlan(7), udp_port(99), vlan(7)], 1500);
    let matches = |packet: &[u8]| all.matches(packet, 64);
    assert!(matches(&udp(53, 1)) && matches(&udp(1, 99)) && !matches(&udp(1, 2)));
    let mut tagged = udp(1, 2);
    tagged[12..16].copy_from_slice(&[0x81, 0, 0, 7]);
    assert!(matches(&tagged));
    tagged[15] = 8;
    assert!(!matches(&tagged));
}

#[test]
fn four_filters_of_ports_take_less_than_a_packets_time() {
    let ports: Vec<_> = [53, 99, 1001, 1002].into_iter().map(udp_port).collect();
    let all = Program::any_of(&ports, 262_144).longest_time();
    assert!(all < Some(FilterTime::from_percent(90)), "{all:?}");
}

/// One load of the two is reached with another X, for which the guard before the first does not hold.
#[test]
fn a_guard_holds_until_x_changes() {
    let changes = given(&[
        (0xb1, 0, 0, 14),
        (0x48, 0, 0, 14),
        (0x15, 3, 0, 7),
        (0x01, 0, 0, 50),
        (0x48, 0, 0, 12),
        (0x15, 0, 1, 9),
        (0x06, 0, 0, 262_144),
        (0x06, 0, 0, 0),
    ]);
    let all = Program::any_of(&[changes, udp_port(53)], 262_144);
    assert!(all.matches(&udp(53, 1)[..63], 63));
    let longer = [udp(1, 2), vec![0; 16]].concat();
    assert!(!all.matches(&longer, 80));
}

#[test]
fn what_cannot_be_joined_matches_everything() {
    let computed = given(&[(0x80, 0, 0, 0), (0x16, 0, 0, 0)]);
    let divides = given(&[(0x81, 0, 0, 0), (0x3c, 0, 0, 0), (0x06, 0, 0, 0)]);
    for other in [computed, divides, Program::everything()] {
        let all = Program::any_of(&[other.clone(), udp_port(1)], 1500);
        assert!(all.takes_everything(), "{other:?}");
    }
    assert!(Program::any_of(&[udp_port(1), udp_port(2)], 20).takes_everything());
    assert_eq!(
        Program::any_of(&[udp_port(1), udp_port(1)], 20),
        udp_port(1)
    );
    let many: Vec<_> = (0..400).map(udp_port).collect();
    assert!(Program::any_of(&many, 1500).takes_everything());
}

proptest! {
    #[test]
    fn no_packet_that_a_program_matches_is_left_out(
        mut packet in prop::collection::vec(any::<u8>(), 0..80),
        shape in 0..3_u8,
        snap_length in 38_u32..70,
        ports in prop::collection::vec(0_u32..3, 2..5),
    ) {
        let mut set = |at: usize, byte: u8| packet.get_mut(at).map(|place| *place = byte);
        if shape > 0 {
            for (at, byte) in [(12, 8), (13, 0), (20, 0), (21, 0), (23, 17)] {
                set(at, byte);
            }
        }
        if shape > 1 {
            for (at, byte) in [(14, 0x45), (34, 0), (36, 0), (37, 1)] {
                set(at, byte);
            }
        }
        let wire_length = u32::try_from(packet.len()).unwrap();
        packet.truncate(usize::try_from(snap_length).unwrap());
        let others = [one_way_to_the_second_load(), vlan(0), first_byte_is_odd()];
        let programs: Vec<_> = ports.into_iter().map(udp_port).chain(others).collect();
        let all = Program::any_of(&programs, snap_length);
        let one = programs.iter().any(|one| one.matches(&packet, wire_length));
        prop_assert!(!one || all.matches(&packet, wire_length));
    }
}
