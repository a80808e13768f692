// SPDX-License-Identifier: MIT OR Apache-2.0
//! A hub's counters in OpenMetrics' text format; the names are promised in `docs/counters.md`.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use ringtap_ipc::protocol::{
    GroupStatus, HubStatus, LaneStatus, ReaderStatus, SourceState, SourceStatus,
};

use crate::report::as_f64;

type Labels = Vec<(&'static str, String)>;
/// One value of a metric, and whose it is.
type Sample = (Labels, u64);

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
        let mut page = Page(encoder);
        page.hub(&self.0)?;
        page.lanes(&self.0)?;
        page.sources(&self.0)?;
        page.groups(&self.0)?;
        page.group_infos(&self.0)?;
        page.offloading(&self.0)?;
        page.readers(&self.0)
    }
}

struct Page<'a>(DescriptorEncoder<'a>);

impl Page<'_> {
    fn hub(&mut self, hub: &HubStatus) -> fmt::Result {
        let info = vec![
            ("version", hub.version.clone()),
            ("pid", hub.pid.to_string()),
        ];
        let kind = MetricType::Info;
        let mut metric = self
            .0
            .encode_descriptor("ringtap_hub", "The hub.", None, kind)?;
        metric.encode_info(&info)?;
        let name = "ringtap_start_time";
        let unit = Some(Unit::Seconds);
        let metric = self.0.encode_descriptor(
            name,
            "When the hub started, since 1970.",
            unit.as_ref(),
            MetricType::Gauge,
        )?;
        let started = as_f64(hub.started_ns) / 1e9;
        ConstGauge::new(started).encode(metric)
    }

    fn lanes(&mut self, hub: &HubStatus) -> fmt::Result {
        let each = |counter: fn(&LaneStatus) -> u64| of_lanes(hub, counter);
        self.packets(
            "ringtap_seen",
            "Packets that reached a lane.",
            each(|lane| lane.seen),
        )?;
        self.packets(
            "ringtap_captured",
            "Packets put into the pool.",
            each(|lane| lane.captured),
        )?;
        self.counters(
            "ringtap_captured_wire",
            "Bytes on the wire of the packets put into the pool.",
            Unit::Bytes,
            each(|lane| lane.bytes),
        )?;
        self.packets(
            "ringtap_unwanted",
            "Packets that no reader wanted.",
            each(|lane| lane.unwanted),
        )?;
        self.packets(
            "ringtap_lost",
            "Packets lost before any reader, by reason; without a lane where none is known.",
            losses(hub),
        )?;
        let none = None;
        self.gauges(
            "ringtap_chunks",
            "Chunks of a lane.",
            none,
            each(|lane| lane.chunks.into()),
        )?;
        self.gauges(
            "ringtap_chunks_in_use",
            "Chunks of a lane that are not free.",
            None,
            each(|lane| lane.chunks_in_use.into()),
        )?;
        self.gauges(
            "ringtap_paused",
            "Whether capture of a lane waits for readers.",
            None,
            each(|lane| lane.paused.into()),
        )
    }

    fn sources(&mut self, hub: &HubStatus) -> fmt::Result {
        let each = |value: fn(&SourceStatus) -> u64| -> Vec<Sample> {
            let named = names(hub).into_iter().zip(&hub.sources);
            named
                .map(|(name, source)| (vec![("source", name)], value(source)))
                .collect()
        };
        self.gauges(
            "ringtap_source_up",
            "Whether a source still captures.",
            None,
            each(|source| (source.state != SourceState::Ended).into()),
        )?;
        self.gauges(
            "ringtap_source_balanced",
            "Whether seen = captured + unwanted + lost on every lane.",
            None,
            each(|source| source.balanced.into()),
        )?;
        self.gauges(
            "ringtap_pool",
            "Memory of a source's pool.",
            Some(Unit::Bytes),
            each(|source| source.pool_bytes),
        )?;
        self.gauges(
            "ringtap_source_congestion_percent",
            "Free chunks of a lane below which capture pauses, and from which it goes on.",
            None,
            marks(hub),
        )
    }

    fn groups(&mut self, hub: &HubStatus) -> fmt::Result {
        self.gauges(
            "ringtap_group_members",
            "Readers in a group.",
            None,
            of_groups(hub, |group| group.members.into()),
        )
    }

    fn offloading(&mut self, hub: &HubStatus) -> fmt::Result {
        let each = |value: fn(&GroupStatus) -> u64| of_groups(hub, value);
        let percent = hub.groups.iter().filter_map(|group| {
            let percent = group.offload_percent?;
            Some((vec![("group", group.name.clone())], u64::from(percent)))
        });
        self.gauges(
            "ringtap_group_offload_percent",
            "Chunks of a lane above which a member is helped.",
            None,
            percent,
        )?;
        self.counters(
            "ringtap_group_offloaded",
            "Chunks that went to another than their lane's owner.",
            Unit::Other("chunks".to_owned()),
            each(|group| group.offloaded_chunks),
        )?;
        self.packets(
            "ringtap_group_offloaded",
            "Packets in these.",
            each(|group| group.offloaded_packets),
        )?;
        self.packets(
            "ringtap_group_disordered",
            "Packets that may have been read before earlier ones of their flow.",
            each(|group| group.disordered_packets),
        )?;
        self.counters(
            "ringtap_group_moved",
            "Buckets of flows that went from a busy member to an idle one.",
            Unit::Other("buckets".to_owned()),
            each(|group| group.moved_buckets),
        )?;
        self.counters(
            "ringtap_group_unordered",
            "Times that their new owner did not wait until the former one was done.",
            Unit::Other("moves".to_owned()),
            each(|group| group.unordered_moves),
        )
    }

    fn group_infos(&mut self, hub: &HubStatus) -> fmt::Result {
        let help = "What a group divides, how it delivers, what it does past a reader's credit.";
        let kind = MetricType::Info;
        let mut metric = self
            .0
            .encode_descriptor("ringtap_group", help, None, kind)?;
        for group in &hub.groups {
            let info = vec![
                ("balance", group.balance.clone()),
                ("delivery", group.delivery.clone()),
                ("policy", group.policy.clone()),
            ];
            let labels = vec![("group", group.name.clone())];
            metric.encode_family(&labels)?.encode_info(&info)?;
        }
        Ok(())
    }

    fn readers(&mut self, hub: &HubStatus) -> fmt::Result {
        let each = |counter: fn(&ReaderStatus) -> u64| of_readers(hub, counter);
        self.packets(
            "ringtap_reader_delivered",
            "Packets that a reader took.",
            each(|reader| reader.delivered),
        )?;
        self.packets(
            "ringtap_reader_filtered",
            "Packets that did not pass a reader's filter.",
            each(|reader| reader.filtered),
        )?;
        self.counters(
            "ringtap_reader_delivered_wire",
            "Bytes on the wire of the packets that a reader took.",
            Unit::Bytes,
            each(|reader| reader.bytes),
        )?;
        let lost = |mut sample: Sample| {
            sample.0.push(("reason", "overrun".to_owned()));
            sample
        };
        let lost: Vec<_> = each(|reader| reader.overrun)
            .into_iter()
            .map(lost)
            .collect();
        self.packets(
            "ringtap_reader_lost",
            "Packets that a reader lost, by reason.",
            lost,
        )?;
        let departed = vec![("reason", "overrun".to_owned())];
        self.packets(
            "ringtap_departed_readers_lost",
            "Packets that readers lost which are gone by now.",
            [(departed, hub.departed_overrun)],
        )?;
        self.gauges(
            "ringtap_reader_lag_chunks",
            "Chunks that a reader holds.",
            None,
            each(|reader| reader.lag_chunks.into()),
        )?;
        self.gauges(
            "ringtap_reader_credit_chunks",
            "Chunks of a lane that a reader may hold.",
            None,
            each(|reader| reader.credit_chunks.into()),
        )?;
        self.counters(
            "ringtap_reader_helped",
            "Chunks that a reader took instead of their lane's owner.",
            Unit::Other("chunks".to_owned()),
            each(|reader| reader.helped_chunks),
        )?;
        self.gauges(
            "ringtap_reader_buckets",
            "Buckets of flows that are a reader's own, of 256.",
            None,
            each(|reader| reader.buckets.into()),
        )?;
        self.gauges(
            "ringtap_reader_corrupt",
            "Whether a reader broke the rules and gets nothing any more.",
            None,
            each(|reader| reader.corrupt.into()),
        )?;
        let unit = Some(Unit::Seconds);
        let help = "Age of the oldest packet that a reader holds.";
        let mut metric = self.0.encode_descriptor(
            "ringtap_reader_lag",
            help,
            unit.as_ref(),
            MetricType::Gauge,
        )?;
        for (labels, milliseconds) in each(|reader| reader.lag_ms) {
            let seconds = as_f64(milliseconds) / 1e3;
            ConstGauge::new(seconds).encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn packets(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = Sample>,
    ) -> fmt::Result {
        self.counters(name, help, Unit::Other("packets".to_owned()), samples)
    }

    fn counters(
        &mut self,
        name: &str,
        help: &str,
        unit: Unit,
        samples: impl IntoIterator<Item = Sample>,
    ) -> fmt::Result {
        let kind = MetricType::Counter;
        let mut metric = self.0.encode_descriptor(name, help, Some(&unit), kind)?;
        for (labels, value) in samples {
            ConstCounter::new(value).encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn gauges(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        samples: impl IntoIterator<Item = Sample>,
    ) -> fmt::Result {
        let kind = MetricType::Gauge;
        let mut metric = self.0.encode_descriptor(name, help, unit.as_ref(), kind)?;
        for (labels, value) in samples {
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            ConstGauge::new(value).encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// What sources are called; one device twice is told apart, as no two samples may be of one name.
fn names(hub: &HubStatus) -> Vec<String> {
    let mut times = HashMap::new();
    let name = |source: &SourceStatus| {
        let time = times.entry(source.device.clone()).or_insert(0);
        *time += 1;
        match *time {
            1 => source.device.clone(),
            time => format!("{}#{time}", source.device),
        }
    };
    hub.sources.iter().map(name).collect()
}

fn of_lanes(hub: &HubStatus, counter: impl Fn(&LaneStatus) -> u64) -> Vec<Sample> {
    let mut samples = Vec::new();
    for (name, source) in names(hub).into_iter().zip(&hub.sources) {
        for lane in &source.lanes {
            let labels = vec![("source", name.clone()), ("lane", lane.lane.to_string())];
            samples.push((labels, counter(lane)));
        }
    }
    samples
}

fn of_groups(hub: &HubStatus, value: impl Fn(&GroupStatus) -> u64) -> Vec<Sample> {
    let sample = |group: &GroupStatus| (vec![("group", group.name.clone())], value(group));
    hub.groups.iter().map(sample).collect()
}

/// The congestion marks of sources that have some.
fn marks(hub: &HubStatus) -> Vec<Sample> {
    let mut samples = Vec::new();
    for (name, source) in names(hub).into_iter().zip(&hub.sources) {
        let Some(marks) = source.congestion else {
            continue;
        };
        for (mark, percent) in [("low", marks.low_percent), ("high", marks.high_percent)] {
            let labels = vec![("source", name.clone()), ("mark", mark.to_owned())];
            samples.push((labels, percent.into()));
        }
    }
    samples
}

fn losses(hub: &HubStatus) -> Vec<Sample> {
    let with = |reason: &str, samples: Vec<Sample>| -> Vec<Sample> {
        let reason = ("reason", reason.to_owned());
        let add = |(mut labels, value): Sample| {
            labels.push(reason.clone());
            (labels, value)
        };
        samples.into_iter().map(add).collect()
    };
    let of_sources = |counter: fn(&SourceStatus) -> u64| -> Vec<Sample> {
        let named = names(hub).into_iter().zip(&hub.sources);
        named
            .map(|(name, source)| (vec![("source", name)], counter(source)))
            .collect()
    };
    [
        with("pool_full", of_lanes(hub, |lane| lane.pool_full)),
        with("kernel", of_lanes(hub, |lane| lane.kernel)),
        with("kernel", of_sources(|source| source.kernel)),
        with("nic", of_sources(|source| source.nic)),
    ]
    .concat()
}

fn of_readers(hub: &HubStatus, counter: impl Fn(&ReaderStatus) -> u64) -> Vec<Sample> {
    let sample = |reader: &ReaderStatus| {
        let labels = vec![
            ("group", reader.group.clone()),
            ("reader", reader.reader.to_string()),
            ("name", reader.name.clone()),
        ];
        (labels, counter(reader))
    };
    hub.readers.iter().map(sample).collect()
}
