// SPDX-License-Identifier: MIT OR Apache-2.0
//! The examples for Prometheus and Grafana: tested rules, and only metrics that the hub has.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

use ringtap_testkit::{LIMIT, Running, require_tool};
use serde_json::Value;
use tempfile::TempDir;

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples");

#[test]
fn alert_rules_do_what_their_tests_say() {
    require_tool!("promtool");
    let mut command = Command::new("promtool");
    command.args(["test", "rules", "ringtap.test.yml"]);
    command.current_dir(format!("{EXAMPLES}/prometheus"));
    let end = Running::start(command).wait(LIMIT).success();
    assert!(end.stdout.contains("SUCCESS"), "{}", end.stdout);
}

#[test]
fn rules_and_dashboard_use_only_metrics_of_the_hub() {
    let metrics = metrics();
    let rules = fs::read_to_string(format!("{EXAMPLES}/prometheus/ringtap.rules.yml"));
    let board = fs::read_to_string(format!("{EXAMPLES}/grafana/ringtap.json"));
    let (rules, board) = (rules.expect("the rules"), board.expect("the dashboard"));
    let _valid: Value = serde_json::from_str(&board).expect("JSON");
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut used = 0;
    for word in format!("{rules}{board}").split(|c| !is_part(c)) {
        if word.starts_with("ringtap_") {
            let named = format!("# TYPE {} ", word.trim_end_matches("_total"));
            let info = format!("# TYPE {} info", word.trim_end_matches("_info"));
            assert!(
                metrics.contains(&named) || metrics.contains(&info),
                "{word} in\n{metrics}"
            );
            used += 1;
        }
    }
    assert!(used > 15, "{used} metrics");
}

/// The metrics of a hub.
fn metrics() -> String {
    let folder = TempDir::new().expect("a folder can be made");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringtap"));
    command.args([
        "hub",
        "-i",
        "sim:1000pps",
        "--metrics",
        "127.0.0.1:0",
        "--socket",
    ]);
    command.arg(folder.path().join("hub.sock"));
    let hub = Running::start(command);
    hub.wait_for_stderr("ringtap: hub of", LIMIT);
    let said = hub.stderr();
    let address = said
        .split("http://")
        .nth(1)
        .and_then(|rest| rest.split('/').next());
    let mut stream = TcpStream::connect(address.expect("an address")).expect("the server answers");
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        .expect("it listens");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("text");
    hub.interrupt();
    let _ended = hub.wait(LIMIT).success();
    text
}
