// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap report`: a page with plots from the results of a probe.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use ringtap_probe::report::FlowReport;

use crate::{confine, print};

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReportArgs {
    /// Results of `ringtap probe`: the folder of `--export parquet:FOLDER`, or a file or folder of JSON lines.
    results: PathBuf,

    /// The page; the numbers go to NAME-rates.csv, NAME-tables.csv and NAME-dns.csv beside it.
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    output: PathBuf,
}

const EXAMPLES: &str = "\
Examples:
  ringtap probe -i eth0 --export parquet:results, then
  ringtap report results                      report.html and three CSV files
  ringtap report flows.jsonl -o monday.html   from JSON lines";

pub(crate) fn run(args: &ReportArgs) -> Result<ExitCode> {
    confine::writing_beside(&args.output).enter()?;
    let report = FlowReport::read(&args.results)?;
    let files = report.write(&args.output)?;
    let files = files.map(|path| path.display().to_string()).join(", ");
    print::line(format!("{files}: {} flow records", report.flows))?;
    Ok(ExitCode::SUCCESS)
}
