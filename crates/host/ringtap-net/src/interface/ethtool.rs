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

/// Words of the answer: more than the 49 of the largest structure, `struct ethtool_drvinfo`.
const WORDS: usize = 64;

/// The driver's name.
pub(super) fn driver(interface: &str) -> Option<String> {
    let info = ask(interface, GET_DRIVER_INFO).ok()?;
    // `driver` of `struct ethtool_drvinfo`.
    let name: Vec<u8> = info[1..9]
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .collect();
    let name = std::str::from_utf8(name.split(|byte| *byte == 0).next()?).ok()?;
    (!name.is_empty()).then(|| name.to_owned())
}

/// Receive queues in use.
pub(super) fn receive_queues(interface: &str) -> Option<u32> {
    let channels = ask(interface, GET_CHANNELS).ok()?;
    // `rx_count` and `combined_count` of `struct ethtool_channels`.
    Some(channels[5] + channels[8]).filter(|count| *count > 0)
}

/// Receive offloads.
pub(super) fn offloads(interface: &str) -> Offloads {
    // `data` of `struct ethtool_value`.
    let value = |command| Some(ask(interface, command).ok()?[1]);
    let flags = value(GET_FLAGS);
    Offloads {
        rx_vlan: flags.map(|flags| flags & FLAG_RX_VLAN != 0),
        gro: value(GET_GRO).map(|on| on != 0),
        lro: flags.map(|flags| flags & FLAG_LRO != 0),
    }
}

/// Received packets that the NIC can stamp.
pub(super) fn nic_stamps(interface: &str) -> NicStamps {
    match ask(interface, GET_STAMPS) {
        // `so_timestamping` and `rx_filters` of `struct ethtool_ts_info`.
        Ok(info) => stamps_of(info[1], info[7]),
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
    // `struct hwtstamp_config`: its third word is `rx_filter`. Old drivers do not answer.
    let mut stamping = [0; WORDS];
    let _unknown = send(interface, GET_STAMPING, &mut stamping);
    if stamping[2] == STAMP_ALL {
        return Ok(());
    }
    stamping[2] = STAMP_ALL;
    send(interface, SET_STAMPING, &mut stamping)?;
    // The driver answers with what it does.
    match stamping[2] {
        STAMP_ALL => Ok(()),
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// The answer to a command of ethtool: a structure whose first word is the command.
fn ask(interface: &str, command: u32) -> io::Result<[u32; WORDS]> {
    let mut answer = [0; WORDS];
    answer[0] = command;
    send(interface, libc::SIOCETHTOOL, &mut answer)?;
    Ok(answer)
}

fn send(interface: &str, number: libc::c_ulong, words: &mut [u32; WORDS]) -> io::Result<()> {
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
            ifru_data: words.as_mut_ptr().cast(),
        },
    };
    // SAFETY: the request and the words that it points to live until the call returns. The kernel
    // reads and writes the structure of the command, none of which has more bytes than the words.
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
