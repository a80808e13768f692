// SPDX-License-Identifier: MIT OR Apache-2.0
//! A running capture: one reader, its filter and its counters.
//!
//! Invariants
//! - Captures of a device and of a hub's group run the same code once they are open.

use std::sync::Arc;
use std::time::Duration;

use ringtap_client::{
    AwaitedAnswer, Batch, Control, ControlError, Cursor, Next, Order, Receiver, Tally,
};
use ringtap_filter::Program;
use ringtap_hub::server::Server;
use ringtap_hub::{Handle, Hub};
use ringtap_ipc::protocol::{Reply, Request, Snapshot};
use ringtap_ipc::subscription::{Subscription, SubscriptionId, Wanted};
use ringtap_pool::counters::Counters;
use ringtap_pool::ids::LaneId;
use ringtap_pool::number::to_u32;
use ringtap_pool::source::Facts;

use crate::{Counted, Error, compile};

/// A running capture. Dropping it ends the capture; kept batches stay readable.
pub struct Capture {
    pub(crate) receiver: Receiver,
    pub(crate) tally: Tally,
    pub(crate) facts: Facts,
    /// Packets that were delivered but that the program failed to write, and their bytes on the wire.
    not_written: (u64, u64),
    /// The capture's own hub, which ends after the receivers.
    pub(crate) _hub: Option<Arc<OwnHub>>,
}

/// Keeps the source of a [`Cursor`] running; of a group of a hub nothing. Drop the cursor first.
pub struct CaptureHub(
    #[expect(dead_code, reason = "kept until it is dropped")] Option<Arc<OwnHub>>,
);

/// A hub that runs for one capture, and its server for other processes, which ends first.
pub(crate) struct OwnHub {
    pub(crate) _server: Option<Server>,
    pub(crate) hub: Hub,
}

/// The counters of a capture and of its lanes.
#[derive(Clone, Debug)]
pub struct AllCounters {
    /// Sum over all lanes, plus losses before any lane.
    pub total: Counters,
    /// The counters of each source, including losses before any lane; empty once the hub has left.
    pub sources: Vec<Counters>,
    /// The counters of each lane; empty once the hub has left.
    pub lanes: Vec<(LaneId, Counters)>,
    /// The hub has left, so losses before the reader are unknown and missing in `total`.
    pub hub_left: bool,
}

impl Capture {
    /// A capture over a receiver that the program made itself.
    pub fn new(receiver: Receiver) -> Self {
        Capture {
            tally: Tally::new(receiver.lanes()),
            facts: joined_facts(&receiver),
            not_written: (0, 0),
            receiver,
            _hub: None,
        }
    }

    /// A capture over a subscription at a hub in this process.
    ///
    /// # Errors
    ///
    /// [`Error::Receive`].
    pub fn at_hub(hub: &Handle, subscription: Subscription) -> Result<Self, Error> {
        let control = Arc::new(LocalControl {
            hub: hub.clone(),
            subscription: subscription.id,
        });
        Ok(Capture::new(Receiver::new(subscription, control)?))
    }

