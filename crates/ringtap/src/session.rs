// SPDX-License-Identifier: MIT OR Apache-2.0
//! One source and its readers in this process: a hub thread moves chunks, readers read in place.
//!
//! Invariants
//! - The hub thread owns the source and the distributor; readers and callers only send it orders.
//! - Nobody polls: the hub sleeps on the source's wake-up, a reader on its own event.
#![forbid(unsafe_code)]

mod hub;
mod receive;
mod waiter;

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow};
use ringtap_pool::distributor::{Distributor, ReaderOptions};
use ringtap_pool::ids::ReaderId;
use ringtap_pool::reader::Reader;
use ringtap_pool::source::{Counts, Facts, Source, SourceError};
use ringtap_pool::wake::Signal;
use ringtap_shared::event::Event;

pub(crate) use receive::{Consumer, Flow};
use waiter::Waiter;

/// What the hub thread is asked to do.
enum Order {
    Counts(Option<ReaderId>, Sender<Snapshot>),
    Stop,
    Leave,
}

/// Counters at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    /// The source's.
    pub(crate) source: Counts,
    /// What the reader that was asked for lost past its credit, per lane.
    pub(crate) slow_reader: Vec<u64>,
    /// Whether all this is final: the source has ended and every chunk is settled.
    pub(crate) ended: bool,
}

/// A running capture.
pub(crate) struct Session {
    facts: Facts,
    lanes: u32,
    orders: Sender<Order>,
    event: Event,
    hub: Option<JoinHandle<()>>,
    /// Locked, so that readers on threads of their own can share the session.
    failure: Mutex<Receiver<SourceError>>,
}

/// One reader of a session.
pub(crate) struct Attached {
    id: ReaderId,
    reader: Reader,
    waiter: Waiter,
}

impl Session {
    /// Runs a source, which has captured since it exists: each of these readers gets all of it.
    pub(crate) fn start(
        mut source: Box<dyn Source>,
        readers: &[ReaderOptions],
    ) -> Result<(Self, Vec<Attached>)> {
        let facts = source.facts().clone();
        let pool = source.pool();
        let lanes = pool.geometry().lane_count;
        let event = Event::new().context("cannot make an event")?;
        let mut distributor = Distributor::new(pool, source.take_lanes(), Arc::new(event.clone()));
        let attached = readers
            .iter()
            .map(|options| Attached::to(&mut distributor, options))
            .collect::<Result<Vec<_>>>()?;
        let events = attached
            .iter()
            .map(|one| (one.id, one.waiter.event()))
            .collect();
        let (orders, inbox) = mpsc::channel();
        let (failed, failure) = mpsc::channel();
        let hub = hub::Hub::new(source, distributor, inbox, (event.clone(), events), failed);
        let hub = std::thread::Builder::new()
            .name("hub".into())
            .spawn(move || hub.run())
            .context("cannot start the hub thread")?;
        let session = Session {
            facts,
            lanes,
            orders,
            event,
            hub: Some(hub),
            failure: Mutex::new(failure),
        };
        Ok((session, attached))
    }

    /// What the source is.
    pub(crate) fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Lanes of the source.
    pub(crate) fn lanes(&self) -> u32 {
        self.lanes
    }

    /// All counters now; final ones once the source has ended.
    pub(crate) fn snapshot(&self, reader: Option<ReaderId>) -> Result<Snapshot> {
        let (reply, answer) = mpsc::channel();
        self.order(Order::Counts(reader, reply));
        answer
            .recv()
            .map_err(|_| anyhow!("the capture thread is gone"))
    }

    /// What stops the source from another thread.
    pub(crate) fn stopper(&self) -> Stopper {
        Stopper {
            orders: self.orders.clone(),
            event: self.event.clone(),
        }
    }

    /// Says aloud what a user should know of the source: fall-backs and why.
    pub(crate) fn say_notes(&self) {
        for note in &self.facts.notes {
            eprintln!("ringtap: {note}");
        }
    }

    /// How the capture ended: why the source failed, if it did.
    pub(crate) fn outcome(&self) -> Result<()> {
        let failure = self.failure.lock();
        failure
            .unwrap_or_else(PoisonError::into_inner)
            .try_recv()
            .map_or(Ok(()), |error| Err(anyhow!(error)))
    }

    fn order(&self, order: Order) {
        order_to(&self.orders, &self.event, order);
    }
}

/// Stops a session from another thread.
#[derive(Clone)]
pub(crate) struct Stopper {
    orders: Sender<Order>,
    event: Event,
}

impl Stopper {
    /// Stops the source; readers then find the rest and the end.
    pub(crate) fn stop(&self) {
        order_to(&self.orders, &self.event, Order::Stop);
    }
}

fn order_to(orders: &Sender<Order>, event: &Event, order: Order) {
    // A hub that is gone takes no orders; whoever waits for an answer sees that.
    let _gone = orders.send(order);
    event.signal();
}

impl Attached {
    /// The reader's number.
    pub(crate) fn id(&self) -> ReaderId {
        self.id
    }

    fn to(distributor: &mut Distributor, options: &ReaderOptions) -> Result<Self> {
        let event = Event::new().context("cannot make an event")?;
        let (id, reader) = distributor.add_reader(options)?;
        Ok(Attached {
            id,
            waiter: Waiter::new(reader.sleeper(), event),
            reader,
        })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.order(Order::Leave);
        if let Some(hub) = self.hub.take() {
            let _panicked = hub.join();
        }
    }
}
