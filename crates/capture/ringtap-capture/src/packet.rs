// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `packet` source: an AF_PACKET ring (TPACKET_V3) that a thread copies into the pool.
//!
//! Invariants
//! - Works with `CAP_NET_RAW` alone, also inside a user namespace.
//! - What this source does not take (the other direction, each packet's second passage on `lo`)
//!   the kernel rejects before it counts: `seen` is the kernel's count of what was offered.
//! - After a stop every packet that the kernel counted is captured, or counted as lost.

mod error;
mod frame;
mod options;
mod ring;
mod socket;
mod worker;

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        mpsc::{self, Receiver, TryRecvError},
    },
    thread::JoinHandle,
};

use ringtap_pool::{
    distributor::{LaneEnds, Policy},
    ids::LaneId,
    source::{self, Counts, Facts, LaneCounts, Source, SourceError, Status},
    view::Pool,
};

use ringtap_ipc::{event::Event, memfd::SealedPool};

use crate::classify::{Judge, Rulebook};
use ringtap_filter::{LinkType, Place, Rules};
use ringtap_net::interface::{Interface, InterfaceCounters, Promiscuous};

pub use error::PacketError;
pub use options::PacketOptions;
use options::Plan;
use ring::Ring;
use socket::PacketSocket;
use worker::{Progress, Worker};

/// A packet socket as a source.
pub struct PacketSource {
    facts: Facts,
    interface: Interface,
    counters_before: InterfaceCounters,
    lost_by_nic: u64,
    pool: Pool,
    pool_file: Arc<OwnedFd>,
    lanes: Vec<LaneEnds>,
    event: Event,
    rulebook: Arc<Rulebook>,
    progress: Arc<Progress>,
    thread: Option<JoinHandle<()>>,
    outcome: Receiver<Result<(), PacketError>>,
    _promiscuous: Option<Promiscuous>,
}

impl PacketSource {
    /// Opens the interface; when it returns, every packet is captured.
    ///
    /// # Errors
    ///
    /// Every [`PacketError`] but those of an interface that goes away later.
    pub fn open(options: &PacketOptions) -> Result<Self, PacketError> {
        let interface = Interface::find(&options.interface)?;
        let plan = Plan::new(options, &interface)?;
        let event = Event::new().map_err(PacketError::system("making an event"))?;
        let made = SealedPool::create(plan.geometry);
        let pool = made.map_err(PacketError::system("making the pool"))?;
        let ids = source::share(pool.writable.geometry(), LaneId(0));
        // SAFETY: `writable` is mapped writable, and this is its only lane.
        let (mut lane, ends) =
            unsafe { source::lane(&pool.writable, LaneId(0), ids, Arc::new(event.clone())) };
        let promiscuous = match plan.promiscuous {
            true => Some(Promiscuous::enable(interface.index)?),
            false => None,
        };
        if let Some(packets) = options.chunks.packets {
            lane.limit_packets(packets);
        }
        let (socket, ring, mut notes) = open_ring(&plan)?;
        notes.splice(0..0, options.notes.iter().cloned());
        let progress = Progress::new(socket, lane.counters())?;
        let rulebook = Arc::new(Rulebook::default());
        let judge = Judge::new(Arc::clone(&rulebook));
        let worker = Worker::new(ring, lane, judge, Arc::clone(&progress), &interface);
        progress.socket().bind(interface.index)?;
        let (thread, outcome) = run(worker, event.clone())?;
        Ok(Self {
            facts: facts(&plan, &interface, notes),
            counters_before: interface.counters,
            lost_by_nic: 0,
            interface,
            pool: pool.readable,
            pool_file: pool.file,
            lanes: vec![ends],
            event,
            rulebook,
            progress,
            thread: Some(thread),
            outcome,
            _promiscuous: promiscuous,
        })
    }
}

