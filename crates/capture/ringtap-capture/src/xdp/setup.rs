// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds a source: program, pool, and a socket and a worker for each queue.
//!
//! Invariants
//! - Copy mode replaces zero-copy only where the kernel refuses zero-copy; a note gives the reason.

use std::io;
use std::sync::Arc;

use ringtap_device::{Mode, StampClock};
use ringtap_ipc::event::Event;
use ringtap_ipc::memfd::SealedPool;
use ringtap_net::interface::Interface;
use ringtap_net::rights::Purpose;
use ringtap_pool::format::Geometry;
use ringtap_pool::number::to_u32;
use ringtap_pool::source::Facts;
use ringtap_pool::writer::{Cell, CellLayout};
use rustix::net::xdp::SocketAddrXdpFlags as Flags;

use super::capture::LaneCapture;
use super::cells::CellShare;
use super::layout::state;
use super::options::{HEADROOM, XdpPlan, cell_for};
use super::program::QueueProgram;
use super::socket::{self, BUSY_LIMIT, Bound, SocketMemory, SocketSettings, Umem};
use super::statistics::LaneStatistics;
use super::worker::QueueWorker;
use super::{QueueLane, XdpOptions, facts};
use crate::fallback::first_accepted;
use crate::source::{NewLane, SourceSetup, SourceThread};
use crate::{CaptureError, queues};
use ringtap_bpf::attach::{self, Binding, Variants};
use ringtap_bpf::conflict::{self, Effect};
use ringtap_bpf::link::Hook;

/// Maximum number of a queue's cells that the kernel holds. At 5 million packets/s the cells last
/// 3 ms while the thread is not scheduled. Fewer cells stay in the caches and are faster, but lose
/// packets in these gaps.
const MAX_CELLS: u32 = 16_384;
const MIN_ENTRIES: u32 = 64;

/// Limit of cells that the kernel holds, for one queue.
fn max_cells(geometry: &Geometry, layout: CellLayout) -> u32 {
    let all = (geometry.chunk_count - 1) / geometry.lane_count * layout.count;
    all.min(MAX_CELLS)
}

/// A source before its threads are started.
pub(super) struct XdpSetup {
    pub(super) program: QueueProgram,
    pub(super) shell: SourceSetup,
    pub(super) lanes: Vec<QueueLane>,
    pub(super) workers: Vec<SourceThread>,
    pub(super) facts: Facts,
}

impl XdpSetup {
    /// Sets up the source that `options` describe.
    ///
    /// # Errors
    ///
    /// Every [`CaptureError`] except those of a later removal of the interface.
    pub(super) fn new(options: &XdpOptions, interface: &Interface) -> Result<Self, CaptureError> {
        let name = || interface.name.clone();
        attach::require_rights(&interface.name, Purpose::Xdp)?;
        if options.on.mode == Mode::Tc {
            return Err(CaptureError::NoTc { interface: name() });
        }
        let queues = queues::selected(&options.on.queues, interface)?;
        let plan = XdpPlan::new(options, interface, to_u32(queues.len()))?;
        conflict::refuse_another_ringtap(interface, Effect::Takes, &[])?;
        conflict::wait_for_another(interface, |_| true)?;
        let mut notes = Vec::new();
        let binding = match options.on.stamps {
            StampClock::Host => Binding::ToInterface,
            StampClock::Nic => Binding::Required,
        };
        let hooks = attach::hooks(
            options.on.mode,
            Variants::Xdp,
            binding,
            interface,
            &mut notes,
        );
        first_accepted(&hooks, &mut notes, |hook, notes| {
            let program = QueueProgram::load(hook, interface, options.on.stamps)?;
            let setup = XdpSetup::behind(program, options, interface, &plan, &queues, notes)?;
            // Last: every packet that the program sees finds its socket ready.
            setup.program.attach(interface)?;
            Ok(setup)
        })
    }

    /// Sets up everything except attaching the program.
    fn behind(
        program: QueueProgram,
        options: &XdpOptions,
        interface: &Interface,
        plan: &XdpPlan,
        queues: &[u16],
        notes: &[String],
    ) -> Result<Self, CaptureError> {
        let mut notes = notes.to_vec();
        let mut shell = SourceSetup::new(&interface.name, plan.geometry)?;
        let pool = &shell.pool;
        let (sockets, layout) =
            sockets(options, interface, plan, &program, queues, pool, &mut notes)?;
        let new_lanes = shell.lanes(None);
        let snap_length = plan.geometry.snap_length;
        let mut setup = XdpSetup {
            facts: facts(options, snap_length, program.hook.words(), notes),
            program,
            shell,
            lanes: Vec::new(),
            workers: Vec::new(),
        };
        for ((queue, bound), lane) in queues.iter().zip(sockets).zip(new_lanes) {
            setup
                .add(options, *queue, bound, layout, lane)
                .map_err(CaptureError::system(&interface.name, "setting up a queue"))?;
        }
        Ok(setup)
    }

