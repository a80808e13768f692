// SPDX-License-Identifier: MIT OR Apache-2.0
//! A hub's counters in OpenMetrics' text format; `docs/counters.md` promises the names.
#![forbid(unsafe_code)]

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
    GroupStatus, HubStatus, LaneStatus, ReaderStatus, SourceState, SourceStatus,
};

use crate::report::as_f64;

type Labels = Vec<(&'static str, String)>;

/// All metrics of a hub at one moment.
pub(super) fn exposition(status: &HubStatus) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Snapshot(status.clone())));
    let mut out = String::new();
    text::encode(&mut out, &registry)?;
    Ok(out)
}

#[derive(Debug)]
struct Snapshot(HubStatus);

impl Collector for Snapshot {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let hub = &self.0;
        let mut metrics = Metrics(encoder);
        metrics.hub(hub)?;
        metrics.sources(&sources(hub))?;
        metrics.groups(&groups(hub))?;
        metrics.readers(&readers(hub))?;
        metrics.counters(
            "ringtap_departed_readers_lost",
            "packets",
            "Packets that readers lost which are gone by now.",
            [([("reason", "overrun")], hub.departed_overrun)],
        )
    }
}

/// Parts of a hub, each with its labels.
struct Labelled<'a, T>(Vec<(Labels, &'a T)>);

impl<T> Labelled<'_, T> {
    fn each<V>(&self, value: fn(&T) -> V) -> impl Iterator<Item = (Labels, V)> {
        let parts = self.0.iter();
        parts.map(move |(labels, part)| (labels.clone(), value(part)))
    }

    /// Like [`Labelled::each`], with one more label.
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

/// The sources, named by device; a second source of the same device is `DEVICE#2`, because each
/// sample needs a name of its own.
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

fn readers(hub: &HubStatus) -> Labelled<'_, ReaderStatus> {
    let labelled = |reader: &'_ ReaderStatus| {
        let group = ("group", reader.group.clone());
        let number = ("reader", reader.reader.to_string());
        vec![group, number, ("name", reader.name.clone())]
    };
    let readers = hub.readers.iter();
    Labelled(readers.map(|reader| (labelled(reader), reader)).collect())
}

