// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receives packets from a subscription: at once, after a wait, or in a poll loop of the caller's.
//!
//! Invariants
//! - What a hub that died left in the pool is still received; then comes the error.
#![forbid(unsafe_code)]

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use ringtap_filter::Program;
use ringtap_ipc::event::has_left;
use ringtap_ipc::protocol::Snapshot;
use ringtap_ipc::subscription::{Subscription, Wanted, Watermark};
use ringtap_ipc::waiter::{Beside, Waited, Waiter};
use ringtap_pool::control::ControlError as RegionError;
use ringtap_pool::ids::LaneId;
use ringtap_pool::reader::{self, Reader, RecvError};
use ringtap_pool::source::Facts;
use ringtap_pool::wake::Signal;

use crate::control::{Control, ControlError};
use crate::judge::{Batch, Judge};
use crate::merge::{Merge, Order, Turn};
use crate::tally::Tally;

/// Why nothing can be received any more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The pool holds what cannot be.
    #[error(transparent)]
    Corrupt(#[from] RecvError),
    /// The reader's control region holds what cannot be.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The hub died or was stopped.
    #[error("the hub left: start it again, then this reader")]
    HubLeft,
    /// The system refused to wait.
    #[error("cannot wait for packets: {0}")]
    System(#[from] io::Error),
    /// The hub did not do what was asked.
    #[error(transparent)]
    Control(#[from] ControlError),
}

/// Shortest sleep while packets are gathered.
const LEAST_NAP: Duration = Duration::from_micros(250);

/// What [`Receiver::next`] found.
pub enum Next<'a> {
    /// Packets.
    Batch(Batch<'a>),
    /// Nothing now.
    Empty,
    /// Nothing, and nothing will come any more.
    Ended,
}

/// Which endpoint's turn it is; in an ordered merge also which lane's, and up to which time.
type Whose = (usize, Option<(LaneId, u64)>);

struct OpenEndpoint {
    facts: Facts,
    reader: Reader,
    judge: Judge,
    lanes_before: u32,
    ended: bool,
}

/// A reader at its subscription.
pub struct Receiver {
    endpoints: Vec<OpenEndpoint>,
    turn: usize,
    waiter: Waiter,
    control: Arc<dyn Control>,
    watermark: Watermark,
    /// Since when packets wait, but not enough of them.
    gathers_since: Option<Instant>,
    /// They were enough, and are being taken.
    flows: bool,
    merge: Option<Merge>,
    /// One source, no watermark, and no order that is counted: a glance may find packets.
    is_plain: bool,
    /// How long an earlier packet may still come.
    holds: Option<Duration>,
}

impl Receiver {
    /// Sits down.
    ///
    /// # Errors
    ///
    /// [`ReceiveError::Region`], [`ReceiveError::System`].
    pub fn new(
        subscription: Subscription,
        control: Arc<dyn Control>,
    ) -> Result<Self, ReceiveError> {
        let mut endpoints = Vec::with_capacity(subscription.endpoints.len());
        let mut lanes_before = 0;
        // A source's own signal comes with every packet.
        let wakes = match subscription.watermark.packets {
            0 | 1 => subscription
                .endpoints
                .iter()
                .filter_map(|i| i.wake.clone())
                .collect(),
            _ => Vec::new(),
        };
        for endpoint in subscription.endpoints {
            let hub: Arc<dyn Signal> = Arc::new(subscription.doorbell.clone());
            let lanes = endpoint.pool.geometry().lane_count;
            let policy = endpoint.facts.policy;
            endpoints.push(OpenEndpoint {
                reader: Reader::open(endpoint.pool, &endpoint.control, policy, hub)?,
                judge: Judge::new(&endpoint.wanted),
                facts: endpoint.facts,
                lanes_before,
                ended: false,
            });
            lanes_before += lanes;
        }
        let sleepers = endpoints
            .iter()
            .map(|endpoint| endpoint.reader.sleeper())
            .collect();
        let waiter = Waiter::new(sleepers, subscription.doorbell, wakes)?;
        if let Some(connection) = control.connection() {
            waiter.listen(Beside::HangUp(connection))?;
        }
        Ok(Receiver {
            waiter,
            turn: 0,
            watermark: subscription.watermark,
            gathers_since: None,
            flows: false,
            merge: None,
            is_plain: endpoints.len() == 1 && subscription.watermark.packets <= 1,
            holds: None,
            endpoints,
            control,
        })
    }

    /// What the sources are.
    pub fn facts(&self) -> impl Iterator<Item = &Facts> {
        self.endpoints.iter().map(|endpoint| &endpoint.facts)
    }

    /// The same, each with its lanes, counted over all sources.
    pub fn sources(&self) -> impl Iterator<Item = (&Facts, Range<u32>)> {
        self.endpoints.iter().map(|endpoint| {
            let lanes = endpoint.reader.pool().geometry().lane_count;
            (
                &endpoint.facts,
                endpoint.lanes_before..endpoint.lanes_before + lanes,
            )
        })
    }

    /// Lanes of all sources.
    pub fn lanes(&self) -> u32 {
        self.endpoints.last().map_or(0, |endpoint| {
            endpoint.lanes_before + endpoint.reader.pool().geometry().lane_count
        })
    }

    /// What may be asked of the hub, from any thread.
    pub fn control(&self) -> &Arc<dyn Control> {
        &self.control
    }

    /// The reader's account now, as the hub sees it.
    ///
    /// # Errors
    ///
    /// Every [`ControlError`].
    pub fn snapshot(&self) -> Result<Snapshot, ControlError> {
        self.control.snapshot()
    }

    /// Changes the filter: packets that are received after this returned match it.
    ///
    /// # Errors
    ///
    /// Every [`ControlError`]; the filter before is still in force then.
    pub fn set_filter(&mut self, filter: &Program) -> Result<(), ReceiveError> {
        let wanted = self.control.set_filter(filter)?;
        self.adopt(&wanted);
        Ok(())
    }

    /// Takes over the hub's answer when another thread set the filter by [`Control`].
    pub fn adopt(&mut self, wanted: &[Wanted]) {
        for (endpoint, wanted) in self.endpoints.iter_mut().zip(wanted) {
            endpoint.judge = Judge::new(wanted);
        }
    }

    /// What [`Receiver::next`] would take, if that can be told with one look at what is being
    /// read: the short way to packets after a wait, while caches are cold. If not, ask that.
    #[inline]
    pub fn glance(&mut self) -> Option<Batch<'_>> {
        let endpoint = self.endpoints.first_mut().filter(|_| self.is_plain)?;
        let inner = endpoint.reader.glance()?;
        self.waiter.found();
        Some(endpoint.judge.judged(inner, endpoint.lanes_before))
    }

    /// Takes all packets that are published in one chunk, sources and lanes by turns; never
    /// waits. What the last batch lent out goes back first. A reader with a watermark finds
    /// nothing until so many packets wait, or the first has waited for its time limit.
    ///
    /// # Errors
    ///
    /// [`ReceiveError::Corrupt`].
    #[expect(
        clippy::should_implement_trait,
        reason = "a lending iterator cannot be an Iterator"
    )]
    pub fn next(&mut self) -> Result<Next<'_>, ReceiveError> {
        let found = match self.merge.is_some() {
            true => self.in_turn()?,
            false => self.by_turns()?,
        };
        let Some((at, lane)) = found else {
            return Ok(if self.is_over() {
                Next::Ended
            } else {
                Next::Empty
            });
        };
        if self.still_gathers().is_some() {
            return Ok(Next::Empty);
        }
        self.waiter.found();
        let OpenEndpoint {
            reader,
            judge,
            lanes_before,
            ..
        } = &mut self.endpoints[at];
        let inner = match lane {
            Some((lane, until_ns)) => reader.next_of(lane, until_ns)?,
            None => match reader.next()? {
                reader::Next::Batch(batch) => Some(batch),
                reader::Next::Empty | reader::Next::Ended => None,
            },
        };
        let Some(inner) = inner else {
            return Ok(Next::Empty);
        };
        if let Some(merge) = &mut self.merge {
            merge.gave(
                inner
                    .packets()
                    .flatten()
                    .map(|packet| packet.slot().time_ns),
            );
        }
        Ok(Next::Batch(judge.judged(inner, *lanes_before)))
    }

    /// The next source by turns that has packets.
    fn by_turns(&mut self) -> Result<Option<Whose>, ReceiveError> {
        for _ in 0..self.endpoints.len() {
            let at = self.turn;
            self.turn = (self.turn + 1) % self.endpoints.len();
            let endpoint = &mut self.endpoints[at];
            if endpoint.ended {
                continue;
            }
            match endpoint.reader.waits()? {
                reader::Waits::Packets => return Ok(Some((at, None))),
                reader::Waits::Nothing => {}
                reader::Waits::Ended => endpoint.ended = true,
            }
        }
        Ok(None)
    }

    /// The source and lane with the earliest packet, and up to which time it is its turn.
    fn in_turn(&mut self) -> Result<Option<Whose>, ReceiveError> {
        let Some(merge) = &self.merge else {
            return Ok(None);
        };
        let readers = self
            .endpoints
            .iter_mut()
            .map(|endpoint| &mut endpoint.reader);
        let turn = merge.turn(readers, self.control.is_leaving())?;
        self.holds = None;
        match turn {
            Turn::Of(at, lane, until_ns) => return Ok(Some((at, Some((lane, until_ns))))),
            Turn::Hold(left) => self.holds = Some(left),
            Turn::Nothing => {}
            Turn::Ended => self
                .endpoints
                .iter_mut()
                .for_each(|endpoint| endpoint.ended = true),
        }
        Ok(None)
    }

    /// Gives packets of all lanes and sources in the order of their times from now on. A packet
    /// waits at most for `window` for earlier ones of lanes on which nothing waits. While a hub
    /// loads programs, because a reader comes or changes its filter, it hands out no chunks for
    /// a tenth of a second or more: a smaller window lets some come out late then.
    #[must_use]
    pub fn in_order(self, window: Duration) -> Self {
        Receiver {
            merge: Some(Merge::new(window)),
            is_plain: false,
            ..self
        }
    }

    /// Gives what is at hand in the order of the packets' times from now on: nothing is held back
    /// for that, and nothing counted.
    #[must_use]
    pub fn by_time(self) -> Self {
        Receiver {
            merge: Some(Merge::at_hand()),
            ..self
        }
    }

    /// How well the order was kept so far, if there is one.
    pub fn order(&self) -> Option<Order> {
        self.merge.as_ref()?.order
    }

    /// Lets a wait end also when this becomes readable, as long as it is open.
    ///
    /// # Errors
    ///
    /// [`ReceiveError::System`].
    pub fn listen(&self, other: BorrowedFd<'_>) -> Result<(), ReceiveError> {
        Ok(self.waiter.listen(Beside::Event(other))?)
    }

    /// Waits a little, at most until `deadline`; then look again.
    ///
    /// # Errors
    ///
    /// [`ReceiveError::HubLeft`], [`ReceiveError::System`].
    #[inline]
    pub fn wait(&mut self, deadline: Option<Instant>) -> Result<(), ReceiveError> {
        if !self.is_plain || self.holds.is_some() {
            let holds = self.holds.take();
            if let Some(left) = holds.or_else(|| self.still_gathers()) {
                return self.rest(left, deadline);
            }
        }
        match self.waiter.wait(deadline)? {
            Waited::Look => Ok(()),
            Waited::HungUp => self.hung_up(),
        }
    }

    /// Waits for packets that are to come with, or before, those that are there.
    #[cold]
    fn rest(&self, left: Duration, deadline: Option<Instant>) -> Result<(), ReceiveError> {
        let until = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let nap = (left / 4).max(LEAST_NAP).min(left);
        std::thread::sleep(until.map_or(nap, |until| until.min(nap)));
        self.require_hub()
    }

    /// What a hub that left had delivered is received first.
    #[cold]
    fn hung_up(&mut self) -> Result<(), ReceiveError> {
        match self.has_packets()? {
            true => Ok(()),
            false => Err(ReceiveError::HubLeft),
        }
    }

    /// How much longer packets are gathered, if some wait but not enough.
    fn still_gathers(&mut self) -> Option<Duration> {
        if self.watermark.packets <= 1 {
            return None;
        }
        let waiting: u64 = self
            .endpoints
            .iter()
            .map(|endpoint| endpoint.reader.waiting())
            .sum();
        if waiting == 0 {
            (self.gathers_since, self.flows) = (None, false);
            return None;
        }
        let since = *self.gathers_since.get_or_insert_with(Instant::now);
        let left = self.watermark.time_limit.saturating_sub(since.elapsed());
        let enough = waiting >= u64::from(self.watermark.packets) || left.is_zero();
        // What was gathered is then taken to the last packet.
        self.flows |= enough || self.is_over();
        (!self.flows).then_some(left)
    }

    /// As [`Receiver::next`], but waits for packets, at most for `timeout`.
    ///
    /// # Errors
    ///
    /// Every [`ReceiveError`].
    pub fn receive(&mut self, timeout: Option<Duration>) -> Result<Next<'_>, ReceiveError> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            let ready = match self.merge.is_some() {
                true => self.in_turn()?.is_some(),
                false => self.has_packets()?,
            };
            if (ready && self.still_gathers().is_none()) || self.is_over() {
                return self.next();
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(Next::Empty);
            }
            self.wait(deadline)?;
        }
    }

    /// Whether packets can be taken now.
    ///
    /// # Errors
    ///
    /// [`ReceiveError::Corrupt`].
    pub fn has_packets(&mut self) -> Result<bool, ReceiveError> {
        for endpoint in self.endpoints.iter_mut().filter(|endpoint| !endpoint.ended) {
            match endpoint.reader.waits()? {
                reader::Waits::Packets => return Ok(true),
                reader::Waits::Nothing => {}
                reader::Waits::Ended => endpoint.ended = true,
            }
        }
        Ok(false)
    }

    fn is_over(&self) -> bool {
        self.endpoints.iter().all(|endpoint| endpoint.ended) || self.control.is_leaving()
    }

    /// For a poll loop of the caller's: says that the reader sleeps, so that its descriptor
    /// ([`AsFd`]) becomes readable when packets come. Call [`Receiver::next`] until it is empty
    /// after this, then poll; packets that were published in the very moment of falling asleep
    /// may be told late, so poll for no longer than [`ringtap_pool::wake::FIRST_SLEEP`] the
    /// first time.
    pub fn announce_sleep(&mut self) {
        self.waiter.announce();
    }

    /// For the same: when to look again at the latest though nobody wakes the reader, because
    /// packets wait, but not enough of them, or not long enough.
    pub fn look_again_in(&mut self) -> Option<Duration> {
        self.holds.or_else(|| self.still_gathers())
    }

    /// Whether the hub is there.
    ///
    /// # Errors
    ///
    /// [`ReceiveError::HubLeft`].
    pub fn require_hub(&self) -> Result<(), ReceiveError> {
        match self.control.connection() {
            Some(connection) if has_left(connection) => Err(ReceiveError::HubLeft),
            _ => Ok(()),
        }
    }

    /// Tells those who watch the hub how far this reader came.
    pub fn tell(&self, tally: &Tally) {
        if let Some(endpoint) = self.endpoints.first() {
            let progress = endpoint.reader.progress();
            progress.delivered.store(tally.packets(), Relaxed);
            progress.filtered.store(tally.filtered(), Relaxed);
            progress.bytes.store(tally.bytes(), Relaxed);
        }
    }
}

impl AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waiter.as_fd()
    }
}
