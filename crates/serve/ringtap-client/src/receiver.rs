// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receives packets from a subscription.
//!
//! Invariants
//! - A reader receives all packets that a hub delivered before it died, and then the error.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use ringtap_filter::{LinkType, Program};
use ringtap_ipc::doorbell::ReaderDoorbell;
use ringtap_ipc::event::has_left;
use ringtap_ipc::protocol::Snapshot;
use ringtap_ipc::subscription::{Subscription, SubscriptionRequest, Wanted, Watermark};
use ringtap_pool::reader::{self, Reader, RecvError};
use ringtap_pool::source::Facts;
use ringtap_pool::view::Pool;
use ringtap_pool::wake::Signal;

use crate::classified::Batch;
use crate::connection::{ConnectError, Connection, common_link_type};
use crate::control::{Control, ControlError};
use crate::distance::Distance;
use crate::endpoint::OpenEndpoint;
use crate::merge::{Hold, Merge, Order, Turn};
use crate::new_memory;
pub use crate::receive_error::ReceiveError;
use crate::tally::Tally;
use crate::waiter::{Beside, WaitPlan, Waited, Waiter, cut};

/// Shortest sleep while packets gather up to the watermark.
const MIN_PAUSE: Duration = Duration::from_micros(250);

/// The result of [`Receiver::next`] and [`Receiver::try_next`].
pub enum Next {
    /// Packets of one chunk.
    Batch(Batch),
    /// No packet now.
    Empty,
    /// No packet now, and none will come.
    Ended,
}

/// The hub's doorbell. Readers and their batches hold it, and with it the subscription, so that
/// the hub does not recycle chunks whose packets are still being read.
struct HubSignal {
    doorbell: Arc<ReaderDoorbell>,
    _subscription: Arc<dyn Control>,
}

impl Signal for HubSignal {
    fn signal(&self) {
        self.doorbell.signal();
    }
}

/// Receives the packets of a subscription.
pub struct Receiver {
    endpoints: Vec<OpenEndpoint>,
    turn: usize,
    waiter: Waiter,
    distance: Distance,
    control: Arc<dyn Control>,
    watermark: Watermark,
    /// When the first waiting packet was seen, while fewer wait than the watermark.
    gathers_since: Option<Instant>,
    /// The watermark was reached; the reader takes packets until none waits.
    flows: bool,
    merge: Option<Merge>,
    /// The earliest waiting packet is held back for an earlier one.
    holds: Option<Hold>,
    /// Number of looks for packets since then.
    held_looks: u32,
    /// See [`Receiver::follow_horizons`].
    follows_horizons: bool,
    /// Wakes the hub.
    hub: Arc<dyn Signal>,
    /// The reader has noticed that the hub is gone.
    hub_left: bool,
}

