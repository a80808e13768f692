// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap bridge`: what arrives at one interface leaves by the other, and readers may look on.
#![forbid(unsafe_code)]

mod running;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use clap::{Args, ValueEnum};
use ringtap_capture::bridge::{BridgeOptions, Moment};
use ringtap_capture::tap::{DEFAULT_POOL_BYTES, Passing};
use ringtap_capture::xdp::forward::{JudgeOptions, JudgeState, Verdict};
use ringtap_client::default_socket;
use ringtap_device::{Mode, Size};
use ringtap_pool::counters::Counters;
use ringtap_pool::source::Facts;

use crate::affinity::{self, Placement, Steered};
use crate::hub::groups::GroupText;
use crate::interrupt;
use crate::print;
use crate::report::{self, grouped};
use running::{Readers, Running};

/// Forwards packets between two interfaces, both ways, inside the kernel.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BridgeArgs {
    /// One interface.
    #[arg(value_name = "INTERFACE")]
    one: String,

    /// The other interface.
    #[arg(value_name = "INTERFACE")]
    other: String,

    /// Forward only packets that this filter takes (pcap-filter syntax).
    #[arg(long, value_name = "FILTER", conflicts_with = "drop")]
    pass: Option<String>,

    /// Forward all packets but those that this filter takes.
    #[arg(long, value_name = "FILTER")]
    drop: Option<String>,

    /// Let readers look on: a group as for `ringtap hub -g`, read with `-i hub:NAME`.
    #[arg(short, long, value_name = "GROUP")]
    mirror: Vec<GroupText>,

    /// Let a reader decide about each packet, in user space: it joins this group, as
    /// `ringtap judge -i hub:NAME` does.
    #[arg(long, value_name = "NAME")]
    judge: Option<GroupText>,

    /// What becomes of packets that nobody judged: without a judge, or when it is late.
    #[arg(long, value_name = "WHAT", default_value = "drop", requires = "judge")]
    unjudged: Unjudged,

    /// How long a packet waits for its verdict.
    #[arg(long, value_name = "MILLISECONDS", default_value = "100", requires = "judge",
          value_parser = clap::value_parser!(u64).range(1..=60_000))]
    judge_limit: u64,

    /// Where readers connect. Default: $RINGTAP_SOCKET, else /run/ringtap/hub.sock.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// Memory for mirrored packets that wait for their readers, for each side.
    #[arg(short = 'B', long, value_name = "SIZE")]
    pool: Option<Size>,

    /// Where packets are redirected.
    #[arg(long, value_name = "MODE", default_value = "auto")]
    mode: BridgeMode,

    /// Stop after this many seconds.
    #[arg(long, value_name = "SECONDS", value_parser = crate::reading::seconds)]
    duration: Option<Duration>,

    /// Print a line for each way this often.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = crate::reading::seconds)]
    interval: Duration,

    /// No lines while it runs, only the counters at the end.
    #[arg(short, long)]
    quiet: bool,

    /// One JSON object a line.
    #[arg(long)]
    json: bool,

    /// CPUs: `capture=0` is where the bridge's own threads run; `irq=1`, `napi=threaded`, `auto`.
    #[arg(long, value_name = "CPUS", default_value = "")]
    cpu: Placement,
}

/// Where packets are redirected.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum BridgeMode {
    /// In the driver, else in the host's buffers; which one is said.
    Auto,
    /// In the driver (XDP), or not at all.
    Native,
    /// In the host's buffers (tcx).
    Tc,
    /// By a program in user space (AF_XDP), which runs the filter: for filters that the kernel
    /// cannot run.
    User,
}

/// What becomes of packets that nobody judged.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Unjudged {
    /// They pass: the network is more important (fail open).
    Pass,
    /// They are dropped: the judge is more important (fail closed).
    Drop,
}

const EXAMPLES: &str = "\
Examples:
  ringtap bridge eth0 eth1                              a wire
  ringtap bridge eth0 eth1 --drop 'udp port 1900'       without some packets
  ringtap bridge eth0 eth1 --mirror wire                and in another terminal:
  ringtap record -i hub:wire -w wire.pcapng
  ringtap bridge eth0 eth1 --judge ips --unjudged pass  another process decides:
  ringtap judge -i hub:ips --drop-text 'cmd.exe'

Packets never leave the kernel; where a checksum or a VLAN tag was left to the NIC, they take the
host's own buffers, which know what to do. MTUs must be equal.";

impl BridgeArgs {
    fn options(&self) -> Result<BridgeOptions> {
        let filter = |text: &str| -> Result<_> {
            let compiled = ringtap::compile(text, &ethernet())?;
            Ok(compiled.program().clone())
        };
        let passing = match (&self.pass, &self.drop) {
            (Some(text), _) => Passing::Matching(filter(text)?),
            (None, Some(text)) => Passing::Others(filter(text)?),
            (None, None) => Passing::All,
        };
        let bytes = self.pool.map_or(DEFAULT_POOL_BYTES, |size| size.0);
        Ok(BridgeOptions {
            interfaces: [self.one.clone(), self.other.clone()],
            passing,
            mode: match self.mode {
                BridgeMode::Auto | BridgeMode::User => Mode::Auto,
                BridgeMode::Native => Mode::Native,
                BridgeMode::Tc => Mode::Tc,
            },
            mirror_bytes: self.has_readers().then_some(bytes),
        })
    }

    fn has_readers(&self) -> bool {
        !self.mirror.is_empty() || self.judge.is_some()
    }

    /// Who reads: those who look on, and the judge.
    fn groups(&self) -> Result<Vec<GroupText>> {
        ensure!(
            self.has_readers() || (self.socket.is_none() && self.pool.is_none()),
            "--socket and --pool are for readers: say --mirror or --judge"
        );
        let judge = self.judge.iter().map(GroupText::for_judge);
        let judge = judge.collect::<Result<Vec<_>>>()?;
        Ok(judge.into_iter().chain(self.mirror.clone()).collect())
    }

