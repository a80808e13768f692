// SPDX-License-Identifier: MIT OR Apache-2.0
//! `sim`: a simulated NIC.

use ringtap_packet::Sizes;

use super::shared::{CHUNK, CHUNKS, PACKETS, POOL, SNAP};
use crate::keys::{OptionError, OptionKey, choose, named, parsed, set_number, text};
use crate::kind::{Kind, NameOf};
use crate::options::Options;
use crate::shaping::Clock;

/// The description of `sim`.
pub static SIM: Kind = Kind {
    word: "sim",
    example: "sim:10Gbps",
    meaning: "simulated NIC on a link of this rate, also `sim:1Mpps` and `sim:max`",
    name_of: NameOf::Link,
    keys: &[
        &SNAP, &POOL, &CHUNK, &CHUNKS, &PACKETS, &SIZE, &BURST, &FLOWS, &QUEUES, &SKEW, &RING,
        &CLOCK,
    ],
    waits_for_rules: true,
    ..Kind::PLAIN
};

static SIZE: OptionKey = OptionKey::other(
    "size",
    "BYTES|imix",
    "packet sizes at L2, with checksum",
    "64",
    set_sizes,
    |from| {
        from.sim.sizes.map(|sizes| match sizes {
            Sizes::Imix => "imix".to_owned(),
            Sizes::Fixed(bytes) => bytes.to_string(),
        })
    },
);
static BURST: OptionKey = OptionKey::other(
    "burst",
    "PACKETS",
    "total number of packets",
    "endless",
    |to, text| set_number(&mut to.sim.burst, text),
    |from| text(from.sim.burst),
);
static FLOWS: OptionKey = OptionKey::number(
    "flows",
    "FLOWS",
    "flows, each in one queue",
    "one for each queue",
    |to| &mut to.sim.flows,
);
static QUEUES: OptionKey = OptionKey::number(
    "queues",
    "QUEUES",
    "receive queues, each a lane",
    "1",
    |to| &mut to.sim.queues,
);
static SKEW: OptionKey = OptionKey::other(
    "skew",
    "WEIGHT:WEIGHT...|elephant:PERCENT",
    "weights of the queues (`7:1:1:1`); or one flow with this percentage",
    "all equal",
    |to, text| parsed(&mut to.sim.skew, text),
    |from| text(from.sim.skew.as_ref()),
);
static RING: OptionKey = OptionKey::number(
    "ring",
    "PACKETS",
    "packets that wait in the ring of each queue",
    "1024",
    |to| &mut to.sim.ring,
);
static CLOCK: OptionKey = OptionKey::other(
    "clock",
    "real|virtual",
    "packets follow the clock, or wait for readers and carry virtual times",
    "`real`",
    |to, text| choose(&mut to.sim.clock, &CLOCKS, text),
    |from| named(from.sim.clock, &CLOCKS),
);

const CLOCKS: [(&str, Clock); 2] = [("real", Clock::Real), ("virtual", Clock::Virtual)];

fn set_sizes(options: &mut Options, text: &str) -> Result<(), OptionError> {
    let sizes = match text {
        "imix" => Some(Sizes::Imix),
        _ => text.parse().ok().map(Sizes::Fixed),
    };
    let form = OptionError::Form("bytes with the checksum, from 64, or imix");
    options.sim.sizes = Some(sizes.ok_or(form)?);
    Ok(())
}
