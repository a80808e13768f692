// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hub's server answers or ends a connection with random messages, and still serves others.

use std::time::Instant;

use ringtap_hub::server::{Server, ServerOptions};
use ringtap_hub::{Group, Hub, HubOptions};
use ringtap_ipc::protocol::{Reply, decode};
use ringtap_ipc::socket::{Listener, Socket};
use ringtap_ipc::transport::{MAX_BYTES, Transport as _};
use ringtap_testkit::LIMIT;
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use crate::fed::FedSource;

pub(crate) const HELLO: &[u8] = br#"{"ask":"hello","protocol":1,"name":"hostile"}"#;
pub(crate) const ATTACH: &[u8] = br#"{"ask":"attach","group":"all"}"#;
pub(crate) const STATUS: &[u8] = br#"{"ask":"status"}"#;

/// The next answer; `None` if the hub closed the connection.
pub(crate) fn ask(socket: &Socket, message: &[u8]) -> Option<Reply> {
    socket.send(message, &[]).ok()?;
    let mut buffer = vec![0; MAX_BYTES];
    match socket.receive(&mut buffer) {
        Ok(([], _)) => None,
        Ok((bytes, _)) => Some(decode(bytes).expect("a hub's answer is of the protocol")),
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => None,
        Err(error) => panic!("the hub does not answer: {error}"),
    }
}

/// A hub of a source without packets.
pub(crate) fn quiet_hub() -> Hub {
    let started = Hub::start(
        vec![FedSource::quiet()],
        vec![Group::new("all")],
        HubOptions::default(),
        Vec::new(),
    );
    started.expect("a hub starts").0
}

pub(crate) fn connect(listener_path: &std::path::Path) -> Socket {
    let socket = Socket::connect(listener_path).expect("the hub listens");
    set_socket_timeout(&socket, Timeout::Recv, Some(LIMIT)).expect("a socket");
    socket
}

/// The first byte selects the valid messages to begin with; the rest are messages, one per line.
pub(crate) fn run(bytes: &[u8]) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("hub.sock");
    let hub = quiet_hub();
    let listener = Listener::bind(&path).expect("a socket");
    let _server = Server::open(listener, &hub, ServerOptions::default()).expect("a thread");
    let (how, lines) = bytes.split_first().unwrap_or((&0, &[]));
    let hostile = connect(&path);
    for (bit, message) in [(1, HELLO), (2, ATTACH)] {
        if how & bit != 0 {
            let _answer = ask(&hostile, message);
        }
    }
    for line in lines.split(|byte| *byte == b'\n') {
        if ask(&hostile, line).is_none() {
            break;
        }
    }
    let other = connect(&path);
    assert!(matches!(ask(&other, HELLO), Some(Reply::Hello { .. })));
    drop(hostile);
    let until = Instant::now() + LIMIT;
    while let Some(Reply::Status(status)) = ask(&other, STATUS) {
        if status.readers.is_empty() {
            return;
        }
        assert!(Instant::now() < until, "a subscription was not given back");
    }
    panic!("the hub tells no status any more");
}
