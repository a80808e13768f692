// SPDX-License-Identifier: MIT OR Apache-2.0
//! One connection: a reader's requests and the answers.
//!
//! Invariants
//! - The rights of the reader's user are asked at each request, since a reload can change them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

use ringtap_filter::{FlowSelector, Program};
use ringtap_ipc::event::Event;
use ringtap_ipc::peer::Peer;
use ringtap_ipc::protocol::{self, Refusal, Refused, Reply, Request, decode, encode};
use ringtap_ipc::subscription::{Attached, Subscription, SubscriptionId, SubscriptionRequest};
use ringtap_ipc::text::clean_name;
use ringtap_ipc::transport::Transport;
use ringtap_ipc::verdict::{InlineError, InlineMembership, VerdictChannel};
use ringtap_pool::number::to_u32;

use super::ServerOptions;
use super::admission::UserClass;
use super::status_page::status_page;
use crate::answer::{Responder, ending, not_subscribed};
use crate::control::HubControl;
use crate::group::AccessList;
use crate::hub::Handle;
use crate::limits::Limits;
use crate::membership::OWN_BITS;
use crate::subscribers::{Change, StatusView};

/// Longest name that a reader may give itself, in bytes.
const MAX_NAME: usize = 64;

/// Flow rules that count as a further request, so that one user's rules leave time for those of others.
const RULES_OF_A_REQUEST: u32 = 64;

/// Error text: packets that the filter leaves out would wait for a verdict that never comes.
const NO_FILTER: &str = "an inline reader sees every packet: it has no filter (--pass and --drop of \
                         the bridge keep packets from it)";

/// Whether a connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stay {
    Here,
    Leave,
}

/// A reader at the server.
pub(super) struct ClientConnection {
    transport: Box<dyn Transport>,
    peer: Peer,
    pub(super) class: UserClass,
    hub: Handle,
    /// The reader's name, from its `hello`.
    name: Option<String>,
    subscription: Option<SubscriptionId>,
    /// The subscription's group.
    joined: Option<String>,
    /// The same if the reader reads in place.
    group: Option<String>,
    /// Users who may see the whole status.
    viewers: AccessList,
    /// Why the reader's process could write a shared pool, if it could.
    may_write: Option<&'static str>,
    /// The reader's own filter leaves packets out.
    filters: bool,
    /// Mask bits of the subscription.
    mask: u64,
    /// The place of the inline reader, if this reader has it.
    inline: Option<InlineMembership>,
    /// The bridge's channel for verdicts.
    verdicts: Option<Arc<VerdictChannel>>,
    /// Signalled when the control thread has answered a request.
    answered: Event,
    /// The request that the control thread answers later; the server reads no other request until then.
    waiting: Option<Waiting>,
    opened: Instant,
    /// Further requests that the last one counts as.
    cost: u32,
    /// Descriptors that the reader sent.
    unwanted: Vec<OwnedFd>,
}

/// A request that the control thread answers later.
struct Waiting {
    /// The sources load new rules for it.
    is_change: bool,
    /// The answer to the reader, once that of the control thread is there.
    finish: Finish,
}

type Finish = Box<dyn Fn(&mut ClientConnection) -> Option<Answer> + Send>;

/// An answer and its descriptors.
struct Answer {
    reply: Box<Reply>,
    fds: Vec<OwnedFd>,
}

impl Answer {
    /// An answer with copies of these descriptors.
    fn with(reply: Reply, fds: &[BorrowedFd<'_>]) -> Result<Self, Refused> {
        let copies = fds.iter().map(BorrowedFd::try_clone_to_owned);
        Ok(Answer {
            reply: Box::new(reply),
            fds: copies.collect::<io::Result<_>>()?,
        })
    }
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        Answer {
            reply: Box::new(reply),
            fds: Vec::new(),
        }
    }
}

impl From<Refused> for Answer {
    fn from(refused: Refused) -> Self {
        Reply::Refused(refused).into()
    }
}

