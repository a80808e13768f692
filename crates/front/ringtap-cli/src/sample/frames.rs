// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames between two hosts, with correct lengths and checksums.
#![forbid(unsafe_code)]

use std::net::{Ipv4Addr, Ipv6Addr};

use anyhow::Result;
use etherparse::{
    ArpHardwareId, ArpOperation, ArpPacket, EtherType, IpHeaders, PacketBuilder, PacketBuilderStep,
    TcpHeader,
};
use ringtap_file::Direction;
use ringtap_packet::{End, MacAddress, ip_frame};

/// A frame of the sample.
pub(super) struct Frame {
    /// Time after the first frame, in microseconds.
    pub(super) after_us: u64,
    pub(super) direction: Direction,
    pub(super) bytes: Vec<u8>,
}

/// One end of a flow.
#[derive(Clone, Copy)]
pub(super) struct Host {
    mac: [u8; 6],
    pub(super) v4: Ipv4Addr,
    pub(super) v6: Ipv6Addr,
}

/// The host with this number, from the ranges that are reserved for documentation.
pub(super) fn host(number: u8) -> Host {
    Host {
        mac: [2, 0, 0, 0, 0, number],
        v4: Ipv4Addr::new(192, 0, 2, number),
        v6: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(number)),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    V4,
    V6,
}

/// A path between two hosts.
#[derive(Clone, Copy)]
pub(super) struct Path<'a> {
    pub(super) from: Host,
    pub(super) to: Host,
    pub(super) version: Version,
    /// VLAN identifiers, the outer one first; at most two.
    pub(super) vlans: &'a [u16],
}

impl Path<'_> {
    pub(super) fn back(self) -> Self {
        Self {
            from: self.to,
            to: self.from,
            ..self
        }
    }

    pub(super) fn udp(self, ports: (u16, u16), payload: &[u8]) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.ip()?
            .udp(ports.0, ports.1)
            .write(&mut bytes, payload)?;
        Ok(bytes)
    }

    pub(super) fn tcp(self, mut header: TcpHeader, payload: &[u8]) -> Result<Vec<u8>> {
        header.window_size = 64_240;
        let mut bytes = Vec::new();
        self.ip()?.tcp_header(header).write(&mut bytes, payload)?;
        Ok(bytes)
    }

    pub(super) fn echo(self, question: bool, sequence: u16) -> Result<Vec<u8>> {
        const ID: u16 = 77;
        let (ip, payload) = (self.ip()?, [0x55; 56]);
        let mut bytes = Vec::new();
        match (self.version, question) {
            (Version::V4, true) => ip
                .icmpv4_echo_request(ID, sequence)
                .write(&mut bytes, &payload)?,
            (Version::V4, false) => ip
                .icmpv4_echo_reply(ID, sequence)
                .write(&mut bytes, &payload)?,
            (Version::V6, true) => ip
                .icmpv6_echo_request(ID, sequence)
                .write(&mut bytes, &payload)?,
            (Version::V6, false) => ip
                .icmpv6_echo_reply(ID, sequence)
                .write(&mut bytes, &payload)?,
        }
        Ok(bytes)
    }

    pub(super) fn arp(self, operation: ArpOperation) -> Result<Vec<u8>> {
        let (asked, link) = match operation {
            ArpOperation::REQUEST => ([0; 6], [0xff; 6]),
            _ => (self.to.mac, self.to.mac),
        };
        let arp = ArpPacket::new(
            ArpHardwareId::ETHERNET,
            EtherType::IPV4,
            operation,
            &self.from.mac,
            &self.from.v4.octets(),
            &asked,
            &self.to.v4.octets(),
        )?;
        let mut bytes = Vec::new();
        let frame = PacketBuilder::ethernet2(self.from.mac, link).arp(arp);
        frame.write(&mut bytes)?;
        // Ethernet's minimum frame size, without the checksum.
        bytes.resize(60, 0);
        Ok(bytes)
    }

    fn ip(self) -> Result<PacketBuilderStep<IpHeaders>> {
        let end = |host: Host| -> End {
            let address = match self.version {
                Version::V4 => host.v4.into(),
                Version::V6 => host.v6.into(),
            };
            (MacAddress(host.mac), address)
        };
        Ok(ip_frame(end(self.from), end(self.to), self.vlans)?)
    }
}
