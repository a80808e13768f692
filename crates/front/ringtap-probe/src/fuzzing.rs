// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets made of any bytes, for the fuzz targets `probe_packets` and `probe_cost`, and for tests with few of them.

pub mod cost;
pub mod hostile;
#[cfg(test)]
mod tests;

use std::time::Duration;

use ringtap_filter::Headers;
use ringtap_filter::hash::Link;

use crate::flows::{FlowMeter, FlowOptions};
use crate::packet::{Dissected, Secret};
use crate::record::Record;

const MEMORY: u32 = 16 << 10;
const CLIENT_PORT: u16 = 40_000;
/// IPv4 of 10.0.0.1 to 10.0.0.2; length and protocol are filled in.
const IPV4: [u8; 20] = [
    0x45, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
];

/// Links of whole frames without Ethernet.
const LINKS: [Link; 5] = [
    Link::Ip,
    Link::LinuxCooked,
    Link::LinuxCooked2,
    Link::Loopback,
    Link::Ppp,
];

/// Meters packets made of `input`.
///
/// The first byte chooses whole frames and their link, DNS datagrams, or a TCP stream to a port; then each packet has
/// its length in front.
///
/// # Panics
///
/// When a packet is in no record or in two, or when payload takes more memory than allowed.
pub fn meter(input: &[u8]) {
    let Some((&mode, mut rest)) = input.split_first() else {
        return;
    };
    let secret = Secret::random();
    let mut meter = FlowMeter::new(
        FlowOptions {
            max_flows: 16,
            idle: Duration::from_millis(40),
            active: Duration::from_millis(100),
            payload_bytes: 4096,
            payload_memory: MEMORY.into(),
            ..FlowOptions::default()
        },
        secret,
        None,
    );
    let (mut records, mut packets, mut sequence) = (Vec::new(), 0_u64, 0_u32);
    while let Some((&length, after)) = rest.split_first() {
        // Odd lengths go the other way.
        let is_back = length & 1 == 1;
        let (data, after) = after.split_at(usize::from(length).min(after.len()));
        rest = after;
        let frame = match mode % 4 {
            0 | 1 => data.to_vec(),
            2 => datagram((CLIENT_PORT, 53), is_back, data),
            _ => {
                let port = if mode & 4 == 0 { 443 } else { 53 };
                segment((CLIENT_PORT, port), is_back, sequence, data)
            }
        };
        sequence = sequence.wrapping_add(u32::from(length));
        let link = match (mode % 4, mode >> 2) {
            (0, _) => Link::Ethernet,
            (1, link) => LINKS[usize::from(link) % LINKS.len()],
            _ => Link::Ip,
        };
        let wire = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        let time_ns = 1_700_000_000_000_000_000 + packets * 1_000_000;
        let headers = Headers::Inner;
        if let Some(mut packet) = Dissected::new(time_ns, &frame, wire, link, headers, &secret) {
            packets += 1;
            meter.packets(std::slice::from_mut(&mut packet), &mut records);
        }
        let memory = meter.payload_memory();
        assert!(memory <= MEMORY as usize, "{memory} bytes of payload");
    }
    meter.finish(&mut records);
    let metered: u64 = records
        .iter()
        .map(|record| match record {
            Record::Flow(flow) => flow.packets(),
            Record::Dns(_) | Record::Measurement(_) => 0,
        })
        .sum();
    assert_eq!(metered, packets, "each packet is in one record");
    assert!(meter.payload_memory() == 0, "memory of flows that ended");
}

/// A datagram between the ports of client and server.
fn datagram(ports: (u16, u16), is_back: bool, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(8 + data.len()).unwrap_or(u16::MAX);
    let [client, server] = [ports.0, ports.1].map(u16::to_be_bytes);
    let header = [client, server, length.to_be_bytes(), [0, 0]];
    packet(17, is_back, &header.concat(), data)
}

/// A segment between the ports of client and server.
fn segment(ports: (u16, u16), is_back: bool, sequence: u32, data: &[u8]) -> Vec<u8> {
    let ports = [ports.0, ports.1].map(u16::to_be_bytes).concat();
    let rest = [0, 0, 0, 0, 0x50, 0x10, 4, 0, 0, 0, 0, 0];
    let header = [&ports[..], &sequence.to_be_bytes(), &rest].concat();
    packet(6, is_back, &header, data)
}

fn packet(protocol: u8, is_back: bool, header: &[u8], data: &[u8]) -> Vec<u8> {
    let mut packet = [&IPV4, header, data].concat();
    let length = u16::try_from(packet.len()).unwrap_or(u16::MAX);
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    packet[9] = protocol;
    if is_back {
        packet.swap(15, 19);
        packet.swap(20, 22);
        packet.swap(21, 23);
    }
    packet
}
