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
fn the_number_of_libpcaps_functions_for_raw_ip_is_raw_ip() {
    for order in ORDERS {
        let mut file = Made::new(order);
        file.pcap_header(MICRO, 12);
        let reader = FileReader::from_stream("t", std::io::Cursor::new(file.bytes)).unwrap();
        assert_eq!(reader.interfaces()[0].link_type, LinkType::RAW_IP);
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
    let mut unknown = Made::new(ORDERS[0]);
    unknown.u32(MICRO).u16(3).u16(0).words(&[0, 0, 65535, 1]);
    let message = refused(&unknown.bytes).to_string();
    assert!(message.contains("pcap version 3.0"), "{message}");
}

/// The time in the file is 1,000 s and this fraction.
fn one_packet(file: &Made, fraction_ns: u64) {
    let (packets, error) = read_all(&file.bytes);
    assert!(error.is_none(), "{error:?}");
    let [packet] = &packets[..] else {
        panic!("{packets:?}")
    };
    assert_eq!(packet.time_ns, 1_000_000_000_000 + fraction_ns);
    assert_eq!((packet.wire_length, &packet.data[..]), (60, &b"abc"[..]));
}

/// libpcap swaps both lengths before version 2.3 and in 543.0, and in 2.3 if they are in the wrong order.
#[test]
fn old_versions_have_their_lengths_in_the_other_order() {
    for order in ORDERS {
        for (major, minor, first, second) in [
            (2, 0, 60, 3),
            (2, 1, 60, 3),
            (2, 2, 60, 3),
            (2, 3, 60, 3),
            (2, 3, 3, 60),
            (2, 4, 3, 60),
            (543, 0, 60, 3),
        ] {
            let mut file = Made::new(order);
            file.u32(MICRO)
                .u16(major)
                .u16(minor)
                .words(&[0, 0, 65535, 1]);
            file.words(&[1000, 5, first, second]).raw(b"abc");
            one_packet(&file, 5000);
        }
    }
}

#[test]
fn dialects_of_other_writers_are_read() {
    for order in ORDERS {
        let mut patched = Made::new(order);
        patched.pcap_header(0xa1b2_cd34, 1).words(&[1000, 5, 3, 60]);
        // Interface, protocol, direction, padding.
        patched.u32(7).u16(0x0800).raw(&[1, 0]).raw(b"abc");
        one_packet(&patched, 5000);
        for magic in [0x1c00_01ac, 0x1c00_01ab] {
            let mut ixia = Made::new(order);
            ixia.pcap_header(magic, 1)
                .u32(19)
                .pcap_packet(1000, 5, 60, b"abc");
            one_packet(&ixia, 5000);
        }
        // AIX: nanoseconds, and Ethernet's type of interface.
        let mut aix = Made::new(order);
        aix.u32(MICRO).u16(2).u16(2).words(&[0, 0, 65535, 6]);
        aix.words(&[1000, 5, 60, 3]).raw(b"abc");
        one_packet(&aix, 5);
        let reader = FileReader::from_stream("t", std::io::Cursor::new(aix.bytes)).unwrap();
        assert_eq!(reader.interfaces()[0].link_type, LinkType::ETHERNET);
    }
}

#[test]
fn a_zstd_file_may_begin_with_a_frame_to_skip() {
    let mut file = Made::new(ORDERS[0]);
    file.pcap_header(MICRO, 1).pcap_packet(1000, 5, 60, b"abc");
    let mut packed = vec![0x57, 0x2a, 0x4d, 0x18, 3, 0, 0, 0];
    packed.extend(b"xyz");
    packed.extend(zstd::encode_all(&file.bytes[..], 1).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file.zst");
    std::fs::write(&path, packed).unwrap();
    let mut reader = FileReader::open(path.to_str().unwrap()).unwrap();
    assert_eq!(reader.next_packet().unwrap().unwrap().data, b"abc");
    assert!(reader.next_packet().unwrap().is_none());
}

#[test]
fn times_after_the_end_of_pcap_are_its_last_second() {
    use super::super::write::classic;
    let ends_ns = u64::from(u32::MAX) * 1_000_000_000;
    assert!(classic::holds_time(ends_ns + 999_999_999));
    assert!(!classic::holds_time(ends_ns + 1_000_000_000));
}
