// SPDX-License-Identifier: MIT OR Apache-2.0
//! Readers that are woken or left asleep, in every order of writer, driver and reader.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::super::tests::{Fixture, drain, fixture, fixture_with};
use super::*;
use crate::distributor::ReaderOptions;
use crate::ids::LaneId;
use crate::reader::{Reader, Sleeper};
use crate::wake::Signal;

fn woken(fixture: &mut Fixture) -> Vec<ReaderId> {
    let mut woken = Vec::new();
    fixture.distributor.wake_sleepers(|id| woken.push(id));
    woken
}

#[test]
fn who_took_everything_sleeps_on_until_more_comes() {
    let mut fixture = fixture(8);
    let (id, mut reader) = fixture.reader(ReaderOptions::default());
    for _ in 0..30 {
        fixture.write(1);
        fixture.distributor.step().unwrap();
        drain(&mut reader);
        reader.sleeper().arm();
        assert_eq!(woken(&mut fixture), [], "it has read all there is");
        fixture.write(1);
        fixture.distributor.step().unwrap();
        assert_eq!(woken(&mut fixture), [id]);
        assert_eq!(woken(&mut fixture), [], "once");
        drain(&mut reader);
    }
}

#[test]
fn who_came_late_or_lost_packets_sleeps_on_too() {
    let mut fixture = fixture(8);
    fixture.write(15);
    fixture.distributor.step().unwrap();
    let credit = Some(1);
    let (slow, mut reader) = fixture.reader(ReaderOptions {
        credit,
        ..ReaderOptions::default()
    });
    reader.sleeper().arm();
    assert_eq!(woken(&mut fixture), [], "nothing since it came");
    fixture.write(37);
    fixture.distributor.step().unwrap();
    assert_eq!(woken(&mut fixture), [slow]);
    for _ in 0..3 {
        drain(&mut reader);
        fixture.distributor.step().unwrap();
    }
    assert!(fixture.distributor.missed(slow, LaneId(0)).packets > 0);
    reader.sleeper().arm();
    assert_eq!(woken(&mut fixture), [], "what it lost it cannot read");
    fixture.write(1);
    assert_eq!(woken(&mut fixture), [slow]);
}

#[test]
fn the_end_wakes_who_took_everything() {
    let mut fixture = fixture(8);
    let (id, mut reader) = fixture.reader(ReaderOptions::default());
    fixture.write(3);
    fixture.distributor.step().unwrap();
    drain(&mut reader);
    reader.sleeper().arm();
    fixture.writer.close();
    while fixture.distributor.step().unwrap() {}
    fixture.distributor.finish();
    assert_eq!(woken(&mut fixture), [id]);
}

#[test]
fn who_sleeps_now_and_then_has_every_packet_watched() {
    let mut fixture = fixture(8);
    let (_, mut reader) = fixture.reader(ReaderOptions::default());
    let watching = |fixture: &Fixture| {
        let entry = fixture.distributor.readers[0].as_ref().unwrap();
        entry.control.hub().watching.load(Relaxed)
    };
    fixture.distributor.arm(Returns::WhenDry);
    assert_eq!(watching(&fixture), Level::Chunk as u32, "nobody sleeps");
    for _ in 0..5 {
        reader.sleeper().arm();
        fixture.distributor.arm(Returns::WhenDry);
        assert_eq!(watching(&fixture), Level::Packet as u32);
        // The source woke it, not the driver.
        reader.sleeper().disarm();
        fixture.write(1);
        fixture.distributor.step().unwrap();
        drain(&mut reader);
        fixture.distributor.arm(Returns::WhenDry);
        assert_eq!(watching(&fixture), Level::Packet as u32, "it slept lately");
    }
    fixture.distributor.arm(Returns::WhenDry);
    assert_eq!(watching(&fixture), Level::Chunk as u32, "it is busy now");
}

/// Doorbell of a driver or a reader.
#[derive(Default)]
struct Doorbell(AtomicBool);

impl Signal for Doorbell {
    fn signal(&self) {
        self.0.store(true, Relaxed);
    }
}

impl Doorbell {
    fn rang(&self) -> bool {
        self.0.swap(false, Relaxed)
    }
}

/// State of the driver or the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stand {
    Works,
    /// Announced that it is about to sleep.
    Armed,
    /// Driver only: woke the sleeping readers and checks once more.
    Woke,
    Sleeps,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Writer,
    Driver,
    Reader,
}

/// Writer, driver and reader, each executed step by step.
struct World {
    fixture: Fixture,
    driver_doorbell: Arc<Doorbell>,
    driver: Stand,
    reader: Reader,
    sleeper: Sleeper,
    reading: Stand,
    rung: bool,
    to_write: u64,
    written: u64,
    read: u64,
}

