// SPDX-License-Identifier: MIT OR Apache-2.0
//! Four users beside the reader that came first, against the same run without them: short forms of the battery
//! `neighbours`.

use ringtap_testkit::{require_root, require_tool};

use crate::battery;

#[test]
fn idle_subscriptions_of_four_users_cost_the_hubs_thread_and_the_first_reader_nothing() {
    require_root!();
    require_tool!("python3", "setpriv", "taskset", "ip", "ethtool", "sysctl");
    battery("idle");
}

#[test]
fn readers_that_ring_without_pause_take_a_small_part_of_the_hubs_time_and_no_packet() {
    require_root!();
    require_tool!("python3", "setpriv", "taskset", "ip", "ethtool", "sysctl");
    battery("rings");
}