/// A socket that receives nothing yet, and its ring, smaller where memory is short.
fn open_ring(plan: &Plan) -> Result<(PacketSocket, Ring, Vec<String>), PacketError> {
    let mut notes = Vec::new();
    let mut layout = plan.ring;
    loop {
        let socket = PacketSocket::open()?;
        socket.attach(&plan.filter)?;
        match socket.make_ring(&layout) {
            Ok(()) => {
                let mapped = Ring::map(&socket, &layout);
                let ring = mapped.map_err(PacketError::system("mapping the ring"))?;
                return Ok((socket, ring, notes));
            }
            Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => {
                let smaller = layout.halved();
                layout = smaller.ok_or(PacketError::NoMemory {
                    bytes: layout.bytes(),
                })?;
                notes = vec![format!(
                    "memory is short: the kernel's ring has {} MiB instead of {}",
                    layout.bytes() >> 20,
                    plan.ring.bytes() >> 20,
                )];
            }
            Err(error) => return Err(PacketError::system("making the ring")(error)),
        }
    }
}

fn facts(plan: &Plan, interface: &Interface, mut notes: Vec<String>) -> Facts {
    if interface.offloads.lro == Some(true) {
        notes.push(format!(
            "{name} merges packets in the NIC (LRO): they are captured merged; \
             `ethtool -K {name} lro off` shows them as on the wire",
            name = interface.name
        ));
    }
    Facts {
        device: format!("packet:{}", interface.name),
        interface: Some(interface.name.clone()),
        link_type: plan.link_type.0,
        snap_length: plan.geometry.snap_length,
        policy: Policy::DropNewest,
        notes,
        offered_from: "the packet socket's statistics and the interface's missed packets".into(),
    }
}

/// The copying thread, and where its outcome will be told.
type Running = (JoinHandle<()>, Receiver<Result<(), PacketError>>);

fn run(mut worker: Worker, event: Event) -> Result<Running, PacketError> {
    let (tell, outcome) = mpsc::channel();
    let thread = std::thread::Builder::new()
        .name("packet".into())
        .spawn(move || {
            let result = worker.work();
            // Seals what is open before the end is told.
            drop(worker);
            let _gone = tell.send(result);
            ringtap_pool::wake::Signal::signal(&event);
        });
    let thread = thread.map_err(PacketError::system("starting a thread"))?;
    Ok((thread, outcome))
}

impl Source for PacketSource {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn pool(&self) -> Pool {
        self.pool.clone()
    }

    fn pool_file(&self) -> Option<BorrowedFd<'_>> {
        Some(self.pool_file.as_fd())
    }

    fn take_lanes(&mut self) -> Vec<LaneEnds> {
        std::mem::take(&mut self.lanes)
    }

    fn counts(&mut self) -> Counts {
        if self.thread.is_some()
            && let Ok(now) = self.interface.counters_now()
        {
            let before = self.counters_before.lost_by_nic();
            self.lost_by_nic = now.lost_by_nic().saturating_sub(before);
        }
        let kernel = self.progress.kernel();
        let captured = self.progress.lane().captured();
        let unwanted = self.rulebook.unwanted();
        let pool_full = self.progress.lane().pool_full();
        // As long as the thread works, what waits in the kernel's ring was not there yet.
        let settled = captured + unwanted + pool_full + kernel.lost;
        Counts {
            lanes: vec![LaneCounts {
                seen: if kernel.is_final {
                    kernel.seen
                } else {
                    settled
                },
                captured,
                bytes: self.progress.lane().bytes(),
                unwanted,
                pool_full,
                kernel: kernel.lost,
            }],
            nic: self.lost_by_nic,
            kernel: 0,
        }
    }

    fn classify(&mut self, rules: &Rules) -> Result<Vec<Place>, SourceError> {
        let link_type = LinkType(self.facts.link_type);
        self.rulebook.set(rules, &self.facts.device, link_type)
    }

    fn status(&mut self) -> Status {
        match self.outcome.try_recv() {
            Ok(Ok(())) | Err(TryRecvError::Disconnected) => Status::Ended,
            Ok(Err(error)) => Status::Failed(SourceError::from(error)),
            Err(TryRecvError::Empty) => Status::Running,
        }
    }

    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    fn clear_wake(&mut self) {
        self.event.clear();
    }

    fn stop(&mut self) {
        if self.thread.is_some() {
            // Read while the interface may still be there, and final from here on.
            self.counts();
            self.progress.stop();
        }
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

impl Drop for PacketSource {
    fn drop(&mut self) {
        self.stop();
    }
}
