// SPDX-License-Identifier: MIT OR Apache-2.0
//! `tap`: XDP and tc programs that write into the pool.

use ringtap_net::rights::Purpose;

use super::shared::{CHUNK, CHUNKS, DIRECTION, MODE, PACKETS, POOL, PROMISC, SNAP, STAMPS, WAIT};
use crate::{keys::OptionKey, kind::Kind, options::Mode};

/// The description of `tap`.
pub static TAP: Kind = Kind {
    word: "tap",
    example: "tap:eth0",
    meaning: "XDP and tc programs that write straight into the pool",
    keys: &[
        &EXCLUSIVE, &MODE, &DIRECTION, &STAMPS, &PROMISC, &WAIT, &SNAP, &POOL, &CHUNK, &CHUNKS,
        &PACKETS,
    ],
    hooks: &[Mode::Native, Mode::Tc, Mode::Generic],
    purpose: Some(Purpose::Tap),
    selects_queues: true,
    meters: true,
    kernel_losses: &[
        "The tap's program could not read these packets, or interrupted itself: look for other XDP or tc programs \
         on {name} (`bpftool net`).",
    ],
    ..Kind::PLAIN
};

static EXCLUSIVE: OptionKey = OptionKey::flag(
    "exclusive",
    "captured packets do not go on to the host",
    "they go on",
    |to| &mut to.exclusive,
)
.with_flag(None, "exclusive");
