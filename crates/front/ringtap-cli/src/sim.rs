// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap sim`: a simulated NIC, our pool and modelled readers in virtual time.
#![forbid(unsafe_code)]

use std::fmt;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Result, ensure};
use clap::Args;
use ringtap_capture::sim::run::{Affinity, Experiment, Outcome};
use ringtap_capture::sim::{PS_PER_SECOND, SimOptions};
use ringtap_device::{DeviceSpec, Kind, Rate};
use serde::Serialize;

use crate::print;
use crate::report::{self, grouped};

/// Simulates a NIC, the capture and its readers in virtual time: every result repeats to the
/// packet.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SimArgs {
    /// The NIC and the pool, as for `-i`: `sim:10Gbps?burst=100000&packets=256&chunks=100`.
    device: DeviceSpec,

    /// What each reader can do: packets a second (`38844pps`), X loops a packet on the machine of
    /// the WireCAP paper (`300x`), or `max`.
    #[arg(long, value_name = "RATE", default_value = "300x")]
    service: Pace,

    /// What each queue's capture step can do: packets a second, or `max`.
    #[arg(long, value_name = "RATE", default_value = "max")]
    capture: Pace,

    /// Readers: one for each queue, or 1.
    #[arg(long, value_name = "READERS")]
    readers: Option<u32>,

    /// Advanced mode: a reader with more than so many percent of a lane's chunks leaves further
    /// ones to its least busy buddy.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    offload: Option<u8>,

    /// What readers divide and a busy one leaves to others: `chunk` (each lane has a reader, whole
    /// chunks go elsewhere) or `flow` (hash buckets of flows, which stay in order).
    #[arg(long, value_name = "WHAT", default_value = "chunk", value_parser = affinity)]
    affinity: Affinity,

    /// One JSON object instead of text.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  ringtap sim 'sim:10Gbps?burst=100000&packets=256&chunks=100'    WireCAP-B-(256,100)
  ringtap sim 'sim:10Gbps?burst=100000&packets=256&chunks=500'    ... and its larger pool
  ringtap sim 'sim:190000pps?skew=7:1:1:1&burst=400000&chunks=100&packets=64' \\
              --service 50000pps --offload 60                     advanced mode, T = 60 %
  ... --offload 60 --affinity flow                                no flow out of order";

fn affinity(text: &str) -> Result<Affinity, String> {
    match text {
        "chunk" => Ok(Affinity::Chunk),
        "flow" => Ok(Affinity::Flow),
        _ => Err("want chunk or flow".to_owned()),
    }
}

/// What one loop costs on the paper's machine: 300 of them make 38,844 packets a second.
const PAPER_PPS: u64 = 38_844;
const PAPER_LOOPS: u64 = 300;

/// Time for a packet, in picoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pace(u64);

impl FromStr for Pace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let loops = text.strip_suffix('x').filter(|_| text != "max");
        if let Some(loops) = loops {
            let loops: u64 = loops.parse().map_err(|_| "want a number of loops: 300x")?;
            let ps = u128::from(loops) * u128::from(PS_PER_SECOND);
            let ps = u64::try_from(ps / u128::from(PAPER_PPS * PAPER_LOOPS));
            return ps
                .map(Pace)
                .map_err(|_| "that many loops never end".to_owned());
        }
        match text.parse::<Rate>() {
            Ok(Rate::Max) => Ok(Pace(0)),
            Ok(Rate::PacketsPerSecond(rate)) => Ok(Pace((PS_PER_SECOND / rate).max(1))),
            Ok(Rate::BitsPerSecond(_)) => Err("want packets a second, X loops or max".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("no time"),
            ps => write!(f, "{} packets/s", grouped(PS_PER_SECOND / ps)),
        }
    }
}

/// A run as JSON.
#[derive(Serialize)]
struct Line<'a> {
    device: &'a str,
    service_ps: u64,
    capture_ps: u64,
    affinity: &'static str,
    offload_percent: Option<u8>,
    offered: u64,
    delivered: u64,
    dropped: DroppedFields,
    loss: f64,
    balanced: bool,
    #[serde(flatten)]
    pool: PoolFields,
}

#[derive(Serialize)]
struct DroppedFields {
    nic: u64,
    kernel: u64,
    pool_full: u64,
    overrun: u64,
}

#[derive(Serialize)]
struct PoolFields {
    chunks_per_lane: u32,
    chunk_bytes: u32,
    end_ns: u64,
    lanes: Vec<LaneFields>,
    delivered_by_reader: Vec<u64>,
    delivered_chunks: u64,
    offloaded_chunks: u64,
    offloaded_packets: u64,
    disordered_packets: u64,
    disordered_packets_at_most: u64,
    moved_buckets: u64,
    unordered_moves: u64,
}

