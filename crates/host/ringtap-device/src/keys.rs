// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of options: for which sources, and how to parse and print the value.

use std::{fmt, str::FromStr};

use ringtap_filter::MAX_SNAP_LENGTH;
use ringtap_packet::Sizes;

use super::{
    Kind, Size, SizeError, escape,
    options::{Direction, Mode, Options, StampClock},
    shaping::Clock,
};

const CHUNK_SIZES: std::ops::RangeInclusive<u64> = 4 << 10..=512 << 10;

const TAP: &[Kind] = &[Kind::Auto, Kind::Tap];
const GROUP: &[Kind] = &[Kind::Hub, Kind::Host];
const SIM: &[Kind] = &[Kind::Sim];
/// Sources whose pool can be divided exactly.
const SHAPED: &[Kind] = &[Kind::Auto, Kind::Tap, Kind::Packet, Kind::Pcap, Kind::Sim];
const LIVE: &[Kind] = &[Kind::Auto, Kind::Tap, Kind::Xdp, Kind::Packet];
const EVERY: &[Kind] = &[
    Kind::Auto,
    Kind::Tap,
    Kind::Xdp,
    Kind::Packet,
    Kind::Pcap,
    Kind::Sim,
];

/// One option.
pub(super) struct OptionKey {
    pub(super) name: &'static str,
    /// What follows `=`; empty for an option without a value.
    pub(super) value: &'static str,
    pub(super) kinds: &'static [Kind],
    field: OptionField,
}

/// The field of [`Options`] that an option sets.
enum OptionField {
    /// Present or absent.
    Flag(fn(&mut Options) -> &mut bool),
    /// `on` or `off`.
    Switch(fn(&mut Options) -> &mut Option<bool>),
    /// A number above 0.
    Number(fn(&mut Options) -> &mut Option<u32>),
    /// Any other type: sets the value from its text or says what it expects, and prints the value.
    Other(
        fn(&mut Options, &str) -> Result<(), String>,
        fn(&Options) -> Option<String>,
    ),
}

impl OptionKey {
    pub(super) fn set(&self, options: &mut Options, text: &str) -> Result<(), String> {
        match self.field {
            OptionField::Flag(field) => *field(options) = true,
            OptionField::Switch(field) => return choose(field(options), &SWITCH, text),
            OptionField::Number(field) => return set_number(field(options), text),
            OptionField::Other(set, _) => return set(options, text),
        }
        Ok(())
    }

    /// The canonical text of the value, if the option is set.
    pub(super) fn get(&self, options: &Options) -> Option<String> {
        let mut copy = options.clone();
        match self.field {
            OptionField::Flag(field) => field(&mut copy).then(String::new),
            OptionField::Switch(field) => named(*field(&mut copy), &SWITCH),
            OptionField::Number(field) => field(&mut copy).map(|number| number.to_string()),
            OptionField::Other(_, get) => get(options),
        }
    }
}

const fn key(
    name: &'static str,
    value: &'static str,
    kinds: &'static [Kind],
    field: OptionField,
) -> OptionKey {
    OptionKey {
        name,
        value,
        kinds,
        field,
    }
}

const fn number(
    name: &'static str,
    value: &'static str,
    kinds: &'static [Kind],
    field: fn(&mut Options) -> &mut Option<u32>,
) -> OptionKey {
    key(name, value, kinds, OptionField::Number(field))
}

const fn flag(
    name: &'static str,
    kinds: &'static [Kind],
    field: fn(&mut Options) -> &mut bool,
) -> OptionKey {
    key(name, "", kinds, OptionField::Flag(field))
}

const fn switch(
    name: &'static str,
    kinds: &'static [Kind],
    field: fn(&mut Options) -> &mut Option<bool>,
) -> OptionKey {
    key(name, "on|off", kinds, OptionField::Switch(field))
}

const fn other(
    name: &'static str,
    value: &'static str,
    kinds: &'static [Kind],
    set: fn(&mut Options, &str) -> Result<(), String>,
    get: fn(&Options) -> Option<String>,
) -> OptionKey {
    key(name, value, kinds, OptionField::Other(set, get))
}

