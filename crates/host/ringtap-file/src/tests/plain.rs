// SPDX-License-Identifier: MIT OR Apache-2.0
//! Classic pcap files.

use ringtap_filter::LinkType;

use super::super::{Damage, FileReader, Format, ReadError, Resolution};
use super::made::{Made, ORDERS};
use super::{cut_everywhere, damage_at_random, read_all};

const MICRO: u32 = 0xa1b2_c3d4;
const NANO: u32 = 0xa1b2_3c4d;

#[test]
fn both_resolutions_in_both_byte_orders_give_nanoseconds() {
    for order in ORDERS {
        for (magic, unit_ns) in [(MICRO, 1000), (NANO, 1)] {
            let mut file = Made::new(order);
            file.pcap_header(magic, 1)
                .pcap_packet(1_700_000_000, 999_999, 60, b"abc")
                .pcap_packet(u32::MAX, 1, 3, b"");
            let (packets, error) = read_all(&file.bytes);
            assert!(error.is_none(), "{error:?}");
            assert_eq!(packets.len(), 2);
            assert_eq!(
                packets[0].time_ns,
                1_700_000_000 * 1_000_000_000 + 999_999 * unit_ns
            );
            assert_eq!(packets[0].wire_length, 60);
            assert_eq!(packets[0].data, b"abc");
            assert_eq!(
                packets[1].time_ns,
                u64::from(u32::MAX) * 1_000_000_000 + unit_ns
            );
            assert!(packets[1].data.is_empty());
        }
    }
}

#[test]
fn header_tells_link_type_snap_length_and_resolution() {
    for order in ORDERS {
        let mut file = Made::new(order);
        // 4 bytes of frame check sequence, in the upper half.
        file.pcap_header(NANO, 0x2400_0071);
        let reader = FileReader::from_stream("t", std::io::Cursor::new(file.bytes)).unwrap();
        assert_eq!(reader.format(), Format::Pcap);
        let interface = &reader.interfaces()[0];
        assert_eq!(interface.link_type, LinkType::LINUX_SLL);
        assert_eq!(interface.snap_length, 65535);
        assert_eq!(interface.resolution, Resolution::NANOSECONDS);
    }
}

fn small(order: super::super::ByteOrder) -> (Vec<u8>, Vec<(usize, usize)>) {
    let mut file = Made::new(order);
    let mut ends = vec![(file.pcap_header(NANO, 1).bytes.len(), 0)];
    for (count, data) in [&b"first packet"[..], b"x", b"", b"the last one"]
        .iter()
        .enumerate()
    {
        file.pcap_packet(7, 8, 100, data);
        ends.push((file.bytes.len(), count + 1));
    }
    (file.bytes, ends)
}

#[test]
fn cut_at_any_byte_gives_the_packets_before_and_the_offset() {
    for order in ORDERS {
        let (bytes, ends) = small(order);
        cut_everywhere(&bytes, &ends);
    }
}

#[test]
fn random_damage_never_panics() {
    damage_at_random(&small(ORDERS[0]).0);
}

#[test]
fn impossible_length_is_damage_at_the_packets_offset() {
    let mut file = Made::new(ORDERS[0]);
    file.pcap_header(MICRO, 1).pcap_packet(1, 1, 4, b"good");
    let offset = u64::try_from(file.bytes.len()).unwrap();
    file.words(&[1, 2, 0x4000_0000, 4]).raw(b"bad");
    let (packets, error) = read_all(&file.bytes);
    assert_eq!(packets.len(), 1);
    let Some(ReadError::Corrupt {
        offset: at, damage, ..
    }) = error
    else {
        panic!("{error:?}");
    };
    assert_eq!(at, offset);
    assert_eq!(
        damage,
        Damage::PacketLength {
            claimed: 0x4000_0000,
            limit: 262_144
        }
    );
}

#[test]
fn a_packet_larger_than_the_window_is_read_whole() {
    let data: Vec<u8> = (0..1_000_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    let mut file = Made::new(ORDERS[0]);
    file.u32(MICRO).u16(2).u16(4).words(&[0, 0, 2_000_000, 1]);
    file.pcap_packet(1, 1, 1_000_000, &data)
        .pcap_packet(2, 1, 3, b"abc");
    let (packets, error) = read_all(&file.bytes);
    assert!(error.is_none(), "{error:?}");
    assert_eq!(packets[0].data, data);
    assert_eq!(packets[1].data, b"abc");
}

#[test]
fn other_files_are_refused_by_name() {
    let refused = |bytes: &[u8]| read_all(bytes).1.expect("refused");
    assert!(matches!(
        refused(b"\x1f\x8b\x08\x00 zipped"),
        ReadError::Compressed {
            unpack: "gzip -dc",
            ..
        }
    ));
    assert!(matches!(
        refused(b"#!/bin/sh\n"),
        ReadError::NotACapture {
            start: [b'#', b'!', b'/', b'b'],
            ..
        }
    ));
    assert!(matches!(
        refused(b""),
        ReadError::Truncated {
            offset: 0,
            found: 0,
            ..
        }
    ));
    let mut patched = Made::new(ORDERS[1]);
    patched.pcap_header(0xa1b2_cd34, 1);
    assert!(matches!(
        refused(&patched.bytes),
        ReadError::Unsupported { .. }
    ));
    let mut old = Made::new(ORDERS[0]);
    old.u32(MICRO).u16(2).u16(2).words(&[0, 0, 65535, 1]);
    let message = refused(&old.bytes).to_string();
    assert!(message.contains("pcap version 2.2"), "{message}");
}