impl Receiver {
    /// Opens the pools and control regions of a subscription.
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
        // A source's own signal comes with every packet, so a watermark excludes it.
        let wakes = match subscription.watermark.packets {
            0 | 1 => subscription
                .endpoints
                .iter()
                .filter_map(|i| i.wake.clone())
                .collect(),
            _ => Vec::new(),
        };
        let hub: Arc<dyn Signal> = Arc::new(HubSignal {
            doorbell: subscription.doorbell.clone(),
            _subscription: Arc::clone(&control),
        });
        for endpoint in subscription.endpoints {
            let hub = Arc::clone(&hub);
            let lanes = endpoint.pool.geometry().lane_count;
            let policy = endpoint.facts.policy;
            endpoints.push(OpenEndpoint {
                reader: Reader::open(endpoint.pool, &endpoint.control, policy, hub)?,
                wanted: Arc::new(endpoint.wanted),
                facts: endpoint.facts,
                lanes_before,
                horizon_ns: None,
                ended: false,
                memory_left: None,
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
        let distance = Duration::from_micros(subscription.watermark.distance_us.into());
        Ok(Receiver {
            distance: Distance::new(distance),
            waiter,
            turn: 0,
            watermark: subscription.watermark,
            gathers_since: None,
            flows: false,
            merge: None,
            holds: None,
            held_looks: 0,
            follows_horizons: false,
            hub,
            hub_left: false,
            endpoints,
            control,
        })
    }

    /// Subscribes to a group with a filter that `compile` makes for the link type of the sources.
    ///
    /// # Errors
    ///
    /// Every [`ConnectError`]; [`ReceiveError::Region`], [`ReceiveError::LinkTypes`]; those of
    /// `compile`.
    pub fn subscribe<E: From<ConnectError> + From<ReceiveError>>(
        socket: &Path,
        mut request: SubscriptionRequest,
        compile: impl Fn(LinkType) -> Result<Program, E>,
    ) -> Result<(Self, Arc<Connection>), E> {
        let connection = Arc::new(Connection::open(socket, &request.name)?);
        let link_type = connection.link_type();
        request.filter = compile(link_type.unwrap_or(LinkType::ETHERNET))?;
        if !request.filter.takes_everything() {
            link_type.ok_or(ReceiveError::LinkTypes)?;
        }
        let subscription = connection.subscribe(&request)?;
        let receiver = Receiver::new(subscription, Arc::clone(&connection) as _)?;
        Ok((receiver, connection))
    }

    /// Facts about each source.
    pub fn facts(&self) -> impl Iterator<Item = &Facts> {
        self.endpoints.iter().map(|endpoint| &endpoint.facts)
    }

    /// Facts about each source, and the range of its lanes, counted over all sources.
    pub fn sources(&self) -> impl Iterator<Item = (&Facts, Range<u32>)> {
        self.endpoints.iter().map(|endpoint| {
            let lanes = endpoint.reader.pool().geometry().lane_count;
            (
                &endpoint.facts,
                endpoint.lanes_before..endpoint.lanes_before + lanes,
            )
        })
    }

    /// The link type of all sources.
    ///
    /// # Errors
    ///
    /// [`ReceiveError::LinkTypes`].
    pub fn link_type(&self) -> Result<LinkType, ReceiveError> {
        let types = self.facts().map(|facts| facts.link_type);
        common_link_type(types).ok_or(ReceiveError::LinkTypes)
    }

    /// Sequence of the first packet that the reader may get, per lane of all sources.
    pub fn starts(&self) -> Vec<u64> {
        let endpoints = self.endpoints.iter();
        endpoints.flat_map(|one| one.reader.starts()).collect()
    }

    /// Number of lanes of all sources.
    pub fn lanes(&self) -> u32 {
        self.endpoints.last().map_or(0, |endpoint| {
            endpoint.lanes_before + endpoint.reader.pool().geometry().lane_count
        })
    }

    /// Commands that the reader may send to the hub, from any thread.
    pub fn control(&self) -> &Arc<dyn Control> {
        &self.control
    }

    /// The reader's counters now, as the hub sees them.
    ///
    /// # Errors
    ///
    /// Every [`ControlError`].
    pub fn snapshot(&self) -> Result<Snapshot, ControlError> {
        self.control.snapshot()
    }

    /// Changes the filter; packets received after this returns pass it.
    ///
    /// # Errors
    ///
    /// Every [`ControlError`]; the old filter stays in force then.
    pub fn set_filter(&mut self, filter: &Program) -> Result<(), ReceiveError> {
        let wanted = self.control.set_filter(filter)?;
        self.adopt(&wanted);
        Ok(())
    }

    /// Applies the hub's answer to a filter set through [`Control`].
    pub fn adopt(&mut self, wanted: &[Wanted]) {
        for (endpoint, wanted) in self.endpoints.iter_mut().zip(wanted) {
            endpoint.wanted = Arc::new(wanted.clone());
        }
    }

    /// Takes all published packets of one chunk, from sources and lanes in turn; never waits. With a
    /// watermark, finds none until that many packets wait or the time limit is over.
    ///
    /// # Errors
    ///
    /// [`ReceiveError::Corrupt`]; [`ReceiveError::HubLeft`] or `AgentLeft` once no packets are left.
    #[inline]
    pub fn try_next(&mut self) -> Result<Next, ReceiveError> {
        if self.watermark.packets > 1 && self.still_gathers()?.is_some() {
            return Ok(Next::Empty);
        }
        if self.distance.left().is_some() {
            return Ok(Next::Empty);
        }
        // After an agent's end its memory is used anew.
        let mut pools = self.endpoints.iter().map(|one| one.reader.pool());
        if self.hub_left && self.control.is_agent() && !pools.all(Pool::is_current) {
            return Err(self.left());
        }
        let mut batch = self.take_there()?;
        if batch.is_none() && self.map_new_memory()? {
            batch = self.take_there()?;
        }
        match batch {
            Some(batch) => {
                self.waiter.found();
                self.distance.took(batch.len(), batch.is_open());
                Ok(Next::Batch(batch))
            }
            None if self.is_over() => Ok(Next::Ended),
            None if self.hub_left && self.holds.is_none() => Err(self.left()),
            None => {
                self.distance.end();
                Ok(Next::Empty)
            }
        }
    }

    /// As [`Receiver::take`]; memory that was unplugged under the reader reads as zeros.
    #[inline]
    fn take_there(&mut self) -> Result<Option<Batch>, ReceiveError> {
        let taken = self.take();
        let is_there = || {
            self.endpoints
                .iter()
                .all(|one| one.reader.pool().is_current())
        };
        match taken {
            Err(ReceiveError::Corrupt(_)) if !is_there() => Err(RecvError::MemoryLost.into()),
            taken => taken,
        }
    }

    #[inline]
    fn take(&mut self) -> Result<Option<Batch>, ReceiveError> {
        if self.merge.is_some() {
            self.in_order_of_time()
        } else {
            self.in_turn()
        }
    }

    /// As [`Receiver::try_next`], but waits for packets, at most for `timeout` if given.
    ///
    /// # Errors
    ///
    /// Every [`ReceiveError`].
    pub fn next(&mut self, timeout: Option<Duration>) -> Result<Next, ReceiveError> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            match self.try_next()? {
                Next::Empty => {}
                found => return Ok(found),
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(Next::Empty);
            }
            self.wait(deadline)?;
        }
    }

