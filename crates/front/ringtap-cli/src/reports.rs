// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap report`: a page with plots from the results of a probe.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use ringtap_probe::report::FlowReport;

use crate::print;

#[derive(Args, Debug)]
pub(crate) struct ReportArgs {
    /// Folder to which `ringtap probe --export parquet:FOLDER` wrote.
    folder: PathBuf,

    /// The page; the numbers go to NAME-rates.csv and NAME-tables.csv beside it.
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    output: PathBuf,
}

pub(crate) fn run(args: &ReportArgs) -> Result<ExitCode> {
    let report = FlowReport::read(&args.folder)?;
    let [page, rates, tables] = report
        .write(&args.output)?
        .map(|path| path.display().to_string());
    print::line(format!(
        "{page}, {rates}, {tables}: {} flow records",
        report.flows
    ))?;
    Ok(ExitCode::SUCCESS)
}
