// SPDX-License-Identifier: MIT OR Apache-2.0
//! Datagrams or a connection to a collector, and which messages it certainly did not get.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use super::protocol::Collector;
use crate::export::{ExportError, FlowSum};

/// Longest wait for a connection.
pub(super) const CONNECT: Duration = Duration::from_secs(2);
/// Pause between two attempts to connect.
pub(super) const AGAIN: Duration = Duration::from_secs(1);
/// Longest wait for a collector that does not read.
pub(super) const STALLED: Duration = Duration::from_secs(5);

/// A socket to a collector.
pub(super) struct CollectorSocket {
    collector: Collector,
    state: State,
}

enum State {
    Udp {
        socket: UdpSocket,
        /// Flows in the message that was sent last.
        last: FlowSum,
    },
    Connected(TcpStream),
    /// No attempt to connect before this time.
    Broken(Instant),
}

/// Outcome of sending a message.
pub(super) enum SendOutcome {
    /// As far as the socket can tell, it arrives.
    All,
    /// The flows that are lost, not necessarily of this message.
    Lost(FlowSum, ExportError),
}

impl CollectorSocket {
    pub(super) fn new(collector: Collector) -> io::Result<Self> {
        let state = match collector {
            Collector::Tcp(_) => State::Broken(Instant::now()),
            Collector::Udp(address) => {
                let any: SocketAddr = match address {
                    SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
                    SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
                };
                let socket = UdpSocket::bind(any)?;
                socket.connect(address)?;
                State::Udp {
                    socket,
                    last: FlowSum::default(),
                }
            }
        };
        Ok(CollectorSocket { collector, state })
    }

    pub(super) fn collector(&self) -> Collector {
        self.collector
    }

    /// Connects if there is no connection; returns whether it is a new one.
    pub(super) fn connect(&mut self) -> Result<bool, ExportError> {
        let Collector::Tcp(address) = self.collector else {
            return Ok(false);
        };
        if let State::Connected(stream) = &mut self.state {
            if is_open(stream) {
                return Ok(false);
            }
            self.state = State::Broken(Instant::now());
        }
        if let State::Broken(until) = self.state
            && Instant::now() < until
        {
            return Err(self.failed("no connection"));
        }
        match open(address) {
            Ok(stream) => {
                self.state = State::Connected(stream);
                Ok(true)
            }
            Err(error) => {
                self.state = State::Broken(Instant::now() + AGAIN);
                Err(self.failed(error))
            }
        }
    }

    /// Sends a message that holds these flows.
    pub(super) fn send(&mut self, message: &[u8], flows: FlowSum) -> SendOutcome {
        match &mut self.state {
            State::Udp { socket, last } => {
                let before = std::mem::replace(last, flows);
                let (lost, error) = match socket.send(message) {
                    Ok(_) => return SendOutcome::All,
                    // The answer to the message before; this one was not sent.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                        match socket.send(message) {
                            Ok(_) => (before, error),
                            Err(_) => (before + std::mem::take(last), error),
                        }
                    }
                    Err(error) => (std::mem::take(last), error),
                };
                SendOutcome::Lost(lost, self.failed(error))
            }
            State::Connected(stream) => match stream.write_all(message) {
                Ok(()) => SendOutcome::All,
                Err(error) => {
                    // A part of the message may have been sent: a further message could not be found.
                    self.state = State::Broken(Instant::now() + AGAIN);
                    SendOutcome::Lost(flows, self.failed(error))
                }
            },
            State::Broken(_) => SendOutcome::Lost(flows, self.failed("no connection")),
        }
    }

    fn failed(&self, reason: impl std::fmt::Display) -> ExportError {
        ExportError(format!(
            "{}: {reason}: is the collector running, and does it listen there?",
            self.collector
        ))
    }
}

fn open(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, CONNECT)?;
    stream.set_write_timeout(Some(STALLED))?;
    Ok(stream)
}

/// Whether the collector has not closed the connection; a collector sends nothing.
fn is_open(stream: &mut TcpStream) -> bool {
    let peeked = stream
        .set_nonblocking(true)
        .and_then(|()| stream.read(&mut [0; 512]));
    let blocking = stream.set_nonblocking(false);
    let nothing = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
    blocking.is_ok() && peeked.map_or_else(|error| nothing(&error), |bytes| bytes > 0)
}
