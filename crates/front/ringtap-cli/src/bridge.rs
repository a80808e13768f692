// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap bridge`: forwards packets between two interfaces; readers may receive copies.

mod flows;
mod running;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use ringtap_bridge::{BridgeOptions, InlineOptions, InlineReport, InlineState, Moment, Passing};
use ringtap_capture::tap::DEFAULT_POOL_BYTES;
use ringtap_client::{Verdict, default_socket};
use ringtap_device::{Mode, Size, kinds};
use ringtap_explain::report;
use ringtap_explain::text;
use ringtap_filter::MAX_SNAP_LENGTH;
use ringtap_hub::config::{GroupText, admit_sudo_user};
use ringtap_net::affinity::{self, Placement, Steered};
use ringtap_pool::counters::Counters;
use ringtap_pool::source::Facts;

use crate::UsageError;
use crate::completion;
use crate::confine::UserArgs;
use crate::interrupt;
use crate::print;
use crate::reading;
use crate::signals;
use running::RunningBridge;

/// Longest time between two looks at the state of the interfaces.
const LOOK: Duration = Duration::from_millis(200);

/// Forwards packets between two interfaces, both ways, inside the kernel.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BridgeArgs {
    /// One interface.
    #[arg(value_name = "INTERFACE", add = completion::interfaces())]
    one: String,

    /// The other interface.
    #[arg(value_name = "INTERFACE", add = completion::interfaces())]
    other: String,

    /// Forward only packets that this filter takes (pcap-filter syntax).
    #[arg(long, value_name = "FILTER", conflicts_with = "drop")]
    pass: Option<String>,

    /// Drop the packets that this filter takes, forward all others.
    #[arg(long, value_name = "FILTER")]
    drop: Option<String>,

    /// Mirror the packets to a group of readers: a group as for `ringtap hub -g`, read with `-i hub:NAME`.
    #[arg(short, long, value_name = "GROUP")]
    mirror: Vec<GroupText>,

    /// Let an inline reader decide about packets, or about their flows: it joins this group, as
    /// `ringtap inline -i hub:NAME` does.
    #[arg(long, value_name = "NAME")]
    inline: Option<GroupText>,

    /// What happens to packets without a verdict: no inline reader is connected, or it is late.
    #[arg(long, value_name = "WHAT", default_value = "drop", requires = "inline")]
    no_verdict: NoVerdict,

    /// Longest wait of a packet for its verdict.
    #[arg(long, value_name = "MILLISECONDS", default_value = "100", requires = "inline",
          value_parser = clap::value_parser!(u64).range(1..=60_000))]
    verdict_timeout: u64,

    /// Print each flow about which the inline reader decided, with its counts, at its end.
    #[arg(long, requires = "inline")]
    flows: bool,

    /// Where readers connect. Default: $RINGTAP_SOCKET, else /run/ringtap/hub.sock.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// Memory for mirrored packets that wait for their readers, for each side.
    #[arg(short = 'B', long, value_name = "SIZE")]
    pool: Option<Size>,

    /// Where packets are redirected.
    #[arg(long, value_name = "MODE", default_value = "auto")]
    mode: ModeArg,

    /// Stop after this many seconds.
    #[arg(long, value_name = "SECONDS", value_parser = crate::reading::seconds)]
    duration: Option<Duration>,

    /// Seconds between lines; each line is about one direction.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = crate::reading::seconds)]
    interval: Duration,

    /// Print only the counters at the end.
    #[arg(short, long)]
    quiet: bool,

    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,

    /// CPUs: `capture=0` for the bridge's own threads; `irq=1`, `napi=threaded`, `auto`.
    #[arg(long, value_name = "CPUS", default_value = "")]
    cpu: Placement,
}

/// Where packets are redirected.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum ModeArg {
    /// In the driver if possible, else in the host's buffers; the bridge prints which.
    Auto,
    /// In the driver (XDP), or not at all.
    Native,
    /// In the host's buffers (tcx).
    Tc,
}

/// What happens to packets without a verdict.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum NoVerdict {
    /// Pass them (fail open).
    Pass,
    /// Drop them (fail closed).
    Drop,
}

const EXAMPLES: &str = "\
Examples:
  ringtap bridge eth0 eth1                              a wire
  ringtap bridge eth0 eth1 --drop 'udp port 1900'       without some packets
  ringtap bridge eth0 eth1 --mirror wire                and in another terminal:
  ringtap record -i hub:wire -w wire.pcapng
  ringtap bridge eth0 eth1 --inline ips --no-verdict pass
                                                        another process decides about packets and flows:
  ringtap inline -i hub:ips --drop-text 'cmd.exe'

Packets never leave the kernel; where a checksum or a VLAN tag was left to the NIC, they take the
host's own buffers, which know what to do. MTUs must be equal.";

