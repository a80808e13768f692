// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `xdp` source: AF_XDP sockets whose memory is the pool, so that the kernel writes packets
//! where readers read them.
//!
//! Each receive queue is a lane: a socket, a thread, and chunks divided into cells. The kernel
//! fills the cells; the thread notes each packet in a slot of its cell's chunk; when the readers
//! have given a chunk back, its cells go to the kernel again.
//!
//! Invariants
//! - Nobody but the kernel and this process can map the pool writable.
//! - A program in front counts every packet of the chosen queues: each is captured, unwanted, or
//!   counted as lost.
//! - Every fall-back is a note in [`Facts::notes`].

mod book;
mod cells;
mod error;
pub mod forward;
mod front;
mod lanes;
mod notes;
mod options;
mod ring;
mod socket;
mod words;
mod worker;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use ringtap_filter::{LinkType, Place, Rules};
use ringtap_ipc::event::Event;
use ringtap_pool::distributor::{LaneEnds, Policy};
use ringtap_pool::ids::LaneId;
use ringtap_pool::source::{Counts, Facts, Pause, Source, SourceError, Status};
use ringtap_pool::view::Pool;
use rustix::event::epoll;

use crate::classify::Rulebook;
use crate::tap::source::wait_for_quiet_cpus;
use book::Book;
pub use error::XdpError;
use front::Front;
use lanes::Made;
pub use options::{DEFAULT_POOL_BYTES, XdpOptions};
use ring::RingWatch;
use ringtap_net::interface::{Interface, Promiscuous, Watch};
use ringtap_net::netlink::Losses;
use words::state;

/// How long new rules wait for packets that were on their way.
const ON_THEIR_WAY: Duration = Duration::from_secs(1);

/// One queue's part.
struct Lane {
    queue: u16,
    book: Arc<Book>,
    rulebook: Arc<Rulebook>,
    ring: RingWatch,
    thread: Option<JoinHandle<()>>,
}

/// AF_XDP sockets as a source.
pub struct XdpSource {
    facts: Facts,
    front: Front,
    lanes: Vec<Lane>,
    interface: Interface,
    watch: Watch,
    losses: Losses,
    lost_before: u64,
    /// The NIC's losses, as last told.
    nic: u64,
    pool: Pool,
    pool_file: Arc<OwnedFd>,
    ends: Vec<LaneEnds>,
    event: Event,
    /// Readable when lanes signal and when the interface changes.
    events: OwnedFd,
    ended: Option<Option<XdpError>>,
    _promiscuous: Option<Promiscuous>,
}

impl XdpSource {
    /// Opens the interface; when this returns, packets are being captured.
    ///
    /// # Errors
    ///
    /// Every [`XdpError`]; nothing is attached then.
    pub fn open(options: &XdpOptions) -> Result<Self, XdpError> {
        let interface = Interface::find(&options.interface)?;
        interface.require_up()?;
        if !interface.link_type.is_ethernet() {
            return Err(XdpError::NotEthernet {
                link_type: interface.link_type.0,
                interface: interface.name,
            });
        }
        let watch = Watch::new(&interface)?;
        let made = Made::new(options, &interface)?;
        let wanted = options.promiscuous && !interface.is_loopback;
        let promiscuous = wanted
            .then(|| Promiscuous::enable(interface.index))
            .transpose()?;
        let name = interface.name.clone();
        let assembled = XdpSource::assemble(made, interface, watch, promiscuous);
        assembled.map_err(|reason| XdpError::System {
            interface: name,
            action: "starting the capture",
            reason,
        })
    }

