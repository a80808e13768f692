// SPDX-License-Identifier: MIT OR Apache-2.0
//! All attacks, mixed, beside two honest readers: the short form of `make chaos`.

use ringtap_testkit::{require_root, require_tool};

use crate::battery;

/// Every packet is explained, honest readers lost nothing, and the hub's memory and descriptors came back.
#[test]
fn no_mix_of_attacks_costs_honest_readers_a_packet() {
    require_root!();
    require_tool!("python3", "setpriv", "taskset", "ip", "ethtool", "sysctl");
    battery("chaos");
}