fn refused(code: Refusal, message: impl Into<String>) -> Answer {
    Refused::new(code, message).into()
}

/// Tells a reader why the hub refuses its connection.
pub(super) fn refuse_connection(transport: &dyn Transport, message: &str) {
    let reply = Reply::Refused(Refused::new(Refusal::TooMuch, message));
    // A reader that does not receive the reason finds the connection closed.
    let _closed = transport.send(&encode(&reply), &[]);
}

impl ClientConnection {
    pub(super) fn new(
        transport: Box<dyn Transport>,
        peer: Peer,
        class: UserClass,
        hub: Handle,
        answered: Event,
        options: &ServerOptions,
    ) -> Self {
        ClientConnection {
            transport,
            peer,
            class,
            hub,
            name: None,
            subscription: None,
            joined: None,
            group: None,
            viewers: options.viewers.clone(),
            verdicts: options.verdicts.clone(),
            may_write: None,
            filters: false,
            mask: 0,
            inline: None,
            answered,
            waiting: None,
            opened: Instant::now(),
            cost: 0,
            unwanted: Vec::new(),
        }
    }

    pub(super) fn peer(&self) -> &Peer {
        &self.peer
    }

    pub(super) fn uid(&self) -> u32 {
        self.peer.uid
    }

    /// Whether the hub owes the answer to a request.
    pub(super) fn awaits_hub(&self) -> bool {
        self.waiting.is_some()
    }

    /// Whether the sources load new rules for this reader.
    pub(super) fn awaits_rules(&self) -> bool {
        self.waiting.as_ref().is_some_and(|one| one.is_change)
    }

    /// Further requests that the last one counts as, once.
    pub(super) fn take_cost(&mut self) -> u32 {
        std::mem::take(&mut self.cost)
    }

    /// Time left until the reader must have said hello; `None` if it has.
    pub(super) fn left_for_hello(&self, limits: &Limits, now: Instant) -> Option<Duration> {
        let limit = Duration::from_secs(limits.hello_seconds.get().into());
        let deadline = self.opened + limit;
        let is_new = self.name.is_none();
        is_new.then(|| deadline.saturating_duration_since(now))
    }

    /// Tells the reader why the hub ends the connection.
    pub(super) fn refuse(&self, message: &str) {
        refuse_connection(&*self.transport, message);
    }

    /// Whether closing the connection may close descriptors that the reader sent.
    pub(super) fn may_hold_descriptors(&self) -> bool {
        !self.unwanted.is_empty() || !self.transport.refuses_descriptors()
    }

    /// Ends the subscription.
    pub(super) fn leave(&mut self) {
        self.inline = None;
        if let Some(subscription) = self.subscription.take() {
            self.hub.leave(subscription);
        }
    }

    /// Receives and answers one message, or sends the answer to the previous one.
    pub(super) fn serve(&mut self, buffer: &mut [u8]) -> Stay {
        if let Some(waiting) = self.waiting.take() {
            let answer = (waiting.finish)(self);
            if answer.is_none() {
                self.waiting = Some(waiting);
            }
            return self.reply(answer);
        }
        let message = match self.transport.receive(buffer) {
            Ok(([], _)) => return Stay::Leave,
            Ok((_, fds)) if !fds.is_empty() => {
                self.unwanted = fds;
                return self.close("the reader sent descriptors");
            }
            Ok((bytes, _)) => decode(bytes),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Stay::Here,
            Err(error) => return self.close(&format!("cannot receive from the reader: {error}")),
        };
        let answer = match message {
            Ok(request) => self.answer(request),
            Err(error) => Some(refused(Refusal::BadRequest, error.to_string())),
        };
        self.reply(answer)
    }

