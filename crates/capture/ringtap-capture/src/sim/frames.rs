// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bytes of simulated packets: made beforehand where they are few, else on the way.
#![forbid(unsafe_code)]

use std::ops::Range;

use ringtap_filter::hash;

use super::spread::Dealt;
use ringtap_packet::{MacAddress, Plan, Traffic, TrafficError};

/// Frames that are made beforehand, at most, and their bytes.
const MOST_FRAMES: usize = 1 << 16;
const MOST_BYTES: usize = 32 << 20;
/// Where made frames come from.
const OWN_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);

/// All frames that a simulated link may bring.
#[derive(Debug)]
pub(super) struct Frames {
    kind: Kind,
    lengths: Vec<usize>,
}

#[derive(Debug)]
enum Kind {
    /// Given ones, in turn.
    Given(Vec<Frame>),
    /// Made ones: one row of all flows for each place in the row of sizes.
    Kept { frames: Vec<Frame>, flows: usize },
    /// Too many to be kept, or each another.
    Made(Box<Plan>),
}

#[derive(Debug)]
struct Frame {
    bytes: Box<[u8]>,
    length: u32,
    hash: u32,
}

/// A frame, borrowed.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameRef<'a> {
    pub(super) bytes: &'a [u8],
    /// How many these are.
    pub(super) length: u32,
    pub(super) hash: u32,
}

/// A frame for each flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct ByFlow<'a>(&'a [Frame]);

impl<'a> ByFlow<'a> {
    #[inline(always)]
    pub(super) fn get(self, flow: u32) -> FrameRef<'a> {
        self.0[usize::try_from(flow).unwrap_or(0)].borrow()
    }
}

impl Frame {
    fn new(bytes: Vec<u8>) -> Self {
        Frame {
            hash: hash::flow(&bytes, hash::Headers::Outer),
            length: length(&bytes),
            bytes: bytes.into(),
        }
    }

    #[inline]
    fn borrow(&self) -> FrameRef<'_> {
        FrameRef {
            bytes: &self.bytes,
            length: self.length,
            hash: self.hash,
        }
    }
}

impl Frames {
    /// These frames, in turn.
    pub(super) fn given(frames: &[Vec<u8>]) -> Self {
        Frames {
            lengths: frames.iter().map(Vec::len).collect(),
            kind: Kind::Given(frames.iter().cloned().map(Frame::new).collect()),
        }
    }

    /// Packets of this traffic.
    pub(super) fn made(traffic: &Traffic) -> Result<Self, TrafficError> {
        let plan = Plan::new(traffic, OWN_MAC)?;
        let lengths = plan.lengths();
        let flows = usize::try_from(traffic.flows).unwrap_or(usize::MAX);
        let frames = lengths.len().saturating_mul(flows);
        let bytes = lengths.iter().sum::<usize>().saturating_mul(flows);
        let kind = if traffic.stamp || frames > MOST_FRAMES || bytes > MOST_BYTES {
            Kind::Made(Box::new(plan))
        } else {
            let places = 0..u64::try_from(lengths.len()).unwrap_or(0);
            Kind::Kept {
                frames: keep(&plan, places, traffic.flows),
                flows,
            }
        };
        Ok(Frames { kind, lengths })
    }

    /// Bytes of frames, in the order in which sizes repeat.
    pub(super) fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// The frame of a packet that arrives at `time_ns`; `scratch` may be needed to make it.
    #[inline]
    pub(super) fn get<'a>(
        &'a self,
        packet: Dealt,
        time_ns: u64,
        scratch: &'a mut Vec<u8>,
    ) -> FrameRef<'a> {
        match &self.kind {
            Kind::Kept { frames, flows } => {
                let row = self.place(packet.number) * flows;
                let flow = usize::try_from(packet.flow).unwrap_or(0);
                frames[row + flow].borrow()
            }
            Kind::Given(frames) => frames[self.place(packet.number)].borrow(),
            Kind::Made(plan) => {
                scratch.clear();
                plan.write_of_flow(packet.flow, packet.number, time_ns, scratch);
                FrameRef {
                    bytes: scratch,
                    length: length(scratch),
                    hash: hash::flow(scratch, hash::Headers::Outer),
                }
            }
        }
    }

    /// Frames of one size that are kept, by flow.
    pub(super) fn by_flow(&self) -> Option<ByFlow<'_>> {
        match &self.kind {
            Kind::Kept { frames, .. } if self.lengths.len() == 1 => Some(ByFlow(frames)),
            _ => None,
        }
    }

    /// Place of a packet in the row of sizes.
    #[inline]
    fn place(&self, number: u64) -> usize {
        match self.lengths.len() {
            1 => 0,
            row => usize::try_from(number).unwrap_or(0) % row,
        }
    }
}

/// No frame has more bytes than an IP packet and its headers.
fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

fn keep(plan: &Plan, places: Range<u64>, flows: u32) -> Vec<Frame> {
    let mut frames = Vec::new();
    for place in places {
        for flow in 0..flows {
            let mut bytes = Vec::new();
            plan.write_of_flow(flow, place, 0, &mut bytes);
            frames.push(Frame::new(bytes));
        }
    }
    frames
}