impl BridgeArgs {
    fn options(&self) -> Result<BridgeOptions> {
        let filter = |text: &str| -> Result<_> { Ok(ringtap::compile(text, &ethernet())?) };
        let passing = match (&self.pass, &self.drop) {
            (Some(text), _) => Passing::Matching(filter(text)?),
            (None, Some(text)) => Passing::Others(filter(text)?),
            (None, None) => Passing::All,
        };
        let bytes = self.pool.map_or(DEFAULT_POOL_BYTES, |size| size.0);
        let inline = self.inline_options();
        ensure!(
            self.one != self.other,
            UsageError(format!(
                "a bridge of {} with itself: name two interfaces",
                self.one
            ))
        );
        Ok(BridgeOptions {
            interfaces: [self.one.clone(), self.other.clone()],
            passing,
            mode: match self.mode {
                ModeArg::Auto => Mode::Auto,
                ModeArg::Native => Mode::Native,
                ModeArg::Tc => Mode::Tc,
            },
            mirror_bytes: self.has_readers().then_some(bytes),
            inline,
        })
    }

    fn has_readers(&self) -> bool {
        !self.mirror.is_empty() || self.inline.is_some()
    }

    /// The groups of readers: those of the mirror, and the inline reader's.
    fn groups(&self) -> Result<Vec<GroupText>> {
        ensure!(
            self.has_readers() || (self.socket.is_none() && self.pool.is_none()),
            UsageError("--socket and --pool are for readers: say --mirror or --inline".to_owned())
        );
        let inline = self.inline.iter().map(GroupText::for_inline);
        let inline = inline.collect::<Result<Vec<_>, _>>()?;
        let mut groups: Vec<_> = inline.into_iter().chain(self.mirror.clone()).collect();
        admit_sudo_user(&mut groups);
        Ok(groups)
    }

    fn inline_options(&self) -> Option<InlineOptions> {
        let group = self.inline.as_ref()?;
        Some(InlineOptions {
            group: group.name().to_owned(),
            no_verdict: match self.no_verdict {
                NoVerdict::Pass => Verdict::Pass,
                NoVerdict::Drop => Verdict::Drop,
            },
            timeout: Duration::from_millis(self.verdict_timeout),
        })
    }
}

/// Facts for which the bridge's filters are compiled.
pub(crate) fn ethernet() -> Facts {
    Facts {
        link_type: 1,
        snap_length: MAX_SNAP_LENGTH,
        ..Facts::default()
    }
}

