// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap report`: a page with plots from the results of a probe.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use ringtap::Confinement;
use ringtap_probe::report::{FlowReport, ReportSelection, ReportTerms, report_time};

use crate::print;

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReportArgs {
    /// Results of `ringtap probe`: the folder of `--export parquet:FOLDER`, or a file or folder of JSON lines.
    results: PathBuf,

    /// The page; the numbers go to NAME-rates.csv, NAME-tables.csv and NAME-dns.csv beside it.
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    output: PathBuf,

    /// Results from this time on, in UTC: "2026-01-31 14:00".
    #[arg(long, value_name = "TIME", value_parser = report_time)]
    from: Option<i64>,

    /// Results before this time.
    #[arg(long, value_name = "TIME", value_parser = report_time)]
    to: Option<i64>,

    /// Flows and DNS questions for which all terms hold: host, source, destination (an address or a network), port,
    /// protocol, server (a name or its end), application.
    #[arg(long, value_name = "TERMS")]
    filter: Option<ReportTerms>,

    /// Print the numbers as a JSON object instead of writing the page and its files.
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

const EXAMPLES: &str = r#"Examples:
  ringtap probe -i eth0 --export parquet:results, then
  ringtap report results                      report.html and three CSV files
  ringtap report flows.jsonl -o monday.html   from JSON lines
  ringtap report results --from "2026-01-31 14:00" --to "2026-01-31 15:00"
  ringtap report results --filter "host=10.0.0.0/8 port=443" --json"#;

pub(crate) fn run(args: &ReportArgs) -> Result<ExitCode> {
    Confinement::writing_beside(&args.output).enter()?;
    let selection = ReportSelection {
        from: args.from,
        to: args.to,
        terms: args.filter.clone().unwrap_or_default(),
    };
    let report = FlowReport::read(&args.results, selection)?;
    if args.json {
        print::line(report.json())?;
        return Ok(ExitCode::SUCCESS);
    }
    let files = report.write(&args.output)?;
    let files = files.map(|path| path.display().to_string()).join(", ");
    print::line(format!("{files}: {} flow records", report.flows))?;
    Ok(ExitCode::SUCCESS)
}
