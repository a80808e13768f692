// SPDX-License-Identifier: MIT OR Apache-2.0
//! Templates, and flow records in their form. Numbers of elements are those of IANA's registry.

use super::octets::{put, put_address};
use super::outside::{TunnelTemplate, tunnels};
use super::protocol::FlowProtocol;
use super::start::SystemStart;
use crate::packet::{ICMP, ICMPV6};
use crate::record::{
    Details, DirectionCounts, DirectionMarks, EndReason, FlowKey, FlowRecord, Tunnel,
};

/// Enterprise number of elements that describe the reverse direction (RFC 5103).
const REVERSE: u32 = 29305;
/// Marks an element with an enterprise number.
const ENTERPRISE: u16 = 0x8000;

/// Presence of optional fields in a data record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Template {
    v6: bool,
    biflow: bool,
    /// With [`TEXTS`].
    texts: bool,
    /// With [`INTERFACE_FIELDS`].
    interface: bool,
    /// With [`CUSTOMER_VLAN`].
    customer_vlan: bool,
    /// Elements of tunnels; IPFIX only, as NetFlow v9 has each element once.
    tunnels: [Option<TunnelTemplate>; 2],
    /// With [`UPTIME_FIELDS`], and ICMP_TYPE for both families.
    v9: bool,
}

/// One direction of a flow, with the other one.
struct FlowSide<'a> {
    flow: &'a FlowRecord,
    key: FlowKey,
    there: &'a DirectionCounts,
    back: &'a DirectionCounts,
    /// Of the directions there and back.
    marks: [DirectionMarks; 2],
    /// As the packets there have them.
    tunnels: [Option<Tunnel>; 2],
    start: SystemStart,
}

