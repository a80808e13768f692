// SPDX-License-Identifier: MIT OR Apache-2.0
//! A hub's counters in OpenMetrics' text format; `docs/counters.md` promises the names.

use std::collections::HashMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeGaugeValue, EncodeLabelSet, EncodeMetric, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use ringtap_ipc::protocol::{
    BridgeStatus, DepartedStatus, GroupStatus, HubStatus, LaneStatus, ReaderStatus, SourceState,
    SourceStatus,
};
use serde::Serialize;
use serde_json::Value;

use crate::report::as_f64;

type Labels = Vec<(&'static str, String)>;

/// Metrics that are a field of the status, one per line: part of the hub, type, field, name without
/// unit, unit, description.
const METRICS: &str = "\
lane   counter offered            ringtap_offered               packets Packets that reached a lane.
lane   counter captured           ringtap_captured              packets Packets put into the pool.
lane   counter bytes              ringtap_captured_wire         bytes   Bytes at L2 of captured packets, without checksum.
lane   counter filtered           ringtap_filtered              packets Packets that no reader wanted.
lane   gauge   chunks             ringtap_chunks                -       Chunks of a lane.
lane   gauge   chunks_in_use      ringtap_chunks_in_use         -       Chunks of a lane that are not free.
lane   gauge   paused             ringtap_paused                -       Whether capture of a lane waits for readers.
source gauge   balanced           ringtap_source_balanced       -       Whether offered = captured + filtered + lost on every lane.
source gauge   pool_bytes         ringtap_pool                  bytes   Memory of a source's pool.
group  gauge   members            ringtap_group_members         -       Readers in a group.
group  gauge   offload_percent    ringtap_group_offload_percent -       Chunks of a lane above which a member is helped.
group  counter offloaded_chunks   ringtap_group_offloaded       chunks  Chunks delivered to another member than the lane's owner.
group  counter offloaded_packets  ringtap_group_offloaded       packets Packets in these chunks.
group  counter disordered_packets ringtap_group_disordered      packets Packets that may have been read before earlier packets of their flow.
bridge counter offered            ringtap_bridge_offered        packets Packets that arrived at one interface of a bridge.
bridge counter delivered          ringtap_bridge_delivered      packets Packets that left by its other interface.
bridge counter filtered           ringtap_bridge_filtered       packets Packets that its filter or inline reader stopped.
reader counter delivered          ringtap_reader_delivered      packets Packets that a reader took.
reader counter filtered           ringtap_reader_filtered       packets Packets that did not pass a reader's filter.
reader counter other_members      ringtap_reader_other_members  packets Packets for other members of a reader's group.
reader counter bytes              ringtap_reader_delivered_wire bytes   Bytes at L2 of the packets that a reader took, without checksum.
reader counter helped_chunks      ringtap_reader_helped         chunks  Chunks that a reader took for other members.
reader gauge   lag_chunks         ringtap_reader_lag_chunks     -       Chunks that a reader holds.
reader gauge   credit_chunks      ringtap_reader_credit_chunks  -       Chunks of a lane that a reader may hold.
reader gauge   guaranteed_chunks  ringtap_reader_guaranteed_chunks - Chunks of a lane that a reader can always hold.
reader gauge   buckets            ringtap_reader_buckets        -       Buckets of flows that a reader owns, of 2,048.
reader gauge   corrupt            ringtap_reader_corrupt        -       Whether a reader broke the protocol and was cut off.";
const NO_UNIT: &str = "-";

/// All metrics of a hub at one moment.
pub(crate) fn exposition(status: &HubStatus) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(HubMetrics(status.clone())));
    let mut out = String::new();
    text::encode(&mut out, &registry)?;
    Ok(out)
}

#[derive(Debug)]
struct HubMetrics(HubStatus);

impl Collector for HubMetrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let hub = &self.0;
        let mut metrics = Metrics(encoder);
        metrics.hub(hub)?;
        metrics.sources(&sources(hub))?;
        metrics.groups(&groups(hub))?;
        metrics.readers(&readers(hub))?;
        let bridges = bridges(hub);
        metrics.table("bridge", &bridges)?;
        let lost = bridges.with("reason", "nic", |one| one.nic);
        let lost = lost.chain(bridges.with("reason", "kernel", |one| one.kernel));
        metrics.counters(
            "ringtap_bridge_lost",
            "packets",
            "Packets that a way of a bridge lost, by reason.",
            lost.chain(bridges.with("reason", "no_verdict", |one| one.no_verdict)),
        )?;
        metrics.counters(
            "ringtap_departed_readers_lost",
            "packets",
            "Packets lost by readers that have left.",
            [([("reason", "overrun")], hub.departed_overrun)],
        )?;
        let departed = |counter: fn(&DepartedStatus) -> u64| {
            hub.departed.iter().map(move |one| {
                let uid = ("uid", one.uid.to_string());
                let labels = vec![
                    ("group", one.group.clone()),
                    ("name", one.name.clone()),
                    uid,
                ];
                (labels, counter(one))
            })
        };
        metrics.counters(
            "ringtap_departed_reader_delivered",
            "packets",
            "Packets that readers of this name took before they left.",
            departed(|one| one.delivered),
        )?;
        metrics.counters(
            "ringtap_departed_reader_lost",
            "packets",
            "Packets that readers of this name lost before they left.",
            departed(|one| one.overrun),
        )
    }
}

