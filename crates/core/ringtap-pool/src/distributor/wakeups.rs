// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals from lanes and readers to the driver, and from the driver to sleeping readers; for readers that
//! merge lanes by time, the time up to which they have every packet.

use super::admission::reserve;
use super::{Distributor, Entry, Lane};
use crate::ids::ReaderId;
use crate::sync::{Ordering::*, fence};
use crate::wake::Level;

/// Whether readers signal the driver when they return chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returns {
    /// Only when a lane is about to run out of free chunks.
    WhenDry,
    /// Always.
    Wanted,
}

impl Distributor {
    /// Announces to writers and readers that the driver is about to sleep. Then call
    /// [`Distributor::step`] and [`Distributor::wake_sleepers`] once more: earlier packets caused no
    /// signal. Readers signal returned chunks if the driver asks for it, or if a lane is about to run
    /// out of free chunks.
    pub fn arm(&mut self, returns: Returns) {
        // A reader that slept recently needs a signal for the next packet, too.
        let mut lately = std::mem::take(&mut self.woke);
        for entry in self.readers.iter_mut().flatten() {
            lately |= entry.slept_lately();
        }
        let asleep = || self.readers.iter().flatten().any(Entry::is_asleep);
        let mut level = if lately || asleep() {
            Level::Packet
        } else {
            Level::Chunk
        };
        self.watch(level);
        // Pairs with the fence in `Sleeper::arm`.
        fence(SeqCst);
        if level == Level::Chunk && asleep() {
            level = Level::Packet;
            self.watch(level);
        }
        self.want_returns(returns);
    }

    fn watch(&self, level: Level) {
        for lane in &self.lanes {
            lane.ends.wake.arm(level);
        }
        for entry in self.readers.iter().flatten() {
            entry.control.hub().watching.store(level as u32, Relaxed);
        }
    }

    /// Sets whether a sleeper is left asleep, because it waits for more packets.
    pub fn defer(&mut self, id: ReaderId, deferred: bool) {
        if let Some(entry) = self.readers.get_mut(id.index()).and_then(Option::as_mut) {
            entry.deferred = deferred;
        }
    }

    /// Calls `wake`, in ascending order, for each sleeping reader with packets left to take; these readers
    /// then count as awake.
    ///
    /// A reader that took all packets before it fell asleep, or that its source woke and that sleeps
    /// again, stays asleep.
    pub fn wake_sleepers(&mut self, mut wake: impl FnMut(ReaderId)) {
        // Pairs with the fence in `WakeFlag::raise`, after which a reader checks again.
        fence(SeqCst);
        let asleep = |entry: &&mut Option<Entry>| entry.as_ref().is_some_and(Entry::is_asleep);
        // Computed once, however many readers sleep, and only if one does.
        let mut positions: Option<Vec<u64>> = None;
        for (index, entry) in (0..).zip(&mut self.readers).filter(|(_, one)| asleep(one)) {
            let (lanes, pool) = (&self.lanes, &self.pool);
            let positions =
                positions.get_or_insert_with(|| lanes.iter().map(|lane| lane.now(pool)).collect());
            let Some(entry) = entry else { continue };
            if entry.has_news(positions) && entry.control.reader().asleep.take() {
                self.woke = true;
                wake(ReaderId(index));
            }
        }
    }

    /// Sets whether readers signal when they return a chunk.
    fn want_returns(&self, returns: Returns) {
        let dry = |lane: &Lane| lane.free() <= reserve(lane.ends.chunks);
        // Opened chunks stay in a lane's queue only while a blocking reader has no credit.
        let waits = |lane: &Lane| !lane.ends.opened.is_empty();
        let wants =
            returns == Returns::Wanted || self.lanes.iter().any(|lane| dry(lane) || waits(lane));
        for entry in self.readers.iter().flatten() {
            let flag = &entry.control.hub().wants_returns;
            if wants {
                flag.raise();
            } else {
                flag.lower();
            }
        }
    }

    /// Whether a reader merges lanes by time, and so needs [`Distributor::set_horizon`].
    pub fn wants_horizon(&self) -> bool {
        self.readers.iter().flatten().any(Entry::merges)
    }

    /// Tells readers that every packet up to this time is published in a chunk that was delivered or
    /// missed. Does nothing while opened chunks wait for a reader's credit.
    ///
    /// Read the time from the source before [`Distributor::step`], and call this after it.
    pub fn set_horizon(&self, time_ns: u64) {
        if !self.is_drained() {
            return;
        }
        for entry in self.readers.iter().flatten().filter(|one| one.merges()) {
            // Pairs with the load in `Reader::peek`: the reader then finds all deliveries before it.
            entry.control.hub().horizon_ns.store(time_ns, Release);
        }
    }
}

impl Entry {
    fn merges(&self) -> bool {
        self.control.reader().merges.load(Relaxed) != 0
    }
}

#[cfg(test)]
mod tests;
