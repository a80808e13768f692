// SPDX-License-Identifier: MIT OR Apache-2.0
//! Verdict channel: an inline reader in another process decides which packets pass a bridge.
//!
//! The inline reader reads packets as every reader does. It pushes a verdict for each packet, by
//! lane and sequence, into a queue. The bridge gives a queue to one inline reader at a time.
//!
//! Invariants
//! - The inline reader is not trusted: the bridge checks the reader's index, ignores verdicts on
//!   packets that do not wait, and never waits for the reader.
//! - The inline reader's channel ends with its [`InlineMembership`], which its connection to the hub owns:
//!   no descriptor that the reader passed on keeps it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringtap_pool::ids::LaneId;
use ringtap_pool::memory::Words;
use ringtap_pool::number::to_u32;
use ringtap_pool::queue::{Consumer, PeerCorrupt, Producer, PushError, QueueMemory};
use ringtap_pool::wake::{Signal as _, WakeFlag};

use crate::event::Event;
use crate::mapping::{Access, Mapping};
use crate::memfd::SharedMemory;
use crate::mutex::lock;

/// Capacity of the queue: more verdicts than packets that can wait.
const ENTRIES: usize = 1 << 16;
/// Offsets in the shared memory, in bytes: the reader's index, the bridge's index, the flag of a
/// sleeping bridge, the entries.
const TAIL: usize = 0;
const HEAD: usize = 64;
const ASLEEP: usize = 128;
const FIRST: usize = 4096;
const BYTES: usize = FIRST + ENTRIES * size_of::<u64>();

const DROP: u64 = 1 << 63;
/// The verdict is for the packet's flow; the next entry says how long it lasts.
const FLOW: u64 = 1 << 62;
const LANE_SHIFT: u32 = 48;
const LANE_MASK: u64 = (1 << 14) - 1;
const SEQUENCE_MASK: u64 = (1 << LANE_SHIFT) - 1;

/// Decision about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The packet leaves by the other interface.
    Pass,
    /// The packet is dropped.
    Drop,
}

/// How long a verdict on a flow lasts. It ends, too, when a new connection has the flow's addresses and ports, when
/// both ends have closed the connection, and when the inline reader leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lasting {
    /// As long as the inline reader stays.
    ForGood,
    /// For a time.
    Time(Duration),
    /// Until the flow has no packets for this time.
    UntilIdle(Duration),
}

const KIND_SHIFT: u32 = 56;
const MS_MASK: u64 = (1 << KIND_SHIFT) - 1;

impl Lasting {
    fn to_entry(self) -> u64 {
        let (kind, time) = match self {
            Lasting::ForGood => (0, Duration::ZERO),
            Lasting::Time(time) => (1, time),
            Lasting::UntilIdle(time) => (2, time),
        };
        let ms = u64::try_from(time.as_millis()).unwrap_or(MS_MASK);
        kind << KIND_SHIFT | ms.min(MS_MASK)
    }

    fn from_entry(entry: u64) -> Self {
        let time = Duration::from_millis(entry & MS_MASK);
        match entry >> KIND_SHIFT {
            1 => Lasting::Time(time),
            2 => Lasting::UntilIdle(time),
            _ => Lasting::ForGood,
        }
    }
}

/// A decision, and the packet that it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketVerdict {
    /// Lane of the packet, counted over all sources.
    pub lane: LaneId,
    /// Sequence of the packet in its lane, of which the low 48 bits count.
    pub sequence: u64,
    /// The decision.
    pub verdict: Verdict,
    /// The decision holds for all further packets of the packet's flow, too, in both directions, for this long: the
    /// kernel forwards or drops them.
    pub for_flow: Option<Lasting>,
}

impl PacketVerdict {
    fn to_entry(self) -> u64 {
        let drop = match self.verdict {
            Verdict::Pass => 0,
            Verdict::Drop => DROP,
        };
        let lane = (u64::from(self.lane.0) & LANE_MASK) << LANE_SHIFT;
        let flow = self.for_flow.map_or(0, |_| FLOW);
        drop | flow | lane | (self.sequence & SEQUENCE_MASK)
    }

