// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of a simulated NIC, and why it cannot be simulated.
#![forbid(unsafe_code)]

use std::io;

use ringtap_device::{Clock, DeviceSpec, Rate, RateError, Skew};
use ringtap_packet::{Sizes, Traffic, TrafficError};

use crate::shape::{PoolAsked, ShapeError};

/// Packets that a receive queue's ring holds, unless the user says otherwise.
pub const RING: u32 = 1024;
/// Most receive queues.
pub const MOST_QUEUES: u32 = 64;

/// Packets of a simulated link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkTraffic {
    /// Generated packets.
    Generated(Traffic),
    /// These frames in turn, on a NIC with one queue.
    Given(Vec<Vec<u8>>),
}

/// A simulated NIC.
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// The device as its user wrote it.
    pub device: String,
    /// Rate of the link.
    pub rate: Rate,
    /// Packets that it brings.
    pub traffic: LinkTraffic,
    /// Number of packets after which the link ends; endless if absent.
    pub burst: Option<u64>,
    /// Receive queues, a lane each.
    pub queues: u32,
    /// Distribution of packets over queues; even if absent.
    pub skew: Option<Skew>,
    /// Packets that each queue's ring holds.
    pub ring: u32,
    /// Clock by which packets arrive.
    pub clock: Clock,
    /// Most bytes kept of a packet.
    pub snap_length: Option<u32>,
    /// The pool.
    pub pool: PoolAsked,
}

/// Why a NIC cannot be simulated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages describe the fields")]
pub enum SimError {
    #[error(transparent)]
    Rate(#[from] RateError),
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    #[error(transparent)]
    Shape(#[from] ShapeError),
    #[error("{queues} receive queues: at most {MOST_QUEUES} can be simulated")]
    Queues { queues: u32 },
    #[error("{flows} flows cannot fill {queues} queues this way: ask for flows={least} or more")]
    Flows { flows: u32, queues: u32, least: u32 },
    #[error("{weights} weights for {queues} queues: give one for each")]
    Weights { weights: usize, queues: u32 },
    #[error("virtual time needs a rate: sim:10Gbps, not sim:max")]
    VirtualMax,
    #[error("there are no frames to simulate")]
    NoFrames,
    #[error("in virtual time packets must end: say how many, burst=PACKETS")]
    Endless,
    /// The pool reported a fault of its own.
    #[error("the run failed: {0}")]
    Run(String),
    /// The system refused memory, a descriptor or a thread.
    #[error("{what}: {source}")]
    System {
        what: &'static str,
        source: io::Error,
    },
}

impl SimOptions {
    /// A NIC with one queue on a link of this rate, without end.
    #[must_use]
    pub fn new(rate: Rate) -> Self {
        SimOptions {
            device: format!("sim:{rate}"),
            rate,
            traffic: LinkTraffic::Generated(Traffic::default()),
            burst: None,
            queues: 1,
            skew: None,
            ring: RING,
            clock: Clock::Real,
            snap_length: None,
            pool: PoolAsked::default(),
        }
    }

    /// The NIC that a device's text describes.
    ///
    /// # Errors
    ///
    /// [`SimError::Rate`].
    pub fn from_device(device: &DeviceSpec) -> Result<Self, SimError> {
        let (asked, rate) = (&device.options.sim, device.name.parse()?);
        let queues = asked.queues.unwrap_or(match &asked.skew {
            Some(Skew::Weights(weights)) => u32::try_from(weights.len()).unwrap_or(u32::MAX),
            _ => 1,
        });
        let least = least_flows(queues, asked.skew.as_ref());
        let traffic = Traffic {
            sizes: asked.sizes.unwrap_or(Sizes::Fixed(64)),
            flows: asked.flows.unwrap_or(least),
            ..Traffic::default()
        };
        Ok(SimOptions {
            device: device.to_string(),
            traffic: LinkTraffic::Generated(traffic),
            burst: asked.burst,
            queues,
            skew: asked.skew.clone(),
            ring: asked.ring.unwrap_or(RING),
            clock: asked.clock.unwrap_or_default(),
            snap_length: device.options.snap_length,
            pool: PoolAsked::of(&device.options),
            ..SimOptions::new(rate)
        })
    }

    /// Flows of the link.
    pub(super) fn flows(&self) -> u32 {
        match &self.traffic {
            LinkTraffic::Generated(traffic) => traffic.flows,
            LinkTraffic::Given(_) => 1,
        }
    }

    /// Refuses combinations that cannot be simulated.
    pub(super) fn check(&self) -> Result<(), SimError> {
        let (queues, flows) = (self.queues, self.flows());
        if queues == 0 || queues > MOST_QUEUES {
            return Err(SimError::Queues { queues });
        }
        if let Some(Skew::Weights(weights)) = &self.skew
            && weights.len() != queues as usize
        {
            let weights = weights.len();
            return Err(SimError::Weights { weights, queues });
        }
        let least = least_flows(queues, self.skew.as_ref());
        if flows < least {
            return Err(SimError::Flows {
                flows,
                queues,
                least,
            });
        }
        if self.clock == Clock::Virtual && self.rate == Rate::Max {
            return Err(SimError::VirtualMax);
        }
        Ok(())
    }
}

/// One flow for each queue; an elephant is one more.
fn least_flows(queues: u32, skew: Option<&Skew>) -> u32 {
    match skew {
        Some(Skew::Elephant(_)) => queues.saturating_add(1),
        _ => queues,
    }
}
