// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records as JSON, one object a line; with the names of Zeek's `conn.log`, `ssl.log` and `dns.log`.

use std::io::Write;

use serde_json::{Map, Value, json};

use super::lines::LineOutput;
use super::{ExportError, Exporter};
use crate::analysis::protocol_word;
use crate::record::{
    Details, DirectionCounts, DnsRecord, FlowKey, FlowRecord, Measurement, Record, Tunnel,
};

/// Writes records as lines of JSON.
pub struct JsonLines<W> {
    output: LineOutput<W>,
    name: String,
}

impl<W: Write + Send> JsonLines<W> {
    /// Writes to `output`, which `name` names in messages.
    pub fn new(output: W, name: impl Into<String>) -> Self {
        let (name, output) = (name.into(), LineOutput::new(output));
        JsonLines { output, name }
    }
}

impl<W: Write + Send> Exporter for JsonLines<W> {
    fn name(&self) -> String {
        format!("json {}", self.name)
    }

    fn write(&mut self, records: &[Record]) -> Result<(), ExportError> {
        let mut lines = Vec::with_capacity(512 * records.len());
        for record in records {
            serde_json::to_writer(&mut lines, &object(record)).map_err(std::io::Error::from)?;
            lines.push(b'\n');
        }
        self.output.write(&lines)
    }

    fn flush(&mut self) -> Result<(), ExportError> {
        Ok(())
    }

    fn is_unread(&self) -> bool {
        self.output.is_unread()
    }
}

/// A record as a JSON object.
pub fn object(record: &Record) -> Value {
    match record {
        Record::Flow(flow) => flow_object(flow),
        Record::Dns(dns) => dns_object(dns),
        Record::Measurement(measurement) => measurement_object(measurement),
    }
}

/// Both ports as Zeek has them: of ICMP the type, and the type of the answer or else the code.
fn ports(key: &FlowKey) -> (u16, u16) {
    let [kind, code] = key.source_port.to_be_bytes().map(u16::from);
    match key.protocol {
        1 | 58 if key.source_port == key.destination_port => (kind, code),
        1 | 58 => (kind, key.destination_port >> 8),
        _ => (key.source_port, key.destination_port),
    }
}

fn flow_object(flow: &FlowRecord) -> Value {
    let FlowRecord {
        key,
        forward,
        backward,
        ..
    } = flow;
    let (from, to) = ports(key);
    let mut object = json!({
        "type": "flow",
        "ts": seconds(flow.first_ns()),
        "id.orig_h": key.source,
        "id.orig_p": from,
        "id.resp_h": key.destination,
        "id.resp_p": to,
        "proto": protocol_word(key.protocol),
        "duration": seconds(flow.duration_ns()),
        "orig_bytes": forward.stream_bytes,
        "resp_bytes": backward.stream_bytes,
        "orig_pkts": forward.packets,
        "resp_pkts": backward.packets,
        "orig_ip_bytes": forward.bytes,
        "resp_ip_bytes": backward.bytes,
        "orig_frame_bytes": forward.frame_bytes,
        "resp_frame_bytes": backward.frame_bytes,
        "conn_state": flow.conn_state(),
        "end": flow.end.word(),
    });
    let Value::Object(fields) = &mut object else {
        return object;
    };
    let is_tcp = key.protocol == 6;
    let of_tcp = |value: u64| is_tcp.then(|| value.into());
    let again = |direction: &DirectionCounts| of_tcp(direction.retransmissions.count()?.into());
    let above = |least: u64, value: u64| (value > least).then(|| value.into());
    let [there, back] = flow.directions();
    let direction = |word: Option<&str>| word.map(Into::into);
    let [from_marks, to_marks] = flow.marks;
    let community_id = flow.community_id().map(|id| id.to_string().into());
    let optional: [(&str, Option<Value>); 16] = [
        ("orig_tcp_flags", of_tcp(forward.tcp_flags.into())),
        ("resp_tcp_flags", of_tcp(backward.tcp_flags.into())),
        ("orig_retransmissions", again(forward)),
        ("resp_retransmissions", again(backward)),
        ("orig_tos", above(0, from_marks.traffic_class.into())),
        ("resp_tos", above(0, to_marks.traffic_class.into())),
        ("interface", flow.interface.map(Into::into)),
        ("orig_direction", direction(there)),
        ("resp_direction", direction(back)),
        ("icmp_identifier", flow.icmp_identifier.map(Into::into)),
        ("vlan", above(0, key.vlan.into())),
        ("handshake_rtt", flow.handshake_ns.map(seconds)),
        ("first_payload_ts", flow.first_payload_ns.map(seconds)),
        ("part", above(0, flow.part.into())),
        ("sampling", above(1, flow.sampling.into())),
        ("community_id", community_id),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            fields.insert(name.into(), value);
        }
    }
    insert_outside(fields, flow);
    insert_details(fields, flow);
    object
}

