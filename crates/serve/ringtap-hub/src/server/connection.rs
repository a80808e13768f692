// SPDX-License-Identifier: MIT OR Apache-2.0
//! One connection: what a reader asks, and the answers.
#![forbid(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use ringtap_filter::Program;
use ringtap_ipc::peer::Peer;
use ringtap_ipc::protocol::{
    self, Attach, EndpointFacts, MOST_INSTRUCTIONS, Refusal, Reply, Request, WantedFacts, decode,
    encode,
};
use ringtap_ipc::socket::Socket;
use ringtap_ipc::subscription::Watermark;
use ringtap_ipc::verdict::{Bench, BenchError, Sitting};

use crate::access::Access;
use crate::hub::{Ask, AttachError, Handle, SubscriptionId, Taken};

/// Longest name that a reader may give itself, in bytes.
const MOST_NAME: usize = 64;

/// A packet that its filter left out would wait for a verdict in vain.
const NO_FILTER: &str = "a judge sees every packet: it has no filter (what is not to be judged, \
                         --pass and --drop of the bridge stop)";

/// Whether a connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stay {
    Here,
    Leave,
}

/// A reader at the server.
pub(super) struct ClientConnection {
    socket: Socket,
    peer: Peer,
    hub: Handle,
    /// What it calls itself; it said hello then.
    name: Option<String>,
    subscription: Option<SubscriptionId>,
    /// The group of its subscription, where it reads in place.
    group: Option<String>,
    /// Its own filter leaves packets out.
    filters: bool,
    judges: bool,
    /// Where the judge of a bridge sits.
    bench: Option<Arc<Bench>>,
}

/// An answer with the descriptors that go with it.
struct Answer {
    reply: Reply,
    taken: Option<Taken>,
    sitting: Option<Sitting>,
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        Answer {
            reply,
            taken: None,
            sitting: None,
        }
    }
}

fn refused(code: Refusal, message: impl Into<String>) -> Answer {
    let message = message.into();
    Reply::Refused { code, message }.into()
}

/// Says why somebody cannot come in.
pub(super) fn turn_away(socket: &Socket, message: &str) {
    let answer = refused(Refusal::TooMuch, message);
    // Who does not listen finds the connection closed.
    let _deaf = socket.send(&encode(&answer.reply), &[]);
}

impl ClientConnection {
    pub(super) fn new(socket: Socket, peer: Peer, hub: Handle, bench: Option<Arc<Bench>>) -> Self {
        ClientConnection {
            socket,
            peer,
            hub,
            name: None,
            subscription: None,
            group: None,
            bench,
            filters: false,
            judges: false,
        }
    }

    pub(super) fn uid(&self) -> u32 {
        self.peer.uid
    }

    /// Takes one message and answers it.
    pub(super) fn serve(&mut self, hub: &Handle, access: &[Access], buffer: &mut [u8]) -> Stay {
        let message = match self.socket.receive(buffer) {
            Ok(([], _)) => return Stay::Leave,
            // Descriptors that a reader sends along are closed unseen.
            Ok((bytes, _)) => decode(bytes),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Stay::Here,
            Err(error) => {
                tracing::warn!(pid = self.peer.pid, "a reader's connection broke: {error}");
                return Stay::Leave;
            }
        };
        let (answer, stay) = match message {
            Ok(request) => (self.answer(request, hub, access), Stay::Here),
            Err(error) => (refused(Refusal::BadRequest, error.to_string()), Stay::Leave),
        };
        match self.send(&answer) {
            Ok(()) => stay,
            Err(error) => {
                tracing::warn!(pid = self.peer.pid, "a reader does not listen: {error}");
                Stay::Leave
            }
        }
    }

    fn send(&self, answer: &Answer) -> std::io::Result<()> {
        let mut fds: Vec<BorrowedFd<'_>> = Vec::new();
        if let Some(taken) = &answer.taken {
            fds.push(taken.subscription.doorbell.as_fd());
            for files in &taken.files {
                fds.extend(files.pool.as_ref().map(AsFd::as_fd));
                fds.push(files.control.as_fd());
            }
            let wakes = taken.files.iter().filter_map(|files| files.wake.as_ref());
            fds.extend(wakes.map(|wake| wake.as_fd()));
        }
        if let Some(sitting) = &answer.sitting {
            fds.extend([sitting.memory.as_fd(), sitting.doorbell.as_fd()]);
        }
        self.socket.send(&encode(&answer.reply), &fds)
    }