    /// The hub, or the agent, is gone.
    fn left(&self) -> ReceiveError {
        if self.control.is_agent() {
            ReceiveError::AgentLeft
        } else {
            ReceiveError::HubLeft
        }
    }

    /// Maps the memory in which pools lie now; returns whether there was any.
    #[inline]
    fn map_new_memory(&mut self) -> Result<bool, ReceiveError> {
        let is_new =
            |one: &OpenEndpoint| new_memory::number(&one.reader, one.memory_left).is_some();
        if !self.endpoints.iter().any(is_new) {
            return Ok(false);
        }
        for (at, endpoint) in self.endpoints.iter_mut().enumerate() {
            match new_memory::map(
                &*self.control,
                at,
                &mut endpoint.reader,
                &mut endpoint.memory_left,
            ) {
                Err(ReceiveError::Control(error)) if error.is_gone() => return Err(self.left()),
                mapped => mapped?,
            }
        }
        Ok(true)
    }

    #[inline]
    fn in_turn(&mut self) -> Result<Option<Batch>, ReceiveError> {
        for _ in 0..self.endpoints.len() {
            let at = self.turn;
            self.turn += 1;
            if self.turn == self.endpoints.len() {
                self.turn = 0;
            }
            let endpoint = &mut self.endpoints[at];
            match endpoint.reader.try_next()? {
                reader::NextBatch::Batch(batch) => {
                    return Ok(Some(endpoint.batch(batch)));
                }
                reader::NextBatch::Empty if self.follows_horizons => {
                    if let Some(batch) = endpoint.look_up_to_horizon()? {
                        return Ok(Some(batch));
                    }
                }
                reader::NextBatch::Empty => {}
                reader::NextBatch::Ended => endpoint.ended = true,
            }
        }
        Ok(None)
    }

