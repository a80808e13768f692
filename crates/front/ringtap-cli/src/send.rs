// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap send`: sends packets on an interface at a rate, and counts them by outcome.

mod load;
mod relayed;
mod report;

use std::{
    io,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Result;
use clap::ValueEnum;
use ringtap::{CapabilitySet, Confinement};
use ringtap_send::{Method, Qdisc, SendCounters, Sender, SenderOptions};

use crate::completion;
use crate::interrupt;
use crate::print;
use crate::reading::seconds;
use crate::signals;
use load::LoadArgs;
use report::Report;

/// Longest time between checks for the end of the run and for notes.
const TICK: Duration = Duration::from_millis(50);

/// Time between two lines of counters.
const INTERVAL: Duration = Duration::from_secs(1);

/// Introduction of `ringtap send --help`.
pub(crate) const LONG_ABOUT: &str = "\
Sends generated packets, or those of a capture file, out of an interface. Prints one line per second \
and a final one with what the device took (sent) and what it did not (refused).

By default packets are XDP live frames: an eBPF program fills in the kernel's own pages, which go \
straight to the driver. Where that is not possible they go through AF_PACKET, and the reason is \
said. They leave the machine through the interface; on a veth they come out of its peer.

Sizes count the 4 bytes of the frame check sequence: `--size 64` gives frames of 60 bytes in memory \
and in captures. Rates in bits per second are those of layer 1 (L1): with preamble and gap, in all \
24 bytes more than in memory, so that 64-byte packets at 1Gbps are 1.488 million a second. `count` \
prints rates of layer 2 (L2), and `bytes` are those in memory, as captures show them.";

const EXAMPLES: &str = "\
Examples:
  ringtap send -i veth0                          64-byte packets, 1000 a second, until Ctrl-C
  ringtap send -i veth0 --rate 1Gbps --duration 10
  ringtap send -i veth0 --rate max -c 10000000 --cpu 0
  ringtap send -i veth0 --imix --flows 1000 --tcp --vlan 100,7 --rate 500Mbps
  ringtap send -i veth0 --ipv6 --size 128 --stamp --rate 1Mpps
  ringtap send -i veth0 -r first.pcapng          as recorded
  ringtap send -i veth0 -r first.pcapng --rate max --loop --duration 5
  ringtap send -i eth1 --from hub:suspects       the packets that rules give to this group, as they come";

/// Sends packets out of an interface.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SendArgs {
    /// Interface to send out of.
    #[arg(short = 'i', long = "interface", value_name = "NAME", add = completion::interfaces())]
    interface: String,

    /// Stop after this many packets, sent or refused.
    #[arg(short = 'c', long, value_name = "PACKETS")]
    count: Option<u64>,

    /// Stop after this many seconds.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    duration: Option<Duration>,

    /// CPU that sends; on a veth it also runs the receiving side's softirq.
    #[arg(long, value_name = "CPU")]
    cpu: Option<usize>,

    /// How packets leave the machine.
    #[arg(long, value_enum, value_name = "METHOD", default_value = "auto")]
    method: MethodArg,

    /// With AF_PACKET: past the queueing discipline, straight to the driver.
    #[arg(long)]
    qdisc_bypass: bool,

    /// Send the packets of this device or group of a hub, as they come.
    #[arg(
        long,
        value_name = "DEVICE",
        conflicts_with_all = ["rate", "read", "made", "cpu", "method"],
        add = completion::devices()
    )]
    from: Option<String>,

    /// One JSON object a line instead of text.
    #[arg(long)]
    json: bool,

    /// Only the final line.
    #[arg(short, long)]
    quiet: bool,

    #[command(flatten)]
    load: LoadArgs,
}

/// The method of sending, as an option.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum MethodArg {
    /// Live frames, else AF_PACKET
    Auto,
    /// XDP live frames, or an error
    Live,
    /// AF_PACKET
    Packet,
}

pub(crate) fn run(args: SendArgs) -> Result<ExitCode> {
    if let Some(device) = &args.from {
        return relayed::run(device, &args);
    }
    let qdisc = qdisc(&args);
    let mut options = SenderOptions::new(&args.interface, args.load.into_load()?);
    options.count = args.count;
    options.duration = args.duration;
    options.cpu = args.cpu;
    options.method = match args.method {
        MethodArg::Auto => None,
        MethodArg::Live => Some(Method::Live),
        MethodArg::Packet => Some(Method::Packet),
    };
    options.qdisc = qdisc;
    let sender = Sender::start(options)?;
    // The sending thread has opened everything, and keeps what it needs.
    Confinement::keeping(CapabilitySet::empty()).enter()?;
    interrupt::on_interrupt(sender.stopper())?;
    let mut report = Report::new(args.interface, args.json);
    let printed = follow(&sender, &mut report, args.quiet);
    sender.stop();
    while !sender.wait(TICK) {}
    print::notes(sender.take_notes());
    let counters = sender.counters();
    let outcome = sender.finish();
    let tried = counters.sent + counters.refused > 0;
    let printed = if tried || outcome.is_ok() {
        printed.and_then(|()| report.last(counters))
    } else {
        printed
    };
    outcome?;
    ended(printed, counters)
}

fn qdisc(args: &SendArgs) -> Qdisc {
    if args.qdisc_bypass {
        Qdisc::Bypass
    } else {
        Qdisc::Use
    }
}

/// The end of a run whose last line was printed with this result.
fn ended(printed: io::Result<()>, counters: SendCounters) -> Result<ExitCode> {
    match printed {
        // The program that reads the lines needs no more.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(error) => Err(error.into()),
        Ok(()) if counters.sent == 0 && counters.refused > 0 => Ok(ExitCode::FAILURE),
        Ok(()) => Ok(ExitCode::SUCCESS),
    }
}

fn follow(sender: &Sender, report: &mut Report, is_quiet: bool) -> io::Result<()> {
    let mut next = Instant::now() + INTERVAL;
    while !sender.wait(TICK.min(next.saturating_duration_since(Instant::now()))) {
        for note in sender.take_notes() {
            print::from_peer(print::NETWORK, format_args!("ringtap: {note}"));
        }
        if signals::wants_counters() {
            print::note(report.so_far(sender.counters())?);
        }
        if Instant::now() >= next {
            next += INTERVAL;
            if !is_quiet {
                report.line(sender.counters())?;
            }
        }
    }
    Ok(())
}
