// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes of simulated packets: built beforehand where they are few, else one by one.

use ringtap_filter::Headers;
use ringtap_filter::hash::{HashKeys, HashSeed, Link};
use ringtap_packet::{MacAddress, Plan, TrafficError};
use ringtap_pool::number::to_u32;

use super::options::LinkTraffic;
use super::spread::LinkPacket;

/// Most frames that are built beforehand, and most bytes of these.
const MAX_FRAMES: usize = 1 << 16;
const MAX_BYTES: usize = 32 << 20;
/// Keys of the simulated NIC's hash.
const NIC_KEYS: HashKeys = HashKeys::new(HashSeed(0));
/// Source address of generated frames.
const OWN_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);

/// All frames that a simulated link may bring.
#[derive(Debug)]
pub(super) struct Frames {
    /// Frames by place in the cycle of sizes, then by flow.
    ready: Vec<SimFrame>,
    /// Builds the frames if they are too many to be ready.
    plan: Option<Plan>,
    flows: u32,
    lengths: Vec<usize>,
}

/// One frame with its flow hash.
#[derive(Debug, Default)]
pub(super) struct SimFrame {
    pub(super) bytes: Vec<u8>,
    pub(super) hash: u32,
}

impl SimFrame {
    fn new(bytes: Vec<u8>) -> Self {
        let hash = NIC_KEYS.flow(&bytes, Link::Ethernet, Headers::Outer);
        SimFrame { bytes, hash }
    }

    /// Length in bytes; no frame is longer than an IP packet and its headers.
    #[inline]
    pub(super) fn length(&self) -> u32 {
        to_u32(self.bytes.len())
    }
}

impl Frames {
    pub(super) fn new(traffic: &LinkTraffic) -> Result<Self, TrafficError> {
        let (ready, plan, flows, lengths) = match traffic {
            LinkTraffic::Given(frames) => {
                let lengths = frames.iter().map(Vec::len).collect();
                let frames = frames.iter().cloned().map(SimFrame::new);
                (frames.collect(), None, 1, lengths)
            }
            LinkTraffic::Generated(traffic) => {
                let plan = Plan::new(traffic, OWN_MAC)?;
                let lengths = plan.lengths();
                let flows = traffic.flows as usize;
                let bytes = lengths.iter().sum::<usize>().saturating_mul(flows);
                if lengths.len().saturating_mul(flows) > MAX_FRAMES || bytes > MAX_BYTES {
                    (Vec::new(), Some(plan), traffic.flows, lengths)
                } else {
                    let places = 0..lengths.len() as u64;
                    let frames = places.flat_map(|place| {
                        let plan = &plan;
                        (0..traffic.flows).map(move |flow| generate(plan, flow, place))
                    });
                    (frames.collect(), None, traffic.flows, lengths)
                }
            }
        };
        Ok(Frames {
            ready,
            plan,
            flows,
            lengths,
        })
    }

    /// Lengths of frames in bytes, in the order in which sizes repeat.
    pub(super) fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// The frame of a packet; `scratch` holds it if it has to be built.
    #[inline]
    pub(super) fn get<'a>(&'a self, packet: LinkPacket, scratch: &'a mut SimFrame) -> &'a SimFrame {
        match &self.plan {
            None => {
                let row = self.place(packet.number) * self.flows as usize;
                &self.ready[row + packet.flow as usize]
            }
            Some(plan) => {
                *scratch = generate(plan, packet.flow, packet.number);
                scratch
            }
        }
    }

    /// Place of a packet in the cycle of sizes.
    #[inline]
    fn place(&self, number: u64) -> usize {
        match self.lengths.len() {
            1 => 0,
            sizes => usize::try_from(number % sizes as u64).unwrap_or(0),
        }
    }
}

fn generate(plan: &Plan, flow: u32, number: u64) -> SimFrame {
    let mut bytes = Vec::new();
    plan.write_of_flow(flow, number, 0, &mut bytes);
    SimFrame::new(bytes)
}
