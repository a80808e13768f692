// SPDX-License-Identifier: MIT OR Apache-2.0
//! Captures of random packets: tunnels, tags, fragments, cut packets; all formats and compressions.

use std::io::Write as _;
use std::path::Path;

use ringtap_file::FileInterface;
use ringtap_file::write::{self, FilePacket, Origin, classic};
use ringtap_filter::LinkType;

/// Random numbers of a seed (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }

    pub(crate) fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// Ports that packets and filters use, and values at the edges.
pub(crate) const PORTS: [u16; 12] = [
    22, 53, 80, 443, 1024, 4789, 6081, 2152, 8080, 40000, 65535, 0,
];
const PROTOCOLS: [u8; 9] = [6, 6, 17, 17, 132, 1, 58, 47, 50];

/// An address of the file with this number: files share some.
pub(crate) fn ipv4(random: &mut Random) -> [u8; 4] {
    let third = random.below(20) as u8;
    *random.one(&[
        [10, 0, third, 1],
        [10, 1, third / 4, third],
        [192, 168, 0, third],
        [172, 16, third, 9],
    ])
}

pub(crate) fn ipv6(random: &mut Random) -> [u8; 16] {
    let mut address = [0; 16];
    address[..4].copy_from_slice(&[0x20, 1, 0x0d, 0xb8]);
    address[5] = random.below(3) as u8;
    address[9] = random.below(2) as u8;
    address[15] = random.below(12) as u8;
    address
}

fn ports(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..2 {
        let port = if random.chance(70) {
            *random.one(&PORTS)
        } else {
            random.next() as u16
        };
        bytes.extend(port.to_be_bytes());
    }
    bytes
}

fn payload(random: &mut Random, protocol: u8, depth: usize) -> Vec<u8> {
    let mut bytes = match protocol {
        6 => [&ports(random)[..], &[0; 8], &[0x50, 0x12, 0, 0, 0, 0, 0, 0]].concat(),
        17 => {
            let mut head = ports(random);
            let inner = match random.below(4) {
                0 if depth > 0 => {
                    head[2..4].copy_from_slice(&4789_u16.to_be_bytes());
                    [&[8, 0, 0, 0, 0, 0, 7, 0][..], &ethernet(random, depth - 1)].concat()
                }
                1 if depth > 0 => {
                    head[2..4].copy_from_slice(&2152_u16.to_be_bytes());
                    [&[0x30, 255, 0, 0, 0, 0, 0, 9][..], &ip(random, depth - 1).1].concat()
                }
                _ => vec![1; 8],
            };
            [&head[..], &[0, 8, 0, 0], &inner].concat()
        }
        132 => [&ports(random)[..], &[0; 8]].concat(),
        47 if depth > 0 => {
            let (kind, inner) = ip(random, depth - 1);
            [&[0, 0][..], &kind.to_be_bytes(), &inner].concat()
        }
        _ => vec![8, 0, 0, 0, 1, 2, 3, 4],
    };
    let more = random.below(120);
    bytes.resize(bytes.len() + more, 0xaa);
    bytes
}

/// Ethertype and packet.
fn ip(random: &mut Random, depth: usize) -> (u16, Vec<u8>) {
    let protocol = *random.one(&PROTOCOLS);
    if random.chance(65) {
        let words = random.chance(15);
        let mut header = vec![
            if words { 0x46 } else { 0x45 },
            0,
            0,
            0,
            0,
            1,
            0,
            0,
            64,
            protocol,
            0,
            0,
        ];
        match random.below(12) {
            0 => header[6] = 0x20,
            1 => header[7] = 3,
            2 => header[0] = random.next() as u8,
            _ => {}
        }
        header.extend(ipv4(random));
        header.extend(ipv4(random));
        if words {
            header.extend([1, 1, 1, 0]);
        }
        let payload = payload(random, protocol, depth);
        return (0x800, [header, payload].concat());
    }
    let mut header = vec![0x60, 0, 0, 0, 0, 40];
    let extension = random.below(8);
    let first = match extension {
        0 => 44,
        1 => 0,
        _ => protocol,
    };
    header.extend([first, 64]);
    header.extend(ipv6(random));
    header.extend(ipv6(random));
    match extension {
        0 => header.extend([protocol, 0, 0, random.below(2) as u8 * 8, 0, 0, 0, 5]),
        1 => header.extend([protocol, 0, 1, 4, 0, 0, 0, 0]),
        _ => {}
    }
    let payload = payload(random, protocol, depth);
    (0x86dd, [header, payload].concat())
}

/// The ethertype, and what follows it.
fn typed(random: &mut Random, depth: usize) -> (u16, Vec<u8>) {
    match random.below(14) {
        0 => {
            let mut arp = vec![0, 1, 8, 0, 6, 4, 0, 1, 2, 2, 2, 2, 2, 2];
            arp.extend(ipv4(random));
            arp.extend([0; 6]);
            arp.extend(ipv4(random));
            (*random.one(&[0x806, 0x8035]), arp)
        }
        1 | 2 => {
            let (kind, inner) = typed(random, depth);
            let tag = [random.below(2) as u8 * 0x20, random.below(5) as u8 + 99];
            let tag = [&tag[..], &kind.to_be_bytes(), &inner].concat();
            (*random.one(&[0x8100, 0x88a8, 0x9100]), tag)
        }
        3 => {
            let label = [0, 0x06, 0x41 | random.below(2) as u8, 64];
            (0x8847, [&label[..], &ip(random, depth).1].concat())
        }
        4 => {
            let (kind, inner) = ip(random, depth);
            let protocol: u16 = if kind == 0x800 { 0x21 } else { 0x57 };
            let head = [0x11, 0, 0, 1, 0, 40];
            (
                0x8864,
                [&head[..], &protocol.to_be_bytes(), &inner].concat(),
            )
        }
        5 => (random.below(1600) as u16, vec![0x42; 30]),
        _ => ip(random, depth),
    }
}

