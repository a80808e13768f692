// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hub's door: a thread that talks to readers of other processes over the UNIX socket.
//!
//! Invariants
//! - Whatever comes from a reader can at worst end its own connection.
//! - A connection that ends, however it ends, gives its seat back.
//! - The door never waits for a reader: who does not take its answers is shown out.
#![forbid(unsafe_code)]

mod guest;
mod one;

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use ringtap_ipc::event::{Event, readable_among};
use ringtap_ipc::peer::Peer;
use ringtap_ipc::socket::{Listener, MOST_BYTES};
use ringtap_ipc::verdict::Bench;
use ringtap_pool::wake::Signal;

use crate::access::Access;
use crate::hub::{Handle, Hub};
use guest::{Guest, Stay};
pub use one::{refuse, serve_one};

/// Connections at once, of all users.
const MOST_GUESTS: usize = 512;
/// Connections at once of one user who is neither root nor the hub's own.
const MOST_OF_ONE_USER: usize = 64;

/// An open door; it closes when this is dropped.
pub struct Door {
    closing: Event,
    thread: Option<JoinHandle<()>>,
}

struct Doorkeeper {
    listener: Listener,
    hub: Handle,
    access: Vec<Access>,
    bench: Option<Arc<Bench>>,
    closing: Event,
    guests: Vec<Guest>,
}

impl Door {
    /// Lets readers in that connect to this socket. `access` says who may ask for the status:
    /// whoever may attach to one of the groups.
    ///
    /// # Errors
    ///
    /// The system's: no thread, no descriptor.
    pub fn open(listener: Listener, hub: &Hub, access: Vec<Access>) -> io::Result<Self> {
        Door::with_bench(listener, hub, access, None)
    }

    /// The same for a bridge, whose judge sits at `bench`.
    ///
    /// # Errors
    ///
    /// As for [`Door::open`].
    pub fn with_bench(
        listener: Listener,
        hub: &Hub,
        access: Vec<Access>,
        bench: Option<Arc<Bench>>,
    ) -> io::Result<Self> {
        let closing = Event::new()?;
        let keeper = Doorkeeper {
            listener,
            hub: hub.handle().clone(),
            access,
            bench,
            closing: closing.clone(),
            guests: Vec::new(),
        };
        let thread = std::thread::Builder::new()
            .name("door".into())
            .spawn(move || keeper.run())?;
        Ok(Door {
            closing,
            thread: Some(thread),
        })
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.closing.signal();
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

impl Doorkeeper {
    fn run(mut self) {
        let mut buffer = vec![0; MOST_BYTES];
        loop {
            match self.wait() {
                Ok(ready) if ready[0] => return,
                Ok(ready) => self.serve(&ready, &mut buffer),
                Err(error) => {
                    tracing::error!("the hub's door cannot wait: {error}");
                    return;
                }
            }
        }
    }

    /// Which of these have something to say: the closing, the listener, each guest.
    fn wait(&self) -> io::Result<Vec<bool>> {
        let guests = self.guests.iter().map(AsFd::as_fd);
        let fds = [self.closing.as_fd(), self.listener.as_fd()];
        let fds: Vec<_> = fds.into_iter().chain(guests).collect();
        readable_among(&fds, None)
    }

    fn serve(&mut self, ready: &[bool], buffer: &mut [u8]) {
        let Doorkeeper {
            guests,
            hub,
            access,
            ..
        } = self;
        let mut at = 0;
        guests.retain_mut(|guest| {
            at += 1;
            let speaks = ready.get(at + 1).copied().unwrap_or(false);
            !speaks || guest.serve(hub, access, buffer) == Stay::Here
        });
        if ready[1] {
            self.let_in();
        }
    }

    fn let_in(&mut self) {
        loop {
            let socket = match self.listener.accept() {
                Ok(Some(socket)) => socket,
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!("cannot let a reader in: {error}");
                    // Out of descriptors: somebody must leave first.
                    std::thread::sleep(std::time::Duration::from_millis(100));
                    return;
                }
            };
            let Ok(peer) = Peer::of(&socket) else {
                continue;
            };
            let own = [0, Peer::this_process().uid].contains(&peer.uid);
            let of_user = self
                .guests
                .iter()
                .filter(|guest| guest.uid() == peer.uid)
                .count();
            if self.guests.len() >= MOST_GUESTS || (!own && of_user >= MOST_OF_ONE_USER) {
                tracing::warn!(pid = peer.pid, uid = peer.uid, "too many connections");
                guest::turn_away(&socket, "the hub has as many connections as it allows");
                continue;
            }
            let (hub, bench) = (self.hub.clone(), self.bench.clone());
            self.guests.push(Guest::new(socket, peer, hub, bench));
        }
    }
}
