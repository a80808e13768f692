// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parsed part of a packet's header, and the text of it that PF_RING's programs print.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use etherparse::{LaxLinkExtSlice, LaxNetSlice, LaxSlicedPacket, TransportSlice};

use crate::abi::{ParsedAddress, RingParsedPacket};

const ETHERNET_BYTES: usize = 14;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const ARP: u16 = 0x0806;
const TCP: u8 = 6;

fn offset(bytes: usize) -> i16 {
    i16::try_from(bytes).unwrap_or(i16::MAX)
}

fn ipv4_number(address: [u8; 4]) -> ParsedAddress {
    let mut parsed = [0; 16];
    parsed[..4].copy_from_slice(&u32::from_be_bytes(address).to_ne_bytes());
    parsed
}

/// What the packet's headers say, up to this layer; and the last layer that they have.
pub(crate) fn parse(data: &[u8], level: u8) -> (RingParsedPacket, u8) {
    let mut parsed = RingParsedPacket::NONE;
    let Ok(packet) = LaxSlicedPacket::from_ethernet(data) else {
        return (parsed, 0);
    };
    let position = |part: &[u8]| part.as_ptr().addr() - data.as_ptr().addr();
    parsed.dmac.copy_from_slice(&data[..6]);
    parsed.smac.copy_from_slice(&data[6..12]);
    parsed.eth_type = u16::from_be_bytes([data[12], data[13]]);
    let mut l3_offset = ETHERNET_BYTES;
    let vlans = packet.link_exts.iter().filter_map(|one| match one {
        LaxLinkExtSlice::Vlan(vlan) => Some(vlan),
        LaxLinkExtSlice::Macsec(_) => None,
    });
    for (number, vlan) in vlans.enumerate() {
        match number {
            0 => parsed.vlan_id = vlan.vlan_identifier().value(),
            1 => parsed.qinq_vlan_id = vlan.vlan_identifier().value(),
            _ => {}
        }
        parsed.vlan_offset = offset(l3_offset);
        parsed.eth_type = vlan.ether_type().0;
        l3_offset += vlan.header_len();
    }
    parsed.l3_offset = offset(l3_offset);
    if level < 3 {
        return (parsed, 2);
    }
    let is_later_fragment = match &packet.net {
        Some(LaxNetSlice::Ipv4(ip)) => {
            let header = ip.header();
            parsed.ip_version = 4;
            parsed.ip_src = ipv4_number(header.source());
            parsed.ip_dst = ipv4_number(header.destination());
            parsed.ip_tos = data.get(l3_offset + 1).copied().unwrap_or(0);
            parsed.l3_proto = ip.payload().ip_number.0;
            parsed.l4_offset = offset(position(ip.payload().payload));
            header.fragments_offset().value() != 0
        }
        Some(LaxNetSlice::Ipv6(ip)) => {
            parsed.ip_version = 6;
            parsed.ip_src = ip.header().source();
            parsed.ip_dst = ip.header().destination();
            parsed.ip_tos = ip.header().traffic_class();
            parsed.l3_proto = ip.payload().ip_number.0;
            parsed.l4_offset = offset(position(ip.payload().payload));
            ip.payload().fragmented && packet.transport.is_none()
        }
        _ => return (parsed, 2),
    };
    if level < 4 || is_later_fragment {
        return (parsed, 3);
    }
    let payload = match &packet.transport {
        Some(TransportSlice::Tcp(tcp)) => {
            (parsed.l4_src_port, parsed.l4_dst_port) = (tcp.source_port(), tcp.destination_port());
            (parsed.tcp_seq, parsed.tcp_ack) = (tcp.sequence_number(), tcp.acknowledgment_number());
            // FIN, SYN, RST, PSH, ACK and URG.
            parsed.tcp_flags = tcp.header_slice()[13] & 0x3f;
            tcp.payload()
        }
        Some(TransportSlice::Udp(udp)) => {
            (parsed.l4_src_port, parsed.l4_dst_port) = (udp.source_port(), udp.destination_port());
            udp.payload()
        }
        Some(TransportSlice::Icmpv4(icmp)) => {
            (parsed.icmp_type, parsed.icmp_code) = (icmp.type_u8(), icmp.code_u8());
            icmp.payload()
        }
        Some(TransportSlice::Icmpv6(icmp)) => {
            (parsed.icmp_type, parsed.icmp_code) = (icmp.type_u8(), icmp.code_u8());
            icmp.payload()
        }
        _ => return (parsed, 3),
    };
    parsed.payload_offset = offset(position(payload));
    (parsed, 4)
}

fn mac([a, b, c, d, e, f]: [u8; 6]) -> String {
    format!("{a:02X}:{b:02X}:{c:02X}:{d:02X}:{e:02X}:{f:02X}")
}

fn address(version: u8, parsed: ParsedAddress) -> String {
    let [a, b, c, d, ..] = parsed;
    match version {
        4 => Ipv4Addr::from_bits(u32::from_ne_bytes([a, b, c, d])).to_string(),
        _ => Ipv6Addr::from(parsed).to_string(),
    }
}

fn protocol(number: u8) -> String {
    match number {
        1 => "ICMP".to_owned(),
        2 => "IGMP".to_owned(),
        TCP => "TCP".to_owned(),
        17 => "UDP".to_owned(),
        47 => "GRE".to_owned(),
        58 => "ICMPv6".to_owned(),
        132 => "SCTP".to_owned(),
        _ => number.to_string(),
    }
}

