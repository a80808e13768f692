// SPDX-License-Identifier: MIT OR Apache-2.0
//! Puts a bridge in user space together: memory, a socket for each queue of both sides, mirrors.
//!
//! Invariants
//! - Each queue's lane of the mirror has one writer: its port.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use ringtap_filter::{LinkType, Rules};
use ringtap_ipc::event::Event;
use ringtap_ipc::memfd::SealedPool;
use ringtap_pool::ids::LaneId;
use ringtap_pool::source::{self, SourceError};
use ringtap_pool::wake::Signal;

use super::memory::{CELLS, MirrorPlan, Umem, cell_for};
use super::mirror;
use super::port::Port;
use super::shared::Shared;
use super::waiting::Waiting;
use super::{Side, UserOptions, bind, explain_system};
use crate::CaptureError;
use crate::classifier::{LaneClassifier, LaneRules};
use crate::xdp::capture::{self, LaneCapture};
use crate::xdp::cells::Cells;
use crate::xdp::socket::{BothWays, XskSocket};
use crate::xdp::statistics::LaneStatistics;
use ringtap_net::netlink::Losses;

/// What a bridge consists of besides its sides and its thread.
pub(super) struct Made {
    pub(super) ports: Vec<Port>,
    pub(super) umem: Umem,
    pub(super) mirrors: Vec<mirror::Parts>,
}

impl Made {
    /// A port for each queue of both sides, on one memory.
    pub(super) fn new(
        options: &UserOptions,
        sides: &mut [Side],
        shared: &Arc<Shared>,
        notes: &mut Vec<String>,
    ) -> Result<Self, CaptureError> {
        let system = |action| explain_system(&options.interfaces, action);
        let (cell_size, _) = cell_for(largest(sides));
        let plans = plans(options, sides, notes)?;
        let count = sides.iter().map(|side| side.queues.len()).sum();
        let (umem, pools) =
            Umem::new(cell_size, &plans, count).map_err(system("making the memory"))?;
        let ports = ports(sides, &umem, notes)?;
        let mut made = Made {
            ports,
            umem,
            mirrors: Vec::new(),
        };
        let mut base = 0;
        for (at, (pool, plan)) in pools.into_iter().zip(&plans).enumerate() {
            let mirror = made.mirror(at, &sides[at], pool, plan, base, shared);
            made.mirrors
                .push(mirror.map_err(system("making the mirror"))?);
            base += plan.geometry.region_bytes();
        }
        Ok(made)
    }

    /// Lets what arrives at a side's ports be noted in this pool.
    fn mirror(
        &mut self,
        at: usize,
        side: &Side,
        pool: SealedPool,
        plan: &MirrorPlan,
        base: u64,
        shared: &Arc<Shared>,
    ) -> io::Result<mirror::Parts> {
        let event = Event::new()?;
        let mut parts = mirror::Parts {
            side: at,
            interface: side.name.clone(),
            hook: side.program.hook.words(),
            pool: pool.readable,
            file: pool.file,
            lanes: Vec::new(),
            ends: Vec::new(),
            event: event.clone(),
            losses: Losses::of(side.interface.index)?,
            shared: Arc::clone(shared),
        };
        let ports = self.ports.iter_mut().filter(|port| port.side == at);
        for (lane, (port, queue)) in (0..).map(LaneId).zip(ports.zip(&side.queues)) {
            let share = self.umem.add_lane(base, &plan.geometry, lane);
            let chunks = source::share(&plan.geometry, lane);
            let signal: Arc<dyn Signal> = Arc::new(event.clone());
            // SAFETY: `writable` is mapped writable, and each lane has its own share of the chunks;
            // the kernel writes into cells only, which the writer leaves to it.
            let (mut writer, ends) = unsafe { source::lane(&pool.writable, lane, chunks, signal) };
            writer.divide(plan.layout);
            let words = side.program.counters.clone();
            let statistics =
                LaneStatistics::new(Arc::clone(&port.socket), Event::new()?, words, *queue);
            let rulebook = Arc::new(LaneRules::default());
            // Until readers come, nothing is wanted.
            rulebook
                .set(&Rules::default(), &side.name, LinkType::ETHERNET)
                .map_err(|error: SourceError| io::Error::other(error.to_string()))?;
            port.notes = Some(LaneCapture::new(capture::Parts {
                cells: Cells::new(plan.layout, share),
                writer,
                classifier: LaneClassifier::new(Arc::clone(&rulebook)),
                statistics: Arc::clone(&statistics),
                queue: *queue,
            })?);
            parts.ends.push(ends);
            parts.lanes.push(mirror::Lane {
                statistics,
                rulebook,
                ring: port.received.watch(),
            });
        }
        Ok(parts)
    }
}

/// Bytes of the largest frame of either side.
fn largest(sides: &[Side]) -> u32 {
    let frames = sides
        .iter()
        .map(|side| side.interface.largest_frame_bytes());
    frames.max().unwrap_or(0)
}

/// Sizes of the mirrors, if there are any.
fn plans(
    options: &UserOptions,
    sides: &[Side],
    notes: &mut Vec<String>,
) -> Result<Vec<MirrorPlan>, CaptureError> {
    let Some(bytes) = options.mirror_bytes else {
        return Ok(Vec::new());
    };
    let mut plans = Vec::new();
    for side in sides {
        let lanes = u32::try_from(side.queues.len()).unwrap_or(u32::MAX);
        let plan = MirrorPlan::new(bytes, lanes, largest(sides));
        let plan = plan.map_err(|reason| CaptureError::Sizes {
            device: side.name.clone(),
            reason,
        })?;
        let real = plan.geometry.region_bytes();
        if real > bytes.saturating_add(1 << 20) {
            notes.push(format!(
                "{}: the mirror's pool has {} MiB, not {}: with less, slow readers would take the \
                 cells that packets are received into",
                side.name,
                real >> 20,
                bytes >> 20
            ));
        }
        plans.push(plan);
    }
    Ok(plans)
}

fn ports(
    sides: &mut [Side],
    umem: &Umem,
    notes: &mut Vec<String>,
) -> Result<Vec<Port>, CaptureError> {
    let mut first: Option<Arc<XskSocket>> = None;
    let mut ports: Vec<Port> = Vec::new();
    let counts: Vec<_> = sides.iter().map(|side| side.queues.len()).collect();
    for (at, side) in sides.iter_mut().enumerate() {
        for (number, queue) in side.queues.clone().into_iter().enumerate() {
            let both: BothWays = bind(side, queue, first.as_deref(), umem, notes)?;
            let socket = Arc::new(both.bound.socket);
            first.get_or_insert_with(|| Arc::clone(&socket));
            side.sockets.push(Arc::clone(&socket));
            let others = if at == 0 { counts[0] } else { 0 };
            let mut idle = Vec::with_capacity(usize::try_from(CELLS).unwrap_or(0));
            idle.extend(umem.of_port(ports.len()));
            ports.push(Port {
                side: at,
                socket,
                received: both.bound.received,
                fill: both.bound.fill,
                transmit: both.transmit,
                completed: both.completed,
                way_out: others + number % counts[1 - at].max(1),
                idle,
                filled: 0,
                ends: VecDeque::new(),
                dropped: 0,
                notes: None,
                waiting: Waiting::default(),
                is_closed: false,
            });
        }
    }
    Ok(ports)
}
