// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap packets`: one line a packet, or files of columns.

mod lines;
mod tables;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{Args, ValueHint};
use ringtap_columns::{AddressForm, ColumnOptions, LaneLinks, PacketColumns, PacketLine};
use ringtap_columns::{TableFiles, TableFormat};
use ringtap_net::affinity::{self, Steered};

use crate::UsageError;
use crate::confine::UserArgs;
use crate::input::InputArgs;
use crate::interrupt::EndRequests;
use crate::print;
use crate::reading::{self, Reading, ReadingArgs, Sink, seconds};
use crate::session;
use lines::LineReader;
use tables::TableReader;

/// Shows packets, one line each; or writes their headers as Parquet, Arrow or CSV.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PacketsArgs {
    #[command(flatten)]
    input: InputArgs,

    #[command(flatten)]
    reading: ReadingArgs,

    #[command(flatten)]
    user: UserArgs,

    /// Also the packet inside a tunnel.
    #[arg(long)]
    inner: bool,

    /// Also the Community ID of each packet's flow, with this seed [without a seed: 0].
    #[arg(
        long,
        value_name = "SEED",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "0"
    )]
    community_id: Option<u16>,

    // Last: clap puts what follows below their headings.
    #[command(flatten)]
    tables: TableArgs,
}

/// The files to write instead of lines.
#[derive(Args, Debug)]
#[command(next_help_heading = "Files")]
struct TableArgs {
    /// Write files instead of lines: parquet, arrow or csv.
    #[arg(short = 'o', long, value_name = "FORMAT", requires = "write", value_parser = format_of)]
    output: Option<TableFormat>,

    /// Folder of the files: date=2026-11-27/hour=14/packets-….parquet, by the packets' hours in UTC.
    #[arg(short = 'w', long, value_name = "FOLDER", requires = "output", value_hint = ValueHint::DirPath)]
    write: Option<PathBuf>,

    /// Begin new files after this many seconds; without it, only with each hour of the packets.
    #[arg(long, value_name = "SECONDS", requires = "output", value_parser = seconds)]
    rotate: Option<Duration>,
}

fn format_of(word: &str) -> Result<TableFormat, &'static str> {
    word.parse()
}

const EXAMPLES: &str = "\
Examples:
  ringtap packets -i eth0                         does it see my packets?
  ringtap packets -r first.pcapng -c 10 tcp       the first ten of a file
  ringtap packets -i eth0 --json --community-id   objects, with the flow's Community ID
  ringtap packets -r trace.pcapng -o parquet -w trace
  ringtap packets -i hub:all -o parquet -w /srv/packets --rotate 300
  duckdb -c \"select src, sum(wire_length) from 'trace/**/*.parquet' group by src\"

The final counters are on standard error, or with -o on standard output.";

pub(crate) fn run(args: &PacketsArgs) -> Result<ExitCode> {
    let writes = args.tables.output.zip(args.tables.write.as_deref());
    ensure!(
        writes.is_some() || !args.reading.quiet,
        UsageError("-q: the lines are those of tcpdump -q: leave -q out".to_owned())
    );
    let columns = ColumnOptions {
        headers: true,
        addresses: AddressForm::Text,
        community_id: args.community_id,
        inner: args.inner,
        data: false,
    };
    let cpu = args
        .reading
        .cpu
        .resolve(args.input.interface(), |note| print::notes([note]))?;
    let files = writes.map(|(format, folder)| {
        TableFiles::new(folder, format, &columns.schema(), args.tables.rotate)
    });
    let files = files.transpose()?;
    let keeps = match writes {
        Some((_, folder)) => {
            let file = folder.join("packets").display().to_string();
            args.user.recording(args.input.kind(), &cpu, &file)?
        }
        None => args.user.reading(&args.input, &cpu)?,
    };
    let requests = keeps.start_early(EndRequests::new)?;
    let options = args
        .reading
        .open_options("packets", Duration::ZERO)
        .confined(keeps);
    let capture = affinity::on(cpu.capture, || args.input.open(options, &requests))?;
    let steered = Steered::default();
    requests.stop(capture.control(), args.reading.duration, &steered)?;
    print::notes(capture.notes());
    cpu.steer(capture.facts().interface.as_deref(), &steered, |note| {
        print::notes([note])
    })?;
    affinity::pin(cpu.reader)?;
    let links = Arc::new(LaneLinks::new(&capture));
    let reading = Reading::new(&args.reading, capture, "packets");
    let (counters, capture) = match files {
        Some(files) => {
            let columns = PacketColumns::new(columns, links);
            let mut reader = TableReader::new(reading, columns, files);
            let received = session::receive(args.reading.interval, &mut reader);
            steered.undo();
            (reader.finish(received)?, reader.reading.capture)
        }
        None => {
            let lines = PacketLine::new(args.inner, args.community_id);
            let reading = reading.to(Sink::Stderr);
            let mut reader = LineReader::new(reading, links, lines, args.reading.json);
            let received = session::receive(args.reading.interval, &mut reader);
            steered.undo();
            let counters = reader.reading.finish(&[])?;
            received?;
            (counters, reader.reading.capture)
        }
    };
    capture.outcome()?;
    reading::require_balance(&counters)?;
    Ok(ExitCode::SUCCESS)
}