    fn from_entry(entry: u64, for_flow: Option<Lasting>) -> Self {
        let lane = entry >> LANE_SHIFT & LANE_MASK;
        PacketVerdict {
            lane: LaneId(to_u32(lane)),
            sequence: entry & SEQUENCE_MASK,
            verdict: match entry & DROP {
                0 => Verdict::Pass,
                _ => Verdict::Drop,
            },
            for_flow,
        }
    }

    /// Upper bound of the distance between two packets of a lane that wait at the same time.
    pub const FAR: u64 = 1 << (LANE_SHIFT - 1);

    /// Distance from one sequence to another, modulo the 48 bits that an entry holds.
    #[must_use]
    pub fn distance(from: u64, to: u64) -> u64 {
        to.wrapping_sub(from) & SEQUENCE_MASK
    }

    /// Distance from the packet with this sequence to this one; [`PacketVerdict::FAR`] or more if this
    /// one comes first.
    #[must_use]
    pub fn distance_from(&self, sequence: u64) -> u64 {
        PacketVerdict::distance(sequence, self.sequence)
    }

    /// Whether this verdict is about the packet with this sequence.
    #[must_use]
    pub fn is_of(&self, sequence: u64) -> bool {
        self.distance_from(sequence) == 0
    }
}

/// Maps the queue and the flag by which the bridge asks to be woken.
fn map(file: impl AsFd) -> io::Result<(QueueMemory, Words<WakeFlag>)> {
    let mapping = Arc::new(Mapping::from_peer(file, BYTES, Access::ReadWrite)?);
    let outside = || io::Error::from(io::ErrorKind::InvalidData);
    let head = mapping.words(HEAD, 1).ok_or_else(outside)?;
    let tail = mapping.words(TAIL, 1).ok_or_else(outside)?;
    let entries = mapping.words(FIRST, ENTRIES).ok_or_else(outside)?;
    let parts = QueueMemory::new(head, tail, entries).map_err(io::Error::other)?;
    let asleep = mapping.words(ASLEEP, 1).ok_or_else(outside)?;
    Ok((parts, asleep))
}

/// The descriptors that the hub sends to the inline reader.
pub struct VerdictEnds {
    /// The queue's memory.
    pub memory: OwnedFd,
    /// Signals the bridge.
    pub doorbell: Event,
}

/// The place of a bridge's inline reader, which ends when this is dropped.
pub struct InlineMembership {
    has_left: Arc<AtomicBool>,
    /// Ends the bridge's sleep.
    wake: Event,
}

impl Drop for InlineMembership {
    fn drop(&mut self) {
        self.has_left.store(true, Relaxed);
        self.wake.signal();
    }
}

/// The inline reader's end.
pub struct VerdictSender {
    queue: Producer,
    /// Second entry of the last verdict, for which there was no room.
    owed: Option<u64>,
    asleep: Words<WakeFlag>,
    doorbell: Event,
}

/// Why the reader cannot give a verdict.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum VerdictError {
    /// The queue is full: the bridge reads no verdicts, or has ended.
    #[error("the bridge does not read verdicts: its process is blocked or has ended")]
    Stuck,
    /// The bridge wrote an impossible index.
    #[error("the bridge is corrupt: {0}")]
    Corrupt(#[from] PeerCorrupt),
}

impl VerdictSender {
    /// The inline reader's end, from the descriptors that the hub sent.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidData`] for other descriptors.
    pub fn from_peer(memory: OwnedFd, doorbell: OwnedFd) -> io::Result<Self> {
        let (parts, asleep) = map(memory)?;
        Ok(VerdictSender {
            queue: Producer::new(parts),
            owed: None,
            asleep,
            doorbell: Event::from_peer(doorbell)?,
        })
    }

    /// Pushes a verdict, in any order; [`VerdictSender::send`] then wakes the bridge.
    ///
    /// # Errors
    ///
    /// [`VerdictError`]: 65,536 verdicts wait, or half as many for flows.
    pub fn push(&mut self, verdict: PacketVerdict) -> Result<(), VerdictError> {
        self.push_owed()?;
        self.push_entry(verdict.to_entry())?;
        self.owed = verdict.for_flow.map(Lasting::to_entry);
        self.push_owed()
    }

    fn push_owed(&mut self) -> Result<(), VerdictError> {
        if let Some(entry) = self.owed {
            self.push_entry(entry)?;
            self.owed = None;
        }
        Ok(())
    }

