// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hub's server: a thread that serves readers of other processes over the UNIX socket.
//!
//! Invariants
//! - A reader's messages can at worst end the reader's own connection.
//! - The end of a connection ends its subscription.
//! - The server never waits for a reader: it closes the connection of a reader that does not take
//!   replies, or sends no hello in time.
//! - The server closes no descriptor that a reader sent: the kernel refuses them, or another thread
//!   closes them.

mod admission;
mod connection;
mod leaving;
mod one;
mod status_page;

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ringtap_ipc::event::{Event, readable_among};
use ringtap_ipc::peer::Peer;
use ringtap_ipc::rate::Rates;
use ringtap_ipc::socket::Listener;
use ringtap_ipc::thread::join;
use ringtap_ipc::transport::{MAX_BYTES, Transport as _};
use ringtap_ipc::verdict::VerdictChannel;
use ringtap_pool::wake::Signal;

use crate::group::AccessList;
use crate::hub::{Handle, Hub};
use admission::{Occupancy, UserClass};
use connection::{ClientConnection, Stay};
use leaving::ClosingConnections;
pub use one::{refuse, serve_one};

/// Most connections accepted between two looks at the open ones.
const MAX_ARRIVALS: usize = 16;
/// Requests that an attach or a change of the filter counts as: each makes the sources load rules.
const COST_OF_A_CHANGE: u32 = 20;
/// Pause before the next attempt to accept when no descriptor is free.
const NO_DESCRIPTOR_PAUSE: Duration = Duration::from_millis(100);

/// An open server, which closes when this is dropped.
pub struct Server {
    closing: Event,
    thread: Option<JoinHandle<()>>,
}

/// Options of a server.
#[derive(Default)]
pub struct ServerOptions {
    /// Users who may see the whole status, as root and the hub's own user do. Others see that of the groups
    /// which they may join.
    pub viewers: AccessList,
    /// The verdict channel of the bridge to which the hub belongs.
    pub verdicts: Option<Arc<VerdictChannel>>,
}

struct Acceptor {
    listener: Listener,
    hub: Handle,
    options: ServerOptions,
    closing: Event,
    /// Signalled when the control thread has answered a request.
    answered: Event,
    connections: Vec<ClientConnection>,
    leaving: ClosingConnections,
    rates: Rates<u32>,
    /// The edition of the hub's groups by which the connections' classes are known.
    edition: u64,
    /// The server accepts no connection before this.
    accepts_from: Instant,
}

/// Sockets and events that are ready after a wait.
struct Ready {
    is_closing: bool,
    has_arrivals: bool,
    /// Indices of the connections with a request, or that wait for an answer, ascending.
    connections: Vec<usize>,
}

