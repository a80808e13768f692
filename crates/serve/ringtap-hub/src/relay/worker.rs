// SPDX-License-Identifier: MIT OR Apache-2.0
//! The relay's thread: receives in place, copies packets that pass the filter, wakes its reader.

use std::io;
use std::num::NonZeroU32;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ringtap_client::{
    Control, ControlError, Copier, CopyCounts, CopyPool, Next, ReceiveError, Receiver,
};
use ringtap_filter::Program;
use ringtap_ipc::doorbell::{DoorbellBudget, DoorbellWatch, HubDoorbell, ReaderDoorbell, doorbell};
use ringtap_ipc::memfd::Reclaimable;
use ringtap_ipc::mutex::lock;
use ringtap_ipc::protocol::{ReaderStatus, Snapshot};
use ringtap_ipc::subscription::{Subscription, Wanted, Watermark};
use ringtap_ipc::time::now_ns;
use ringtap_pool::distributor::{Policy, Returns};
use ringtap_pool::ids::LaneId;
use ringtap_pool::wake::Signal as _;

use super::counters::RelayCounters;
use super::{Common, make_pool};
use crate::engine::limit_packets;
use crate::group::Group;

/// Most percent of a processor's time for wake-ups of no use by the reader.
const WAKE_PERCENT: NonZeroU32 = NonZeroU32::new(5).unwrap();

/// What the private reader knows of a source.
#[derive(Clone, Default)]
struct FollowedSource {
    /// The source's horizon at the last look.
    horizon_ns: u64,
    ended: bool,
}

pub(super) struct Worker {
    receiver: Receiver,
    copier: Copier,
    sources: Vec<FollowedSource>,
    pub(super) counters: RelayCounters,
    /// A source cannot be read.
    is_broken: bool,
    /// Wakes the hub.
    hub: Arc<ReaderDoorbell>,
    /// Wakes the reader of the private pools.
    reader: HubDoorbell,
    /// Notices the reader's signals, and what they may cost.
    doorbells: DoorbellWatch,
    doorbell_budget: DoorbellBudget,
}

/// The hub itself stops the relay and changes its filter.
struct NoCommands;

impl Control for NoCommands {
    fn snapshot(&self) -> Result<Snapshot, ControlError> {
        Err(ControlError::Gone("a relay asks for no counters".into()))
    }

    fn set_filter(&self, _: &Program) -> Result<Vec<Wanted>, ControlError> {
        Err(ControlError::Gone("a relay changes no filter".into()))
    }