    fn push_entry(&mut self, entry: u64) -> Result<(), VerdictError> {
        match self.queue.push(entry) {
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
    /// First entry of a verdict whose second is missing.
    half: Option<u64>,
    /// Mask bits of the reader.
    mask: u64,
    asleep: Words<WakeFlag>,
    doorbell: Event,
    has_left: Arc<AtomicBool>,
}

/// Why the bridge lost its inline reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReaderGone {
    /// The reader left.
    Left,
    /// The reader wrote an impossible index.
    Corrupt,
}

impl VerdictQueue {
    /// The next verdict, if there is one.
    ///
    /// # Errors
    ///
    /// [`ReaderGone::Corrupt`].
    pub fn take(&mut self) -> Result<Option<PacketVerdict>, ReaderGone> {
        let mut pop = || self.queue.pop().map_err(|_| ReaderGone::Corrupt);
        let Some(entry) = self.half.map_or_else(&mut pop, |half| Ok(Some(half)))? else {
            return Ok(None);
        };
        if entry & FLOW == 0 {
            return Ok(Some(PacketVerdict::from_entry(entry, None)));
        }
        let lasting = pop()?;
        self.half = lasting.is_none().then_some(entry);
        let verdict =
            |lasting| PacketVerdict::from_entry(entry, Some(Lasting::from_entry(lasting)));
        Ok(lasting.map(verdict))
    }

    /// Mask bits of the inline reader.
    #[must_use]
    pub fn mask(&self) -> u64 {
        self.mask
    }

    /// Announces that the bridge sleeps; check for verdicts once more after this.
    pub fn announce_sleep(&self) -> bool {
        self.asleep[0].raise();
        self.queue.is_empty()
    }

    /// Ends the announced sleep.
    ///
    /// # Errors
    ///
    /// [`ReaderGone::Left`].
    pub fn wake_up(&self) -> Result<(), ReaderGone> {
        self.asleep[0].lower();
        self.doorbell.clear();
        if self.has_left.load(Relaxed) {
            Err(ReaderGone::Left)
        } else {
            Ok(())
        }
    }
}

impl AsFd for VerdictQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.doorbell.as_fd()
    }
}

/// Gives a queue to one inline reader at a time. The hub's server accepts the reader; the bridge's
/// thread takes the verdicts.
pub struct VerdictChannel {
    group: String,
    state: Mutex<ChannelState>,
    /// Ends the bridge's sleep.
    wake: Event,
}

#[derive(Default)]
struct ChannelState {
    is_taken: bool,
    arrived: Option<VerdictQueue>,
}

