// SPDX-License-Identifier: MIT OR Apache-2.0
//! A reader's connection to a hub in another process; see `docs/internals/protocol.md`.
//!
//! Invariants
//! - The reader checks what a hub sends: a faulty hub can make it fail, not misbehave.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ringtap_filter::{LinkType, Program};
use ringtap_ipc::doorbell::ReaderDoorbell;
use ringtap_ipc::environment;
use ringtap_ipc::event::{has_left, sleep_until_readable};
use ringtap_ipc::mutex::lock;
use ringtap_ipc::pool_memory::PoolMemory;
use ringtap_ipc::protocol::{
    FLOW_RULES, HubStatus, ReaderStatus, Refusal, Refused, Reply, Request, Snapshot, VERSION,
    decode, encode,
};
use ringtap_ipc::socket::Socket;
use ringtap_ipc::subscription::{AttachedError, Subscription, SubscriptionRequest, Wanted};
use ringtap_ipc::transport::{MAX_BYTES, Transport};
use ringtap_ipc::verdict::VerdictSender;

use crate::control::{Control, ControlError};

/// Folder of the sockets at which the agent in a virtual machine serves groups of the host.
pub const HOST_FOLDER: &str = "/run/ringtap/host";
/// Longest wait for a hub's answer; the hub may be loading a program for a new filter.
///
/// Long, because sixty readers with filters of their own may attach to a busy machine at once.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Most readers in a hub's status.
const MAX_READERS: usize = 100_000;

/// Path of this machine's hub socket: `$RINGTAP_SOCKET`, else `/run/ringtap/hub.sock`, or in the
/// user's own runtime folder if that is not root's.
pub fn default_socket() -> PathBuf {
    if let Some(path) = environment::variable("RINGTAP_SOCKET") {
        return path.into();
    }
    let system = Path::new("/run/ringtap/hub.sock");
    match environment::runtime_folder() {
        Some(own) if !is_root() && !system.exists() => own.join("ringtap.sock"),
        _ => system.to_owned(),
    }
}

/// Path of the socket at which the agent in this virtual machine serves a group of the host.
pub fn host_socket(group: &str) -> PathBuf {
    Path::new(HOST_FOLDER).join(format!("{group}.sock"))
}

/// Whether the agent in a virtual machine serves this socket.
fn is_of_agent(path: &Path) -> bool {
    path.parent() == Some(Path::new(HOST_FOLDER))
}

/// Why nothing listens on this socket, and what helps.
fn absence(path: &Path) -> String {
    if !is_of_agent(path) {
        return "no hub is running there: start one with `ringtap hub`, or name its --socket"
            .into();
    }
    let group = path.file_stem().unwrap_or_default().to_string_lossy();
    format!(
        "no agent serves the host's group \"{group}\": install ringtap in this virtual machine and run \
         `ringtap guest` as root, and on the host `ringtap vm attach --group {group}`"
    )
}

fn is_root() -> bool {
    ringtap_ipc::peer::Peer::this_process().uid == 0
}

