// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pcap`: a capture file.

use super::shared::{CHUNK, CHUNKS, PACKETS, POOL, SNAP};
use crate::keys::{OptionKey, parsed, text};
use crate::kind::{Kind, NameOf};

/// The description of `pcap`.
pub static PCAP: Kind = Kind {
    word: "pcap",
    example: "pcap:FILE",
    meaning: "capture file; `pcap:-` is standard input; the same as `-r FILE`",
    name_of: NameOf::File,
    keys: &[&SNAP, &POOL, &CHUNK, &SPEED, &CHUNKS, &PACKETS],
    waits_for_rules: true,
    ..Kind::PLAIN
};

static SPEED: OptionKey = OptionKey::other(
    "speed",
    "top|FACTORx|RATEpps",
    "how fast a file is read: `1x` as recorded, `10x`, `1000pps`",
    "`top`",
    |to, text| parsed(&mut to.speed, text),
    |from| text(from.speed),
)
.with_flag(None, "speed");