    fn answer(&mut self, request: Request, hub: &Handle, access: &[Access]) -> Answer {
        if self.name.is_none() && !matches!(request, Request::Hello { .. }) {
            return refused(Refusal::BadRequest, "say hello first");
        }
        match request {
            Request::Hello { protocol, name, .. } => self.hello(protocol, &name),
            Request::Attach(attach) => self.attach(attach, hub),
            Request::Filter { program } => self.filter(&program, hub),
            Request::Credit { chunks } => match self.subscription {
                None => not_subscribed(),
                Some(subscription) => done(hub.set_credit(subscription, chunks)),
            },
            Request::Statistics => {
                let snapshot = self
                    .subscription
                    .and_then(|subscription| hub.snapshot(subscription));
                snapshot.map_or_else(not_subscribed, |snapshot| {
                    Reply::Statistics(snapshot).into()
                })
            }
            Request::Judge => self.judge(),
            Request::Detach => match self.subscription.take() {
                None => not_subscribed(),
                Some(subscription) => {
                    hub.leave(subscription);
                    Reply::Done.into()
                }
            },
            Request::Status => self.status(hub, access),
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
        let printable = name.chars().filter(|c| !c.is_control()).take(MOST_NAME);
        self.name = Some(printable.collect());
        Reply::Hello {
            protocol: protocol::VERSION,
            features: Vec::new(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
        .into()
    }

    fn attach(&mut self, attach: Attach, hub: &Handle) -> Answer {
        if self.subscription.is_some() {
            let message = "this connection has a subscription already: one group a connection";
            return refused(Refusal::TooMuch, message);
        }
        let group = (!attach.private).then(|| attach.group.clone());
        let filter = match program(&attach.filter) {
            Ok(filter) => filter,
            Err(message) => return refused(Refusal::BadFilter, message),
        };
        let filters = !filter.takes_everything();
        let ask = Ask {
            name: self.name.clone().unwrap_or_default(),
            peer: self.peer.clone(),
            filter,
            credit_chunks: attach.credit,
            watermark: watermark(&attach),
            private: attach.private,
            from_the_first: false,
            group: attach.group,
        };
        let taken = match hub.attach(ask) {
            Ok(taken) => taken,
            Err(error) => return refusal(&error),
        };
        if taken.files.iter().any(|files| files.pool.is_none()) {
            hub.leave(taken.id);
            let message = "a source of this hub cannot be read from another process";
            return refused(Refusal::Failed, message);
        }
        self.subscription = Some(taken.id);
        self.group = group;
        self.filters = filters;
        let reply = Reply::Attached {
            reader: taken.id.0,
            endpoints: taken
                .subscription
                .endpoints
                .iter()
                .map(EndpointFacts::from)
                .collect(),
        };
        Answer {
            reply,
            taken: Some(taken),
            sitting: None,
        }
    }

    /// Makes this reader the judge of the bridge whose hub this is.
    fn judge(&mut self) -> Answer {
        let Some(bench) = &self.bench else {
            let message = "nothing is judged here: a bridge with --judge asks for verdicts";
            return refused(Refusal::BadRequest, message);
        };
        let Some(group) = self.group.as_ref().filter(|_| self.subscription.is_some()) else {
            let message = "a judge reads in place: subscribe that is not private first";
            return refused(Refusal::BadRequest, message);
        };
        if self.filters {
            return refused(Refusal::BadRequest, NO_FILTER);
        }
        match bench.sit(group) {
            Ok(sitting) => {
                self.judges = true;
                Answer {
                    reply: Reply::Judging,
                    taken: None,
                    sitting: Some(sitting),
                }
            }
            Err(error @ BenchError::Taken) => refused(Refusal::TooMuch, error.to_string()),
            Err(error @ BenchError::Group { .. }) => {
                refused(Refusal::NotAllowed, error.to_string())
            }
            Err(error) => refused(Refusal::Failed, error.to_string()),
        }
    }

    fn filter(&mut self, entries: &[u64], hub: &Handle) -> Answer {
        let Some(subscription) = self.subscription else {
            return not_subscribed();
        };
        let filter = match program(entries) {
            Ok(filter) => filter,
            Err(message) => return refused(Refusal::BadFilter, message),
        };
        let filters = !filter.takes_everything();
        if self.judges && filters {
            return refused(Refusal::BadRequest, NO_FILTER);
        }
        match hub.set_filter(subscription, filter) {
            Ok(wanted) => {
                self.filters = filters;
                Reply::Filtered {
                    wanted: wanted.iter().map(WantedFacts::from).collect(),
                }
                .into()
            }
            Err(error) => refusal(&error),
        }
    }

    fn status(&self, hub: &Handle, access: &[Access]) -> Answer {
        let hub_uid = Peer::this_process().uid;
        let own = Access::default().allows(&self.peer, hub_uid);
        if !own && !access.iter().any(|one| one.allows(&self.peer, hub_uid)) {
            let message = format!("user {} may not see this hub", self.peer.uid);
            return refused(Refusal::NotAllowed, message);
        }
        match hub.status() {
            Some(status) => Reply::Status(Box::new(status)).into(),
            None => refusal(&AttachError::Ending),
        }
    }
}

impl AsFd for ClientConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        if let Some(subscription) = self.subscription.take() {
            self.hub.leave(subscription);
        }
    }
}

fn watermark(attach: &Attach) -> Watermark {
    let limit = attach.time_limit_ms.map(u64::from);
    Watermark::asked(attach.watermark_packets, limit.map(Duration::from_millis))
}

fn program(entries: &[u64]) -> Result<Program, String> {
    if entries.len() > MOST_INSTRUCTIONS {
        return Err(format!(
            "a filter of {} instructions: {MOST_INSTRUCTIONS} is the most",
            entries.len()
        ));
    }
    Program::from_entries(entries).map_err(|error| error.to_string())
}

fn refusal(error: &AttachError) -> Answer {
    refused(error.code(), error.to_string())
}

fn not_subscribed() -> Answer {
    refusal(&AttachError::NotSubscribed)
}

fn done(outcome: Result<(), AttachError>) -> Answer {
    match outcome {
        Ok(()) => Reply::Done.into(),
        Err(error) => refusal(&error),
    }
}
