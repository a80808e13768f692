// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a simulated NIC is asked to be, and why it cannot be that.
#![forbid(unsafe_code)]

use std::io;

use crate::shape::{PoolAsked, ShapeError};
use ringtap_device::{Clock, DeviceSpec, Skew};
use ringtap_device::{Rate, RateError};
use ringtap_packet::{Sizes, Traffic, TrafficError};

/// Packets that a receive queue's ring holds, unless the user says otherwise.
pub const RING: u32 = 1024;
/// Most receive queues.
pub const MOST_QUEUES: u32 = 64;

/// What a simulated link brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Load {
    /// Packets made by a plan.
    Made(Traffic),
    /// These frames, in turn.
    Given(Vec<Vec<u8>>),
}

/// A simulated NIC.
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// The device as its user wrote it.
    pub device: String,
    /// Rate of the link.
    pub rate: Rate,
    /// What comes over it.
    pub load: Load,
    /// How many packets come; without end if absent.
    pub burst: Option<u64>,
    /// Receive queues, a lane each.
    pub queues: u32,
    /// How packets are spread over them; evenly if absent.
    pub skew: Option<Skew>,
    /// Packets that wait in each queue's ring.
    pub ring: u32,
    /// Packets that wait in the NIC itself before each ring.
    pub fifo: u32,
    /// Which clock.
    pub clock: Clock,
    /// Most bytes kept of a packet.
    pub snap_length: Option<u32>,
    /// The pool.
    pub pool: PoolAsked,
}

/// Why a NIC cannot be simulated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// The rate of the link.
    #[error(transparent)]
    Rate(#[from] RateError),
    /// The packets.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    /// The pool.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// Too many queues.
    #[error("{queues} receive queues: at most {MOST_QUEUES} can be simulated")]
    Queues {
        /// Queues asked for.
        queues: u32,
    },
    /// A flow belongs to one queue.
    #[error("{flows} flows cannot fill {queues} queues this way: ask for flows={least} or more")]
    Flows {
        /// Flows asked for.
        flows: u32,
        /// Queues asked for.
        queues: u32,
        /// Flows that would do.
        least: u32,
    },
    /// Weights and queues do not match.
    #[error("{weights} weights for {queues} queues: give one for each")]
    Weights {
        /// Weights given.
        weights: usize,
        /// Queues asked for.
        queues: u32,
    },
    /// There is no time in which nothing takes time.
    #[error("virtual time needs a rate: sim:10Gbps, not sim:max")]
    VirtualMax,
    /// There is nothing to bring.
    #[error("there are no frames to simulate")]
    NoFrames,
    /// A run in virtual time has to end.
    #[error("in virtual time packets must end: say how many, burst=PACKETS")]
    Endless,
    /// The run was set up wrongly.
    #[error("{readers} readers for {queues} queues: give each queue one, or all queues one")]
    Readers {
        /// Readers asked for.
        readers: u32,
        /// Queues asked for.
        queues: u32,
    },
    /// The pool's own code failed, which it never should.
    #[error("the run failed: {0}")]
    Run(String),
    /// The system refused memory, a descriptor or a thread.
    #[error("{what}: {source}")]
    System {
        /// What was asked for.
        what: &'static str,
        /// What the system said.
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
            load: Load::Made(Traffic::default()),
            burst: None,
            queues: 1,
            skew: None,
            ring: RING,
            fifo: 0,
            clock: Clock::Real,
            snap_length: None,
            pool: PoolAsked::default(),
        }
    }

    /// What a device's text asks for.
    ///
    /// # Errors
    ///
    /// [`SimError::Rate`].
    pub fn from_device(device: &DeviceSpec) -> Result<Self, SimError> {
        let (asked, rate) = (&device.options.sim, device.name.parse()?);
        let queues = match (&asked.skew, asked.queues) {
            (_, Some(queues)) => queues,
            (Some(Skew::Weights(weights)), None) => {
                u32::try_from(weights.len()).unwrap_or(u32::MAX)
            }
            _ => 1,
        };
        let least = least_flows(queues, asked.skew.as_ref());
        let traffic = Traffic {
            sizes: asked.sizes.unwrap_or(Sizes::Fixed(64)),
            flows: asked.flows.unwrap_or(least),
            stamp: asked.stamp,
            ..Traffic::default()
        };
        Ok(SimOptions {
            device: device.to_string(),
            load: Load::Made(traffic),
            burst: asked.burst,
            queues,
            skew: asked.skew.clone(),
            ring: asked.ring.unwrap_or(RING),
            fifo: asked.fifo.unwrap_or(0),
            clock: asked.clock.unwrap_or_default(),
            snap_length: device.options.snap_length,
            pool: PoolAsked::of(&device.options),
            ..SimOptions::new(rate)
        })
    }

    /// Flows of the link.
    pub(super) fn flows(&self) -> u32 {
        match &self.load {
            Load::Made(traffic) => traffic.flows,
            Load::Given(_) => self.queues,
        }
    }

    pub(super) fn check(&self) -> Result<(), SimError> {
        let (queues, flows) = (self.queues, self.flows());
        if queues == 0 || queues > MOST_QUEUES {
            return Err(SimError::Queues { queues });
        }
        match &self.skew {
            Some(Skew::Weights(weights)) if u32::try_from(weights.len()) != Ok(queues) => {
                let weights = weights.len();
                return Err(SimError::Weights { weights, queues });
            }
            _ => {}
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

/// Every queue has a flow; with an elephant in queue 0 that has another one.
fn least_flows(queues: u32, skew: Option<&Skew>) -> u32 {
    match skew {
        Some(Skew::Elephant(_)) => queues.saturating_add(1),
        _ => queues,
    }
}