/// One line about a packet.
pub(crate) fn line(parsed: &RingParsedPacket, hash: u32, caplen: u32, len: u32) -> String {
    let mut line = format!("[{} -> {}] ", mac(parsed.smac), mac(parsed.dmac));
    let mut add = |text: std::fmt::Arguments<'_>| {
        let _infallible = line.write_fmt(text);
    };
    let (vlan, inner_vlan) = (parsed.vlan_id, parsed.qinq_vlan_id);
    if parsed.vlan_offset != 0 {
        add(format_args!("[vlan {vlan}] "));
        if inner_vlan != 0 {
            add(format_args!("[QinQ-vlan {inner_vlan}] "));
        }
    }
    let (source_port, target_port, sequence) =
        (parsed.l4_src_port, parsed.l4_dst_port, parsed.tcp_seq);
    match parsed.eth_type {
        IPV4 | IPV6 => {
            let version = parsed.ip_version;
            let (source, target) = (
                address(version, parsed.ip_src),
                address(version, parsed.ip_dst),
            );
            add(format_args!(
                "[IPv{version}][{source}:{source_port} -> {target}:{target_port}] [l3_proto={}][hash={hash}]",
                protocol(parsed.l3_proto)
            ));
            if parsed.l3_proto == TCP {
                add(format_args!(
                    "[tos={}][tcp_seq_num={sequence}]",
                    parsed.ip_tos
                ));
            }
        }
        ARP => add(format_args!("[ARP]")),
        other => add(format_args!("[eth_type=0x{other:04X}]")),
    }
    let offsets = [
        parsed.eth_offset,
        parsed.l3_offset,
        parsed.l4_offset,
        parsed.payload_offset,
    ];
    let [eth, l3, l4, payload] = offsets;
    add(format_args!(
        " [caplen={caplen}][len={len}][eth_offset={eth}][l3_offset={l3}][l4_offset={l4}][payload_offset={payload}]\n"
    ));
    line
}

/// A number with marks between thousands: 1'234'567.89.
pub(crate) fn grouped(value: f64, has_decimals: bool) -> String {
    let text = if has_decimals {
        format!("{value:.2}")
    } else {
        format!("{:.0}", value.trunc())
    };
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let digits = whole.len();
    let marked = whole.char_indices().flat_map(|(at, digit)| {
        let mark = (at > 0 && (digits - at).is_multiple_of(3)).then_some('\'');
        mark.into_iter().chain([digit])
    });
    marked.chain(rest.chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::{address, grouped, line, parse};

    fn tcp_in_two_vlans() -> Vec<u8> {
        let builder = etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let builder = builder
            .double_vlan(
                7.try_into().expect("12 bits"),
                9.try_into().expect("12 bits"),
            )
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            .tcp(1000, 443, 5, 100)
            .syn();
        let mut frame = Vec::new();
        builder.write(&mut frame, b"hello").expect("a vector");
        // PF_RING knows the customer's tag alone.
        frame[12..14].copy_from_slice(&[0x81, 0]);
        frame
    }

    #[test]
    fn a_packet_in_vlans_is_parsed_up_to_the_layer_asked_for() {
        let frame = tcp_in_two_vlans();
        let (parsed, layer) = parse(&frame, 4);
        assert_eq!(layer, 4);
        let offsets = [
            parsed.vlan_offset,
            parsed.l3_offset,
            parsed.l4_offset,
            parsed.payload_offset,
        ];
        assert_eq!(offsets, [18, 22, 42, 62]);
        let (outer, inner, kind) = (parsed.vlan_id, parsed.qinq_vlan_id, parsed.eth_type);
        assert_eq!((outer, inner, kind), (7, 9, 0x0800));
        assert_eq!(address(4, parsed.ip_src), "10.0.0.1");
        let (from, to, flags, sequence) = (
            parsed.l4_src_port,
            parsed.l4_dst_port,
            parsed.tcp_flags,
            parsed.tcp_seq,
        );
        assert_eq!((from, to, flags, sequence), (1000, 443, 2, 5));
        let (parsed, layer) = parse(&frame, 3);
        let (port, l4_offset) = (parsed.l4_src_port, parsed.l4_offset);
        assert_eq!((layer, port, l4_offset), (3, 0, 42));
        let (parsed, layer) = parse(&frame, 2);
        assert_eq!((layer, parsed.ip_version), (2, 0));
    }

    #[test]
    fn a_cut_or_empty_packet_is_parsed_as_far_as_it_goes() {
        let frame = tcp_in_two_vlans();
        for length in 0..frame.len() {
            let (parsed, layer) = parse(&frame[..length], 4);
            let expected = match length {
                0..14 => 0,
                14..42 => 2,
                42..62 => 3,
                _ => 4,
            };
            assert_eq!(layer, expected, "{length} bytes");
            assert!(i32::from(parsed.payload_offset) <= 62);
        }
    }

    #[test]
    fn lines_and_numbers_look_as_pfcount_prints_them() {
        let (parsed, _) = parse(&tcp_in_two_vlans(), 4);
        let text = line(&parsed, 3, 67, 67);
        let begin = "[02:00:00:00:00:01 -> 02:00:00:00:00:02] [vlan 7] [QinQ-vlan 9] \
            [IPv4][10.0.0.1:1000 -> 10.0.0.2:443] [l3_proto=TCP][hash=3][tos=0][tcp_seq_num=5]";
        assert!(text.starts_with(begin), "{text}");
        assert_eq!(grouped(1_234_567.891, true), "1'234'567.89");
        assert_eq!(grouped(999.9, false), "999");
        assert_eq!(grouped(1000.0, false), "1'000");
        assert_eq!(grouped(0.0, true), "0.00");
    }
}
