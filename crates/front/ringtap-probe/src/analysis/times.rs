// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times between packets: round trips of TCP handshakes, and gaps between packets.
//!
//! Invariants
//! - Memory is fixed: a flow has one of [`SLOTS`] slots, by a keyed hash, and replaces the flow that has it.

use crate::packet::{ACK, Dissected, SYN, Secret, low_half};
use crate::record::as_value;

/// Flows that are followed at one time.
const SLOTS: usize = 1 << 15;

/// Upper ends of the histogram's ranges: 1 µs, 2 µs, 5 µs, … 10 s, in nanoseconds; a last range has the rest.
const ENDS_NS: [u64; 22] = {
    let mut ends = [0; 22];
    let (mut at, mut decade) = (0, 1000);
    while at < 22 {
        ends[at] = decade * [1, 2, 5][at % 3];
        if at % 3 == 2 {
            decade *= 10;
        }
        at += 1;
    }
    ends
};

/// A range, `None` for all times, and its values.
type RangeResult = (Option<String>, Vec<(&'static str, f64)>);

/// Packets between which a gap counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GapScope {
    /// Those of one flow, in either direction.
    Flow,
    /// All of the capture, which needs a probe with one worker.
    Capture,
}

/// Number of times in each range.
#[derive(Clone, Debug, Default)]
pub(crate) struct TimeHistogram {
    counts: [u64; ENDS_NS.len() + 1],
    sum_ns: u64,
}

impl TimeHistogram {
    #[inline]
    pub(crate) fn add(&mut self, time_ns: u64) {
        self.counts[ENDS_NS.partition_point(|end| *end <= time_ns)] += 1;
        self.sum_ns = self.sum_ns.saturating_add(time_ns);
    }

    pub(crate) fn merge(&mut self, other: &TimeHistogram) {
        let counts = self.counts.iter_mut().zip(other.counts);
        counts.for_each(|(sum, more)| *sum += more);
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
    }

    /// The ranges with their counts, and first the number of all and their mean; nothing without times.
    pub(crate) fn results(&self) -> Vec<RangeResult> {
        let all: u64 = self.counts.iter().sum();
        if all == 0 {
            return Vec::new();
        }
        let mean_ns = as_value(self.sum_ns) / as_value(all);
        let mut results = vec![(None, vec![("count", as_value(all)), ("mean_ns", mean_ns)])];
        for (at, count) in self
            .counts
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
        {
            let from = at
                .checked_sub(1)
                .map_or("0".into(), |at| short(ENDS_NS[at]));
            let to = ENDS_NS.get(at).map_or(String::new(), |end| short(*end));
            results.push((
                Some(format!("{from}-{to}")),
                vec![("count", as_value(*count))],
            ));
        }
        results
    }
}

/// A time of the ranges: `200us`.
fn short(time_ns: u64) -> String {
    match time_ns {
        0..1_000_000 => format!("{}us", time_ns / 1000),
        1_000_000..1_000_000_000 => format!("{}ms", time_ns / 1_000_000),
        _ => format!("{}s", time_ns / 1_000_000_000),
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct FlowSlot {
    hash: u64,
    first_ns: u64,
    /// Time of the handshake's SYN and ACK; 0 before it.
    second_ns: u64,
}

/// The flows that are followed.
#[derive(Debug)]
pub(crate) struct FlowSlots {
    secret: Secret,
    slots: Box<[FlowSlot]>,
}

impl FlowSlots {
    pub(crate) fn new() -> Self {
        FlowSlots {
            secret: Secret::random(),
            slots: vec![FlowSlot::default(); SLOTS].into(),
        }
    }

    /// Follows no flow: for a part that is over.
    fn none(&self) -> Self {
        FlowSlots {
            secret: self.secret,
            slots: Box::default(),
        }
    }

    #[inline]
    fn slot(&mut self, packet: &Dissected) -> Option<(u64, &mut FlowSlot)> {
        let hash = self.secret.hash(&packet.key);
        let at = low_half(hash) as usize & (SLOTS - 1);
        self.slots.get_mut(at).map(|slot| (hash, slot))
    }
}

/// Round trips of TCP handshakes: to the server from SYN to SYN and ACK, to the client from there to ACK.
#[derive(Debug)]
pub(crate) struct RoundTrips {
    flows: FlowSlots,
    pub(crate) server: TimeHistogram,
    pub(crate) client: TimeHistogram,
}

impl RoundTrips {
    pub(crate) fn new() -> Self {
        RoundTrips {
            flows: FlowSlots::new(),
            server: TimeHistogram::default(),
            client: TimeHistogram::default(),
        }
    }

    #[inline]
    pub(crate) fn add(&mut self, packet: &Dissected) {
        let Some(tcp) = packet.tcp else { return };
        let Some((hash, slot)) = self.flows.slot(packet) else {
            return;
        };
        let time_ns = packet.time_ns;
        match tcp.flags & (SYN | ACK) {
            SYN => {
                *slot = FlowSlot {
                    hash,
                    first_ns: time_ns,
                    second_ns: 0,
                };
            }
            _ if slot.hash != hash => {}
            ACK if slot.second_ns > 0 => {
                self.client.add(time_ns.saturating_sub(slot.second_ns));
                *slot = FlowSlot::default();
            }
            // Only the first answer: a further one is a copy.
            flags if flags == SYN | ACK && slot.second_ns == 0 => {
                self.server.add(time_ns.saturating_sub(slot.first_ns));
                slot.second_ns = time_ns;
            }
            _ => {}
        }
    }

    /// Takes the times so far; handshakes under way go on here.
    pub(crate) fn take(&mut self) -> Self {
        RoundTrips {
            flows: self.flows.none(),
            server: std::mem::take(&mut self.server),
            client: std::mem::take(&mut self.client),
        }
    }
}

/// Times between two packets of a flow, in either direction, or of the whole capture.
#[derive(Debug)]
pub(crate) struct PacketGaps {
    /// `None`: of the whole capture.
    flows: Option<FlowSlots>,
    last_ns: u64,
    pub(crate) times: TimeHistogram,
}

impl PacketGaps {
    pub(crate) fn new(by: GapScope) -> Self {
        PacketGaps {
            flows: (by == GapScope::Flow).then(FlowSlots::new),
            last_ns: 0,
            times: TimeHistogram::default(),
        }
    }

    #[inline]
    pub(crate) fn add(&mut self, packet: &Dissected) {
        let last_ns = match &mut self.flows {
            None => &mut self.last_ns,
            Some(flows) => {
                let Some((hash, slot)) = flows.slot(packet) else {
                    return;
                };
                if slot.hash != hash {
                    *slot = FlowSlot {
                        hash,
                        ..FlowSlot::default()
                    };
                }
                &mut slot.first_ns
            }
        };
        if *last_ns > 0 {
            self.times.add(packet.time_ns.saturating_sub(*last_ns));
        }
        *last_ns = packet.time_ns.max(*last_ns);
    }

    /// Takes the times so far; a gap under way goes on here.
    pub(crate) fn take(&mut self) -> Self {
        PacketGaps {
            flows: self.flows.as_ref().map(FlowSlots::none),
            last_ns: 0,
            times: std::mem::take(&mut self.times),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outside::PacketOutside;
    use crate::packet::{PacketKey, TCP, TcpHeader};
    use crate::record::DirectionMarks;

    fn packet(time_ns: u64, port: u16, flags: u8) -> Dissected<'static> {
        let key = PacketKey {
            source: [0, 1],
            destination: [0, 2],
            ports: (port, 443),
            vlan: 0,
            protocol: TCP,
            is_ipv6: false,
            outside: 0,
        };
        let backward = flags & (SYN | ACK) == SYN | ACK;
        Dissected {
            time_ns,
            key: if backward { key.reversed() } else { key },
            hash: 0,
            frame_bytes: 60,
            ip_bytes: 40,
            payload_bytes: 0,
            tcp: Some(TcpHeader { sequence: 0, flags }),
            fragment: None,
            marks: DirectionMarks::default(),
            outside: PacketOutside {
                inner_vlans: [0; 2],
                tunnels: [None; 2],
            },
            packet: &[],
            payload_at: 0,
        }
    }

    fn ranges(times: &TimeHistogram) -> Vec<(Option<String>, f64)> {
        let results = times.results().into_iter();
        results
            .map(|(range, values)| (range, values[0].1))
            .collect()
    }

    #[test]
    fn each_half_of_a_handshake_is_one_round_trip() {
        let mut trips = RoundTrips::new();
        trips.add(&packet(1_000, 7, SYN));
        // The interval ends between the packets of the handshake.
        let before = trips.take();
        assert_eq!(ranges(&before.server), []);
        trips.add(&packet(301_000, 7, SYN | ACK));
        trips.add(&packet(401_000, 7, SYN | ACK));
        trips.add(&packet(311_000, 7, ACK));
        trips.add(&packet(900_000, 7, ACK));
        trips.add(&packet(900_000, 8, ACK));
        let one = |range: &str| vec![(None, 1.0), (Some(range.to_owned()), 1.0)];
        assert_eq!(ranges(&trips.server), one("200us-500us"));
        assert_eq!(ranges(&trips.client), one("10us-20us"));
    }

    #[test]
    fn gaps_are_those_of_one_flow_or_of_all_packets() {
        for (by, want) in [
            (GapScope::Flow, [("1ms-2ms", 1.0), ("2s-5s", 1.0)]),
            (GapScope::Capture, [("500us-1ms", 2.0), ("2s-5s", 1.0)]),
        ] {
            let mut gaps = PacketGaps::new(by);
            for (time_us, port) in [(1, 7), (500 + 1, 8), (1000 + 1, 7)] {
                gaps.add(&packet(time_us * 1000, port, ACK));
            }
            let mut first = gaps.take().times;
            gaps.add(&packet(3_000_000_000, 8, ACK));
            first.merge(&gaps.times);
            let want = want.map(|(range, count)| (Some(range.to_owned()), count));
            assert_eq!(ranges(&first)[1..], want, "{by:?}");
        }
    }

    #[test]
    fn ranges_go_from_a_microsecond_to_ten_seconds() {
        let mut times = TimeHistogram::default();
        for time_ns in [0, 999, 1000, 9_999_999_999, 10_000_000_000, u64::MAX] {
            times.add(time_ns);
        }
        let want = [
            ("0-1us", 2.0),
            ("1us-2us", 1.0),
            ("5s-10s", 1.0),
            ("10s-", 2.0),
        ];
        let want = want.map(|(range, count)| (Some(range.to_owned()), count));
        assert_eq!(ranges(&times)[1..], want);
    }
}