    fn assemble(
        made: Made,
        interface: Interface,
        watch: Watch,
        promiscuous: Option<Promiscuous>,
    ) -> io::Result<Self> {
        let losses = Losses::of(interface.index)?;
        let events = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for fd in [made.event.as_fd(), watch.as_fd()] {
            let data = epoll::EventData::new_u64(0);
            epoll::add(&events, fd, data, epoll::EventFlags::IN)?;
        }
        let mut lanes = Vec::new();
        for (queue, worker) in made.workers {
            let mut thread = worker.worker;
            let spawned = std::thread::Builder::new()
                .name(format!("xdp-{queue}"))
                .spawn(move || thread.work())?;
            lanes.push(Lane {
                queue,
                book: worker.book,
                rulebook: worker.rulebook,
                ring: worker.ring,
                thread: Some(spawned),
            });
        }
        Ok(XdpSource {
            lost_before: losses.now().unwrap_or(0),
            facts: made.facts,
            front: made.front,
            lanes,
            interface,
            watch,
            losses,
            nic: 0,
            pool: made.pool.readable,
            pool_file: made.pool.file,
            ends: made.ends,
            event: made.event,
            events,
            ended: None,
            _promiscuous: promiscuous,
        })
    }
}

impl Source for XdpSource {
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
        std::mem::take(&mut self.ends)
    }

    fn counts(&mut self) -> Counts {
        if self.ended.is_none()
            && let Some(lost) = self.losses.now()
        {
            self.nic = lost.saturating_sub(self.lost_before);
        }
        Counts {
            lanes: self.lanes.iter().map(|lane| lane.book.counts()).collect(),
            nic: self.nic,
            kernel: 0,
        }
    }

    fn classify(&mut self, rules: &Rules) -> Result<Vec<Place>, SourceError> {
        let link_type = LinkType(self.facts.link_type);
        let mut places = Vec::new();
        for lane in &self.lanes {
            places = lane.rulebook.set(rules, &self.facts.device, link_type)?;
        }
        let filters: Vec<_> = rules.0.iter().map(|rule| rule.filter.clone()).collect();
        // What the kernel lets through, the threads judge: a filter that it cannot have costs
        // time, not packets.
        let _slower = self.front.filter(&filters);
        let_pass(self.lanes.iter().map(|lane| &lane.ring));
        Ok(places)
    }

    fn pause(&mut self, lane: LaneId, pause: Pause) {
        let state = match pause {
            Pause::Paused => state::PAUSED,
            Pause::Capturing => state::ON,
        };
        if let Some(lane) = self.lanes.get(lane.index()) {
            self.front.set_state(lane.queue, state);
        }
    }

    fn status(&mut self) -> Status {
        match &mut self.ended {
            None => Status::Running,
            Some(reason) => reason
                .take()
                .map_or(Status::Ended, |error| Status::Failed(error.into())),
        }
    }

    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    fn clear_wake(&mut self) {
        self.event.clear();
        if let Some(error) = self.watch.why_it_ended(&self.interface) {
            self.ended.get_or_insert(Some(error.into()));
        }
    }

    fn stop(&mut self) {
        self.front.detach();
        // What the program handed over is in the rings when this returns.
        wait_for_quiet_cpus();
        for lane in &mut self.lanes {
            lane.book.stop();
            if let Some(thread) = lane.thread.take() {
                let _panicked = thread.join();
                lane.book.close();
            }
        }
        self.counts();
        self.ended.get_or_insert(None);
    }
}

impl Drop for XdpSource {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Waits until the packets that are in the rings now are judged, so that what a new reader counts
/// from here on was judged by its rules.
fn let_pass<'a>(rings: impl Iterator<Item = &'a RingWatch> + Clone) {
    wait_for_quiet_cpus();
    let marks: Vec<_> = rings.clone().map(RingWatch::produced).collect();
    let start = Instant::now();
    let all_passed = || {
        rings
            .clone()
            .zip(&marks)
            .all(|(ring, mark)| ring.has_passed(*mark))
    };
    while !all_passed() && start.elapsed() < ON_THEIR_WAY {
        sleep(Duration::from_micros(50));
    }
}

/// What the source is, for people and for file headers.
fn facts(options: &XdpOptions, snap_length: u32, hook: &str, notes: Vec<String>) -> Facts {
    Facts {
        device: format!("xdp:{}{}", options.interface, options.queues),
        interface: Some(options.interface.clone()),
        link_type: LinkType::ETHERNET.0,
        snap_length,
        policy: Policy::DropNewest,
        notes,
        offered_from: format!(
            "the packets that the program in front of the sockets saw ({hook}) and the \
             interface's missed packets"
        ),
    }
}
