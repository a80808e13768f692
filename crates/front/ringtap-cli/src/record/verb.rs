// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap record`: writes packets of a device to pcapng files.

use std::fs;
use std::io::{self, IsTerminal};
use std::os::unix::fs::MetadataExt as _;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Args;
use ringtap::{Capture, Facts, ORDER_WINDOW};
use ringtap_file::Interface;
use ringtap_filter::LinkType;
use ringtap_ipc::time::now_ns;

use super::{ClosedFiles, FileOptions, FileSignals, Recorder, Writer, origin};
use crate::UsageError;
use crate::affinity::{self, Steered};
use crate::confine::UserArgs;
use crate::input::InputArgs;
use crate::interrupt::EndRequests;
use crate::print;
use crate::reading::{self, Reading, ReadingArgs, Sink};
use crate::session::{self, BatchConsumer as _};

/// Records packets into pcapng files, with the counters in each of them.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RecordArgs {
    #[command(flatten)]
    input: InputArgs,

    #[command(flatten)]
    files: FileOptions,

    #[command(flatten)]
    reading: ReadingArgs,

    #[command(flatten)]
    user: UserArgs,
}

const EXAMPLES: &str = "\
Examples:
  ringtap record -i eth0 -w web.pcapng tcp port 80
  ringtap record -i eth0 -w trace.pcapng -C 100MB -W 10     the newest 1 GB, in ten files
  ringtap record -i eth0 -w 'trace-%H%M.pcapng' -G 60       a file a minute
  ringtap record -i eth0 -w t.pcapng -G 60 -z 'zstd -q --rm'   compresses each file
  ringtap record -i packet:lo -w - | tshark -r -            into another program
  ringtap record -r old.pcap -w new.pcapng                  pcap to pcapng

SIGUSR1 begins the next file of a series, SIGUSR2 writes what is still in memory.
A disk that is too slow loses packets of this recorder only: dropped.overrun.
With -w - the recording ends with status 0 when the reading program ends first.";

pub(crate) fn run(args: &RecordArgs) -> Result<ExitCode> {
    args.files.check()?;
    if let Some(read) = args.input.file() {
        require_another(read, &args.files.file)?;
        ensure!(
            args.files.file_seconds.is_none() || args.input.has_recorded_speed(),
            UsageError(
                "-G counts seconds of the clock, not of a file: use -C, or --speed 1x".to_owned()
            )
        );
    }
    let cpu = args.reading.cpu.resolve(args.input.interface())?;
    let kind = args.input.kind();
    let keeps = args.user.recording(kind, &cpu, &args.files.file)?;
    let requests = keeps.start_early(EndRequests::new)?;
    let options = args
        .reading
        .open_options("record", ORDER_WINDOW)
        .confined(keeps);
    let signals = FileSignals::catch()?;
    let closed = args.files.when_closed.as_deref();
    let closed = closed.map(|command| ClosedFiles::start(command, args.user.user()));
    let closed = closed.transpose()?;
    let capture = affinity::on(cpu.capture, || args.input.open(options))?;
    let start_ns = now_ns();
    let interfaces = interfaces(&capture, &args.input.filter_text());
    let writer = Writer::create(&args.files, origin(), interfaces, start_ns)?;
    let steered = Steered::default();
    let _goes_back = steered.at_end();
    requests.stop(capture.control(), args.reading.duration, &steered)?;
    print::notes(capture.notes());
    cpu.steer(capture.facts().interface.as_deref(), &steered)?;
    affinity::pin(cpu.reader)?;
    // Standard output may be the file.
    let sink = if args.files.file == "-" {
        Sink::Stderr
    } else {
        Sink::Stdout
    };
    let reading = Reading::new(&args.reading, capture, "record").to(sink);
    let progress = io::stderr().is_terminal() && !args.reading.quiet && !args.reading.json;
    let recorder = Recorder::new(reading, writer, start_ns, progress, signals);
    let mut recorder = recorder.when_closed(closed);
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

/// Description of each source for the files.
pub(crate) fn interfaces(capture: &Capture, filter: &str) -> Vec<Interface> {
    let interface = |facts: &Facts| {
        let name = facts.interface.as_ref().unwrap_or(&facts.device);
        Interface {
            name: Some(name.clone()),
            comment: facts.sent_from.clone(),
            filter: Some(filter.to_owned()).filter(|filter| !filter.is_empty()),
            ..Interface::new(0, LinkType(facts.link_type), facts.snap_length)
        }
    };
    capture.sources().map(interface).collect()
}
