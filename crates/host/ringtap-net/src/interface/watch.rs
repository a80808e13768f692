// SPDX-License-Identifier: MIT OR Apache-2.0
//! Watches one interface: set down, set up, carrier, name, removal; and waits for one that is missing.
//!
//! Invariants
//! - No polling: the kernel sends a message for each change.
//! - No change is missed: a query of the state finds changes from before the watch, and those lost
//!   by an overflow of the socket.
//! - `Removed` is the last change.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

use netlink_packet_core::NetlinkPayload;
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    link::{LinkFlags, LinkMessage},
};
use netlink_sys::{Socket, protocols::NETLINK_ROUTE};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Interface, InterfaceError, name_of};
use crate::netlink::{self, open, parse, receive};

/// `RTNLGRP_LINK`.
const GROUP_LINK: u32 = 1;

const ACTION: &str = "watching the interface";

/// A change of a watched interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum InterfaceChange {
    /// The interface is up and has a carrier.
    Up,
    /// The interface is up without a carrier: it receives nothing until it has one.
    NoCarrier,
    /// The interface was set down: it receives nothing until it is up again.
    Down,
    /// The interface was deleted, or moved to another namespace.
    Removed,
}

/// A pollable watch on one interface of the namespace in which the watch was made.
#[derive(Debug)]
pub struct Watch {
    socket: Socket,
    index: u32,
    name: String,
    last: InterfaceChange,
    pending: VecDeque<InterfaceChange>,
}

impl Watch {
    /// Watches `interface`; the first changes are those since the query of `interface`.
    ///
    /// # Errors
    ///
    /// - [`InterfaceError::Kernel`]: the netlink socket cannot be opened.
    pub fn new(interface: &Interface) -> Result<Self, InterfaceError> {
        let socket = link_changes().map_err(InterfaceError::kernel(ACTION))?;
        let mut watch = Self {
            socket,
            index: interface.index,
            name: interface.name.clone(),
            last: state(interface.is_up, interface.has_carrier),
            pending: VecDeque::new(),
        };
        watch.query_state()?;
        Ok(watch)
    }

    /// The interface's name in the latest message of the kernel.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The next change, if there is one; does not wait.
    ///
    /// Call this until it returns `None` before polling the descriptor again.
    ///
    /// # Errors
    ///
    /// - [`InterfaceError::Kernel`]: the netlink socket failed.
    pub fn take(&mut self) -> Result<Option<InterfaceChange>, InterfaceError> {
        loop {
            if let Some(change) = self.pending.pop_front() {
                return Ok(Some(change));
            }
            match receive(&self.socket) {
                Ok(datagram) => self.read(&datagram),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    self.query_state()?;
                }
                Err(error) => return Err(InterfaceError::kernel(ACTION)(error)),
            }
        }
    }

    /// Waits for the next change; `None` after `timeout` or a signal.
    ///
    /// # Errors
    ///
    /// - [`InterfaceError::Kernel`]: the netlink socket failed.
    pub fn wait(
        &mut self,
        timeout: Option<Duration>,
    ) -> Result<Option<InterfaceChange>, InterfaceError> {
        if let Some(change) = self.take()? {
            return Ok(Some(change));
        }
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let mut polled = [PollFd::new(self, PollFlags::IN)];
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => self.take(),
            Err(error) => Err(InterfaceError::kernel(ACTION)(error.into())),
        }
    }

    fn read(&mut self, datagram: &[u8]) {
        // Messages with attributes that are newer than the parser do not matter here.
        for message in parse(datagram).map_while(Result::ok) {
            match message {
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link))
                    if self.is_it(&link) =>
                {
                    self.note_link(&link);
                }
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelLink(link))
                    if self.is_it(&link) =>
                {
                    self.note(InterfaceChange::Removed);
                }
                _ => {}
            }
        }
    }

    /// Bridges send "removed" messages of their own address family for ports that leave them.
    fn is_it(&self, link: &LinkMessage) -> bool {
        let header = &link.header;
        header.index == self.index && header.interface_family == AddressFamily::Unspec
    }

    fn query_state(&mut self) -> Result<(), InterfaceError> {
        match netlink::link(self.index)? {
            Some(link) => self.note_link(&link),
            None => self.note(InterfaceChange::Removed),
        }
        Ok(())
    }

    fn note_link(&mut self, link: &LinkMessage) {
        let (name, flags) = (name_of(link), link.header.flags);
        if !name.is_empty() {
            self.name = name;
        }
        self.note(state(
            flags.contains(LinkFlags::Up),
            flags.contains(LinkFlags::LowerUp),
        ));
    }

    fn note(&mut self, state: InterfaceChange) {
        if state != self.last && self.last != InterfaceChange::Removed {
            self.last = state;
            self.pending.push_back(state);
        }
    }
}

impl AsFd for Watch {
    /// Readable when `take` may return a change.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn state(is_up: bool, has_carrier: bool) -> InterfaceChange {
    match (is_up, has_carrier) {
        (true, true) => InterfaceChange::Up,
        (true, false) => InterfaceChange::NoCarrier,
        (false, _) => InterfaceChange::Down,
    }
}

/// A pollable wait for an interface that is missing, by its name.
#[derive(Debug)]
pub struct Arrival {
    socket: Socket,
    name: String,
}

impl Arrival {
    /// Waits for an interface of this name in the calling thread's namespace.
    ///
    /// # Errors
    ///
    /// - [`InterfaceError::Kernel`]: the netlink socket cannot be opened.
    pub fn for_interface(name: &str) -> Result<Self, InterfaceError> {
        Ok(Self {
            socket: link_changes().map_err(InterfaceError::kernel(ACTION))?,
            name: name.to_owned(),
        })
    }

    /// The interface, once there is one; does not wait.
    ///
    /// # Errors
    ///
    /// - [`InterfaceError::Kernel`]: the netlink socket failed.
    pub fn take(&mut self) -> Result<Option<Interface>, InterfaceError> {
        loop {
            match receive(&self.socket) {
                // The messages only say that something changed; the query below says what.
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
                Err(error) => return Err(InterfaceError::kernel(ACTION)(error)),
            }
        }
        match Interface::find(&self.name) {
            Ok(interface) => Ok(Some(interface)),
            Err(InterfaceError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for Arrival {
    /// Readable when `take` may return the interface.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A socket that receives a message for each change of a link.
fn link_changes() -> io::Result<Socket> {
    let socket = open(NETLINK_ROUTE)?;
    socket.add_membership(GROUP_LINK)?;
    socket.set_non_blocking(true)?;
    Ok(socket)
}