    fn add(
        &mut self,
        options: &XdpOptions,
        queue: u16,
        bound: Bound,
        layout: CellLayout,
        lane: NewLane,
    ) -> io::Result<()> {
        if options.busy_poll {
            bound.socket.prefer_busy_poll()?;
        }
        self.program.set_socket(queue, &bound.socket)?;
        self.program.set_state(queue, state::ON);
        let counters = self.program.counters.clone();
        let socket = Arc::new(bound.socket);
        let statistics = LaneStatistics::new(socket, Event::new()?, counters, queue);
        let ring = bound.received.watch();
        let geometry = self.shell.pool.writable.geometry();
        let share = CellShare::for_lane(geometry, lane.id, 0);
        let capture = LaneCapture::new(lane, layout, share, Arc::clone(&statistics), queue)?;
        let max_cells = max_cells(geometry, layout);
        let (received, fill, poll) = (bound.received, bound.fill, options.busy_poll);
        let mut worker = QueueWorker::new(received, fill, capture, max_cells, poll);
        let work = move || {
            worker.work();
            Ok(())
        };
        self.workers.push((format!("xdp-{queue}"), Box::new(work)));
        self.lanes.push(QueueLane {
            queue,
            statistics,
            ring,
        });
        Ok(())
    }
}

/// Opens a socket for each queue in the best mode that the kernel accepts; returns the cell layout
/// of that mode too.
fn sockets(
    options: &XdpOptions,
    interface: &Interface,
    plan: &XdpPlan,
    program: &QueueProgram,
    queues: &[u16],
    pool: &SealedPool,
    notes: &mut Vec<String>,
) -> Result<(Vec<Bound>, CellLayout), CaptureError> {
    let is_native = program.hook != Hook::Generic;
    let several = if plan.needs_several {
        Flags::XDP_USE_SG
    } else {
        Flags::empty()
    };
    let attempt = |mode, layout: CellLayout| {
        let wanted = SocketSettings {
            interface: interface.index,
            cell: layout.cell,
            entries: max_cells(&plan.geometry, layout)
                .next_power_of_two()
                .max(MIN_ENTRIES),
            flags: mode | Flags::XDP_USE_NEED_WAKEUP | several,
        };
        all(&wanted, queues, pool).map(|sockets| (sockets, layout))
    };
    let failed = |(queue, error)| {
        let pool_bytes = plan.geometry.region_bytes();
        explain(error, queue, interface, pool_bytes, plan.aligned.cell)
    };
    if options.zero_copy && is_native {
        match attempt(Flags::XDP_ZEROCOPY, plan.aligned) {
            Ok(made) => return Ok(made),
            Err((queue, error)) if error.raw_os_error() == Some(libc::EBUSY) => {
                return Err(failed((queue, error)));
            }
            Err((_, error)) => notes.push(format!(
                "{}: the driver gives AF_XDP no zero-copy ({error}); falling back to copy mode: \
                 the kernel copies each packet once, into the pool",
                interface.name
            )),
        }
    } else if options.on.mode == Mode::Auto && options.zero_copy {
        notes.push(format!(
            "{}: no zero-copy without native XDP: the kernel copies each packet once, into the pool",
            interface.name
        ));
    }
    attempt(Flags::XDP_COPY, plan.staggered).map_err(failed)
}

fn all(
    wanted: &SocketSettings,
    queues: &[u16],
    pool: &SealedPool,
) -> Result<Vec<Bound>, (u16, io::Error)> {
    let mut sockets: Vec<Bound> = Vec::new();
    for queue in queues {
        let umem = match sockets.first() {
            None => SocketMemory::from_region(pool.writable.region()).map(Umem::New),
            Some(first) => Ok(Umem::Of(&first.socket)),
        };
        let bound = umem.and_then(|umem| socket::receiving(wanted, *queue, umem));
        sockets.push(bound.map_err(|error| (*queue, error))?);
    }
    Ok(sockets)
}

/// The error for a socket that could not be opened.
pub(crate) fn explain(
    error: io::Error,
    queue: u16,
    interface: &Interface,
    pool_bytes: u64,
    cell: Cell,
) -> CaptureError {
    let frame_bytes = interface.largest_frame_bytes();
    let name = interface.name.clone();
    match error.raw_os_error() {
        Some(libc::EBUSY) => CaptureError::Busy {
            interface: name,
            queue,
            waited_ms: BUSY_LIMIT.as_millis(),
        },
        Some(libc::ENOBUFS | libc::ENOMEM) => CaptureError::NotPinned {
            interface: name,
            pool_bytes,
        },
        Some(libc::EOPNOTSUPP | libc::EINVAL) if cell_for(frame_bytes).1 => {
            CaptureError::NoMultiBuffer {
                interface: name,
                frame_bytes,
                max_bytes: cell.size - HEADROOM - 22,
                reason: error,
            }
        }
        _ => CaptureError::System {
            device: name,
            action: "binding an AF_XDP socket",
            reason: error,
        },
    }
}
