// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where `ringtap probe` sends its results: destinations, reports, metrics.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use ringtap_testkit::{
    Finished, LIMIT, Namespace, Running, require_root, say_skipped, settle_everywhere,
};
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

/// A file with packets of 40 flows.
fn recorded(folder: &Path) -> String {
    let packets = folder.join("packets.pcapng").display().to_string();
    let sim = "sim:max?burst=2000&flows=40";
    let _recorded = ringtap(&["record", "-q", "-i", sim, "-w", &packets]).success();
    packets
}

/// All flows of a live capture end with it, and are more than may wait for a destination.
#[test]
fn the_last_flows_of_a_live_capture_are_all_written() {
    require_root!();
    let net = Namespace::with_veth("last_flows");
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| format!("{}/{name}", folder.path().display());
    let packets = path("packets.pcap");
    let sim = "sim:max?burst=150000&flows=150000";
    let _recorded = ringtap(&["record", "-q", "-i", sim, "-w", &packets]).success();
    let device = "tap:rx0?direction=in";
    let export = format!("parquet:{}", path("results"));
    let config = path("probe.toml");
    std::fs::write(&config, "[[analysis]]\nkind = \"flows\"\nidle = \"5h\"\n").expect("a file");
    let words = ["probe", "-i", device, "--json", "--export", &export];
    let probe = net.spawn(BINARY, &[&words[..], &["--config", &config]].concat());
    probe.wait_for_stderr("ringtap: probe of", LIMIT);
    let send = [
        "send", "-q", "-i", "tx0", "-r", &packets, "--rate", "50000pps",
    ];
    let _sent = net.run(BINARY, &send).success();
    settle_everywhere();
    probe.interrupt();
    let ended = probe.wait(LIMIT).success();
    let ledger = ended.stdout.lines().last().expect("a ledger");
    let ledger: Value = serde_json::from_str(ledger).expect("JSON");
    let flows = ledger["flows"]["records"].as_u64().expect("a number");
    assert!(flows > 100_000, "{ledger}");
    for exporter in ledger["exporters"].as_array().expect("a list") {
        let count = |name: &str| exporter[name].as_u64().expect("a number");
        assert!(count("written") >= flows, "{ledger}");
        assert_eq!(count("dropped_queue_full"), 0, "{ledger}");
    }
}

#[test]
fn a_file_whose_records_are_lost_tells_so_and_fails() {
    let folder = tempfile::tempdir().expect("a folder");
    let packets = recorded(folder.path());
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let absent = socket.local_addr().expect("its address");
    drop(socket);
    let export = format!("ipfix:udp://{absent}");
    let ended = ringtap(&["probe", "-r", &packets, "--json", "--export", &export]);
    let name = format!("ringtap: ipfix udp://{absent}: ");
    let lines: Vec<_> = ended.stderr.lines().collect();
    // A line at the first loss comes before it, unless all is over by then.
    let told = lines.iter().rfind(|line| line.starts_with(&name));
    let told = told.expect("a line about the collector");
    assert!(told.contains(" records were lost: "), "{lines:?}");
    assert!(told.contains("Connection refused"), "{lines:?}");
    assert_eq!(ended.status.code(), Some(1), "{lines:?}");
}

#[test]
fn a_reading_program_that_ends_first_is_no_loss() {
    let folder = tempfile::tempdir().expect("a folder");
    let packets = recorded(folder.path());
    let script = format!("{BINARY} probe -r {packets} --json | :; exit ${{PIPESTATUS[0]}}");
    let mut command = Command::new("bash");
    command.args(["-c", &script]);
    let ended = Running::start(command).wait(LIMIT);
    assert!(ended.status.success(), "{}", ended.stderr);
    assert!(!ended.stderr.contains("lost"), "{}", ended.stderr);
}

#[test]
fn a_file_for_a_broker_that_is_gone_ends_with_the_librarys_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let packets = recorded(folder.path());
    // Nobody listens at the port of `tcpmux`.
    let export = "kafka:127.0.0.1:1/flows";
    let ended = ringtap(&["probe", "-r", &packets, "--json", "--export", export]);
    assert_eq!(ended.status.code(), Some(1));
    if ended.stderr.contains("apt install") {
        say_skipped(&ended.stderr);
        return;
    }
    assert!(
        ended.stderr.contains("kafka 127.0.0.1:1/flows: ")
            && ended.stderr.contains("Connection refused"),
        "{}",
        ended.stderr
    );
    assert_eq!(ended.stdout, "", "nothing was analysed");
}

#[test]
fn a_probe_that_opens_slowly_tells_so() {
    let folder = tempfile::tempdir().expect("a folder");
    // Opens when somebody writes.
    let pipe = folder.path().join("packets");
    let mut command = Command::new("mkfifo");
    command.arg(&pipe);
    let _made = Running::start(command).wait(LIMIT).success();
    let mut command = Command::new(BINARY);
    command.args(["probe", "-r"]).arg(&pipe);
    let probe = Running::start(command);
    probe.wait_for_stderr("is still opening, and no packet is captured yet", LIMIT);
    drop(File::create(&pipe).expect("the pipe"));
    let _empty = probe.wait(LIMIT);
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
        if text.contains("ringtap_probe_value{analysis=\"top source\"")
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
