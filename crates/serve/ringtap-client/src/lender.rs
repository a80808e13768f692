// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets lent out by address, for callers that cannot borrow: the C interfaces stand on this.
//!
//! Invariants
//! - The receiver is asked for more only once everything it lent out was given out and the caller
//!   came back: what a caller holds stays valid until its next call.
#![forbid(unsafe_code)]

use std::os::fd::{AsFd as _, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering::Acquire};
use std::time::Instant;

use ringtap_filter::Program;
use ringtap_ipc::subscription::Wanted;
use ringtap_pool::number::to_u32;
use ringtap_pool::wake::FIRST_SLEEP;

use crate::descriptor::{Descriptor, Look};
use crate::pending::Pending;
use crate::receiver::{Next, ReceiveError, Receiver};
use crate::tally::Tally;

/// Batches without a packet of ours after which a call that must not wait returns.
const MOST_BATCHES: u32 = 64;

/// A packet as C has it; `ringtap.h` documents it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Lent {
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// Its number in its lane.
    pub sequence: u64,
    /// Packets that this reader lost just before it, on its lane.
    pub lost_before: u64,
    /// The captured bytes, readable until the lender is asked for more.
    pub data: *const u8,
    /// How many.
    pub captured_bytes: u32,
    /// Length on the wire.
    pub wire_bytes: u32,
    /// Its lane, counted over all sources.
    pub lane: u32,
    /// Its flow hash, if the flags say so.
    pub hash: u32,
    /// Number of its source.
    pub source: u32,
    /// Receive queue.
    pub queue: u16,
    /// Bits of [`ringtap_pool::format::flag`].
    pub flags: u16,
}

/// How long a call may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Not at all.
    None,
    /// Until then.
    Until(Instant),
    /// For ever.
    Endless,
}

impl Patience {
    #[inline]
    fn deadline(self) -> Option<Instant> {
        match self {
            Patience::Until(deadline) => Some(deadline),
            Patience::None | Patience::Endless => None,
        }
    }
}

/// What ends a wait from outside.
#[derive(Clone, Copy, Debug)]
pub struct Stop<'a> {
    /// Says so.
    pub raised: &'a AtomicBool,
    /// Is readable then, to end a sleep; the same one in every call.
    pub fd: BorrowedFd<'a>,
}

/// What a call found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Packets.
    Packets,
    /// Nothing yet.
    Nothing,
    /// Nothing, and nothing will come any more.
    Ended,
}

/// A receiver, the packets of it that are under way, and their account.
pub struct Lender {
    pending: Pending,
    receiver: Receiver,
    tally: Tally,
    /// Lanes of the sources before and including each.
    lanes_until: Vec<u32>,
    descriptor: Option<Descriptor>,
    /// Packets came since the reader last said that it sleeps.
    fresh: bool,
    /// The descriptor is readable already.
    calls: bool,
    /// What ends waits from outside is listened to.
    listens: bool,
}

impl Lender {
    /// Lends what this receiver gives.
    pub fn new(receiver: Receiver) -> Self {
        Lender {
            pending: Pending::new(receiver.lanes()),
            tally: Tally::new(receiver.lanes()),
            lanes_until: receiver.sources().map(|(_, lanes)| lanes.end).collect(),
            receiver,
            descriptor: None,
            fresh: true,
            calls: false,
            listens: false,
        }
    }

    /// The receiver, to be asked for anything but packets.
    pub fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    /// What was counted so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The next packet, once [`Lender::find`] found some.
    #[inline]
    pub fn one(&mut self) -> Option<&Lent> {
        self.pending.one(&mut self.tally)
    }

    /// All packets that [`Lender::find`] found and that were not yet given out.
    pub fn all(&mut self) -> &[Lent] {
        let packets = self.pending.all(&mut self.tally);
        self.receiver.tell(&self.tally);
        packets
    }

