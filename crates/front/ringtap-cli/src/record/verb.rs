// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap record`: writes packets of a device to pcapng files.

use std::fs;
use std::io::{self, IsTerminal};
use std::os::unix::fs::MetadataExt as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use ringtap::{Capture, Facts, ORDER_WINDOW};
use ringtap_file::{FileInterface, FileReader, Format};
use ringtap_filter::LinkType;
use ringtap_ipc::time::now_ns;

use super::events::EventOptions;
use super::{ClosedFiles, FileOptions, Recorder, Writer, origin};
use crate::UsageError;
use crate::confine::UserArgs;
use crate::input::InputArgs;
use crate::interrupt::EndRequests;
use crate::print;
use crate::reading::{self, Reading, ReadingArgs, Sink};
use crate::session::{self, BatchConsumer as _};
use ringtap_net::affinity::{self, Steered};

/// Records packets into pcapng files, with the counters in each of them.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RecordArgs {
    #[command(flatten)]
    input: InputArgs,

    #[command(flatten)]
    reading: ReadingArgs,

    #[command(flatten)]
    user: UserArgs,

    // Last: clap puts what follows below their headings.
    #[command(flatten)]
    files: FileOptions,

    #[command(flatten)]
    events: EventOptions,
}

const EXAMPLES: &str = "\
Examples:
  ringtap record -i eth0 -w web.pcapng tcp port 80
  ringtap record -i eth0 -w trace.pcapng -C 100MB -W 10     the newest 1 GB, in ten files
  ringtap record -i eth0 -w 'trace-%H%M.pcapng' -G 60       a file a minute
  ringtap record -i eth0 -w t.pcapng.zst -G 60              compressed
  ringtap record -i eth0 -w t.pcapng --max-total 1TB --min-free 5%   a ring that fits the disk
  ringtap record -i eth0 -w t.pcapng --before 60 --trigger 'tcp port 4444'   a minute before each such packet
  ringtap record -i packet:lo -w - | tshark -r -            into another program
  ringtap record -r old.pcap -w new.pcapng                  pcap to pcapng

SIGUSR1 prints the counters so far. SIGUSR2 begins the next file of a series, is an event with --before, and
else writes what is still in memory.
A disk that is too slow loses packets of this recorder only: dropped.overrun.
With -w - the recording ends with status 0 when the reading program ends first.";

pub(crate) fn run(args: &RecordArgs) -> Result<ExitCode> {
    let files = args.files.resolved()?;
    if let Some(read) = args.input.file() {
        require_another(read, &files.file)?;
        ensure!(
            files.file_seconds.is_none() || args.input.has_recorded_speed(),
            UsageError(
                "-G counts seconds of the clock, not of a file: use -C, or --speed 1x".to_owned()
            )
        );
    }
    let seconds = files
        .stop_at
        .seconds
        .map(|it| Duration::from_secs(it.into()));
    let limited = args.reading.limited(files.stop_at.packets, seconds)?;
    let cpu = args
        .reading
        .cpu
        .resolve(args.input.interface(), |note| print::notes([note]))?;
    let kind = args.input.kind();
    let keeps = args.user.recording(kind, &cpu, &files.file)?;
    let requests = keeps.start_early(EndRequests::new)?;
    let options = args
        .reading
        .open_options("record", ORDER_WINDOW)
        .confined(keeps);
    let closed = files.when_closed.as_deref();
    let closed = closed.map(|command| ClosedFiles::start(command, args.user.user()));
    let closed = closed.transpose()?;
    let capture = affinity::on(cpu.capture, || args.input.open(options, &requests))?;
    let start_ns = now_ns();
    let interfaces = interfaces(&capture, &args.input.filter_text());
    let events = args.events.events(&capture)?;
    let writer = Writer::create(&files, origin(), interfaces, start_ns)?;
    let steered = Steered::default();
    requests.stop(capture.control(), limited.duration, &steered)?;
    print::notes(capture.notes());
    if !args.reading.quiet {
        print::notes(losses(args.input.file(), files.format()));
    }
    cpu.steer(capture.facts().interface.as_deref(), &steered, |note| {
        print::notes([note])
    })?;
    affinity::pin(cpu.reader)?;
    // Standard output may be the file.
    let sink = if files.file == "-" {
        Sink::Stderr
    } else {
        Sink::Stdout
    };
    let reading = Reading::new(&limited, capture, "record").to(sink);
    let progress = io::stderr().is_terminal() && !args.reading.quiet && !args.reading.json;
    let mut recorder = Recorder {
        reading,
        writer,
        start_ns,
        progress,
        closed,
        events,
        unstated: Vec::new(),
    };
    let received = session::receive(args.reading.interval, &mut recorder);
    // Before the capture ends: NAPI may depend on its program.
    steered.undo();
    let (counters, _) = recorder.finish(received)?;
    let capture = recorder.capture();
    // Order is the default, and worth a line only if it was not kept.
    let order = capture.order();
    if let Some(order) = order.filter(|order| order.late > 0 || args.reading.verbose) {
        print::note(format_args!("ringtap: {}", reading::order_kept(order).text));
    }
    capture.outcome()?;
    recorder.wait_for_commands();
    reading::require_balance(&counters)?;
    Ok(ExitCode::SUCCESS)
}

/// Refuses to overwrite the input file.
fn require_another(read: &str, written: &str) -> Result<()> {
    let known = |file: &str| fs::metadata(file).ok().map(|it| (it.dev(), it.ino()));
    let same = known(read).is_some() && known(read) == known(written);
    ensure!(
        !same,
        UsageError(format!(
            "{written}: is the file that is read: write to another one"
        ))
    );
    Ok(())
}

/// What the files of this format do not keep, and what of the file that is read.
fn losses(read: Option<&str>, format: Format) -> Vec<&'static str> {
    let is_file = |file: &str| fs::metadata(file).is_ok_and(|it| it.is_file());
    let is_pcapng = |file: &str| {
        let input = FileReader::open(file);
        input.is_ok_and(|input| input.format() == Format::Pcapng)
    };
    let mut losses = Vec::new();
    match read {
        // The capture reads a pipe already, which cannot be read twice.
        Some(file) if !is_file(file) => losses.push(
            "packets, times and directions are copied; comments, interface names and secrets of a pcapng \
             input are not: `editcap` and `mergecap` keep them",
        ),
        Some(file) if is_pcapng(file) => losses.push(
            "packets, times and directions are copied; comments, interface names and secrets of the file \
             are not: `editcap` and `mergecap` keep them",
        ),
        _ => {}
    }
    if format == Format::Pcap {
        losses.push("pcap files have neither counters nor directions: pcapng has");
    }
    losses
}

/// Where sent packets were captured, and whose clock stamped packets, if not the host's.
fn comment(facts: &Facts) -> Option<String> {
    let clock = facts.time_from.as_ref();
    let clock = clock.map(|clock| format!("time stamps: {clock}"));
    let parts: Vec<_> = facts.sent_from.clone().into_iter().chain(clock).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Description of each source for the files.
pub(crate) fn interfaces(capture: &Capture, filter: &str) -> Vec<FileInterface> {
    let interface = |facts: &Facts| {
        let name = facts.interface.as_ref().unwrap_or(&facts.device);
        FileInterface {
            name: Some(name.clone()),
            comment: comment(facts),
            filter: Some(filter.to_owned()).filter(|filter| !filter.is_empty()),
            ..FileInterface::new(0, LinkType(facts.link_type), facts.snap_length)
        }
    };
    capture.sources().map(interface).collect()
}
