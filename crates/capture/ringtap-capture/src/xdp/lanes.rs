// SPDX-License-Identifier: MIT OR Apache-2.0
//! Puts a source together: program, pool, a socket and a worker for each queue.
//!
//! Invariants
//! - Zero-copy is left for copy mode only where the kernel refuses it, and a note says why.

use std::io;
use std::sync::Arc;

use ringtap_ipc::event::Event;
use ringtap_ipc::memfd::SealedPool;
use ringtap_pool::distributor::LaneEnds;
use ringtap_pool::format::Geometry;
use ringtap_pool::ids::LaneId;
use ringtap_pool::source::{self, Facts};
use ringtap_pool::wake::Signal;
use ringtap_pool::writer::CellLayout;
use rustix::net::xdp::SocketAddrXdpFlags as Flags;

use super::book::Book;
use super::cells::{Cells, Share};
use super::front::{self, Front};
use super::notes::{self, Notes};
use super::options::{HEADROOM, Plan};
use super::ring::RingWatch;
use super::socket::{self, Bound, Memory, PATIENCE, Umem, Wanted};
use super::words::state;
use super::worker::{Parts, Worker};
use super::{XdpError, XdpOptions, facts};
use crate::classify::{Judge, Rulebook};
use crate::tap::TapError;
use crate::tap::holder;
use crate::tap::hook::Hook;
use ringtap_device::Mode;
use ringtap_net::interface::Interface;
use ringtap_net::rights::{Purpose, Rights};

/// Most cells of a queue that the kernel has at a time: at five packets a microsecond they last for
/// three milliseconds in which the thread is not scheduled. Fewer are faster, as they stay in the
/// caches, and lose packets then.
const MOST_CELLS: u32 = 16_384;
const LEAST_ENTRIES: u32 = 64;

/// A queue's worker before its thread is started.
pub(super) struct Ready {
    pub(super) worker: Worker,
    pub(super) book: Arc<Book>,
    pub(super) rulebook: Arc<Rulebook>,
    pub(super) ring: RingWatch,
}

/// A lane, the queue behind it, and how its chunks are divided.
#[derive(Clone, Copy)]
struct Lane {
    id: LaneId,
    queue: u16,
    layout: CellLayout,
}

/// Cells of a queue that the kernel has at most.
fn most_cells(geometry: &Geometry, layout: CellLayout) -> u32 {
    let all = (geometry.chunk_count - 1) / geometry.lane_count * layout.count;
    all.min(MOST_CELLS)
}

/// Everything, before threads are started.
pub(super) struct Made {
    pub(super) front: Front,
    pub(super) pool: SealedPool,
    pub(super) ends: Vec<LaneEnds>,
    pub(super) workers: Vec<(u16, Ready)>,
    pub(super) event: Event,
    pub(super) facts: Facts,
}

impl Made {
    /// Makes what `options` ask for.
    ///
    /// # Errors
    ///
    /// Every [`XdpError`] but those of an interface that goes away later.
    pub(super) fn new(options: &XdpOptions, interface: &Interface) -> Result<Self, XdpError> {
        let name = || interface.name.clone();
        Rights::of_this_process()
            .require(Purpose::Xdp)
            .map_err(|reason| XdpError::NoRights {
                interface: name(),
                reason,
            })?;
        if options.mode == Mode::Tc {
            return Err(XdpError::NoTc { interface: name() });
        }
        let queues = options.chosen(interface)?;
        let lanes = u32::try_from(queues.len()).unwrap_or(u32::MAX);
        let plan = Plan::new(options, interface, lanes)?;
        holder::wait_for_another(interface, |_| true)?;
        let mut notes = Vec::new();
        let hooks = front::hooks(options, interface, &mut notes);
        for (at, hook) in hooks.iter().enumerate() {
            let front = Front::load(*hook, interface, plan.geometry.snap_length)?;
            let mut made = Made::behind(front, options, interface, &plan, &queues, &notes)?;
            // Last, so that every packet that the program sees finds its socket ready.
            match (made.front.attach(interface), hooks.get(at + 1)) {
                (Ok(()), _) => return Ok(made),
                (Err(error @ TapError::Refused { .. }), Some(next)) => {
                    notes.push(format!("{error}; falling back to {}", next.words()));
                }
                (Err(error), _) => return Err(error.into()),
            }
        }
        Err(XdpError::System {
            interface: name(),
            action: "choosing a hook",
            reason: io::ErrorKind::Unsupported.into(),
        })
    }

    /// Everything behind a program that is not yet attached.
    fn behind(
        front: Front,
        options: &XdpOptions,
        interface: &Interface,
        plan: &Plan,
        queues: &[u16],
        notes: &[String],
    ) -> Result<Self, XdpError> {
        let system = |action| {
            let interface = interface.name.clone();
            move |reason| XdpError::System {
                interface,
                action,
                reason,
            }
        };
        let mut notes = notes.to_vec();
        let pool = SealedPool::create(plan.geometry).map_err(system("making the pool"))?;
        let (sockets, layout) =
            sockets(options, interface, plan, &front, queues, &pool, &mut notes)?;
        let mut made = Made {
            facts: facts(
                options,
                plan.geometry.snap_length,
                front.hook.words(),
                notes,
            ),
            front,
            pool,
            ends: Vec::new(),
            workers: Vec::new(),
            event: Event::new().map_err(system("making an event"))?,
        };
        for (lane, (queue, bound)) in (0..).zip(queues.iter().zip(sockets)) {
            let lane = Lane {
                id: LaneId(lane),
                queue: *queue,
                layout,
            };
            made.add(options, &plan.geometry, lane, bound)
                .map_err(system("setting up a queue"))?;
        }
        Ok(made)
    }

