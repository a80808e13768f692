// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hub's server: a thread that serves readers of other processes over the UNIX socket.
//!
//! Invariants
//! - A reader's messages can at worst end the reader's own connection.
//! - The end of a connection ends its subscription.
//! - The server never waits for a reader: it closes the connection of a reader that does not take
//!   replies.
#![forbid(unsafe_code)]

mod admission;
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
use admission::{Occupancy, UserClass};
use connection::{ClientConnection, Stay};
pub use one::{refuse, serve_one};

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
            connections, hub, ..
        } = self;
        let mut at = 0;
        connections.retain_mut(|connection| {
            at += 1;
            let speaks = ready.get(at + 1).copied().unwrap_or(false);
            !speaks || connection.serve(hub, buffer) == Stay::Here
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
            let class = self.class(&peer);
            let open = self.connections.iter();
            let open = Occupancy::of(open.map(|one| (one.uid(), one.class)));
            if let Err(refusal) = open.admit(self.hub.limits(), peer.uid, class) {
                tracing::warn!(pid = peer.pid, uid = peer.uid, "{refusal}");
                connection::refuse_connection(&socket, &refusal);
                continue;
            }
            let (hub, verdicts) = (self.hub.clone(), self.verdicts.clone());
            self.connections.push(ClientConnection::new(
                Box::new(socket),
                peer,
                class,
                hub,
                verdicts,
            ));
        }
    }

    fn class(&self, peer: &Peer) -> UserClass {
        let hub_uid = Peer::this_process().uid;
        if Access::default().allows(peer, hub_uid) {
            return UserClass::Own;
        }
        match self.access.iter().any(|one| one.allows(peer, hub_uid)) {
            true => UserClass::Member,
            false => UserClass::Stranger,
        }
    }
}
