// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flow records whose numbers are known, and what a tool shall make of them.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ringtap_probe::record::{
    Details, DirectionCounts, DirectionMarks, EndReason, FlowKey, FlowRecord, Outside, Record,
    Retransmissions, TcpEnd, Tunnel, TunnelKind,
};

/// 2026-01-01 in nanoseconds.
pub(crate) const NEW_YEAR_NS: u64 = 1_767_225_600_000_000_000;

/// One direction: protocol, source, destination, source port, destination port.
pub(crate) type Ends = (u64, IpAddr, IpAddr, u64, u64);

/// Packets and bytes per direction.
pub(crate) type Totals = BTreeMap<Ends, (u64, u64)>;

/// Different flows: IPv4 and IPv6, TCP and UDP, with and without answers, VLANs, more than 32 bits
/// of bytes.
pub(crate) fn flows(count: u16) -> Vec<FlowRecord> {
    (0..count).map(flow).collect()
}

/// Texts of an HTTP request in every third flow.
pub(crate) fn with_texts(mut flows: Vec<FlowRecord>) -> Vec<FlowRecord> {
    for (number, flow) in flows.iter_mut().enumerate().step_by(3) {
        flow.details = Some(Box::new(Details {
            application: Some("http".into()),
            server_name: Some(format!("www.{}.example", "a".repeat(number % 90))),
            ..Details::default()
        }));
    }
    flows
}

/// Flows in tunnels of all forms that templates have: GRE over IPv6, VXLAN, GTP-U, VXLAN over the other IP version, VXLAN
/// and GTP-U in it, and none behind a second tag.
pub(crate) fn with_tunnels(mut flows: Vec<FlowRecord>) -> Vec<FlowRecord> {
    let tunnel = |kind, number, protocol, port| Tunnel {
        kind,
        identifiers: [Some(number), Some(number)],
        source: Ipv4Addr::new(192, 0, 2, 1).into(),
        destination: Ipv4Addr::new(192, 0, 2, 2).into(),
        protocol,
        port,
        vlan: 0,
    };
    let vxlan = tunnel(TunnelKind::Vxlan, 0x1_0203, 17, 4789);
    let gtp = Tunnel {
        identifiers: [Some(0x0102_0304), Some(0x0506_0708)],
        ..tunnel(TunnelKind::Gtp, 0, 17, 2152)
    };
    let gre = Tunnel {
        source: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 9, 1).into(),
        destination: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 9, 2).into(),
        ..tunnel(TunnelKind::Gre, 5, 47, 0)
    };
    let all = [
        ([0, 0], [Some(gre), None]),
        ([0, 0], [Some(vxlan), None]),
        ([0, 0], [Some(gtp), None]),
        ([0, 0], [Some(vxlan), None]),
        ([0, 0], [Some(vxlan), Some(gtp)]),
        ([7, 0], [None, None]),
    ];
    for (flow, (inner_vlans, tunnels)) in flows.iter_mut().zip(all.into_iter().cycle()) {
        let outside = Outside {
            inner_vlans,
            tunnels,
        };
        let is_any = inner_vlans != [0; 2] || tunnels[0].is_some();
        flow.outside = is_any.then(|| Box::new(outside));
    }
    flows
}

pub(crate) fn records(flows: &[FlowRecord]) -> Vec<Record> {
    let flows = flows.iter().cloned();
    flows.map(|flow| Record::Flow(Box::new(flow))).collect()
}

fn flow(number: u16) -> FlowRecord {
    let [high, low] = number.to_be_bytes();
    let (source, destination): (IpAddr, IpAddr) = match number % 3 {
        0 => (
            Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 1, number).into(),
            Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 2, 2).into(),
        ),
        _ => (
            Ipv4Addr::new(10, 1, high, low).into(),
            Ipv4Addr::new(10, 2, 0, 1).into(),
        ),
    };
    let first_ns = NEW_YEAR_NS + u64::from(number) * 1_000_000;
    let forward = direction(u64::from(number) + 1, first_ns);
    FlowRecord {
        key: FlowKey {
            source,
            destination,
            source_port: 20_000 + number,
            destination_port: 443,
            protocol: if number.is_multiple_of(2) { 6 } else { 17 },
            vlan: number % 5,
        },
        forward: DirectionCounts {
            bytes: forward.bytes << (number % 30),
            ..forward
        },
        backward: match number % 4 {
            0 => DirectionCounts::default(),
            _ => DirectionCounts {
                tcp_flags: 0x12,
                ..direction(u64::from(number) + 1000, first_ns + 2_000_000)
            },
        },
        outside: None,
        marks: [number, number / 2].map(|number| DirectionMarks {
            traffic_class: number.to_be_bytes()[1] << 1,
            is_sent: number % 3 == 1,
        }),
        interface: match number % 4 {
            1 => None,
            _ => Some(100_000 + u32::from(number)),
        },
        icmp_identifier: None,
        handshake_ns: number.is_multiple_of(2).then_some(2_500_000),
        first_payload_ns: None,
        closed_ns: None,
        end: EndReason::Idle,
        part: 0,
        sampling: 1,
        community_id_seed: 0,
        details: None,
    }
}

fn direction(packets: u64, first_ns: u64) -> DirectionCounts {
    DirectionCounts {
        packets,
        bytes: packets * 100,
        frame_bytes: packets * 114,
        payload_bytes: packets * 60,
        first_ns,
        last_ns: first_ns + packets * 1_000_000,
        tcp_flags: 0x1b,
        stream_bytes: packets * 60,
        retransmissions: Retransmissions::default(),
        resets: 0,
        tcp_end: TcpEnd::Established,
    }
}

/// Packets and bytes that a tool shall state for these flows.
pub(crate) fn totals(flows: &[FlowRecord]) -> Totals {
    let mut totals = Totals::new();
    for flow in flows {
        let FlowKey {
            source,
            destination,
            source_port,
            destination_port,
            protocol,
            ..
        } = flow.key;
        let there = (source, destination, source_port, destination_port);
        let back = (destination, source, destination_port, source_port);
        for (direction, (from, to, from_port, to_port)) in
            [(&flow.forward, there), (&flow.backward, back)]
        {
            if direction.packets > 0 {
                let key = (protocol.into(), from, to, from_port.into(), to_port.into());
                totals.insert(key, (direction.packets, direction.bytes));
            }
        }
    }
    totals
}