impl Server {
    /// Serves readers that connect to this socket.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::path::Path;
    ///
    /// use ringtap_hub::Hub;
    /// use ringtap_hub::server::{Server, ServerOptions};
    /// use ringtap_ipc::socket::Listener;
    ///
    /// # fn run(hub: &Hub) -> Result<(), Box<dyn std::error::Error>> {
    /// let listener = Listener::bind(Path::new("/run/ringtap/hub.sock"))?;
    /// let server = Server::open(listener, hub, ServerOptions::default())?;
    /// // Readers attach: `ringtap count -i hub:all`.
    /// drop(server);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The system's, when no thread or descriptor is free.
    pub fn open(listener: Listener, hub: &Hub, options: ServerOptions) -> io::Result<Self> {
        let closing = Event::new()?;
        let acceptor = Acceptor {
            listener,
            hub: hub.handle().clone(),
            options,
            closing: closing.clone(),
            answered: Event::new()?,
            connections: Vec::new(),
            leaving: ClosingConnections::default(),
            rates: Rates::new(hub.handle().limits().requests_per_second),
            edition: hub.handle().edition(),
            accepts_from: Instant::now(),
        };
        let thread = std::thread::Builder::new()
            .name("server".into())
            .spawn(move || acceptor.run())?;
        Ok(Server {
            closing,
            thread: Some(thread),
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.closing.signal();
        if let Some(thread) = self.thread.take() {
            join(thread);
        }
    }
}

impl Acceptor {
    fn run(mut self) {
        let mut buffer = vec![0; MAX_BYTES];
        loop {
            match self.wait() {
                Ok(ready) if ready.is_closing => return,
                Ok(ready) => self.serve(&ready, &mut buffer),
                Err(error) => {
                    tracing::error!("the hub's server cannot wait for messages: {error}");
                    return;
                }
            }
        }
    }

    /// Waits for a connection, a request, an answer of the hub, or until a time limit.
    fn wait(&self) -> io::Result<Ready> {
        let now = Instant::now();
        let mut fds = vec![self.closing.as_fd(), self.answered.as_fd()];
        let mut timeouts = Vec::new();
        let pause = self.accepts_from.saturating_duration_since(now);
        let accepts = pause.is_zero();
        if accepts {
            fds.push(self.listener.as_fd())
        } else {
            timeouts.push(pause)
        }
        let first = fds.len();
        let mut polled = Vec::with_capacity(self.connections.len());
        let limits = self.hub.limits();
        for (at, connection) in self.connections.iter().enumerate() {
            timeouts.extend(connection.left_for_hello(&limits, now));
            let pause = match connection.class {
                UserClass::Own => Duration::ZERO,
                _ => self.rates.wait(&connection.uid(), now),
            };
            if connection.awaits_hub() {
                continue;
            } else if pause.is_zero() {
                fds.push(connection.as_fd());
                polled.push(at);
            } else {
                timeouts.push(pause);
            }
        }
        let ready = readable_among(&fds, timeouts.into_iter().min())?;
        let speaking = polled.into_iter().zip(&ready[first..]);
        let speaking = speaking.filter_map(|(at, ready)| ready.then_some(at));
        let mut connections: Vec<_> = speaking.collect();
        if ready[1] {
            self.answered.clear();
            let waiting = self.connections.iter().enumerate();
            connections.extend(waiting.filter_map(|(at, one)| one.awaits_hub().then_some(at)));
            connections.sort_unstable();
        }
        Ok(Ready {
            is_closing: ready[0],
            has_arrivals: accepts && ready[2],
            connections,
        })
    }

    fn serve(&mut self, ready: &Ready, buffer: &mut [u8]) {
        let now = Instant::now();
        let limits = self.hub.limits();
        self.rates.allow(limits.requests_per_second);
        self.update_classes();
        // From the last index down: the end of a connection moves no connection that is still to come.
        for at in ready.connections.iter().rev() {
            let connection = &mut self.connections[*at];
            if !connection.awaits_hub() {
                self.rates.count(connection.uid(), now);
            }
            let (awaited, uid) = (connection.awaits_rules(), connection.uid());
            let stay = connection.serve(buffer);
            self.rates.count_many(uid, connection.take_cost(), now);
            if connection.awaits_rules() && !awaited {
                self.rates.count_many(uid, COST_OF_A_CHANGE - 1, now);
            }
            if stay == Stay::Leave {
                self.end(*at);
            }
        }
        for at in (0..self.connections.len()).rev() {
            let connection = &self.connections[at];
            let left = connection.left_for_hello(&limits, now);
            if left.is_some_and(|left| left.is_zero()) {
                connection.refuse("the hub got no hello in time (limits.hello_seconds)");
                self.end(at);
            }
        }
        if ready.has_arrivals {
            self.accept();
        }
    }

    /// Decides again what the users of all connections may do, if the groups have changed.
    fn update_classes(&mut self) {
        let edition = self.hub.edition();
        if self.edition == edition {
            return;
        }
        self.edition = edition;
        let classes = self.connections.iter().map(|one| self.class(one.peer()));
        let classes: Vec<_> = classes.collect();
        for (connection, class) in self.connections.iter_mut().zip(classes) {
            connection.class = class;
        }
    }

    /// Ends a connection and its subscription.
    fn end(&mut self, at: usize) {
        let mut connection = self.connections.swap_remove(at);
        connection.leave();
        if connection.may_hold_descriptors() {
            let (uid, class) = (connection.uid(), connection.class);
            self.leaving.close(uid, class, connection);
        }
    }

    fn accept(&mut self) {
        for _ in 0..MAX_ARRIVALS {
            let socket = match self.listener.accept() {
                Ok(Some(socket)) => socket,
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!("cannot accept a reader: {error}");
                    // No descriptor is free: another connection must end first.
                    self.accepts_from = Instant::now() + NO_DESCRIPTOR_PAUSE;
                    return;
                }
            };
            let peer = match Peer::from_socket(&socket) {
                Ok(peer) => peer,
                Err(error) => {
                    tracing::warn!("the kernel does not name a reader's process: {error}");
                    self.leaving.close(u32::MAX, UserClass::Stranger, socket);
                    continue;
                }
            };
            let class = self.class(&peer);
            let open = self.connections.iter().map(|one| (one.uid(), one.class));
            let open = Occupancy::from_connections(open.chain(self.leaving.users()));
            if let Err(refusal) = open.admit(&self.hub.limits(), peer.uid, class) {
                tracing::warn!(pid = peer.pid, uid = peer.uid, "{refusal}");
                connection::refuse_connection(&socket, &refusal.to_string());
                if !socket.refuses_descriptors() {
                    self.leaving.close(peer.uid, class, socket);
                }
                continue;
            }
            self.connections.push(ClientConnection::new(
                Box::new(socket),
                peer,
                class,
                self.hub.clone(),
                self.answered.clone(),
                &self.options,
            ));
        }
    }

    fn class(&self, peer: &Peer) -> UserClass {
        let hub_uid = Peer::this_process().uid;
        if AccessList::default().allows(peer, hub_uid) {
            return UserClass::Own;
        }
        let is_viewer = self.options.viewers.allows(peer, hub_uid);
        if is_viewer || self.hub.may_attach(peer) {
            UserClass::Member
        } else {
            UserClass::Stranger
        }
    }
}
