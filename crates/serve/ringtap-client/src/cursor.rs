// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packet-by-packet reading for the C interfaces.
//!
//! Invariants
//! - A packet stays readable until the caller looks for the next ones: the cursor keeps its batch.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, RawFd};
use std::time::{Duration, Instant};

use ringtap_filter::Program;
use ringtap_ipc::subscription::Wanted;
use ringtap_pool::ids::LaneId;
use ringtap_pool::number::to_u32;
use ringtap_pool::reader::CaptureGap;
use ringtap_pool::wake::FIRST_SLEEP;

use crate::descriptor::Descriptor;
use crate::pending::{KeptPackets, Pending};
use crate::receiver::{Next, ReceiveError, Receiver};
use crate::tally::Tally;
use crate::waiter::WaitPlan;

/// A call that must not wait returns after this many batches without a packet for this reader.
const MAX_BATCHES: u32 = 64;

/// A packet in the form of the C interface; `ringtap.h` documents it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CursorPacket {
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// Sequence of the packet in its lane.
    pub sequence: u64,
    /// Packets of this lane that the reader lost just before this one.
    pub lost_before: u64,
    /// The captured bytes, readable until the next call of [`Cursor::look`].
    pub data: *const u8,
    /// Number of captured bytes.
    pub captured_bytes: u32,
    /// Length on the wire.
    pub wire_bytes: u32,
    /// Lane, counted over all sources.
    pub lane: u32,
    /// Flow hash, if the flags say that there is one.
    pub hash: u32,
    /// Number of the source.
    pub source: u32,
    /// Receive queue.
    pub queue: u16,
    /// Bits of [`ringtap_pool::format::flag`], and [`AFTER_GAP`](crate::AFTER_GAP).
    pub flags: u16,
}

/// Longest time that a call may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// The call must not wait.
    Now,
    /// Until this time.
    At(Instant),
    /// Until packets come.
    Never,
}

impl Deadline {
    #[inline]
    fn time(self) -> Option<Instant> {
        match self {
            Deadline::At(time) => Some(time),
            Deadline::Now | Deadline::Never => None,
        }
    }

    fn is_over(self, batches: u32) -> bool {
        match self {
            Deadline::Now => batches >= MAX_BATCHES,
            Deadline::At(time) => Instant::now() >= time,
            Deadline::Never => false,
        }
    }
}

/// The result of [`Cursor::look`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Packets wait in the cursor.
    Packets,
    /// No packet now.
    Empty,
    /// No packet now, and none will come.
    Ended,
}

/// The result of [`Cursor::look_or_wait`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookStep {
    /// What was found.
    Found(Look),
    /// No packet now: wait, then call [`Cursor::look_or_wait`] again.
    Wait(OutsideWait),
}

/// A wait that the caller of [`Cursor::look_or_wait`] makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutsideWait {
    /// The wait ends when this descriptor is readable; absent: a pause of `at_most`.
    pub fd: Option<RawFd>,
    /// Longest duration; absent: without limit.
    pub at_most: Option<Duration>,
}

/// A receiver, the packets of its last batch, and the reader's counters.
pub struct Cursor {
    pending: Pending,
    receiver: Receiver,
    tally: Tally,
    /// Per source, the number of lanes up to its last one.
    lanes_until: Vec<u32>,
    descriptor: Option<Descriptor>,
    /// Packets came since the reader last announced that it sleeps.
    fresh: bool,
    /// The cursor made the descriptor readable.
    is_readable: bool,
    /// The caller sleeps outside, on the receiver's descriptor.
    sleeps_outside: bool,
}

impl Cursor {
    /// A cursor over the packets of this receiver.
    pub fn new(receiver: Receiver) -> Self {
        Cursor {
            pending: Pending::new(receiver.lanes()),
            tally: Tally::new(receiver.lanes()),
            lanes_until: receiver.sources().map(|(_, lanes)| lanes.end).collect(),
            receiver,
            descriptor: None,
            fresh: true,
            is_readable: false,
            sleeps_outside: false,
        }
    }