    fn add(
        &mut self,
        options: &XdpOptions,
        geometry: &Geometry,
        lane: Lane,
        bound: Bound,
    ) -> io::Result<()> {
        let Lane { id, queue, layout } = lane;
        if options.busy_poll {
            bound.socket.prefer_busy_poll()?;
        }
        self.front.put_socket(queue, &bound.socket)?;
        self.front.set_state(queue, state::ON);
        let chunks = source::share(geometry, id);
        let first = chunks.last().copied().ok_or(io::ErrorKind::OutOfMemory)?;
        let count = chunks.len();
        let signal: Arc<dyn Signal> = Arc::new(self.event.clone());
        // SAFETY: `writable` is mapped writable, and each lane has its own share of the chunks;
        // the kernel writes into cells only, which the writer leaves to it.
        let (mut writer, ends) = unsafe { source::lane(&self.pool.writable, id, chunks, signal) };
        writer.divide(layout);
        let words = self.front.words.clone();
        let book = Book::new(Arc::new(bound.socket), Event::new()?, words, queue);
        let rulebook = Arc::new(Rulebook::default());
        let ring = bound.received.watch();
        let share = Share {
            base: 0,
            chunk_size: geometry.chunk_size,
            first,
            count,
        };
        let notes = Notes::new(notes::Parts {
            cells: Cells::new(layout, share),
            judge: Judge::new(Arc::clone(&rulebook)),
            writer,
            book: Arc::clone(&book),
            queue,
        })?;
        let worker = Worker::new(Parts {
            received: bound.received,
            fill: bound.fill,
            notes,
            most_cells: most_cells(geometry, layout),
            busy_poll: options.busy_poll,
        });
        self.ends.push(ends);
        let ready = Ready {
            worker,
            book,
            rulebook,
            ring,
        };
        self.workers.push((queue, ready));
        Ok(())
    }
}

/// A socket for each queue, in the best mode that the kernel gives, and how chunks are divided then.
fn sockets(
    options: &XdpOptions,
    interface: &Interface,
    plan: &Plan,
    front: &Front,
    queues: &[u16],
    pool: &SealedPool,
    notes: &mut Vec<String>,
) -> Result<(Vec<Bound>, CellLayout), XdpError> {
    let is_native = front.hook != Hook::Generic;
    let several = match plan.needs_several {
        true => Flags::XDP_USE_SG,
        false => Flags::empty(),
    };
    let attempt = |mode, layout: CellLayout| {
        let wanted = Wanted {
            interface: interface.index,
            cell: layout.cell,
            entries: most_cells(&plan.geometry, layout)
                .next_power_of_two()
                .max(LEAST_ENTRIES),
            flags: mode | Flags::XDP_USE_NEED_WAKEUP | several,
        };
        all(&wanted, queues, pool).map(|sockets| (sockets, layout))
    };
    let failed = |(queue, error)| explain(error, queue, interface, plan);
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
    } else if options.mode == Mode::Auto && options.zero_copy {
        notes.push(format!(
            "{}: no zero-copy without native XDP: the kernel copies each packet once, into the pool",
            interface.name
        ));
    }
    attempt(Flags::XDP_COPY, plan.staggered).map_err(failed)
}

fn all(wanted: &Wanted, queues: &[u16], pool: &SealedPool) -> Result<Vec<Bound>, (u16, io::Error)> {
    let mut sockets: Vec<Bound> = Vec::new();
    for queue in queues {
        let umem = match sockets.first() {
            None => Memory::of(pool.writable.region()).map(Umem::New),
            Some(first) => Ok(Umem::Of(&first.socket)),
        };
        let bound = umem.and_then(|umem| socket::receiving(wanted, *queue, umem));
        sockets.push(bound.map_err(|error| (*queue, error))?);
    }
    Ok(sockets)
}

/// What a socket that cannot be had means to the user.
pub(super) fn explain(
    error: io::Error,
    queue: u16,
    interface: &Interface,
    plan: &Plan,
) -> XdpError {
    let name = interface.name.clone();
    match error.raw_os_error() {
        Some(libc::EBUSY) => XdpError::Busy {
            interface: name,
            queue,
            waited_ms: PATIENCE.as_millis(),
        },
        Some(libc::ENOBUFS | libc::ENOMEM) => XdpError::NoMemory {
            interface: name,
            pool_bytes: plan.geometry.region_bytes(),
        },
        Some(libc::EOPNOTSUPP | libc::EINVAL) if plan.needs_several => XdpError::NoMultiBuffer {
            interface: name,
            frame_bytes: interface.largest_frame_bytes(),
            most_bytes: plan.aligned.cell.size - HEADROOM - 22,
            reason: error,
        },
        _ => XdpError::System {
            interface: name,
            action: "binding an AF_XDP socket",
            reason: error,
        },
    }
}
