// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap demo`: a sender, a hub, four readers and a probe in a private network, for some seconds.
//!
//! Invariants
//! - The process enters the private network before it starts a thread. So it changes nothing on the
//!   machine and leaves nothing behind, even after a kill.

mod places;
mod probe;
mod readers;
mod table;
mod words;

use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use ringtap::Capture;
use ringtap_client::SubscriptionRequest;
use ringtap_device::{DeviceSpec, Rate};
use ringtap_filter::hash::HashSeed;
use ringtap_filter::{Balance, Headers};
use ringtap_hub::{Group, GroupFilter, Handle, Hub, HubOptions};
use ringtap_net::affinity;
use ringtap_net::interface::{Interface, Stats64, add_veth};
use ringtap_net::private::{self, Standing};
use ringtap_packet::Traffic;
use ringtap_pool::source::Source;
use ringtap_send::{Load, Method, SendCounters, Sender, SenderOptions};

use crate::interrupt;
use crate::print;
use crate::reading::ReadingArgs;
use places::DemoCpus;
use readers::DemoOutcome;
use table::Table;

/// The interface that packets are sent on.
const TX: &str = "tx0";
/// The interface that packets are captured on.
const RX: &str = "rx0";
const FLOWS: u32 = 16;
const RATE_BPS: u64 = 1_000_000_000;
/// One flow of sixteen; a file with all flows would grow by 150 MB/s.
const FILTER: &str = "udp src port 10007";
/// Half of the flows, for the group of two.
const HALF: &str = "udp src portrange 10000-10007";
/// Longest time between checks for the end of the run and for notes.
const TICK: Duration = Duration::from_millis(50);
/// Wait for the last sent packets to arrive.
const SETTLE: Duration = Duration::from_millis(100);

/// Shows a hub in a private network: a sender, one capture, a reader that counts, one that
/// records a flow, a group of two that share half of the flows, and a probe that makes flow
/// records. Needs no root; with it, it shows more.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DemoArgs {
    /// File for the recorded packets, overwritten. Without it: ringtap-demo.pcapng in the current
    /// folder, or in that for temporary files where the current one cannot be written.
    #[arg(short = 'w', long, value_name = "FILE")]
    write: Option<String>,

    /// Seconds of traffic.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=15))]
    seconds: u64,
}

const EXAMPLES: &str = "\
Examples:
  ringtap demo
  ringtap demo --seconds 10 -w /tmp/demo.pcapng
  ringtap count -r ringtap-demo.pcapng        what one of its readers recorded";

