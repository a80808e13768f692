// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals from lanes and readers to the driver, and from the driver to sleeping readers; for readers that
//! merge lanes by time, the time up to which they have every packet.

use super::budget::reserve;
use super::reader_set::ReaderSet;
use super::{Distributor, Lane};
use crate::ids::ReaderId;
use crate::number::to_u32;
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
        self.want_returns(returns);
        // Pairs with the fence in `WakeFlag::take`: this side sees a returned chunk, or the reader sees
        // the flag.
        fence(SeqCst);
        self.signs.look();
        // A reader that slept recently needs a signal for the next packet, too.
        let mut lately = std::mem::take(&mut self.woke);
        lately |= self.signs.slept_lately(self.deferred);
        let mut level = if lately || self.is_anyone_asleep() {
            Level::Packet
        } else {
            Level::Chunk
        };
        let lowered = self.watch(level);
        // Pairs with the fence in `Sleeper::arm`. Readers that saw a lower level than `Packet` before signal
        // their sleep.
        fence(SeqCst);
        self.signs.look_at(lowered);
        if level == Level::Chunk && self.is_anyone_asleep() {
            level = Level::Packet;
            self.watch(level);
        }
    }

    /// Looks at what all readers do: call it when a reader signalled, and now and then. Of many readers,
    /// other calls look only at some.
    pub fn look_at_all(&mut self) {
        self.signs.look_at_all();
    }

    fn is_anyone_asleep(&self) -> bool {
        !self.signs.asleep.without(self.deferred).is_empty()
    }

    fn watch(&mut self, level: Level) -> ReaderSet {
        for lane in &self.lanes {
            lane.ends.wake.arm(level);
        }
        self.signs.watch(level)
    }

    /// Sets whether a sleeper is left asleep, because it waits for more packets.
    pub fn defer(&mut self, id: ReaderId, deferred: bool) {
        self.deferred.set(id.index(), deferred);
        self.signs.unsure.add(id.index());
    }

    /// Calls `wake`, in ascending order, for each sleeping reader with packets left to take; these readers
    /// then count as awake.
    ///
    /// A reader that took all packets before it fell asleep, or that its source woke and that sleeps
    /// again, stays asleep.
    pub fn wake_sleepers(&mut self, mut wake: impl FnMut(ReaderId)) {
        // Pairs with the fence in `WakeFlag::raise`, after which a reader checks again.
        fence(SeqCst);
        self.signs.look();
        let asleep = self.signs.asleep.without(self.deferred);
        if asleep.is_empty() {
            return;
        }
        // A reader without the chunk that a lane fills gets nothing from a further packet.
        let filling = self.lanes.iter().map(|lane| lane.filling);
        let filling = filling.fold(ReaderSet::default(), ReaderSet::or);
        let mut positions: Option<Vec<u64>> = None;
        for reader in asleep.and(filling.or(self.signs.unsure)).iter() {
            let (lanes, pool) = (&self.lanes, &self.pool);
            let positions =
                positions.get_or_insert_with(|| lanes.iter().map(|lane| lane.now(pool)).collect());
            let Some(entry) = self.readers[reader].as_mut() else {
                continue;
            };
            self.signs.unsure.remove(reader);
            if entry.has_news(positions) && entry.control.reader().asleep.take() {
                self.woke = true;
                self.signs.asleep.remove(reader);
                wake(ReaderId(to_u32(reader)));
            }
        }
    }

    /// Sets whether readers signal when they return a chunk.
    fn want_returns(&mut self, returns: Returns) {
        let dry = |lane: &Lane| lane.free() <= reserve(lane.ends.chunks);
        // Opened chunks stay in a lane's queue only while a blocking reader has no credit.
        let waits = |lane: &Lane| !lane.ends.opened.is_empty();
        let wants =
            returns == Returns::Wanted || self.lanes.iter().any(|lane| dry(lane) || waits(lane));
        let wanted = std::mem::replace(&mut self.wants_returns, wants);
        if !wants && !wanted {
            return;
        }
        for entry in self.readers.iter().flatten() {
            let flag = &entry.control.hub().wants_returns;
            if wants {
                flag.request();
            } else {
                flag.lower();
            }
        }
    }

    /// Whether a reader merges lanes by time, and so needs [`Distributor::set_horizon`].
    pub fn wants_horizon(&self) -> bool {
        !self.signs.merging().is_empty()
    }

    /// Tells readers that every packet up to this time is published in a chunk that was delivered or
    /// missed. Does nothing while opened chunks wait for a reader's credit.
    ///
    /// Read the time from the source before [`Distributor::step`], and call this after it.
    pub fn set_horizon(&self, time_ns: u64) {
        if !self.is_drained() {
            return;
        }
        for reader in self.signs.merging().iter() {
            if let Some(entry) = &self.readers[reader] {
                // Pairs with the load in `Reader::peek`: the reader then finds all deliveries before it.
                entry.control.hub().horizon_ns.store(time_ns, Release);
            }
        }
    }
}

#[cfg(test)]
mod tests;
