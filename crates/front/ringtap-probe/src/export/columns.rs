// SPDX-License-Identifier: MIT OR Apache-2.0
//! Columns of the tables that exporters write: name, type, and the value of a row.

use std::fmt::Write as _;
use std::net::IpAddr;

use ringtap_packet::push_address;

use crate::record::{Details, DirectionCounts, DnsRecord, FlowRecord, Measurement, Tunnel};

/// A column of a table with rows of type `R`.
pub(super) struct TableColumn<R> {
    pub(super) name: String,
    pub(super) values: Values<R>,
}

/// One value of a measurement.
pub(super) struct ValueRow {
    pub(super) measurement: Measurement,
    pub(super) name: &'static str,
    pub(super) value: f64,
}

type CellText<R> = Box<dyn Fn(&R, &mut String) -> bool + Send>;
type CellValue<R, V> = Box<dyn Fn(&R) -> V + Send>;

/// Type of a column, and its value in a row.
pub(super) enum Values<R> {
    /// Nanoseconds since 1970, in files as microseconds: Spark reads no nanoseconds.
    Time(CellValue<R, Option<u64>>),
    Number(CellValue<R, Option<u64>>),
    Fraction(CellValue<R, f64>),
    /// Appends the text; `false`: there is none.
    Text(CellText<R>),
}

/// A number as tables have it, which know signed ones only.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A time in nanoseconds as tables have it.
pub(super) fn microseconds(time_ns: u64) -> i64 {
    signed(time_ns / 1000)
}

fn column<R>(name: &str, values: Values<R>) -> TableColumn<R> {
    TableColumn {
        name: name.to_owned(),
        values,
    }
}

fn time<R: 'static>(name: &str, value: fn(&R) -> Option<u64>) -> TableColumn<R> {
    column(name, Values::Time(Box::new(value)))
}

fn number<R: 'static>(name: &str, value: fn(&R) -> Option<u64>) -> TableColumn<R> {
    column(name, Values::Number(Box::new(value)))
}

fn text<R: 'static>(name: &str, value: fn(&R) -> Option<&str>) -> TableColumn<R> {
    let text = move |row: &R, to: &mut String| {
        let text = value(row);
        to.push_str(text.unwrap_or_default());
        text.is_some()
    };
    column(name, Values::Text(Box::new(text)))
}

fn address<R: 'static>(name: &str, value: fn(&R) -> IpAddr) -> TableColumn<R> {
    let text = move |row: &R, to: &mut String| {
        push_address(value(row), to);
        true
    };
    column(name, Values::Text(Box::new(text)))
}

type DirectionOf = fn(&FlowRecord) -> &DirectionCounts;
type CountOf = fn(&DirectionCounts) -> Option<u64>;

/// Columns of each direction.
const DIRECTIONS: [(&str, DirectionOf); 2] = [
    ("forward", |flow| &flow.forward),
    ("backward", |flow| &flow.backward),
];
const OF_A_WAY: [(&str, CountOf); 8] = [
    ("packets", |direction| Some(direction.packets)),
    ("bytes", |direction| Some(direction.bytes)),
    ("frame_bytes", |direction| Some(direction.frame_bytes)),
    ("payload_bytes", |direction| Some(direction.payload_bytes)),
    ("stream_bytes", |direction| Some(direction.stream_bytes)),
    ("tcp_flags", |direction| Some(direction.tcp_flags.into())),
    ("retransmissions", |direction| {
        direction.retransmissions.count().map(Into::into)
    }),
    ("resets", |direction| Some(direction.resets.into())),
];