    /// How a reader decides, if one does.
    fn judging(&self) -> Result<Option<JudgeOptions>> {
        let Some(group) = &self.judge else {
            return Ok(None);
        };
        ensure!(
            matches!(self.mode, BridgeMode::Auto | BridgeMode::User),
            "a reader's verdict is asked for in user space: leave out --mode"
        );
        Ok(Some(JudgeOptions {
            group: group.name().to_owned(),
            unjudged: match self.unjudged {
                Unjudged::Pass => Verdict::Pass,
                Unjudged::Drop => Verdict::Drop,
            },
            limit: Duration::from_millis(self.judge_limit),
        }))
    }
}

/// What a filter is compiled for.
pub(crate) fn ethernet() -> Facts {
    Facts {
        link_type: 1,
        snap_length: 262_144,
        ..Facts::default()
    }
}

/// Runs the verb.
pub(crate) fn run(args: &BridgeArgs) -> Result<ExitCode> {
    let options = args.options()?;
    let (ended, end) = mpsc::channel();
    // Before anything is attached: who interrupts now wants nothing to be left.
    interrupt::on_interrupt(move || {
        let _over = ended.send(());
    })?;
    let cpu = args.cpu.resolve(Some(&args.one))?;
    let socket = args.socket.clone().unwrap_or_else(default_socket);
    let readers = Readers {
        groups: &args.groups()?,
        socket: &socket,
        judge: args.judging()?,
    };
    let mut running = affinity::on(cpu.capture, || match args.mode {
        _ if readers.judge.is_some() => Running::in_user_space(&options, &readers),
        BridgeMode::User => Running::in_user_space(&options, &readers),
        _ => Running::in_the_kernel(&options, &readers),
    })?;
    let steered = Steered::default();
    let _goes_back = steered.at_end();
    cpu.steer([args.one.as_str(), args.other.as_str()], &steered)?;
    print::note(format_args!(
        "ringtap: bridge of {} and {}",
        args.one, args.other
    ));
    let start = Instant::now();
    let failure = watch(args, &mut running, &end)?;
    // While the programs that NAPI may depend on are attached.
    steered.undo();
    let failure = running.stop()?.or(failure);
    for from in [0, 1] {
        say_last(args, &running, from, start.elapsed())?;
    }
    match failure {
        None => Ok(ExitCode::SUCCESS),
        Some(failure) => bail!(failure),
    }
}

/// Prints what happens until somebody interrupts, the time is over, or a side goes away, whose
/// reason it tells.
fn watch(args: &BridgeArgs, running: &mut Running, end: &Receiver<()>) -> Result<Option<String>> {
    let begun = Instant::now();
    let mut due = begun + args.interval;
    let mut before = [Counters::default(); 2];
    let mut judge = None;
    loop {
        let until = args.duration.map_or(due, |most| due.min(begun + most));
        let left = until.saturating_duration_since(Instant::now());
        match end.recv_timeout(left) {
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return Ok(None),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Some(failure) = running.failure()? {
            return Ok(Some(failure));
        }
        say_judge(args, running, &mut judge);
        if args.duration.is_some_and(|most| begun.elapsed() >= most) {
            return Ok(None);
        }
        due += args.interval;
        if !args.quiet {
            say(args, running, &mut before)?;
        }
    }
}

/// Says how the judge does, if that changed.
fn say_judge(args: &BridgeArgs, running: &Running, before: &mut Option<(JudgeState, u64)>) {
    let Some(now) = running.judge() else { return };
    if before.replace(now) == Some(now) {
        return;
    }
    let (state, lates) = now;
    let what = match args.unjudged {
        Unjudged::Pass => "pass",
        Unjudged::Drop => "are dropped",
    };
    match state {
        JudgeState::Absent => {
            print::note(format_args!("ringtap: there is no judge: packets {what}"))
        }
        JudgeState::Judging => print::note(format_args!(
            "ringtap: the judge decides (it was late {lates} times)"
        )),
        JudgeState::Late => print::note(format_args!(
            "ringtap: the judge let packets wait for {} ms: until it has caught up they {what}",
            args.judge_limit
        )),
    }
}

fn say(args: &BridgeArgs, running: &Running, before: &mut [Counters; 2]) -> Result<()> {
    for (from, before) in before.iter_mut().enumerate() {
        let now = running.counters(from, Moment::Running);
        let way = running.way(from);
        match args.json {
            true => print::line(report::json(&way, "bridge", None, &now)?)?,
            false => print::line(format_args!(
                "{way:<20} {}",
                report::live_line(&now, before, args.interval)
            ))?,
        }
        *before = now;
    }
    Ok(())
}

/// The last counters of one way.
fn say_last(args: &BridgeArgs, running: &Running, from: usize, time: Duration) -> Result<()> {
    let (way, counters) = (running.way(from), running.counters(from, Moment::Final));
    if running.judge().is_some() {
        let passed = grouped(running.unjudged_passed(from));
        print::note(format_args!(
            "ringtap: {way}: {passed} packets passed without a verdict"
        ));
    }
    if args.json {
        print::line(report::json(&way, "bridge", None, &counters)?)?;
        return Ok(());
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
            "stopped by the filter, or the judge",
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
            "the judge was not there, or late",
        ),
    ] {
        let note = if number == 0 { "" } else { note };
        let line = format!("  {name:<20} {:>16}  {note}", grouped(number));
        print::line(line.trim_end())?;
    }
    print::line(format_args!("  {}", counters.balance()))?;
    Ok(())
}
