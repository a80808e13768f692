// SPDX-License-Identifier: MIT OR Apache-2.0
//! Guaranteed shares of a lane, in virtual time: whatever other readers do, a reader that falls
//! behind by less than its guarantee loses nothing, and the writer always finds a chunk.
#![cfg(not(any(loom, miri)))]
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::sync::Arc;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use ringtap_pool::distributor::{Distributor, ReaderOptions};
use ringtap_pool::format::Geometry;
use ringtap_pool::ids::{LaneId, ReaderId};
use ringtap_pool::reader::{NextBatch, Reader};
use ringtap_pool::source;
use ringtap_pool::view::Pool;
use ringtap_pool::wake::NoSignal;
use ringtap_pool::writer::{LaneWriter, PacketMeta};

const LANE: LaneId = LaneId(0);
const PACKETS_OF_A_CHUNK: u32 = 4;
const MAX_READERS: usize = 20;

/// What happens before a chunk is written.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A reader of this user attaches.
    Attach(Option<u32>),
    Leave(usize),
    /// The reader takes nothing more.
    Stop(usize),
    /// A stopped reader goes on.
    Continue(usize),
    /// The reader falls behind as far as its guarantee permits.
    FallBehind(usize),
    /// The reader reads as soon as it can.
    CatchUp(usize),
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behaviour {
    KeepsUp,
    FallsBehind,
    Stopped,
}

struct Member {
    id: ReaderId,
    reader: Reader,
    behaviour: Behaviour,
    /// The reader was never stopped, and had a guarantee from its first packet on.
    is_honest: bool,
}

struct World {
    writer: LaneWriter,
    distributor: Distributor,
    members: Vec<Member>,
    /// Largest number of chunks in use: those that readers may hold, and the open one.
    max_in_use: u32,
}

fn event() -> impl Strategy<Value = Event> {
    let index = 0..MAX_READERS;
    prop_oneof![
        3 => option::of(0..3_u32).prop_map(Event::Attach),
        1 => index.clone().prop_map(Event::Leave),
        3 => index.clone().prop_map(Event::Stop),
        1 => index.clone().prop_map(Event::Continue),
        2 => index.clone().prop_map(Event::FallBehind),
        1 => index.prop_map(Event::CatchUp),
        // Most chunks follow another without an event, so that stopped readers reach their limits.
        40 => Just(Event::Nothing),
    ]
}

impl World {
    fn new(chunks: u32, guaranteed_readers: u32) -> Self {
        let geometry = Geometry::contiguous(4096, chunks + 1, 1, 1500).unwrap();
        let pool = Pool::on_heap(geometry);
        let ids = source::share(&geometry, LANE);
        // SAFETY: on the heap, and this is its only lane.
        let (mut writer, ends) = unsafe { source::lane(&pool, LANE, ids, Arc::new(NoSignal)) };
        writer.limit_packets(PACKETS_OF_A_CHUNK);
        let distributor = Distributor::new(pool, vec![ends], Arc::new(NoSignal))
            .with_guaranteed_readers(guaranteed_readers);
        World {
            writer,
            distributor,
            members: Vec::new(),
            max_in_use: chunks - (chunks / 8).max(2) + 1,
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Attach(user) if self.members.len() < MAX_READERS => self.attach(user),
            Event::Leave(at) if at < self.members.len() => {
                let member = self.members.swap_remove(at);
                self.check(&member);
                self.distributor.remove_reader(member.id);
            }
            Event::Stop(at) => self.set(at, Behaviour::Stopped),
            Event::Continue(at) | Event::CatchUp(at) => self.set(at, Behaviour::KeepsUp),
            Event::FallBehind(at) => self.set(at, Behaviour::FallsBehind),
            Event::Attach(_) | Event::Leave(_) | Event::Nothing => {}
        }
    }

