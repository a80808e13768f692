// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options that several kinds share.

use ringtap_filter::MAX_SNAP_LENGTH;

use crate::keys::{OptionError, OptionKey, choose, named, parsed, text};
use crate::options::{Direction, Mode, Options, StampClock};
use crate::size::Size;

pub(super) static MODE: OptionKey = OptionKey::other(
    "mode",
    "auto|native|generic|tc",
    "hook where the program runs; `tc` for tap only",
    "`auto`, the best that works",
    |to, text| choose(&mut to.mode, &MODES, text),
    |from| named(from.mode, &MODES),
)
.with_flag(None, "mode");
pub(super) static DIRECTION: OptionKey = OptionKey::other(
    "direction",
    "in|out|inout",
    "received packets, packets sent by this host, or both",
    "`inout`; `in` for an exclusive tap, on `lo`, and for a tap below kernel 6.6",
    |to, text| choose(&mut to.direction, &DIRECTIONS, text),
    |from| named(from.direction, &DIRECTIONS),
)
.with_flag(Some('Q'), "direction");
pub(super) static STAMPS: OptionKey = OptionKey::other(
    "stamps",
    "host|adapter_unsynced",
    "clock of the time stamps: the kernel's, or that of the NIC",
    "`host`",
    set_stamps,
    |from| named(from.stamps, &STAMP_CLOCKS),
)
.with_flag(Some('j'), "time-stamp-type");
pub(super) static PROMISC: OptionKey =
    OptionKey::switch("promisc", "receive packets for other hosts", "`on`", |to| {
        &mut to.promiscuous
    })
    .with_flag(Some('p'), "no-promiscuous-mode");
pub(super) static WAIT: OptionKey = OptionKey::flag(
    "wait",
    "when the interface is removed, wait for one of the same name; `hub`, `count`, `record` and `probe` also wait \
     at their start for the interface, a hub or its group",
    "the source ends",
    |to| &mut to.wait,
)
.with_flag(None, "wait");
pub(super) static SNAP: OptionKey = OptionKey::other(
    "snap",
    "BYTES",
    "bytes to keep of each packet; 0: all",
    "all that fit a chunk",
    set_snap_length,
    |from| text(from.snap_length),
)
.with_flag(Some('s'), "snap");
pub(super) static POOL: OptionKey = OptionKey::other(
    "pool",
    "SIZE",
    "memory for packets that wait for their reader, e.g. 512MiB",
    "depends on the source",
    |to, text| parsed(&mut to.pool, text),
    |from| text(from.pool),
)
.with_flag(Some('B'), "pool");
pub(super) static CHUNK: OptionKey = OptionKey::other(
    "chunk",
    "SIZE",
    "chunk size: a power of two from 4KiB to 512KiB",
    "depends on the source",
    set_chunk,
    |from| text(from.chunk),
);
pub(super) static CHUNKS: OptionKey = OptionKey::number(
    "chunks",
    "CHUNKS",
    "chunks per lane (WireCAP's R); excludes `pool`",
    "from `pool`",
    |to| &mut to.chunks.per_lane,
);
pub(super) static PACKETS: OptionKey = OptionKey::number(
    "packets",
    "PACKETS",
    "exact number of packets per chunk (WireCAP's M); the chunk size follows from `snap`",
    "all that fit",
    |to| &mut to.chunks.packets,
);

const CHUNK_SIZES: std::ops::RangeInclusive<u64> = 4 << 10..=512 << 10;
const MODES: [(&str, Mode); 4] = [
    ("auto", Mode::Auto),
    ("native", Mode::Native),
    ("generic", Mode::Generic),
    ("tc", Mode::Tc),
];
const DIRECTIONS: [(&str, Direction); 3] = [
    ("in", Direction::In),
    ("out", Direction::Out),
    ("inout", Direction::InOut),
];
const STAMP_CLOCKS: [(&str, StampClock); 2] = [
    ("host", StampClock::Host),
    ("adapter_unsynced", StampClock::Nic),
];

fn set_stamps(options: &mut Options, text: &str) -> Result<(), OptionError> {
    if text == "adapter" {
        return Err(OptionError::AdapterStamps);
    }
    choose(&mut options.stamps, &STAMP_CLOCKS, text)
}

/// As in tcpdump, 0 is the whole packet.
fn set_snap_length(options: &mut Options, text: &str) -> Result<(), OptionError> {
    let bytes = match text.parse() {
        Ok(0) => MAX_SNAP_LENGTH,
        Ok(bytes) if bytes <= MAX_SNAP_LENGTH => bytes,
        _ => return Err(OptionError::SnapLength),
    };
    options.snap_length = Some(bytes);
    Ok(())
}

fn set_chunk(options: &mut Options, text: &str) -> Result<(), OptionError> {
    let size: Size = text.parse()?;
    if CHUNK_SIZES.contains(&size.0) && size.0.is_power_of_two() {
        options.chunk = Some(size);
        Ok(())
    } else {
        Err(OptionError::Form("a power of two from 4KiB to 512KiB"))
    }
}
