// SPDX-License-Identifier: MIT OR Apache-2.0
//! A bridge whose decisions a program in user space takes: AF_XDP sockets of two interfaces on one
//! memory, in which a packet is received and sent without being moved.
//!
//! Invariants
//! - What arrived was sent, filtered, or counted as lost, either way.
//! - Readers see packets where they were received, if they may look on; nothing waits for them.
mod checksum;
mod judging;
mod made;
mod memory;
mod mirror;
mod packet;
mod port;
mod shared;
mod verdicts;
mod waiting;
mod worker;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::thread::JoinHandle;
use std::time::Instant;

use ringtap_ipc::verdict::Bench;
use ringtap_pool::counters::{Counters, Dropped};
use rustix::net::xdp::SocketAddrXdpFlags as Flags;

use super::XdpOptions;
use super::layout::state;
use super::program::QueueProgram;
use super::setup::explain;
use super::socket::{self, BothWays, Memory, Wanted, XskSocket};
use crate::bpf::attach::{self, Variants};
use crate::bpf::conflict;
use crate::bpf::link::Hook;
use crate::bpf::wait_for_running_programs;
use crate::bridge::Moment;
use crate::{CaptureError, queues};
pub use judging::JudgeOptions;
use judging::Judging;
use made::Made;
use memory::{CELLS, Umem, cell_for};
pub use mirror::Mirror;
use port::Port;
use ringtap_device::{Mode, Queues};
pub use ringtap_ipc::verdict::Verdict;
use ringtap_net::interface::{Interface, InterfaceError, Promiscuous, Watch};
use ringtap_net::netlink::Losses;
use ringtap_net::rights::{Purpose, Rights};
pub use shared::JudgeState;
use shared::Shared;
use worker::Worker;

/// Decides about packets.
pub trait Judge: Send {
    /// What becomes of a frame that arrived at side 0 or 1.
    fn judge(&mut self, side: usize, frame: &[u8]) -> Verdict;
}

/// One interface of the bridge.
struct Side {
    name: String,
    program: QueueProgram,
    queues: Vec<u16>,
    sockets: Vec<Arc<XskSocket>>,
    losses: Losses,
    nic_before: u64,
    not_sent_before: u64,
    interface: Interface,
    watch: Watch,
    _promiscuous: Promiscuous,
}

/// What a caller asks of a bridge in user space.
#[derive(Clone, Debug)]
pub struct UserOptions {
    /// The two interfaces, which were checked to fit each other.
    pub interfaces: [Interface; 2],
    /// Memory for packets that readers see, for each side; `None` if there are no readers.
    pub mirror_bytes: Option<u64>,
    /// The reader that decides about packets that pass the judge in this process, if one does. It
    /// needs a mirror.
    pub judge: Option<JudgeOptions>,
}

/// A bridge whose decisions a program takes.
pub struct UserBridge {
    sides: Vec<Side>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    mirrors: Vec<Mirror>,
    bench: Option<Arc<Bench>>,
    /// What the user should know.
    pub notes: Vec<String>,
}

