// SPDX-License-Identifier: MIT OR Apache-2.0
//! The way out of a handle, and which packets of a capture it sent itself.
//!
//! The kernel shows what a packet socket sends to all packet sockets but that one, so a handle of
//! libpcap's does not see its own packets: a program that forwards between two handles would
//! otherwise forward them for ever. A capture sees all that leaves, so the handle leaves them out.
//!
//! Invariants
//! - Each packet that was sent hides one packet at most: one that leaves, has its length and its
//!   first bytes, and was captured while it was sent.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use ringtap_net::sending;
use rustix::net::SendFlags;

/// Packets that are remembered: those of a program that sends and does not read are forgotten,
/// the oldest first.
const MOST: usize = 8192;
/// Bytes of each that are remembered.
const PREFIX_BYTES: usize = 64;
/// How much earlier or later than it was sent a packet may have been captured: a packet socket
/// captures behind the queue of the interface.
const SLACK_NS: u64 = 50_000_000;

/// A packet that was sent, and when.
struct Sent {
    from_ns: u64,
    until_ns: u64,
    size: usize,
    prefix: [u8; PREFIX_BYTES],
}

/// What packets are sent by, and what was sent.
pub(crate) struct Outlet {
    /// Or why there is no way. Opened with the capture: a program may give up its rights later.
    socket: Result<OwnedFd, String>,
    sent: Mutex<VecDeque<Sent>>,
    has_sent: AtomicBool,
}

impl Outlet {
    /// Out of this interface.
    pub(crate) fn new(interface: &str) -> Self {
        Outlet {
            socket: sending::open_by_name(interface).map_err(|error| match error.kind() {
                ErrorKind::PermissionDenied => {
                    "sending needs CAP_NET_RAW: run with sudo, or give the program the capability"
                        .into()
                }
                _ => format!("opening a packet socket: {error}"),
            }),
            sent: Mutex::new(VecDeque::new()),
            has_sent: AtomicBool::new(false),
        }
    }

    /// Sends a packet as it is; how many bytes it had, or why not.
    pub(crate) fn send(&self, packet: &[u8]) -> Result<usize, String> {
        let socket = self.socket.as_ref().map_err(String::clone)?;
        // Held while it is sent: a reader that finds it meanwhile waits for its note.
        let mut all = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        self.has_sent.store(true, Relaxed);
        let from_ns = now_ns();
        let sent = rustix::net::send(socket, packet, SendFlags::empty())
            .map_err(|error| format!("send: {}", system_text(error)))?;
        if all.len() == MOST {
            all.pop_front();
        }
        all.push_back(Sent {
            from_ns,
            until_ns: now_ns(),
            size: packet.len(),
            prefix: prefix(packet),
        });
        Ok(sent)
    }

    /// Whether a packet that leaves, captured at `time_ns` and `size` bytes long, is one that was
    /// sent here; asked once for each packet.
    #[inline]
    pub(crate) fn sent(&self, time_ns: u64, size: u32, captured: &[u8]) -> bool {
        // Raised before the packet left, so before it was captured.
        self.has_sent.load(Relaxed) && self.take(time_ns, size, captured)
    }

    fn take(&self, time_ns: u64, size: u32, captured: &[u8]) -> bool {
        let mut all = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        let captured = &captured[..captured.len().min(PREFIX_BYTES)];
        let is_it = |sent: &Sent| {
            let while_sent = sent.from_ns.saturating_sub(SLACK_NS)..=sent.until_ns + SLACK_NS;
            u32::try_from(sent.size) == Ok(size)
                && while_sent.contains(&time_ns)
                && sent.prefix.starts_with(captured)
        };
        let Some(at) = all.iter().position(is_it) else {
            return false;
        };
        all.remove(at);
        true
    }
}

fn prefix(packet: &[u8]) -> [u8; PREFIX_BYTES] {
    let mut prefix = [0; PREFIX_BYTES];
    let length = packet.len().min(PREFIX_BYTES);
    prefix[..length].copy_from_slice(&packet[..length]);
    prefix
}

fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(0))
}

/// The system's words for an error, as libpcap has them: without its number.
fn system_text(error: rustix::io::Errno) -> String {
    let text = std::io::Error::from(error).to_string();
    match text.rsplit_once(" (os error ") {
        Some((words, _)) => words.to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn having_sent(packets: &[&[u8]]) -> Outlet {
        let outlet = Outlet::new("no interface has this name");
        for packet in packets {
            outlet.sent.lock().unwrap().push_back(Sent {
                from_ns: 1_000_000_000,
                until_ns: 1_000_100_000,
                size: packet.len(),
                prefix: prefix(packet),
            });
        }
        outlet.has_sent.store(true, Relaxed);
        outlet
    }

    #[test]
    fn a_packet_that_was_sent_hides_one_packet_and_no_other() {
        let outlet = having_sent(&[b"first", b"second", b"second"]);
        let at = 1_000_050_000;
        assert!(!outlet.sent(at, 5, b"other"));
        assert!(!outlet.sent(at, 6, b"first"));
        assert!(!outlet.sent(at + 2 * SLACK_NS, 5, b"first"));
        assert!(!outlet.sent(at - 2 * SLACK_NS, 5, b"first"));
        assert!(outlet.sent(at, 6, b"second"));
        assert!(outlet.sent(at, 5, b"first"));
        assert!(!outlet.sent(at, 5, b"first"));
        // Cut by a snap length.
        assert!(outlet.sent(at, 6, b"sec"));
        assert!(!outlet.sent(at, 6, b"second"));
    }

    #[test]
    fn without_a_way_out_the_reason_is_told() {
        let outlet = Outlet::new("no interface has this name");
        let why = outlet.send(b"x").unwrap_err();
        assert!(why.contains("finding the interface"), "{why}");
        assert_eq!(system_text(rustix::io::Errno::MSGSIZE), "Message too long");
    }
}
