// SPDX-License-Identifier: MIT OR Apache-2.0
//! Verdicts: how a reader in another process tells a bridge which packets pass.
//!
//! The reader, the *judge*, reads packets as every reader does, and answers for each one, by its
//! lane and sequence, in a queue of its own. The bridge gives the queue to one judge at a time.
//!
//! Invariants
//! - The judge is not trusted: its index is checked, a verdict on a packet that does not wait is
//!   passed over, and nothing that it writes makes the bridge wait.
//! - A judge that leaves, however it does, is noticed at once: its end of the doorbell is gone.
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

/// Verdicts that may wait for the bridge: more than packets may.
const ENTRIES: usize = 1 << 16;
/// Where things lie in the memory, in bytes: the judge's index, the bridge's, whether the bridge
/// sleeps, the entries.
const TAIL: usize = 0;
const HEAD: usize = 64;
const ASLEEP: usize = 128;
const FIRST: usize = 4096;
const BYTES: usize = FIRST + ENTRIES * size_of::<u64>();

const DROP: u64 = 1 << 63;
const LANE_SHIFT: u32 = 48;
const LANE_MASK: u64 = (1 << 15) - 1;
const SEQUENCE_MASK: u64 = (1 << LANE_SHIFT) - 1;

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It leaves by the other interface.
    Pass,
    /// It goes no further.
    Drop,
}

/// A verdict on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// Its lane, counted over all sources.
    pub lane: LaneId,
    /// Its sequence in the lane, of which the low 48 bits count.
    pub sequence: u64,
    /// What becomes of it.
    pub verdict: Verdict,
}

