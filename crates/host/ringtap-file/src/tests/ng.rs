// SPDX-License-Identifier: MIT OR Apache-2.0
//! pcapng files.

use std::io::Cursor;

use ringtap_filter::LinkType;
use ringtap_pool::number::to_u64;

use super::super::{ByteOrder, Damage, FileReader, Format, PacketDirection, ReadError, Resolution};
use super::made::{Made, ORDERS};
use super::{Packet, cut_everywhere, damage_at_random, read_all};

fn reader(bytes: &[u8]) -> FileReader {
    FileReader::from_stream("test", Cursor::new(bytes.to_vec())).unwrap()
}

fn damage_of(bytes: &[u8]) -> (u64, Damage) {
    match read_all(bytes).1 {
        Some(ReadError::Corrupt { offset, damage, .. }) => (offset, damage),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_resolution_and_offset_gives_nanoseconds_since_1970() {
    for order in ORDERS {
        for (resolution, offset_s, ticks, time_ns) in [
            (None, None, 1_700_000_000_123_456, 1_700_000_000_123_456_000),
            (
                Some(9),
                None,
                1_700_000_000_123_456_789,
                1_700_000_000_123_456_789,
            ),
            (Some(3), None, 1500, 1_500_000_000),
            (Some(0), Some(10), 5, 15_000_000_000),
            (Some(12), None, 1_999, 1),
            (Some(6), Some(-2), 3_000_000, 1_000_000_000),
            (Some(6), Some(-9), 3_000_000, 0),
            (Some(0x80), None, 3, 3_000_000_000),
            (Some(0x80 | 10), None, 1536, 1_500_000_000),
            (Some(0xff), None, u64::MAX, 0),
            (Some(127), None, u64::MAX, 0),
            (Some(0), None, u64::MAX, u64::MAX),
        ] {
            let mut file = Made::new(order);
            file.section().interface(1, 0, |b| {
                if let Some(value) = resolution {
                    b.option(9, &[value]);
                }
                if let Some(seconds) = offset_s {
                    let seconds: i64 = seconds;
                    b.u16(14).u16(8).u64(seconds.cast_unsigned());
                }
            });
            file.packet(0, ticks, 3, b"abc");
            let (packets, error) = read_all(&file.bytes);
            assert!(error.is_none(), "{error:?}");
            assert_eq!(
                packets[0].time_ns, time_ns,
                "{resolution:?} {offset_s:?} {ticks}"
            );
        }
    }
}

#[test]
fn interface_options_are_told() {
    for order in ORDERS {
        let mut file = Made::new(order);
        file.section().interface(101, 96, |b| {
            b.option(2, b"eth0")
                .option(9, &[9])
                .option(11, b"\0tcp port 80")
                .option(0, b"");
        });
        file.packet(0, 1, 1, b"x");
        let mut reader = reader(&file.bytes);
        assert_eq!(reader.format(), Format::Pcapng);
        assert!(reader.next_packet().unwrap().is_some());
        let interface = &reader.interfaces()[0];
        assert_eq!(interface.name.as_deref(), Some("eth0"));
        assert_eq!(interface.filter.as_deref(), Some("tcp port 80"));
        assert_eq!(interface.resolution, Resolution::NANOSECONDS);
        assert_eq!(interface.link_type, LinkType::RAW_IP);
        assert_eq!(interface.snap_length, 96);
    }
}

#[test]
fn packets_of_several_interfaces_carry_their_own_link_type() {
    let mut file = Made::new(ORDERS[0]);
    file.section()
        .interface(1, 0, |_| {})
        .interface(276, 0, |_| {});
    file.packet(1, 1, 1, b"a").packet(0, 2, 1, b"b");
    let mut reader = reader(&file.bytes);
    let first = reader.next_packet().unwrap().unwrap();
    assert_eq!(
        (first.interface, first.link_type),
        (1, LinkType::LINUX_SLL2)
    );
    let second = reader.next_packet().unwrap().unwrap();
    assert_eq!(
        (second.interface, second.link_type),
        (0, LinkType::ETHERNET)
    );
}

#[test]
fn each_section_has_its_own_byte_order_and_interfaces() {
    let mut file = Made::new(ByteOrder::Little);
    file.section()
        .interface(1, 0, |_| {})
        .packet(0, 1, 9, b"little");
    let mut second = Made::new(ByteOrder::Big);
    second.section().interface(101, 0, |b| {
        b.option(9, &[9]);
    });
    second.packet(0, 1, 9, b"big");
    file.raw(&second.bytes);
    let (packets, error) = read_all(&file.bytes);
    assert!(error.is_none(), "{error:?}");
    assert_eq!(packets[0].time_ns, 1000);
    assert_eq!((packets[1].time_ns, packets[1].interface), (1, 1));
    assert_eq!(packets[1].data, b"big");

    second.section().packet(0, 1, 1, b"x");
    let (offset, damage) = damage_of(&second.bytes);
    assert_eq!(
        damage,
        Damage::NoSuchInterface {
            claimed: 0,
            known: 0
        }
    );
    assert_eq!(offset + 36, u64::try_from(second.bytes.len()).unwrap());
}

#[test]
fn old_and_simple_packet_blocks_are_read_and_unknown_ones_skipped() {
    for order in ORDERS {
        let mut file = Made::new(order);
        file.section().interface(1, 4, |_| {});
        file.block(0x0bad, |b| {
            b.raw(&vec![7; 600_000]);
        });
        file.block(3, |b| {
            b.u32(6).raw(b"simp");
        });
        file.block(2, |b| {
            b.u16(0).u16(3).words(&[0, 5, 3, 9]).raw(b"old");
        });
        let (packets, error) = read_all(&file.bytes);
        assert!(error.is_none(), "{error:?}");
        assert_eq!(packets.len(), 2);
        assert_eq!(
            (packets[0].wire_length, &packets[0].data[..]),
            (6, &b"simp"[..])
        );
        assert_eq!((packets[1].time_ns, packets[1].wire_length), (5000, 9));
        assert_eq!(packets[1].data, b"old");
    }
}

#[test]
fn packet_options_give_direction_and_drops() {
    for order in ORDERS {
        let mut file = Made::new(order);
        file.section().interface(1, 0, |_| {});
        for flags in [0, 1, 2] {
            file.packet_with(0, 1, 5, b"12345", |b| {
                b.u16(2).u16(4).u32(flags);
                b.u16(4).u16(8).u64(77).u32(0);
            });
        }
        let mut reader = reader(&file.bytes);
        for direction in [
            PacketDirection::Unknown,
            PacketDirection::Inbound,
            PacketDirection::Outbound,
        ] {
            let packet = reader.next_packet().unwrap().unwrap();
            assert_eq!(packet.direction(), direction);
            assert_eq!(packet.drop_count(), Some(77));
        }
    }
}

#[test]
fn statistics_are_kept_with_their_interface() {
    for order in ORDERS {
        let mut file = Made::new(order);
        file.section().interface(1, 0, |b| {
            b.option(9, &[9]);
        });
        file.block(5, |b| {
            b.words(&[0, 0, 500]);
            b.option(1, b"lost nothing");
            b.u16(2).u16(8).words(&[0, 100]);
            b.u16(3).u16(8).words(&[1, 0]);
            for (code, value) in [(4, 40), (5, 50), (6, 60), (7, 70), (8, 80)] {
                b.u16(code).u16(8).u64(value);
            }
        });
        let mut reader = reader(&file.bytes);
        assert!(reader.next_packet().unwrap().is_none());
        let read = reader.interfaces()[0].statistics.clone().unwrap();
        assert_eq!(
            (read.time_ns, read.start_ns, read.end_ns),
            (500, Some(100), Some(1 << 32))
        );
        assert_eq!((read.received, read.dropped), (Some(40), Some(50)));
        assert_eq!(
            (read.filter_accepted, read.os_dropped),
            (Some(60), Some(70))
        );
        assert_eq!(read.delivered, Some(80));
        assert_eq!(read.comment.as_deref(), Some("lost nothing"));
    }
}

fn small(order: ByteOrder) -> (Vec<u8>, Vec<(usize, usize)>) {
    let mut file = Made::new(order);
    let mut ends = Vec::new();
    file.section();
    ends.push((file.bytes.len(), 0));
    file.interface(1, 0, |b| {
        b.option(2, b"eth0").option(9, &[9]).option(0, b"");
    });
    ends.push((file.bytes.len(), 0));
    file.packet(0, 1, 100, b"first packet");
    ends.push((file.bytes.len(), 1));
    file.block(0x0bad, |b| {
        b.raw(b"unknown");
    });
    ends.push((file.bytes.len(), 1));
    file.packet_with(0, 2, 3, b"abc", |b| {
        b.u16(2).u16(4).u32(1);
    });
    ends.push((file.bytes.len(), 2));
    file.block(5, |b| {
        b.words(&[0, 0, 500]).u16(4).u16(8).u64(3);
    });
    ends.push((file.bytes.len(), 2));
    file.section().interface(1, 0, |_| {});
    ends.push((file.bytes.len() - 20, 2));
    ends.push((file.bytes.len(), 2));
    file.packet(0, 3, 1, b"z");
    ends.push((file.bytes.len(), 3));
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
    for order in ORDERS {
        damage_at_random(&small(order).0);
    }
}

#[test]
fn damage_is_named_with_the_offset_of_its_block() {
    let mut good = Made::new(ORDERS[0]);
    good.section()
        .interface(1, 0, |_| {})
        .packet(0, 1, 4, b"good");
    let start = good.bytes.len();
    let offset = u64::try_from(start).unwrap();
    let damaged = |change: &dyn Fn(&mut [u8])| {
        let mut file = Made::new(ORDERS[0]);
        file.raw(&good.bytes).packet(0, 2, 4, b"evil");
        change(&mut file.bytes[start..]);
        assert_eq!(read_all(&file.bytes).0.len(), 1);
        let (at, damage) = damage_of(&file.bytes);
        assert_eq!(at, offset);
        damage
    };
    assert_eq!(
        damaged(&|b| b[8] = 3),
        Damage::NoSuchInterface {
            claimed: 3,
            known: 1
        }
    );
    assert_eq!(
        damaged(&|b| b[20] = 9),
        Damage::PacketOutsideBlock {
            claimed: 9,
            room: 4
        }
    );
    assert_eq!(
        damaged(&|b| b[22] = 9),
        Damage::PacketLength {
            claimed: 9 << 16 | 4,
            limit: 262_144
        }
    );
    assert_eq!(
        damaged(&|b| b[32] = 0),
        Damage::BlockEnd { head: 36, tail: 0 }
    );
    assert_eq!(
        damaged(&|b| b[4] = 37),
        Damage::BlockLength {
            block_type: 6,
            claimed: 37
        }
    );
    assert_eq!(
        damaged(&|b| b[7] = 0xff),
        Damage::BlockLength {
            block_type: 6,
            claimed: 0xff00_0024
        }
    );
    assert_eq!(
        damaged(&|b| b[..12].copy_from_slice(&[0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 1, 2, 3, 4])),
        Damage::ByteOrderMark { found: 0x0403_0201 }
    );
    let mut file = Made::new(ORDERS[0]);
    file.section().interface(1, 0, |b| {
        b.u16(2).u16(99).u32(0);
    });
    let wanted = Damage::OptionLength {
        code: 2,
        claimed: 99,
        room: 4,
    };
    assert_eq!(damage_of(&file.bytes), (28, wanted));
}

#[test]
fn unknown_version_is_refused() {
    let mut file = Made::new(ORDERS[0]);
    file.section();
    file.bytes[12] = 2;
    let error = read_all(&file.bytes).1;
    assert!(
        matches!(error, Some(ReadError::Unsupported { offset: 0, .. })),
        "{error:?}"
    );
}

#[test]
fn times_before_1970_and_after_2554_are_counted() {
    for order in ORDERS {
        let mut file = Made::new(order);
        file.section();
        // Nanoseconds; one day before 1970.
        let day_s = 86_400_i64;
        let offset = match order {
            ByteOrder::Little => (-day_s).to_le_bytes(),
            ByteOrder::Big => (-day_s).to_be_bytes(),
        };
        file.block(1, |b| {
            b.u16(1).u16(0).u32(0);
            b.option(9, &[9]).option(14, &offset).option(0, b"");
        });
        // Seconds.
        file.block(1, |b| {
            b.u16(1).u16(0).u32(0);
            b.option(9, &[0]).option(0, b"");
        });
        for (interface, ticks) in [
            (0, 5),
            (0, 86_400_000_000_005_u64),
            (1, 18_446_744_073),
            (1, 18_446_744_074),
        ] {
            file.block(6, |b| {
                let high = u32::try_from(ticks >> 32).unwrap();
                let low = u32::try_from(ticks & 0xffff_ffff).unwrap();
                b.words(&[interface, high, low, 1, 1]).raw(b"x");
            });
        }
        let mut reader = FileReader::from_stream("t", std::io::Cursor::new(file.bytes)).unwrap();
        let mut got = Vec::new();
        while let Some(packet) = reader.next_packet().unwrap() {
            let time_ns = packet.time_ns;
            got.push((time_ns, reader.unfit_times()));
        }
        let expected = [
            (0, 1),
            (5, 1),
            (18_446_744_073_000_000_000, 1),
            (u64::MAX, 2),
        ];
        assert_eq!(got, expected);
    }
}

#[test]
fn a_description_that_is_too_large_is_not_kept_and_packets_are_read_on() {
    let mut file = Made::new(ByteOrder::Little);
    file.section().interface(1, 0, |_| {});
    file.packet(0, 1, 9, b"first");
    let small = file.bytes.len();
    for _ in 0..300 {
        file.interface(1, 0, |b| {
            b.option(1, &[b'x'; 60_000]);
        });
    }
    file.packet(300, 2, 9, b"second");
    file.section().interface(1, 0, |_| {});
    file.packet(0, 3, 9, b"third");
    let mut reader = reader(&file.bytes);
    let mut next = || {
        let time_ns = reader.next_packet().unwrap().unwrap().time_ns;
        let point = reader.split_point();
        let length = reader.description().map(<[u8]>::len);
        (time_ns, point, length, reader.section_offset())
    };
    let (first, second, third) = (next(), next(), next());
    assert_eq!((first.0, first.2, first.3), (1000, Some(28 + 20), 0));
    assert_eq!(first.1.unwrap().offset, to_u64(small));
    assert_eq!((second.0, second.1, second.2), (2000, None, None));
    let section = to_u64(file.bytes.len() - (28 + 20 + 40));
    assert_eq!((third.0, third.2, third.3), (3000, Some(48), section));
    assert!(reader.description_at(&first.1.unwrap()).is_none());
    assert_eq!(reader.description_at(&third.1.unwrap()).unwrap().len(), 48);
}

#[test]
fn from_any_point_on_a_file_is_read_with_the_description_of_the_point() {
    let (bytes, _) = small(ByteOrder::Big);
    let mut reader = reader(&bytes);
    let (all, _) = read_all(&bytes);
    let mut points = Vec::new();
    while let Ok(Some(_)) = reader.next_packet() {
        let point = reader.split_point().unwrap();
        points.push((point, reader.description().unwrap().to_vec()));
    }
    for (read, (point, description)) in points.into_iter().enumerate() {
        let rest = &bytes[usize::try_from(point.offset).unwrap()..];
        let (packets, error) = read_all(&[&description, rest].concat());
        assert!(error.is_none(), "{error:?}");
        let times = |packets: &[Packet]| packets.iter().map(|it| it.time_ns).collect::<Vec<_>>();
        assert_eq!(times(&packets), times(&all[read + 1..]));
    }
}

#[test]
fn interfaces_without_end_are_refused_behind_the_packets_before_them() {
    let mut file = Made::new(ORDERS[0]);
    file.section()
        .interface(1, 0, |_| {})
        .packet(0, 1, 9, b"before");
    let before = file.bytes.len();
    // Those of earlier sections count, too.
    for _ in 0..100 {
        file.section();
        (0..10_000).for_each(|_| {
            file.interface(1, 0, |_| {});
        });
    }
    file.packet(0, 2, 9, b"behind");
    let (packets, error) = read_all(&file.bytes);
    assert_eq!(packets.len(), 1);
    let error = error.unwrap();
    assert!(error.to_string().contains("64 MiB of memory"), "{error}");
    match error {
        ReadError::Corrupt { offset, damage, .. } => {
            assert!(offset > to_u64(before + 1_000_000), "{offset}");
            assert_eq!(damage, Damage::Interfaces { limit: 64 << 20 });
        }
        other => panic!("{other}"),
    }
}

#[test]
fn only_the_last_statistics_of_an_interface_count_against_its_memory() {
    let text = [b'x'; 60_000];
    let mut file = Made::new(ORDERS[0]);
    file.section().interface(1, 0, |_| {});
    for _ in 0..1200 {
        file.block(5, |b| {
            b.u32(0).u64(0).option(1, &text);
        });
    }
    file.packet(0, 1, 9, b"behind");
    let (packets, error) = read_all(&file.bytes);
    assert!(error.is_none(), "{error:?}");
    assert_eq!(packets.len(), 1);
}