/// Why a reader cannot attach.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No hub listens on the socket.
    #[error("{path}: {}", absence(path))]
    NoHub {
        /// The socket.
        path: PathBuf,
    },
    /// The hub accepts no connections.
    #[error("{path}: the hub does not answer: it is stopped, or has too many new connections")]
    Silent {
        /// The socket.
        path: PathBuf,
    },
    /// The system refused the connection.
    #[error("{path}: {reason}")]
    System {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        reason: io::Error,
    },
    /// The hub refused the subscription, or is gone.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The hub sent memory or descriptors that the reader cannot use.
    #[error(transparent)]
    Attached(#[from] AttachedError),
    /// The hub's verdict channel cannot be mapped.
    #[error("the hub's memory cannot be read: {0}")]
    Memory(io::Error),
    /// The hub's answer does not follow the protocol.
    #[error("the hub does not keep to the protocol: {0}")]
    Protocol(&'static str),
}

/// A connection to a hub. Dropping it ends the connection and its subscription.
pub struct Connection {
    transport: Box<dyn Transport>,
    /// Held from a request to its answer.
    request: Mutex<()>,
    /// Wakes this reader.
    own: Mutex<Option<Arc<ReaderDoorbell>>>,
    /// Link type of each of the hub's sources.
    link_types: Vec<u16>,
    /// The hub has flow rules.
    has_flow_rules: bool,
    leaving: AtomicBool,
    is_agent: bool,
}

impl Connection {
    /// Connects to the hub at `path` and says hello.
    ///
    /// # Errors
    ///
    /// [`ConnectError::NoHub`], [`ConnectError::System`], [`ConnectError::Control`].
    pub fn open(path: &Path, name: &str) -> Result<Self, ConnectError> {
        let refused = |reason: io::Error| match reason.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                ConnectError::NoHub { path: path.into() }
            }
            io::ErrorKind::WouldBlock => ConnectError::Silent { path: path.into() },
            _ => ConnectError::System {
                path: path.into(),
                reason,
            },
        };
        let socket = Socket::connect(path).map_err(refused)?;
        Connection::greet(Box::new(socket), name, is_of_agent(path))
    }

    /// Says hello over a connection that exists already.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Control`], [`ConnectError::Protocol`].
    pub fn over(transport: Box<dyn Transport>, name: &str) -> Result<Self, ConnectError> {
        Connection::greet(transport, name, false)
    }

    fn greet(
        transport: Box<dyn Transport>,
        name: &str,
        is_agent: bool,
    ) -> Result<Self, ConnectError> {
        let mut connection = Connection {
            transport,
            request: Mutex::new(()),
            own: Mutex::new(None),
            link_types: Vec::new(),
            has_flow_rules: false,
            leaving: AtomicBool::new(false),
            is_agent,
        };
        let features;
        (connection.link_types, features) = connection.hello(name)?;
        connection.has_flow_rules = features.iter().any(|one| one == FLOW_RULES);
        Ok(connection)
    }

    /// The link type of all sources of the hub; `None` if they differ.
    pub fn link_type(&self) -> Option<LinkType> {
        common_link_type(self.link_types.iter().copied())
    }

    /// Returns the link types of the hub's sources, and the hub's features.
    fn hello(&self, name: &str) -> Result<(Vec<u16>, Vec<String>), ConnectError> {
        let hello = Request::Hello {
            protocol: VERSION,
            features: vec![FLOW_RULES.to_owned()],
            name: name.to_owned(),
        };
        match self.ask(&hello)?.0 {
            Reply::Hello {
                protocol,
                link_types,
                features,
                ..
            } if protocol == VERSION => Ok((link_types, features)),
            _ => Err(ConnectError::Protocol("it did not say hello")),
        }
    }

    /// Connects and subscribes.
    ///
    /// # Errors
    ///
    /// Every [`ConnectError`].
    pub fn attach(
        path: &Path,
        request: &SubscriptionRequest,
    ) -> Result<(Subscription, Arc<Self>), ConnectError> {
        let connection = Connection::open(path, &request.name)?;
        Ok((connection.subscribe(request)?, Arc::new(connection)))
    }

    /// Subscribes; a connection has one subscription at a time.
    ///
    /// # Errors
    ///
    /// Every [`ConnectError`].
    pub fn subscribe(&self, request: &SubscriptionRequest) -> Result<Subscription, ConnectError> {
        if request.cutoff.is_some() || request.marks.is_some() {
            self.require_flow_rules()?;
        }
        let (Reply::Attached(attached), fds) = self.ask(&Request::Attach(request.clone()))? else {
            return Err(ConnectError::Protocol("it gave no subscription"));
        };
        let subscription = attached.open(fds)?;
        *lock(&self.own) = Some(subscription.doorbell.clone());
        Ok(subscription)
    }

    /// Makes this reader the inline reader of the bridge: from now on packets wait for its verdicts.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Control`]: the bridge has an inline reader already, or takes none.
    pub fn inline(&self) -> Result<VerdictSender, ConnectError> {
        let (Reply::Inline, fds) = self.ask(&Request::Inline)? else {
            return Err(ConnectError::Protocol("it accepted no inline reader"));
        };
        let [memory, doorbell] = <[OwnedFd; 2]>::try_from(fds)
            .map_err(|_| ConnectError::Protocol("it sent other descriptors"))?;
        VerdictSender::from_peer(memory, doorbell).map_err(ConnectError::Memory)
    }

    /// The counters of the whole hub.
    ///
    /// # Errors
    ///
    /// Every [`ControlError`].
    pub fn status(&self) -> Result<HubStatus, ControlError> {
        let mut whole = self.status_page(0)?;
        while let Some(after) = whole.readers_after.take() {
            let page = self.status_page(after)?;
            // Otherwise a faulty hub could send pages for ever.
            let is_next = |next: &ReaderStatus| next.reader > after;
            if !page.readers.first().is_some_and(is_next) || page.readers_after == Some(after) {
                break;
            }
            whole.readers_after = page.readers_after.filter(|next| *next > after);
            whole.readers.extend(page.readers);
            if whole.readers.len() > MAX_READERS {
                return Err(ControlError::Gone("it has too many readers".into()));
            }
        }
        whole.readers_after = None;
        Ok(whole)
    }

    fn status_page(&self, after: u64) -> Result<HubStatus, ControlError> {
        match self.ask(&Request::Status { after })?.0 {
            Reply::Status(status) => Ok(*status),
            _ => Err(ControlError::Gone("it gave no status".into())),
        }
    }

    /// Leaves the hub, even if another process has a copy of this connection. Waits at most `timeout`
    /// until the hub hangs up; a hub for this reader only has ended then.
    pub fn leave(&self, timeout: Duration) {
        let _last = lock(&self.request);
        self.transport.finish();
        let deadline = Instant::now() + timeout;
        let has_left = || self.transport.hang_up().is_none_or(has_left);
        while Instant::now() < deadline && !has_left() {
            let left = deadline.saturating_duration_since(Instant::now());
            let _late = sleep_until_readable(&[self.transport.fd()], Some(left));
        }
    }

    /// Changes how many chunks of a lane the reader may hold.
    ///
    /// # Errors
    ///
    /// Every [`ControlError`].
    pub fn set_credit(&self, chunks: u32) -> Result<(), ControlError> {
        self.ask(&Request::Credit { chunks }).map(drop)
    }

    /// Refuses a hub that would ignore a cut-off.
    fn require_flow_rules(&self) -> Result<(), ControlError> {
        let message = "this hub has no flow rules: update it";
        let refused = || Refused::new(Refusal::Version, message).into();
        self.has_flow_rules.then_some(()).ok_or_else(refused)
    }

    fn ask(&self, request: &Request) -> Result<(Reply, Vec<OwnedFd>), ControlError> {
        let gone = |error: io::Error| self.gone(error.to_string());
        let _turn = lock(&self.request);
        let sent = self.transport.send(&encode(request), &[]);
        // A refusal that came before the request is still to be read.
        let is_cut = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
        sent.or_else(|error| if is_cut(&error) { Ok(()) } else { Err(error) })
            .map_err(gone)?;
        let mut buffer = vec![0; MAX_BYTES];
        if !self.has_answer().map_err(gone)? {
            self.transport.finish();
            let seconds = ANSWER_TIMEOUT.as_secs();
            return Err(ControlError::Late { seconds });
        }
        let received = self.transport.receive(&mut buffer);
        // A hub that refused the connection closed it before it read the request; its answer is there.
        let was_refused = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionReset;
        let (bytes, fds) = match received {
            Err(error) if was_refused(&error) => self.transport.receive(&mut buffer),
            received => received,
        }
        .map_err(gone)?;
        if bytes.is_empty() {
            return Err(self.gone("it closed the connection".into()));
        }
        match decode(bytes) {
            Ok(Reply::Refused(refused)) => Err(refused.into()),
            Ok(reply) => Ok((reply, fds)),
            Err(error) => Err(ControlError::Gone(error.to_string())),
        }
    }

    /// The connection has ended, for this reason.
    fn gone(&self, reason: String) -> ControlError {
        if self.is_agent {
            ControlError::AgentGone
        } else {
            ControlError::Gone(reason)
        }
    }

    /// Waits for the hub's answer; `false` if it does not come in time.
    fn has_answer(&self) -> io::Result<bool> {
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if sleep_until_readable(&[self.transport.fd()], Some(left))? {
                return Ok(true);
            }
            if left.is_zero() {
                return Ok(false);
            }
        }
    }
}

