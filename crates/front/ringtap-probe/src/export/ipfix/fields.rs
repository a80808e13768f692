// SPDX-License-Identifier: MIT OR Apache-2.0
//! Templates, and flow records in their form. Numbers of elements are those of IANA's registry.

use std::net::IpAddr;

use super::FlowProtocol;
use super::message::SystemStart;
use crate::packet::{ICMP, ICMPV6};
use crate::record::{Details, EndReason, FlowKey, FlowRecord, OneWay};

/// Enterprise number of elements that describe the way back (RFC 5103).
const REVERSE: u32 = 29305;
/// Marks an element with an enterprise number.
const ENTERPRISE: u16 = 0x8000;

/// What a data record has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Template {
    v6: bool,
    biflow: bool,
    /// With [`TEXTS`].
    texts: bool,
    /// With [`UPTIME_FIELDS`], and ICMP_TYPE for both families.
    v9: bool,
}

/// One direction of a flow, with the other one.
struct FlowSide<'a> {
    flow: &'a FlowRecord,
    key: FlowKey,
    there: &'a OneWay,
    back: &'a OneWay,
    start: SystemStart,
}

/// Element, length in bytes, value.
type Element = (u16, u16, fn(&FlowSide<'_>) -> u64);

/// Elements of every record, after the addresses.
const FIELDS: [Element; 10] = [
    (7, 2, |view| source_port(&view.key).into()),
    (11, 2, |view| destination_port(&view.key).into()),
    (4, 1, |view| view.key.protocol.into()),
    (58, 2, |view| view.key.vlan.into()),
    (6, 1, |view| view.there.tcp_flags.into()),
    (136, 1, |view| end_reason(view.flow.end)),
    (2, 8, |view| view.there.packets),
    (1, 8, |view| view.there.bytes),
    (152, 8, |view| view.there.first_ns / 1_000_000),
    (153, 8, |view| view.there.last_ns / 1_000_000),
];

/// Elements of NetFlow v9, whose collectors ignore 152 and 153: FIRST_SWITCHED and LAST_SWITCHED (RFC 3954).
const UPTIME_FIELDS: [Element; 2] = [
    (22, 4, |view| view.start.uptime_ms(view.there.first_ns)),
    (21, 4, |view| view.start.uptime_ms(view.there.last_ns)),
];

/// Further element of biflows: the source is the initiator (RFC 5103, section 6.3).
const BIFLOW_DIRECTION: Element = (239, 1, |_| 1);

/// Elements of the way back.
const REVERSE_FIELDS: [Element; 5] = [
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

impl Template {
    /// The templates that records of this protocol use.
    pub(super) fn all(protocol: FlowProtocol) -> impl Iterator<Item = Template> {
        let all = (0..8).map(move |bits| Template {
            v6: bits & 1 != 0,
            biflow: bits & 2 != 0,
            texts: bits & 4 != 0,
            v9: protocol == FlowProtocol::NetflowV9,
        });
        all.filter(move |template| match protocol {
            FlowProtocol::Ipfix => true,
            FlowProtocol::IpfixUniflow => !template.biflow,
            FlowProtocol::NetflowV9 => !template.biflow && !template.texts,
        })
    }

    /// Number of the template, and of the sets of its records.
    pub(super) fn id(self) -> u16 {
        256 + u16::from(self.v6) + 2 * u16::from(self.biflow) + 4 * u16::from(self.texts)
    }

    fn addresses(self) -> [(u16, u16); 2] {
        match self.v6 {
            false => [(8, 4), (12, 4)],
            true => [(27, 16), (28, 16)],
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
            .chain(uptime)
            .chain(self.biflow.then_some(BIFLOW_DIRECTION))
    }

    fn reverse(self) -> impl Iterator<Item = Element> {
        REVERSE_FIELDS.into_iter().filter(move |_| self.biflow)
    }

    fn texts(self) -> impl Iterator<Item = TextElement> {
        TEXTS.into_iter().filter(move |_| self.texts)
    }

    /// The template's record in a template set.
    pub(super) fn put(self, out: &mut Vec<u8>) {
        let fields = self.ours().map(|(id, length, _)| (id, length));
        let own: Vec<_> = self.addresses().into_iter().chain(fields).collect();
        let reverse: Vec<_> = self.reverse().collect();
        put(out, 2, self.id().into());
        let texts: Vec<_> = self.texts().collect();
        put(out, 2, (own.len() + reverse.len() + texts.len()) as u64);
        for (id, length) in own {
            put(out, 2, id.into());
            put(out, 2, length.into());
        }
        for (id, length, _) in reverse {
            put(out, 2, (id | ENTERPRISE).into());
            put(out, 2, length.into());
            put(out, 4, REVERSE.into());
        }
        for (id, _) in texts {
            put(out, 2, id.into());
            put(out, 2, VARIABLE);
        }
    }
}

/// The data records of a flow: one if both directions fit into it, else one per direction with packets.
pub(super) fn data_records(
    flow: &FlowRecord,
    protocol: FlowProtocol,
    start: SystemStart,
) -> impl Iterator<Item = (Template, Vec<u8>)> {
    let ways = [&flow.forward, &flow.backward].map(|way| way.packets > 0);
    let biflow = protocol == FlowProtocol::Ipfix && ways == [true, true];
    let views = [
        (ways[0], flow.key, &flow.forward, &flow.backward),
        (
            ways[1] && !biflow,
            swapped(flow.key),
            &flow.backward,
            &flow.forward,
        ),
    ];
    views
        .into_iter()
        .filter(|view| view.0)
        .map(move |(_, key, there, back)| {
            let template = Template {
                v6: key.source.is_ipv6(),
                biflow,
                texts: flow.details.is_some() && protocol != FlowProtocol::NetflowV9,
                v9: protocol == FlowProtocol::NetflowV9,
            };
            let view = FlowSide {
                flow,
                key,
                there,
                back,
                start,
            };
            let mut out = Vec::with_capacity(128);
            for address in [key.source, key.destination] {
                match address {
                    IpAddr::V4(address) => out.extend(address.octets()),
                    IpAddr::V6(address) => out.extend(address.octets()),
                }
            }
            for (_, length, value) in template.ours().chain(template.reverse()) {
                put(&mut out, length, value(&view));
            }
            for (_, text) in template.texts() {
                let text = flow.details.as_deref().and_then(text);
                let text = text.map(|text| text.as_bytes()).unwrap_or_default();
                let text = text.get(..LONGEST_TEXT).unwrap_or(text);
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

/// Appends the lowest `length` bytes of a number, most significant first.
pub(super) fn put(out: &mut Vec<u8>, length: u16, value: u64) {
    let bytes = value.to_be_bytes();
    out.extend(bytes.iter().skip(8_usize.saturating_sub(length.into())));
}