/// Writes metrics; a method for each kind of part, then one for each type of metric.
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

    fn sources(&mut self, sources: &Labelled<'_, SourceStatus>) -> fmt::Result {
        let lanes = lanes(sources);
        self.counters(
            "ringtap_seen",
            "packets",
            "Packets that reached a lane.",
            lanes.each(|lane| lane.seen),
        )?;
        self.counters(
            "ringtap_captured",
            "packets",
            "Packets put into the pool.",
            lanes.each(|lane| lane.captured),
        )?;
        self.counters(
            "ringtap_captured_wire",
            "bytes",
            "Bytes on the wire of the packets put into the pool.",
            lanes.each(|lane| lane.bytes),
        )?;
        self.counters(
            "ringtap_unwanted",
            "packets",
            "Packets that no reader wanted.",
            lanes.each(|lane| lane.unwanted),
        )?;
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
            "ringtap_chunks",
            None,
            "Chunks of a lane.",
            lanes.each(|lane| lane.chunks),
        )?;
        self.gauges(
            "ringtap_chunks_in_use",
            None,
            "Chunks of a lane that are not free.",
            lanes.each(|lane| lane.chunks_in_use),
        )?;
        self.gauges(
            "ringtap_paused",
            None,
            "Whether capture of a lane waits for readers.",
            lanes.each(|lane| u32::from(lane.paused)),
        )?;
        self.gauges(
            "ringtap_source_up",
            None,
            "Whether a source still captures.",
            sources.each(|source| u32::from(source.state != SourceState::Ended)),
        )?;
        self.gauges(
            "ringtap_source_balanced",
            None,
            "Whether seen = captured + unwanted + lost on every lane.",
            sources.each(|source| u32::from(source.balanced)),
        )?;
        self.gauges(
            "ringtap_pool",
            Some(&Unit::Bytes),
            "Memory of a source's pool.",
            sources.each(|source| source.pool_bytes),
        )?;
        let low = sources.with("mark", "low", |source| Some(source.congestion?.low_percent));
        let high = sources.with("mark", "high", |source| {
            Some(source.congestion?.high_percent)
        });
        self.gauges(
            "ringtap_source_congestion_percent",
            None,
            "Free chunks of a lane below which capture pauses, and from which it goes on.",
            present(low.chain(high)),
        )
    }

    fn groups(&mut self, groups: &Labelled<'_, GroupStatus>) -> fmt::Result {
        self.gauges(
            "ringtap_group_members",
            None,
            "Readers in a group.",
            groups.each(|group| group.members),
        )?;
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
        self.gauges(
            "ringtap_group_offload_percent",
            None,
            "Chunks of a lane above which a member is helped.",
            present(groups.each(|group| group.offload_percent)),
        )?;
        self.counters(
            "ringtap_group_offloaded",
            "chunks",
            "Chunks that went to another than their lane's owner.",
            groups.each(|group| group.offloaded_chunks),
        )?;
        self.counters(
            "ringtap_group_offloaded",
            "packets",
            "Packets in these.",
            groups.each(|group| group.offloaded_packets),
        )?;
        self.counters(
            "ringtap_group_disordered",
            "packets",
            "Packets that may have been read before earlier ones of their flow.",
            groups.each(|group| group.disordered_packets),
        )?;
        self.counters(
            "ringtap_group_moved",
            "buckets",
            "Buckets of flows that went from a busy member to an idle one.",
            groups.each(|group| group.moved_buckets),
        )?;
        self.counters(
            "ringtap_group_unordered",
            "moves",
            "Times that their new owner did not wait until the former one was done.",
            groups.each(|group| group.unordered_moves),
        )
    }

    fn readers(&mut self, readers: &Labelled<'_, ReaderStatus>) -> fmt::Result {
        self.counters(
            "ringtap_reader_delivered",
            "packets",
            "Packets that a reader took.",
            readers.each(|reader| reader.delivered),
        )?;
        self.counters(
            "ringtap_reader_filtered",
            "packets",
            "Packets that did not pass a reader's filter.",
            readers.each(|reader| reader.filtered),
        )?;
        self.counters(
            "ringtap_reader_delivered_wire",
            "bytes",
            "Bytes on the wire of the packets that a reader took.",
            readers.each(|reader| reader.bytes),
        )?;
        self.counters(
            "ringtap_reader_lost",
            "packets",
            "Packets that a reader lost, by reason.",
            readers.with("reason", "overrun", |reader| reader.overrun),
        )?;
        self.gauges(
            "ringtap_reader_lag_chunks",
            None,
            "Chunks that a reader holds.",
            readers.each(|reader| reader.lag_chunks),
        )?;
        self.gauges(
            "ringtap_reader_credit_chunks",
            None,
            "Chunks of a lane that a reader may hold.",
            readers.each(|reader| reader.credit_chunks),
        )?;
        self.counters(
            "ringtap_reader_helped",
            "chunks",
            "Chunks that a reader took instead of their lane's owner.",
            readers.each(|reader| reader.helped_chunks),
        )?;
        self.gauges(
            "ringtap_reader_buckets",
            None,
            "Buckets of flows that are a reader's own, of 256.",
            readers.each(|reader| reader.buckets),
        )?;
        self.gauges(
            "ringtap_reader_corrupt",
            None,
            "Whether a reader broke the rules and gets nothing any more.",
            readers.each(|reader| u32::from(reader.corrupt)),
        )?;
        self.gauges(
            "ringtap_reader_lag",
            Some(&Unit::Seconds),
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
        let unit = Unit::Other(unit.to_owned());
        let kind = MetricType::Counter;
        let mut metric = self.0.encode_descriptor(name, help, Some(&unit), kind)?;
        for (labels, value) in samples {
            ConstCounter::new(value).encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn gauges<V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        unit: Option<&Unit>,
        help: &str,
        samples: impl IntoIterator<Item = (Labels, V)>,
    ) -> fmt::Result {
        let kind = MetricType::Gauge;
        let mut metric = self.0.encode_descriptor(name, help, unit, kind)?;
        for (labels, value) in samples {
            ConstGauge::new(value).encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// The samples that have a value.
fn present(
    samples: impl Iterator<Item = (Labels, Option<u8>)>,
) -> impl Iterator<Item = (Labels, u32)> {
    samples.filter_map(|(labels, value)| Some((labels, u32::from(value?))))
}
