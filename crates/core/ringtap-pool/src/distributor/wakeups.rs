// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who is to be signalled when: the driver by lanes and readers, sleeping readers by the driver.
#![forbid(unsafe_code)]

use super::{Distributor, Entry, Lane, entry};
use crate::ids::ReaderId;
use crate::sync::{Ordering::*, fence};
use crate::wake::Level;

/// Whether the driver wants a signal when chunks come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returns {
    /// Only when a lane is about to run dry.
    WhenDry,
    /// In any case.
    Wanted,
}

impl Distributor {
    /// Says to writers and readers that the driver is about to sleep; then call
    /// [`Distributor::step`] and [`Distributor::wake_sleepers`] once more: packets that were
    /// published before this were signalled to nobody. Readers signal when they give chunks back if the driver
    /// asks for it, or a lane is about to run dry.
    pub fn arm(&mut self, returns: Returns) {
        // Who slept lately will want to be woken by the next packet, too.
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

    /// Leaves a sleeper alone, or no longer: it waits for more packets than there are.
    pub fn defer(&mut self, id: ReaderId, deferred: bool) {
        if let Some(entry) = self.readers.get_mut(id.index()).and_then(Option::as_mut) {
            entry.deferred = deferred;
        }
    }

    /// Calls `wake`, in ascending order, for each reader that said it sleeps and has not taken all there is for it;
    /// it is then taken to be awake.
    ///
    /// A reader that took everything before it fell asleep, or was woken by its source and is
    /// asleep again, is left alone.
    pub fn wake_sleepers(&mut self, mut wake: impl FnMut(ReaderId)) {
        // Pairs with the fence in `WakeFlag::raise`, after which a reader looks once more.
        fence(SeqCst);
        let asleep = |entry: &&mut Option<Entry>| entry.as_ref().is_some_and(Entry::is_asleep);
        // Each lane is looked at once, however many readers sleep, and not at all if none does.
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

    /// Asks readers to signal when they give a chunk back, or not to.
    fn want_returns(&self, returns: Returns) {
        let dry = |lane: &Lane| lane.free() <= entry::reserve(lane.ends.chunks);
        // What a lane opened is left in its queue only while a blocking reader has no credit.
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
}

#[cfg(test)]
mod tests;
