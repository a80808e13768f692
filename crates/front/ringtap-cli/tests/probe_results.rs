// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where `ringtap probe` sends its results: destinations, reports, metrics.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use ringtap_testkit::{Finished, LIMIT, Namespace, Running, require_root};
use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_ringtap");

fn ringtap(words: &[&str]) -> Finished {
    let mut command = Command::new(BINARY);
    command.args(words);
    Running::start(command).wait(LIMIT)
}

#[test]
fn results_of_a_file_become_parquet_and_a_report() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| format!("{}/{name}", folder.path().display());
    let packets = path("packets.pcapng");
    let sim = "sim:max?burst=2000&flows=40";
    let _recorded = ringtap(&["record", "-q", "-i", sim, "-w", &packets]).success();
    let parquet = format!("parquet:{}?rotate=3600", path("results"));
    let probe = ringtap(&["probe", "-r", &packets, "--json", "--export", &parquet]).success();
    let lines: Vec<Value> = probe
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let flows = lines.iter().filter(|line| line["type"] == "flow").count();
    let ledger = lines.last().expect("a ledger");
    assert_eq!(ledger["exporters"][1]["dropped_failed"], 0, "{ledger}");
    assert!(flows > 0);
    let page = path("report.html");
    let report = ringtap(&["report", &path("results"), "-o", &page]).success();
    assert!(
        report.stdout.contains(&format!(": {flows} flow records")),
        "{}",
        report.stdout
    );
    assert!(
        std::fs::read_to_string(&page)
            .expect("a page")
            .contains("<svg")
    );
}

#[test]
fn a_destination_that_is_none_ends_the_probe_with_a_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let packets = format!("{}/packets.pcapng", folder.path().display());
    let _recorded = ringtap(&["record", "-q", "-i", "sim:max?burst=20", "-w", &packets]).success();
    let refused = ringtap(&["probe", "-r", &packets, "--export", "carbon:x"]);
    assert!(!refused.status.success());
    assert!(
        refused.stderr.contains("\"carbon\" is no kind"),
        "{}",
        refused.stderr
    );
    let refused = ringtap(&["report", &folder.path().display().to_string()]);
    assert!(!refused.status.success());
    assert!(refused.stderr.contains("no results"), "{}", refused.stderr);
}

#[test]
fn a_running_probe_has_metrics() {
    require_root!();
    let net = Namespace::with_veth("probe_metrics");
    let words = [
        "probe",
        "-i",
        "packet:rx0",
        "--every",
        "1",
        "--metrics",
        "127.0.0.1:9465",
    ];
    let probe = net.spawn(BINARY, &words);
    probe.wait_for_stderr("metrics at http://127.0.0.1:9465/metrics", LIMIT);
    let begun = Instant::now();
    loop {
        net.inject("tx0", &[frame()]);
        let text = net.enter(scrape);
        if text.contains("ringtap_probe_value{analysis=\"top sources\"")
            && text.contains("key=\"10.0.0.1\"")
        {
            break;
        }
        assert!(begun.elapsed() < LIMIT, "{text}");
        std::thread::sleep(Duration::from_millis(200));
    }
    probe.interrupt();
    let _ended = probe.wait(LIMIT).success();
}

fn scrape() -> String {
    let mut text = String::new();
    let mut stream = TcpStream::connect("127.0.0.1:9465").expect("the server listens");
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        .expect("it reads");
    stream.read_to_string(&mut text).expect("it answers");
    text
}

/// An Ethernet frame with a UDP datagram of 10.0.0.1.
fn frame() -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 46];
    frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0, 99, 0, 99, 0, 26, 0, 0]);
    frame.resize(60, 7);
    frame
}
