// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts of the kernel's processors, joined to flows: numbers are exact or absent.

use proptest::prelude::*;

use ringtap_capture::meter::FlowCounts;

use super::*;
use crate::packet::TCP;

/// A segment from the client (direction 0) or the server: who counted it, when it came, its number, flags and payload.
#[derive(Clone, Copy, Debug)]
struct Segment {
    cpu: u16,
    time_ns: u64,
    direction: usize,
    sequence: u32,
    flags: u8,
    payload: u32,
}

/// Counts as `bpf/meter.bpf.c` makes them of segments of one direction, one processor and one interval.
fn counted(segments: &[Segment]) -> FlowUpdate {
    let first = segments[0];
    let key = PacketKey {
        source: [0, 1],
        destination: [0, 2],
        ports: (1000, 443),
        vlan: 0,
        protocol: TCP,
        is_ipv6: false,
        outside: 0,
    };
    let mut counts = FlowCounts {
        protocol: TCP,
        cpu: first.cpu,
        first_ns: first.time_ns,
        first_flags: first.flags,
        ..FlowCounts::default()
    };
    for (number, one) in segments.iter().enumerate() {
        let controls = u32::from(one.flags & SYN != 0) + u32::from(one.flags & FIN != 0);
        let is_reset = one.flags & RST != 0;
        let data = if is_reset { 0 } else { one.payload };
        let length = data + controls;
        let end = one.sequence.wrapping_add(length);
        if number == 0 {
            (counts.first_end, counts.expected) = (end, end);
            counts.first_may_repeat = length > 1 || controls > 0;
        } else if end.wrapping_sub(counts.expected).cast_signed() > 0 {
            if !is_reset || end.wrapping_sub(counts.expected) <= 1 << 20 {
                counts.expected = end;
            }
        } else if length > 0 && (data > 1 || end != counts.expected) {
            counts.retransmissions += 1;
        }
        counts.packets += 1;
        counts.payload_bytes += u64::from(one.payload);
        counts.tcp_flags |= one.flags;
        counts.last_ns = one.time_ns;
        if one.flags & (SYN | ACK | RST) == ACK {
            counts.first_ack_ns = counts.first_ack_ns.or(Some(one.time_ns));
        }
    }
    let key = if first.direction == 0 {
        key
    } else {
        key.reversed()
    };
    FlowUpdate { key, counts }
}

/// The record of segments, whose counts are taken each second.
fn record(segments: &[Segment]) -> FlowRecord {
    let mut metered = Metered::new(FlowOptions::default());
    let last = segments
        .iter()
        .map(|one| one.time_ns / SECOND)
        .max()
        .unwrap_or(0);
    for second in START / SECOND..=last {
        let mut parts = Vec::new();
        for (cpu, direction) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let own = segments.iter().filter(|one| {
                (one.cpu, one.direction, one.time_ns / SECOND) == (cpu, direction, second)
            });
            let own: Vec<_> = own.copied().collect();
            if !own.is_empty() {
                parts.push(counted(&own));
            }
        }
        parts.sort_by_key(|part| part.counts.first_ns);
        metered.meter.parts(&parts, &mut metered.records);
    }
    let flows = metered.flows();
    assert_eq!(flows.len(), 1, "{flows:?}");
    flows[0].clone()
}

/// Segments whose data was sent before.
fn repeated(segments: &[Segment]) -> u32 {
    let (mut expected, mut repeated) = (None, 0);
    for one in segments.iter().filter(|one| one.payload > 1) {
        let end = one.sequence + one.payload;
        repeated += u32::from(expected.is_some_and(|expected| end <= expected));
        expected = expected.max(Some(end));
    }
    repeated
}

fn data(cpu: u16, ms: u64, sequence: u32) -> Segment {
    Segment {
        cpu,
        time_ns: START + ms * MS,
        direction: 0,
        sequence,
        flags: ACK,
        payload: 100,
    }
}

#[test]
fn retransmissions_are_exact_where_they_can_be_and_else_absent() {
    for (segments, expected) in [
        // One processor, in one second and in two.
        (
            vec![data(0, 1, 1), data(0, 2, 101), data(0, 3, 101)],
            Some(1),
        ),
        (
            vec![data(0, 1, 1), data(0, 1500, 101), data(0, 1600, 1)],
            Some(1),
        ),
        (
            vec![data(0, 1, 1), data(0, 1500, 1), data(0, 1600, 101)],
            Some(1),
        ),
        // Two segments are sent again at the beginning of a second: the second one is not told from new data.
        (
            vec![
                data(0, 1, 1),
                data(0, 2, 101),
                data(0, 1500, 1),
                data(0, 1600, 101),
            ],
            None,
        ),
        (
            vec![data(0, 1, 1), data(0, 2, 101), data(0, 1500, 1)],
            Some(1),
        ),
        // Two processors, one after the other, and at the same time.
        (
            vec![
                data(0, 1, 1),
                data(0, 2, 101),
                data(1, 50, 201),
                data(1, 60, 201),
            ],
            Some(1),
        ),
        (vec![data(0, 1, 1), data(1, 2, 101), data(0, 3, 201)], None),
        (
            vec![
                data(0, 1, 1),
                data(1, 2, 101),
                data(0, 3, 201),
                data(0, 1500, 301),
            ],
            None,
        ),
    ] {
        let got = record(&segments).forward.retransmissions.count();
        assert_eq!(got, expected, "{segments:?}");
    }
}

#[test]
fn the_handshake_ends_with_the_first_ack_of_all_processors() {
    let one = |cpu, ms, direction, sequence, flags| Segment {
        direction,
        flags,
        payload: 0,
        ..data(cpu, ms, sequence)
    };
    let flow = record(&[
        one(0, 10, 0, 1, SYN),
        one(1, 20, 1, 1, SYN | ACK),
        one(1, 30, 0, 2, ACK),
        one(0, 400, 0, 2, ACK),
    ]);
    assert_eq!(flow.handshake_ns, Some(20 * MS));
}

proptest! {
    #[test]
    fn no_retransmission_is_invented_wherever_segments_are_counted(
        steps in prop::collection::vec((0_u16..2, 1_u64..400, 0_u32..8), 2..40)
    ) {
        let (mut ms, mut next) = (0, 1);
        let segments: Vec<_> = steps.into_iter().map(|(cpu, pause, back)| {
            ms += pause;
            // One in four is sent again.
            let sequence = match back {
                0 | 1 if next > 201 => next - 100 * (back + 1),
                _ => { next += 100; next - 100 }
            };
            data(cpu, ms, sequence)
        }).collect();
        let got = record(&segments).forward.retransmissions.count();
        prop_assert!(got.is_none_or(|got| got == repeated(&segments)), "{:?} {:?}", got, segments);
        if segments.iter().all(|one| one.cpu == segments[0].cpu) && repeated(&segments) == 0 {
            prop_assert_eq!(got, Some(0));
        }
    }
}
