// SPDX-License-Identifier: MIT OR Apache-2.0
//! Outages of an interface, and what a program reports about them.

use std::time::{Duration, Instant};

use ringtap_testkit::{Finished, LIMIT, Namespace, Running};
use serde_json::Value;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_ringtap");

/// Packets that the tests count: the background traffic is UDP.
pub(crate) const MARKED: &str = "ether proto 0x88b5";

/// Number of outages of a case.
pub(crate) fn flaps() -> usize {
    let asked = std::env::var("RINGTAP_FLAPS").ok();
    asked.map_or(4, |text| text.parse().expect("RINGTAP_FLAPS is a number"))
}

/// `count` frames that pass [`MARKED`].
pub(crate) fn marked(count: usize) -> Vec<Vec<u8>> {
    let frame = [vec![2_u8; 12], vec![0x88, 0xb5], vec![0; 50]].concat();
    vec![frame; count]
}

/// Waits until `is_so`.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LIMIT, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Starts `ringtap count` on a device, and waits until it captures.
pub(crate) fn start_count(net: &Namespace, device: &str, filter: &[&str]) -> Running {
    let args = ["count", "--json", "--interval", "0.05", "-i", device];
    let count = net.spawn(BINARY, &[&args, filter].concat());
    count.wait_for_stdout("\"offered\"", LIMIT);
    count
}

/// Number of lines on a program's standard error with this text.
pub(crate) fn lines(program: &Running, text: &str) -> usize {
    let stderr = program.stderr();
    stderr.lines().filter(|line| line.contains(text)).count()
}

/// Waits until the kernel forwards packets through `device`, which has a carrier.
pub(crate) fn wait_until_active(net: &Namespace, device: &str) {
    wait_until(&format!("{device} has a carrier"), || {
        net.ip(&["link", "show", device]).contains("state UP")
    });
}

/// Sets `device` down and up, and waits until `program` has reported each.
pub(crate) fn flap(net: &Namespace, device: &str, times: usize, program: &Running) {
    let (down, up) = (
        format!("{device} is down; waiting"),
        format!("{device} is up again after "),
    );
    let before = lines(program, &down);
    for cycle in before + 1..=before + times {
        net.ip(&["link", "set", device, "down"]);
        wait_until("the outage is reported", || lines(program, &down) == cycle);
        net.ip(&["link", "set", device, "up"]);
        wait_until("its end is reported", || lines(program, &up) == cycle);
        // A program prints at most ten lines about networks in a second, and a bridge four for each outage.
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// The last line of JSON that a program printed.
pub(crate) fn last_json(end: &Finished) -> Value {
    let shown = format!("{}\n{}", end.stdout, end.stderr);
    let line = end.stdout.lines().last().expect("a line of JSON");
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {shown}"))
}

/// A number in counters.
pub(crate) fn number(counters: &Value, name: &str) -> u64 {
    let value = counters[name].as_u64();
    value.unwrap_or_else(|| panic!("{name} in {counters}"))
}