impl Control for Connection {
    fn snapshot(&self) -> Result<Snapshot, ControlError> {
        match self.ask(&Request::Statistics)?.0 {
            Reply::Statistics(snapshot) => Ok(snapshot),
            _ => Err(ControlError::Gone("it gave no statistics".into())),
        }
    }

    fn set_filter(&self, filter: &Program) -> Result<Vec<Wanted>, ControlError> {
        let request = Request::Filter {
            program: filter.clone(),
        };
        match self.ask(&request)?.0 {
            Reply::Filtered { wanted } => Ok(wanted),
            _ => Err(ControlError::Gone("it set no filter".into())),
        }
    }

    fn flow_request(&self, request: Request) -> Result<Reply, ControlError> {
        self.require_flow_rules()?;
        Ok(self.ask(&request)?.0)
    }

    fn memory(&self, endpoint: usize) -> Result<Option<PoolMemory>, ControlError> {
        let (Reply::Memory(answer), fds) = self.ask(&Request::Memory { endpoint })? else {
            return Err(ControlError::Gone("it gave no memory".into()));
        };
        let memory = PoolMemory::from_peer(answer, fds);
        memory
            .map(Some)
            .ok_or_else(|| ControlError::Gone("it sent too few descriptors".into()))
    }

    fn stop(&self) {
        self.leaving.store(true, Relaxed);
        if let Some(event) = &*lock(&self.own) {
            event.end_own_sleep();
        }
    }