/// Parts of a hub with their labels.
struct Labelled<'a, T>(Vec<(Labels, &'a T)>);

impl<T> Labelled<'_, T> {
    fn each<V>(&self, value: fn(&T) -> V) -> impl Iterator<Item = (Labels, V)> {
        let parts = self.0.iter();
        parts.map(move |(labels, part)| (labels.clone(), value(part)))
    }

    /// As [`Labelled::each`], with one more label.
    fn with<V>(
        &self,
        label: &'static str,
        text: &'static str,
        value: fn(&T) -> V,
    ) -> impl Iterator<Item = (Labels, V)> {
        self.each(value).map(move |(mut labels, value)| {
            labels.push((label, text.to_owned()));
            (labels, value)
        })
    }
}

/// The sources, named by device. A second source of the same device is `DEVICE#2`, because each
/// sample needs a unique name.
fn sources(hub: &HubStatus) -> Labelled<'_, SourceStatus> {
    let mut times = HashMap::new();
    let mut labelled = |source: &'_ SourceStatus| {
        let device = &source.device;
        let time = times.entry(device.clone()).or_insert(0);
        *time += 1;
        let name = match *time {
            1 => device.clone(),
            time => format!("{device}#{time}"),
        };
        vec![("source", name)]
    };
    let sources = hub.sources.iter();
    Labelled(sources.map(|source| (labelled(source), source)).collect())
}

fn lanes<'a>(sources: &Labelled<'a, SourceStatus>) -> Labelled<'a, LaneStatus> {
    let of_source = |(labels, source): &(Labels, &'a SourceStatus)| {
        let labels = labels.clone();
        source.lanes.iter().map(move |lane| {
            let number = ("lane", lane.lane.to_string());
            ([labels.clone(), vec![number]].concat(), lane)
        })
    };
    Labelled(sources.0.iter().flat_map(of_source).collect())
}

fn groups(hub: &HubStatus) -> Labelled<'_, GroupStatus> {
    let labelled = |group: &'_ GroupStatus| vec![("group", group.name.clone())];
    let groups = hub.groups.iter();
    Labelled(groups.map(|group| (labelled(group), group)).collect())
}

fn bridges(hub: &HubStatus) -> Labelled<'_, BridgeStatus> {
    let labelled = |bridge: &'_ BridgeStatus| vec![("way", bridge.way.clone())];
    let bridges = hub.bridges.iter();
    Labelled(bridges.map(|bridge| (labelled(bridge), bridge)).collect())
}

fn readers(hub: &HubStatus) -> Labelled<'_, ReaderStatus> {
    let labelled = |reader: &'_ ReaderStatus| {
        let group = ("group", reader.group.clone());
        let number = ("reader", reader.reader.to_string());
        vec![group, number, ("name", reader.name.clone())]
    };
    let readers = hub.readers.iter();
    Labelled(readers.map(|reader| (labelled(reader), reader)).collect())
}

/// Writes metrics: one method for each kind of part, then one for each type of metric.
struct Metrics<'a>(DescriptorEncoder<'a>);