    /// Takes packets of the source and lane with the earliest waiting packet.
    fn in_order_of_time(&mut self) -> Result<Option<Batch>, ReceiveError> {
        let Some(merge) = &mut self.merge else {
            return Ok(None);
        };
        let endpoints = self.endpoints.iter_mut();
        let readers = endpoints.map(|endpoint| &mut endpoint.reader);
        let waits_for_none = self.hub_left || self.control.is_leaving();
        self.holds = None;
        match merge.turn(readers, waits_for_none)? {
            Turn::Of(at, lane, until_ns) => {
                self.held_looks = 0;
                let endpoint = &mut self.endpoints[at];
                let Some(batch) = endpoint.reader.try_next_of(lane, until_ns)? else {
                    return Ok(None);
                };
                merge.gave(
                    batch
                        .packets()
                        .flatten()
                        .map(|packet| packet.slot().time_ns),
                );
                return Ok(Some(endpoint.batch(batch)));
            }
            Turn::Hold(hold) => {
                self.holds = Some(hold);
                self.held_looks = self.held_looks.saturating_add(1);
                // The hub may sleep, and does not know that the reader waits for the horizon.
                if hold.has_horizon && self.held_looks > 2 {
                    self.hub.signal();
                }
            }
            Turn::Nothing => {}
            Turn::Ended => self.endpoints.iter_mut().for_each(|one| one.ended = true),
        }
        Ok(None)
    }

    /// Delivers packets of all lanes and sources in time-stamp order from now on.
    ///
    /// Holds a packet back until no lane can get an earlier one. A tap knows this about 50 µs after
    /// the packet, while packets come fast up to 1 ms after it. Other sources with several lanes do not
    /// know it; then, and when the hub is late, a packet waits for at most `window`. Packets that come
    /// later are delivered late and counted.
    #[must_use]
    pub fn in_order(self, window: Duration) -> Self {
        for endpoint in &self.endpoints {
            endpoint.reader.merge_by_time();
        }
        // The hub sets the first horizon.
        self.hub.signal();
        Receiver {
            merge: Some(Merge::new(window)),
            ..self
        }
    }

    /// Finds out from now on up to which time the packets of each source have been received. For a
    /// receiver that passes them on, in the order of each lane.
    pub fn follow_horizons(&mut self) {
        let endpoints = self.endpoints.iter();
        endpoints.for_each(|endpoint| endpoint.reader.merge_by_time());
        self.follows_horizons = true;
    }

    /// Time up to which every packet of a source has been received, in nanoseconds since 1970, or 0 if
    /// the source does not know it; `None` if the receiver has not found out since the last call.
    pub fn take_horizon_ns(&mut self, source: usize) -> Option<u64> {
        self.endpoints.get_mut(source)?.horizon_ns.take()
    }

    /// Whether every packet of a source has been received, and none will come.
    pub fn has_ended(&self, source: usize) -> bool {
        self.endpoints.get(source).is_some_and(|one| one.ended)
    }

    /// How well time-stamp order was kept, if the reader asked for it.
    pub fn order(&self) -> Option<Order> {
        Some(self.merge.as_ref()?.order)
    }

    /// Lets this descriptor end a wait, too, as long as it is open.
    ///
    /// # Errors
    ///
    /// [`ReceiveError::System`].
    pub fn listen(&self, other: BorrowedFd<'_>) -> Result<(), ReceiveError> {
        Ok(self.waiter.listen(Beside::Event(other))?)
    }

    /// Replaces the set of events that end a wait; after a fork, each process needs its own.
    pub(crate) fn renew_waits(&mut self) -> Result<(), ReceiveError> {
        self.waiter.renew()?;
        if let Some(connection) = self.control.connection() {
            self.waiter.listen(Beside::HangUp(connection))?;
        }
        Ok(())
    }

    /// Waits briefly, at most until `deadline`; look for packets after this.
    ///
    /// # Errors
    ///
    /// [`ReceiveError::System`].
    #[inline]
    pub fn wait(&mut self, deadline: Option<Instant>) -> Result<(), ReceiveError> {
        match self.plan(deadline)? {
            WaitPlan::Look => {}
            WaitPlan::Pause(time) => std::thread::sleep(time),
            WaitPlan::Sleep(timeout) => return self.sleep(timeout),
        }
        Ok(())
    }

