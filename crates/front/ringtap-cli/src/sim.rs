// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap sim`: a simulated NIC, the pool and simulated readers in virtual time.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use clap::Args;
use ringtap_capture::sim::run::{CHUNK_SHARE, Experiment, LaneOutcome, SimOutcome};
use ringtap_capture::sim::{PS_PER_SECOND, SimOptions};
use ringtap_device::{DeviceSpec, NameOf, Rate};
use ringtap_explain::report::{self, CounterFields};
use ringtap_explain::text::grouped;
use ringtap_hub::buddies::BuddyGroups;
use ringtap_ipc::protocol::BuddyCounts;
use serde::Serialize;
use serde_json::{Value, json};

use crate::print;

/// Simulates a NIC, the capture and one reader for each queue in virtual time.
///
/// Every run has exactly the same result.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SimArgs {
    /// The NIC and the pool, as for `-i`: `sim:10Gbps?burst=100000&packets=256&chunks=100`.
    device: DeviceSpec,

    /// Packets per second that a reader can process, or `max`; the default is the WireCAP paper's.
    #[arg(long, value_name = "RATE", default_value = "38844pps", value_parser = time_ps)]
    service: u64,

    /// Packets per second that the capture of a queue can process, or `max`.
    #[arg(long, value_name = "RATE", default_value = "max", value_parser = time_ps)]
    capture: u64,

    /// Advanced mode: a reader that holds more than this percentage of a lane's chunks leaves
    /// further ones to its least busy buddy.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    offload: Option<u8>,

    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  ringtap sim 'sim:10Gbps?burst=100000&packets=256&chunks=100'    WireCAP-B-(256,100)
  ringtap sim 'sim:10Gbps?burst=100000&packets=256&chunks=500'    ... and its larger pool
  ringtap sim 'sim:190000pps?skew=7:1:1:1&burst=400000&chunks=100&packets=64' \\
              --service 50000pps --offload 60                     advanced mode, T = 60 %";

/// Parses a rate; returns the time per packet, in picoseconds.
fn time_ps(text: &str) -> Result<u64> {
    match text.parse::<Rate>()? {
        Rate::Max => Ok(0),
        Rate::PacketsPerSecond(rate) => Ok((PS_PER_SECOND / rate).max(1)),
        Rate::BitsPerSecond(_) => bail!("expected packets per second (1Mpps) or max"),
    }
}

/// A run as JSON.
#[derive(Serialize)]
struct SimLine<'a> {
    r#type: &'static str,
    device: &'a str,
    #[serde(flatten)]
    counters: CounterFields,
    loss: f64,
    chunks_per_lane: u32,
    lanes: Vec<Value>,
    delivered_by_reader: Vec<u64>,
    delivered_chunks: u64,
    offloaded_chunks: u64,
    offloaded_packets: u64,
    disordered_packets: u64,
}

pub(crate) fn run(args: &SimArgs) -> Result<ExitCode> {
    ensure!(
        args.device.kind.name_of == NameOf::Link,
        "{} is no simulated NIC: sim:10Gbps?burst=100000",
        args.device
    );
    let experiment = Experiment {
        nic: SimOptions::from_device(&args.device)?,
        capture_ps: args.capture,
        service_ps: args.service,
        counts_disorder: args.offload.is_some(),
    };
    let (outcome, buddies) = run_with_buddies(&experiment, args.offload)?;
    let device = args.device.to_string();
    if args.json {
        print::line(serde_json::to_string(&line(&device, &outcome, buddies))?)?;
    } else {
        print_text(args, &device, &outcome, buddies)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs an experiment whose readers are buddies, like members of a hub's group that divides lanes.
fn run_with_buddies(
    experiment: &Experiment,
    offload_percent: Option<u8>,
) -> Result<(SimOutcome, BuddyCounts)> {
    let groups = Arc::new(BuddyGroups::default());
    groups.set_threshold(CHUNK_SHARE, offload_percent);
    let outcome = experiment.run(groups.clone())?;
    Ok((outcome, groups.counts(CHUNK_SHARE)))
}

fn print_text(
    args: &SimArgs,
    device: &str,
    outcome: &SimOutcome,
    buddies: BuddyCounts,
) -> Result<()> {
    let title = format!("{device}, in virtual time:");
    let text = report::counters(&title, "the simulated link", &outcome.counters());
    print::line(text)?;
    print::line(format_args!("  lost {:.4} %", outcome.loss() * 100.0))?;
    for (number, lane) in outcome.lanes.iter().enumerate() {
        print::line(format_args!(
            "  lane {number}: {} offered, {} lost, at most {} of {} chunks in use",
            grouped(lane.arrived),
            grouped(lane.nic + lane.pool_full),
            lane.max_chunks,
            outcome.chunks
        ))?;
    }
    if args.offload.is_some() {
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

fn line<'a>(device: &'a str, outcome: &SimOutcome, buddies: BuddyCounts) -> SimLine<'a> {
    SimLine {
        r#type: "simulation",
        device,
        counters: CounterFields::from(&outcome.counters()),
        loss: outcome.loss(),
        chunks_per_lane: outcome.chunks,
        lanes: outcome.lanes.iter().map(lane_json).collect(),
        delivered_by_reader: outcome.readers.iter().map(|one| one.delivered).collect(),
        delivered_chunks: buddies.chunks,
        offloaded_chunks: buddies.offloaded_chunks,
        offloaded_packets: buddies.offloaded_packets,
        disordered_packets: outcome.disordered_packets,
    }
}

fn lane_json(lane: &LaneOutcome) -> Value {
    json!({"offered": lane.arrived, "captured": lane.captured, "nic": lane.nic,
           "pool_full": lane.pool_full, "max_chunks": lane.max_chunks})
}

#[cfg(test)]
mod tests;