    fn is_leaving(&self) -> bool {
        self.leaving.load(Relaxed)
    }

    fn is_agent(&self) -> bool {
        self.is_agent
    }

    fn connection(&self) -> Option<BorrowedFd<'_>> {
        self.transport.hang_up()
    }
}

/// The link type of all sources, Ethernet without sources; `None` if they differ.
pub(crate) fn common_link_type(types: impl Iterator<Item = u16>) -> Option<LinkType> {
    let mut types = types.map(LinkType);
    let first = types.next().unwrap_or(LinkType::ETHERNET);
    types.all(|other| other == first).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error of a question to a hub, or to an agent, that answers only the greeting.
    fn after_the_end(is_agent: bool) -> ControlError {
        let (reader, hub) = Socket::pair().unwrap();
        let hello = Reply::Hello {
            protocol: VERSION,
            features: Vec::new(),
            version: String::new(),
            link_types: vec![1],
        };
        hub.send(&encode(&hello), &[]).unwrap();
        let connection = Connection::greet(Box::new(reader), "test", is_agent).unwrap();
        drop(hub);
        connection.snapshot().unwrap_err()
    }

    #[test]
    fn a_reader_whose_agent_ended_is_told_to_start_the_agent() {
        let error = after_the_end(true);
        assert!(error.is_gone());
        assert!(error.to_string().contains("start `ringtap guest` again"));
        let error = after_the_end(false);
        assert!(error.is_gone());
        assert!(error.to_string().starts_with("the hub ended: "));
    }
}
