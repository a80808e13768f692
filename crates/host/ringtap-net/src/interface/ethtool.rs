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

use super::{NicStamps, Offloads};

const GET_DRIVER_INFO: u32 = 0x03;
const GET_FLAGS: u32 = 0x25;
const GET_GRO: u32 = 0x2b;
const GET_CHANNELS: u32 = 0x3c;
const GET_STAMPS: u32 = 0x41;
const FLAG_RX_VLAN: u32 = 1 << 8;
const FLAG_LRO: u32 = 1 << 15;
/// `SIOCSHWTSTAMP` and `SIOCGHWTSTAMP`.
const SET_STAMPING: libc::c_ulong = 0x89b0;
const GET_STAMPING: libc::c_ulong = 0x89b1;
/// `HWTSTAMP_FILTER_ALL`.
const STAMP_ALL: u32 = 1;

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

/// `struct ethtool_ts_info`.
#[repr(C)]
struct StampInfo {
    command: u32,
    sources: u32,
    clock: i32,
    sending: [u32; 4],
    filters: u32,
    reserved: [u32; 3],
}

/// `struct hwtstamp_config`.
#[repr(C)]
struct Stamping {
    flags: u32,
    sending: u32,
    receiving: u32,
}

/// Structures that the kernel fills in place.
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
// SAFETY: GET_STAMPS fills a `struct ethtool_ts_info` of 44 bytes; integers take any bytes.
unsafe impl Query for StampInfo {}
// SAFETY: SIOCSHWTSTAMP and SIOCGHWTSTAMP fill a `struct hwtstamp_config`; three integers.
unsafe impl Query for Stamping {}

const _: () = assert!(size_of::<Value>() == 8 && size_of::<DriverInfo>() == 196);
const _: () = assert!(size_of::<StampInfo>() == 44 && size_of::<Stamping>() == 12);

/// The driver's name.
pub(super) fn driver(interface: &str) -> Option<String> {
    let mut info = DriverInfo {
        command: GET_DRIVER_INFO,
        driver: [0; 32],
        rest: [0; 160],
    };
    ask(interface, &mut info).ok()?;
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
    ask(interface, &mut channels).ok()?;
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

/// Received packets that the NIC can stamp.
pub(super) fn nic_stamps(interface: &str) -> NicStamps {
    let mut info = StampInfo {
        command: GET_STAMPS,
        sources: 0,
        clock: -1,
        sending: [0; 4],
        filters: 0,
        reserved: [0; 3],
    };
    match ask(interface, &mut info) {
        Ok(()) => stamps_of(info.sources, info.filters),
        Err(_) => NicStamps::None,
    }
}

fn stamps_of(sources: u32, filters: u32) -> NicStamps {
    let needed = libc::SOF_TIMESTAMPING_RX_HARDWARE | libc::SOF_TIMESTAMPING_RAW_HARDWARE;
    match filters {
        _ if sources & needed != needed => NicStamps::None,
        filters if filters & 1 << STAMP_ALL != 0 => NicStamps::All,
        _ => NicStamps::Ptp,
    }
}

/// Makes the NIC stamp every received packet; keeps its setting for sent packets.
pub(super) fn stamp_received(interface: &str) -> io::Result<()> {
    let mut stamping = Stamping {
        flags: 0,
        sending: 0,
        receiving: 0,
    };
    // Old drivers do not answer.
    let _unknown = send(interface, GET_STAMPING, &mut stamping);
    if stamping.receiving == STAMP_ALL {
        return Ok(());
    }
    stamping.receiving = STAMP_ALL;
    send(interface, SET_STAMPING, &mut stamping)?;
    // The driver answers with what it does.
    match stamping.receiving {
        STAMP_ALL => Ok(()),
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

fn value(interface: &str, command: u32) -> Option<u32> {
    let mut value = Value { command, data: 0 };
    ask(interface, &mut value).ok()?;
    Some(value.data)
}

fn ask<Q: Query>(interface: &str, query: &mut Q) -> io::Result<()> {
    send(interface, libc::SIOCETHTOOL, query)
}

fn send<Q: Query>(interface: &str, number: libc::c_ulong, query: &mut Q) -> io::Result<()> {
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
    let outcome = unsafe { libc::ioctl(socket.as_raw_fd(), number, &raw mut request) };
    match outcome {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `so_timestamping` and `rx_filters` that `ethtool -T` shows for drivers.
    #[test]
    fn drivers_stamp_all_packets_those_of_ptp_or_none() {
        for (driver, sources, filters, stamps) in [
            ("veth", 0x1b, 0x0, NicStamps::None),
            ("e1000e, no clock", 0x1b, 0x1, NicStamps::None),
            ("ixgbe 82599", 0x5f, 0x1 | 1 << 3 | 1 << 12, NicStamps::Ptp),
            ("igc", 0x5f, 0x1 | 1 << 1, NicStamps::All),
            ("mlx5_core", 0x45, 0x1 | 1 << 1, NicStamps::All),
        ] {
            assert_eq!(stamps_of(sources, filters), stamps, "{driver}");
        }
    }
}
