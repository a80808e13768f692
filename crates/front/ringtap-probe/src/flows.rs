// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flow metering: packets in, flow records out.
//!
//! Invariants
//! - Every packet is in exactly one record, unless sampling leaves its flow out.
//! - Time is that of packets; [`FlowMeter::tick`] moves it on while none come.
//! - Work per packet is bounded: at most [`ENDS_OF_PACKET`] other flows end with it.

mod counters;
mod entry;
mod fragments;
mod options;
mod sequence;
mod table;
#[cfg(test)]
mod tests;

use std::time::Duration;

use ringtap_capture::meter::FlowCounts;
use ringtap_ipc::time::nanoseconds;

use crate::application::PayloadInspector;
use crate::outside::PacketOutside;
use crate::packet::{ACK, Dissected, PacketKey, SYN, Secret, low_half};
use crate::record::{EndReason, FlowRecord, Record};
pub use counters::FlowCounters;
use entry::FlowState;
use fragments::FragmentPorts;
pub use options::FlowOptions;
pub(crate) use table::PACKETS_TOGETHER;
use table::{FlowIndex, FlowTable};

/// Flows that may end by their time-outs with each packet.
const ENDS_OF_PACKET: usize = 4;
/// Nanoseconds for which a closed flow still takes late packets.
const LINGER_NS: u64 = 2_000_000_000;
/// Longest tick, the unit of time by which flows are ordered: 2^29 ns, about half a second.
const MAX_TICK_BITS: u32 = 29;
/// Least number of ticks in the idle time-out.
const TICKS_OF_IDLE: u64 = 16;

/// Counts of one direction of a flow, for a time that is short against the time-outs.
#[derive(Clone, Debug)]
pub(crate) struct FlowUpdate {
    pub(crate) key: PacketKey,
    pub(crate) counts: FlowCounts,
}

/// The first of some packets of one direction of a flow.
#[derive(Clone, Copy, Debug)]
struct FirstPacket<'a> {
    time_ns: u64,
    /// TCP flags.
    flags: u8,
    /// TCP sequence number, where it is known.
    sequence: Option<u32>,
    outside: PacketOutside<'a>,
}

impl FlowUpdate {
    /// Further VLAN tags and tunnels around the packets.
    pub(crate) fn outside(&self) -> PacketOutside<'_> {
        PacketOutside::from_counts(&self.counts)
    }
}

fn tick_bits(idle: Duration) -> u32 {
    let max_ns = (nanoseconds(idle) / TICKS_OF_IDLE).max(1);
    max_ns.ilog2().min(MAX_TICK_BITS)
}

/// Meters flows of one worker.
pub(crate) struct FlowMeter {
    options: FlowOptions,
    active_ns: u64,
    idle_ns: u64,
    /// Length of a tick: 2 to this power, in nanoseconds. Time-outs end a flow at most one tick late.
    tick_bits: u32,
    table: FlowTable,
    fragments: FragmentPorts,
    payload: PayloadInspector,
    secret: Secret,
    /// Index of the captured interface.
    interface: Option<u32>,
    now_ns: u64,
    counters: FlowCounters,
}

impl FlowMeter {
    /// A meter without flows; `secret` is the same for all workers, `interface` is the index of the captured one.
    pub(crate) fn new(options: FlowOptions, secret: Secret, interface: Option<u32>) -> Self {
        FlowMeter {
            active_ns: nanoseconds(options.active),
            idle_ns: nanoseconds(options.idle),
            tick_bits: tick_bits(options.idle),
            table: FlowTable::new(options.max_flows),
            fragments: FragmentPorts::new(),
            payload: PayloadInspector::new(&options),
            secret,
            interface,
            now_ns: 0,
            counters: FlowCounters::default(),
            options,
        }
    }

    /// The counters now.
    pub(crate) fn counters(&self) -> FlowCounters {
        let mut counters = FlowCounters {
            flows: self.table.len().into(),
            ..self.counters
        };
        self.payload.add_to(&mut counters);
        counters
    }