/// Element, length in bytes, value.
type Element = (u16, u16, fn(&FlowSide<'_>) -> u64);

/// Elements of every record, after the addresses.
const FIELDS: [Element; 11] = [
    (7, 2, |view| source_port(&view.key).into()),
    (11, 2, |view| destination_port(&view.key).into()),
    (4, 1, |view| view.key.protocol.into()),
    (58, 2, |view| view.key.vlan.into()),
    (5, 1, |view| view.marks[0].traffic_class.into()),
    (6, 1, |view| view.there.tcp_flags.into()),
    (136, 1, |view| end_reason(view.flow.end)),
    (2, 8, |view| view.there.packets),
    (1, 8, |view| view.there.bytes),
    (152, 8, |view| view.there.first_ns / 1_000_000),
    (153, 8, |view| view.there.last_ns / 1_000_000),
];

/// dot1qCustomerVlanId: the second tag.
const CUSTOMER_VLAN: Element = (245, 2, |view| {
    let outside = view.flow.outside.as_ref();
    outside.map_or(0, |outside| outside.inner_vlans[0].into())
});

/// Elements of NetFlow v9, whose collectors ignore 152 and 153: FIRST_SWITCHED and LAST_SWITCHED (RFC 3954).
const UPTIME_FIELDS: [Element; 2] = [
    (22, 4, |view| view.start.uptime_ms(view.there.first_ns)),
    (21, 4, |view| view.start.uptime_ms(view.there.last_ns)),
];

/// Further element of biflows: the source is the initiator (RFC 5103, section 6.3).
const BIFLOW_DIRECTION: Element = (239, 1, |_| 1);

/// ingressInterface, egressInterface (0: the packets did not pass it), flowDirection.
const INTERFACE_FIELDS: [Element; 3] = [
    (10, 4, |view| view.interface(0, false)),
    (14, 4, |view| view.interface(0, true)),
    (61, 1, |view| view.marks[0].is_sent.into()),
];

/// The same of the reverse direction.
const REVERSE_INTERFACE_FIELDS: [Element; 3] = [
    (10, 4, |view| view.interface(1, false)),
    (14, 4, |view| view.interface(1, true)),
    (61, 1, |view| view.marks[1].is_sent.into()),
];

/// Elements of the reverse direction.
const REVERSE_FIELDS: [Element; 6] = [
    (5, 1, |view| view.marks[1].traffic_class.into()),
    (6, 1, |view| view.back.tcp_flags.into()),
    (2, 8, |view| view.back.packets),
    (1, 8, |view| view.back.bytes),
    (152, 8, |view| view.back.first_ns / 1_000_000),
    (153, 8, |view| view.back.last_ns / 1_000_000),
];

type TextElement = (u16, fn(&Details) -> Option<&String>);

/// Elements of variable length, for flows whose payload told something: applicationName, httpRequestHost.
const TEXTS: [TextElement; 2] = [
    (96, |details| {
        details
            .ndpi_application
            .as_ref()
            .or(details.application.as_ref())
    }),
    (460, |details| {
        let is_http = details.application.as_deref() == Some("http");
        details.server_name.as_ref().filter(|_| is_http)
    }),
];
/// Length in a template that means "variable" (RFC 7011, section 7).
const VARIABLE: u64 = 65535;
/// Longest text with a length of one byte.
const LONGEST_TEXT: usize = 254;

impl FlowSide<'_> {
    /// Index of the interface if the packets of this direction were sent, or received, there; else 0.
    fn interface(&self, direction: usize, sent: bool) -> u64 {
        let index = self.flow.interface.unwrap_or(0);
        let passed = self.marks[direction].is_sent == sent;
        if passed { index.into() } else { 0 }
    }
}

impl Template {
    /// Number of the template, and of the sets of its records.
    pub(super) fn id(self) -> u16 {
        let bits = [
            self.v6,
            self.biflow,
            self.texts,
            self.interface,
            self.customer_vlan,
        ];
        let [first, second] = self.tunnels.map(TunnelTemplate::number);
        let bits = bits.into_iter().rev();
        256 + bits.fold(first + 4 * second, |number, bit| {
            2 * number + u16::from(bit)
        })
    }

    fn addresses(self) -> [(u16, u16); 2] {
        if self.v6 {
            [(27, 16), (28, 16)]
        } else {
            [(8, 4), (12, 4)]
        }
    }

    /// icmpTypeCodeIPv4 or icmpTypeCodeIPv6; ICMP_TYPE of RFC 3954, where nfdump reads it for both families.
    fn icmp(self) -> Element {
        let element = if self.v6 && !self.v9 { 139 } else { 32 };
        (element, 2, |view| {
            icmp_number(&view.key).unwrap_or(0).into()
        })
    }

    fn ours(self) -> impl Iterator<Item = Element> {
        let uptime = UPTIME_FIELDS.into_iter().filter(move |_| self.v9);
        FIELDS
            .into_iter()
            .chain([self.icmp()])
            .chain(self.customer_vlan.then_some(CUSTOMER_VLAN))
            .chain(self.interfaces(INTERFACE_FIELDS))
            .chain(uptime)
            .chain(self.biflow.then_some(BIFLOW_DIRECTION))
    }

    fn reverse(self) -> impl Iterator<Item = Element> {
        REVERSE_FIELDS
            .into_iter()
            .chain(self.interfaces(REVERSE_INTERFACE_FIELDS))
            .filter(move |_| self.biflow)
    }

    fn interfaces(self, fields: [Element; 3]) -> impl Iterator<Item = Element> {
        fields.into_iter().filter(move |_| self.interface)
    }

    fn texts(self) -> impl Iterator<Item = TextElement> {
        TEXTS.into_iter().filter(move |_| self.texts)
    }

    /// The template's record in a template set.
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(256);
        let out = &mut bytes;
        let tunnels = self.tunnels.into_iter().flatten();
        let own: Vec<_> = tunnels
            .clone()
            .flat_map(TunnelTemplate::fields)
            .chain(self.addresses())
            .chain(self.ours().map(|(id, length, _)| (id, length)))
            .collect();
        let outside = tunnels.filter(|_| self.biflow);
        let reverse: Vec<_> = self
            .reverse()
            .map(|(id, length, _)| (id, length))
            .chain(outside.filter_map(TunnelTemplate::reverse_fields))
            .collect();
        put(out, 2, self.id().into());
        let texts: Vec<_> = self.texts().collect();
        put(out, 2, (own.len() + reverse.len() + texts.len()) as u64);
        for (id, length) in own {
            put(out, 2, id.into());
            put(out, 2, length.into());
        }
        for (id, length) in reverse {
            put(out, 2, (id | ENTERPRISE).into());
            put(out, 2, length.into());
            put(out, 4, REVERSE.into());
        }
        for (id, _) in texts {
            put(out, 2, id.into());
            put(out, 2, VARIABLE);
        }
        bytes
    }
}