    /// The receiver.
    pub fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    /// The reader's counters so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The last capture gap before the packets given so far, its lane, and its number from 1.
    pub fn last_gap(&self) -> Option<(CaptureGap, LaneId, u32)> {
        self.pending.gap()
    }

    /// Takes the next packet that [`Cursor::look`] found.
    #[inline]
    pub fn take_one(&mut self) -> Option<&CursorPacket> {
        self.pending.take_one(&mut self.tally)
    }

    /// Takes all packets that [`Cursor::look`] found and that were not yet taken.
    pub fn take_all(&mut self) -> &[CursorPacket] {
        let packets = self.pending.take_all(&mut self.tally);
        self.receiver.publish_progress(&self.tally);
        packets
    }

    /// Takes all packets that [`Cursor::look`] found and that were not yet taken, to keep them.
    pub fn take_kept(&mut self) -> KeptPackets {
        let kept = self.pending.take_kept(&mut self.tally);
        self.receiver.publish_progress(&self.tally);
        kept
    }

    /// Publishes the counters of the packets taken so far, for a reader that stops within a batch;
    /// [`Cursor::look`] publishes those of whole batches.
    pub fn publish(&self) {
        self.receiver.publish_progress(&self.tally);
    }

    /// The packets that [`Cursor::look`] found and that were not yet taken. They stay readable as those
    /// taken do.
    #[inline]
    pub fn rest(&self) -> &[CursorPacket] {
        self.pending.rest()
    }

    /// Lets this descriptor end a wait, too, as long as it is open.
    ///
    /// # Errors
    ///
    /// [`ReceiveError::System`].
    pub fn listen(&self, other: BorrowedFd<'_>) -> Result<(), ReceiveError> {
        self.receiver.listen(other)
    }

    /// Separates this process's waits from those of the process that it was forked from, or that was
    /// forked from it; [`Cursor::listen`] must be called again.
    ///
    /// # Errors
    ///
    /// [`ReceiveError::System`].
    pub fn renew_waits(&mut self) -> Result<(), ReceiveError> {
        self.receiver.renew_waits()?;
        self.sleeps_outside = false;
        let connection = self.receiver.control().connection();
        let connection = connection.unwrap_or_else(|| self.receiver.as_fd());
        if let Some(descriptor) = &mut self.descriptor {
            descriptor.renew(self.receiver.as_fd(), connection)?;
            descriptor.arm(Some(Duration::ZERO))?;
            self.is_readable = true;
        }
        Ok(())
    }

    /// Looks for packets, unless some are not yet taken; releases the batch before.
    ///
    /// # Errors
    ///
    /// Every [`ReceiveError`].
    pub fn look(&mut self, deadline: Deadline) -> Result<Look, ReceiveError> {
        loop {
            let wait = match self.look_or_wait(deadline)? {
                LookStep::Found(look) => return Ok(look),
                LookStep::Wait(wait) => wait,
            };
            match (wait.fd, wait.at_most) {
                (None, time) => std::thread::sleep(time.unwrap_or_default()),
                (Some(_), timeout) => {
                    self.sleeps_outside = false;
                    self.receiver.sleep(timeout)?;
                }
            }
        }
    }

