// SPDX-License-Identifier: MIT OR Apache-2.0
//! The handle of a hub: what its owner and its server ask of the hub's thread.
#![forbid(unsafe_code)]

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;

use ringtap_filter::Program;
use ringtap_ipc::event::Event;
use ringtap_ipc::peer::Peer;
use ringtap_ipc::protocol::{HubStatus, Refusal, Snapshot};
use ringtap_ipc::subscription::{Subscription, Wanted, Watermark};
use ringtap_pool::distributor::AddReaderError;
use ringtap_pool::source::Source;
use ringtap_pool::wake::Signal;

use crate::engine::Engine;
use crate::group::{Congestion, Group};
pub use crate::membership::SubscriptionId;

/// A running hub; it ends when this is dropped.
pub struct Hub {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

/// What may be asked of a hub, from any thread.
#[derive(Clone)]
pub struct Handle {
    orders: Sender<Order>,
    event: Event,
}

/// What the hub's thread is asked to do.
pub(crate) enum Order {
    Attach(Box<Ask>, Sender<Result<Taken, AttachError>>),
    Filter(
        SubscriptionId,
        Program,
        Sender<Result<Vec<Wanted>, AttachError>>,
    ),
    Credit(SubscriptionId, u32, Sender<Result<(), AttachError>>),
    Leave(SubscriptionId),
    Snapshot(SubscriptionId, Sender<Option<Snapshot>>),
    Status(Sender<HubStatus>),
    WhenOver(Sender<()>),
    Stop,
    Quit,
}

/// A request for a subscription.
#[derive(Clone, Debug)]
pub struct Ask {
    /// The group.
    pub group: String,
    /// What the reader calls itself.
    pub name: String,
    /// Who it is.
    pub peer: Peer,
    /// Its own filter.
    pub filter: Program,
    /// Chunks of a lane that it may hold; the group's number if absent.
    pub credit_chunks: Option<u32>,
    /// When it wants to be woken.
    pub watermark: Watermark,
    /// It wants a pool of its own.
    pub private: bool,
    /// It wants what was captured since the source began; else from now on.
    pub from_the_first: bool,
}

/// A subscription that was taken.
pub struct Taken {
    /// Its number.
    pub id: SubscriptionId,
    /// For a reader in this process.
    pub subscription: Subscription,
    /// For a reader in another one: pool and control region of each endpoint.
    pub files: Vec<EndpointFiles>,
}

/// The descriptors of one endpoint.
pub struct EndpointFiles {
    /// The pool; absent if it cannot be mapped elsewhere.
    pub pool: Option<OwnedFd>,
    /// The control region.
    pub control: OwnedFd,
    /// Where the source itself wakes sleepers.
    pub wake: Option<Arc<OwnedFd>>,
}

/// Why a hub cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// A group's name is used twice, or is none.
    #[error("group \"{0}\": every group needs a name of its own, of letters, digits, - and _")]
    GroupName(String),
    /// The system refused an event or a thread.
    #[error("cannot start the hub: {0}")]
    System(#[from] io::Error),
}

/// Why something that a reader asked was not done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// No such group.
    #[error("there is no group \"{group}\" here; the groups are: {known}")]
    NoGroup {
        /// What was asked for.
        group: String,
        /// What there is.
        known: String,
    },
    /// The user may not.
    #[error("user {uid} may not attach to group \"{group}\": add it to the group's users")]
    NotAllowed {
        /// The group.
        group: String,
        /// Who asked.
        uid: u32,
    },
    /// More than is allowed.
    #[error("{what}: {asked} is more than the {allowed} that group \"{group}\" allows")]
    TooMuch {
        /// What of.
        what: &'static str,
        /// The group.
        group: String,
        /// What was asked for.
        asked: u64,
        /// What is allowed.
        allowed: u64,
    },
    /// The filter cannot be combined with the group's.
    #[error("the filter is too long together with that of group \"{0}\"")]
    Filter(String),
    /// A source refused the rules.
    #[error("{device}: {reason}")]
    Source {
        /// The source.
        device: String,
        /// What it said.
        reason: String,
    },
    /// No place at a pool.
    #[error(transparent)]
    Place(#[from] AddReaderError),
    /// No such subscription.
    #[error("this reader has no subscription")]
    NotSubscribed,
    /// The system refused memory or a descriptor.
    #[error("the hub lacks memory or descriptors: {0}")]
    System(#[from] io::Error),
    /// The hub is ending.
    #[error("the hub is ending")]
    Ending,
}

impl AttachError {
    /// Its code in the protocol.
    pub fn code(&self) -> Refusal {
        match self {
            AttachError::NoGroup { .. } => Refusal::NoGroup,
            AttachError::NotAllowed { .. } => Refusal::NotAllowed,
            AttachError::TooMuch { .. } | AttachError::Place(_) => Refusal::TooMuch,
            AttachError::Filter(_) => Refusal::BadFilter,
            AttachError::NotSubscribed => Refusal::BadRequest,
            _ => Refusal::Failed,
        }
    }
}

impl Ask {
    /// A request of this process for everything that a group gives.
    pub fn new(group: impl Into<String>, name: impl Into<String>) -> Self {
        Ask {
            group: group.into(),
            name: name.into(),
            peer: Peer::this_process(),
            filter: Program::everything(),
            credit_chunks: None,
            watermark: Watermark::default(),
            private: false,
            from_the_first: false,
        }
    }
}

impl Hub {
    /// Starts a hub on sources that capture already; these asks are served before any packet is
    /// moved, so that they may be for what was captured from the first packet on.
    ///
    /// # Errors
    ///
    /// Every [`HubError`], and the [`AttachError`]s of the asks.
    pub fn start(
        sources: Vec<Box<dyn Source>>,
        groups: Vec<Group>,
        congestion: Option<Congestion>,
        asks: Vec<Ask>,
    ) -> Result<(Self, Vec<Result<Taken, AttachError>>), HubError> {
        check_names(&groups)?;
        let event = Event::new()?;
        let (orders, inbox) = mpsc::channel();
        let mut engine = Engine::new(sources, groups, congestion, inbox, event.clone());
        let taken = asks.into_iter().map(|ask| engine.attach(&ask)).collect();
        let thread = std::thread::Builder::new()
            .name("hub".into())
            .spawn(move || engine.run())?;
        let hub = Hub {
            handle: Handle { orders, event },
            thread: Some(thread),
        };
        Ok((hub, taken))
    }

    /// What may be asked of it.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }
}

fn check_names(groups: &[Group]) -> Result<(), HubError> {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    for (at, group) in groups.iter().enumerate() {
        let again = groups[..at].iter().any(|other| other.name == group.name);
        if again || group.name.is_empty() || !group.name.chars().all(good) {
            return Err(HubError::GroupName(group.name.clone()));
        }
    }
    Ok(())
}

impl Handle {
    /// Takes a subscription.
    ///
    /// # Errors
    ///
    /// Every [`AttachError`].
    pub fn attach(&self, ask: Ask) -> Result<Taken, AttachError> {
        self.ask(|reply| Order::Attach(Box::new(ask), reply))?
    }

    /// Changes a subscription's own filter; tells where it runs and from which packets on.
    ///
    /// # Errors
    ///
    /// Every [`AttachError`]; the filter before is still in force then.
    pub fn set_filter(
        &self,
        subscription: SubscriptionId,
        filter: Program,
    ) -> Result<Vec<Wanted>, AttachError> {
        self.ask(|reply| Order::Filter(subscription, filter, reply))?
    }

    /// Changes how many chunks of a lane a subscription may hold.
    ///
    /// # Errors
    ///
    /// [`AttachError::TooMuch`], [`AttachError::NotSubscribed`].
    pub fn set_credit(&self, subscription: SubscriptionId, chunks: u32) -> Result<(), AttachError> {
        self.ask(|reply| Order::Credit(subscription, chunks, reply))?
    }

    /// Gives a subscription back, and all that it holds.
    pub fn leave(&self, subscription: SubscriptionId) {
        self.order(Order::Leave(subscription));
    }

    /// A subscription's account now; final once the source has ended. `None` if there is no such subscription.
    pub fn snapshot(&self, subscription: SubscriptionId) -> Option<Snapshot> {
        self.ask(|reply| Order::Snapshot(subscription, reply))
            .ok()?
    }

    /// Everybody's counters; `None` if the hub has ended.
    pub fn status(&self) -> Option<HubStatus> {
        self.ask(Order::Status).ok()
    }

    /// Tells `over` once every source has ended and no reader is left.
    pub fn when_over(&self, over: Sender<()>) {
        self.order(Order::WhenOver(over));
    }

    /// Stops all sources; readers then find the rest and the end.
    pub fn stop(&self) {
        self.order(Order::Stop);
    }

    fn order(&self, order: Order) {
        // A hub that is gone takes no orders; whoever waits for an answer sees that.
        let _gone = self.orders.send(order);
        self.event.signal();
    }

    fn ask<T>(&self, order: impl FnOnce(Sender<T>) -> Order) -> Result<T, AttachError> {
        let (reply, answer) = mpsc::channel();
        self.order(order(reply));
        answer.recv().map_err(|_| AttachError::Ending)
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.handle.order(Order::Quit);
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}
