// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends the packets of a program out of one interface, through AF_PACKET.

use std::sync::atomic::AtomicBool;

use super::batch::PacketBatch;
use super::counters::{Method, SendCounters};
use super::error::SendError;
use super::packet::{Qdisc, SendSocket};
use ringtap_net::interface::Interface;

/// Sends packets that a program has made.
///
/// # Examples
///
/// ```no_run
/// use std::sync::atomic::AtomicBool;
/// use ringtap_send::{PacketInjector, Qdisc};
///
/// let mut injector = PacketInjector::open("veth0", Qdisc::Use)?;
/// injector.send([&[0xff; 60][..]], &AtomicBool::new(false))?;
/// assert_eq!(injector.counters().sent, 1);
/// # Ok::<(), ringtap_send::SendError>(())
/// ```
pub struct PacketInjector {
    socket: SendSocket,
    interface: String,
}

impl PacketInjector {
    /// Opens an interface, by its name in the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// - [`SendError::Interface`]: no such interface, or it is down.
    /// - [`SendError::NoRights`], [`SendError::Kernel`].
    pub fn open(interface: &str, qdisc: Qdisc) -> Result<Self, SendError> {
        let found = Interface::find(interface)?;
        found.require_up()?;
        Ok(PacketInjector {
            socket: SendSocket::open(found.index, qdisc)?,
            interface: found.name,
        })
    }

    /// Sends packets in this order, waiting for room in the socket; ends early once `stop` is set.
    ///
    /// # Errors
    ///
    /// [`SendError::Interface`]: the interface went down or was removed. Other refusals are counted.
    pub fn send<'a>(
        &mut self,
        packets: impl IntoIterator<Item = &'a [u8]>,
        stop: &AtomicBool,
    ) -> Result<(), SendError> {
        let mut batch = PacketBatch::default();
        packets.into_iter().for_each(|packet| batch.push(packet));
        let Err(errno) = self.socket.send(&batch, 0, stop) else {
            return Ok(());
        };
        // Says what happened to the interface, if that is the reason.
        Interface::find(&self.interface)?.require_up()?;
        Err(SendError::Kernel {
            action: "sending packets",
            source: errno.into(),
        })
    }

    /// Counters of all packets so far.
    #[must_use]
    pub fn counters(&self) -> SendCounters {
        SendCounters {
            method: Method::Packet,
            ..self.socket.counters()
        }
    }
}
