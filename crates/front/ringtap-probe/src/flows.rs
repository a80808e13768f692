// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flow metering: packets in, flow records out.
//!
//! Invariants
//! - Every packet is in exactly one record, unless sampling leaves its flow out.
//! - Time is that of packets; [`FlowMeter::tick`] moves it on while none come.
//! - Work per packet is bounded: at most [`ENDS_OF_PACKET`] other flows end with it.

mod ages;
mod changes;
mod counters;
mod entry;
mod fragments;
mod index;
mod options;
mod sequence;
mod table;
#[cfg(test)]
mod tests;
mod update;

use ringtap_ipc::time::nanoseconds;

use crate::application::PayloadInspector;
use crate::outside::PacketOutside;
use crate::packet::{ACK, Dissected, PacketKey, SYN, Secret, low_half};
use crate::record::{EndReason, FlowRecord, Record};
pub(crate) use changes::FlowChange;
use changes::FlowChanges;
pub use counters::FlowCounters;
use entry::FlowState;
use fragments::FragmentPorts;
pub use options::FlowOptions;
pub(crate) use table::PACKETS_TOGETHER;
use table::{FlowIndex, FlowTable};
pub(crate) use update::FlowUpdate;

/// Flows that may end by their time-outs with each packet.
const ENDS_OF_PACKET: usize = 4;
/// Nanoseconds for which a closed flow still takes late packets.
const LINGER_NS: u64 = 2_000_000_000;

/// The first of some packets of one direction of a flow.
#[derive(Clone, Copy, Debug)]
struct FirstPacket<'a> {
    time_ns: u64,
    /// TCP flags.
    flags: u8,
    /// TCP sequence number, where it is known.
    sequence: Option<u32>,
    outside: &'a PacketOutside<'a>,
}

/// Meters flows of one worker.
pub(crate) struct FlowMeter {
    options: FlowOptions,
    active_ns: u64,
    idle_ns: u64,
    table: FlowTable,
    fragments: FragmentPorts,
    payload: PayloadInspector,
    secret: Secret,
    /// Index of the captured interface.
    interface: Option<u32>,
    now_ns: u64,
    counters: FlowCounters,
    /// What the flows brought; `None` if nobody asks.
    changes: Option<FlowChanges>,
}

impl FlowMeter {
    /// A meter without flows; `secret` is the same for all workers, `interface` is the index of the captured one.
    pub(crate) fn new(options: FlowOptions, secret: Secret, interface: Option<u32>) -> Self {
        FlowMeter {
            active_ns: nanoseconds(options.active),
            idle_ns: nanoseconds(options.idle),
            table: FlowTable::new(options.max_flows),
            fragments: FragmentPorts::new(),
            payload: PayloadInspector::new(&options),
            secret,
            interface,
            now_ns: 0,
            counters: FlowCounters::default(),
            changes: None,
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
            self.options = options;
            self.payload.change(&options);
            if options.sampling > 1 {
                // They would lack the flows that sampling leaves out.
                self.changes = None;
            }
        }
        fits
    }

    /// From now on, keeps for [`FlowMeter::take_changes`] what each flow brings, unless sampling leaves flows out. Call it
    /// before the first packet.
    pub(crate) fn keep_changes(&mut self) {
        let is_complete = self.options.sampling <= 1;
        self.changes = is_complete.then(|| FlowChanges::new(self.options.max_flows));
    }

    /// Whether what all packets brought is kept.
    pub(crate) fn keeps_changes(&self) -> bool {
        self.changes.is_some()
    }

    /// Passes some changes on if many are kept. Call it after every few packets.
    #[inline]
    pub(crate) fn take_some_changes(&mut self, mut each: impl FnMut(FlowChange)) {
        if let Some(changes) = &mut self.changes
            && changes.are_many()
        {
            changes.take_some(&mut self.table, &mut each);
        }
    }

    /// Passes on what each direction of each flow brought since the last time.
    pub(crate) fn take_changes(&mut self, mut each: impl FnMut(FlowChange)) {
        if let Some(changes) = &mut self.changes {
            changes.take(&mut self.table, &mut each);
        }
    }

    /// Counts packets in their order; appends records of flows that ended.
    pub(crate) fn packets(&mut self, packets: &mut [Dissected], records: &mut Vec<Record>) {
        for together in packets.chunks_mut(PACKETS_TOGETHER) {
            let keys = together.iter();
            let keys = keys.map(|packet| (&packet.key, low_half(packet.hash)));
            self.table.warm(keys);
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
            outside: &packet.outside,
        };
        if let Some((flow, direction)) = self.place(&packet.key, packet.hash, first, 1, records) {
            let entry = self.table.at(flow);
            entry.see_outside(direction, &packet.outside);
            let state = entry.count(packet, direction);
            if let Some(changes) = &mut self.changes {
                changes.note(flow, entry);
            }
            if !entry.is_inspected && self.payload.wants(packet) {
                self.payload
                    .packet(&mut entry.texts, direction, packet, records);
                entry.is_inspected = self.payload.is_over(&entry.texts);
            }
            self.table.set_state(flow, state, self.now_ns);
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
            let keys = together.iter().zip(hashes);
            self.table
                .warm(keys.map(|(part, hash)| (&part.key, low_half(hash))));
            for (part, hash) in together.iter().zip(hashes) {
                let (counts, outside) = (&part.counts, part.outside());
                let first = FirstPacket {
                    time_ns: counts.first_ns,
                    flags: counts.first_flags,
                    sequence: None,
                    outside: &outside,
                };
                let placed = self.place(&part.key, hash, first, counts.packets, records);
                if let Some((flow, direction)) = placed {
                    let entry = self.table.at(flow);
                    entry.see_outside(direction, &outside);
                    let state = entry.add(part, direction);
                    self.table.set_state(flow, state, self.now_ns);
                    self.expire(ENDS_OF_PACKET, records);
                }
            }
        }
    }