impl Metrics<'_> {
    fn hub(&mut self, hub: &HubStatus) -> fmt::Result {
        let version = ("version", hub.version.clone());
        let labels = vec![version, ("pid", hub.pid.to_string())];
        let kind = MetricType::Info;
        let mut metric = self
            .0
            .encode_descriptor("ringtap_hub", "The hub.", None, kind)?;
        metric.encode_info(&labels)?;
        let started = ConstGauge::new(as_f64(hub.started_ns) / 1e9);
        started.encode(self.0.encode_descriptor(
            "ringtap_start_time",
            "When the hub started, since 1970.",
            Some(&Unit::Seconds),
            MetricType::Gauge,
        )?)
    }

    /// Writes the metrics of [`METRICS`] that belong to this part of the hub.
    fn table<T: Serialize>(&mut self, part: &str, of: &Labelled<'_, T>) -> fmt::Result {
        let json = |part: &T| serde_json::to_value(part).unwrap_or_default();
        let parts = of.0.iter().map(|(labels, part)| (labels, json(part)));
        let parts: Vec<_> = parts.collect();
        for line in METRICS.lines() {
            let mut words = line.split_whitespace();
            let columns = std::array::from_fn(|_| words.next().unwrap_or_default());
            let [of_part, kind, field, name, unit] = columns;
            if of_part != part {
                continue;
            }
            let help = words.collect::<Vec<_>>().join(" ");
            let samples = parts
                .iter()
                .filter_map(|(labels, part)| Some(((*labels).clone(), number(&part[field])?)));
            match kind {
                "counter" => self.counters(name, unit, &help, samples)?,
                _ => self.gauges(name, unit, &help, samples)?,
            }
        }
        Ok(())
    }

    fn sources(&mut self, sources: &Labelled<'_, SourceStatus>) -> fmt::Result {
        let lanes = lanes(sources);
        self.table("lane", &lanes)?;
        self.table("source", sources)?;
        let lost = lanes.with("reason", "pool_full", |lane| lane.pool_full);
        let lost = lost.chain(lanes.with("reason", "kernel", |lane| lane.kernel));
        let lost = lost.chain(sources.with("reason", "kernel", |source| source.kernel));
        self.counters(
            "ringtap_lost",
            "packets",
            "Packets lost before any reader, by reason; without a lane where none is known.",
            lost.chain(sources.with("reason", "nic", |source| source.nic)),
        )?;
        self.gauges(
            "ringtap_source_up",
            NO_UNIT,
            "Whether a source still captures.",
            sources.each(|source| u64::from(source.state != SourceState::Ended)),
        )?;
        let low = sources.with("mark", "low", |source| Some(source.congestion?.low_percent));
        let high = sources.with("mark", "high", |source| {
            Some(source.congestion?.high_percent)
        });
        let marks = low.chain(high);
        self.gauges(
            "ringtap_source_congestion_percent",
            NO_UNIT,
            "Free chunks of a lane below which capture pauses, and from which it goes on.",
            marks.filter_map(|(labels, value)| Some((labels, u64::from(value?)))),
        )
    }

    fn groups(&mut self, groups: &Labelled<'_, GroupStatus>) -> fmt::Result {
        self.table("group", groups)?;
        let help = "What a group divides, how it delivers, what it does past a reader's credit.";
        let kind = MetricType::Info;
        let mut metric = self
            .0
            .encode_descriptor("ringtap_group", help, None, kind)?;
        for (labels, group) in &groups.0 {
            let info = [
                ("balance", group.balance.as_str()),
                ("delivery", &group.delivery),
                ("policy", &group.policy),
            ];
            metric.encode_family(labels)?.encode_info(&info)?;
        }
        Ok(())
    }

    fn readers(&mut self, readers: &Labelled<'_, ReaderStatus>) -> fmt::Result {
        self.table("reader", readers)?;
        self.counters(
            "ringtap_reader_lost",
            "packets",
            "Packets that a reader lost, by reason.",
            readers.with("reason", "overrun", |reader| reader.overrun),
        )?;
        self.gauges(
            "ringtap_reader_lag",
            "seconds",
            "Age of the oldest packet that a reader holds.",
            readers.each(|reader| as_f64(reader.lag_ms) / 1e3),
        )
    }

    fn counters(
        &mut self,
        name: &str,
        unit: &str,
        help: &str,
        samples: impl IntoIterator<Item = (impl EncodeLabelSet, u64)>,
    ) -> fmt::Result {
        let (unit, kind) = (unit_of(unit), MetricType::Counter);
        let mut metric = self.0.encode_descriptor(name, help, unit.as_ref(), kind)?;
        for (labels, value) in samples {
            ConstCounter::new(value).encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn gauges<V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        unit: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Labels, V)>,
    ) -> fmt::Result {
        let (unit, kind) = (unit_of(unit), MetricType::Gauge);
        let mut metric = self.0.encode_descriptor(name, help, unit.as_ref(), kind)?;
        for (labels, value) in samples {
            ConstGauge::new(value).encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

fn unit_of(unit: &str) -> Option<Unit> {
    (unit != NO_UNIT).then(|| Unit::Other(unit.to_owned()))
}

/// A field of the status as a number; `None` for null.
fn number(field: &Value) -> Option<u64> {
    field.as_u64().or(field.as_bool().map(u64::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_of_the_table_has_its_field() {
        let field = |part: &str, field: &str| {
            let json = match part {
                "lane" => serde_json::to_value(LaneStatus::default()),
                "source" => serde_json::to_value(SourceStatus::default()),
                "group" => serde_json::to_value(GroupStatus::default()),
                "bridge" => serde_json::to_value(BridgeStatus::default()),
                _ => serde_json::to_value(ReaderStatus::default()),
            };
            json.unwrap().get(field).is_some()
        };
        for line in METRICS.lines() {
            let words: Vec<_> = line.split_whitespace().collect();
            assert!(field(words[0], words[2]), "{line}");
            assert!(["counter", "gauge"].contains(&words[1]), "{line}");
        }
    }
}
