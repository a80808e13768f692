// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options that shape a pool (`chunks`, `packets`) and a simulated NIC.

use std::{fmt, str::FromStr};

use ringtap_packet::Sizes;

/// How a pool is divided; `None` leaves the choice to the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChunkOptions {
    /// Chunks of each lane (WireCAP's R).
    pub per_lane: Option<u32>,
    /// Packets in each chunk, exactly (WireCAP's M).
    pub packets: Option<u32>,
}

/// A simulated NIC; `None` leaves the choice to the source.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SimAsked {
    /// Sizes of packets.
    pub sizes: Option<Sizes>,
    /// Number of packets, after which none arrive; endless without it.
    pub burst: Option<u64>,
    /// Flows.
    pub flows: Option<u32>,
    /// Receive queues, each a lane.
    pub queues: Option<u32>,
    /// How packets are spread over queues; evenly if absent.
    pub skew: Option<Skew>,
    /// Packets that a receive queue's ring holds.
    pub ring: Option<u32>,
    /// The clock.
    pub clock: Option<Clock>,
}

/// The clock of a simulated NIC.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Clock {
    /// The machine's clock: packets that are not taken from the ring in time are lost.
    #[default]
    Real,
    /// Virtual time: packets have the times at which they would arrive, and wait for their readers.
    Virtual,
}

/// How packets are spread over receive queues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Skew {
    /// By weight, one weight for each queue.
    Weights(Vec<u32>),
    /// This percentage is one flow in queue 0; the other packets are spread evenly.
    Elephant(u32),
}

/// Largest sum of weights.
const MAX_WEIGHT: u32 = 10_000;

/// A text that does not spread packets over queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SkewError {
    /// Neither weights nor a percentage.
    #[error("expected a weight for each queue (7:1:1:1), or elephant:PERCENT (1 to 99)")]
    Form,
    /// All weights are 0.
    #[error("some queue must get packets")]
    NoPackets,
    /// The sum of the weights, which is too large.
    #[error("the weights' sum is above {MAX_WEIGHT}")]
    Sum(u64),
}

impl FromStr for Skew {
    type Err = SkewError;

    fn from_str(text: &str) -> Result<Self, SkewError> {
        if let Some(percent) = text.strip_prefix("elephant:") {
            let percent = percent.parse().ok().filter(|p| (1..=99).contains(p));
            return percent.map(Skew::Elephant).ok_or(SkewError::Form);
        }
        let weights: Result<Vec<u32>, _> = text.split(':').map(str::parse).collect();
        let weights = weights.map_err(|_| SkewError::Form)?;
        match weights.iter().map(|one| u64::from(*one)).sum::<u64>() {
            0 => Err(SkewError::NoPackets),
            sum if sum > MAX_WEIGHT.into() => Err(SkewError::Sum(sum)),
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
