// SPDX-License-Identifier: MIT OR Apache-2.0
//! The relay's thread: reads in place, copies packets that pass the filter, wakes its reader.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use ringtap_filter::Place;
use ringtap_ipc::distance::Distance;
use ringtap_ipc::doorbell::{DOORBELL_INTERVAL, DoorbellWatch, HubDoorbell, doorbell};
use ringtap_ipc::memfd::Reclaimable;
use ringtap_ipc::subscription::{Subscription, Wanted, Watermark};
use ringtap_ipc::time::now_ns;
use ringtap_ipc::waiter::{Beside, Waiter};
use ringtap_pool::distributor::{Policy, Returns};
use ringtap_pool::ids::LaneId;
use ringtap_pool::number::to_u64;
use ringtap_pool::private::PrivatePool;
use ringtap_pool::reader::{ChunkBatch, NextBatch, Packet, Reader};
use ringtap_pool::wake::Signal;

use super::counters::{RelayCounters, RelayEndpointCounters, RelayLaneCounters};
use super::private_pool;
use super::{Common, lock};
use crate::group::Group;

/// Copies the packets of one source into a private pool.
struct Pipe {
    reader: Reader,
    distance: Distance,
    /// Wakes the hub.
    hub: Arc<dyn Signal>,
    /// The source's horizon at the last look.
    horizon_ns: u64,
    wanted: Wanted,
    /// A packet waits for room in the private pool.
    waits: bool,
    private: PrivatePool,
    counters: RelayEndpointCounters,
    ended: bool,
}

pub(super) struct Worker {
    pipes: Vec<Pipe>,
    waiter: Waiter,
    /// Wakes the reader of the private pools.
    reader: HubDoorbell,
    /// Notices the reader's signals, and when the last one came.
    doorbells: DoorbellWatch,
    last_doorbell: Instant,
}

impl Worker {
    pub(super) fn new(
        inner: Subscription,
        group: &Group,
        for_other_user: bool,
    ) -> io::Result<(Self, Subscription, Vec<Reclaimable>)> {
        let (reader, readers_doorbell) = doorbell()?;
        let doorbells = DoorbellWatch::new()?;
        doorbells.add(&reader)?;
        let (mut pipes, mut endpoints) = (Vec::new(), Vec::new());
        let mut memory = Vec::new();
        let wakes = inner
            .endpoints
            .iter()
            .filter_map(|endpoint| endpoint.wake.clone());
        let wakes = wakes.collect();
        for endpoint in inner.endpoints {
            let (private, outer, reclaimable) =
                private_pool::make(&endpoint, group.private_pool_bytes, for_other_user)?;
            memory.extend(reclaimable);
            let hub: Arc<dyn Signal> = inner.doorbell.clone();
            let policy = endpoint.facts.policy;
            let signal = Arc::clone(&hub);
            let source = Reader::open(endpoint.pool, &endpoint.control, policy, signal);
            let source = source.map_err(io::Error::other)?;
            let start = |position: &u64| RelayLaneCounters {
                position: *position,
                ..RelayLaneCounters::default()
            };
            let counters = RelayEndpointCounters {
                lanes: source.starts().iter().map(start).collect(),
                ended: false,
            };
            pipes.push(Pipe {
                reader: source,
                distance: Distance::new(Watermark::default().distance),
                hub,
                horizon_ns: 0,
                wanted: endpoint.wanted,
                waits: policy == Policy::Block,
                private,
                counters,
                ended: false,
            });
            endpoints.push(outer);
        }
        let sleepers = pipes.iter().map(|pipe| pipe.reader.sleeper()).collect();
        let waiter = Waiter::new(sleepers, inner.doorbell, wakes)?;
        waiter.listen(Beside::Event(doorbells.as_fd()))?;
        let worker = Worker {
            waiter,
            reader,
            doorbells,
            last_doorbell: Instant::now(),
            pipes,
        };
        let subscription = Subscription {
            id: inner.id,
            endpoints,
            doorbell: Arc::new(readers_doorbell),
            watermark: inner.watermark,
        };
        Ok((worker, subscription, memory))
    }

