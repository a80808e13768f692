// SPDX-License-Identifier: MIT OR Apache-2.0
//! The relay's thread: reads in place, copies what passes, wakes its reader.
#![forbid(unsafe_code)]

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ringtap_filter::Place;
use ringtap_ipc::doorbell::{Doorbell, SocketDoorbell};
use ringtap_ipc::subscription::{Subscription, Wanted};
use ringtap_ipc::waiter::{Beside, Waiter};
use ringtap_pool::distributor::{Policy, Returns};
use ringtap_pool::ids::LaneId;
use ringtap_pool::number::to_u64;
use ringtap_pool::reader::{Batch, Next, Packet, Reader};
use ringtap_pool::wake::Signal;
use ringtap_pool::writer::PacketMeta;

use super::books::{Books, EndpointBook, LaneBook};
use super::output::{self, Private};
use super::{Common, lock};
use crate::group::Group;

/// One source's packets on their way into a private pool.
struct Pipe {
    reader: Reader,
    wanted: Wanted,
    /// Whether a packet waits for a place in the private pool.
    waits: bool,
    private: Private,
    book: EndpointBook,
    ended: bool,
}

/// The state of the relay's thread.
pub(super) struct Worker {
    pipes: Vec<Pipe>,
    waiter: Waiter,
    /// Wakes the reader of the private pools, and is rung by it.
    reader: SocketDoorbell,
    /// The reader's doorbell is gone.
    is_silent: bool,
}

impl Worker {
    pub(super) fn new(
        inner: Subscription,
        group: &Group,
    ) -> io::Result<(Self, Subscription, Books)> {
        let (reader, readers_doorbell) = SocketDoorbell::pair()?;
        let (mut pipes, mut endpoints) = (Vec::new(), Vec::new());
        let wakes = inner
            .endpoints
            .iter()
            .filter_map(|endpoint| endpoint.wake.clone());
        let wakes = wakes.collect();
        for endpoint in inner.endpoints {
            let (private, outer) = output::make(&endpoint, group.private_pool_bytes)?;
            let hub: Arc<dyn Signal> = inner.doorbell.clone();
            let policy = endpoint.facts.policy;
            let source = Reader::open(endpoint.pool, &endpoint.control, policy, hub);
            let source = source.map_err(io::Error::other)?;
            let start = |position: &u64| LaneBook {
                position: *position,
                ..LaneBook::default()
            };
            let book = EndpointBook {
                lanes: source.starts().iter().map(start).collect(),
                ended: false,
            };
            pipes.push(Pipe {
                reader: source,
                wanted: endpoint.wanted,
                waits: policy == Policy::Block,
                private,
                book,
                ended: false,
            });
            endpoints.push(outer);
        }
        let sleepers = pipes.iter().map(|pipe| pipe.reader.sleeper()).collect();
        let waiter = Waiter::new(sleepers, inner.doorbell, wakes)?;
        waiter.listen(Beside::Event(reader.fd()))?;
        let worker = Worker {
            waiter,
            reader,
            is_silent: false,
            pipes,
        };
        let books = worker.books();
        let subscription = Subscription {
            id: inner.id,
            endpoints,
            doorbell: Arc::new(readers_doorbell),
            watermark: inner.watermark,
        };
        Ok((worker, subscription, books))
    }

    /// Copies until it is told to stop.
    pub(super) fn run(mut self, common: &Common) {
        while !common.stop.load(Relaxed) {
            if let Some(wanted) = lock(&common.wanted).take() {
                self.take_filters(wanted);
            }
            let moved = self.step(common);
            *lock(&common.books) = self.books();
            if moved {
                self.waiter.found();
                continue;
            }
            for pipe in &mut self.pipes {
                pipe.private.distributor.arm(Returns::WhenDry);
            }
            if let Err(error) = self.waiter.wait(None) {
                tracing::error!("a relay cannot sleep: {error}");
                return;
            }
            self.hear_reader();
            self.wake_reader();
        }
    }

    /// Forgets what the reader's doorbell said; one that is gone is not listened to again.
    fn hear_reader(&mut self) {
        if !self.is_silent && self.reader.clear().is_err() {
            self.is_silent = true;
            if let Err(error) = self.waiter.ignore(self.reader.fd()) {
                tracing::error!("a relay cannot ignore a reader that left: {error}");
            }
        }
    }

    fn take_filters(&mut self, wanted: Vec<Wanted>) {
        for (pipe, wanted) in self.pipes.iter_mut().zip(wanted) {
            pipe.wanted = wanted;
        }
    }

    /// Copies one batch of each source; tells whether there was any.
    fn step(&mut self, common: &Common) -> bool {
        let mut moved = false;
        for pipe in &mut self.pipes {
            moved |= pipe.step(common);
        }
        if moved {
            self.wake_reader();
        }
        moved
    }

    fn wake_reader(&mut self) {
        for pipe in &mut self.pipes {
            let _moved = pipe.private.distributor.step();
            pipe.private
                .distributor
                .wake_sleepers(|_| self.reader.signal());
            if pipe.ended {
                self.reader.signal();
            }
        }
    }

