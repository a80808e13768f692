// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap count`: rates while packets arrive, the counters at the end.

mod consumer;
mod latency;
mod work;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use ringtap::Capture;

use crate::UsageError;
use crate::confine::UserArgs;
use crate::input::InputArgs;
use crate::interrupt::EndRequests;
use crate::print;
use crate::reading::{self, Reading, ReadingArgs};
use crate::session;
pub(crate) use consumer::{CountReader, Extras};
use latency::Latency;
use ringtap_net::affinity::{self, Steered};
use ringtap_packet::stamp::StampOrder;
use work::{Work, WorkKind};

/// Default filter of `--work bpf:X`: several comparisons, few matches.
const WORK_FILTER: &str = "net 131.225.2 and udp";

/// Counts packets: rates every second, then counters that account for every packet.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CountArgs {
    #[command(flatten)]
    input: InputArgs,

    #[command(flatten)]
    reading: ReadingArgs,

    #[command(flatten)]
    user: UserArgs,

    /// Load per packet: `headers` reads its headers, `zlib:0` to `zlib:9` compresses it, `bpf:X`
    /// runs the filter X times.
    #[arg(long, value_name = "WORK")]
    work: Option<WorkKind>,

    /// Measure the time from capture to this reader: median, 99th percentile, maximum. With
    /// `--stamps` also the time from sending, if sender and reader run on the same machine.
    #[arg(long)]
    latency: bool,

    /// Check the numbers that `ringtap send --stamp` puts into packets: order and loss.
    #[arg(long)]
    stamps: bool,
}

const EXAMPLES: &str = "\
Examples:
  ringtap count -r first.pcapng                 a file, at top speed
  ringtap count -i eth0                         an interface; the packets go their way
  ringtap count -i eth0 udp port 53             with a filter, as for tcpdump
  ringtap count -i 'tap:eth1?exclusive'         a port that only monitors: no host stack
  ringtap count -i packet:eth0 --json           by AF_PACKET, for a program
  ringtap count -i eth0 --work zlib:1 --cpu reader=1,capture=0";

pub(crate) fn run(args: &CountArgs) -> Result<ExitCode> {
    ensure!(
        !args.latency || args.input.file().is_none(),
        UsageError(
            "--latency measures a live capture: the packets of a file are as old as the file"
                .to_owned()
        )
    );
    let cpu = args
        .reading
        .cpu
        .resolve(args.input.interface(), |note| print::notes([note]))?;
    let keeps = args.user.reading(&args.input, &cpu)?;
    let requests = keeps.start_early(EndRequests::new)?;
    let options = args
        .reading
        .open_options("count", Duration::ZERO)
        .confined(keeps);
    let capture = affinity::on(cpu.capture, || args.input.open(options, &requests))?;
    let steered = Steered::default();
    requests.stop(capture.control(), args.reading.duration, &steered)?;
    print::notes(capture.notes());
    cpu.steer(capture.facts().interface.as_deref(), &steered, |note| {
        print::notes([note])
    })?;
    affinity::pin(cpu.reader)?;
    let since = |wanted: bool, what| wanted.then(|| Latency::since(what)).transpose();
    let extras = Extras {
        work: args
            .work
            .map(|kind| make_work(kind, args, &capture))
            .transpose()?,
        latency: since(args.latency, "latency_ns")?,
        stamps: args.stamps.then(StampOrder::default),
        since_sending: since(args.latency && args.stamps, "since_sent_ns")?,
    };
    let reading = Reading::new(&args.reading, capture, "count");
    let mut counter = CountReader { reading, extras };
    let received = session::receive(args.reading.interval, &mut counter);
    // Before the capture ends: NAPI may depend on its program.
    steered.undo();
    let counters = counter.finish()?;
    received?;
    counter.reading.capture.outcome()?;
    reading::require_balance(&counters)?;
    Ok(ExitCode::SUCCESS)
}

/// The work, with the user's filter or the default filter.
fn make_work(kind: WorkKind, args: &CountArgs, capture: &Capture) -> Result<Work> {
    let own = Some(args.input.filter_text()).filter(|text| !text.is_empty());
    let expression = own.as_deref().unwrap_or(WORK_FILTER);
    Work::new(kind, || Ok(ringtap::compile(expression, capture.facts())?))
}
