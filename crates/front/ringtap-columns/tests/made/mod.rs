// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets of several kinds, and a capture file of them.

use std::fs;
use std::path::{Path, PathBuf};

use etherparse::{PacketBuilder, VlanId};

/// Time of the first packet; each next one is a microsecond later.
pub(crate) const FIRST_NS: i64 = 1_700_000_000_123_456_000;

/// TCP with a SYN, UDP over IPv6 in a VLAN, ARP, a later fragment, TCP in VXLAN.
pub(crate) fn frames() -> Vec<Vec<u8>> {
    let macs = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let ethernet = || PacketBuilder::ethernet2(macs.0, macs.1);
    let mut syn = Vec::new();
    let builder = ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
    builder
        .tcp(40_000, 443, 1, 1000)
        .syn()
        .write(&mut syn, &[0; 6])
        .unwrap();
    let mut ip6 = Vec::new();
    let six = |last| [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
    let builder = ethernet().single_vlan(VlanId::try_new(7).unwrap());
    let builder = builder.ipv6(six(1), six(2), 64);
    builder.udp(5353, 53).write(&mut ip6, &[0; 10]).unwrap();
    let mut arp = ip6[..12].to_vec();
    arp.extend([8, 6]);
    arp.resize(42, 0);
    let mut fragment = Vec::new();
    let builder = ethernet().ipv4([10, 0, 0, 3], [10, 0, 0, 4], 64);
    builder.udp(1, 2).write(&mut fragment, &[0; 18]).unwrap();
    fragment[14 + 7] = 3;
    let mut vxlan = Vec::new();
    let payload = [&[8, 0, 0, 0, 0, 0, 77, 0][..], &syn].concat();
    let builder = ethernet().ipv4([192, 0, 2, 1], [192, 0, 2, 2], 64);
    builder.udp(1, 4789).write(&mut vxlan, &payload).unwrap();
    vec![syn, ip6, arp, fragment, vxlan]
}

/// A pcap file with nanoseconds.
pub(crate) fn capture_file(folder: &Path, frames: &[Vec<u8>]) -> PathBuf {
    let mut bytes = Vec::new();
    for word in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 262_144, 1] {
        bytes.extend(word.to_le_bytes());
    }
    for (frame, at) in frames.iter().zip((0..).step_by(1000)) {
        let time = u64::try_from(FIRST_NS + at).unwrap();
        let length = frame.len() as u64;
        for word in [time / 1_000_000_000, time % 1_000_000_000, length, length] {
            bytes.extend(u32::try_from(word).unwrap().to_le_bytes());
        }
        bytes.extend(frame);
    }
    let path = folder.join("made.pcap");
    fs::write(&path, bytes).unwrap();
    path
}
