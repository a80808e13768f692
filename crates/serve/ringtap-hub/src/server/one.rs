// SPDX-License-Identifier: MIT OR Apache-2.0
//! A hub for one reader only, over a connection that is there already.
#![forbid(unsafe_code)]

use std::io;
use std::os::fd::AsFd as _;
use std::time::Duration;

use ringtap_ipc::event::sleep_until_readable;
use ringtap_ipc::peer::Peer;
use ringtap_ipc::socket::{MOST_BYTES, Socket};

use super::connection::{self, ClientConnection, Stay};
use crate::hub::Hub;

/// How long who was refused may take to hear it.
const PATIENCE: Duration = Duration::from_secs(10);

/// Serves the reader at the other end until it leaves, however it does.
///
/// # Errors
///
/// The system's: `socket` is no connection, or cannot be waited for.
pub fn serve_one(socket: Socket, hub: &Hub) -> io::Result<()> {
    let peer = Peer::of(&socket)?;
    let mut connection = ClientConnection::new(socket, peer, hub.handle().clone(), None);
    let mut buffer = vec![0; MOST_BYTES];
    loop {
        let ready = sleep_until_readable(&[connection.as_fd()], None)?;
        if ready && connection.serve(hub.handle(), &[], &mut buffer) == Stay::Leave {
            return Ok(());
        }
    }
}

/// Tells the reader at the other end why it cannot be served, and waits until it heard it.
pub fn refuse(socket: &Socket, message: &str) {
    connection::turn_away(socket, message);
    // Its first question comes in any case: closing before would lose the answer.
    let _heard = sleep_until_readable(&[socket.as_fd()], Some(PATIENCE));
    let _asked = socket.receive(&mut vec![0; MOST_BYTES]);
}
