// SPDX-License-Identifier: MIT OR Apache-2.0
//! All attacks, mixed, beside two honest readers: the short form of `make chaos`.

use std::time::Duration;

use ringtap_testkit::{Running, require_root, require_tool};

use crate::{BINARY, lab};

/// The script waits for its conditions, each for minutes.
const LIMIT: Duration = Duration::from_secs(1200);

/// Runs the script; it ends with 0 if the hub lived, every ledger balanced, honest readers lost
/// nothing, and the hub's memory and descriptors came back.
fn chaos(attacks: &str, seconds: &str) {
    let mut command = lab("chaos");
    command.args([
        "--short", "--seed", "1", "--rate", "20kpps", "--pool", "64MiB",
    ]);
    command.args([
        "--seconds",
        seconds,
        "--attacks",
        attacks,
        "--ringtap",
        BINARY,
    ]);
    let end = Running::start(command).wait(LIMIT);
    assert!(end.status.success(), "{}\n{}", end.stdout, end.stderr);
}

#[test]
fn no_mix_of_attacks_costs_honest_readers_a_packet() {
    require_root!();
    require_tool!("python3", "setpriv", "mount", "ip", "ethtool");
    chaos("", "25");
}