    /// Sends the answer, if there is one yet.
    fn reply(&self, answer: Option<Answer>) -> Stay {
        let Some(answer) = answer else {
            return Stay::Here;
        };
        let fds: Vec<_> = answer.fds.iter().map(AsFd::as_fd).collect();
        match self.transport.send(&encode(&answer.reply), &fds) {
            Ok(()) => Stay::Here,
            Err(error) => self.close(&format!("the reader does not take its answers: {error}")),
        }
    }

    /// Logs why the server closes the connection.
    fn close(&self, why: &str) -> Stay {
        let (pid, uid) = (self.peer.pid, self.peer.uid);
        tracing::warn!(pid, uid, "connection closed: {why}");
        Stay::Leave
    }

    /// The answer to a request; `None` if the control thread answers later.
    fn answer(&mut self, request: Request) -> Option<Answer> {
        if self.name.is_none() && !matches!(request, Request::Hello { .. }) {
            return Some(refused(Refusal::BadRequest, "say hello first"));
        }
        let begun = match request {
            Request::Hello { protocol, name, .. } => return Some(self.hello(protocol, &name)),
            Request::Inline => return Some(self.inline()),
            Request::Detach => return Some(self.detach()),
            Request::Attach(attach) => self.attach(attach),
            Request::Filter { program } => self.filter(program),
            Request::Credit { chunks } => self.subscribed().map(|id| {
                let credit = move |control: &mut HubControl, responder: Responder<()>| {
                    responder.send(control.set_credit(id, chunks));
                };
                self.later(false, credit, |_, ()| Ok(Reply::Done.into()))
            }),
            Request::Statistics => self.subscribed().map(|id| {
                let ask = move |control: &mut HubControl, to| control.ask_snapshot(id, to);
                self.later(false, ask, |_, snapshot| {
                    Ok(Reply::Statistics(snapshot).into())
                })
            }),
            Request::Memory { endpoint } => self.subscribed().map(|id| {
                let ask = move |control: &mut HubControl, responder| {
                    control.ask_memory(id, endpoint, responder);
                };
                self.later(false, ask, |_, memory| {
                    let (answer, fds) = memory.answer();
                    Ok(Answer::with(Reply::Memory(answer), &fds)?)
                })
            }),
            Request::Status { after } => self.status(after),
            Request::SetRules { reader, .. }
            | Request::RemoveRules { reader, .. }
            | Request::Rules { reader, .. }
            | Request::FlowEvents { reader } => self.flows(reader, request),
        };
        match begun {
            Ok(waiting) => self.waiting = Some(waiting),
            Err(answer) => return Some(answer),
        }
        None
    }