impl Judgement {
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
        Judgement {
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

    /// How far the packet lies behind the one with this sequence; [`Judgement::FAR`] and more if it
    /// lies before it.
    #[must_use]
    pub fn distance_from(&self, sequence: u64) -> u64 {
        Judgement::distance(sequence, self.sequence)
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

/// What the judge gets, in the bridge's process, on its way to it.
pub struct Sitting {
    /// The queue's memory.
    pub memory: OwnedFd,
    /// Signals the bridge.
    pub doorbell: SocketDoorbell,
}

/// The judge's end.
pub struct Verdicts {
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

impl Verdicts {
    /// The judge's end of what a bridge sent.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidData`] if it is something else.
    pub fn from_peer(memory: OwnedFd, doorbell: OwnedFd) -> io::Result<Self> {
        let (parts, asleep) = map(memory)?;
        Ok(Verdicts {
            queue: Producer::new(parts),
            asleep,
            doorbell: SocketDoorbell::from_peer(doorbell)?,
        })
    }

    /// Says what becomes of a packet, in any order; the bridge looks when they are sent.
    ///
    /// # Errors
    ///
    /// [`VerdictError`]: nobody takes them, 65,536 wait.
    pub fn give(&mut self, judgement: Judgement) -> Result<(), VerdictError> {
        match self.queue.push(judgement.to_entry()) {
            Ok(()) => Ok(()),
            Err(PushError::PeerCorrupt(error)) => Err(error.into()),
            Err(_) => Err(VerdictError::Stuck),
        }
    }

    /// Lets the bridge look, if it sleeps: after each batch of packets.
    pub fn send(&self) {
        if self.asleep[0].take() {
            self.doorbell.signal();
        }
    }
}

/// The bridge's end.
pub struct Session {
    queue: Consumer,
    asleep: Words<WakeFlag>,
    doorbell: SocketDoorbell,
}

/// Why a judge's verdicts end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// It left.
    Left,
    /// It wrote what cannot be.
    Corrupt,
}

impl Session {
    /// The next verdict, if there is one.
    ///
    /// # Errors
    ///
    /// [`Gone::Corrupt`].
    pub fn take(&mut self) -> Result<Option<Judgement>, Gone> {
        let entry = self.queue.pop().map_err(|_| Gone::Corrupt)?;
        Ok(entry.map(Judgement::from_entry))
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
    /// [`Gone::Left`].
    pub fn wake_up(&self) -> Result<(), Gone> {
        self.asleep[0].lower();
        self.doorbell.clear().map_err(|_| Gone::Left)
    }
}

impl AsFd for Session {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.doorbell.fd()
    }
}

/// Where one judge at a time sits: the server lets it in, the bridge's thread serves it.
pub struct Bench {
    group: String,
    state: Mutex<State>,
    /// Ends the bridge's sleep.
    wake: Event,
}

#[derive(Default)]
struct State {
    is_taken: bool,
    arrived: Option<Session>,
}

/// Why somebody cannot be the judge.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// Readers of that group do not judge.
    #[error("readers of the group {asked} do not judge: the judge's group is {group}")]
    Group {
        /// The reader's group.
        asked: String,
        /// The judge's.
        group: String,
    },
    /// There is one.
    #[error("there is a judge already: one at a time")]
    Taken,
    /// The system refused.
    #[error("no memory for verdicts: {0}")]
    System(#[from] io::Error),
}

impl Bench {
    /// A bench for a reader of this group; `wake` ends the bridge's sleep.
    #[must_use]
    pub fn new(group: &str, wake: Event) -> Self {
        Bench {
            group: group.to_owned(),
            state: Mutex::default(),
            wake,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a reader of `group` judge from now on.
    ///
    /// # Errors
    ///
    /// Every [`BenchError`].
    pub fn sit(&self, group: &str) -> Result<Sitting, BenchError> {
        if group != self.group {
            return Err(BenchError::Group {
                asked: group.to_owned(),
                group: self.group.clone(),
            });
        }
        let mut state = self.state();
        if state.is_taken {
            return Err(BenchError::Taken);
        }
        let memory = SharedMemory::create(BYTES)?;
        let (parts, asleep) = map(&memory.file)?;
        let (ours, theirs) = SocketDoorbell::pair()?;
        state.is_taken = true;
        state.arrived = Some(Session {
            queue: Consumer::new(parts),
            asleep,
            doorbell: ours,
        });
        self.wake.signal();
        Ok(Sitting {
            memory: memory.file,
            doorbell: theirs,
        })
    }

    /// A judge that has just come, for the bridge's thread.
    pub fn arrived(&self) -> Option<Session> {
        self.state().arrived.take()
    }

    /// The judge has left: another may come.
    pub fn left(&self) {
        self.state().is_taken = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judgement(lane: u32, sequence: u64, verdict: Verdict) -> Judgement {
        Judgement {
            lane: LaneId(lane),
            sequence,
            verdict,
        }
    }

    #[test]
    fn every_verdict_survives_its_entry() {
        for verdict in [Verdict::Pass, Verdict::Drop] {
            let one = judgement(32_767, SEQUENCE_MASK, verdict);
            assert_eq!(Judgement::from_entry(one.to_entry()), one);
            assert!(one.is_of(SEQUENCE_MASK | 1 << 60));
        }
    }

    #[test]
    fn one_judge_at_a_time_and_its_end_is_noticed() {
        let wake = Event::new().unwrap();
        let bench = Bench::new("ips", wake);
        assert!(matches!(bench.sit("wire"), Err(BenchError::Group { .. })));
        let sitting = bench.sit("ips").unwrap();
        assert!(matches!(bench.sit("ips"), Err(BenchError::Taken)));
        let mut session = bench.arrived().expect("it came");
        let doorbell = sitting.doorbell.fd().try_clone_to_owned().unwrap();
        let mut verdicts = Verdicts::from_peer(sitting.memory, doorbell).unwrap();
        assert!(session.announce_sleep());
        verdicts.give(judgement(1, 7, Verdict::Drop)).unwrap();
        verdicts.send();
        assert_eq!(session.wake_up(), Ok(()));
        assert_eq!(session.take(), Ok(Some(judgement(1, 7, Verdict::Drop))));
        assert_eq!(session.take(), Ok(None));
        drop((verdicts, sitting.doorbell));
        assert_eq!(session.wake_up(), Err(Gone::Left));
        bench.left();
        assert!(bench.sit("ips").is_ok());
    }

    #[test]
    fn a_full_queue_and_an_impossible_index_are_told() {
        let bench = Bench::new("ips", Event::new().unwrap());
        let sitting = bench.sit("ips").unwrap();
        let mut session = bench.arrived().unwrap();
        let file = sitting.memory.try_clone().unwrap();
        let doorbell = sitting.doorbell.fd().try_clone_to_owned().unwrap();
        let mut verdicts = Verdicts::from_peer(sitting.memory, doorbell).unwrap();
        let one = judgement(0, 1, Verdict::Pass);
        for _ in 0..ENTRIES {
            verdicts.give(one).unwrap();
        }
        assert_eq!(verdicts.give(one), Err(VerdictError::Stuck));
        crate::mapping::fill(&file, BYTES, |bytes| {
            bytes[TAIL..TAIL + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        })
        .unwrap();
        assert_eq!(session.take(), Err(Gone::Corrupt));
    }
}