    /// Decides how to wait next, at most until `deadline`.
    #[inline]
    pub(crate) fn plan(&mut self, deadline: Option<Instant>) -> Result<WaitPlan, ReceiveError> {
        let mut deadline = deadline;
        if let Some(left) = self.distance.left() {
            return Ok(WaitPlan::Pause(cut(left, deadline)));
        }
        if let Some(hold) = self.holds.take() {
            let held_until = Instant::now() + hold.look_again_in();
            deadline = Some(deadline.map_or(held_until, |deadline| deadline.min(held_until)));
        } else if self.watermark.packets > 1
            && let Some(left) = self.still_gathers()?
        {
            self.look_for_hub();
            let time = (left / 4).max(MIN_PAUSE).min(left);
            return Ok(WaitPlan::Pause(cut(time, deadline)));
        }
        Ok(self.waiter.plan(deadline))
    }

    /// Sleeps until something ends the sleep. After a sleep on [`Receiver::as_fd`]: takes its events,
    /// without time.
    pub(crate) fn sleep(&mut self, timeout: Option<Duration>) -> Result<(), ReceiveError> {
        self.hub_left |= self.waiter.sleep(timeout)? == Waited::HungUp;
        Ok(())
    }

    /// How much longer packets gather, if fewer wait than the watermark.
    fn still_gathers(&mut self) -> Result<Option<Duration>, ReceiveError> {
        if self.watermark.packets <= 1 {
            return Ok(None);
        }
        let mut waiting: u64 = 0;
        for endpoint in &mut self.endpoints {
            waiting = waiting.saturating_add(endpoint.reader.waiting()?);
        }
        if waiting == 0 {
            (self.gathers_since, self.flows) = (None, false);
            return Ok(None);
        }
        let since = *self.gathers_since.get_or_insert_with(Instant::now);
        let limit = Duration::from_millis(self.watermark.time_limit_ms.into());
        let left = limit.saturating_sub(since.elapsed());
        let enough = waiting >= u64::from(self.watermark.packets) || left.is_zero();
        // From here on the reader takes packets until none waits.
        self.flows |= enough || self.hub_left || self.is_over();
        Ok((!self.flows).then_some(left))
    }

    fn is_over(&self) -> bool {
        self.endpoints.iter().all(|endpoint| endpoint.ended) || self.control.is_leaving()
    }

    /// Descriptor that becomes readable when packets come after [`Receiver::announce_sleep`].
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.waiter.as_fd()
    }

    /// Announces that the reader sleeps, so that its descriptor becomes readable when packets come.
    /// After this, call [`Receiver::try_next`] until it is empty, then poll. Packets published during
    /// the announcement may be signalled late: limit the first poll to
    /// [`ringtap_pool::wake::FIRST_SLEEP`].
    pub(crate) fn announce_sleep(&mut self) {
        self.distance.end();
        self.waiter.announce();
    }

    /// Longest time that a poll loop may wait, because the waiting packets are too few or too new.
    pub(crate) fn look_again_in(&mut self) -> Result<Option<Duration>, ReceiveError> {
        match self.holds {
            Some(hold) => Ok(Some(hold.look_again_in())),
            None => self.still_gathers(),
        }
    }

    /// Checks whether the hub is gone; returns whether that is new.
    pub(crate) fn look_for_hub(&mut self) -> bool {
        let known = self.hub_left;
        self.hub_left = known || self.control.connection().is_some_and(has_left);
        self.hub_left != known
    }

    /// Publishes the counters of the packets that the reader has read, for `status` and `top`. The hub adds
    /// those that it did not deliver.
    pub fn publish_progress(&self, tally: &Tally) {
        if let Some(endpoint) = self.endpoints.first() {
            let progress = endpoint.reader.progress();
            let (filtered, other_members) = tally.left_out();
            let filtered = tally.filtered().saturating_sub(filtered);
            let other_members = tally.other_members().saturating_sub(other_members);
            progress.delivered.store(tally.packets(), Relaxed);
            progress.filtered.store(filtered, Relaxed);
            progress.other_members.store(other_members, Relaxed);
            progress.bytes.store(tally.bytes(), Relaxed);
        }
    }
}
