// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap index`: writes the indexes of capture files.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use ringtap::Confinement;
use ringtap_explain::text;
use ringtap_file::ReadError;
use ringtap_index::{CapturePath, IndexError, IndexOutcome, capture_files, index_file};
use ringtap_pool::number::to_u64;
use serde_json::json;

use crate::print;

/// Writes an index beside each capture file, with which `ringtap find` reads only the blocks that can match.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct IndexArgs {
    /// pcap and pcapng files, also compressed ones, and folders of them.
    #[arg(required = true, value_hint = clap::ValueHint::AnyPath)]
    paths: Vec<PathBuf>,

    /// Print only errors.
    #[arg(short, long)]
    quiet: bool,

    /// Print the totals as a JSON object.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  ringtap index /var/lib/ringtap           all captures in a folder and below it
  ringtap index monday.pcap.gz             a file; its index is monday.pcap.gz.rtindex

A file whose index describes it as it is, is passed over: run it again when files were added.
`ringtap record --index` writes indexes while it records.";

#[derive(Default)]
struct IndexRunTotals {
    written: u64,
    current: u64,
    /// Files whose index another process writes.
    busy: u64,
    failed: u64,
    content_bytes: u64,
    index_bytes: u64,
    packets: u64,
}

pub(crate) fn run(args: &IndexArgs) -> Result<ExitCode> {
    Confinement::writing_below(args.paths.iter().map(|path| folder(path))).enter()?;
    let mut notes = Vec::new();
    let files = capture_files(&args.paths, &mut notes);
    print::notes(&notes);
    let mut totals = IndexRunTotals {
        failed: to_u64(notes.len()),
        ..IndexRunTotals::default()
    };
    for file in files {
        index(&file, &mut totals, args.quiet || args.json)?;
    }
    show(&totals, args)?;
    Ok(if totals.failed > 0 {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// The folder in which the index of a path, or those of its files, are written.
fn folder(path: &Path) -> PathBuf {
    if path.is_dir() {
        return path.to_owned();
    }
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

fn index(file: &CapturePath, totals: &mut IndexRunTotals, is_quiet: bool) -> Result<()> {
    match index_file(&file.path) {
        Ok(IndexOutcome::Written(written)) => {
            totals.written += 1;
            totals.packets += written.packets;
            totals.content_bytes += written.content_bytes;
            totals.index_bytes += written.index_bytes;
            if !is_quiet {
                let cut = if written.is_cut {
                    "; damaged or cut off behind them"
                } else {
                    ""
                };
                print::line(format_args!(
                    "{}: {}, index {}{cut}",
                    file.path.display(),
                    text::packets(written.packets),
                    text::size(written.index_bytes),
                ))?;
            }
        }
        Ok(IndexOutcome::Busy) => totals.busy += 1,
        Ok(_) => totals.current += 1,
        // A folder may hold other files, too.
        Err(IndexError::Read(ReadError::NotACapture { .. })) if !file.is_named => {}
        Err(error) => {
            totals.failed += 1;
            print::error(error);
        }
    }
    Ok(())
}

fn show(totals: &IndexRunTotals, args: &IndexArgs) -> Result<()> {
    if args.json {
        return print::line(json!({
            "type": "index", "files": totals.written, "current_files": totals.current,
            "busy_files": totals.busy, "failed_files": totals.failed, "packets": totals.packets,
            "content_bytes": totals.content_bytes, "index_bytes": totals.index_bytes,
        }));
    }
    if args.quiet {
        return Ok(());
    }
    let busy = match totals.busy {
        0 => String::new(),
        busy => format!(" {busy} being indexed by another program,"),
    };
    print::line(format_args!(
        "{} indexed ({}, index {}), {} as before,{busy} {} failed",
        text::count(totals.written, "file"),
        text::size(totals.content_bytes),
        text::size(totals.index_bytes),
        totals.current,
        totals.failed,
    ))
}