impl World {
    /// With `others`, many readers that do nothing: only a part of them is looked at in each step.
    fn new(per_chunk: u32, packets: u64, others: u32) -> Self {
        let driver_doorbell = Arc::new(Doorbell::default());
        let mut fixture = fixture_with(16, Arc::clone(&driver_doorbell) as Arc<dyn Signal>);
        fixture.writer.limit_packets(per_chunk);
        let (_, reader) = fixture.reader(ReaderOptions::default());
        let credit = Some(1);
        let options = ReaderOptions {
            credit,
            ..ReaderOptions::default()
        };
        let _others: Vec<_> = (0..others).map(|_| fixture.reader(options)).collect();
        fixture.distributor.signs.all_are_quiet_for_long();
        World {
            sleeper: reader.sleeper(),
            fixture,
            driver_doorbell,
            driver: Stand::Works,
            reader,
            reading: Stand::Works,
            rung: false,
            to_write: packets,
            written: 0,
            read: 0,
        }
    }

    /// Actors that can execute a step.
    fn ready(&self) -> Vec<Who> {
        let driver = self.driver != Stand::Sleeps || self.driver_doorbell.0.load(Relaxed);
        let reader = self.reading != Stand::Sleeps || self.rung;
        let all = [
            (Who::Writer, self.to_write > 0),
            (Who::Driver, driver),
            (Who::Reader, reader),
        ];
        let ready = all.into_iter().filter(|(_, ready)| *ready);
        ready.map(|(who, _)| who).collect()
    }

    fn go(&mut self, who: Who) {
        match who {
            Who::Writer => self.write(),
            Who::Driver => self.drive(),
            Who::Reader => self.read(),
        }
    }

    fn write(&mut self) {
        self.to_write -= 1;
        self.fixture.write(1);
        self.written += 1;
    }

    fn wake(&mut self) {
        let (mut rings, read_all) = (0, self.read == self.written);
        self.fixture.distributor.wake_sleepers(|_| rings += 1);
        self.rung |= rings > 0;
        assert!(rings == 0 || !read_all, "a ring for nothing");
    }

    /// Like the hub's thread, which does not wake readers that hear the source themselves.
    fn drive(&mut self) {
        self.driver = match self.driver {
            Stand::Sleeps => {
                self.driver_doorbell.rang();
                self.fixture.distributor.look_at_all();
                Stand::Works
            }
            Stand::Works | Stand::Woke if self.fixture.distributor.step().unwrap() => {
                self.wake();
                Stand::Works
            }
            Stand::Works => {
                self.fixture.distributor.arm(Returns::WhenDry);
                Stand::Armed
            }
            Stand::Armed => {
                self.wake();
                Stand::Woke
            }
            Stand::Woke => Stand::Sleeps,
        }
    }

    /// Like `Waiter`.
    fn read(&mut self) {
        let got = drain(&mut self.reader).0;
        self.read += got;
        self.reading = match self.reading {
            Stand::Sleeps => {
                self.rung = false;
                self.sleeper.disarm();
                Stand::Works
            }
            _ if got > 0 => {
                self.sleeper.disarm();
                Stand::Works
            }
            Stand::Works => {
                self.sleeper.arm();
                Stand::Armed
            }
            Stand::Armed | Stand::Woke => Stand::Sleeps,
        }
    }
}

/// Runs every order of steps with at most `most` interruptions in all; returns the number of orders.
fn every_order(per_chunk: u32, packets: u64, others: u32, most: u32) -> u64 {
    // For each step: the chosen actor, and the number of possible actors.
    let mut path: Vec<(usize, usize)> = Vec::new();
    let mut orders = 0;
    loop {
        let mut world = World::new(per_chunk, packets, others);
        let (mut last, mut interrupted) = (Who::Writer, 0);
        for at in 0.. {
            let mut ready = world.ready();
            if ready.is_empty() {
                break;
            }
            // The last actor continues unless it is interrupted.
            ready.sort_by_key(|who| *who != last);
            if ready[0] == last && interrupted == most {
                ready.truncate(1);
            }
            if at == path.len() {
                path.push((0, ready.len()));
            }
            let next = ready[path[at].0];
            interrupted += u32::from(ready[0] == last && next != last);
            last = next;
            world.go(next);
        }
        orders += 1;
        assert_eq!(world.read, packets, "asleep over a packet: {path:?}");
        while path.last().is_some_and(|(went, of)| went + 1 == *of) {
            path.pop();
        }
        match path.last_mut() {
            Some((went, _)) => *went += 1,
            None => return orders,
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "too many orders for an interpreter")]
fn nobody_sleeps_over_a_packet_nor_is_woken_for_nothing_whatever_the_order() {
    let orders = [
        every_order(10, 3, 0, 4),
        every_order(1, 3, 0, 4),
        every_order(10, 3, 40, 3),
        every_order(1, 3, 40, 3),
    ];
    println!("{orders:?} orders, packets in one chunk and in a chunk each, few and many readers");
    assert!(orders.iter().all(|orders| *orders > 20));
}
