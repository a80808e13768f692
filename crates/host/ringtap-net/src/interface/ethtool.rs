// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queries that only ethtool's ioctl answers for every driver.
//!
//! Each answer is optional: many interfaces lack ethtool.
#![allow(unsafe_code, reason = "ioctl(SIOCETHTOOL) has no safe binding")]

use std::{
    ffi::c_char,
    io,
    os::fd::{AsRawFd, OwnedFd},
};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::Offloads;

const GET_DRIVER_INFO: u32 = 0x03;
const GET_FLAGS: u32 = 0x25;
const GET_GRO: u32 = 0x2b;
const GET_CHANNELS: u32 = 0x3c;
const FLAG_RX_VLAN: u32 = 1 << 8;
const FLAG_LRO: u32 = 1 << 15;

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// `struct ethtool_drvinfo`.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

/// `struct ethtool_channels`.
#[repr(C)]
struct Channels {
    command: u32,
    most: [u32; 4],
    receiving: u32,
    sending: u32,
    other: u32,
    both_ways: u32,
}

/// Structures that begin with their command and that the kernel fills in place.
///
/// # Safety
///
/// The type is the one that ethtool's ABI gives for every command it is used with, and any bytes
/// are a valid value of it.
unsafe trait Query {}

// SAFETY: GET_FLAGS and GET_GRO fill a `struct ethtool_value`; two integers take any bytes.
unsafe impl Query for Value {}
// SAFETY: GET_CHANNELS fills a `struct ethtool_channels`; nine integers take any bytes.
unsafe impl Query for Channels {}
// SAFETY: GET_DRIVER_INFO fills a `struct ethtool_drvinfo` of 196 bytes; integers take any bytes.
unsafe impl Query for DriverInfo {}

const _: () = assert!(size_of::<Value>() == 8 && size_of::<DriverInfo>() == 196);

/// The driver's name.
pub(super) fn driver(interface: &str) -> Option<String> {
    let mut info = DriverInfo {
        command: GET_DRIVER_INFO,
        driver: [0; 32],
        rest: [0; 160],
    };
    send(interface, &mut info).ok()?;
    let name = info.driver.split(|byte| *byte == 0).next()?;
    let name = std::str::from_utf8(name).ok()?;
    (!name.is_empty()).then(|| name.to_owned())
}

/// Receive queues in use.
pub(super) fn receive_queues(interface: &str) -> Option<u32> {
    let mut channels = Channels {
        command: GET_CHANNELS,
        most: [0; 4],
        receiving: 0,
        sending: 0,
        other: 0,
        both_ways: 0,
    };
    send(interface, &mut channels).ok()?;
    Some(channels.receiving + channels.both_ways).filter(|count| *count > 0)
}

/// Receive offloads.
pub(super) fn offloads(interface: &str) -> Offloads {
    let flags = value(interface, GET_FLAGS);
    Offloads {
        rx_vlan: flags.map(|flags| flags & FLAG_RX_VLAN != 0),
        gro: value(interface, GET_GRO).map(|on| on != 0),
        lro: flags.map(|flags| flags & FLAG_LRO != 0),
    }
}

fn value(interface: &str, command: u32) -> Option<u32> {
    let mut value = Value { command, data: 0 };
    send(interface, &mut value).ok()?;
    Some(value.data)
}

fn send<Q: Query>(interface: &str, query: &mut Q) -> io::Result<()> {
    let socket: OwnedFd = socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let mut name = [0; libc::IFNAMSIZ];
    if interface.len() >= name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in name.iter_mut().zip(interface.bytes()) {
        *to = c_char::from_ne_bytes([from]);
    }
    let mut request = libc::ifreq {
        ifr_name: name,
        ifr_ifru: libc::__c_anonymous_ifr_ifru {
            ifru_data: std::ptr::from_mut(query).cast(),
        },
    };
    // SAFETY: the request and the query that it points to live until the call returns, and
    // `Query` promises that the kernel writes no more than the query holds.
    let outcome = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) };
    match outcome {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