    /// Sends work to the control thread, and lets `finish` make the answer to the reader. The sources load
    /// new rules for work that is a change.
    fn later<T: Send + 'static>(
        &self,
        is_change: bool,
        work: impl FnOnce(&mut HubControl, Responder<T>) + Send + 'static,
        finish: impl Fn(&mut ClientConnection, T) -> Result<Answer, Answer> + Send + 'static,
    ) -> Waiting {
        let (responder, answer) = Responder::new(Some(self.answered.clone()));
        self.hub.send(move |control| work(control, responder));
        let finish = move |connection: &mut ClientConnection| {
            let answer = match answer.try_recv() {
                Err(TryRecvError::Empty) => return None,
                Err(TryRecvError::Disconnected) => Err(ending()),
                Ok(answer) => answer,
            };
            let answer = answer
                .map_err(Answer::from)
                .and_then(|answer| finish(connection, answer));
            Some(answer.unwrap_or_else(|refusal| refusal))
        };
        Waiting {
            is_change,
            finish: Box::new(finish),
        }
    }

    /// The reader's subscription, if its user may still be a member of the group.
    fn subscribed(&self) -> Result<SubscriptionId, Answer> {
        let id = self.subscription.ok_or_else(not_subscribed)?;
        let joined = self.joined.as_deref().unwrap_or_default();
        let is_own = self.class == UserClass::Own;
        if is_own
            || self
                .hub
                .groups_of(&self.peer)
                .iter()
                .any(|one| one == joined)
        {
            Ok(id)
        } else {
            Err(refused(
                Refusal::NotAllowed,
                format!(
                    "user {} may no longer be a member of group \"{joined}\"",
                    self.peer.uid
                ),
            ))
        }
    }

    fn detach(&mut self) -> Answer {
        let subscription = self.subscription;
        self.leave();
        match subscription {
            Some(_) => Reply::Done.into(),
            None => not_subscribed().into(),
        }
    }

    fn hello(&mut self, version: u32, name: &str) -> Answer {
        if version != protocol::VERSION {
            let ours = protocol::VERSION;
            let message = format!(
                "the reader speaks protocol {version}, this hub {ours}: update the older of the two"
            );
            return refused(Refusal::Version, message);
        }
        self.name = Some(clean_name(name, MAX_NAME));
        Reply::Hello {
            protocol: protocol::VERSION,
            features: vec![protocol::FLOW_RULES.to_owned()],
            version: env!("CARGO_PKG_VERSION").to_owned(),
            link_types: self.hub.link_types(),
        }
        .into()
    }

    /// Begins to attach. Fails with the answer if it is known at once.
    fn attach(&mut self, request: SubscriptionRequest) -> Result<Waiting, Answer> {
        if self.subscription.is_some() {
            let message = "this connection has a subscription already: one group a connection";
            return Err(refused(Refusal::TooMuch, message));
        }
        self.may_write = self.may_write();
        let private = request.private || self.may_write.is_some();
        let joined = request.group.clone();
        let group = (!private).then(|| joined.clone());
        let filters = !request.filter.takes_everything();
        let request = Box::new(SubscriptionRequest {
            name: self.name.clone().unwrap_or_default(),
            private,
            ..request
        });
        let peer = self.peer.clone();
        let attach = |control: &mut HubControl, responder| {
            control.changes.push(Change::Attach {
                request,
                peer,
                responder,
            });
        };
        Ok(self.later(true, attach, move |connection, subscription| {
            connection.filters = filters;
            connection.joined = Some(joined.clone());
            connection.attached(subscription, group.clone())
        }))
    }

    /// Why the reader's process could write a pool that it shares; `None` if it cannot, or if it could
    /// change the hub itself as well.
    fn may_write(&self) -> Option<&'static str> {
        let is_own = [0, Peer::this_process().uid].contains(&self.peer.uid);
        if self.hub.has_map() && !is_own {
            self.peer.may_load_programs()
        } else {
            None
        }
    }

    fn attached(
        &mut self,
        mut subscription: Subscription,
        group: Option<String>,
    ) -> Result<Answer, Answer> {
        if let (Some(reason), Some(first)) = (self.may_write, subscription.endpoints.first_mut()) {
            first.facts.notes.push(format!(
                "private delivery: this process may load BPF programs, which could write a shared \
                 pool: {reason}"
            ));
        }
        let id = subscription.id;
        let endpoints = subscription.endpoints.iter();
        self.mask = endpoints.fold(0, |all, one| all | one.wanted.mask);
        let answer = match Attached::from_subscription(&subscription) {
            Some((message, fds)) => Answer::with(Reply::Attached(message), &fds),
            None => {
                let message = "a source of this hub cannot be read from another process";
                Err(Refused::new(Refusal::Failed, message))
            }
        };
        match answer {
            Ok(answer) => {
                self.subscription = Some(id);
                self.group = group;
                Ok(answer)
            }
            Err(refused) => {
                self.hub.leave(id);
                Err(refused.into())
            }
        }
    }

    /// Makes this reader the inline reader of the bridge.
    fn inline(&mut self) -> Answer {
        let Some(verdicts) = &self.verdicts else {
            let message = "nothing waits for verdicts here: a bridge with --inline does";
            return refused(Refusal::BadRequest, message);
        };
        let Some(group) = self.group.as_ref().filter(|_| self.subscription.is_some()) else {
            let message = "an inline reader reads in place: subscribe first, and not privately";
            return refused(Refusal::BadRequest, message);
        };
        if let Err(refusal) = self.subscribed() {
            return refusal;
        }
        if self.filters {
            return refused(Refusal::BadRequest, NO_FILTER);
        }
        if self.mask >> OWN_BITS != 0 {
            let message = "an inline reader needs a mask bit of its own: subscribe while there are fewer readers";
            return refused(Refusal::TooMuch, message);
        }
        match verdicts.accept(group, self.mask) {
            Ok((ends, membership)) => {
                self.inline = Some(membership);
                let fds = [ends.memory.as_fd(), ends.doorbell.as_fd()];
                Answer::with(Reply::Inline, &fds).unwrap_or_else(Answer::from)
            }
            Err(error @ InlineError::Taken) => refused(Refusal::TooMuch, error.to_string()),
            Err(error @ InlineError::Group { .. }) => {
                refused(Refusal::NotAllowed, error.to_string())
            }
            Err(error) => refused(Refusal::Failed, error.to_string()),
        }
    }

    /// Begins to change the filter. Fails with the answer if it is known at once.
    fn filter(&self, filter: Program) -> Result<Waiting, Answer> {
        let id = self.subscribed()?;
        let filters = !filter.takes_everything();
        if self.inline.is_some() && filters {
            return Err(refused(Refusal::BadRequest, NO_FILTER));
        }
        let change = move |control: &mut HubControl, responder| {
            control.changes.push(Change::Filter {
                id,
                filter,
                responder,
            });
        };
        Ok(self.later(true, change, move |connection, wanted| {
            connection.filters = filters;
            Ok(Reply::Filtered { wanted }.into())
        }))
    }

    /// Begins a request for flow rules of this reader, or of another of the user.
    fn flows(&mut self, reader: Option<u64>, request: Request) -> Result<Waiting, Answer> {
        let own = match reader {
            None => Some(self.subscribed()?),
            Some(_) => None,
        };
        self.cost = match &request {
            Request::SetRules { rules, .. } => to_u32(rules.len()),
            Request::RemoveRules { flows, .. } => to_u32(flows.len()),
            _ => 0,
        } / RULES_OF_A_REQUEST;
        let is_pattern = |flow: &FlowSelector| matches!(flow, FlowSelector::Pattern(_));
        // Rules for patterns are a change: the sources load programs.
        let is_change = match &request {
            Request::SetRules { rules, .. } => rules.iter().any(|rule| is_pattern(&rule.flow)),
            Request::RemoveRules { flows, .. } => flows.iter().any(is_pattern),
            _ => false,
        };
        let peer = self.peer.clone();
        let ask =
            move |control: &mut HubControl, to| control.flow_request((own, &peer), request, to);
        Ok(self.later(is_change, ask, |_, reply| Ok(Answer::from(reply))))
    }

    fn status(&self, after: u64) -> Result<Waiting, Answer> {
        let Some(view) = self.view() else {
            let message = format!(
                "user {} may not see this hub: join one of its groups, or the UNIX group `ringtap`",
                self.peer.uid
            );
            return Err(refused(Refusal::NotAllowed, message));
        };
        let page = move |_: &mut ClientConnection, status| Ok(status_page(status, after).into());
        let ask = move |control: &mut HubControl, to| control.ask_status(view, to);
        Ok(self.later(false, ask, page))
    }

    /// The part of the status that the user may see now; `None`: nothing.
    fn view(&self) -> Option<StatusView> {
        let is_own = self.class == UserClass::Own;
        if is_own || self.viewers.allows(&self.peer, Peer::this_process().uid) {
            return Some(StatusView::Whole);
        }
        let groups = self.hub.groups_of(&self.peer);
        (!groups.is_empty()).then_some(StatusView::Groups(groups))
    }
}

impl AsFd for ClientConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.transport.fd()
    }
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        self.leave();
    }
}
