// SPDX-License-Identifier: MIT OR Apache-2.0
//! A hub's counters for Prometheus, over HTTP.
//!
//! Invariants
//! - Only addresses of this machine itself are served, unless the user says otherwise: the
//!   counters name processes and groups, and nobody is asked who he is.
//! - Whoever connects costs the hub one descriptor and one thread, however many they are and
//!   whatever they send: one is served at a time, for at most [`serve::PATIENCE`].
#![forbid(unsafe_code)]

mod exposition;
mod serve;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::thread::JoinHandle;

use ringtap_ipc::event::Event;
use ringtap_ipc::protocol::HubStatus;
use ringtap_pool::wake::Signal as _;

use serve::Service;

/// Who may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Processes of this machine.
    Loopback,
    /// Whoever the network lets through.
    Anywhere,
}

/// Why metrics cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ServeError {
    /// Others would see them.
    #[error(
        "metrics at {0} could be read by other machines: use 127.0.0.1:{port} or [::1]:{port}, or \
         say --metrics-anywhere", port = .0.port()
    )]
    NotLoopback(SocketAddr),
    /// The address cannot be had.
    #[error("metrics at {address}: {reason}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        reason: io::Error,
    },
    /// No thread, no descriptor.
    #[error("metrics cannot be served: {0}")]
    System(#[from] io::Error),
}

/// A running server; it ends when this is dropped.
pub(crate) struct Server {
    address: SocketAddr,
    closing: Event,
    thread: Option<JoinHandle<()>>,
}

/// Serves `GET /metrics` at this address; `status` is asked once for each request, and says
/// `None` once the hub is gone.
///
/// # Errors
///
/// Every [`ServeError`].
pub(crate) fn serve(
    address: SocketAddr,
    reach: Reach,
    status: impl Fn() -> Option<HubStatus> + Send + 'static,
) -> Result<Server, ServeError> {
    if reach == Reach::Loopback && !address.ip().to_canonical().is_loopback() {
        return Err(ServeError::NotLoopback(address));
    }
    let bind = |reason| ServeError::Bind { address, reason };
    let listener = TcpListener::bind(address).map_err(bind)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let closing = Event::new()?;
    let service = Service::new(listener, closing.clone(), Box::new(status));
    let thread = std::thread::Builder::new()
        .name("metrics".into())
        .spawn(move || service.run())?;
    Ok(Server {
        address,
        closing,
        thread: Some(thread),
    })
}

impl Server {
    /// Where it listens: the port is known even if 0 was asked for.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
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

/// An address to serve metrics at, as the user gives it.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let wrong = "want an IP address and a port, like 127.0.0.1:9464 or [::1]:9464";
    text.parse().map_err(|_| format!("\"{text}\": {wrong}"))
}

#[cfg(test)]
mod tests;
