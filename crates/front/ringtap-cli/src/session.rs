// SPDX-License-Identifier: MIT OR Apache-2.0
//! A reader at its subscription: at a hub within this process, or at one that runs already.
//!
//! Invariants
//! - `ringtap count -i eth0` and `ringtap count -i hub:ids` run the same code from here on.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use ringtap_client::{Batch, Connection, Control, ControlError, Next, Receiver, Tally};
use ringtap_filter::Program;
use ringtap_hub::{Group, Handle, Hub};
use ringtap_ipc::protocol::Snapshot;
use ringtap_ipc::subscription::{Subscription, SubscriptionId, SubscriptionRequest, Wanted};
use ringtap_pool::source::{Facts, Source};

use crate::print;

/// The one group of a hub that lives for one verb.
const ONLY_GROUP: &str = "local";

/// A running capture, as one verb sees it.
pub(crate) struct Session {
    /// Ends with the session, if it is ours.
    _hub: Option<Hub>,
    control: Arc<dyn Control>,
    facts: Facts,
}

/// A subscription at a hub in this process.
struct LocalSubscription {
    hub: Handle,
    subscription: SubscriptionId,
}

impl Session {
    /// Runs a source, which has captured since it exists, for one reader that gets all of it
    /// that passes the filter.
    pub(crate) fn of_source(
        source: Box<dyn Source>,
        name: &str,
        filter: Program,
    ) -> Result<(Self, Receiver)> {
        let request = SubscriptionRequest {
            filter,
            from_the_first: true,
            ..SubscriptionRequest::new(ONLY_GROUP, name)
        };
        let groups = vec![Group::new(ONLY_GROUP)];
        let (hub, mut answers) = Hub::start(vec![source], groups, None, vec![request])?;
        let subscription = answers.pop().context("the hub gave no subscription")??;
        let receiver = subscribe(hub.handle(), subscription)?;
        Ok((Session::new(Some(hub), &receiver), receiver))
    }

    /// Takes a subscription at a hub that runs already.
    pub(crate) fn of_hub(
        socket: &std::path::Path,
        request: &SubscriptionRequest,
    ) -> Result<(Self, Receiver)> {
        let (subscription, connection) = Connection::attach(socket, request)?;
        let receiver = Receiver::new(subscription, connection)?;
        let mut session = Session::new(None, &receiver);
        session.facts.device = format!("hub:{}", request.group);
        Ok((session, receiver))
    }

    fn new(hub: Option<Hub>, receiver: &Receiver) -> Self {
        Session {
            _hub: hub,
            control: Arc::clone(receiver.control()),
            facts: together(receiver),
        }
    }

    /// What the sources are, taken together.
    pub(crate) fn facts(&self) -> &Facts {
        &self.facts
    }

    /// What stops the capture from another thread.
    pub(crate) fn control(&self) -> &Arc<dyn Control> {
        &self.control
    }

    /// Says aloud what a user should know of the source: fall-backs and why.
    pub(crate) fn say_notes(&self) {
        print::notes(&self.facts.notes);
    }

    /// How the capture ended: why a source failed, if one did.
    pub(crate) fn outcome(&self) -> Result<()> {
        let sources = self.control.snapshot()?.sources;
        match sources.into_iter().find_map(|source| source.failure) {
            None => Ok(()),
            Some(failure) => Err(anyhow!(failure)),
        }
    }
}

/// The receiver at a subscription of a hub in this process.
pub(crate) fn subscribe(hub: &Handle, subscription: Subscription) -> Result<Receiver> {
    let control = Arc::new(LocalSubscription {
        hub: hub.clone(),
        subscription: subscription.id,
    });
    Ok(Receiver::new(subscription, control)?)
}

/// What several sources are as one; a hub's reader mostly has one.
pub(crate) fn together(receiver: &Receiver) -> Facts {
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

impl Control for LocalSubscription {
    fn snapshot(&self) -> Result<Snapshot, ControlError> {
        let snapshot = self.hub.snapshot(self.subscription);
        snapshot.ok_or_else(|| ControlError::Gone("the capture thread is gone".into()))
    }

    fn set_filter(&self, filter: &Program) -> Result<Vec<Wanted>, ControlError> {
        let changed = self.hub.set_filter(self.subscription, filter.clone());
        changed.map_err(|error| ControlError::Refused {
            code: error.code(),
            message: error.to_string(),
        })
    }

    fn stop(&self) {
        self.hub.stop();
    }
}

impl Drop for LocalSubscription {
    fn drop(&mut self) {
        self.hub.leave(self.subscription);
    }
}

/// Whether a reader goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// It wants more.
    Go,
    /// It has enough.
    Stop,
}

/// What a reader does with packets.
pub(crate) trait Consumer {
    /// Takes a batch.
    fn batch(&mut self, batch: &Batch) -> Result<Flow>;

    /// What it counted so far.
    fn tally(&self) -> &Tally;

    /// Is called when nothing is there to be read.
    fn idle(&mut self) -> Result<()> {
        Ok(())
    }

    /// Is called at even intervals, packets or not.
    fn tick(&mut self) -> Result<Flow>;
}

/// Hands everything to `consumer` until the capture ends or the consumer has enough.
///
/// Ticks that fall behind are left out, not made up for.
pub(crate) fn receive(
    receiver: &mut Receiver,
    interval: Duration,
    consumer: &mut impl Consumer,
) -> Result<()> {
    let mut due = Instant::now() + interval;
    loop {
        let found = match receiver.try_next()? {
            Next::Empty => {
                consumer.idle()?;
                receiver.next(Some(due.saturating_duration_since(Instant::now())))?
            }
            found => found,
        };
        match found {
            Next::Batch(batch) => {
                let flow = consumer.batch(&batch)?;
                receiver.publish_progress(consumer.tally());
                if flow == Flow::Stop {
                    return Ok(());
                }
            }
            Next::Empty => {}
            Next::Ended => return Ok(()),
        }
        let now = Instant::now();
        if now < due {
            continue;
        }
        if consumer.tick()? == Flow::Stop {
            return Ok(());
        }
        while due <= now {
            due += interval;
        }
    }
}
