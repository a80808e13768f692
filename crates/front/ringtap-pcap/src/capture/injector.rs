// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends packets of a handle, and recognises them among the captured packets.
//!
//! The kernel shows a sent packet to all packet sockets except the one that sent it. So a libpcap
//! handle does not see its own packets, and a program that forwards between two handles makes no
//! loop. Ringtap captures all sent packets, so the handle leaves its own out.
//!
//! Invariants
//! - One sent packet hides at most one captured packet: an outgoing packet of the same length and
//!   first bytes, captured at about the time of sending.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use ringtap_ipc::mutex::lock;
use ringtap_ipc::time::now_ns;
use ringtap_net::packet_socket;
use rustix::net::SendFlags;

use crate::error::LibpcapError;

/// Most packets remembered; one more replaces the oldest.
const MOST: usize = 8192;
/// Bytes remembered of each packet.
const PREFIX_BYTES: usize = 64;
/// Longest time in nanoseconds between sending and capture: a packet socket captures behind the
/// interface's queue.
const SLACK_NS: u64 = 50_000_000;

struct SentPacket {
    from_ns: u64,
    until_ns: u64,
    size: usize,
    prefix: [u8; PREFIX_BYTES],
}

/// Reason why a handle cannot send.
#[derive(Debug, thiserror::Error)]
enum NoSocket {
    #[error("{capture} has no single interface to send by")]
    NoInterface { capture: String },
    #[error("{interface}: sending needs CAP_NET_RAW")]
    NoRights { interface: String },
    #[error("{interface}: opening a packet socket: {error}")]
    System { interface: String, error: io::Error },
}

/// Sends the packets of a handle.
pub(super) struct Injector {
    /// Opened early, as a program may give up its rights later.
    socket: Result<OwnedFd, NoSocket>,
    sent: Mutex<VecDeque<SentPacket>>,
    has_sent: AtomicBool,
}

impl Injector {
    /// Sends on the interface of the capture `name`, if that has exactly one.
    pub(super) fn new(name: &str, interface: Option<&str>) -> Self {
        let socket = match interface {
            Some(interface) => open_socket(interface),
            None => Err(NoSocket::NoInterface {
                capture: name.to_owned(),
            }),
        };
        Injector {
            socket,
            sent: Mutex::new(VecDeque::new()),
            has_sent: AtomicBool::new(false),
        }
    }

    /// Sends a packet unchanged; returns the number of bytes sent.
    pub(super) fn send(&self, packet: &[u8]) -> Result<usize, LibpcapError> {
        let socket = self.socket.as_ref();
        let socket = socket.map_err(|why| LibpcapError::general(why.to_string()))?;
        // Locked while the packet is sent: a reader that captures it meanwhile waits for its entry.
        let mut all = lock(&self.sent);
        self.has_sent.store(true, Relaxed);
        let from_ns = now_ns();
        let sent = rustix::net::send(socket, packet, SendFlags::empty())
            .map_err(|error| LibpcapError::general(format!("send: {}", system_text(error))))?;
        if all.len() == MOST {
            all.pop_front();
        }
        all.push_back(SentPacket {
            from_ns,
            until_ns: now_ns(),
            size: packet.len(),
            prefix: prefix(packet),
        });
        Ok(sent)
    }

    /// Whether this handle has sent anything.
    pub(super) fn has_sent(&self) -> bool {
        // Set before the packet is sent, so before it is captured.
        self.has_sent.load(Relaxed)
    }

    /// Whether this handle sent the outgoing packet of `size` bytes captured at `time_ns`. Call this once
    /// for each packet.
    #[inline]
    pub(super) fn sent(&self, time_ns: u64, size: u32, captured: &[u8]) -> bool {
        self.has_sent() && self.take(time_ns, size, captured)
    }

    fn take(&self, time_ns: u64, size: u32, captured: &[u8]) -> bool {
        let mut all = lock(&self.sent);
        let captured = &captured[..captured.len().min(PREFIX_BYTES)];
        let is_it = |sent: &SentPacket| {
            let times = sent.from_ns.saturating_sub(SLACK_NS)..=sent.until_ns + SLACK_NS;
            u32::try_from(sent.size) == Ok(size)
                && times.contains(&time_ns)
                && sent.prefix.starts_with(captured)
        };
        let Some(at) = all.iter().position(is_it) else {
            return false;
        };
        all.remove(at);
        true
    }
}

/// Opens a packet socket that sends on this interface and receives nothing.
fn open_socket(interface: &str) -> Result<OwnedFd, NoSocket> {
    packet_socket::open_by_name(interface).map_err(|error| {
        let interface = interface.to_owned();
        match error.kind() {
            io::ErrorKind::PermissionDenied => NoSocket::NoRights { interface },
            _ => NoSocket::System { interface, error },
        }
    })
}

fn prefix(packet: &[u8]) -> [u8; PREFIX_BYTES] {
    let mut prefix = [0; PREFIX_BYTES];
    let length = packet.len().min(PREFIX_BYTES);
    prefix[..length].copy_from_slice(&packet[..length]);
    prefix
}

/// The system's text for an error, without the error number, as libpcap prints it.
fn system_text(error: rustix::io::Errno) -> String {
    let text = io::Error::from(error).to_string();
    match text.rsplit_once(" (os error ") {
        Some((words, _)) => words.to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn having_sent(packets: &[&[u8]]) -> Injector {
        let injector = Injector::new("hub:web", None);
        for packet in packets {
            injector.sent.lock().unwrap().push_back(SentPacket {
                from_ns: 1_000_000_000,
                until_ns: 1_000_100_000,
                size: packet.len(),
                prefix: prefix(packet),
            });
        }
        injector.has_sent.store(true, Relaxed);
        injector
    }

    #[test]
    fn a_packet_that_was_sent_hides_one_packet_and_no_other() {
        let injector = having_sent(&[b"first", b"second", b"second"]);
        let at = 1_000_050_000;
        assert!(!injector.sent(at, 5, b"other"));
        assert!(!injector.sent(at, 6, b"first"));
        assert!(!injector.sent(at + 2 * SLACK_NS, 5, b"first"));
        assert!(!injector.sent(at - 2 * SLACK_NS, 5, b"first"));
        assert!(injector.sent(at, 6, b"second"));
        assert!(injector.sent(at, 5, b"first"));
        assert!(!injector.sent(at, 5, b"first"));
        // Cut by a snap length.
        assert!(injector.sent(at, 6, b"sec"));
        assert!(!injector.sent(at, 6, b"second"));
    }

    #[test]
    fn what_cannot_be_sent_is_refused_with_the_reason() {
        let refused = |interface| {
            let injector = Injector::new("hub:web", interface);
            injector.send(b"x").unwrap_err().text
        };
        let why = refused(Some("no interface has this name"));
        assert!(why.contains("no interface has this name: opening"), "{why}");
        assert!(refused(None).contains("hub:web has no single interface"));
        assert_eq!(system_text(rustix::io::Errno::MSGSIZE), "Message too long");
    }
}