    /// As [`Cursor::look`], but never waits: returns the wait for the caller to make, also after many
    /// batches without a packet. So nothing of this library is on the stack during a wait that may never
    /// return.
    ///
    /// # Errors
    ///
    /// Every [`ReceiveError`].
    pub fn look_or_wait(&mut self, deadline: Deadline) -> Result<LookStep, ReceiveError> {
        if !self.pending.is_empty() {
            return Ok(LookStep::Found(Look::Packets));
        }
        if std::mem::take(&mut self.sleeps_outside) {
            self.receiver.sleep(Some(Duration::ZERO))?;
        }
        self.pending.finish(&mut self.tally);
        self.publish();
        let mut batches = 0;
        let mut announced = false;
        let found = loop {
            let batch = match self.receiver.try_next()? {
                Next::Batch(batch) => batch,
                Next::Ended => break Look::Ended,
                Next::Empty if deadline.is_over(MAX_BATCHES) => {
                    // First receive what the hub delivered before it left.
                    if !self.receiver.look_for_hub() {
                        if announced || !self.announce()? {
                            break Look::Empty;
                        }
                        announced = true;
                    }
                    continue;
                }
                Next::Empty => match self.receiver.plan(deadline.time())? {
                    WaitPlan::Look => continue,
                    plan => return Ok(LookStep::Wait(self.outside(plan))),
                },
            };
            let source = source_of(&self.lanes_until, batch.lane().0);
            self.fresh = true;
            self.pending.load(batch, source, &mut self.tally)?;
            if !self.pending.is_empty() {
                break Look::Packets;
            }
            self.pending.finish(&mut self.tally);
            batches += 1;
            if deadline.is_over(batches) {
                self.make_readable()?;
                break Look::Empty;
            }
            if batches.is_multiple_of(MAX_BATCHES) {
                return Ok(LookStep::Wait(self.outside(WaitPlan::Look)));
            }
        };
        Ok(LookStep::Found(found))
    }

    fn outside(&mut self, plan: WaitPlan) -> OutsideWait {
        let (sleeps, at_most) = match plan {
            WaitPlan::Look => (false, Some(Duration::ZERO)),
            WaitPlan::Pause(time) => (false, Some(time)),
            WaitPlan::Sleep(timeout) => (true, timeout),
        };
        self.sleeps_outside = sleeps;
        OutsideWait {
            fd: sleeps.then(|| self.receiver.as_fd().as_raw_fd()),
            at_most,
        }
    }

    /// Announces that the reader sleeps, if its descriptor is in use; look for packets after this.
    fn announce(&mut self) -> Result<bool, ReceiveError> {
        let Some(descriptor) = &self.descriptor else {
            return Ok(false);
        };
        self.receiver.announce_sleep();
        let fresh = std::mem::replace(&mut self.fresh, false);
        self.is_readable = false;
        // Packets published during the announcement may be signalled late.
        let late = fresh.then_some(FIRST_SLEEP);
        descriptor.arm(self.receiver.look_again_in()?.or(late))?;
        Ok(true)
    }

    /// Makes the descriptor readable, if it is in use, so that the caller looks again.
    ///
    /// # Errors
    ///
    /// [`ReceiveError::System`].
    pub fn make_readable(&mut self) -> Result<(), ReceiveError> {
        if let Some(descriptor) = self.descriptor.as_ref().filter(|_| !self.is_readable) {
            descriptor.arm(Some(Duration::ZERO))?;
            self.is_readable = true;
        }
        Ok(())
    }

    /// Whether [`Cursor::make_readable`] has something to do.
    #[inline]
    pub fn must_be_readable(&self) -> bool {
        self.descriptor.is_some() && !self.is_readable
    }

    /// The descriptor, if it is in use.
    pub fn watched(&self) -> Option<BorrowedFd<'_>> {
        Some(self.descriptor.as_ref()?.as_fd())
    }

    /// Descriptor that becomes readable when the caller must call [`Cursor::look`].
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
        // The reader has not announced a sleep yet.
        descriptor.arm(Some(Duration::ZERO))?;
        self.is_readable = true;
        Ok(self.descriptor.insert(descriptor).number())
    }

    /// Changes the filter; packets taken from now on pass it.
    ///
    /// # Errors
    ///
    /// [`ReceiveError::Control`]; the old filter stays in force then.
    pub fn set_filter(&mut self, filter: &Program) -> Result<(), ReceiveError> {
        self.receiver.set_filter(filter)?;
        self.pending.filter(filter);
        Ok(())
    }

    /// Applies the hub's answer to a filter set through [`Control`](crate::Control).
    pub fn adopt(&mut self, filter: &Program, wanted: &[Wanted]) {
        self.receiver.adopt(wanted);
        self.pending.filter(filter);
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
