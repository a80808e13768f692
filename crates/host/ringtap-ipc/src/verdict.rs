// SPDX-License-Identifier: MIT OR Apache-2.0
//! Verdict channel: an inline reader in another process decides which packets pass a bridge.
//!
//! The inline reader reads packets as every reader does, and pushes a verdict on each, by lane and
//! sequence, into a queue. The bridge gives the queue to one inline reader at a time.
//!
//! Invariants
//! - The inline reader is not trusted: the bridge checks its index, ignores verdicts on packets
//!   that do not wait, and never waits for what it writes.
//! - The bridge notices at once when the inline reader leaves: its end of the doorbell closes.
#![forbid(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringtap_pool::ids::LaneId;
use ringtap_pool::memory::Words;
use ringtap_pool::number::to_u32;
use ringtap_pool::queue::{Consumer, Parts, PeerCorrupt, Producer, PushError};
use ringtap_pool::wake::{Signal as _, WakeFlag};

use crate::doorbell::{Doorbell as _, SocketDoorbell};
use crate::event::Event;
use crate::mapping::{Access, Mapping};
use crate::memfd::SharedMemory;

/// VerdictSender that may wait for the bridge: more than packets may.
const ENTRIES: usize = 1 << 16;
/// Offsets in the memory, in bytes: the reader's index, the bridge's, the flag of a sleeping
/// bridge, the entries.
const TAIL: usize = 0;
const HEAD: usize = 64;
const ASLEEP: usize = 128;
const FIRST: usize = 4096;
const BYTES: usize = FIRST + ENTRIES * size_of::<u64>();

const DROP: u64 = 1 << 63;
const LANE_SHIFT: u32 = 48;
const LANE_MASK: u64 = (1 << 15) - 1;
const SEQUENCE_MASK: u64 = (1 << LANE_SHIFT) - 1;

/// What happens to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It leaves by the other interface.
    Pass,
    /// It goes no further.
    Drop,
}

/// A verdict on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketVerdict {
    /// Its lane, counted over all sources.
    pub lane: LaneId,
    /// Its sequence in the lane, of which the low 48 bits count.
    pub sequence: u64,
    /// What happens to it.
    pub verdict: Verdict,
}

impl PacketVerdict {
    fn to_entry(self) -> u64 {
        let drop = match self.verdict {
            Verdict::Pass => 0,
            Verdict::Drop => DROP,
        };
        let lane = (u64::from(self.lane.0) & LANE_MASK) << LANE_SHIFT;
        drop | lane | (self.sequence & SEQUENCE_MASK)
    }

    fn from_entry(entry: u64) -> Self {
        let lane = entry >> LANE_SHIFT & LANE_MASK;
        PacketVerdict {
            lane: LaneId(to_u32(lane)),
            sequence: entry & SEQUENCE_MASK,
            verdict: match entry & DROP {
                0 => Verdict::Pass,
                _ => Verdict::Drop,
            },
        }
    }

    /// Sequences that lie so far apart are not of packets that wait at the same time.
    pub const FAR: u64 = 1 << (LANE_SHIFT - 1);

    /// How far a sequence lies behind another, as far as an entry can tell.
    #[must_use]
    pub fn distance(from: u64, to: u64) -> u64 {
        to.wrapping_sub(from) & SEQUENCE_MASK
    }

    /// How far the packet lies behind the one with this sequence; [`PacketVerdict::FAR`] and more if it
    /// lies before it.
    #[must_use]
    pub fn distance_from(&self, sequence: u64) -> u64 {
        PacketVerdict::distance(sequence, self.sequence)
    }

    /// Whether this is about the packet with this sequence.
    #[must_use]
    pub fn is_of(&self, sequence: u64) -> bool {
        self.distance_from(sequence) == 0
    }
}

/// The queue in this memory, and the flag by which the bridge asks to be woken.
fn map(file: impl AsFd) -> io::Result<(Parts, Words<WakeFlag>)> {
    let mapping = Arc::new(Mapping::of_peer(file, BYTES, Access::ReadWrite)?);
    let outside = || io::Error::from(io::ErrorKind::InvalidData);
    let head = mapping.words(HEAD, 1).ok_or_else(outside)?;
    let tail = mapping.words(TAIL, 1).ok_or_else(outside)?;
    let entries = mapping.words(FIRST, ENTRIES).ok_or_else(outside)?;
    let parts = Parts::new(head, tail, entries).map_err(io::Error::other)?;
    let asleep = mapping.words(ASLEEP, 1).ok_or_else(outside)?;
    Ok((parts, asleep))
}