    fn books(&self) -> Books {
        let mut books = Books::default();
        for pipe in &self.pipes {
            books.endpoints.push(pipe.book.clone());
            let Private {
                distributor,
                reader,
                writers,
            } = &pipe.private;
            if let Some(progress) = distributor.progress(*reader) {
                books.delivered += progress.delivered.load(Relaxed);
                books.filtered += progress.filtered.load(Relaxed);
                books.bytes += progress.bytes.load(Relaxed);
            }
            let lanes = (0..).map(LaneId).take(writers.len());
            books.held += lanes
                .map(|lane| distributor.held(*reader, lane))
                .sum::<u32>();
            books.corrupt |= distributor.is_corrupt(*reader);
        }
        books
    }
}

impl Pipe {
    fn step(&mut self, common: &Common) -> bool {
        let batch = match self.reader.try_next() {
            Ok(Next::Batch(batch)) => batch,
            Ok(Next::Empty) => return false,
            Ok(Next::Ended) => return self.private.end(&mut self.ended, &mut self.book),
            Err(error) => {
                tracing::error!("a relay lost its source: {error}");
                return self.private.end(&mut self.ended, &mut self.book);
            }
        };
        let lane = batch.lane();
        let book = &mut self.book.lanes[lane.index()];
        if let Some(gap) = batch.gap() {
            let others = gap.other_members;
            book.filtered += gap.sequences.saturating_sub(gap.packets + others);
            book.other_members += others;
            book.lost += gap.packets;
            self.private
                .distributor
                .charge(self.private.reader, lane, gap.packets);
        }
        let judge = Judge {
            wanted: &self.wanted,
            from: self.wanted.from.get(lane.index()).copied().unwrap_or(0),
        };
        copy(
            &batch,
            &judge,
            &mut self.private,
            book,
            self.waits.then_some(common),
        );
        true
    }
}

struct Judge<'a> {
    wanted: &'a Wanted,
    from: u64,
}

impl Judge<'_> {
    fn wants(&self, packet: &Packet<'_>) -> bool {
        if packet.slot().mask & self.wanted.mask == 0 {
            return false;
        }
        let judged = self.wanted.place == Place::Source && packet.sequence >= self.from;
        judged
            || self
                .wanted
                .filter
                .matches(packet.data, packet.slot().wire_length)
    }
}

/// Copies a batch; with `waits` until there is a place for every packet, or the relay is stopped.
fn copy(
    batch: &Batch,
    judge: &Judge<'_>,
    private: &mut Private,
    book: &mut LaneBook,
    waits: Option<&Common>,
) {
    let lane = batch.lane();
    let Wanted { mask, group, .. } = *judge.wanted;
    if batch.wanted() & mask == 0 {
        let packets = to_u64(batch.len());
        let all = batch.first_sequence()..batch.first_sequence() + packets;
        book.position = all.end;
        let (_, other_members) = batch.count_masks(all, mask, group);
        book.other_members += other_members;
        book.filtered += packets - other_members;
        return;
    }
    for packet in batch.packets().map_while(Result::ok) {
        book.position = packet.sequence + 1;
        if !judge.wants(&packet) {
            let bits = packet.slot().mask;
            match bits & mask == 0 && bits & group != 0 {
                true => book.other_members += 1,
                false => book.filtered += 1,
            }
            continue;
        }
        while let Some(common) = waits.filter(|_| !private.has_room(lane, packet.data.len())) {
            if common.stop.load(Relaxed) {
                return;
            }
        }
        if private.put(lane, &packet) {
            book.copied += 1;
        } else {
            book.lost += 1;
            book.full += 1;
            private.distributor.charge(private.reader, lane, 1);
        }
    }
    private.writers[lane.index()].publish();
}

impl Private {
    fn put(&mut self, lane: LaneId, packet: &Packet<'_>) -> bool {
        let slot = packet.slot();
        let meta = PacketMeta {
            time_ns: slot.time_ns,
            wire_length: slot.wire_length,
            flags: slot.flags,
            queue: slot.queue,
            hash: slot.hash(),
            ..PacketMeta::default()
        };
        let Some(writer) = self.writers.get_mut(lane.index()) else {
            return false;
        };
        if writer.stage(&meta, [packet.data]).is_ok() {
            return true;
        }
        // What came back meanwhile may be used at once.
        let _moved = self.distributor.step();
        writer.stage(&meta, [packet.data]).is_ok()
    }

    /// Whether a packet of this many bytes finds a place; takes back what the reader returned.
    fn has_room(&mut self, lane: LaneId, bytes: usize) -> bool {
        let writer = &mut self.writers[lane.index()];
        if writer.has_room(bytes) {
            return true;
        }
        writer.publish();
        let _moved = self.distributor.step();
        std::thread::sleep(std::time::Duration::from_micros(200));
        self.writers[lane.index()].has_room(bytes)
    }

    /// Nothing follows: tells the reader, once.
    fn end(&mut self, ended: &mut bool, book: &mut EndpointBook) -> bool {
        if *ended {
            return false;
        }
        *ended = true;
        self.writers.iter_mut().for_each(|writer| writer.close());
        while self.distributor.step().unwrap_or(false) {}
        self.distributor.finish();
        book.ended = true;
        true
    }
}