    /// A cursor over the capture, for programs that take packets one by one and keep no batches.
    ///
    /// # Examples
    ///
    /// ```
    /// use ringtap::Look;
    ///
    /// let (mut cursor, _hub) = ringtap::open("sim:max?burst=10")?.into_cursor();
    /// let mut packets = 0;
    /// while cursor.look(ringtap::Deadline::Never)? == Look::Packets {
    ///     while cursor.take_one().is_some() {
    ///         packets += 1;
    ///     }
    /// }
    /// assert_eq!(packets, 10);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn into_cursor(self) -> (Cursor, CaptureHub) {
        (Cursor::new(self.receiver), CaptureHub(self._hub))
    }

    pub(crate) fn in_order(self, window: Duration) -> Self {
        let receiver = self.receiver.in_order(window);
        Capture { receiver, ..self }
    }

    /// Takes the next batch; waits for it, at most for `timeout` if given.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// let mut capture = ringtap::open("eth0")?;
    /// match capture.next(Some(Duration::from_secs(1)))? {
    ///     ringtap::Next::Batch(batch) => println!("{} packets", capture.packets(&batch).count()),
    ///     ringtap::Next::Empty => println!("no packet for a second"),
    ///     ringtap::Next::Ended => println!("{:?}", capture.outcome()),
    /// }
    /// # Ok::<(), ringtap::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Receive`].
    #[inline]
    pub fn next(&mut self, timeout: Option<Duration>) -> Result<Next, Error> {
        Ok(self.receiver.next(timeout)?)
    }

    /// Takes the next batch if there is one; never waits.
    ///
    /// # Examples
    ///
    /// ```
    /// let mut capture = ringtap::open("sim:max?burst=10")?;
    /// while !matches!(capture.try_next()?, ringtap::Next::Ended) {
    ///     std::thread::yield_now();
    /// }
    /// # Ok::<(), ringtap::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Receive`].
    #[inline]
    pub fn try_next(&mut self) -> Result<Next, Error> {
        Ok(self.receiver.try_next()?)
    }

    /// The packets of a batch that pass the filter. The iterator counts each packet as delivered, so
    /// call this once for each batch.
    ///
    /// # Examples
    ///
    /// ```
    /// let mut capture = ringtap::open("sim:max?burst=10")?;
    /// while let ringtap::Next::Batch(batch) = capture.next(None)? {
    ///     for packet in capture.packets(&batch) {
    ///         let packet = packet?;
    ///         println!("{} {:02x?}", packet.slot().time_ns, packet.data);
    ///     }
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn packets<'a>(&'a mut self, batch: &'a Batch) -> Counted<'a> {
        Counted::new(self, batch)
    }

    /// Facts about the source; for several sources, their facts joined.
    ///
    /// # Examples
    ///
    /// ```
    /// let capture = ringtap::open("sim:max?burst=10")?;
    /// let facts = capture.facts();
    /// println!("{}: {} bytes of a packet at most", facts.device, facts.snap_length);
    /// # Ok::<(), ringtap::Error>(())
    /// ```
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Facts about each source; a hub may have several.
    pub fn sources(&self) -> impl Iterator<Item = &Facts> {
        self.receiver.facts()
    }

    /// Number of the source that a lane belongs to, in the order of [`Capture::sources`].
    pub fn source_of(&self, lane: LaneId) -> u32 {
        let ends = self.receiver.sources().map(|(_, lanes)| lanes.end);
        to_u32(ends.take_while(|end| lane.0 >= *end).count())
    }

    /// Notes for the user about the source: fall-backs and their reasons.
    pub fn notes(&self) -> &[String] {
        &self.facts.notes
    }

    /// Number of lanes of all sources.
    pub fn lanes(&self) -> u32 {
        self.receiver.lanes()
    }

    /// Number of packets delivered so far.
    pub fn delivered(&self) -> u64 {
        self.tally.packets()
    }

    /// How well time-stamp order was kept, if the program asked for it.
    pub fn order(&self) -> Option<Order> {
        self.receiver.order()
    }

    /// Commands for use by another thread, for example to stop the capture.
    ///
    /// # Examples
    ///
    /// ```
    /// let mut capture = ringtap::open("sim:1kpps")?;
    /// let control = capture.control().clone();
    /// let stopping = std::thread::spawn(move || control.stop());
    /// while !matches!(capture.next(None)?, ringtap::Next::Ended) {}
    /// assert!(stopping.join().is_ok());
    /// # Ok::<(), ringtap::Error>(())
    /// ```
    pub fn control(&self) -> &Arc<dyn Control> {
        self.receiver.control()
    }

    /// The hub's counters for this reader, per source and lane.
    ///
    /// # Examples
    ///
    /// ```
    /// let capture = ringtap::open("sim:max?burst=10&queues=2")?;
    /// assert_eq!(capture.snapshot()?.sources[0].lanes.len(), 2);
    /// # Ok::<(), ringtap::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Control`].
    pub fn snapshot(&self) -> Result<Snapshot, Error> {
        Ok(self.receiver.snapshot()?)
    }

    /// The counters now.
    ///
    /// # Examples
    ///
    /// ```
    /// let mut capture = ringtap::open("sim:max?burst=10")?;
    /// while let ringtap::Next::Batch(batch) = capture.next(None)? {
    ///     capture.packets(&batch).for_each(drop);
    /// }
    /// let counters = capture.counters()?;
    /// assert_eq!((counters.offered, counters.delivered), (10, 10));
    /// # Ok::<(), ringtap::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Control`].
    pub fn counters(&self) -> Result<Counters, Error> {
        Ok(self.all_counters()?.total)
    }

    /// The counters now, with those of each lane.
    ///
    /// # Examples
    ///
    /// ```
    /// let capture = ringtap::open("sim:max?burst=10&queues=2")?;
    /// assert_eq!(capture.all_counters()?.lanes.len(), 2);
    /// # Ok::<(), ringtap::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Control`].
    pub fn all_counters(&self) -> Result<AllCounters, Error> {
        let snapshot = match self.receiver.snapshot() {
            Ok(snapshot) => Some(snapshot),
            Err(ControlError::Late { .. }) => None,
            Err(error) if error.is_gone() => None,
            Err(refused) => return Err(refused.into()),
        };
        let (mut total, sources, lanes) = match &snapshot {
            Some(snapshot) => (
                self.tally.total(snapshot),
                self.tally.sources(snapshot),
                self.tally.lanes(snapshot),
            ),
            None => (self.tally.alone(), Vec::new(), Vec::new()),
        };
        let (packets, bytes) = self.not_written;
        total.delivered = total.delivered.saturating_sub(packets);
        total.bytes = total.bytes.saturating_sub(bytes);
        total.dropped.not_written = total.dropped.not_written.saturating_add(packets);
        Ok(AllCounters {
            total,
            sources,
            lanes,
            hub_left: snapshot.is_none(),
        })
    }

    /// Corrects the counters of a program that failed to write: only this many packets, with these
    /// bytes on the wire, count as delivered, the others as not written. Returns the number of the
    /// others. The counters of single lanes do not change.
    pub fn keep_written(&mut self, packets: u64, wire_bytes: u64) -> u64 {
        let lost = self.tally.packets().saturating_sub(packets);
        self.not_written = (lost, self.tally.bytes().saturating_sub(wire_bytes));
        lost
    }

    /// Changes the filter while packets arrive. Every batch taken from now on passes the new filter.
    ///
    /// # Examples
    ///
    /// ```
    /// let mut capture = ringtap::open("sim:max?burst=10")?;
    /// capture.set_filter("ip6")?;
    /// while let ringtap::Next::Batch(batch) = capture.next(None)? {
    ///     assert_eq!(capture.packets(&batch).count(), 0);
    /// }
    /// # Ok::<(), ringtap::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Filter`], [`Error::Receive`]; the old filter stays in force then.
    pub fn set_filter(&mut self, filter: &str) -> Result<(), Error> {
        self.receiver.link_type()?;
        let filter = compile(filter, &self.facts)?;
        Ok(self.receiver.set_filter(&filter)?)
    }

    /// Fails if the source failed.
    ///
    /// # Examples
    ///
    /// ```
    /// let mut capture = ringtap::open("sim:max?burst=10")?;
    /// while !matches!(capture.next(None)?, ringtap::Next::Ended) {}
    /// capture.outcome()?;
    /// # Ok::<(), ringtap::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::SourceFailed`] or [`Error::InterfaceRemoved`], with the reason.
    pub fn outcome(&self) -> Result<(), Error> {
        let sources = self.receiver.snapshot()?.sources;
        for source in sources {
            if let Some(failure) = source.failure {
                return Err(Error::from_source(failure, source.is_removed));
            }
        }
        Ok(())
    }

    /// Ends the capture and returns the final counters.
    ///
    /// # Examples
    ///
    /// ```
    /// let capture = ringtap::open("sim:max?burst=10")?;
    /// println!("{}", capture.close()?.balance());
    /// # Ok::<(), ringtap::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Control`].
    pub fn close(self) -> Result<Counters, Error> {
        self.counters()
    }
}