pub(crate) fn run(args: &BridgeArgs) -> Result<ExitCode> {
    reading::require_no_reader(&args.cpu)?;
    let options = args.options()?;
    let keeps = UserArgs::default().keeping([&kinds::TAP], &args.cpu)?;
    let (ended, end) = mpsc::channel();
    let interrupted = move || {
        let _over = ended.send(());
    };
    // Before anything is attached, so that an interrupt leaves nothing behind.
    keeps.start_early(|| interrupt::on_interrupt(interrupted))?;
    let cpu = args
        .cpu
        .resolve(Some(&args.one), |note| print::notes([note]))?;
    let socket = args.socket.clone().unwrap_or_else(default_socket);
    let groups = args.groups()?;
    let mut running = affinity::on(cpu.capture, || {
        RunningBridge::start(&options, &groups, &socket, &keeps)
    })?;
    let steered = Steered::default();
    cpu.steer([args.one.as_str(), args.other.as_str()], &steered, |note| {
        print::notes([note])
    })?;
    print::note(format_args!(
        "ringtap: bridge of {} and {}",
        args.one, args.other
    ));
    let start = Instant::now();
    let failure = watch(args, &mut running, &end)?;
    // Before the programs that NAPI may depend on are detached.
    steered.undo();
    let failure = running.stop()?.or(failure);
    say_flows(args, &running)?;
    let mut counters = [Counters::default(); 2];
    for (from, counters) in counters.iter_mut().enumerate() {
        *counters = say_last(args, &mut running, from, start.elapsed())?;
    }
    if let Some(failure) = failure {
        return Err(failure.into());
    }
    counters.iter().try_for_each(reading::require_balance)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints counters until an interrupt, the end of the time, or the removal of an interface; returns
/// the reason of the latter.
fn watch(
    args: &BridgeArgs,
    running: &mut RunningBridge,
    end: &Receiver<()>,
) -> Result<Option<ringtap::Error>> {
    let begun = Instant::now();
    let mut due = begun + args.interval;
    let mut before = [Counters::default(); 2];
    let mut inline = None;
    loop {
        let until = args.duration.map_or(due, |most| due.min(begun + most));
        let left = until.saturating_duration_since(Instant::now()).min(LOOK);
        match end.recv_timeout(left) {
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return Ok(None),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Some(failure) = running.failure()? {
            return Ok(Some(failure));
        }
        running.publish();
        say_inline(args, running, &mut inline);
        say_flows(args, running)?;
        if signals::wants_counters() {
            say_so_far(args, running)?;
        }
        if args.duration.is_some_and(|most| begun.elapsed() >= most) {
            return Ok(None);
        }
        if Instant::now() < due {
            continue;
        }
        due += args.interval;
        if !args.quiet {
            say(args, running, &mut before)?;
        }
    }
}

/// Prints the counters of both directions until now on standard error.
fn say_so_far(args: &BridgeArgs, running: &mut RunningBridge) -> Result<()> {
    for from in 0..2 {
        let now = running.bridge.counters(from, Moment::Running);
        let way = running.bridge.way(from);
        print::note(if args.json {
            report::json(&way, "bridge", None, &now)?
        } else {
            report::counters(&format!("{way} so far:"), "arrived", &now)
        });
    }
    Ok(())
}

/// Prints the state of the inline reader, if it changed.
fn say_inline(args: &BridgeArgs, running: &RunningBridge, before: &mut Option<(InlineState, u64)>) {
    let Some(report) = running.bridge.inline() else {
        return;
    };
    let InlineReport {
        state, late_count, ..
    } = report;
    if before.replace((state, late_count)) == Some((state, late_count)) {
        return;
    }
    let what = match args.no_verdict {
        NoVerdict::Pass => "pass",
        NoVerdict::Drop => "are dropped",
    };
    let text = match state {
        InlineState::Absent => format!("there is no inline reader: packets {what}"),
        InlineState::Deciding => {
            format!(
                "the inline reader decides (it was late {})",
                text::count(late_count, "time")
            )
        }
        InlineState::Late => format!(
            "the inline reader let packets wait for {} ms: until it has caught up, packets {what}",
            args.verdict_timeout
        ),
    };
    print::from_peer("inline reader", format_args!("ringtap: {text}"));
}

/// Prints the decided flows that have ended.
fn say_flows(args: &BridgeArgs, running: &RunningBridge) -> Result<()> {
    for flow in running.bridge.take_ended_flows() {
        if args.flows {
            print::line(flows::line(&flow, args.json)?)?;
        }
    }
    Ok(())
}

fn say(args: &BridgeArgs, running: &mut RunningBridge, before: &mut [Counters; 2]) -> Result<()> {
    for (from, before) in before.iter_mut().enumerate() {
        let now = running.bridge.counters(from, Moment::Running);
        let way = running.bridge.way(from);
        if args.json {
            print::line(report::json(&way, "bridge", None, &now)?)?
        } else {
            print::line(format_args!(
                "{way:<20} {}",
                report::live_line(&now, before, args.interval)
            ))?
        }
        *before = now;
    }
    Ok(())
}

/// Prints the final counters of one direction.
fn say_last(
    args: &BridgeArgs,
    running: &mut RunningBridge,
    from: usize,
    time: Duration,
) -> Result<Counters> {
    let (way, counters) = (
        running.bridge.way(from),
        running.bridge.counters(from, Moment::Final),
    );
    if let Some(inline) = running.bridge.inline() {
        let [passed, by_flow] =
            [inline.passed, inline.flow_passed].map(|it| text::packets(it[from & 1]));
        print::note(format_args!(
            "ringtap: {way}: {by_flow} passed by a verdict on their flow, {passed} without a verdict"
        ));
    }
    if args.json {
        print::line(report::json(&way, "bridge", None, &counters)?)?;
        return Ok(counters);
    }
    print::line(format_args!("{way} {:.1} s:", time.as_secs_f64()))?;
    for (name, number, note) in [
        ("offered", counters.offered, "arrived"),
        (
            "delivered",
            counters.delivered,
            "left by the other interface",
        ),
        (
            "filtered",
            counters.filtered,
            "stopped by the filter, or the inline reader",
        ),
        (
            "shunted",
            counters.shunted,
            "stopped by the inline reader's verdict on their flow",
        ),
        ("dropped.nic", counters.dropped.nic, "lost on arrival"),
        (
            "dropped.kernel",
            counters.dropped.kernel,
            "the other interface had no room, or refused",
        ),
        (
            "dropped.overrun",
            counters.dropped.overrun,
            "waited for the inline reader, and the bridge itself was late",
        ),
        (
            "dropped.no_verdict",
            counters.dropped.no_verdict,
            "no inline reader was connected, or it was late",
        ),
    ] {
        let note = if number == 0 { "" } else { note };
        print::line(report::counter(name, number, note))?;
    }
    print::line(format_args!("  {}", report::balance(&counters)))?;
    Ok(counters)
}
