// SPDX-License-Identifier: MIT OR Apache-2.0
//! CTRL: messages over a virtio-serial port, the same at both ends.
//!
//! Invariants
//! - Neither end waits here: what the other end does not take stays in a queue of fixed size.
#![forbid(unsafe_code)]

pub mod frame;
pub mod message;

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use ringtap_ipc::event::has_left;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use frame::Deframer;
use message::Message;

/// Name of an application's virtio-serial port, for which the agent in the guest looks.
#[must_use]
pub fn port_name(application: &str) -> String {
    format!("vnplug.{application}")
}

/// The protocol version of this crate.
pub const VERSION: u8 = 1;

/// Most bytes that one call of [`Channel::receive`] reads.
const READ_BYTES: usize = 16 * 1024;

/// One end of the command port: on the host a socket that QEMU connects to the port, in the guest a
/// character device. Neither waits.
pub(crate) struct Channel {
    port: OwnedFd,
    deframer: Deframer,
    outgoing: Vec<u8>,
    max_outgoing: usize,
    refused: u64,
}

impl Channel {
    pub(crate) fn new(port: OwnedFd, max_outgoing: usize) -> Self {
        Channel {
            port,
            deframer: Deframer::default(),
            outgoing: Vec::new(),
            max_outgoing,
            refused: 0,
        }
    }

    /// Sends what the port takes, then receives; returns `false` when the port is closed or broken.
    pub(crate) fn exchange(&mut self, into: &mut Vec<Message>) -> bool {
        self.flush().is_ok() && self.receive(into).unwrap_or(false)
    }

    /// Appends the messages that have arrived, of at most 16 KiB of bytes; returns `false` when the
    /// other end has closed the port.
    fn receive(&mut self, into: &mut Vec<Message>) -> io::Result<bool> {
        let mut bytes = [0; READ_BYTES];
        let read = match rustix::io::read(&self.port, &mut bytes) {
            Ok(0) => return Ok(false),
            Ok(read) => read,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(true),
            Err(error) => return Err(error.into()),
        };
        let mut rest = bytes.get(..read).unwrap_or_default();
        while let Some(body) = self.deframer.next(&mut rest) {
            match Message::decode(&body) {
                Ok(message) => into.push(message),
                Err(_) => self.refused += 1,
            }
        }
        Ok(true)
    }

    /// Queues a message and sends what the port takes; `false` if the queue has no room for it.
    pub(crate) fn send(&mut self, message: &Message) -> io::Result<bool> {
        let frame = frame::encode(&message.encode());
        if self.outgoing.len() + frame.len() > self.max_outgoing {
            self.flush()?;
        }
        if self.outgoing.len() + frame.len() > self.max_outgoing {
            return Ok(false);
        }
        self.outgoing.extend(frame);
        self.flush()?;
        Ok(true)
    }

    /// Sends what the port takes of the queue.
    fn flush(&mut self) -> io::Result<()> {
        while !self.outgoing.is_empty() {
            match rustix::io::write(&self.port, &self.outgoing) {
                Ok(0) | Err(Errno::AGAIN) => break,
                Ok(written) => drop(self.outgoing.drain(..written)),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Discards what was not sent yet. The receiver drops a message that was cut.
    pub(crate) fn discard(&mut self) {
        self.outgoing.clear();
    }

    /// The port, for a sleep until [`Channel::exchange`] can do something.
    pub(crate) fn poll(&self) -> PollFd<'_> {
        let flags = if self.outgoing.is_empty() {
            PollFlags::IN
        } else {
            PollFlags::IN | PollFlags::OUT
        };
        PollFd::new(&self.port, flags)
    }

    /// Whether the other end of a port that is a socket has closed it.
    pub(crate) fn has_left(&self) -> bool {
        has_left(self.port.as_fd())
    }

    /// Frames and messages that were damaged or of an unknown form.
    pub(crate) fn refused(&self) -> u64 {
        self.refused + self.deframer.damaged()
    }
}

#[cfg(test)]
mod tests;
