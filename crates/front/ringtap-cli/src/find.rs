// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap find`: packets of recordings that pass a filter, in the order of their times.

mod line;
mod output;
mod time;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use anyhow::Result;
use clap::Args;
use ringtap::Confinement;
use ringtap_explain::text;
use ringtap_index::{FilterTarget, Search, SearchNote, SearchRequest, SearchTotals};
use ringtap_packet::CommunityId;
use serde_json::json;

use crate::{UsageError, interrupt, print};
use line::FoundLines;
use output::FoundFile;

/// Finds packets in recordings; reads only the blocks that can match where an index says so.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct FindArgs {
    /// Search this file, or all captures in this folder and below it; repeatable.
    #[arg(short = 'r', long = "read", value_name = "PATH", required = true, value_hint = clap::ValueHint::AnyPath)]
    paths: Vec<PathBuf>,

    /// Filter in pcap-filter syntax, as for tcpdump; without one, all packets.
    filter: Vec<String>,

    /// Packets from this time on: "2026-01-31 14:00", 14:00, a duration ago as in 30min or 2h, seconds since 1970.
    ///
    /// Times are local unless they end with Z or a difference to UTC; 14:00 is the last one that has been.
    #[arg(long, value_name = "TIME", value_parser = time::point)]
    from: Option<u64>,

    /// Packets before this time.
    #[arg(long, value_name = "TIME", value_parser = time::point)]
    to: Option<u64>,

    /// Apply the filter to the IP packet inside of tunnels (VXLAN, Geneve, GTP-U, GRE, MPLS and others).
    #[arg(long)]
    inner: bool,

    /// Only packets of the flow with this Community ID (version 1, seed 0), as Zeek, Suricata and Wireshark compute it.
    ///
    /// Of a packet in tunnels it is that of the innermost one.
    #[arg(long, value_name = "ID")]
    community_id: Option<CommunityId>,

    /// Write the packets to FILE: pcapng, or pcap if its name ends with .pcap; "-" is standard output.
    #[arg(short = 'w', long = "write", value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    output: Option<PathBuf>,

    /// Stop after this number of packets.
    #[arg(short = 'c', long, value_name = "PACKETS")]
    count: Option<u64>,

    /// Print a JSON object for each packet, with its Community ID, and one with the totals.
    #[arg(long, conflicts_with = "output")]
    json: bool,

    /// Print no totals.
    #[arg(short, long)]
    quiet: bool,
}

const EXAMPLES: &str = "\
Examples:
  ringtap find -r /var/lib/ringtap 'host 10.1.2.3 and port 443' --from 14:00 --to 14:30 -w out.pcapng
  ringtap find -r /var/lib/ringtap -r /mnt/other 'tcp port 4444' --json
  ringtap find -r monday.pcapng --inner 'host 192.168.7.7'     inside of tunnels
  ringtap find -r /var/lib/ringtap --community-id 1:LQU9qZlK+B5F3KDmev6m5PMibrg= --json
  ringtap find -r DIR 'net 10.9.0.0/16' -w - | tshark -r -

Indexes are written by `ringtap index` and `ringtap record --index`. Files without one are read in full, with the
same result. The status is 1 if a file could not be read to its end.";

pub(crate) fn run(args: &FindArgs) -> Result<ExitCode> {
    if let (Some(from), Some(to)) = (args.from, args.to)
        && to < from
    {
        return Err(UsageError("--to is before --from".to_owned()).into());
    }
    if let Some(output) = &args.output {
        require_another(&args.paths, output)?;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let output = args.output.as_deref().unwrap_or(Path::new("-"));
    let confinement = Confinement::writing_beside(output);
    confinement.start_early(|| interrupt::on_interrupt(move || stopped.store(true, Relaxed)))?;
    confinement.enter()?;
    let mut file = args.output.as_deref().map(FoundFile::create).transpose()?;
    let request = SearchRequest {
        stop,
        target: if args.inner {
            FilterTarget::Innermost
        } else {
            FilterTarget::Outer
        },
        community_id: args.community_id,
        from_ns: args.from.unwrap_or(0),
        to_ns: args.to.unwrap_or(u64::MAX),
        output: file.as_ref().and_then(FoundFile::identity),
        ..SearchRequest::new(args.paths.clone(), args.filter.join(" "))
    };
    let mut search = Search::new(request).map_err(|error| UsageError(error.to_string()))?;
    let mut lines = FoundLines::new(args.inner, args.json);
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        let Some(packet) = search.next_packet() else {
            break;
        };
        left -= 1;
        match &mut file {
            Some(file) => file.packet(&packet)?,
            None => lines.packet(&packet)?,
        }
        show_notes(search.take_notes());
    }
    if let Some(file) = file {
        file.finish()?;
    }
    show_notes(search.take_notes());
    let totals = search.totals();
    if args.json {
        print::line(totals_object(&totals))?;
    } else if !args.quiet {
        print::note(summary(&totals));
    }
    Ok(if totals.failed_files > 0 {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Refuses to overwrite a file that is searched.
fn require_another(paths: &[PathBuf], output: &Path) -> Result<(), UsageError> {
    let identity = |path: &Path| fs::metadata(path).ok().map(|it| (it.dev(), it.ino()));
    let written = identity(output);
    if written.is_some() && paths.iter().any(|path| identity(path) == written) {
        let output = output.display();
        return Err(UsageError(format!(
            "{output}: is searched: write to another file"
        )));
    }
    Ok(())
}

/// Prints notes.
fn show_notes(notes: Vec<SearchNote>) {
    for note in notes {
        print::from_peer("files", format_args!("ringtap: {note}"));
    }
}

fn totals_object(totals: &SearchTotals) -> serde_json::Value {
    json!({
        "type": "found", "packets": totals.packets, "bytes": totals.bytes, "files": totals.files,
        "scanned_files": totals.scanned_files, "scanned_bytes": totals.scanned_bytes, "blocks": totals.blocks,
        "vanished_files": totals.vanished_files, "failed_files": totals.failed_files,
    })
}

fn summary(totals: &SearchTotals) -> String {
    let SearchTotals {
        packets,
        files,
        scanned_files,
        scanned_bytes,
        blocks,
        failed_files,
        ..
    } = totals;
    let scanned = match scanned_files {
        0 => String::new(),
        scanned => format!(
            "; {scanned} without index were read in full, {}: `ringtap index` writes it",
            text::size(*scanned_bytes)
        ),
    };
    let failed = match failed_files {
        0 => String::new(),
        failed => format!("; {failed} not read to the end"),
    };
    format!(
        "{} found in {}, {} read{scanned}{failed}",
        text::packets(*packets),
        text::count(*files, "file"),
        text::count(*blocks, "block"),
    )
}
