// SPDX-License-Identifier: MIT OR Apache-2.0
//! Columns of the tables: name, type, and the value of a row.

use super::ValueRow;
use crate::record::{Details, DnsRecord, FlowRecord, OneWay};

/// A column of a table with rows of type `R`.
pub(super) struct ParquetColumn<R> {
    name: String,
    pub(super) values: Values<R>,
}

type CellValue<R, V> = Box<dyn Fn(&R) -> V + Send>;

/// Type of a column, and its value in a row.
pub(super) enum Values<R> {
    /// Nanoseconds since 1970, stored as microseconds: Spark reads no nanoseconds.
    Time(CellValue<R, Option<u64>>),
    Number(CellValue<R, Option<u64>>),
    Fraction(CellValue<R, f64>),
    Text(CellValue<R, Option<String>>),
}

impl<R> ParquetColumn<R> {
    /// The column in the language of Parquet's schemas.
    pub(super) fn schema(&self) -> String {
        let name = &self.name;
        match self.values {
            Values::Time(_) => format!("optional int64 {name} (TIMESTAMP(MICROS,true));"),
            Values::Number(_) => format!("optional int64 {name};"),
            Values::Fraction(_) => format!("required double {name};"),
            Values::Text(_) => format!("optional binary {name} (UTF8);"),
        }
    }
}

fn column<R>(name: &str, values: Values<R>) -> ParquetColumn<R> {
    ParquetColumn {
        name: name.to_owned(),
        values,
    }
}

fn time<R: 'static>(name: &str, value: fn(&R) -> Option<u64>) -> ParquetColumn<R> {
    column(name, Values::Time(Box::new(value)))
}

fn number<R: 'static>(name: &str, value: fn(&R) -> Option<u64>) -> ParquetColumn<R> {
    column(name, Values::Number(Box::new(value)))
}

fn text<R: 'static>(name: &str, value: fn(&R) -> Option<String>) -> ParquetColumn<R> {
    column(name, Values::Text(Box::new(value)))
}

type WayOf = fn(&FlowRecord) -> &OneWay;
type CountOf = fn(&OneWay) -> u64;

/// Columns of each direction.
const WAYS: [(&str, WayOf); 2] = [
    ("forward", |flow| &flow.forward),
    ("backward", |flow| &flow.backward),
];
const OF_A_WAY: [(&str, CountOf); 8] = [
    ("packets", |way| way.packets),
    ("bytes", |way| way.bytes),
    ("frame_bytes", |way| way.frame_bytes),
    ("payload_bytes", |way| way.payload_bytes),
    ("stream_bytes", |way| way.stream_bytes),
    ("tcp_flags", |way| way.tcp_flags.into()),
    ("retransmissions", |way| way.retransmissions.into()),
    ("resets", |way| way.resets.into()),
];

/// Columns of the table `flows`.
pub(super) fn flow_columns() -> Vec<ParquetColumn<FlowRecord>> {
    let mut columns = vec![
        time("first_time", |flow: &FlowRecord| Some(flow.first_ns())),
        time("last_time", |flow| Some(flow.last_ns())),
        text("source", |flow| Some(flow.key.source.to_string())),
        text("destination", |flow| Some(flow.key.destination.to_string())),
        number("source_port", |flow| Some(flow.key.source_port.into())),
        number("destination_port", |flow| {
            Some(flow.key.destination_port.into())
        }),
        number("protocol", |flow| Some(flow.key.protocol.into())),
        number("vlan", |flow| Some(flow.key.vlan.into())),
    ];
    for (prefix, way) in WAYS {
        columns.extend(OF_A_WAY.map(|(name, value)| {
            let value = move |flow: &FlowRecord| Some(value(way(flow)));
            column(&format!("{prefix}_{name}"), Values::Number(Box::new(value)))
        }));
    }
    columns.extend([
        number("handshake_ns", |flow: &FlowRecord| flow.handshake_ns),
        time("first_payload_time", |flow| flow.first_payload_ns),
        text("end_reason", |flow| Some(flow.end.word().to_owned())),
        text("conn_state", |flow| Some(flow.conn_state().to_owned())),
        number("part", |flow| Some(flow.part.into())),
        number("sampling", |flow| Some(flow.sampling.into())),
    ]);
    columns.extend(Details::TEXTS.map(|(name, _, value)| {
        let value = move |flow: &FlowRecord| value(flow.details.as_ref()?).clone();
        column(name, Values::Text(Box::new(value)))
    }));
    columns.push(number("dns_latency_ns", |flow| {
        flow.details.as_ref()?.dns_latency_ns
    }));
    columns
}

/// Columns of the table `dns`.
pub(super) fn dns_columns() -> Vec<ParquetColumn<DnsRecord>> {
    vec![
        time("time", |dns: &DnsRecord| Some(dns.time_ns)),
        text("source", |dns| Some(dns.key.source.to_string())),
        text("destination", |dns| Some(dns.key.destination.to_string())),
        number("source_port", |dns| Some(dns.key.source_port.into())),
        number("destination_port", |dns| {
            Some(dns.key.destination_port.into())
        }),
        number("protocol", |dns| Some(dns.key.protocol.into())),
        number("id", |dns| Some(dns.id.into())),
        text("query", |dns| Some(dns.query.clone())),
        text("query_type", |dns| Some(dns.query_type.clone())),
        text("response", |dns| dns.response.clone()),
        text("answers", |dns| {
            dns.response.as_ref().map(|_| dns.answers.join(" "))
        }),
        number("latency_ns", |dns| dns.rtt_ns),
    ]
}

/// Columns of the table `measurements`.
pub(super) fn value_columns() -> Vec<ParquetColumn<ValueRow>> {
    vec![
        time("from_time", |row: &ValueRow| Some(row.measurement.from_ns)),
        time("to_time", |row| Some(row.measurement.to_ns)),
        text("analysis", |row| Some(row.measurement.analysis.clone())),
        text("name", |row| Some(row.measurement.name.clone())),
        text("key", |row| row.measurement.key.clone()),
        text("value_name", |row| Some(row.name.to_owned())),
        column("value", Values::Fraction(Box::new(|row| row.value))),
    ]
}
