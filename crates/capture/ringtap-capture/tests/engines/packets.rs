// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets of every shape that filters test, some truncated or damaged.

use crate::dice::Dice;

/// Number of hosts: few, so that filters match.
pub(crate) const HOSTS: u32 = 4;
pub(crate) const PORTS: [u16; 8] = [20, 53, 80, 443, 1000, 1024, 4789, 5000];
pub(crate) const MACS: [[u8; 6]; 4] = [
    [2, 0, 0, 0, 0, 1],
    [2, 0, 0, 0, 0, 2],
    [1, 0, 0x5e, 0, 0, 1],
    [0xff; 6],
];

/// A packet of at least 14 bytes.
pub(crate) fn packet(dice: &mut Dice) -> Vec<u8> {
    let mut packet = Vec::new();
    packet.extend(dice.pick(&MACS));
    packet.extend(dice.pick(&MACS));
    after_macs(dice, &mut packet, 0);
    damage(dice, &mut packet);
    packet
}

fn damage(dice: &mut Dice, packet: &mut Vec<u8>) {
    if dice.once_in(4) {
        let kept = 14 + dice.index(packet.len().saturating_sub(14).max(1));
        packet.truncate(kept);
    }
    if dice.once_in(4) {
        for _ in 0..=dice.below(4) {
            let at = 12 + dice.index(packet.len() - 12);
            packet[at] = dice.byte();
        }
    }
    if dice.once_in(3) {
        packet.resize(packet.len().max(60), 0);
    }
}

fn after_macs(dice: &mut Dice, packet: &mut Vec<u8>, depth: u32) {
    let kind = dice.below(16);
    match kind {
        0..6 => {
            packet.extend([8, 0]);
            ipv4(dice, packet);
        }
        6..10 => {
            packet.extend([0x86, 0xdd]);
            ipv6(dice, packet);
        }
        10..13 if depth < 3 => {
            packet.extend(dice.pick(&[[0x81, 0], [0x88, 0xa8], [0x91, 0]]));
            packet.extend([dice.byte() & 0xe0, dice.pick(&[0, 5, 7, 9])]);
            after_macs(dice, packet, depth + 1);
        }
        13 => mpls(dice, packet),
        14 => pppoe(dice, packet),
        15 => {
            packet.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
            packet.extend(dice.pick(&MACS));
            packet.extend(address4(dice));
            packet.extend(dice.pick(&MACS));
            packet.extend(address4(dice));
        }
        _ => {
            let length = 2 + dice.index(80);
            packet.extend(dice.bytes(length));
        }
    }
}

fn mpls(dice: &mut Dice, packet: &mut Vec<u8>) {
    packet.extend([0x88, 0x47]);
    for label in 0..=dice.below(2) {
        let bottom = u8::from(label == 1 || dice.once_in(2));
        packet.extend([
            0,
            dice.below(2).try_into().unwrap(),
            dice.pick(&[0x50, 0x60]) | bottom,
            64,
        ]);
    }
    ipv4(dice, packet);
}

fn pppoe(dice: &mut Dice, packet: &mut Vec<u8>) {
    packet.extend(dice.pick(&[[0x88, 0x64], [0x88, 0x63]]));
    packet.extend([0x11, 0, 0, dice.pick(&[5, 7]), 0, 40]);
    match dice.below(2) {
        0 => {
            packet.extend([0, 0x21]);
            ipv4(dice, packet);
        }
        _ => {
            packet.extend([0, 0x57]);
            ipv6(dice, packet);
        }
    }
}

fn host(dice: &mut Dice) -> u8 {
    u8::try_from(dice.below(HOSTS)).unwrap() + 1
}

fn address4(dice: &mut Dice) -> [u8; 4] {
    match dice.below(8) {
        0 => [192, 168, 1, host(dice)],
        1 => [224, 0, 0, host(dice)],
        2 => [255; 4],
        _ => [10, 0, 0, host(dice)],
    }
}

fn address6(dice: &mut Dice) -> [u8; 16] {
    let first = dice.pick(&[[0x20, 0x01, 0x0d, 0xb8], [0xff, 2, 0, 0]]);
    let mut address = [0; 16];
    address[..4].copy_from_slice(&first);
    address[15] = host(dice);
    address
}

fn ipv4(dice: &mut Dice, packet: &mut Vec<u8>) {
    let options = dice.pick(&[0_u8, 0, 0, 1, 10]);
    let protocol = dice.pick(&[1_u8, 6, 6, 17, 17, 132, 47, 2, 51, 103]);
    let fragment = dice.pick(&[[0_u8, 0], [0, 0], [0x40, 0], [0x20, 0], [0x20, 9], [0, 9]]);
    let length = dice.byte();
    packet.extend([0x45 + options, dice.byte(), 0, length, 0, 1]);
    packet.extend(fragment);
    packet.extend([dice.byte(), protocol, 0, 0]);
    packet.extend(address4(dice));
    packet.extend(address4(dice));
    let options = dice.bytes(usize::from(options) * 4);
    packet.extend(options);
    transport(dice, packet, protocol);
}

fn ipv6(dice: &mut Dice, packet: &mut Vec<u8>) {
    let protocol = dice.pick(&[6_u8, 6, 17, 17, 58, 132, 0, 43, 44, 60, 51]);
    packet.extend([0x60, 0, 0, 0, 0, 60, protocol, 64]);
    packet.extend(address6(dice));
    packet.extend(address6(dice));
    let mut protocol = protocol;
    for _ in 0..3 {
        if !matches!(protocol, 0 | 43 | 44 | 60 | 51) {
            break;
        }
        let (next, more) = (dice.pick(&[6, 17, 58, 60, 44]), dice.pick(&[0_u8, 0, 1]));
        packet.extend([next, more]);
        let rest = 6 + 8 * usize::from(more);
        packet.extend(dice.bytes(rest));
        protocol = next;
    }
    transport(dice, packet, protocol);
}

fn transport(dice: &mut Dice, packet: &mut Vec<u8>, protocol: u8) {
    for _ in 0..2 {
        packet.extend(dice.pick(&PORTS).to_be_bytes());
    }
    match protocol {
        6 => {
            packet.extend(dice.bytes(8));
            packet.extend([
                0x50,
                dice.pick(&[2, 0x10, 0x12, 0x11, 0x18]),
                1,
                1,
                0,
                0,
                0,
                0,
            ]);
        }
        17 => packet.extend([0, 20, 0, 0]),
        _ => packet.extend([dice.pick(&[0, 8, 3]), dice.byte()]),
    }
    let length = dice.pick(&[0, 1, 4, 12, 100, 1000]);
    packet.extend(dice.bytes(length));
}
