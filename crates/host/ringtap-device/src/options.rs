// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options after the question mark: which there are, for which source, and of which type.
//!
//! Invariants
//! - `keys` is the only list: parsing, printing and merging with flags all walk it.

use std::{fmt, str::FromStr};

use ringtap_net::near;

use crate::speed::Speed;

use super::{
    DeviceError, DeviceSpec, Kind, Size, escape,
    parse::{Place, meant},
    shaping::{self, ChunkOptions, SimAsked},
};

/// Where the kernel runs the program for arriving packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The fastest that shows every packet as the wire had it; each fall-back becomes a note.
    #[default]
    Auto,
    /// Native XDP, in the driver, or not at all.
    Native,
    /// Generic XDP, after the kernel made its own packet buffer: slower, works everywhere.
    Generic,
    /// The traffic control hook (tcx, kernel 6.6).
    Tc,
}

/// Which packets are captured, seen from the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Received by the interface.
    In,
    /// Sent by this host.
    Out,
    /// Both.
    InOut,
}

impl Direction {
    /// Whether received packets are wanted.
    #[must_use]
    pub fn arriving(self) -> bool {
        self != Direction::Out
    }

    /// Whether packets that this host sends are wanted.
    #[must_use]
    pub fn leaving(self) -> bool {
        self != Direction::In
    }
}

/// What was asked for; `None` leaves the choice to the source.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Options {
    /// Captured packets do not go on to the host.
    pub exclusive: bool,
    /// How the tap attaches.
    pub mode: Option<Mode>,
    /// Which packets to take.
    pub direction: Option<Direction>,
    /// Whether to receive packets for other hosts.
    pub promiscuous: Option<bool>,
    /// Bytes to keep of each packet, 1 to 262,144.
    pub snap_length: Option<u32>,
    /// Size of the pool.
    pub pool: Option<Size>,
    /// Size of a chunk: a power of two, 4 KiB to 512 KiB.
    pub chunk: Option<Size>,
    /// Whether AF_XDP may leave packets where the NIC put them.
    pub zero_copy: Option<bool>,
    /// Whether AF_XDP asks the driver for packets all the time.
    pub busy_poll: bool,
    /// How fast a file is read.
    pub speed: Option<Speed>,
    /// Where the hub listens.
    pub socket: Option<String>,
    /// Whether the hub is to copy packets into a pool of the reader's own.
    pub private: bool,
    /// Packets that wait before the reader is woken.
    pub watermark: Option<u32>,
    /// Milliseconds after which it is woken with fewer.
    pub limit_ms: Option<u32>,
    /// How many chunks there are, and how many packets in each.
    pub chunks: ChunkOptions,
    /// What a simulated NIC is like.
    pub sim: SimAsked,
}

/// What libpcap's tools take for "all of it".
const LARGEST_SNAP_LENGTH: u32 = 262_144;
const CHUNK_SIZES: std::ops::RangeInclusive<u64> = 4 << 10..=512 << 10;

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
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) flag: &'static str,
    /// What follows `=`; empty for a key that has no value.
    pub(super) value: &'static str,
    pub(super) kinds: &'static [Kind],
    /// Sets it from its text, or says what is expected.
    pub(super) set: fn(&mut Options, &str) -> Result<(), String>,
    /// Its canonical text, if it is set.
    pub(super) get: fn(&Options) -> Option<String>,
}

/// Every option there is.
fn keys() -> impl Iterator<Item = &'static Key> {
    KEYS.iter().chain(&shaping::KEYS)
}

