// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports: their numbers, and what a browser shows.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ringtap_probe::export::Exporter as _;
use ringtap_probe::export::json::JsonLines;
use ringtap_probe::export::parquet::ParquetExporter;
use ringtap_probe::record::{Details, DnsRecord, FlowRecord, Measurement, Record};
use ringtap_probe::report::{FlowReport, ReportSelection, report_time};
use ringtap_testkit::{LIMIT, Running, require_tool};
use serde_json::Value;
use tempfile::TempDir;

use crate::flows::{NEW_YEAR_NS, flows, records};

/// A name that a hostile client sends.
const HOSTILE: &str = "<script>document.body.remove()</script>";

/// Packets that the capture lost in two seconds.
const LOST: f64 = 70.0;

/// Flows with texts; DNS questions, of which a third has no answer; losses of the capture.
fn results() -> (Vec<FlowRecord>, Vec<Record>) {
    let mut flows = flows(500);
    for flow in &mut flows {
        flow.details = Some(Box::new(Details {
            server_name: Some(HOSTILE.into()),
            tls_version: Some("TLSv13".into()),
            ja4: Some("t13d1516h2_8daaf6152771_e5627efa2ab1".into()),
            ..Details::default()
        }));
    }
    let mut all = records(&flows);
    all.extend((0..30).map(|number| {
        Record::Dns(Box::new(DnsRecord {
            key: flows[0].key,
            time_ns: NEW_YEAR_NS,
            id: number,
            query: "www.example.org".into(),
            query_type: "A".into(),
            response: (number % 3 > 0).then(|| {
                if number % 3 == 1 {
                    "NOERROR"
                } else {
                    "NXDOMAIN"
                }
                .into()
            }),
            answers: Vec::new(),
            rtt_ns: (number % 3 > 0).then_some(4_000_000),
        }))
    }));
    all.push(Record::Measurement(Box::new(Measurement {
        analysis: "ledger".into(),
        name: "packets".into(),
        key: None,
        from_ns: NEW_YEAR_NS,
        to_ns: NEW_YEAR_NS + 2_000_000_000,
        values: vec![("captured", 1000.0), ("dropped", LOST)],
    })));
    (flows, all)
}

/// A folder with results in Parquet files, and a report of them.
fn report() -> (TempDir, Vec<FlowRecord>) {
    let folder = tempfile::tempdir().expect("a folder");
    let (flows, all) = results();
    let hour = Duration::from_secs(3600);
    let mut exporter = ParquetExporter::new(folder.path().to_owned(), hour).expect("a folder");
    exporter.write(&all).expect("memory");
    exporter.flush().expect("a file");
    write_report(folder.path(), &folder.path().join("report.html"));
    (folder, flows)
}

fn write_report(results: &Path, page: &Path) {
    let report = FlowReport::read(results, ReportSelection::default());
    let report = report.expect("the files were just written");
    report.write(page).expect("a folder");
}

/// The numbers of a report of what is selected.
fn selected(results: &Path, selection: ReportSelection) -> Value {
    let report = FlowReport::read(results, selection);
    report.expect("the files were just written").json()
}

#[test]
fn a_report_of_json_is_that_of_parquet_files() {
    let (folder, _) = report();
    let lines = folder.path().join("results.json");
    let file = fs::File::create(&lines).expect("a file");
    let mut exporter = JsonLines::new(file, "a file");
    exporter.write(&results().1).expect("a disk");
    write_report(&lines, &folder.path().join("json.html"));
    for part in ["-rates.csv", "-tables.csv", "-dns.csv", ".html"] {
        let read = |name: &str| fs::read_to_string(folder.path().join(format!("{name}{part}")));
        assert_eq!(
            read("json").expect("a file"),
            read("report").expect("a file"),
            "{part}"
        );
    }
}

#[test]
fn the_numbers_of_a_report_are_those_of_its_flows() {
    let (folder, flows) = report();
    let csv = fs::read_to_string(folder.path().join("report-rates.csv")).expect("a file");
    let mut sums = [0.0; 4];
    for line in csv.lines().skip(1) {
        for (sum, field) in sums.iter_mut().zip(line.split(',').skip(1)) {
            *sum += field.parse::<f64>().expect("a number");
        }
    }
    let packets: u64 = flows.iter().map(FlowRecord::packets).sum();
    let bytes: u64 = flows.iter().map(FlowRecord::bytes).sum();
    let got = sums.map(|sum| format!("{sum:.0}"));
    let want = [
        "500".to_owned(),
        packets.to_string(),
        bytes.to_string(),
        LOST.to_string(),
    ];
    assert_eq!(got, want);
    let tables = fs::read_to_string(folder.path().join("report-tables.csv")).expect("a file");
    for line in [
        "\"Sources\",\"10.1.0.1\",1,",
        "\"Services\",\"udp/443\",250,",
        "\"Ends of flows\",\"idle\",500,",
        "\"TLS versions\",\"TLSv13\",500,",
    ] {
        assert!(tables.contains(line), "{line} in {tables}");
    }
    let dns = fs::read_to_string(folder.path().join("report-dns.csv")).expect("a file");
    let line = "\"DNS questions\",\"www.example.org\",30,10,10,4\n";
    assert!(dns.contains(line), "{dns}");
}