/// Joins the facts of all sources; mostly there is one.
fn joined_facts(receiver: &Receiver) -> Facts {
    let mut all = receiver.facts().cloned();
    let mut facts = all.next().unwrap_or_default();
    for more in all {
        facts.device = format!("{},{}", facts.device, more.device);
        facts.interface = None;
        facts.snap_length = facts.snap_length.max(more.snap_length);
        facts.notes.extend(more.notes);
    }
    facts
}

/// Sends commands to a hub in this process.
struct LocalControl {
    hub: Handle,
    subscription: SubscriptionId,
}

impl Control for LocalControl {
    fn snapshot(&self) -> Result<Snapshot, ControlError> {
        self.ask_snapshot()()
    }

    fn ask_snapshot(&self) -> AwaitedAnswer<'_, Snapshot> {
        let answer = self.hub.ask_snapshot(self.subscription);
        Box::new(|| {
            answer().ok_or_else(|| ControlError::Gone("the capture thread has ended".into()))
        })
    }

    fn set_filter(&self, filter: &Program) -> Result<Vec<Wanted>, ControlError> {
        Ok(self.hub.set_filter(self.subscription, filter.clone())?)
    }

    fn flow_request(&self, request: Request) -> Result<Reply, ControlError> {
        Ok(self.hub.flow_request(self.subscription, request)?)
    }

    fn stop(&self) {
        self.hub.stop();
    }
}

impl Drop for LocalControl {
    fn drop(&mut self) {
        self.hub.leave(self.subscription);
    }
}
