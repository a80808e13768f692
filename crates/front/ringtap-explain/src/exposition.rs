// SPDX-License-Identifier: MIT OR Apache-2.0
//! A hub's counters in OpenMetrics' text format; `docs/counters.md` promises the names.

use std::collections::HashMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use ringtap_ipc::protocol::{HubStatus, SourceState, SourceStatus};
use ringtap_pool::counters::{Scope, Term};
use serde::Serialize;
use serde_json::{Value, json};

use crate::text::as_f64;

type Labels = Vec<(&'static str, String)>;

/// Metrics that are a field of a part of the hub, one per line: the part, type, field, name without unit,
/// unit, further label, description. Successive lines with one name are one metric.
const METRICS: &str = "\
lane   counter offered            ringtap_offered               packets - Packets that reached a lane.
lane   counter delivered          ringtap_delivered             packets - Packets put into the pool.
lane   counter bytes              ringtap_delivered_wire        bytes   - Bytes at L2 of these packets, without checksum.
lane   counter filtered           ringtap_filtered              packets - Packets that no reader wanted.
lane   counter shunted            ringtap_shunted               packets - Packets that flow rules withheld from every reader.
lane   gauge   chunks             ringtap_chunks                -       - Chunks of a lane.
lane   gauge   chunks_in_use      ringtap_chunks_in_use         -       - Chunks of a lane that are not free.
lane   gauge   paused             ringtap_paused                -       - Whether capture of a lane waits for readers.
source gauge   balanced           ringtap_source_balanced       -       - Whether every lane's account balances.
source gauge   pool_bytes         ringtap_pool                  bytes   - Memory of a source's pool.
lane   losses  dropped            ringtap_lost                  packets reason Packets lost before any reader, by reason; without a lane where none is known.
source losses  dropped            ringtap_lost                  packets reason
source gauge   up                 ringtap_source_up             -       - Whether a source still captures.
source gauge   congestion/low_percent  ringtap_source_congestion_percent - mark=low Free chunks of a lane below which capture pauses, and from which it goes on.
source gauge   congestion/high_percent ringtap_source_congestion_percent - mark=high
group  gauge   members            ringtap_group_members         -       - Readers in a group.
group  gauge   offload_percent    ringtap_group_offload_percent -       - Chunks of a lane above which a member is helped.
group  counter offloaded_chunks   ringtap_group_offloaded       chunks  - Chunks delivered to another member than the lane's owner.
group  counter offloaded_packets  ringtap_group_offloaded       packets - Packets in these chunks.
group  counter disordered_packets ringtap_group_disordered      packets - Packets that may have been read before earlier packets of their flow.
bridge counter offered            ringtap_bridge_offered        packets - Packets that arrived at one interface of a bridge.
bridge counter delivered          ringtap_bridge_delivered      packets - Packets that left by its other interface.
bridge counter filtered           ringtap_bridge_filtered       packets - Packets that its filter or inline reader stopped.
bridge losses  dropped            ringtap_bridge_lost           packets reason Packets that a way of a bridge lost, by reason.
reader counter delivered          ringtap_reader_delivered      packets - Packets that a reader took.
reader counter filtered           ringtap_reader_filtered       packets - Packets that did not pass a reader's filter.
reader counter shunted            ringtap_reader_shunted        packets - Packets that a flow rule of a reader withheld.
reader counter shunted_bytes      ringtap_reader_shunted_wire   bytes   - Bytes at L2 of these packets, without checksum.
reader counter other_members      ringtap_reader_other_members  packets - Packets for other members of a reader's group.
reader counter bytes              ringtap_reader_delivered_wire bytes   - Bytes at L2 of the packets that a reader took, without checksum.
reader losses  dropped            ringtap_reader_lost           packets reason Packets that a reader lost, by reason; not those that its sources lost.
reader gauge   unread             ringtap_reader_unread         packets - Packets in the pool that a reader has yet to read.
reader counter helped_chunks      ringtap_reader_helped         chunks  - Chunks that a reader took for other members.
reader gauge   lag_chunks         ringtap_reader_lag_chunks     -       - Chunks that a reader holds.
reader gauge   lag_s              ringtap_reader_lag            seconds - Age of the oldest packet that a reader holds.
reader gauge   credit_chunks      ringtap_reader_credit_chunks  -       - Chunks of a lane that a reader may hold.
reader gauge   guaranteed_chunks  ringtap_reader_guaranteed_chunks -    - Chunks of a lane that a reader can always hold.
reader gauge   buckets            ringtap_reader_buckets        -       - Buckets of flows that a reader owns, of 2,048.
reader gauge   corrupt            ringtap_reader_corrupt        -       - Whether a reader broke the protocol and was cut off.
reader gauge   impossible         ringtap_reader_impossible     -       - Whether a reader reported more packets than its sources captured.
hub    counter departed_overrun   ringtap_departed_readers_lost packets reason=overrun Packets lost by readers that have left.
name   counter delivered          ringtap_departed_reader_delivered packets - Packets that readers of this name took before they left.
name   losses  dropped            ringtap_departed_reader_lost  packets reason Packets that readers of this name lost before they left.
name   counter unread             ringtap_departed_reader_unread packets - Packets in the pool that readers of this name had not read when they left.";
/// No unit, or no further label.
const NONE: &str = "-";

/// All metrics of a hub at one moment, in OpenMetrics' text format.
///
/// # Errors
///
/// A metric cannot be written.
pub fn exposition(status: &HubStatus) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(HubMetrics(status.clone())));
    let mut out = String::new();
    text::encode(&mut out, &registry)?;
    Ok(out)
}

