// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a report selects: borders of a time range, and each term, for flows and DNS questions.

use std::fs;

use ringtap_probe::export::Exporter as _;
use ringtap_probe::export::json::JsonLines;
use ringtap_probe::record::{Details, DirectionCounts, DnsRecord, Measurement, Record};
use ringtap_probe::report::{FlowReport, ReportSelection, report_time};
use tempfile::TempDir;

use crate::flows::{NEW_YEAR_NS, flows, records};

const SECOND_NS: u64 = 1_000_000_000;

/// One TCP flow from second 10 to second 20, one DNS question in second 15, and a loss from second 10 to
/// second 20.
fn results() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let mut flow = flows(3).remove(2);
    let at = |second: u64| NEW_YEAR_NS + second * SECOND_NS;
    flow.forward.first_ns = at(10);
    flow.forward.last_ns = at(20);
    flow.backward = DirectionCounts::default();
    flow.details = Some(Box::new(Details {
        application: Some("tls".into()),
        ndpi_application: Some("TLS.YouTube".into()),
        server_name: Some("www.example.org".into()),
        ..Details::default()
    }));
    let key = flow.key;
    let mut all = records(&[flow]);
    all.push(Record::Dns(Box::new(DnsRecord {
        key,
        time_ns: at(15),
        id: 1,
        query: "mail.example.net".into(),
        query_type: "A".into(),
        response: None,
        answers: Vec::new(),
        rtt_ns: None,
    })));
    all.push(Record::Measurement(Box::new(Measurement {
        analysis: "ledger".into(),
        name: "packets".into(),
        key: None,
        from_ns: at(10),
        to_ns: at(20),
        values: vec![("dropped", 7.0)],
    })));
    let file = fs::File::create(folder.path().join("results.json")).expect("a file");
    JsonLines::new(file, "a file").write(&all).expect("a disk");
    folder
}

/// Flows, DNS questions and lost packets of a report.
fn found(results: &TempDir, selection: ReportSelection) -> [f64; 3] {
    let report = FlowReport::read(&results.path().join("results.json"), selection);
    let report = report.expect("the file was just written").json();
    let total = |name: &str| report["total"][name].as_f64().expect("a number");
    let questions = report["dns"]["DNS questions"].as_array();
    let questions = questions.into_iter().flatten();
    let questions = questions.filter_map(|row| row["questions"].as_f64()).sum();
    [total("flows"), questions, total("lost")]
}

#[test]
fn a_time_range_has_what_touches_it_from_its_begin_to_before_its_end() {
    let results = results();
    let at = |time: &str| report_time(&format!("2026-01-01T00:00:{time}Z")).expect(time);
    for (from, to, want) in [
        ("00", "59", [1.0, 1.0, 7.0]),
        // The flow's last moment, and the moment after it.
        ("20", "59", [1.0, 0.0, 7.0]),
        ("20.000001", "59", [0.0, 0.0, 0.0]),
        // An end is not in the range.
        ("00", "10", [0.0, 0.0, 0.0]),
        ("00", "10.000001", [1.0, 0.0, 7.0]),
        // In the midst of the flow.
        ("12", "13", [1.0, 0.0, 7.0]),
        ("15", "15.000001", [1.0, 1.0, 7.0]),
        ("14", "15", [1.0, 0.0, 7.0]),
    ] {
        let selection = ReportSelection {
            from: Some(at(from)),
            to: Some(at(to)),
            ..ReportSelection::default()
        };
        assert_eq!(found(&results, selection), want, "{from} to {to}");
    }
}

#[test]
fn each_term_selects_flows_and_questions_and_all_terms_have_to_hold() {
    let results = results();
    for (terms, flows, questions) in [
        ("source=10.1.0.2", 1.0, 1.0),
        ("source=10.2.0.1", 0.0, 0.0),
        ("destination=10.2.0.1", 1.0, 1.0),
        ("destination=10.1.0.2", 0.0, 0.0),
        ("host=10.1.0.2", 1.0, 1.0),
        ("host=10.2.0.0/16", 1.0, 1.0),
        ("host=10.3.0.0/16", 0.0, 0.0),
        ("protocol=tcp application=tls", 1.0, 0.0),
        ("protocol=udp application=tls", 0.0, 0.0),
        ("application=TLS", 1.0, 0.0),
        ("application=tls.youtube", 1.0, 0.0),
        ("application=dns", 0.0, 1.0),
        ("server=example.org", 1.0, 0.0),
        ("server=mail.Example.net", 0.0, 1.0),
        ("server=ample.org", 0.0, 0.0),
        ("server=example.org source=10.2.0.1", 0.0, 0.0),
    ] {
        let selection = ReportSelection {
            terms: terms.parse().expect(terms),
            ..ReportSelection::default()
        };
        // Losses are the capture's: no term leaves them out.
        assert_eq!(
            found(&results, selection),
            [flows, questions, 7.0],
            "{terms}"
        );
    }
}
