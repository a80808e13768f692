// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets in several pieces, and filters that read across their borders.

use crate::{
    agree::{Case, compare, load, seed},
    dice::Dice,
    program,
};

/// Filters that read at fixed and computed offsets of a large packet.
fn cases() -> Vec<Case> {
    let fixed = (0..20).map(|n| format!("ether[{}:{}] > 0x40", n * 450, [1, 2, 4][n % 3]));
    let seams = (0..24).map(|n| format!("ether[{}:4] & 1 = 1", 3500 + n * 8));
    let computed = (1..=16).map(|n| format!("ether[len - {n}:1] & 1 = 1"));
    let mut texts: Vec<_> = fixed.chain(seams).chain(computed).collect();
    texts.push("len > 5000".into());
    texts.push("ip and udp[ip[8]:4] > 0x7fffffff".into());
    let cases = texts.into_iter().map(|expression| Case {
        program: program(&expression),
        expression,
    });
    cases.collect()
}

#[test]
fn packets_in_several_buffers_have_one_verdict() {
    ringtap_testkit::require_root!();
    let cases = cases();
    let kernels = load(&cases);
    let mut dice = Dice::new(seed());
    let mut masks = std::collections::BTreeSet::new();
    for _ in 0..300 {
        let length = dice.pick(&[3400, 3520, 3600, 4100, 9000, 9018]) + dice.index(30);
        let mut packet = dice.bytes(length);
        packet[12..15].copy_from_slice(&[8, 0, 0x45]);
        packet[20..24].copy_from_slice(&[0, 0, dice.byte(), 17]);
        let snap_length = dice.pick(&[65535, 65535, 4000, 8999]);
        masks.insert(compare(&cases, &kernels, &packet, snap_length));
    }
    assert!(masks.len() > 200, "{} different masks", masks.len());
}
