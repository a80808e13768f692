// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of a simulated NIC.

use ringtap_device::{Clock, DeviceSpec, Rate, Skew};
use ringtap_packet::{Sizes, Traffic};
use ringtap_pool::number::to_u32;

use crate::CaptureError;
use crate::shape::PoolAsked;

/// Packets that a receive queue's ring holds, unless the user says otherwise.
pub const RING: u32 = 1024;
/// Most receive queues.
pub const MAX_QUEUES: u32 = 64;

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
    pub fn from_device(device: &DeviceSpec) -> Result<Self, CaptureError> {
        let (asked, rate) = (&device.options.sim, device.name.parse()?);
        let queues = asked.queues.unwrap_or(match &asked.skew {
            Some(Skew::Weights(weights)) => to_u32(weights.len()),
            _ => 1,
        });
        let least = min_flows(queues, asked.skew.as_ref());
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
            pool: PoolAsked::from_options(&device.options),
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
    pub(super) fn check(&self) -> Result<(), CaptureError> {
        let (queues, flows) = (self.queues, self.flows());
        if queues == 0 || queues > MAX_QUEUES {
            return Err(CaptureError::SimQueues { queues });
        }
        if let Some(Skew::Weights(weights)) = &self.skew
            && weights.len() != queues as usize
        {
            let weights = weights.len();
            return Err(CaptureError::SimWeights { weights, queues });
        }
        let least = min_flows(queues, self.skew.as_ref());
        if flows < least {
            return Err(CaptureError::SimFlows {
                flows,
                queues,
                least,
            });
        }
        if self.clock == Clock::Virtual && self.rate == Rate::Max {
            return Err(CaptureError::VirtualMax);
        }
        Ok(())
    }
}

/// One flow for each queue; an elephant is one more.
fn min_flows(queues: u32, skew: Option<&Skew>) -> u32 {
    match skew {
        Some(Skew::Elephant(_)) => queues.saturating_add(1),
        _ => queues,
    }
}