    fn stop(&self) {}
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
        let (mut pools, mut endpoints) = (Vec::new(), Vec::new());
        let mut memory = Vec::new();
        for endpoint in &inner.endpoints {
            let (private, outer, reclaimable) =
                make_pool(endpoint, group.private_pool_bytes, for_other_user)?;
            memory.extend(reclaimable);
            pools.push(CopyPool {
                private,
                waits: endpoint.facts.policy == Policy::Block,
            });
            endpoints.push(outer);
        }
        let subscription = Subscription {
            id: inner.id,
            endpoints,
            doorbell: Arc::new(readers_doorbell),
            watermark: inner.watermark,
        };
        let hub = Arc::clone(&inner.doorbell);
        let inner = Subscription {
            watermark: Watermark::default(),
            ..inner
        };
        let receiver = Receiver::new(inner, Arc::new(NoCommands)).map_err(io::Error::other)?;
        receiver
            .listen(doorbells.as_fd())
            .map_err(io::Error::other)?;
        let sources = receiver.sources().map(|(_, lanes)| (lanes, false));
        let counters = RelayCounters {
            copies: CopyCounts::new(receiver.lanes()),
            sources: sources.collect(),
            reader: ReaderStatus::default(),
        };
        let worker = Worker {
            sources: vec![FollowedSource::default(); pools.len()],
            copier: Copier::new(&receiver, pools),
            receiver,
            counters,
            is_broken: false,
            hub,
            reader,
            doorbells,
            doorbell_budget: DoorbellBudget::new(WAKE_PERCENT),
        };
        Ok((worker, subscription, memory))
    }

    pub(super) fn run(mut self, common: &Common) {
        while !common.stop.load(Relaxed) {
            if let Some(wanted) = lock(&common.wanted).take() {
                self.receiver.adopt(&wanted);
            }
            let moved = self.step(common);
            self.publish(common);
            if moved {
                self.doorbell_budget.found_work();
                continue;
            }
            for pool in &mut self.copier.pools {
                pool.private.distributor.arm(Returns::WhenDry);
            }
            self.doorbell_budget.sleeps();
            if let Err(error) = self.receiver.wait(None) {
                tracing::error!("private delivery ended: {error}");
                return;
            }
            self.take_signals();
            for pool in &mut self.copier.pools {
                let _moved = pool.private.distributor.step();
            }
            self.wake_reader();
        }
        // A reader that stopped within a batch published its counters when it left.
        self.publish(common);
    }

    fn publish(&mut self, common: &Common) {
        self.read_pools();
        self.receiver.publish_progress(&self.counters.copies.tally);
        let mut shared = lock(&common.counters);
        if self.counters.copies.lost() > shared.copies.lost() {
            self.counters.reader.last_loss_ns = now_ns();
        }
        *shared = self.counters.clone();
    }

    /// Reads the reader's own counters.
    fn read_pools(&mut self) {
        let mut sum = ReaderStatus {
            last_loss_ns: self.counters.reader.last_loss_ns,
            ..ReaderStatus::default()
        };
        for pool in &self.copier.pools {
            let (distributor, reader) = (&pool.private.distributor, pool.private.reader);
            if let Some(progress) = distributor.progress(reader) {
                for (sum, counter) in [
                    (&mut sum.counters.delivered, &progress.delivered),
                    (&mut sum.counters.filtered, &progress.filtered),
                    (&mut sum.counters.bytes, &progress.bytes),
                ] {
                    *sum = sum.saturating_add(counter.load(Relaxed));
                }
            }
            let lanes = (0..).map(LaneId).take(pool.private.writers.len());
            sum.lag_chunks += lanes
                .map(|lane| distributor.held(reader, lane))
                .sum::<u32>();
            sum.corrupt |= distributor.is_corrupt(reader);
        }
        // A reader may report any number; it has read at most what was copied.
        limit_packets(&mut sum, self.counters.copies.copied());
        let bytes = self.counters.copies.tally.bytes();
        sum.impossible |= sum.counters.bytes > bytes;
        sum.counters.bytes = sum.counters.bytes.min(bytes);
        self.counters.reader = sum;
    }

    /// Discards the reader's signals. Pauses if they come too fast, which delays only this reader.
    fn take_signals(&mut self) {
        if self.doorbells.take() {
            let early = self.doorbell_budget.ignored_for();
            if !early.is_zero() {
                std::thread::sleep(early);
            }
            self.doorbell_budget.woke();
        }
    }

    /// Copies one batch; returns whether there was one.
    fn step(&mut self, common: &Common) -> bool {
        let moved = !self.is_broken
            && self.copy_next(common).unwrap_or_else(|error| {
                tracing::error!("private delivery ended: its source cannot be read: {error}");
                self.is_broken = true;
                false
            });
        self.follow_sources();
        moved
    }

    fn copy_next(&mut self, common: &Common) -> Result<bool, ReceiveError> {
        let Next::Batch(batch) = self.receiver.try_next()? else {
            return Ok(false);
        };
        let is_stopped = || common.stop.load(Relaxed);
        let copies = &mut self.counters.copies;
        self.copier.copy(&batch, copies, is_stopped)?;
        self.copier.wake(|| self.reader.signal());
        Ok(true)
    }

    /// Wakes the reader if it sleeps, and packets or the end wait for it.
    fn wake_reader(&mut self) {
        self.copier.wake(|| self.reader.signal());
        if self.sources.iter().any(|source| source.ended) {
            self.reader.signal();
        }
    }

    /// Gives the private readers the horizons and ends of their sources.
    fn follow_sources(&mut self) {
        let pools = self.copier.pools.iter_mut();
        for (at, (pool, source)) in pools.zip(&mut self.sources).enumerate() {
            if pool.private.distributor.wants_horizon() {
                self.receiver.follow_horizons();
            }
            if let Some(horizon_ns) = self.receiver.take_horizon_ns(at) {
                source.pass_horizon(pool, horizon_ns, &self.hub);
            }
            if !source.ended && (self.is_broken || self.receiver.has_ended(at)) {
                source.ended = true;
                self.counters.sources[at].1 = true;
                pool.private.end();
                self.reader.signal();
            }
        }
    }
}

impl FollowedSource {
    /// Gives the private reader the source's horizon: everything up to it has been copied.
    fn pass_horizon(&mut self, pool: &mut CopyPool, horizon_ns: u64, hub: &ReaderDoorbell) {
        if pool.private.distributor.step().is_ok() {
            pool.private.distributor.set_horizon(horizon_ns);
        }
        // The hub sleeps, and the private reader may wait for a later one.
        if horizon_ns > 0 && horizon_ns == self.horizon_ns {
            hub.signal();
        }
        self.horizon_ns = horizon_ns;
    }
}