/// The descriptors that the hub sends to the inline reader.
pub struct VerdictEnds {
    /// The queue's memory.
    pub memory: OwnedFd,
    /// Signals the bridge.
    pub doorbell: SocketDoorbell,
}

/// The inline reader's end.
pub struct VerdictSender {
    queue: Producer,
    asleep: Words<WakeFlag>,
    doorbell: SocketDoorbell,
}

/// Why a verdict could not be given.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum VerdictError {
    /// The bridge does not take verdicts any more, or never did.
    #[error("the bridge takes no verdicts: it is stuck, or gone")]
    Stuck,
    /// The bridge's index is impossible.
    #[error("the bridge is corrupt: {0}")]
    Corrupt(#[from] PeerCorrupt),
}

impl VerdictSender {
    /// The inline reader's end, from the descriptors that the hub sent.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidData`] if it is something else.
    pub fn from_peer(memory: OwnedFd, doorbell: OwnedFd) -> io::Result<Self> {
        let (parts, asleep) = map(memory)?;
        Ok(VerdictSender {
            queue: Producer::new(parts),
            asleep,
            doorbell: SocketDoorbell::from_peer(doorbell)?,
        })
    }

    /// Pushes a verdict, in any order; the bridge looks when [`VerdictSender::send`] is called.
    ///
    /// # Errors
    ///
    /// [`VerdictError`]: 65,536 verdicts wait.
    pub fn push(&mut self, verdict: PacketVerdict) -> Result<(), VerdictError> {
        match self.queue.push(verdict.to_entry()) {
            Ok(()) => Ok(()),
            Err(PushError::PeerCorrupt(error)) => Err(error.into()),
            Err(_) => Err(VerdictError::Stuck),
        }
    }

    /// Wakes the bridge if it sleeps; call it after each batch of packets.
    pub fn send(&self) {
        if self.asleep[0].take() {
            self.doorbell.signal();
        }
    }
}

/// The bridge's end.
pub struct VerdictQueue {
    queue: Consumer,
    asleep: Words<WakeFlag>,
    doorbell: SocketDoorbell,
}

/// Why an inline reader's verdicts end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReaderGone {
    /// It left.
    Left,
    /// It wrote what cannot be.
    Corrupt,
}

impl VerdictQueue {
    /// The next verdict, if there is one.
    ///
    /// # Errors
    ///
    /// [`ReaderGone::Corrupt`].
    pub fn take(&mut self) -> Result<Option<PacketVerdict>, ReaderGone> {
        let entry = self.queue.pop().map_err(|_| ReaderGone::Corrupt)?;
        Ok(entry.map(PacketVerdict::from_entry))
    }

    /// Says that the bridge sleeps; then look once more whether there is anything.
    pub fn announce_sleep(&self) -> bool {
        self.asleep[0].raise();
        self.queue.is_empty()
    }

    /// The bridge is awake.
    ///
    /// # Errors
    ///
    /// [`ReaderGone::Left`].
    pub fn wake_up(&self) -> Result<(), ReaderGone> {
        self.asleep[0].lower();
        self.doorbell.clear().map_err(|_| ReaderGone::Left)
    }
}

impl AsFd for VerdictQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.doorbell.fd()
    }
}

/// Gives one inline reader at a time a queue: the server accepts it, the bridge's thread serves it.
pub struct VerdictChannel {
    group: String,
    state: Mutex<State>,
    /// Ends the bridge's sleep.
    wake: Event,
}

#[derive(Default)]
struct State {
    is_taken: bool,
    arrived: Option<VerdictQueue>,
}

/// Why a reader cannot be the inline reader.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InlineError {
    /// Another group has the inline reader.
    #[error("readers of the group {asked} give no verdicts: the inline group is {group}")]
    Group {
        /// The reader's group.
        asked: String,
        /// The inline reader's.
        group: String,
    },
    /// There is one already.
    #[error("there is an inline reader already: one at a time")]
    Taken,
    /// The system refused.
    #[error("no memory for verdicts: {0}")]
    System(#[from] io::Error),
}

