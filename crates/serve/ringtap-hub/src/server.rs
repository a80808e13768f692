// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hub's server: a thread that serves readers of other processes over the UNIX socket.
//!
//! Invariants
//! - A reader's messages can at worst end the reader's own connection.
//! - The end of a connection ends its subscription.
//! - The server never waits for a reader: it closes the connection of a reader that does not take
//!   replies.
#![forbid(unsafe_code)]

mod connection;
mod one;

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use ringtap_ipc::event::{Event, readable_among};
use ringtap_ipc::peer::Peer;
use ringtap_ipc::socket::Listener;
use ringtap_ipc::transport::MOST_BYTES;
use ringtap_ipc::verdict::VerdictChannel;
use ringtap_pool::wake::Signal;

use crate::access::Access;
use crate::hub::{Handle, Hub};
use connection::{ClientConnection, Stay};
pub use one::{refuse, serve_one};

/// Most connections at one time.
const MOST_CONNECTIONS: usize = 512;
/// Most connections at one time of one user that is neither root nor the hub's own user.
const MOST_OF_ONE_USER: usize = 64;

/// An open server, which closes when this is dropped.
pub struct Server {
    closing: Event,
    thread: Option<JoinHandle<()>>,
}

struct Acceptor {
    listener: Listener,
    hub: Handle,
    access: Vec<Access>,
    verdicts: Option<Arc<VerdictChannel>>,
    closing: Event,
    connections: Vec<ClientConnection>,
}

impl Server {
    /// Serves readers that connect to this socket. The users in `access`, those of all groups, may ask
    /// for the status.
    ///
    /// # Errors
    ///
    /// The system's, when no thread or descriptor is free.
    pub fn open(listener: Listener, hub: &Hub, access: Vec<Access>) -> io::Result<Self> {
        Server::with_verdicts(listener, hub, access, None)
    }

    /// As [`Server::open`], for a bridge that uses this verdict channel.
    ///
    /// # Errors
    ///
    /// As for [`Server::open`].
    pub fn with_verdicts(
        listener: Listener,
        hub: &Hub,
        access: Vec<Access>,
        verdicts: Option<Arc<VerdictChannel>>,
    ) -> io::Result<Self> {
        let closing = Event::new()?;
        let acceptor = Acceptor {
            listener,
            hub: hub.handle().clone(),
            access,
            verdicts,
            closing: closing.clone(),
            connections: Vec::new(),
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
            let _panicked = thread.join();
        }
    }
}

impl Acceptor {
    fn run(mut self) {
        let mut buffer = vec![0; MOST_BYTES];
        loop {
            match self.wait() {
                Ok(ready) if ready[0] => return,
                Ok(ready) => self.serve(&ready, &mut buffer),
                Err(error) => {
                    tracing::error!("the hub's server cannot wait: {error}");
                    return;
                }
            }
        }
    }

    /// Waits; returns which of these are ready: the server's end, the listener, each connection.
    fn wait(&self) -> io::Result<Vec<bool>> {
        let connections = self.connections.iter().map(AsFd::as_fd);
        let fds = [self.closing.as_fd(), self.listener.as_fd()];
        let fds: Vec<_> = fds.into_iter().chain(connections).collect();
        readable_among(&fds, None)
    }

    fn serve(&mut self, ready: &[bool], buffer: &mut [u8]) {
        let Acceptor {
            connections,
            hub,
            access,
            ..
        } = self;
        let mut at = 0;
        connections.retain_mut(|connection| {
            at += 1;
            let speaks = ready.get(at + 1).copied().unwrap_or(false);
            !speaks || connection.serve(hub, access, buffer) == Stay::Here
        });
        if ready[1] {
            self.accept();
        }
    }

    fn accept(&mut self) {
        loop {
            let socket = match self.listener.accept() {
                Ok(Some(socket)) => socket,
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!("cannot accept a reader: {error}");
                    // No descriptor is free: another connection must end first.
                    std::thread::sleep(std::time::Duration::from_millis(100));
                    return;
                }
            };
            let Ok(peer) = Peer::of(&socket) else {
                continue;
            };
            let own = [0, Peer::this_process().uid].contains(&peer.uid);
            let of_user = self
                .connections
                .iter()
                .filter(|connection| connection.uid() == peer.uid)
                .count();
            if !has_room(self.connections.len(), (!own).then_some(of_user)) {
                tracing::warn!(pid = peer.pid, uid = peer.uid, "too many connections");
                connection::refuse_connection(
                    &socket,
                    "the hub has as many connections as it allows",
                );
                continue;
            }
            let (hub, verdicts) = (self.hub.clone(), self.verdicts.clone());
            self.connections
                .push(ClientConnection::new(Box::new(socket), peer, hub, verdicts));
        }
    }
}

/// Whether the server accepts a further connection, given the number of all connections and of the
/// same user's (absent: the user has no limit).
fn has_room(connections: usize, of_user: Option<usize>) -> bool {
    connections < MOST_CONNECTIONS && of_user.is_none_or(|of_user| of_user < MOST_OF_ONE_USER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_limited_together_and_for_each_user() {
        assert!(has_room(MOST_CONNECTIONS - 1, None));
        assert!(!has_room(MOST_CONNECTIONS, None));
        assert!(has_room(MOST_OF_ONE_USER, Some(MOST_OF_ONE_USER - 1)));
        assert!(!has_room(MOST_OF_ONE_USER, Some(MOST_OF_ONE_USER)));
        assert!(has_room(MOST_OF_ONE_USER, None));
        assert!(!has_room(MOST_CONNECTIONS, Some(0)));
    }
}
