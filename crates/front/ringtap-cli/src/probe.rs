// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap probe`: measures traffic, and prints or exports the results.

mod ctl;
mod libraries;

use std::io::{self, ErrorKind, Write};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use ringtap::{CapabilitySet, Capture, Confinement, OpenOptions};
use ringtap_capture::meter::KernelMeter;
use ringtap_device::Kind;
use ringtap_explain::http::{self, Reach};
use ringtap_explain::report;
use ringtap_hub::config::metrics_address;
use ringtap_ipc::socket::Listener;
use ringtap_net::affinity::Placement;
use ringtap_probe::config::ProbeConfig;
use ringtap_probe::ctl::{self as commands, CtlServer};
use ringtap_probe::export::WhenFull;
use ringtap_probe::export::destination::Destination;
use ringtap_probe::export::prometheus::ProbeMetrics;
use ringtap_probe::{
    LibraryStart, Probe, ProbeCommand, ProbeControl, ProbeEnd, ProbePlan, ending, open_exporters,
    plan_reader, usual_workers,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::confine::UserArgs;
use crate::input::InputArgs;
use crate::interrupt::EndRequests;
use crate::{print, reading, signals};

/// Time between results of a live capture.
const USUAL_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct ProbeArgs {
    #[command(subcommand)]
    verb: Option<ctl::ProbeVerb>,

    #[command(flatten)]
    input: InputArgs,

    #[command(flatten)]
    user: UserArgs,

    /// Analyses, actions and destinations of results; see docs/probe.md. SIGHUP and `ringtap probe ctl
    /// reload` read it again.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Threads, each with its share of the flows. [default: one for each processor, 1 for a group of a hub]
    #[arg(long, value_name = "NUMBER")]
    workers: Option<NonZeroU32>,

    /// Seconds between results other than flows. [default: 5; of a file: one result at its end]
    #[arg(long, value_name = "SECONDS", value_parser = reading::seconds)]
    every: Option<Duration>,

    /// Stop after this many seconds.
    #[arg(long, value_name = "SECONDS", value_parser = reading::seconds)]
    duration: Option<Duration>,

    /// Send results to this destination, too; may be given several times.
    ///
    /// ipfix:udp://ADDRESS:PORT, ipfix:tcp://…, ipfix-uniflow:udp://…, netflow9:udp://…,
    /// parquet:FOLDER, json:FILE, kafka:HOST:PORT/TOPIC; docs/probe-results.md lists their settings.
    #[arg(long, value_name = "DESTINATION")]
    export: Vec<Destination>,

    /// Prometheus metrics of the results over HTTP at this address of this machine, e.g. 127.0.0.1:9465.
    #[arg(long, value_name = "ADDRESS", value_parser = metrics_address)]
    metrics: Option<SocketAddr>,

    /// Socket for `ringtap probe ctl`. [default: /run/ringtap-root/probe.sock, with -Z
    /// /run/ringtap-root/probe-UID/probe.sock, without root
    /// $XDG_RUNTIME_DIR/ringtap-probe.sock; none for a file]
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,

    /// One JSON object a line instead of text; flows with the names of Zeek's conn.log.
    #[arg(long)]
    json: bool,
}

impl ProbeArgs {
    /// Whether the probe opens nothing but its device.
    fn only_prints(&self) -> bool {
        let is_asked = self.metrics.is_some() || self.control.is_some();
        !is_asked && self.config.is_none() && self.export.is_empty()
    }
}

const EXAMPLES: &str = "\
Examples:
  ringtap probe -i eth0                 flows as they end; largest talkers every 5 s
  ringtap probe -r file.pcap --json     all flows of a file, for a program
  ringtap probe -i eth0 tcp port 443    with a filter, as for tcpdump
  ringtap probe -i eth0 --config probe.toml
  ringtap probe ctl disable sizes       changes the running probe
  ringtap probe -i eth0 --export ipfix:udp://10.0.0.1:4739
  ringtap probe -r file.pcap --export parquet:results   then: ringtap report results -o report.html";

pub(crate) use libraries::{LibrariesArgs, run as run_libraries};

pub(crate) fn run(args: &ProbeArgs) -> Result<ExitCode> {
    if let Some(verb) = &args.verb {
        return ctl::run(verb);
    }
    let kind = args.input.kind();
    let is_live = kind.is_some_and(Kind::is_live);
    let workers = match (args.workers, kind) {
        (Some(workers), _) => workers,
        (None, Some(kind)) if kind.names_a_group() => NonZeroU32::MIN,
        (None, _) => usual_workers(),
    };
    let every = args.every.or(is_live.then_some(USUAL_INTERVAL));
    let ProbeConfig { plan, exports } = match &args.config {
        Some(path) => ProbeConfig::read(path, every)?,
        None => ProbeConfig {
            plan: ProbePlan::standard(every),
            exports: Vec::new(),
        },
    };
    let becomes = args.user.user().map(|user| user.uid);
    libraries::require_interface(&plan, kind.filter(|_| is_live))?;
    let mut libraries = LibraryStart::spawn(&plan, libraries::VERB, becomes)?;
    let keeps = if args.only_prints() {
        args.user.reading(&args.input, &Placement::default())?
    } else {
        args.user.keeping(kind, &Placement::default())?
    };
    let requests = keeps.start_early(|| {
        let requests = match args.config {
            Some(_) => EndRequests::by(&[SIGINT, SIGTERM]),
            None => EndRequests::new(),
        };
        let device = args.input.interface().or(args.input.file());
        requests?.note_if_slow(device.unwrap_or("the capture").to_owned())
    })?;
    // From now on, SIGHUP does not end a probe that has a file to read again.
    let hangups = args.config.as_ref().map(|_| Signals::new([SIGHUP]));
    let hangups = hangups.transpose()?;
    let listener = listener(args.control.as_deref(), is_live, becomes)?;
    let wants = plan.kernel_wants();
    let open_meter = |wants| {
        args.input
            .open_meter(&wants, plan.needs_packets(), &requests)
    };
    let meter = wants.map(open_meter).transpose()?;
    let captures = if plan.needs_packets() || meter.is_none() {
        let mut options = OpenOptions::new().name("probe").confined(keeps);
        if let Some(marks) = plan.congestion {
            options = options.congestion(marks);
        }
        let options = match &mut libraries {
            Some(libraries) => libraries.served(options, &plan, workers.get()),
            None => options,
        };
        args.input
            .open_workers(options, workers, &plan, &requests)?
    } else {
        keeps.enter()?;
        Vec::new()
    };
    let first = captures.first();
    let stop = ending(first, meter.as_ref());
    let stopper = Arc::clone(&stop);
    requests.call(args.duration, move || stopper())?;
    print::notes(meter.iter().flat_map(KernelMeter::notes));
    print::notes(first.into_iter().flat_map(Capture::notes));
    let (device, offered_from) = match first.map(Capture::facts) {
        Some(facts) => (facts.device.clone(), facts.offered_from.clone()),
        None => (
            format!("meter:{}", args.input.interface().unwrap_or_default()),
            "the packets that the programs in the kernel saw".to_owned(),
        ),
    };
    let workers = captures.len();
    // After the rights are gone, so that files belong to the user of -Z.
    let none = Confinement::keeping(CapabilitySet::empty());
    let when_full = if is_live {
        WhenFull::Drop
    } else {
        WhenFull::Wait
    };
    let (is_json, mut exporters) = none.start_early(|| {
        open_exporters(
            &exports,
            &args.export,
            args.json,
            ProbeOutput(stop),
            when_full,
        )
    })?;
    let totals = ProbeMetrics::default();
    if args.metrics.is_some() {
        exporters.push(Box::new(totals.clone()));
    }
    let libraries = libraries.map(|own| own.start(&args.input.filter_text()));
    let libraries = libraries.transpose()?;
    if libraries
        .as_ref()
        .is_some_and(|one| !one.has_listed_files())
    {
        print::note(
            "ringtap: this kernel has no Landlock: libraries can read all files that their user may read",
        );
    }
    let probe = Probe::start(captures, meter, plan, exporters, when_full, libraries)?;
    let control = probe.control();
    let _metrics = match args.metrics {
        None => None,
        Some(address) => {
            let control = Arc::clone(control);
            let all = move || Some(totals.exposition(&control.ledger()));
            let server = http::serve(address, Reach::Loopback, all)?;
            print::note(format_args!(
                "ringtap: metrics at http://{}/metrics",
                server.address
            ));
            Some(server)
        }
    };
    if let (Some(path), Some(hangups)) = (&args.config, hangups) {
        control.reload_by(plan_reader(path.clone(), every, exports));
        reload_at(hangups, Arc::clone(control))?;
    }
    let (ledger, is_one_line) = (Arc::clone(control), is_json);
    signals::on_counters(move || {
        let ledger = ledger.ledger();
        print::note(if is_one_line {
            ledger.json().to_string()
        } else {
            format!("probe so far:\n{ledger}")
        });
    })?;
    let _ctl = match listener {
        Some(listener) => Some(CtlServer::open(listener, Arc::clone(control))?),
        None => None,
    };
    print::note(format_args!(
        "ringtap: probe of {device} with {workers} workers"
    ));
    let outcome = probe.run(|line| print::note(format_args!("ringtap: {line}")))?;
    if is_json {
        print::line(report::json(&device, "probe", None, &outcome.counters)?)?;
        print::line(outcome.ledger.json())?;
    } else {
        let title = format!("{device}:");
        print::line(report::counters(&title, &offered_from, &outcome.counters))?;
        print::line(&outcome.ledger)?;
    }
    outcome.result?;
    reading::require_balance(&outcome.counters)?;
    // The notes have the reasons.
    Ok(match outcome.ledger.records_failed() {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// The socket that the user named, or for a live capture the usual one if it is free.
fn listener(named: Option<&Path>, is_live: bool, becomes: Option<u32>) -> Result<Option<Listener>> {
    if named.is_none() && !is_live {
        return Ok(None);
    }
    match (commands::listen(named, becomes), named) {
        (Err(error), None) => {
            print::note(format_args!(
                "ringtap: no `probe ctl` without a --control of its own: {error}"
            ));
            Ok(None)
        }
        (listener, _) => Ok(listener?),
    }
}

/// Reads the configuration again at each of these signals, on a thread of its own.
fn reload_at(mut signals: Signals, control: Arc<ProbeControl>) -> Result<()> {
    let reload = move || {
        for _ in signals.forever() {
            match control.apply(&ProbeCommand::Reload) {
                Ok(done) => print::note(format_args!("ringtap: {done}")),
                Err(error) => print::error(error),
            }
        }
    };
    let builder = std::thread::Builder::new().name("reload".into());
    builder.spawn(reload).context("cannot start a thread")?;
    Ok(())
}

/// Standard output; ends the capture once nobody reads it.
struct ProbeOutput(ProbeEnd);

impl Write for ProbeOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = io::stdout().write(bytes);
        if written
            .as_ref()
            .is_err_and(|error| error.kind() == ErrorKind::BrokenPipe)
        {
            (self.0)();
        }
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush()
    }
}