#[derive(Serialize)]
struct LaneFields {
    lane: u32,
    offered: u64,
    captured: u64,
    nic: u64,
    pool_full: u64,
    most_chunks: u32,
}

/// Runs the verb.
pub(crate) fn run(args: &SimArgs) -> Result<ExitCode> {
    ensure!(
        args.device.kind == Kind::Sim,
        "{} is no simulated NIC: sim:10Gbps?burst=100000",
        args.device
    );
    let nic = SimOptions::from_device(&args.device)?;
    let experiment = Experiment {
        readers: args.readers.unwrap_or(nic.queues),
        nic,
        capture_ps: args.capture.0,
        service_ps: args.service.0,
        affinity: args.affinity,
        offload_percent: args.offload,
    };
    let outcome = experiment.run()?;
    tell(args, &outcome)?;
    Ok(ExitCode::SUCCESS)
}

fn tell(args: &SimArgs, outcome: &Outcome) -> Result<()> {
    let device = args.device.to_string();
    if args.json {
        let line = line(args, &device, outcome);
        print::line(serde_json::to_string(&line)?)?;
        return Ok(());
    }
    let title = format!("{device}, a reader at {}, in virtual time:", args.service);
    print::line(report::counters(
        &title,
        "the simulated link",
        &outcome.counters(),
    ))?;
    print::line(format_args!("  lost {:.4} %", outcome.loss() * 100.0))?;
    for lane in &outcome.lanes {
        print::line(format_args!(
            "  {}: {} offered, {} lost, at most {} of {} chunks in use",
            lane.lane,
            grouped(lane.arrived),
            grouped(lane.nic + lane.pool_full),
            lane.most_chunks,
            outcome.chunks
        ))?;
    }
    if args.offload.is_some() && args.affinity == Affinity::Flow {
        print::line(format_args!(
            "  moved {} buckets of flows; {} packets out of order within their flow",
            grouped(outcome.moved_buckets),
            grouped(outcome.disordered_packets)
        ))?;
    } else if args.offload.is_some() {
        let buddies = outcome.buddies;
        print::line(format_args!(
            "  offloaded {} of {} chunks ({} packets); {} packets out of order within their flow",
            grouped(buddies.offloaded_chunks),
            grouped(buddies.chunks),
            grouped(buddies.offloaded_packets),
            grouped(outcome.disordered_packets)
        ))?;
    }
    Ok(())
}

fn line<'a>(args: &SimArgs, device: &'a str, outcome: &Outcome) -> Line<'a> {
    let counters = outcome.counters();
    let dropped = counters.dropped;
    Line {
        device,
        service_ps: args.service.0,
        capture_ps: args.capture.0,
        affinity: match args.affinity {
            Affinity::Chunk => "chunk",
            Affinity::Flow => "flow",
        },
        offload_percent: args.offload,
        offered: counters.offered,
        delivered: counters.delivered,
        dropped: DroppedFields {
            nic: dropped.nic,
            kernel: dropped.kernel,
            pool_full: dropped.pool_full,
            overrun: dropped.overrun,
        },
        loss: outcome.loss(),
        balanced: counters.balance().holds(),
        pool: pool_fields(outcome),
    }
}

fn pool_fields(outcome: &Outcome) -> PoolFields {
    let lanes = outcome.lanes.iter().map(|lane| LaneFields {
        lane: lane.lane.0,
        offered: lane.arrived,
        captured: lane.captured,
        nic: lane.nic,
        pool_full: lane.pool_full,
        most_chunks: lane.most_chunks,
    });
    let buddies = outcome.buddies;
    PoolFields {
        chunks_per_lane: outcome.chunks,
        chunk_bytes: outcome.chunk_bytes,
        end_ns: outcome.end_ps / 1000,
        lanes: lanes.collect(),
        delivered_by_reader: outcome.readers.iter().map(|one| one.delivered).collect(),
        delivered_chunks: buddies.chunks,
        offloaded_chunks: buddies.offloaded_chunks,
        offloaded_packets: buddies.offloaded_packets,
        disordered_packets: outcome.disordered_packets,
        disordered_packets_at_most: buddies.disordered_packets,
        moved_buckets: outcome.moved_buckets,
        unordered_moves: outcome.unordered_moves,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paces_are_read_as_users_write_them() {
        assert_eq!("max".parse(), Ok(Pace(0)));
        assert_eq!("0x".parse(), Ok(Pace(0)));
        assert_eq!("300x".parse(), Ok(Pace(PS_PER_SECOND / 38_844)));
        assert_eq!("1Mpps".parse(), Ok(Pace(1_000_000)));
        for bad in ["1Gbps", "x", "fast", "-1pps"] {
            assert!(bad.parse::<Pace>().is_err(), "{bad}");
        }
    }
}
