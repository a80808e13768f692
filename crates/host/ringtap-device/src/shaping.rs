// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options that shape a pool (`chunks`, `packets`) and a simulated NIC.

use std::{fmt, str::FromStr};

use ringtap_packet::Sizes;

use super::{
    Kind,
    options::{Key, Options, choose, named, set_number},
};

/// How a pool is divided; `None` leaves the choice to the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChunkOptions {
    /// Chunks of each lane (WireCAP's R).
    pub per_lane: Option<u32>,
    /// Packets in each chunk, exactly (WireCAP's M).
    pub packets: Option<u32>,
}

/// What a simulated NIC is like; `None` leaves the choice to the source.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SimAsked {
    /// Sizes of packets.
    pub sizes: Option<Sizes>,
    /// Packets of one burst, after which nothing comes; without it packets come for ever.
    pub burst: Option<u64>,
    /// Flows.
    pub flows: Option<u32>,
    /// Receive queues, each a lane.
    pub queues: Option<u32>,
    /// How packets are spread over queues; evenly if absent.
    pub skew: Option<Skew>,
    /// Packets that a receive queue's ring holds.
    pub ring: Option<u32>,
    /// Which clock.
    pub clock: Option<Clock>,
}

/// Whose time passes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Clock {
    /// Everybody's: what is not taken from the ring in time is lost.
    #[default]
    Real,
    /// Nobody's: packets bear the times at which they would come, and wait for their readers.
    Virtual,
}

/// How packets are spread over receive queues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Skew {
    /// By weight, one a queue.
    Weights(Vec<u32>),
    /// So many percent are one flow, in queue 0; the rest is spread evenly.
    Elephant(u32),
}

/// Larger sums of weights make no difference that anybody could see.
const MOST_WEIGHT: u32 = 10_000;

impl FromStr for Skew {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = "expected a weight for each queue (7:1:1:1), or elephant:PERCENT (1 to 99)";
        if let Some(percent) = text.strip_prefix("elephant:") {
            let percent = percent.parse().ok().filter(|p| (1..=99).contains(p));
            return percent.map(Skew::Elephant).ok_or(expected.to_owned());
        }
        let weights: Result<Vec<u32>, _> = text.split(':').map(str::parse).collect();
        let weights = weights.map_err(|_| expected)?;
        let sum: u64 = weights.iter().map(|one| u64::from(*one)).sum();
        match sum {
            0 => Err("some queue must get packets".to_owned()),
            1.. if sum > MOST_WEIGHT.into() => {
                Err(format!("the weights' sum is above {MOST_WEIGHT}"))
            }
            _ => Ok(Skew::Weights(weights)),
        }
    }
}

impl fmt::Display for Skew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Skew::Elephant(percent) => write!(f, "elephant:{percent}"),
            Skew::Weights(weights) => {
                let words: Vec<_> = weights.iter().map(ToString::to_string).collect();
                f.write_str(&words.join(":"))
            }
        }
    }
}

const CLOCKS: [(&str, Clock); 2] = [("real", Clock::Real), ("virtual", Clock::Virtual)];
const SIM: &[Kind] = &[Kind::Sim];
/// Whose pools can be shaped exactly.
const SHAPED: &[Kind] = &[Kind::Auto, Kind::Tap, Kind::Packet, Kind::Pcap, Kind::Sim];

/// Why an option is not for a kind of source whose users may expect it.
pub(super) fn why_not(kind: Kind, name: &str) -> &'static str {
    match (kind, name) {
        (Kind::Xdp, "chunks" | "packets") => {
            ": a chunk of xdp has as many packets as it has cells, so that chunk=SIZE and the \
             largest packet say how many; pool=SIZE says how many chunks there are"
        }
        _ => "",
    }
}

/// A number of a simulated NIC, at least 1 unless said otherwise.
macro_rules! number {
    ($name:literal, $value:literal, $kinds:expr, $($field:ident).+) => {
        Key {
            name: $name,
            flag: concat!("--", $name),
            value: $value,
            kinds: $kinds,
            set: |options, text| set_number(&mut options.$($field).+, text),
            get: |options| options.$($field).+.map(|number| number.to_string()),
        }
    };
}

pub(super) static KEYS: [Key; 9] = [
    number!("chunks", "CHUNKS", SHAPED, chunks.per_lane),
    number!("packets", "PACKETS", SHAPED, chunks.packets),
    Key {
        name: "size",
        flag: "--size",
        value: "BYTES|imix",
        kinds: SIM,
        set: set_sizes,
        get: |options| {
            options.sim.sizes.map(|sizes| match sizes {
                Sizes::Imix => "imix".to_owned(),
                Sizes::Fixed(bytes) => bytes.to_string(),
            })
        },
    },
    number!("burst", "PACKETS", SIM, sim.burst),
    number!("flows", "FLOWS", SIM, sim.flows),
    number!("queues", "QUEUES", SIM, sim.queues),
    Key {
        name: "skew",
        flag: "--skew",
        value: "WEIGHT:WEIGHT...|elephant:PERCENT",
        kinds: SIM,
        set: |options, text| {
            options.sim.skew = Some(text.parse()?);
            Ok(())
        },
        get: |options| options.sim.skew.as_ref().map(Skew::to_string),
    },
    number!("ring", "PACKETS", SIM, sim.ring),
    Key {
        name: "clock",
        flag: "--clock",
        value: "real|virtual",
        kinds: SIM,
        set: |options, text| choose(&mut options.sim.clock, &CLOCKS, text),
        get: |options| named(options.sim.clock, &CLOCKS),
    },
];

fn set_sizes(options: &mut Options, text: &str) -> Result<(), String> {
    let sizes = match text {
        "imix" => Some(Sizes::Imix),
        _ => text.parse().ok().map(Sizes::Fixed),
    };
    options.sim.sizes = Some(sizes.ok_or("expected bytes on the wire, from 64, or imix")?);
    Ok(())
}
