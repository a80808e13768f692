// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports: their numbers, and what a browser shows.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ringtap_probe::export::Exporter as _;
use ringtap_probe::export::parquet::ParquetExporter;
use ringtap_probe::record::{Details, FlowRecord};
use ringtap_probe::report::FlowReport;
use ringtap_testkit::{LIMIT, Running, require_tool};
use tempfile::TempDir;

use crate::flows::{flows, records};

/// A name that a hostile client sends.
const HOSTILE: &str = "<script>document.body.remove()</script>";

/// A folder with results, and a report of them.
fn report() -> (TempDir, Vec<FlowRecord>) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut flows = flows(500);
    for flow in &mut flows {
        flow.details = Some(Box::new(Details {
            server_name: Some(HOSTILE.into()),
            ..Details::default()
        }));
    }
    let hour = Duration::from_secs(3600);
    let mut exporter = ParquetExporter::new(folder.path().to_owned(), hour).expect("a folder");
    exporter.write(&records(&flows)).expect("memory");
    exporter.flush().expect("a file");
    let report = FlowReport::read(folder.path()).expect("the files were just written");
    report
        .write(&folder.path().join("report.html"))
        .expect("a folder");
    (folder, flows)
}

#[test]
fn the_numbers_of_a_report_are_those_of_its_flows() {
    let (folder, flows) = report();
    let csv = fs::read_to_string(folder.path().join("report-rates.csv")).expect("a file");
    let mut sums = [0.0; 3];
    for line in csv.lines().skip(1) {
        for (sum, field) in sums.iter_mut().zip(line.split(',').skip(1)) {
            *sum += field.parse::<f64>().expect("a number");
        }
    }
    let packets: u64 = flows.iter().map(FlowRecord::packets).sum();
    let bytes: u64 = flows.iter().map(FlowRecord::bytes).sum();
    let [got_flows, got_packets, got_bytes] = sums.map(|sum| format!("{sum:.0}"));
    assert_eq!(
        (got_flows, got_packets, got_bytes),
        ("500".into(), packets.to_string(), bytes.to_string())
    );
    let tables = fs::read_to_string(folder.path().join("report-tables.csv")).expect("a file");
    for line in [
        "\"Sources\",\"10.1.0.1\",1,",
        "\"Services\",\"udp/443\",250,",
        "\"Ends of flows\",\"idle\",500,",
    ] {
        assert!(tables.contains(line), "{line} in {tables}");
    }
}

#[test]
fn a_browser_shows_the_report_and_runs_nothing_of_a_hostile_name() {
    require_tool!("chromium");
    let (folder, _) = report();
    let page = folder.path().join("report.html");
    let blank = folder.path().join("blank.html");
    fs::write(&blank, "<!doctype html><html></html>").expect("a file");
    let sizes = [&page, &blank].map(|page| {
        let picture = folder.path().join("picture.png");
        let option = format!("--screenshot={}", picture.display());
        let _printed = chromium(folder.path(), page, &option);
        fs::metadata(&picture).expect("a picture").len()
    });
    // A blank page compresses to almost nothing.
    assert!(sizes[0] > 5 * sizes[1], "{sizes:?}");
    let document = chromium(folder.path(), &page, "--dump-dom");
    assert_eq!(document.matches("<svg").count(), 4, "{document}");
    assert!(
        document.contains("&lt;script&gt;document.body"),
        "{document}"
    );
}

fn chromium(folder: &Path, page: &Path, option: &str) -> String {
    let mut command = Command::new("chromium");
    command.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--window-size=1100,2000",
    ]);
    command.arg(format!(
        "--user-data-dir={}",
        folder.join("chromium").display()
    ));
    command
        .arg(option)
        .arg(format!("file://{}", page.display()));
    Running::start(command).wait(LIMIT).success().stdout
}