impl UserBridge {
    /// Forwards from now on, as `judge` decides.
    ///
    /// # Errors
    ///
    /// Every [`CaptureError`]; nothing is attached then.
    pub fn open(options: &UserOptions, judge: Box<dyn Judge>) -> Result<Self, CaptureError> {
        let interfaces = &options.interfaces;
        let rights = Rights::of_this_process().require(Purpose::Xdp);
        rights.map_err(|reason| CaptureError::NoRights {
            interface: interfaces[0].name.clone(),
            reason,
        })?;
        let system = |action| explain_system(interfaces, action);
        let shared = Arc::new(Shared::new().map_err(system("making an event"))?);
        let mut notes = Vec::new();
        let mut sides = Vec::new();
        for interface in interfaces {
            sides.push(Side::load(interface, &mut notes)?);
        }
        let Made {
            ports,
            umem,
            mirrors,
        } = Made::new(options, &mut sides, &shared, &mut notes)?;
        let bench = options.judge.as_ref().map(|judge| {
            let bench = Arc::new(Bench::new(&judge.group, shared.wake.clone()));
            let judging = Judging::new(judge, Arc::clone(&bench), Arc::clone(&shared));
            (bench, judging)
        });
        let (bench, judging) = bench.unzip();
        let mut worker = Worker {
            ports,
            umem,
            judge,
            shared: Arc::clone(&shared),
            completes_checksums: [0, 1].map(|side| interfaces[side].is_virtual()),
            gathered: Vec::new(),
            pieces: Vec::new(),
            judging,
            released: Vec::new(),
            now: Instant::now(),
        };
        // Before the first packet, so that none is lost.
        worker.ports.iter_mut().for_each(Port::feed);
        for side in &mut sides {
            for (queue, socket) in side.queues.iter().zip(&side.sockets) {
                let put = side.program.set_socket(*queue, socket);
                put.map_err(system("telling the program of its sockets"))?;
                side.program.set_state(*queue, state::ON);
            }
        }
        let thread = run(worker).map_err(system("starting a thread"))?;
        let mut bridge = UserBridge {
            sides,
            shared,
            thread: Some(thread),
            mirrors: mirrors.into_iter().map(Mirror::new).collect(),
            bench,
            notes,
        };
        for side in &mut bridge.sides {
            side.program.attach(&side.interface)?;
        }
        Ok(bridge)
    }

    /// What arrives at each side, as sources; nothing is captured before somebody wants it. Empty
    /// when called again, or if none were asked for.
    pub fn take_mirrors(&mut self) -> Vec<Mirror> {
        std::mem::take(&mut self.mirrors)
    }

    /// Where the reader that decides sits, for the hub's server.
    #[must_use]
    pub fn bench(&self) -> Option<Arc<Bench>> {
        self.bench.clone()
    }

    /// How the reader that decides does, and how often it was late.
    #[must_use]
    pub fn judge(&self) -> (JudgeState, u64) {
        (self.shared.judge(), self.shared.judge_lates.load(Relaxed))
    }

    /// Packets that arrived at side 0 or 1 and passed without a verdict, though a reader decides.
    #[must_use]
    pub fn unjudged_passed(&self, from: usize) -> u64 {
        self.shared.ways[from & 1].unjudged_passed.load(Relaxed)
    }

    /// Why the bridge has to end, if one of its sides went away.
    pub fn why_it_ended(&mut self) -> Option<InterfaceError> {
        let mut sides = self.sides.iter_mut();
        sides.find_map(|side| side.watch.why_it_ended(&side.interface))
    }

    /// The way from one side to the other, as in `eth0>eth1`.
    #[must_use]
    pub fn way(&self, from: usize) -> String {
        let from = from & 1;
        format!("{}>{}", self.sides[from].name, self.sides[1 - from].name)
    }

    /// The counters of what arrived at side 0 or 1.
    #[must_use]
    pub fn counters(&self, from: usize, moment: Moment) -> Counters {
        let (from, to) = (from & 1, 1 - (from & 1));
        let (side, way) = (&self.sides[from], &self.shared.ways[from]);
        let not_sent = self.sides[to].losses.not_sent().unwrap_or(0);
        let sent = way.sent.load(Acquire);
        // The driver dropped them after it had taken them.
        let not_sent = not_sent
            .saturating_sub(self.sides[to].not_sent_before)
            .min(sent);
        let (filtered, full) = (way.filtered.load(Acquire), way.full.load(Acquire));
        let lost = side.lost();
        let unjudged = way.unjudged_dropped.load(Acquire);
        let settled = sent + filtered + full + lost + unjudged;
        let seen = match moment {
            // Packets that are on their way are left out.
            Moment::Running => side.seen().min(settled),
            Moment::Final => side.seen(),
        };
        let nic = side
            .losses
            .now()
            .unwrap_or(0)
            .saturating_sub(side.nic_before);
        Counters {
            offered: seen + nic,
            delivered: sent - not_sent,
            filtered,
            bytes: way.bytes.load(Relaxed),
            dropped: Dropped {
                nic,
                kernel: full + lost + not_sent,
                no_verdict: unjudged,
                ..Dropped::default()
            },
            ..Counters::default()
        }
    }