static KEYS: [Key; 14] = [
    Key {
        name: "exclusive",
        flag: "--exclusive",
        value: "",
        kinds: &[Kind::Auto, Kind::Tap],
        set: |options, _| {
            options.exclusive = true;
            Ok(())
        },
        get: |options| options.exclusive.then(String::new),
    },
    Key {
        name: "mode",
        flag: "--mode",
        value: "auto|native|generic|tc",
        kinds: &[Kind::Auto, Kind::Tap, Kind::Xdp],
        set: |options, text| choose(&mut options.mode, &MODES, text),
        get: |options| named(options.mode, &MODES),
    },
    Key {
        name: "direction",
        flag: "--direction",
        value: "in|out|inout",
        kinds: &[Kind::Auto, Kind::Tap, Kind::Packet],
        set: |options, text| choose(&mut options.direction, &DIRECTIONS, text),
        get: |options| named(options.direction, &DIRECTIONS),
    },
    Key {
        name: "promisc",
        flag: "--promisc",
        value: "on|off",
        kinds: LIVE,
        set: |options, text| choose(&mut options.promiscuous, &SWITCH, text),
        get: |options| named(options.promiscuous, &SWITCH),
    },
    Key {
        name: "snap",
        flag: "--snap",
        value: "BYTES",
        kinds: EVERY,
        set: set_snap_length,
        get: |options| options.snap_length.map(|bytes| bytes.to_string()),
    },
    Key {
        name: "pool",
        flag: "--pool",
        value: "SIZE",
        kinds: EVERY,
        set: |options, text| {
            options.pool = Some(text.parse().map_err(said)?);
            Ok(())
        },
        get: |options| options.pool.map(|size| size.to_string()),
    },
    Key {
        name: "chunk",
        flag: "--chunk",
        value: "SIZE",
        kinds: EVERY,
        set: set_chunk,
        get: |options| options.chunk.map(|size| size.to_string()),
    },
    Key {
        name: "zero-copy",
        flag: "--zero-copy",
        value: "on|off",
        kinds: &[Kind::Xdp],
        set: |options, text| choose(&mut options.zero_copy, &SWITCH, text),
        get: |options| named(options.zero_copy, &SWITCH),
    },
    Key {
        name: "busy-poll",
        flag: "--busy-poll",
        value: "",
        kinds: &[Kind::Xdp],
        set: |options, _| {
            options.busy_poll = true;
            Ok(())
        },
        get: |options| options.busy_poll.then(String::new),
    },
    Key {
        name: "speed",
        flag: "--speed",
        value: "top|FACTORx|RATEpps",
        kinds: &[Kind::Pcap],
        set: |options, text| {
            options.speed = Some(text.parse().map_err(said)?);
            Ok(())
        },
        get: |options| options.speed.map(|speed| speed.to_string()),
    },
    Key {
        name: "socket",
        flag: "--socket",
        value: "PATH",
        kinds: &[Kind::Hub],
        set: set_socket,
        get: |options| {
            let path = options.socket.as_deref();
            path.map(|path| escape::escape(path).replace('&', "%26"))
        },
    },
    Key {
        name: "private",
        flag: "--private",
        value: "",
        kinds: &[Kind::Hub],
        set: |options, _| {
            options.private = true;
            Ok(())
        },
        get: |options| options.private.then(String::new),
    },
    Key {
        name: "watermark",
        flag: "--watermark",
        value: "PACKETS",
        kinds: &[Kind::Hub],
        set: |options, text| set_number(&mut options.watermark, text),
        get: |options| options.watermark.map(|packets| packets.to_string()),
    },
    Key {
        name: "limit",
        flag: "--limit",
        value: "MILLISECONDS",
        kinds: &[Kind::Hub],
        set: |options, text| set_number(&mut options.limit_ms, text),
        get: |options| options.limit_ms.map(|limit| limit.to_string()),
    },
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
const SWITCH: [(&str, bool); 2] = [("on", true), ("off", false)];

/// Sets `target` to the value that `text` names.
pub(super) fn choose<T: Copy>(
    target: &mut Option<T>,
    values: &[(&str, T)],
    text: &str,
) -> Result<(), String> {
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

pub(super) fn named<T: Copy + PartialEq>(value: Option<T>, values: &[(&str, T)]) -> Option<String> {
    let (name, _) = values.iter().find(|(_, one)| Some(*one) == value)?;
    Some((*name).to_owned())
}

fn said(error: impl fmt::Display) -> String {
    error.to_string()
}

/// As for tcpdump, 0 is "all of it".
fn set_snap_length(options: &mut Options, text: &str) -> Result<(), String> {
    let bytes = match text.parse() {
        Ok(0) => LARGEST_SNAP_LENGTH,
        Ok(bytes) if bytes <= LARGEST_SNAP_LENGTH => bytes,
        _ => {
            return Err(format!(
                "expected 1 to {LARGEST_SNAP_LENGTH} bytes, or 0 for all"
            ));
        }
    };
    options.snap_length = Some(bytes);
    Ok(())
}

fn set_socket(options: &mut Options, text: &str) -> Result<(), String> {
    let path = escape::unescape(text).filter(|path| !path.is_empty());
    options.socket = Some(path.ok_or("expected the path of a hub's socket")?);
    Ok(())
}

pub(super) fn set_number<T: FromStr + Default + PartialOrd>(
    target: &mut Option<T>,
    text: &str,
) -> Result<(), String> {
    let number = text.parse().ok().filter(|number| *number > T::default());
    *target = Some(number.ok_or("expected a number above 0")?);
    Ok(())
}

fn set_chunk(options: &mut Options, text: &str) -> Result<(), String> {
    let size: Size = text.parse().map_err(said)?;
    match CHUNK_SIZES.contains(&size.0) && size.0.is_power_of_two() {
        true => {
            options.chunk = Some(size);
            Ok(())
        }
        false => Err("expected a power of two from 4KiB to 512KiB".to_owned()),
    }
}

/// The options of a device of this kind.
pub(super) fn parse(kind: Kind, place: Place<'_>) -> Result<Options, DeviceError> {
    let mut options = Options::default();
    for part in place.split('&') {
        let (name, value) = match part.str().split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (part.str(), None),
        };
        let key = find(kind, name).map_err(|message| part.error(message))?;
        if (key.get)(&options).is_some() {
            return Err(part.error(format!("{name} is given twice")));
        }
        let outcome = match (key.value, value) {
            ("", Some(_)) => Err(format!("{name} takes no value")),
            ("", None) => (key.set)(&mut options, ""),
            (expected, None) => Err(format!("{name} needs a value: {name}={expected}")),
            (_, Some(value)) => {
                (key.set)(&mut options, value).map_err(|message| format!("{name}: {message}"))
            }
        };
        outcome.map_err(|message| part.error(message))?;
    }
    Ok(options)
}

fn find(kind: Kind, name: &str) -> Result<&'static Key, String> {
    let known = || keys().filter(|key| key.kinds.contains(&kind));
    if let Some(key) = known().find(|key| key.name == name) {
        return Ok(key);
    }
    let list: Vec<_> = known().map(written).collect();
    let list = format!("options of {kind}: {}", list.join(", "));
    Err(match keys().find(|key| key.name == name) {
        Some(key) => {
            let why = shaping::why_not(kind, name);
            format!("{name} is for {} only{why} ({list})", kinds(key))
        }
        None if name.is_empty() => format!("expected an option ({list})"),
        None if name.contains('@') => "queues come before options: eth0@0?exclusive".to_owned(),
        None => {
            let meant = meant(&near(name, known().map(|key| key.name)));
            format!("no option \"{name}\"{meant} ({list})")
        }
    })
}