pub(crate) fn run(args: &DemoArgs) -> Result<ExitCode> {
    let standing = private::enter().context("no private network")?;
    add_veth(TX, RX)?;
    let places = DemoCpus::choose()?;
    let file = places::file(args.write.as_deref())?;
    let (hub, captures) = affinity::on(places.counter, || {
        let source = open_source(standing)?;
        start_hub(source)
    })?;
    let facts = captures[0].facts().clone();
    print::notes(&facts.notes);
    words::begin(standing, &facts.device, args.seconds, &file)?;
    let sender = sender_options(&facts.device, args.seconds, places.sender);
    let silent = ReadingArgs::silent();
    let outcome_of = Arc::clone(captures[0].control());
    let (outcome, traffic) = thread::scope(|scope| {
        // Ends the capture and with it the readers' threads, also after an error.
        let stop = StopAtEnd(hub.handle().clone());
        let running = readers::start_all(scope, &silent, captures, (&places, &file))?;
        let table = Table::begin(hub.handle());
        let traffic = table.and_then(|table| send(sender, table, || running.is_any_over()));
        thread::sleep(SETTLE);
        drop(stop);
        anyhow::Ok((running.join(), traffic))
    })?;
    let outcome: DemoOutcome = outcome?;
    let (sent, kernel) = traffic?;
    words::end(&outcome, sent, &kernel, standing)?;
    let failure = outcome_of
        .snapshot()?
        .sources
        .into_iter()
        .find_map(|source| source.failure);
    if let Some(failure) = failure {
        bail!(failure);
    }
    Ok(if outcome.is_good() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Starts a hub with four groups (all packets, one flow, half of the flows for two members, all
/// packets for the probe) and subscribes the five readers.
fn start_hub(source: Source) -> Result<(Hub, Vec<Capture>)> {
    let group = |name: &str, filter: &str| -> Result<Group> {
        Ok(Group {
            filter: GroupFilter::new(filter, ringtap::compile(filter, &source.facts)?),
            ..Group::new(name)
        })
    };
    let half = Group {
        division: Balance::Flow(Headers::Outer).into(),
        max_members: 2,
        ..group("half", HALF)?
    };
    let groups = vec![
        Group::new("all"),
        group("flow", FILTER)?,
        half,
        Group::new("probe"),
    ];
    let subscriptions = [
        ("all", "count"),
        ("flow", "record"),
        ("half", "1"),
        ("half", "2"),
        ("probe", "probe"),
    ];
    let requests = subscriptions
        .map(|(group, name)| SubscriptionRequest::new(group, name))
        .to_vec();
    let options = HubOptions {
        hash_seed: Some(HashSeed(1)), // both members have flows
        ..HubOptions::default()
    };
    let (hub, subscriptions) = Hub::start(vec![source], groups, options, requests)?;
    let captures = subscriptions
        .into_iter()
        .map(|subscription| Ok(Capture::at_hub(hub.handle(), subscription?)?));
    let captures = captures.collect::<Result<_>>()?;
    Ok((hub, captures))
}

/// Sends until the end, and prints a line of the table every second. Returns the counters of the sender, and the
/// kernel's of the interface.
fn send(
    options: SenderOptions,
    mut table: Table<'_>,
    is_reader_over: impl Fn() -> bool,
) -> Result<(SendCounters, Stats64)> {
    let sender = Sender::start(options)?;
    interrupt::on_interrupt(sender.stopper())?;
    let mut next = Instant::now() + table::INTERVAL;
    while !sender.wait(TICK.min(next.saturating_duration_since(Instant::now()))) {
        print::notes(sender.take_notes());
        if is_reader_over() {
            sender.stop();
        }
        if Instant::now() >= next {
            next += table::INTERVAL;
            table.line(sender.counters())?;
        }
    }
    let counters = sender.finish()?;
    table.last_line(counters)?;
    Ok((counters, Interface::find(TX)?.counters))
}

/// Opens the tap if the process has the rights, else the packet source.
fn open_source(standing: Standing) -> Result<Source> {
    if standing == Standing::AsBefore {
        // Exclusive: the host stack, slower than the capture, does not need these packets.
        match ringtap_capture::open(&format!("tap:{RX}?exclusive&direction=in").parse()?) {
            Ok(source) => return Ok(source),
            Err(reason) => print::note(format_args!(
                "ringtap: no tap, so the packet source: {reason:#}"
            )),
        }
    }
    Ok(ringtap_capture::open(
        &format!("packet:{RX}?direction=in").parse()?,
    )?)
}

fn sender_options(device: &str, seconds: u64, cpu: Option<usize>) -> SenderOptions {
    let load = Load::Made {
        traffic: Traffic {
            flows: FLOWS,
            ..Traffic::default()
        },
        rate: Rate::BitsPerSecond(RATE_BPS),
    };
    let mut options = SenderOptions::new(TX, load);
    options.duration = Some(Duration::from_secs(seconds));
    options.cpu = cpu;
    // A veth accepts XDP frames only if its peer runs an XDP program.
    if DeviceSpec::kind_of(device).is_some_and(|kind| kind.hooks.is_empty()) {
        options.method = Some(Method::Packet);
    }
    options
}

/// Stops the capture when dropped.
struct StopAtEnd(Handle);

impl Drop for StopAtEnd {
    fn drop(&mut self) {
        self.0.stop();
    }
}