    /// Looks for packets; what was given out before goes back, unless some are left.
    ///
    /// # Errors
    ///
    /// Every [`ReceiveError`].
    pub fn find(
        &mut self,
        patience: Patience,
        stop: Option<Stop<'_>>,
    ) -> Result<Found, ReceiveError> {
        if !self.pending.is_empty() {
            return Ok(Found::Packets);
        }
        self.pending.finish(&mut self.tally);
        self.receiver.tell(&self.tally);
        if let Some(stop) = stop.filter(|_| !self.listens) {
            self.receiver.listen(stop.fd)?;
            self.listens = true;
        }
        let mut batches = 0;
        let mut announced = false;
        loop {
            // Pairs with whoever raises it and then makes the descriptor readable.
            if stop.is_some_and(|stop| stop.raised.load(Acquire)) {
                return Ok(Found::Nothing);
            }
            let batch = match self.receiver.glance() {
                Some(batch) => batch,
                None => match self.receiver.next()? {
                    Next::Batch(batch) => batch,
                    Next::Ended => return Ok(Found::Ended),
                    Next::Empty if is_over(patience, MOST_BATCHES) => {
                        self.receiver.require_hub()?;
                        if announced || !self.announce()? {
                            return Ok(Found::Nothing);
                        }
                        announced = true;
                        continue;
                    }
                    Next::Empty => {
                        self.receiver.wait(patience.deadline())?;
                        continue;
                    }
                },
            };
            let source = source_of(&self.lanes_until, batch.lane().0);
            self.fresh = true;
            self.pending.load(&batch, source, &mut self.tally)?;
            if !self.pending.is_empty() {
                return Ok(Found::Packets);
            }
            self.pending.finish(&mut self.tally);
            batches += 1;
            if is_over(patience, batches) {
                self.look_again_at_once()?;
                return Ok(Found::Nothing);
            }
        }
    }

    /// Says that the reader sleeps, if somebody waits for its descriptor; then look once more.
    fn announce(&mut self) -> Result<bool, ReceiveError> {
        let Some(descriptor) = &self.descriptor else {
            return Ok(false);
        };
        self.receiver.announce_sleep();
        let fresh = std::mem::replace(&mut self.fresh, false);
        self.calls = false;
        descriptor.look(match self.receiver.look_again_in() {
            Some(left) => Look::After(left),
            // What was published in this very moment may be told late.
            None if fresh => Look::After(FIRST_SLEEP),
            None => Look::WhenWoken,
        })?;
        Ok(true)
    }

    /// Makes the descriptor readable, if there is one: the caller is to come back.
    ///
    /// # Errors
    ///
    /// [`ReceiveError::System`].
    pub fn look_again_at_once(&mut self) -> Result<(), ReceiveError> {
        if let Some(descriptor) = self.descriptor.as_ref().filter(|_| !self.calls) {
            descriptor.look(Look::Now)?;
            self.calls = true;
        }
        Ok(())
    }

    /// The same, if it was given out before.
    pub fn watched(&self) -> Option<BorrowedFd<'_>> {
        Some(self.descriptor.as_ref()?.as_fd())
    }

    /// What becomes readable when the reader has to be called.
    ///
    /// # Errors
    ///
    /// [`ReceiveError::System`]: no descriptor is free.
    pub fn descriptor(&mut self) -> Result<RawFd, ReceiveError> {
        if let Some(descriptor) = &self.descriptor {
            return Ok(descriptor.number());
        }
        let connection = self.receiver.control().connection();
        let connection = connection.unwrap_or_else(|| self.receiver.as_fd());
        let descriptor = Descriptor::new(self.receiver.as_fd(), connection)?;
        // Nobody said yet that the reader sleeps.
        descriptor.look(Look::Now)?;
        self.calls = true;
        Ok(self.descriptor.insert(descriptor).number())
    }

    /// Changes the filter; what is given out from now on passes it.
    ///
    /// # Errors
    ///
    /// [`ReceiveError::Control`]; the filter before is still in force then.
    pub fn set_filter(&mut self, filter: &Program) -> Result<(), ReceiveError> {
        self.receiver.set_filter(filter)?;
        self.pending.filter(filter);
        Ok(())
    }

    /// Takes over the hub's answer when another thread set this filter by [`Control`].
    pub fn adopt(&mut self, filter: &Program, wanted: &[Wanted]) {
        self.receiver.adopt(wanted);
        self.pending.filter(filter);
    }
}

fn is_over(patience: Patience, batches: u32) -> bool {
    match patience {
        Patience::None => batches >= MOST_BATCHES,
        Patience::Until(deadline) => Instant::now() >= deadline,
        Patience::Endless => false,
    }
}

#[inline]
fn source_of(lanes_until: &[u32], lane: u32) -> u32 {
    if lanes_until.len() <= 1 {
        return 0;
    }
    let before = lanes_until.iter().take_while(|until| lane >= **until);
    to_u32(before.count())
}
