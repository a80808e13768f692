// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap record`: writes packets of a device to pcapng files.

mod args;
mod criterion;
mod recording;

use std::fs;
use std::io::{self, IsTerminal};
use std::os::unix::fs::MetadataExt as _;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Args;
use ringtap::ORDER_WINDOW;
use ringtap_file::{FileReader, Format};
use ringtap_net::affinity::{self, Steered};
use ringtap_record::{Recorder, StopAt};

use crate::UsageError;
use crate::confine::UserArgs;
use crate::input::InputArgs;
use crate::interrupt::EndRequests;
use crate::print;
use crate::reading::{self, Reading, ReadingArgs, Sink};
use crate::session::{self, BatchConsumer as _};
use args::{EventArgs, RecordFileArgs};

pub(crate) use recording::{Recording, plain};

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
    files: RecordFileArgs,

    #[command(flatten)]
    events: EventArgs,
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
    let mut files = args.files.options()?;
    if let Some(read) = args.input.file() {
        require_another(read, &files.file)?;
        ensure!(
            files.file_seconds.is_none() || args.input.has_recorded_speed(),
            UsageError(
                "-G counts seconds of the clock, not of a file: use -C, or --speed 1x".to_owned()
            )
        );
    }
    limit(&mut files.stop_at, &args.reading)?;
    files.events = args.events.options();
    files.filter = args.input.filter_text();
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
    let commands = files.start_commands(args.user.user()).map_err(plain)?;
    let capture = affinity::on(cpu.capture, || args.input.open(options, &requests))?;
    let recorder = Recorder::new(&capture, &files, commands).map_err(plain)?;
    let steered = Steered::default();
    requests.stop(capture.control(), files.stop_at.duration, &steered)?;
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
    let mut recording = Recording {
        reading: Reading::new(&args.reading, capture, "record").to(sink),
        recorder,
        progress: io::stderr().is_terminal() && !args.reading.quiet && !args.reading.json,
    };
    let received = session::receive(args.reading.interval, &mut recording);
    // Before the capture ends: NAPI may depend on its program.
    steered.undo();
    let (counters, _) = recording.finish(received)?;
    let capture = recording.capture();
    // Order is the default, and worth a line only if it was not kept.
    let order = capture.order();
    if let Some(order) = order.filter(|order| order.late > 0 || args.reading.verbose) {
        print::note(format_args!("ringtap: {}", reading::order_kept(order).text));
    }
    capture.outcome()?;
    recording.wait_for_commands();
    reading::require_balance(&counters)?;
    Ok(ExitCode::SUCCESS)
}

/// Adds the limits of these arguments.
fn limit(stop_at: &mut StopAt, reading: &ReadingArgs) -> Result<(), UsageError> {
    let is_double = (stop_at.packets.is_some() && reading.count.is_some())
        || (stop_at.duration.is_some() && reading.duration.is_some());
    if is_double {
        let text = "-a packets and -c, or -a duration and --duration: give one of them";
        return Err(UsageError(text.to_owned()));
    }
    stop_at.packets = stop_at.packets.or(reading.count);
    stop_at.duration = stop_at.duration.or(reading.duration);
    Ok(())
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
