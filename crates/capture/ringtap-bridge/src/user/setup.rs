// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds the worker of a user-space bridge: memory, a socket for each queue of both sides, mirrors.
//!
//! Invariants
//! - Each queue's lane of the mirror has one writer: its port.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Instant;

use ringtap_capture::CaptureError;
use ringtap_capture::nic::SharedLosses;
use ringtap_capture::source::SourceSetup;
use ringtap_capture::xdp::QueueLane;
use ringtap_capture::xdp::capture::LaneCapture;
use ringtap_capture::xdp::cells::CellShare;
use ringtap_capture::xdp::options::cell_for;
use ringtap_capture::xdp::socket::{BothWays, XskSocket};
use ringtap_capture::xdp::statistics::LaneStatistics;
use ringtap_filter::Rules;
use ringtap_ipc::event::Event;
use ringtap_ipc::memfd::SealedPool;
use ringtap_pool::number::{to_u32, to_usize};
use ringtap_pool::source::Source;

use super::inline::InlineReader;
use super::memory::{BridgeMemory, CELLS, MirrorPlan};
use super::mirror::{self, MirrorDriver};
use super::port::BridgePort;
use super::shared::BridgeState;
use super::side::{Side, bind, system};
use super::waiting::WaitingPackets;
use super::worker::BridgeWorker;
use crate::BridgeOptions;

/// The thread's handle to a mirror that it writes; dropping it ends the source.
pub(super) struct MirrorWriter {
    pub(super) outcome: Sender<CaptureError>,
    pub(super) event: Event,
}

impl BridgeWorker {
    /// Creates a port for each queue of both sides, on one memory, and the mirrors.
    pub(super) fn new(
        options: &BridgeOptions,
        inline: Option<InlineReader>,
        both: &str,
        sides: &mut [Side],
        shared: &Arc<BridgeState>,
        notes: &mut Vec<String>,
    ) -> Result<(Self, Vec<Source>), CaptureError> {
        let (cell_size, _) = cell_for(largest(sides));
        let plans = plans(options.mirror_bytes, sides, notes)?;
        let count = sides.iter().map(|side| side.queues.len()).sum();
        let memory = BridgeMemory::new(cell_size, &plans, count);
        let (memory, pools) = memory.map_err(system(both, "making the memory"))?;
        let mut worker = BridgeWorker {
            ports: ports(sides, &memory, notes)?,
            memory,
            passing: options.passing.clone(),
            shared: Arc::clone(shared),
            mirrors: [None, None],
            completes_checksums: [0, 1].map(|side| sides[side].interface.is_virtual()),
            gathered: Vec::new(),
            pieces: Vec::new(),
            inline,
            released: Vec::new(),
            now: Instant::now(),
        };
        let (mut mirrors, mut base) = (Vec::new(), 0);
        for (at, (pool, plan)) in pools.into_iter().zip(&plans).enumerate() {
            mirrors.push(worker.mirror(at, &sides[at], pool, plan, base)?);
            base += plan.geometry.region_bytes();
        }
        Ok((worker, mirrors))
    }

    /// Creates the mirror of a side in this pool; the side's ports write it.
    fn mirror(
        &mut self,
        at: usize,
        side: &Side,
        pool: SealedPool,
        plan: &MirrorPlan,
        base: u64,
    ) -> Result<Source, CaptureError> {
        let mut setup = SourceSetup::with_pool(&side.interface.name, pool)?;
        let mut lanes = Vec::new();
        let ports = self.ports.iter_mut().filter(|port| port.side == at);
        for (new, (port, queue)) in setup.lanes(None).into_iter().zip(ports.zip(&side.queues)) {
            let share = CellShare::of(&plan.geometry, new.id, base);
            self.memory.add_lane(&share);
            let counters = side.program.counters.clone();
            let made = Event::new().and_then(|stop| {
                let socket = Arc::clone(&port.socket);
                let statistics = LaneStatistics::new(socket, stop, counters, *queue);
                LaneCapture::new(new, plan.layout, share, statistics, *queue)
            });
            let capture = made.map_err(system(&side.interface.name, "making a lane"))?;
            lanes.push(QueueLane {
                queue: *queue,
                statistics: Arc::clone(&capture.statistics),
                ring: port.received.watch(),
            });
            port.capture = Some(capture);
        }
        let driver = MirrorDriver {
            side: at,
            lanes: lanes.into(),
            nic: SharedLosses::of(&side.interface)?,
            shared: Arc::clone(&self.shared),
        };
        let facts = mirror::facts(
            &side.interface.name,
            side.program.hook,
            plan.geometry.snap_length,
        );
        let event = setup.event();
        let (mut source, outcome) = setup.without_threads(facts, Box::new(driver))?;
        // Select no packet until readers subscribe.
        let set = source
            .rules
            .classify(&Rules::default())
            .map_err(io::Error::other);
        set.map_err(system(&side.interface.name, "setting the mirror's rules"))?;
        self.mirrors[at & 1] = Some(MirrorWriter { outcome, event });
        Ok(source)
    }
}

/// Largest frame of both sides, in bytes.
fn largest(sides: &[Side]) -> u32 {
    let frames = sides
        .iter()
        .map(|side| side.interface.largest_frame_bytes());
    frames.max().unwrap_or(0)
}

/// Sizes of the mirrors, if there are any.
fn plans(
    mirror_bytes: Option<u64>,
    sides: &[Side],
    notes: &mut Vec<String>,
) -> Result<Vec<MirrorPlan>, CaptureError> {
    let Some(bytes) = mirror_bytes else {
        return Ok(Vec::new());
    };
    let mut plans = Vec::new();
    for side in sides {
        let lanes = to_u32(side.queues.len());
        let plan = MirrorPlan::new(bytes, lanes, largest(sides)).map_err(|reason| {
            CaptureError::Sizes {
                device: side.interface.name.clone(),
                reason,
            }
        })?;
        let real = plan.geometry.region_bytes();
        if real > bytes.saturating_add(1 << 20) {
            notes.push(format!(
                "{}: the mirror's pool has {} MiB, not {}: with less, slow readers would take the \
                 cells that packets are received into",
                side.interface.name,
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
    memory: &BridgeMemory,
    notes: &mut Vec<String>,
) -> Result<Vec<BridgePort>, CaptureError> {
    let mut first: Option<Arc<XskSocket>> = None;
    let mut ports: Vec<BridgePort> = Vec::new();
    let counts: Vec<_> = sides.iter().map(|side| side.queues.len()).collect();
    for (at, side) in sides.iter_mut().enumerate() {
        for (number, queue) in side.queues.clone().into_iter().enumerate() {
            let both: BothWays = bind(side, queue, first.as_deref(), memory, notes)?;
            let socket = Arc::new(both.bound.socket);
            first.get_or_insert_with(|| Arc::clone(&socket));
            side.sockets.push(Arc::clone(&socket));
            let others = if at == 0 { counts[0] } else { 0 };
            let mut idle = Vec::with_capacity(to_usize(CELLS));
            idle.extend(memory.of_port(ports.len()));
            ports.push(BridgePort {
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
                capture: None,
                waiting: WaitingPackets::default(),
                is_closed: false,
            });
        }
    }
    Ok(ports)
}