#[derive(Debug)]
struct HubMetrics(HubStatus);

impl Collector for HubMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let HubStatus {
            version,
            pid,
            started_ns,
            groups,
            ..
        } = &self.0;
        let labels = [("version", version.clone()), ("pid", pid.to_string())];
        let mut hub =
            encoder.encode_descriptor("ringtap_hub", "The hub.", None, MetricType::Info)?;
        hub.encode_info(&labels)?;
        let started = ConstGauge::new(as_f64(*started_ns) / 1e9);
        started.encode(encoder.encode_descriptor(
            "ringtap_start_time",
            "When the hub started, since 1970.",
            Some(&Unit::Seconds),
            MetricType::Gauge,
        )?)?;
        let help = "What a group divides, how it delivers, what it does past a reader's credit.";
        let mut info = encoder.encode_descriptor("ringtap_group", help, None, MetricType::Info)?;
        for group in groups {
            let labels = [
                ("balance", &*group.division.to_string()),
                ("delivery", group.delivery.word()),
                ("policy", &*group.policy.to_string()),
            ];
            let family = [("group", group.name.as_str())];
            info.encode_family(&family)?.encode_info(&labels)?;
        }
        let parts = parts(&self.0);
        let rows: Vec<_> = METRICS.lines().flat_map(MetricRow::parse).collect();
        let same = |a: &MetricRow<'_>, b: &MetricRow<'_>| (a.name, a.unit) == (b.name, b.unit);
        let mut metrics = rows.chunk_by(same);
        metrics.try_for_each(|metric| encode(&mut encoder, metric, &parts))
    }
}

/// A line of [`METRICS`].
struct MetricRow<'a> {
    part: &'a str,
    is_counter: bool,
    /// JSON pointer to the field.
    field: String,
    name: &'a str,
    unit: &'a str,
    label: Option<(&'a str, &'a str)>,
    help: String,
}

impl<'a> MetricRow<'a> {
    /// The row of a line; of a line of losses, one row for each reason that its part can count.
    fn parse(line: &'a str) -> Vec<Self> {
        let mut words = line.split_whitespace();
        let [part, kind, field, name, unit, label] =
            std::array::from_fn(|_| words.next().unwrap_or_default());
        let help = words.collect::<Vec<_>>().join(" ");
        let row = |field, label| MetricRow {
            part,
            is_counter: kind != "gauge",
            field,
            name,
            unit,
            label,
            help: help.clone(),
        };
        if kind != "losses" {
            return vec![row(format!("/{field}"), label.split_once('='))];
        }
        let scopes = match part {
            "source" => [Scope::Source],
            "lane" => [Scope::Lane],
            "bridge" => [Scope::Bridge],
            _ => [Scope::Reader],
        };
        let reasons = Term::losses_of(&scopes).filter_map(Term::reason);
        let of_reason = |reason| row(format!("/{field}/{reason}"), Some((label, reason)));
        reasons.map(of_reason).collect()
    }
}

