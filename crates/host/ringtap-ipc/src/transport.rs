// SPDX-License-Identifier: MIT OR Apache-2.0
//! Message channel between a hub and a reader.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Most bytes of one message: room for a filter of 4,096 instructions.
pub const MAX_BYTES: usize = 128 * 1024;
/// Most descriptors with one message.
pub const MAX_FDS: usize = 64;

/// One end of a channel that carries whole messages in order, and optionally descriptors.
///
/// [`Socket`](crate::socket::Socket) connects processes of one host.
pub trait Transport: Send + Sync {
    /// Sends one message with descriptors.
    ///
    /// # Errors
    ///
    /// The system's; [`io::ErrorKind::WouldBlock`] if this end does not wait and the other end does
    /// not read.
    fn send(&self, message: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()>;

    /// Receives one message into `buffer` (of [`MAX_BYTES`]); no bytes when the other end has left.
    ///
    /// # Errors
    ///
    /// The system's; [`io::ErrorKind::WouldBlock`] if this end does not wait and there is no message;
    /// [`io::ErrorKind::InvalidData`] for a message longer than `buffer`.
    fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<(&'a [u8], Vec<OwnedFd>)>;

    /// Descriptor that is readable when there is a message or the other end has left.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Descriptor that hangs up when the other end leaves, if the channel has one.
    fn hang_up(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Whether the other end cannot send descriptors through this channel.
    fn refuses_descriptors(&self) -> bool {
        false
    }

    /// Ends the channel for the other end, even if another process has a copy of this end.
    fn finish(&self);
}