    /// The flow of `packets` packets with this key and its hash, and their direction; `None` if sampling leaves it out.
    #[inline]
    fn place(
        &mut self,
        key: &PacketKey,
        hash: u64,
        first: FirstPacket<'_>,
        packets: u64,
        records: &mut Vec<Record>,
    ) -> Option<(FlowIndex, usize)> {
        let sampling = self.options.sampling;
        if sampling > 1 && !(hash >> 32).is_multiple_of(sampling.into()) {
            self.counters.not_sampled += packets;
            return None;
        }
        self.move_time(first.time_ns, records);
        let hash = low_half(hash);
        let mut found = self.table.find(key, hash, first.outside);
        if let Some((flow, direction)) = found
            && !self.still_lasts(flow, direction, first, records)
        {
            found = None;
        }
        Some(match found {
            Some(found) => found,
            None => {
                if self.table.is_full()
                    && let Some(victim) = self.table.victim()
                {
                    self.counters.evicted += 1;
                    self.end(victim, EndReason::Evicted, records);
                }
                let flow = self.table.add(key, first.flags, hash, self.now_ns);
                (flow, self.table.at(flow).direction_of(key))
            }
        })
    }

    /// Sets the time to `now_ns`, and ends flows and DNS questions whose time-outs have passed, at most `most`
    /// of each.
    ///
    /// Returns whether all flows whose time is over have ended.
    pub(crate) fn tick(&mut self, now_ns: u64, most: usize, records: &mut Vec<Record>) -> bool {
        self.now_ns = self.now_ns.max(now_ns);
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
            while let Some(flow) = self.table.any(state) {
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
        self.now_ns = self.now_ns.max(time_ns);
    }

    /// Whether a known flow goes on with this packet; ends its record or part if not.
    fn still_lasts(
        &mut self,
        flow: FlowIndex,
        direction: usize,
        first: FirstPacket<'_>,
        records: &mut Vec<Record>,
    ) -> bool {
        let now_ns = first.time_ns;
        let (active_ns, idle_ns) = (self.active_ns, self.idle_ns);
        let entry = self.table.at(flow);
        let begins_anew = first.flags & (SYN | ACK) == SYN
            && match first.sequence {
                Some(sequence) => entry.begins_anew(direction, sequence),
                None => entry.state == FlowState::Closed,
            };
        let lasts_ns = match entry.state {
            FlowState::Closed => LINGER_NS.min(idle_ns),
            FlowState::Tentative | FlowState::Established => idle_ns,
        };
        if begins_anew || entry.is_idle(direction, now_ns, lasts_ns) {
            let reason = entry.reason();
            self.end(flow, reason, records);
            return false;
        }
        if entry.is_long(now_ns, active_ns) {
            let record = FlowRecord {
                interface: self.interface,
                sampling: self.options.sampling,
                community_id_seed: self.options.community_id_seed,
                ..entry.record(EndReason::Active)
            };
            if let Some(changes) = &mut self.changes {
                changes.end(flow, entry);
            }
            entry.next_part();
            self.counters.records += 1;
            records.push(Record::Flow(Box::new(record)));
        }
        true
    }

    /// Ends flows whose time is over, at most `most`; returns `false` if some may be left.
    fn expire(&mut self, most: usize, records: &mut Vec<Record>) -> bool {
        let mut left = most;
        for (state, lasts_ns) in [
            (FlowState::Closed, LINGER_NS.min(self.idle_ns)),
            (FlowState::Tentative, self.idle_ns),
            (FlowState::Established, self.idle_ns),
        ] {
            let until_ns = self.now_ns.saturating_sub(lasts_ns);
            while let Some(flow) = self.table.oldest(state, until_ns, &mut left) {
                if left == 0 {
                    return false;
                }
                left -= 1;
                let reason = self.table.at(flow).reason();
                self.end(flow, reason, records);
            }
        }
        left > 0
    }

    fn end(&mut self, flow: FlowIndex, reason: EndReason, records: &mut Vec<Record>) {
        let entry = self.table.at(flow);
        let record = FlowRecord {
            interface: self.interface,
            sampling: self.options.sampling,
            community_id_seed: self.options.community_id_seed,
            ..entry.record(reason)
        };
        if let Some(changes) = &mut self.changes {
            changes.end(flow, entry);
        }
        self.payload.release(&entry.texts);
        let hash = low_half(self.secret.hash(&entry.key));
        self.counters.records += 1;
        records.push(Record::Flow(Box::new(record)));
        self.table.remove(flow, hash);
    }
}