/// Writes the metric of these rows, with a sample for each part of the hub.
fn encode(
    encoder: &mut DescriptorEncoder<'_>,
    rows: &[MetricRow<'_>],
    parts: &[MeasuredObject],
) -> fmt::Result {
    let Some(first) = rows.first() else {
        return Ok(());
    };
    let unit = (first.unit != NONE).then(|| Unit::Other(first.unit.to_owned()));
    let kind = if first.is_counter {
        MetricType::Counter
    } else {
        MetricType::Gauge
    };
    let mut metric = encoder.encode_descriptor(first.name, &first.help, unit.as_ref(), kind)?;
    for row in rows {
        for part in parts.iter().filter(|part| part.name == row.part) {
            let label = row.label.map(|(name, value)| (name, value.to_owned()));
            let labels: Vec<_> = part.labels.iter().cloned().chain(label).collect();
            let sample = metric.encode_family(&labels)?;
            let field = part.fields.pointer(&row.field).unwrap_or(&Value::Null);
            let whole = field.as_u64().or(field.as_bool().map(u64::from));
            match (whole, field.as_f64()) {
                (Some(whole), _) if row.is_counter => ConstCounter::new(whole).encode(sample)?,
                (Some(whole), _) => ConstGauge::new(whole).encode(sample)?,
                (None, Some(number)) => ConstGauge::new(number).encode(sample)?,
                (None, None) => {}
            }
        }
    }
    Ok(())
}

/// A part of a hub: its name in [`METRICS`], the labels of its samples, and its fields.
struct MeasuredObject {
    name: &'static str,
    labels: Labels,
    fields: Value,
}

impl MeasuredObject {
    fn new(name: &'static str, labels: Labels, fields: &impl Serialize) -> Self {
        MeasuredObject {
            name,
            labels,
            fields: serde_json::to_value(fields).unwrap_or_default(),
        }
    }

    /// The part with a further field.
    fn with(mut self, field: &str, value: Value) -> Self {
        self.fields[field] = value;
        self
    }
}

fn parts(hub: &HubStatus) -> Vec<MeasuredObject> {
    let own = json!({"departed_overrun": hub.departed_overrun});
    let mut parts = vec![MeasuredObject::new("hub", Vec::new(), &own)];
    for (name, source) in named(&hub.sources) {
        let label = ("source", name);
        for lane in &source.lanes {
            let labels = vec![label.clone(), ("lane", lane.lane.to_string())];
            parts.push(MeasuredObject::new("lane", labels, lane));
        }
        let is_up = source.state != SourceState::Ended;
        parts.push(MeasuredObject::new("source", vec![label], source).with("up", is_up.into()));
    }
    for group in &hub.groups {
        let labels = vec![("group", group.name.clone())];
        parts.push(MeasuredObject::new("group", labels, group));
    }
    for bridge in &hub.bridges {
        let labels = vec![("way", bridge.way.clone())];
        parts.push(MeasuredObject::new("bridge", labels, bridge));
    }
    for reader in &hub.readers {
        let labels = vec![
            ("group", reader.group.clone()),
            ("reader", reader.reader.to_string()),
            ("name", reader.name.clone()),
        ];
        let lag_s = as_f64(reader.lag_ms) / 1e3;
        parts.push(MeasuredObject::new("reader", labels, reader).with("lag_s", lag_s.into()));
    }
    for departed in &hub.departed {
        let labels = vec![
            ("group", departed.group.clone()),
            ("name", departed.name.clone()),
            ("uid", departed.uid.to_string()),
        ];
        parts.push(MeasuredObject::new("name", labels, departed));
    }
    parts
}

/// The sources with their names: the device, and `DEVICE#2` for a second source of the same device,
/// because each sample needs a unique name.
fn named(sources: &[SourceStatus]) -> impl Iterator<Item = (String, &SourceStatus)> {
    let mut times = HashMap::new();
    sources.iter().map(move |source| {
        let time = times.entry(&source.device).or_insert(0);
        *time += 1;
        let name = match *time {
            1 => source.device.clone(),
            time => format!("{}#{time}", source.device),
        };
        (name, source)
    })
}

#[cfg(test)]
mod tests;
