// SPDX-License-Identifier: MIT OR Apache-2.0
//! The probe's flows beside those of other programs: the short form of `scripts/checks accuracy`.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ringtap_testkit::{Running, require_tool, say_skipped};

const BINARY: &str = env!("CARGO_BIN_EXE_ringtap");
/// Debian's Python has Debian's Scapy.
const PYTHON: &str = "/usr/bin/python3";
const SCAPY: &str = "/usr/lib/python3/dist-packages/scapy";
/// A start of tshark takes seconds on a busy machine.
const LIMIT: Duration = Duration::from_secs(1800);

#[test]
fn flows_of_capture_files_are_those_of_nfpcapd_and_tshark() {
    require_tool!("nfpcapd", "nfdump", "tshark");
    if !Path::new(SCAPY).exists() {
        say_skipped("needs the package python3-scapy");
        return;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../scripts/checks");
    let mut command = Command::new(script);
    command.env("RINGTAP_LAB_PYTHON", PYTHON);
    command.args(["accuracy", "--ringtap", BINARY, "--every", "6"]);
    let end = Running::start(command).wait(LIMIT);
    assert!(end.status.success(), "{}\n{}", end.stdout, end.stderr);
}