impl VerdictChannel {
    /// A channel for a reader of this group; `wake` ends the bridge's sleep.
    #[must_use]
    pub fn new(group: &str, wake: Event) -> Self {
        VerdictChannel {
            group: group.to_owned(),
            state: Mutex::default(),
            wake,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a reader of `group` the inline reader.
    ///
    /// # Errors
    ///
    /// Every [`InlineError`].
    pub fn accept(&self, group: &str) -> Result<VerdictEnds, InlineError> {
        if group != self.group {
            return Err(InlineError::Group {
                asked: group.to_owned(),
                group: self.group.clone(),
            });
        }
        let mut state = self.state();
        if state.is_taken {
            return Err(InlineError::Taken);
        }
        let memory = SharedMemory::create(BYTES)?;
        let (parts, asleep) = map(&memory.file)?;
        let (ours, theirs) = SocketDoorbell::pair()?;
        state.is_taken = true;
        state.arrived = Some(VerdictQueue {
            queue: Consumer::new(parts),
            asleep,
            doorbell: ours,
        });
        self.wake.signal();
        Ok(VerdictEnds {
            memory: memory.file,
            doorbell: theirs,
        })
    }

    /// The queue of an inline reader that has just been accepted, for the bridge's thread.
    pub fn arrived(&self) -> Option<VerdictQueue> {
        self.state().arrived.take()
    }

    /// The inline reader has left: another may be accepted.
    pub fn left(&self) {
        self.state().is_taken = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(lane: u32, sequence: u64, verdict: Verdict) -> PacketVerdict {
        PacketVerdict {
            lane: LaneId(lane),
            sequence,
            verdict,
        }
    }

    #[test]
    fn every_verdict_survives_its_entry() {
        for verdict in [Verdict::Pass, Verdict::Drop] {
            let one = on(32_767, SEQUENCE_MASK, verdict);
            assert_eq!(PacketVerdict::from_entry(one.to_entry()), one);
            assert!(one.is_of(SEQUENCE_MASK | 1 << 60));
        }
    }

    #[test]
    fn one_inline_reader_at_a_time_and_its_end_is_noticed() {
        let wake = Event::new().unwrap();
        let channel = VerdictChannel::new("ips", wake);
        assert!(matches!(
            channel.accept("wire"),
            Err(InlineError::Group { .. })
        ));
        let ends = channel.accept("ips").unwrap();
        assert!(matches!(channel.accept("ips"), Err(InlineError::Taken)));
        let mut queue = channel.arrived().expect("it came");
        let doorbell = ends.doorbell.fd().try_clone_to_owned().unwrap();
        let mut verdicts = VerdictSender::from_peer(ends.memory, doorbell).unwrap();
        assert!(queue.announce_sleep());
        verdicts.push(on(1, 7, Verdict::Drop)).unwrap();
        verdicts.send();
        assert_eq!(queue.wake_up(), Ok(()));
        assert_eq!(queue.take(), Ok(Some(on(1, 7, Verdict::Drop))));
        assert_eq!(queue.take(), Ok(None));
        drop((verdicts, ends.doorbell));
        assert_eq!(queue.wake_up(), Err(ReaderGone::Left));
        channel.left();
        assert!(channel.accept("ips").is_ok());
    }

    #[test]
    fn a_full_queue_and_an_impossible_index_are_told() {
        let channel = VerdictChannel::new("ips", Event::new().unwrap());
        let ends = channel.accept("ips").unwrap();
        let mut queue = channel.arrived().unwrap();
        let file = ends.memory.try_clone().unwrap();
        let doorbell = ends.doorbell.fd().try_clone_to_owned().unwrap();
        let mut verdicts = VerdictSender::from_peer(ends.memory, doorbell).unwrap();
        let one = on(0, 1, Verdict::Pass);
        for _ in 0..ENTRIES {
            verdicts.push(one).unwrap();
        }
        assert_eq!(verdicts.push(one), Err(VerdictError::Stuck));
        crate::mapping::fill(&file, BYTES, |bytes| {
            bytes[TAIL..TAIL + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        })
        .unwrap();
        assert_eq!(queue.take(), Err(ReaderGone::Corrupt));
    }
}