/// Columns of the table `flows`.
pub(super) fn flow_columns() -> Vec<TableColumn<FlowRecord>> {
    let mut columns = vec![
        time("first_time", |flow: &FlowRecord| Some(flow.first_ns())),
        time("last_time", |flow| Some(flow.last_ns())),
        address("source", |flow| flow.key.source),
        address("destination", |flow| flow.key.destination),
        number("source_port", |flow| Some(flow.key.source_port.into())),
        number("destination_port", |flow| {
            Some(flow.key.destination_port.into())
        }),
        number("protocol", |flow| Some(flow.key.protocol.into())),
        number("vlan", |flow| Some(flow.key.vlan.into())),
    ];
    for (prefix, direction) in DIRECTIONS {
        columns.extend(OF_A_WAY.map(|(name, value)| {
            let value = move |flow: &FlowRecord| value(direction(flow));
            column(&format!("{prefix}_{name}"), Values::Number(Box::new(value)))
        }));
    }
    columns.extend([
        number("forward_tos", |flow: &FlowRecord| {
            Some(flow.marks[0].traffic_class.into())
        }),
        number("backward_tos", |flow| {
            Some(flow.marks[1].traffic_class.into())
        }),
        number("interface", |flow| flow.interface.map(Into::into)),
        text("forward_direction", |flow| flow.directions()[0]),
        text("backward_direction", |flow| flow.directions()[1]),
        number("icmp_identifier", |flow| {
            flow.icmp_identifier.map(Into::into)
        }),
        number("handshake_ns", |flow: &FlowRecord| flow.handshake_ns),
        time("first_payload_time", |flow| flow.first_payload_ns),
        text("end_reason", |flow| Some(flow.end.word())),
        text("conn_state", |flow| Some(flow.conn_state())),
        number("part", |flow| Some(flow.part.into())),
        number("sampling", |flow| Some(flow.sampling.into())),
    ]);
    columns.extend([
        number("inner_vlan", |flow: &FlowRecord| inner_vlan(flow, 0)),
        number("third_vlan", |flow| inner_vlan(flow, 1)),
    ]);
    columns.extend(tunnel_columns("tunnel", 0));
    columns.extend(tunnel_columns("inner_tunnel", 1));
    columns.extend(Details::TEXTS.map(|(name, _, value)| {
        let text = move |flow: &FlowRecord, to: &mut String| {
            let text = flow.details.as_ref().and_then(|own| value(own).as_deref());
            to.push_str(text.unwrap_or_default());
            text.is_some()
        };
        column(name, Values::Text(Box::new(text)))
    }));
    columns.push(number("dns_latency_ns", |flow| {
        flow.details.as_ref()?.dns_latency_ns
    }));
    let community_id = |flow: &FlowRecord, to: &mut String| {
        let id = flow.community_id();
        // Writing to a text never fails.
        let _written = id.map(|id| write!(to, "{id}"));
        id.is_some()
    };
    columns.push(column("community_id", Values::Text(Box::new(community_id))));
    columns
}

fn inner_vlan(flow: &FlowRecord, at: usize) -> Option<u64> {
    let vlan = flow.outside.as_ref()?.inner_vlans[at];
    (vlan > 0).then(|| vlan.into())
}

/// Columns of the tunnel of this level, 0 for the outermost.
fn tunnel_columns(prefix: &str, level: usize) -> Vec<TableColumn<FlowRecord>> {
    let tunnel = move |flow: &FlowRecord| flow.outside.as_ref()?.tunnels[level];
    let number = |name: &str, value: fn(&Tunnel) -> Option<u32>| {
        let value = move |flow: &FlowRecord| Some(value(&tunnel(flow)?)?.into());
        column(&format!("{prefix}{name}"), Values::Number(Box::new(value)))
    };
    let text = |name: &str, put: fn(&Tunnel, &mut String)| {
        let value = move |flow: &FlowRecord, to: &mut String| {
            let tunnel = tunnel(flow);
            tunnel.iter().for_each(|own| put(own, to));
            tunnel.is_some()
        };
        column(&format!("{prefix}{name}"), Values::Text(Box::new(value)))
    };

    vec![
        text("", |own, to| to.push_str(own.kind.word())),
        text("_source", |own, to| push_address(own.source, to)),
        text("_destination", |own, to| push_address(own.destination, to)),
        number("_forward_id", |own| own.identifiers[0]),
        number("_backward_id", |own| own.identifiers[1]),
        number("_vlan", |own| {
            Some(own.vlan.into()).filter(|vlan| *vlan > 0)
        }),
    ]
}

/// Columns of the table `dns`.
pub(super) fn dns_columns() -> Vec<TableColumn<DnsRecord>> {
    vec![
        time("time", |dns: &DnsRecord| Some(dns.time_ns)),
        address("source", |dns| dns.key.source),
        address("destination", |dns| dns.key.destination),
        number("source_port", |dns| Some(dns.key.source_port.into())),
        number("destination_port", |dns| {
            Some(dns.key.destination_port.into())
        }),
        number("protocol", |dns| Some(dns.key.protocol.into())),
        number("id", |dns| Some(dns.id.into())),
        text("query", |dns| Some(&dns.query)),
        text("query_type", |dns| Some(&dns.query_type)),
        text("response", |dns| dns.response.as_deref()),
        column(
            "answers",
            Values::Text(Box::new(|dns, to| {
                to.push_str(&dns.answers.join(" "));
                dns.response.is_some()
            })),
        ),
        number("latency_ns", |dns| dns.rtt_ns),
    ]
}

/// Columns of the table `measurements`.
pub(super) fn value_columns() -> Vec<TableColumn<ValueRow>> {
    vec![
        time("from_time", |row: &ValueRow| Some(row.measurement.from_ns)),
        time("to_time", |row| Some(row.measurement.to_ns)),
        text("analysis", |row| Some(&row.measurement.analysis)),
        text("name", |row| Some(&row.measurement.name)),
        text("key", |row| row.measurement.key.as_deref()),
        text("value_name", |row| Some(row.name)),
        column("value", Values::Fraction(Box::new(|row| row.value))),
    ]
}