fn written(key: &Key) -> String {
    match key.value {
        "" => key.name.to_owned(),
        value => format!("{}={value}", key.name),
    }
}

fn kinds(key: &Key) -> String {
    let prefixes = key.kinds.iter().map(|kind| kind.prefix());
    let prefixes: Vec<_> = prefixes.filter(|prefix| !prefix.is_empty()).collect();
    prefixes.join(", ")
}

/// The device's options with those that flags add.
pub(super) fn merge(device: &DeviceSpec, flags: &Options) -> Result<Options, DeviceError> {
    let mut merged = device.options.clone();
    for key in keys() {
        let Some(by_flag) = (key.get)(flags) else {
            continue;
        };
        let flag = format!("{} {by_flag}", key.flag).trim_end().to_owned();
        if !key.kinds.contains(&device.kind) {
            return Err(DeviceError::Pointless {
                device: device.to_string(),
                flag,
                kinds: kinds(key),
            });
        }
        match (key.get)(&device.options) {
            Some(own) if own != by_flag => {
                return Err(DeviceError::Conflict {
                    device: device.to_string(),
                    option: format!("{}={own}", key.name),
                    flag,
                });
            }
            _ => (key.set)(&mut merged, &by_flag)
                .map_err(|message| DeviceError::BadFlag { flag, message })?,
        }
    }
    Ok(merged)
}

impl fmt::Display for Options {
    /// With the question mark before the first one; nothing if none is set.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sign = '?';
        for key in keys() {
            let Some(value) = (key.get)(self) else {
                continue;
            };
            match key.value {
                "" => write!(f, "{sign}{}", key.name)?,
                _ => write!(f, "{sign}{}={value}", key.name)?,
            }
            sign = '&';
        }
        Ok(())
    }
}
