// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `ringtap` command: the only place that wires the parts together and prints.

#[allow(
    dead_code,
    unused_imports,
    reason = "rotation and ticks are for the verb that records"
)]
mod record;
mod sample;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Packet capture for Linux: capture once, deliver everywhere, account for every packet.
#[derive(Parser)]
#[command(version, propagate_version = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

/// What can be done.
#[derive(Subcommand)]
enum Verb {
    /// Write a small capture to try the other verbs on.
    #[command(hide = true)]
    Sample(sample::Options),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result: anyhow::Result<ExitCode> = match cli.verb {
        Verb::Sample(options) => sample::run(&options),
    };
    result.unwrap_or_else(|error: anyhow::Error| {
        eprintln!("ringtap: {error:#}");
        ExitCode::FAILURE
    })
}