    fn attach(&mut self, user: Option<u32>) {
        let options = ReaderOptions {
            user,
            ..ReaderOptions::default()
        };
        let (id, reader) = self.distributor.add_reader(&options).unwrap();
        let is_honest = self.distributor.guarantee(id, LANE) >= 2;
        self.members.push(Member {
            id,
            reader,
            behaviour: Behaviour::KeepsUp,
            is_honest,
        });
    }

    /// Attaches a reader that stops at once; returns how many chunks it comes to hold.
    fn hoard(&mut self, user: Option<u32>) -> u32 {
        self.attach(user);
        self.set(self.members.len() - 1, Behaviour::Stopped);
        (0..300).for_each(|_| self.turn(Event::Nothing));
        let hoarder = self.members.last().unwrap();
        self.distributor.held(hoarder.id, LANE)
    }

    fn set(&mut self, at: usize, behaviour: Behaviour) {
        if let Some(member) = self.members.get_mut(at) {
            member.behaviour = behaviour;
            member.is_honest &= behaviour != Behaviour::Stopped;
        }
    }

    /// Writes one chunk, and lets the readers read.
    fn turn(&mut self, event: Event) {
        self.happen(event);
        for _ in 0..PACKETS_OF_A_CHUNK {
            let written = self.writer.write(&PacketMeta::default(), [&[7; 300]]);
            assert!(written.is_ok(), "the writer finds a chunk");
        }
        self.distributor.step().unwrap();
        for member in &mut self.members {
            let held = self.distributor.held(member.id, LANE);
            let may_wait = held < self.distributor.guarantee(member.id, LANE);
            match member.behaviour {
                Behaviour::Stopped => {}
                Behaviour::FallsBehind if may_wait => {}
                Behaviour::FallsBehind | Behaviour::KeepsUp => member.read(),
            }
        }
        assert!(self.distributor.chunks_in_use(LANE) <= self.max_in_use);
        self.members.iter().for_each(|member| self.check(member));
    }

    fn check(&self, member: &Member) {
        let missed = self.distributor.missed(member.id, LANE);
        if member.is_honest {
            assert_eq!(missed.sequences, 0, "a reader within its guarantee");
        }
    }
}

impl Member {
    fn read(&mut self) {
        while let NextBatch::Batch(batch) = self.reader.try_next().unwrap() {
            assert!(!self.is_honest || batch.gap.is_none());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_reader_within_its_guarantee_loses_nothing(
        chunks in 8_u32..200,
        guaranteed_readers in 2_u32..17,
        events in vec(event(), 1..1500),
    ) {
        let mut world = World::new(chunks, guaranteed_readers);
        for event in events {
            world.turn(event);
        }
    }
}

#[test]
fn however_many_readers_a_user_stops_another_user_finds_shared_chunks() {
    let mut world = World::new(200, 8);
    let stopped: Vec<_> = (0..12).map(|_| world.hoard(Some(1))).collect();
    let other = world.hoard(Some(2));
    let full = world.distributor.full_guarantee(LANE);
    // 175 chunks for readers: 8 for each full guarantee, 88 shared. One user leaves a fifth of the
    // shared ones, another takes four fifths of these.
    assert_eq!((full, stopped[0]), (8, 8 + 71), "{stopped:?}");
    assert_eq!(other, full + 14, "{stopped:?}");
}

#[test]
fn readers_without_a_user_have_limits_of_their_own() {
    let mut world = World::new(200, 8);
    let held: Vec<_> = (0..3).map(|_| world.hoard(None)).collect();
    assert_eq!(held, [8 + 71, 8 + 14, 8 + 3]);
}

#[test]
fn a_user_leaves_full_guarantees_to_others() {
    let mut world = World::new(200, 8);
    let users = [[Some(1); 6].as_slice(), &[Some(2); 3], &[None; 2]].concat();
    users.iter().for_each(|user| world.attach(*user));
    let guarantee = |member: &Member| world.distributor.guarantee(member.id, LANE);
    let guarantees: Vec<_> = world.members.iter().map(guarantee).collect();
    assert_eq!(guarantees, [8, 8, 8, 8, 2, 2, 8, 8, 2, 8, 8]);
}