/// Inner VLANs, and tunnels with the outermost first.
fn insert_outside(fields: &mut Map<String, Value>, flow: &FlowRecord) {
    let Some(outside) = &flow.outside else {
        return;
    };
    let vlans: Vec<_> = outside
        .inner_vlans
        .iter()
        .filter(|vlan| **vlan > 0)
        .collect();
    if !vlans.is_empty() {
        fields.insert("inner_vlans".into(), json!(vlans));
    }
    let tunnels: Vec<_> = outside
        .tunnels
        .iter()
        .flatten()
        .map(tunnel_object)
        .collect();
    if !tunnels.is_empty() {
        fields.insert("tunnels".into(), tunnels.into());
    }
}

fn tunnel_object(tunnel: &Tunnel) -> Value {
    let mut object = json!({
        "type": tunnel.kind.word(),
        "orig_h": tunnel.source,
        "resp_h": tunnel.destination,
    });
    let [from, to] = tunnel.identifiers;
    let vlan = Some(u32::from(tunnel.vlan)).filter(|vlan| *vlan > 0);
    if let Value::Object(fields) = &mut object {
        for (name, value) in [("orig_id", from), ("resp_id", to), ("vlan", vlan)] {
            fields.extend(value.map(|value| (name.to_owned(), value.into())));
        }
    }
    object
}

fn insert_details(fields: &mut Map<String, Value>, flow: &FlowRecord) {
    let Some(details) = &flow.details else {
        return;
    };
    for (_, name, text) in Details::TEXTS {
        if let Some(text) = text(details) {
            fields.insert(name.into(), text.clone().into());
        }
    }
    if let Some(latency_ns) = details.dns_latency_ns {
        fields.insert("rtt".into(), seconds(latency_ns));
    }
}

fn dns_object(dns: &DnsRecord) -> Value {
    let key = &dns.key;
    let mut object = json!({
        "type": "dns",
        "ts": seconds(dns.time_ns),
        "id.orig_h": key.source,
        "id.orig_p": key.source_port,
        "id.resp_h": key.destination,
        "id.resp_p": key.destination_port,
        "proto": protocol_word(key.protocol),
        "trans_id": dns.id,
        "query": dns.query,
        "qtype_name": dns.query_type,
    });
    if let (Value::Object(fields), Some(response)) = (&mut object, &dns.response) {
        fields.insert("rcode_name".into(), response.clone().into());
        fields.insert("answers".into(), dns.answers.clone().into());
        if let Some(rtt_ns) = dns.rtt_ns {
            fields.insert("rtt".into(), seconds(rtt_ns));
        }
    }
    object
}

fn measurement_object(measurement: &Measurement) -> Value {
    let values = measurement.values.iter();
    let values: Map<_, _> = values
        .map(|(name, value)| ((*name).into(), number(*value)))
        .collect();
    json!({
        "type": "measurement",
        "analysis": measurement.analysis,
        "name": measurement.name,
        "key": measurement.key,
        "from": seconds(measurement.from_ns),
        "to": seconds(measurement.to_ns),
        "values": values,
    })
}

/// Nanoseconds as seconds, exact to the microsecond, as Zeek writes times.
fn seconds(nanoseconds: u64) -> Value {
    number(crate::record::as_value(nanoseconds / 1000) / 1e6)
}

/// A whole number without a fraction.
fn number(value: f64) -> Value {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "checked: the value is whole and below 2^53"
    )]
    if value.fract() == 0.0 && value.abs() < 9e15 {
        (value as i64).into()
    } else {
        value.into()
    }
}