/// Every option, in the order of the canonical text.
pub(super) static KEYS: [OptionKey; 26] = [
    flag("exclusive", TAP, |to| &mut to.exclusive),
    other(
        "mode",
        "auto|native|generic|tc",
        &[Kind::Auto, Kind::Tap, Kind::Xdp],
        |to, text| choose(&mut to.mode, &MODES, text),
        |from| named(from.mode, &MODES),
    ),
    other(
        "direction",
        "in|out|inout",
        &[Kind::Auto, Kind::Tap, Kind::Packet],
        |to, text| choose(&mut to.direction, &DIRECTIONS, text),
        |from| named(from.direction, &DIRECTIONS),
    ),
    other(
        "stamps",
        "host|adapter_unsynced",
        LIVE,
        |to, text| choose(&mut to.stamps, &STAMPS, text),
        |from| named(from.stamps, &STAMPS),
    ),
    switch("promisc", LIVE, |to| &mut to.promiscuous),
    flag("wait", &[Kind::Auto, Kind::Tap, Kind::Packet], |to| {
        &mut to.wait
    }),
    other("snap", "BYTES", EVERY, set_snap_length, |from| {
        text(from.snap_length)
    }),
    other(
        "pool",
        "SIZE",
        EVERY,
        |to, text| parsed(&mut to.pool, text),
        |from| text(from.pool),
    ),
    other("chunk", "SIZE", EVERY, set_chunk, |from| text(from.chunk)),
    switch("zero-copy", &[Kind::Xdp], |to| &mut to.zero_copy),
    flag("busy-poll", &[Kind::Xdp], |to| &mut to.busy_poll),
    other(
        "speed",
        "top|FACTORx|RATEpps",
        &[Kind::Pcap],
        |to, text| parsed(&mut to.speed, text),
        |from| text(from.speed),
    ),
    other("socket", "PATH", GROUP, set_socket, |from| {
        let path = from.socket.as_deref();
        path.map(|path| escape::escape(path).replace('&', "%26"))
    }),
    flag("private", GROUP, |to| &mut to.private),
    number("watermark", "PACKETS", GROUP, |to| &mut to.watermark),
    number("limit", "MILLISECONDS", GROUP, |to| &mut to.limit_ms),
    number("distance", "MICROSECONDS", GROUP, |to| &mut to.distance_us),
    number("chunks", "CHUNKS", SHAPED, |to| &mut to.chunks.per_lane),
    number("packets", "PACKETS", SHAPED, |to| &mut to.chunks.packets),
    other("size", "BYTES|imix", SIM, set_sizes, |from| {
        from.sim.sizes.map(|sizes| match sizes {
            Sizes::Imix => "imix".to_owned(),
            Sizes::Fixed(bytes) => bytes.to_string(),
        })
    }),
    other(
        "burst",
        "PACKETS",
        SIM,
        |to, text| set_number(&mut to.sim.burst, text),
        |from| text(from.sim.burst),
    ),
    number("flows", "FLOWS", SIM, |to| &mut to.sim.flows),
    number("queues", "QUEUES", SIM, |to| &mut to.sim.queues),
    other(
        "skew",
        "WEIGHT:WEIGHT...|elephant:PERCENT",
        SIM,
        |to, text| parsed(&mut to.sim.skew, text),
        |from| text(from.sim.skew.as_ref()),
    ),
    number("ring", "PACKETS", SIM, |to| &mut to.sim.ring),
    other(
        "clock",
        "real|virtual",
        SIM,
        |to, text| choose(&mut to.sim.clock, &CLOCKS, text),
        |from| named(from.sim.clock, &CLOCKS),
    ),
];

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
const STAMPS: [(&str, StampClock); 2] = [
    ("host", StampClock::Host),
    ("adapter_unsynced", StampClock::Nic),
];
const CLOCKS: [(&str, Clock); 2] = [("real", Clock::Real), ("virtual", Clock::Virtual)];
const SWITCH: [(&str, bool); 2] = [("on", true), ("off", false)];

/// Sets `target` to the value that `text` names.
fn choose<T: Copy>(target: &mut Option<T>, values: &[(&str, T)], text: &str) -> Result<(), String> {
    match values.iter().find(|(name, _)| *name == text) {
        Some((_, value)) => {
            *target = Some(*value);
            Ok(())
        }
        None => {
            let names: Vec<_> = values.iter().map(|(name, _)| *name).collect();
            Err(format!("expected {}", names.join(", ")))
        }
    }
}

fn named<T: Copy + PartialEq>(value: Option<T>, values: &[(&str, T)]) -> Option<String> {
    let (name, _) = values.iter().find(|(_, one)| Some(*one) == value)?;
    Some((*name).to_owned())
}

fn text(value: Option<impl fmt::Display>) -> Option<String> {
    value.map(|value| value.to_string())
}

fn parsed<T: FromStr<Err: fmt::Display>>(target: &mut Option<T>, text: &str) -> Result<(), String> {
    let value = text.parse().map_err(|error: T::Err| error.to_string())?;
    *target = Some(value);
    Ok(())
}

fn set_sizes(options: &mut Options, text: &str) -> Result<(), String> {
    let sizes = match text {
        "imix" => Some(Sizes::Imix),
        _ => text.parse().ok().map(Sizes::Fixed),
    };
    options.sim.sizes = Some(sizes.ok_or("expected bytes with the checksum, from 64, or imix")?);
    Ok(())
}

/// As in tcpdump, 0 is the whole packet.
fn set_snap_length(options: &mut Options, text: &str) -> Result<(), String> {
    let bytes = match text.parse() {
        Ok(0) => MAX_SNAP_LENGTH,
        Ok(bytes) if bytes <= MAX_SNAP_LENGTH => bytes,
        _ => {
            return Err(format!(
                "expected 1 to {MAX_SNAP_LENGTH} bytes, or 0 for all"
            ));
        }
    };
    options.snap_length = Some(bytes);
    Ok(())
}

fn set_socket(options: &mut Options, text: &str) -> Result<(), String> {
    let path = escape::unescape(text).filter(|path| !path.is_empty());
    options.socket = Some(path.ok_or("expected the path of a socket")?);
    Ok(())
}

fn set_number<T: FromStr + Default + PartialOrd>(
    target: &mut Option<T>,
    text: &str,
) -> Result<(), String> {
    let number = text.parse().ok().filter(|number| *number > T::default());
    *target = Some(number.ok_or("expected a number above 0")?);
    Ok(())
}

fn set_chunk(options: &mut Options, text: &str) -> Result<(), String> {
    let size: Size = text.parse().map_err(|error: SizeError| error.to_string())?;
    if CHUNK_SIZES.contains(&size.0) && size.0.is_power_of_two() {
        options.chunk = Some(size);
        Ok(())
    } else {
        Err("expected a power of two from 4KiB to 512KiB".to_owned())
    }
}