fn ethernet(random: &mut Random, depth: usize) -> Vec<u8> {
    let (kind, inner) = typed(random, depth);
    let macs = [2, 0, 0, 0, 0, random.below(4) as u8, 2, 0, 0, 0, 0, 9];
    [&macs[..], &kind.to_be_bytes(), &inner].concat()
}

/// A packet of a link type, sometimes cut or spoilt.
pub(crate) fn packet(random: &mut Random, link_type: LinkType) -> Vec<u8> {
    let mut data = match link_type {
        LinkType::ETHERNET => ethernet(random, 2),
        LinkType::RAW_IP => ip(random, 2).1,
        LinkType::LINUX_SLL => {
            let (kind, inner) = typed(random, 2);
            let head = [0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0];
            [&head[..], &kind.to_be_bytes(), &inner].concat()
        }
        LinkType::LINUX_SLL2 => {
            let (kind, inner) = typed(random, 2);
            let head = [0, 0, 0, 0, 0, 2, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0];
            [&kind.to_be_bytes()[..], &head, &inner].concat()
        }
        _ => {
            let (kind, inner) = ip(random, 2);
            let family = if kind == 0x800 { 2_u32 } else { 30 };
            [&family.to_le_bytes()[..], &inner].concat()
        }
    };
    if random.chance(8) {
        data.truncate(random.below(data.len() + 1));
    }
    if random.chance(5) && !data.is_empty() {
        let place = random.below(data.len().min(60));
        data[place] = random.next() as u8;
    }
    data
}

const LINK_TYPES: [LinkType; 8] = [
    LinkType::ETHERNET,
    LinkType::ETHERNET,
    LinkType::ETHERNET,
    LinkType::ETHERNET,
    LinkType::RAW_IP,
    LinkType::LINUX_SLL,
    LinkType::LINUX_SLL2,
    LinkType(0),
];

/// Content of a capture, and where its packets end.
pub(crate) fn content(random: &mut Random, packets: usize) -> (Vec<u8>, bool, Vec<usize>) {
    let is_pcap = random.chance(40);
    let mut time_ns = 1_700_000_000_000_000_000 + random.next() % 100_000_000_000;
    let mut bytes = Vec::new();
    let mut ends = Vec::new();
    let origin = Origin {
        hardware: None,
        os: None,
        application: "a test".to_owned(),
    };
    let mut types = vec![*random.one(&LINK_TYPES)];
    let describe = |bytes: &mut Vec<u8>, link_type, number: usize| {
        let interface = FileInterface {
            name: Some(format!("eth{number}")),
            ..FileInterface::new(0, link_type, 65535)
        };
        write::interface(bytes, &interface, None);
    };
    if is_pcap {
        classic::file_header(&mut bytes, types[0]);
    } else {
        write::section(&mut bytes, &origin);
        describe(&mut bytes, types[0], 0);
    }
    for _ in 0..packets {
        if !is_pcap && random.chance(2) {
            if random.chance(50) {
                types.clear();
                write::section(&mut bytes, &origin);
            }
            types.push(*random.one(&LINK_TYPES));
            describe(&mut bytes, *types.last().unwrap(), types.len() - 1);
        }
        let interface = random.below(types.len());
        let data = packet(random, types[interface]);
        time_ns += random.next() % 2_000_000;
        // Lanes of a capture are not in step.
        let early = if random.chance(10) {
            random.next() % 50_000_000
        } else {
            0
        };
        let one = FilePacket {
            interface: interface as u32,
            wire_length: (data.len() + random.below(3)) as u32,
            ..FilePacket::new(time_ns - early, &data)
        };
        if is_pcap {
            classic::packet(&mut bytes, &one);
        } else {
            write::packet(&mut bytes, &one);
        }
        ends.push(bytes.len());
    }
    (bytes, is_pcap, ends)
}

/// Writes a capture to the folder; of a kind that the number chooses.
pub(crate) fn capture(folder: &Path, number: usize, random: &mut Random, packets: usize) {
    let (bytes, is_pcap, ends) = content(random, packets);
    let ending = if is_pcap { "pcap" } else { "pcapng" };
    let (packed, compression) = match number % 6 {
        0 => (frames(&bytes, &ends, zstd_frame), ".zst"),
        1 => (frames(&bytes, &ends, gzip_member), ".gz"),
        // Frames that end within packets.
        2 => {
            let cuts: Vec<_> = (1..)
                .map(|at| at * 1000)
                .take_while(|at| *at < bytes.len())
                .collect();
            (
                frames(&bytes, &[&cuts[..], &[bytes.len()]].concat(), zstd_frame),
                ".zst",
            )
        }
        3 if random.chance(50) => (frames(&bytes, &[bytes.len()], gzip_member), ".gz"),
        _ => (bytes, ""),
    };
    let name = format!("{number:03}.{ending}{compression}");
    std::fs::write(folder.join(name), packed).unwrap();
}

fn frames(bytes: &[u8], ends: &[usize], pack: fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let (mut packed, mut start) = (Vec::new(), 0);
    for end in ends {
        if end - start >= 900 || *end == bytes.len() {
            packed.extend(pack(&bytes[start..*end]));
            start = *end;
        }
    }
    packed
}

fn zstd_frame(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}

fn gzip_member(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Appends a packet to a pcap file.
pub(crate) fn append(bytes: &mut Vec<u8>, data: &[u8], time_ns: u64) {
    classic::packet(bytes, &FilePacket::new(time_ns, data));
}
