// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options after the question mark: their names, sources and types.
//!
//! Invariants
//! - [`KEYS`] is the only list: parsing, printing and merging with flags use it.

use std::fmt;

use ringtap_net::meant;

use super::{
    DeviceError, DeviceSpec, Kind, Size, Speed,
    keys::{KEYS, OptionKey},
    parse::TextPlace,
    shaping::{ChunkOptions, SimAsked},
};

/// Hook at which the kernel runs the program for received packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The fastest hook that shows each packet as on the wire; each fall-back becomes a note.
    #[default]
    Auto,
    /// Native XDP, in the driver, or an error.
    Native,
    /// Generic XDP, after the kernel allocated a packet buffer: slower, works everywhere.
    Generic,
    /// The traffic control hook (tcx, kernel 6.6).
    Tc,
}

/// Direction of the captured packets, seen from the host.
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

/// Clock of the packets' time stamps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum StampClock {
    /// The kernel's.
    #[default]
    Host,
    /// The NIC's own, as it is: `adapter_unsynced` of libpcap.
    Nic,
}

/// The options of a device; `None` leaves the choice to the source.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Options {
    /// Captured packets do not go on to the host.
    pub exclusive: bool,
    /// How the tap attaches.
    pub mode: Option<Mode>,
    /// Direction of the packets.
    pub direction: Option<Direction>,
    /// Clock of the time stamps.
    pub stamps: Option<StampClock>,
    /// Whether to receive packets for other hosts.
    pub promiscuous: Option<bool>,
    /// Whether to wait for an interface of the same name when the interface is removed.
    pub wait: bool,
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
    /// Path of the hub's socket.
    pub socket: Option<String>,
    /// The hub copies packets into a pool of this reader only.
    pub private: bool,
    /// Number of waiting packets at which the hub wakes the reader.
    pub watermark: Option<u32>,
    /// Milliseconds after which the hub wakes the reader with fewer packets.
    pub limit_ms: Option<u32>,
    /// Microseconds that the reader pauses after it has caught up, while packets come fast.
    pub distance_us: Option<u32>,
    /// Number of chunks, and of packets in each.
    pub chunks: ChunkOptions,
    /// The simulated NIC.
    pub sim: SimAsked,
}

/// The options of a device of this kind.
pub(super) fn parse(kind: Kind, place: TextPlace<'_>) -> Result<Options, DeviceError> {
    let mut options = Options::default();
    for part in place.split('&') {
        let (name, value) = match part.str().split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (part.str(), None),
        };
        let key = find(kind, name).map_err(|message| part.error(message))?;
        if key.get(&options).is_some() {
            return Err(part.error(format!("{name} is given twice")));
        }
        let outcome = match (key.value, value) {
            ("", Some(_)) => Err(format!("{name} takes no value")),
            ("", None) => key.set(&mut options, ""),
            (expected, None) => Err(format!("{name} needs a value: {name}={expected}")),
            (_, Some(value)) => key
                .set(&mut options, value)
                .map_err(|message| format!("{name}: {message}")),
        };
        outcome.map_err(|message| part.error(message))?;
    }
    Ok(options)
}

fn find(kind: Kind, name: &str) -> Result<&'static OptionKey, String> {
    let known = || KEYS.iter().filter(|key| key.kinds.contains(&kind));
    if let Some(key) = known().find(|key| key.name == name) {
        return Ok(key);
    }
    let list: Vec<_> = known().map(written).collect();
    let list = format!("options of {kind}: {}", list.join(", "));
    Err(match KEYS.iter().find(|key| key.name == name) {
        Some(key) => {
            let why = why_not(kind, name);
            format!("{name} is for {} only{why} ({list})", kinds(key))
        }
        None if name.is_empty() => format!("expected an option ({list})"),
        None if name.contains('@') => "queues come before options: eth0@0?exclusive".to_owned(),
        None => {
            let meant = meant(name, known().map(|key| key.name));
            format!("no option \"{name}\"{meant} ({list})")
        }
    })
}

/// The reason why xdp lacks an option that its users may expect.
fn why_not(kind: Kind, name: &str) -> &'static str {
    match (kind, name) {
        (Kind::Xdp, "chunks" | "packets") => {
            ": a chunk of xdp has as many packets as it has cells: chunk=SIZE and the largest \
             packet determine that number; pool=SIZE determines the number of chunks"
        }
        _ => "",
    }
}

fn written(key: &OptionKey) -> String {
    match key.value {
        "" => key.name.to_owned(),
        value => format!("{}={value}", key.name),
    }
}

fn kinds(key: &OptionKey) -> String {
    let prefixes = key.kinds.iter().map(|kind| kind.prefix());
    let prefixes: Vec<_> = prefixes.filter(|prefix| !prefix.is_empty()).collect();
    prefixes.join(", ")
}

/// The device's options with those that flags add.
pub(super) fn merge(device: &DeviceSpec, flags: &Options) -> Result<Options, DeviceError> {
    let mut merged = device.options.clone();
    for key in &KEYS {
        let Some(by_flag) = key.get(flags) else {
            continue;
        };
        let flag = match key.name {
            "promisc" => "-p".to_owned(),
            "stamps" => format!("-j {by_flag}"),
            name => format!("--{name} {by_flag}").trim_end().to_owned(),
        };
        if !key.kinds.contains(&device.kind) {
            return Err(DeviceError::Pointless {
                device: device.to_string(),
                flag,
                kinds: kinds(key),
            });
        }
        match key.get(&device.options) {
            Some(own) if own != by_flag => {
                return Err(DeviceError::Conflict {
                    device: device.to_string(),
                    option: format!("{}={own}", key.name),
                    flag,
                });
            }
            _ => key
                .set(&mut merged, &by_flag)
                .map_err(|message| DeviceError::BadFlag { flag, message })?,
        }
    }
    Ok(merged)
}

impl fmt::Display for Options {
    /// With the question mark before the first one; nothing if none is set.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sign = '?';
        for key in &KEYS {
            let Some(value) = key.get(self) else {
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