    pub(super) fn run(mut self, common: &Common) {
        while !common.stop.load(Relaxed) {
            if let Some(wanted) = lock(&common.wanted).take() {
                self.take_filters(wanted);
            }
            let moved = self.step(common);
            self.publish(common);
            if moved {
                self.waiter.found();
                continue;
            }
            let pauses = self.pipes.iter().filter_map(|pipe| pipe.distance.left());
            if let Some(pause) = pauses.min() {
                self.wake_reader();
                std::thread::sleep(pause);
                continue;
            }
            for pipe in &mut self.pipes {
                pipe.private.distributor.arm(Returns::WhenDry);
            }
            if let Err(error) = self.waiter.wait(None) {
                tracing::error!("private delivery ended: cannot wait for packets: {error}");
                return;
            }
            self.take_signals();
            self.wake_reader();
        }
        // A reader that stopped within a batch published its counters when it left.
        self.publish(common);
    }

    fn publish(&self, common: &Common) {
        let mut counters = self.counters();
        let mut before = lock(&common.counters);
        counters.last_loss_ns = match counters.lost() > before.lost() {
            true => now_ns(),
            false => before.last_loss_ns,
        };
        *before = counters;
    }

    /// Discards the reader's signals. Pauses if they come too fast, which delays only this reader.
    fn take_signals(&mut self) {
        if self.doorbells.take() {
            let early = DOORBELL_INTERVAL.saturating_sub(self.last_doorbell.elapsed());
            if !early.is_zero() {
                std::thread::sleep(early);
            }
            self.last_doorbell = Instant::now();
        }
    }

    fn take_filters(&mut self, wanted: Vec<Wanted>) {
        for (pipe, wanted) in self.pipes.iter_mut().zip(wanted) {
            pipe.wanted = wanted;
        }
    }

    /// Copies one batch of each source; returns whether there was a batch.
    fn step(&mut self, common: &Common) -> bool {
        let mut moved = false;
        for pipe in &mut self.pipes {
            moved |= pipe.step(common);
        }
        if moved {
            self.wake_reader();
        }
        moved
    }

    fn wake_reader(&mut self) {
        for pipe in &mut self.pipes {
            let _moved = pipe.private.distributor.step();
            pipe.private
                .distributor
                .wake_sleepers(|_| self.reader.signal());
            if pipe.ended {
                self.reader.signal();
            }
        }
    }

    pub(super) fn counters(&self) -> RelayCounters {
        let mut counters = RelayCounters::default();
        for pipe in &self.pipes {
            counters.endpoints.push(pipe.counters.clone());
            let PrivatePool {
                distributor,
                reader,
                writers,
            } = &pipe.private;
            if let Some(progress) = distributor.progress(*reader) {
                counters.delivered += progress.delivered.load(Relaxed);
                counters.filtered += progress.filtered.load(Relaxed);
                counters.bytes += progress.bytes.load(Relaxed);
            }
            let lanes = (0..).map(LaneId).take(writers.len());
            counters.held += lanes
                .map(|lane| distributor.held(*reader, lane))
                .sum::<u32>();
            counters.corrupt |= distributor.is_corrupt(*reader);
        }
        counters
    }
}

