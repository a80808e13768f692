// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes a small capture to try other verbs with: a dozen flows, always the same bytes.
#![forbid(unsafe_code)]

mod flows;
mod frames;

use std::{fs, path::Path, process::ExitCode};

use anyhow::{Context, Result};
use clap::Args;
use ringtap_file::Interface;
use ringtap_file::write::{FilePacket, Origin};
use ringtap_filter::LinkType;
use ringtap_pool::counters::Counters;

use crate::print;
use crate::record::{self, FileOptions, Next, Writer};

/// 2026-01-01 00:00:00 UTC.
const START_NS: u64 = 1_767_225_600_000_000_000;

/// Options of the verb.
#[derive(Args)]
pub(crate) struct Options {
    /// File to write; "-" is standard output.
    #[arg(default_value = "examples/first.pcapng")]
    file: String,
}

/// Writes the sample and prints its path.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let frames = flows::all().context("the sample's packets cannot be built")?;
    if let Some(folder) = Path::new(&options.file).parent() {
        fs::create_dir_all(folder)
            .with_context(|| format!("{}: cannot be created", folder.display()))?;
    }
    let files = FileOptions {
        file: options.file.clone(),
        ..FileOptions::default()
    };
    let origin = Origin {
        hardware: None,
        os: None,
        application: "ringtap sample".to_owned(),
    };
    let interface = Interface {
        name: Some("sample0".to_owned()),
        ..Interface::new(0, LinkType::ETHERNET, 262_144)
    };
    let mut writer = Writer::create(&files, origin, interface, START_NS)?;
    let (mut time_ns, mut counters) = (START_NS, Counters::default());
    for frame in &frames {
        time_ns = START_NS + frame.after_us * 1_000;
        let wire_length = u32::try_from(frame.bytes.len())?;
        let next = writer.packet(&FilePacket {
            time_ns,
            wire_length,
            data: &frame.bytes,
            direction: frame.direction,
            dropped_before: 0,
        })?;
        debug_assert_eq!(next, Next::Continue, "a single file is never full");
        counters.offered += 1;
        counters.delivered += 1;
        counters.bytes += u64::from(wire_length);
    }
    let statistics = record::statistics(START_NS, time_ns, &counters);
    let written = writer.finish(&statistics)?;
    print::note(format_args!(
        "{}: {} packets, {} bytes",
        written.file, written.packets, written.size_bytes
    ));
    Ok(ExitCode::SUCCESS)
}
