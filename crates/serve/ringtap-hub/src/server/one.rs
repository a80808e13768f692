// SPDX-License-Identifier: MIT OR Apache-2.0
//! Serves a single reader over a connection that exists already.

use std::io;
use std::os::fd::AsFd as _;
use std::time::Duration;

use ringtap_ipc::event::{Event, sleep_until_readable};
use ringtap_ipc::peer::Peer;
use ringtap_ipc::transport::{MAX_BYTES, Transport};

use super::ServerOptions;
use super::admission::UserClass;
use super::connection::{self, ClientConnection, Stay};
use crate::hub::Hub;

/// Longest wait for a refused reader to read the refusal.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves the reader at the other end, the process `peer`, until it leaves.
///
/// # Errors
///
/// The system's, when it cannot wait for `transport`.
pub fn serve_one(transport: Box<dyn Transport>, peer: Peer, hub: &Hub) -> io::Result<()> {
    let answered = Event::new()?;
    let (handle, event) = (hub.handle().clone(), answered.clone());
    let options = ServerOptions::default();
    let mut connection =
        ClientConnection::new(transport, peer, UserClass::Own, handle, event, &options);
    let mut buffer = vec![0; MAX_BYTES];
    loop {
        let next = if connection.awaits_hub() {
            answered.as_fd()
        } else {
            connection.as_fd()
        };
        let ready = sleep_until_readable(&[next], None)?;
        answered.clear();
        if ready && connection.serve(&mut buffer) == Stay::Leave {
            return Ok(());
        }
    }
}

/// Tells the reader at the other end why it is refused, and waits until the reader has read that.
pub fn refuse(transport: &dyn Transport, message: &str) {
    connection::refuse_connection(transport, message);
    // The reader sends its first request in any case; closing before that would lose the refusal.
    let _received = sleep_until_readable(&[transport.fd()], Some(REFUSAL_TIMEOUT));
    let _asked = transport.receive(&mut vec![0; MAX_BYTES]);
}