    /// Memory of payload inspection in bytes.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn payload_memory(&self) -> usize {
        self.payload.memory()
    }

    /// Changes time-outs and sampling, flows stay; `false` if the number of flows differs, which needs a
    /// new meter.
    pub(crate) fn change(&mut self, options: FlowOptions) -> bool {
        let fits = self.options.max_flows == options.max_flows;
        if fits {
            self.active_ns = nanoseconds(options.active);
            self.idle_ns = nanoseconds(options.idle);
            self.tick_bits = tick_bits(options.idle);
            self.options = options;
            self.payload.change(&options);
        }
        fits
    }

    /// Counts packets in their order; appends records of flows that ended.
    pub(crate) fn packets(&mut self, packets: &mut [Dissected], records: &mut Vec<Record>) {
        for together in packets.chunks_mut(PACKETS_TOGETHER) {
            let hashes = together.iter().map(|packet| low_half(packet.hash));
            self.table.warm(hashes);
            for packet in together {
                self.packet(packet, records);
            }
        }
    }

    #[inline]
    fn packet(&mut self, packet: &mut Dissected, records: &mut Vec<Record>) {
        if let Some(fragment) = packet.fragment {
            self.fragments.complete(packet, fragment, &self.secret);
        }
        let first = FirstPacket {
            time_ns: packet.time_ns,
            flags: packet.tcp.map_or(0, |tcp| tcp.flags),
            sequence: packet.tcp.map(|tcp| tcp.sequence),
            outside: packet.outside,
        };
        if let Some(flow) = self.place(&packet.key, packet.hash, first, 1, records) {
            let entry = self.table.at(flow);
            entry.see_outside(&packet.key, &packet.outside);
            let state = entry.count(packet);
            if self.payload.wants(packet, &entry.texts) {
                let direction = entry.direction_of(&packet.key);
                self.payload
                    .packet(&mut entry.texts, direction, packet, records);
            }
            self.table.touch(flow, state);
            self.expire(ENDS_OF_PACKET, records);
        }
    }

    /// Adds counts of one direction each, in the order of their first packets.
    pub(crate) fn parts(&mut self, parts: &[FlowUpdate], records: &mut Vec<Record>) {
        for together in parts.chunks(PACKETS_TOGETHER) {
            let mut hashes = [0; PACKETS_TOGETHER];
            for (hash, part) in hashes.iter_mut().zip(together) {
                *hash = self.secret.hash(&part.key);
            }
            let known = hashes.iter().take(together.len());
            self.table.warm(known.map(|hash| low_half(*hash)));
            for (part, hash) in together.iter().zip(hashes) {
                let counts = &part.counts;
                let first = FirstPacket {
                    time_ns: counts.first_ns,
                    flags: counts.first_flags,
                    sequence: None,
                    outside: part.outside(),
                };
                if let Some(flow) = self.place(&part.key, hash, first, counts.packets, records) {
                    let entry = self.table.at(flow);
                    entry.see_outside(&part.key, &part.outside());
                    let state = entry.add(part);
                    self.table.touch(flow, state);
                    self.expire(ENDS_OF_PACKET, records);
                }
            }
        }
    }

    /// The flow of `packets` packets with this key and its hash; `None` if sampling leaves it out.
    #[inline]
    fn place(
        &mut self,
        key: &PacketKey,
        hash: u64,
        first: FirstPacket<'_>,
        packets: u64,
        records: &mut Vec<Record>,
    ) -> Option<FlowIndex> {
        if !(hash >> 32).is_multiple_of(self.options.sampling.max(1).into()) {
            self.counters.not_sampled += packets;
            return None;
        }
        self.move_time(first.time_ns, records);
        let hash = low_half(hash);
        let mut found = self.table.find(key, hash, &first.outside);
        if let Some(flow) = found {
            found = self.still_lasts(flow, key, first, records).then_some(flow);
        }
        Some(match found {
            Some(flow) => flow,
            None => {
                if self.table.is_full()
                    && let Some(victim) = self.table.victim()
                {
                    self.counters.evicted += 1;
                    self.end(victim, EndReason::Evicted, records);
                }
                self.table.add(key, first.flags, hash)
            }
        })
    }

    /// Sets the time to `now_ns`, and ends flows and DNS questions whose time-outs have passed, at most `most`
    /// of each.
    ///
    /// Returns whether all flows whose time is over have ended.
    pub(crate) fn tick(&mut self, now_ns: u64, most: usize, records: &mut Vec<Record>) -> bool {
        self.set_time(self.now_ns.max(now_ns));
        self.payload.expire(self.now_ns, most, records);
        self.expire(most, records)
    }

    /// Ends all flows.
    pub(crate) fn finish(&mut self, records: &mut Vec<Record>) {
        self.finish_some(usize::MAX, records);
    }

    /// Ends at most `most` flows; returns whether others are left.
    pub(crate) fn finish_some(&mut self, most: usize, records: &mut Vec<Record>) -> bool {
        let mut left = most;
        for state in [
            FlowState::Closed,
            FlowState::Tentative,
            FlowState::Established,
        ] {
            while let Some(flow) = self.table.oldest(state) {
                if left == 0 {
                    return true;
                }
                left -= 1;
                let reason = match self.table.at(flow).reason() {
                    EndReason::Idle => EndReason::End,
                    reason => reason,
                };
                self.end(flow, reason, records);
            }
        }
        self.payload.finish(records);
        false
    }

    /// Sets the time; after a step back of the clock all flows end, because their times mean nothing then.
    fn move_time(&mut self, time_ns: u64, records: &mut Vec<Record>) {
        if time_ns.saturating_add(self.idle_ns) < self.now_ns {
            self.finish(records);
            self.now_ns = time_ns;
        }
        self.set_time(self.now_ns.max(time_ns));
    }

    #[inline]
    fn set_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        self.table.set_tick(low_half(now_ns >> self.tick_bits));
    }

    /// Whether a known flow goes on with this packet; ends its record or part if not.
    fn still_lasts(
        &mut self,
        flow: FlowIndex,
        key: &PacketKey,
        first: FirstPacket<'_>,
        records: &mut Vec<Record>,
    ) -> bool {
        let now_ns = first.time_ns;
        let (active_ns, idle_ns) = (self.active_ns, self.idle_ns);
        let entry = self.table.at(flow);
        let begins_anew = first.flags & (SYN | ACK) == SYN
            && match first.sequence {
                Some(sequence) => entry.begins_anew(entry.direction_of(key), sequence),
                None => entry.state == FlowState::Closed,
            };
        let lasts_ns = match entry.state {
            FlowState::Closed => LINGER_NS.min(idle_ns),
            FlowState::Tentative | FlowState::Established => idle_ns,
        };
        if begins_anew || now_ns.saturating_sub(entry.last_ns()) >= lasts_ns {
            let reason = entry.reason();
            self.end(flow, reason, records);
            return false;
        }
        if now_ns.saturating_sub(entry.first_ns()) >= active_ns {
            let record = FlowRecord {
                interface: self.interface,
                sampling: self.options.sampling,
                community_id_seed: self.options.community_id_seed,
                ..entry.record(EndReason::Active)
            };
            entry.next_part();
            self.counters.records += 1;
            records.push(Record::Flow(Box::new(record)));
        }
        true
    }

    /// Ends flows whose time is over, at most `most`; returns whether none is left.
    fn expire(&mut self, most: usize, records: &mut Vec<Record>) -> bool {
        let mut left = most;
        for (state, lasts_ns) in [
            (FlowState::Closed, LINGER_NS.min(self.idle_ns)),
            (FlowState::Tentative, self.idle_ns),
            (FlowState::Established, self.idle_ns),
        ] {
            while let Some(flow) = self.table.oldest(state) {
                let entry = self.table.at(flow);
                if entry.last_ns().saturating_add(lasts_ns) > self.now_ns {
                    break;
                }
                if left == 0 {
                    return false;
                }
                left -= 1;
                let reason = entry.reason();
                self.end(flow, reason, records);
            }
        }
        true
    }

    fn end(&mut self, flow: FlowIndex, reason: EndReason, records: &mut Vec<Record>) {
        let entry = self.table.at(flow);
        let record = FlowRecord {
            interface: self.interface,
            sampling: self.options.sampling,
            community_id_seed: self.options.community_id_seed,
            ..entry.record(reason)
        };
        self.payload.release(&entry.texts);
        self.counters.records += 1;
        records.push(Record::Flow(Box::new(record)));
        self.table.remove(flow);
    }
}