    /// Stops forwarding; counters are final when it returns.
    pub fn stop(&mut self) {
        for side in &mut self.sides {
            side.program.detach();
        }
        // What the programs handed over is in the rings when this returns.
        wait_for_running_programs();
        self.shared.stop();
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

impl Drop for UserBridge {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Side {
    fn load(interface: &Interface, notes: &mut Vec<String>) -> Result<Self, CaptureError> {
        let queues = queues::selected(&Queues::All, interface)?;
        conflict::wait_for_another(interface, |_| true)?;
        let hook = attach::hooks(Mode::Auto, Variants::Xdp, interface, notes);
        let hook = hook.first().copied().unwrap_or(Hook::Generic);
        let action = "opening a netlink socket";
        let losses = Losses::of(interface.index);
        let losses = losses.map_err(CaptureError::system(&interface.name, action))?;
        Ok(Side {
            name: interface.name.clone(),
            program: QueueProgram::load(hook, interface, u32::MAX)?,
            queues,
            sockets: Vec::new(),
            nic_before: losses.now().unwrap_or(0),
            not_sent_before: losses.not_sent().unwrap_or(0),
            losses,
            watch: Watch::new(interface)?,
            _promiscuous: Promiscuous::enable(interface.index)?,
            interface: interface.clone(),
        })
    }

    /// Packets that the program saw.
    fn seen(&self) -> u64 {
        self.words(|words| words.seen.load(Acquire))
    }

    /// Packets that the sockets or the program lost.
    fn lost(&self) -> u64 {
        let sockets = self.sockets.iter().filter_map(|socket| socket.lost().ok());
        sockets.sum::<u64>() + self.words(|words| words.failed.load(Acquire))
    }

    fn words(&self, count: impl Fn(&super::layout::QueueWords) -> u64) -> u64 {
        let queues = self.queues.iter().map(|queue| usize::from(*queue));
        let words = queues.filter_map(|queue| self.program.counters.get(queue));
        words.map(count).sum()
    }
}

fn bind(
    side: &Side,
    queue: u16,
    first: Option<&XskSocket>,
    umem: &Umem,
    notes: &mut Vec<String>,
) -> Result<BothWays, CaptureError> {
    let (_, needs_several) = cell_for(side.interface.largest_frame_bytes());
    let several = match needs_several {
        true => Flags::XDP_USE_SG,
        false => Flags::empty(),
    };
    let wanted = |mode| Wanted {
        interface: side.interface.index,
        cell: umem.cell(),
        entries: CELLS,
        flags: mode | Flags::XDP_USE_NEED_WAKEUP | several,
    };
    let attempt = |mode| -> io::Result<BothWays> {
        let memory = match first {
            Some(socket) => socket::Umem::Of(socket),
            None => socket::Umem::New(Memory::of(umem.region())?),
        };
        socket::both_ways(&wanted(mode), queue, memory)
    };
    let is_native = side.program.hook != Hook::Generic;
    if first.is_none() && is_native {
        match attempt(Flags::XDP_ZEROCOPY) {
            Err(error) if error.raw_os_error() != Some(libc::EBUSY) => notes.push(format!(
                "{}: the driver gives AF_XDP no zero-copy ({error}); falling back to copy mode: \
                 the kernel copies each packet in and out",
                side.name
            )),
            done => return done.map_err(|error| explain_bind(error, queue, side)),
        }
    }
    attempt(Flags::XDP_COPY).map_err(|error| explain_bind(error, queue, side))
}

fn explain_system(
    interfaces: &[Interface; 2],
    action: &'static str,
) -> impl FnOnce(io::Error) -> CaptureError + use<> {
    let both = format!("{} and {}", interfaces[0].name, interfaces[1].name);
    CaptureError::system(both, action)
}

fn explain_bind(error: io::Error, queue: u16, side: &Side) -> CaptureError {
    let options = XdpOptions {
        queues: Queues::All,
        ..XdpOptions::new(&side.name)
    };
    match super::options::Plan::new(&options, &side.interface, 1) {
        Ok(plan) => explain(error, queue, &side.interface, &plan),
        Err(error) => error,
    }
}

fn run(mut worker: Worker) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name("bridge".into())
        .spawn(move || worker.work())
}