#[test]
fn a_report_of_a_time_and_of_terms_has_these_flows_only() {
    let (folder, flows) = report();
    let count = |selection: ReportSelection| {
        let report = selected(folder.path(), selection);
        (
            report["total"]["flows"].as_f64(),
            report["total"]["lost"].as_f64(),
        )
    };
    assert_eq!(count(ReportSelection::default()), (Some(500.0), Some(LOST)));
    let tcp = flows.iter().filter(|flow| flow.key.protocol == 6).count();
    let of_terms = |terms: &str| ReportSelection {
        terms: terms.parse().expect(terms),
        ..ReportSelection::default()
    };
    let want = Some(f64::from(u32::try_from(tcp).expect("few")));
    assert_eq!(count(of_terms("protocol=tcp")).0, want);
    assert_eq!(count(of_terms("host=10.1.0.1 port=443")).0, Some(1.0));
    assert_eq!(count(of_terms("host=192.0.2.1")).0, Some(0.0));
    // The flows began within half a second, and the losses were in the first two.
    let later = ReportSelection {
        from: report_time("2026-01-01 00:01").ok(),
        ..ReportSelection::default()
    };
    assert_eq!(count(later), (Some(0.0), Some(0.0)));
}

#[test]
fn json_has_the_numbers_of_the_page() {
    let (folder, flows) = report();
    let report = selected(folder.path(), ReportSelection::default());
    let bytes: u64 = flows.iter().map(FlowRecord::bytes).sum();
    assert_eq!(
        report["total"]["bytes"]
            .as_f64()
            .map(|all| format!("{all:.0}")),
        Some(bytes.to_string())
    );
    let handshakes = flows
        .iter()
        .filter(|flow| flow.handshake_ns.is_some())
        .count();
    assert_eq!(
        report["total"]["handshakes"].as_f64(),
        Some(f64::from(u32::try_from(handshakes).expect("few")))
    );
    let protocols = report["tables"]["Protocols"].as_array().expect("a table");
    let words: Vec<_> = protocols.iter().map(|row| row["key"].as_str()).collect();
    assert!(
        words.contains(&Some("icmp")),
        "also without packets: {words:?}"
    );
    assert_eq!(report["dns"]["DNS questions"][0]["questions"], 30.0);
    let sum: f64 = report["seconds"]
        .as_array()
        .expect("seconds")
        .iter()
        .filter_map(|second| second["lost"].as_f64())
        .sum();
    assert!((sum - LOST).abs() < 1e-6, "{sum}");
}

#[test]
fn counts_of_frames_are_the_rates_where_there_are_some() {
    let folder = tempfile::tempdir().expect("a folder");
    let lines = folder.path().join("results.json");
    let file = fs::File::create(&lines).expect("a file");
    let mut exporter = JsonLines::new(file, "a file");
    let mut all = records(&flows(3));
    let counts = |from_s: u64, packets| {
        let from_ns = NEW_YEAR_NS + from_s * 1_000_000_000;
        Record::Measurement(Box::new(Measurement {
            analysis: "sizes".into(),
            name: "frames".into(),
            key: Some("0-64".into()),
            from_ns,
            to_ns: from_ns + 1_000_000_000,
            values: vec![("packets", packets), ("bytes", 64.0 * packets)],
        }))
    };
    all.extend([counts(0, 10.0), counts(1, 7.0)]);
    exporter.write(&all).expect("a disk");
    write_report(&lines, &folder.path().join("report.html"));
    let page = fs::read_to_string(folder.path().join("report.html")).expect("a page");
    assert!(page.contains("Traffic (whole frames)"), "{page}");
    assert!(!page.contains("Traffic (IP;"), "{page}");
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
    assert_eq!(document.matches("<svg").count(), 7, "{document}");
    for title in [
        "Packets that the capture lost",
        "TCP segments sent again",
        "00:00:01",
        "Protocols",
        "DNS servers",
        "TLS clients (JA4)",
    ] {
        assert!(document.contains(title), "{title} in {document}");
    }
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
    // It leaves files in the temporary folder, and a profile in the user's.
    for variable in ["TMPDIR", "HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"] {
        command.env(variable, folder);
    }
    command
        .arg(option)
        .arg(format!("file://{}", page.display()));
    Running::start(command).wait(LIMIT).success().stdout
}
