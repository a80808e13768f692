// SPDX-License-Identifier: MIT OR Apache-2.0
//! Four users beside the reader that came first, against the same run without them: `ringtap-lab neighbours`.

use std::time::Duration;

use ringtap_testkit::{Running, require_root, require_tool};

use crate::{BINARY, lab};

/// The script waits for its conditions, each for minutes.
const LIMIT: Duration = Duration::from_secs(1200);

/// Runs the script, which checks that the reader lost no more than without neighbours, and these limits.
fn neighbours(arguments: &[&str]) {
    let mut command = lab("neighbours");
    command.args(["--seconds", "3", "--rounds", "2", "--ringtap", BINARY]);
    command.args(arguments);
    let end = Running::start(command).wait(LIMIT);
    println!("{}", end.stdout);
    assert!(end.status.success(), "{}\n{}", end.stdout, end.stderr);
}

/// Without classes of resting readers the ratio was 9.6.
#[test]
fn idle_subscriptions_of_four_users_cost_the_hubs_thread_and_the_first_reader_nothing() {
    require_root!();
    require_tool!("python3", "setpriv", "mount", "ip", "ethtool");
    // The reader's guaranteed chunks hold the packets of 150 ms.
    let limits = [
        "--rates",
        "200kpps",
        "--pool",
        "128MiB",
        "--max-ratio",
        "2.5",
    ];
    neighbours(&[limits.as_slice(), &["--seconds", "6"]].concat());
}

/// The readers of the control hold as many chunks and take as much processor time as those that ring.
#[test]
fn readers_that_ring_without_pause_take_a_small_part_of_the_hubs_time_and_no_packet() {
    require_root!();
    require_tool!("python3", "setpriv", "mount", "ip", "ethtool");
    let attack = ["--attack", "ring_storm", "--control", "busy_readers"];
    let limits = [
        "--rates",
        "100kpps",
        "--pool",
        "64MiB",
        "--max-percent",
        "12",
    ];
    neighbours(&[attack.as_slice(), limits.as_slice()].concat());
}