impl Pipe {
    fn step(&mut self, common: &Common) -> bool {
        if self.distance.left().is_some() {
            return false;
        }
        let merges = self.private.distributor.wants_horizon();
        if merges {
            self.reader.merge_by_time();
        }
        let horizon_ns = self.reader.horizon_ns();
        let batch = match self.reader.try_next() {
            Ok(NextBatch::Batch(batch)) => batch,
            Ok(NextBatch::Empty) => {
                self.distance.end();
                if merges {
                    self.pass_horizon(horizon_ns);
                }
                return false;
            }
            Ok(NextBatch::Ended) => {
                return end(&mut self.private, &mut self.ended, &mut self.counters);
            }
            Err(error) => {
                tracing::error!("private delivery ended: its source cannot be read: {error}");
                return end(&mut self.private, &mut self.ended, &mut self.counters);
            }
        };
        self.distance.took(batch.len(), batch.is_open());
        let lane = batch.lane();
        if let Some(gap) = batch.capture_gap() {
            self.private.writers[lane.index()].capture_gap(gap.after, gap.duration_ns);
        }
        let counters = &mut self.counters.lanes[lane.index()];
        if let Some(gap) = batch.gap() {
            let others = gap.other_members;
            counters.filtered += gap.sequences.saturating_sub(gap.packets + others);
            counters.other_members += others;
            counters.lost += gap.packets;
            self.private
                .distributor
                .charge(self.private.reader, lane, gap.packets);
        }
        let classifier = RelayClassifier {
            wanted: &self.wanted,
            from: self.wanted.from.get(lane.index()).copied().unwrap_or(0),
        };
        copy(
            &batch,
            &classifier,
            &mut self.private,
            counters,
            self.waits.then_some(common),
        );
        true
    }
}

impl Pipe {
    /// Gives the private reader the source's horizon: everything up to it has been copied.
    fn pass_horizon(&mut self, horizon_ns: u64) {
        if self.private.distributor.step().is_ok() {
            self.private.distributor.set_horizon(horizon_ns);
        }
        // The hub sleeps, and the private reader may wait for a later one.
        if horizon_ns > 0 && horizon_ns == self.horizon_ns {
            self.hub.signal();
        }
        self.horizon_ns = horizon_ns;
    }
}

struct RelayClassifier<'a> {
    wanted: &'a Wanted,
    from: u64,
}

impl RelayClassifier<'_> {
    fn wants(&self, packet: &Packet<'_>) -> bool {
        if packet.slot().mask & self.wanted.mask == 0 {
            return false;
        }
        let is_classified = self.wanted.place == Place::Source && packet.sequence >= self.from;
        is_classified
            || self
                .wanted
                .filter
                .matches(packet.data, packet.slot().wire_length)
    }
}

/// Copies a batch. With `waits`, waits for room for each packet, or until the relay is stopped.
fn copy(
    batch: &ChunkBatch,
    classifier: &RelayClassifier<'_>,
    private: &mut PrivatePool,
    counters: &mut RelayLaneCounters,
    waits: Option<&Common>,
) {
    let lane = batch.lane();
    let Wanted { mask, group, .. } = *classifier.wanted;
    if batch.wanted() & mask == 0 {
        let packets = to_u64(batch.len());
        let all = batch.first_sequence()..batch.first_sequence() + packets;
        counters.position = all.end;
        let (_, other_members) = batch.count_masks(all, mask, group);
        counters.other_members += other_members;
        counters.filtered += packets - other_members;
        return;
    }
    for packet in batch.packets().map_while(Result::ok) {
        counters.position = packet.sequence + 1;
        if !classifier.wants(&packet) {
            let bits = packet.slot().mask;
            match bits & mask == 0 && bits & group != 0 {
                true => counters.other_members += 1,
                false => counters.filtered += 1,
            }
            continue;
        }
        while let Some(common) = waits.filter(|_| !has_room(private, lane, packet.data.len())) {
            if common.stop.load(Relaxed) {
                return;
            }
        }
        if private.put(lane, &packet) {
            counters.copied += 1;
        } else {
            counters.lost += 1;
            counters.full += 1;
        }
    }
    private.writers[lane.index()].publish();
}

/// Whether the pool has room for a packet of this size; first takes back returned chunks.
fn has_room(private: &mut PrivatePool, lane: LaneId, bytes: usize) -> bool {
    let writer = &mut private.writers[lane.index()];
    if writer.has_room(bytes) {
        return true;
    }
    writer.publish();
    let _moved = private.distributor.step();
    std::thread::sleep(std::time::Duration::from_micros(200));
    private.writers[lane.index()].has_room(bytes)
}

/// Marks the end for the reader; `false` if the end was marked before.
fn end(private: &mut PrivatePool, ended: &mut bool, counters: &mut RelayEndpointCounters) -> bool {
    if *ended {
        return false;
    }
    *ended = true;
    private.end();
    counters.ended = true;
    true
}