/// The data records of a flow: one if both directions fit into it, else one per direction with packets.
pub(super) fn data_records(
    flow: &FlowRecord,
    protocol: FlowProtocol,
    start: SystemStart,
) -> impl Iterator<Item = (Template, Vec<u8>)> {
    let directions = [&flow.forward, &flow.backward].map(|direction| direction.packets > 0);
    let biflow = protocol == FlowProtocol::Ipfix && directions == [true, true];
    let [forward, backward] = flow.marks;
    let sides = [
        FlowSide {
            flow,
            key: flow.key,
            there: &flow.forward,
            back: &flow.backward,
            marks: [forward, backward],
            tunnels: tunnels(flow, false),
            start,
        },
        FlowSide {
            flow,
            key: swapped(flow.key),
            there: &flow.backward,
            back: &flow.forward,
            marks: [backward, forward],
            tunnels: tunnels(flow, true),
            start,
        },
    ];
    sides
        .into_iter()
        .zip([directions[0], directions[1] && !biflow])
        .filter(|(_, has_record)| *has_record)
        .map(move |(view, _)| {
            let key = view.key;
            let is_v9 = protocol == FlowProtocol::NetflowV9;
            let outer = |tunnel: Option<Tunnel>| tunnel.filter(|_| !is_v9);
            let outer = view.tunnels.map(outer);
            let tunnels = outer.map(|tunnel| tunnel.as_ref().map(TunnelTemplate::new));
            let template = Template {
                v6: key.source.is_ipv6(),
                biflow,
                texts: flow.details.is_some() && !is_v9,
                interface: flow.interface.is_some(),
                customer_vlan: (flow.outside.as_ref())
                    .is_some_and(|outside| outside.inner_vlans[0] > 0),
                tunnels,
                v9: is_v9,
            };
            let mut out = Vec::with_capacity(128);
            let levels = || {
                let levels = template.tunnels.iter().zip(&view.tunnels);
                levels.filter_map(|(own, tunnel)| own.as_ref().zip(tunnel.as_ref()))
            };
            for (own, tunnel) in levels() {
                own.put(tunnel, &mut out);
            }
            put_address(&mut out, key.source);
            put_address(&mut out, key.destination);
            for (_, length, value) in template.ours().chain(template.reverse()) {
                put(&mut out, length, value(&view));
            }
            for (own, tunnel) in levels().filter(|_| biflow) {
                own.put_reverse(tunnel, &mut out);
            }
            for (_, text) in template.texts() {
                let text = flow.details.as_deref().and_then(text);
                let text = text.map_or(&[][..], |text| text.as_bytes());
                let text = &text[..text.len().min(LONGEST_TEXT)];
                put(&mut out, 1, text.len() as u64);
                out.extend(text);
            }
            (template, out)
        })
}

fn swapped(key: FlowKey) -> FlowKey {
    FlowKey {
        source: key.destination,
        destination: key.source,
        source_port: key.destination_port,
        destination_port: key.source_port,
        ..key
    }
}

/// ICMP's type * 256 + code of this direction.
fn icmp_number(key: &FlowKey) -> Option<u16> {
    matches!(key.protocol, ICMP | ICMPV6).then_some(key.source_port)
}

fn source_port(key: &FlowKey) -> u16 {
    icmp_number(key).map_or(key.source_port, |_| 0)
}

/// The destination port, or ICMP's type and code, as NetFlow has always had them.
fn destination_port(key: &FlowKey) -> u16 {
    icmp_number(key).unwrap_or(key.destination_port)
}

/// Values of flowEndReason; the end of the capture and RST count as an end that was detected.
fn end_reason(end: EndReason) -> u64 {
    match end {
        EndReason::Idle => 1,
        EndReason::Active => 2,
        EndReason::Fin | EndReason::Reset => 3,
        EndReason::End => 4,
        EndReason::Evicted => 5,
    }
}