/// Why a reader cannot be the inline reader.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InlineError {
    /// The inline reader belongs to another group.
    #[error("readers of the group {asked} give no verdicts: the inline group is {group}")]
    Group {
        /// The reader's group.
        asked: String,
        /// The group of the inline reader.
        group: String,
    },
    /// The bridge has an inline reader already.
    #[error("the bridge has an inline reader already: end that reader first")]
    Taken,
    /// The system has no memory or descriptor.
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

    /// Makes a reader of `group` with these mask bits the inline reader, until its membership is dropped.
    ///
    /// # Errors
    ///
    /// Every [`InlineError`].
    pub fn accept(
        &self,
        group: &str,
        mask: u64,
    ) -> Result<(VerdictEnds, InlineMembership), InlineError> {
        if group != self.group {
            return Err(InlineError::Group {
                asked: group.to_owned(),
                group: self.group.clone(),
            });
        }
        let mut state = lock(&self.state);
        if state.is_taken {
            return Err(InlineError::Taken);
        }
        let memory = SharedMemory::create(BYTES)?;
        let (parts, asleep) = map(&memory.file)?;
        let doorbell = Event::new()?;
        let signals = doorbell.clone();
        let has_left = Arc::new(AtomicBool::new(false));
        state.is_taken = true;
        state.arrived = Some(VerdictQueue {
            queue: Consumer::new(parts),
            half: None,
            mask,
            asleep,
            doorbell,
            has_left: Arc::clone(&has_left),
        });
        self.wake.signal();
        let ends = VerdictEnds {
            memory: memory.file,
            doorbell: signals,
        };
        let wake = self.wake.clone();
        Ok((ends, InlineMembership { has_left, wake }))
    }

    /// Takes the queue of a newly accepted inline reader, for the bridge's thread.
    pub fn arrived(&self) -> Option<VerdictQueue> {
        lock(&self.state).arrived.take()
    }

    /// Records that the inline reader has left, so that another can be accepted.
    pub fn left(&self) {
        lock(&self.state).is_taken = false;
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
            for_flow: None,
        }
    }

    #[test]
    fn every_verdict_survives_its_entry() {
        for verdict in [Verdict::Pass, Verdict::Drop] {
            let one = on(16_383, SEQUENCE_MASK, verdict);
            assert_eq!(PacketVerdict::from_entry(one.to_entry(), None), one);
            assert!(one.is_of(SEQUENCE_MASK | 1 << 60));
        }
        let time = Duration::from_millis(1500);
        for lasting in [
            Lasting::ForGood,
            Lasting::Time(time),
            Lasting::UntilIdle(time),
        ] {
            assert_eq!(Lasting::from_entry(lasting.to_entry()), lasting);
        }
    }

    #[test]
    fn a_verdict_on_a_flow_comes_whole_also_through_a_full_queue() {
        let channel = VerdictChannel::new("ips", Event::new().unwrap());
        let (ends, _membership) = channel.accept("ips", 2).unwrap();
        let mut queue = channel.arrived().unwrap();
        assert_eq!(queue.mask(), 2);
        let doorbell = ends.doorbell.as_fd().try_clone_to_owned().unwrap();
        let mut verdicts = VerdictSender::from_peer(ends.memory, doorbell).unwrap();
        let flow = PacketVerdict {
            for_flow: Some(Lasting::ForGood),
            ..on(3, 4, Verdict::Drop)
        };
        for _ in 0..ENTRIES - 1 {
            verdicts.push(on(0, 1, Verdict::Pass)).unwrap();
        }
        assert_eq!(verdicts.push(flow), Err(VerdictError::Stuck));
        let taken = (0..ENTRIES).filter_map(|_| queue.take().unwrap());
        assert_eq!(taken.count(), ENTRIES - 1, "half of it does not count");
        verdicts.push(on(0, 5, Verdict::Pass)).unwrap();
        assert_eq!(queue.take(), Ok(Some(flow)));
        assert_eq!(queue.take(), Ok(Some(on(0, 5, Verdict::Pass))));
    }

    #[test]
    fn one_inline_reader_at_a_time_and_its_end_is_noticed() {
        let wake = Event::new().unwrap();
        let channel = VerdictChannel::new("ips", wake.clone());
        assert!(matches!(
            channel.accept("wire", 1),
            Err(InlineError::Group { .. })
        ));
        let (ends, membership) = channel.accept("ips", 1).unwrap();
        assert!(matches!(channel.accept("ips", 1), Err(InlineError::Taken)));
        let mut queue = channel.arrived().expect("it came");
        let doorbell = ends.doorbell.as_fd().try_clone_to_owned().unwrap();
        let mut verdicts = VerdictSender::from_peer(ends.memory, doorbell).unwrap();
        assert!(queue.announce_sleep());
        verdicts.push(on(1, 7, Verdict::Drop)).unwrap();
        verdicts.send();
        assert_eq!(queue.wake_up(), Ok(()));
        assert_eq!(queue.take(), Ok(Some(on(1, 7, Verdict::Drop))));
        assert_eq!(queue.take(), Ok(None));
        // The reader's descriptors may be open in any process.
        wake.clear();
        drop(membership);
        assert_eq!(queue.wake_up(), Err(ReaderGone::Left));
        assert!(crate::event::sleep_until_readable(&[wake.as_fd()], None).unwrap());
        channel.left();
        assert!(channel.accept("ips", 1).is_ok());
    }

    #[test]
    fn a_full_queue_and_an_impossible_index_are_told() {
        let channel = VerdictChannel::new("ips", Event::new().unwrap());
        let (ends, _membership) = channel.accept("ips", 1).unwrap();
        let mut queue = channel.arrived().unwrap();
        let file = ends.memory.try_clone().unwrap();
        let doorbell = ends.doorbell.as_fd().try_clone_to_owned().unwrap();
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
