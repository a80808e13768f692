// SPDX-License-Identifier: MIT OR Apache-2.0
//! Forwarding in user space: AF_XDP sockets of two interfaces share one memory, in which packets
//! are received and sent without a copy.
//!
//! Invariants
//! - Every packet that arrived is sent, filtered or counted as lost, in both directions.
//! - Readers see packets in place. Forwarding waits only for an inline reader, and no longer than
//!   its timeout.
mod checksum;
mod inline;
mod memory;
mod mirror;
mod packet;
mod port;
mod setup;
mod shared;
mod verdicts;
mod waiting;
mod worker;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::thread::JoinHandle;

use ringtap_bpf::attach::{self, Binding, Variants};
use ringtap_bpf::conflict::{self, Effect};
use ringtap_bpf::link::Hook;
use ringtap_bpf::wait_for_running_programs;
use ringtap_capture::CaptureError;
use ringtap_capture::monitor::{AtRemoval, InterfaceMonitor};
use ringtap_capture::nic::NicLosses;
use ringtap_capture::queues;
use ringtap_capture::xdp::layout::{QueueWords, state};
use ringtap_capture::xdp::options::cell_for;
use ringtap_capture::xdp::program::{QueueAttachment, QueueProgram};
use ringtap_capture::xdp::setup::explain;
use ringtap_capture::xdp::socket::{self, BothWays, SocketMemory, SocketSettings, XskSocket};
use ringtap_device::{Mode, Queues, StampClock};
use ringtap_ipc::verdict::VerdictChannel;
use ringtap_net::confine::limit_source_thread;
use ringtap_net::interface::{Interface, Promiscuous};
use ringtap_net::rights::{Purpose, WHILE_CAPTURING};
use ringtap_pool::counters::{Counters, Dropped};
use ringtap_pool::number::to_u64;
use ringtap_pool::source::Source;
use rustix::net::xdp::SocketAddrXdpFlags as Flags;

use crate::{BridgeOptions, Moment};
use inline::InlineReader;
use memory::{BridgeMemory, CELLS};
use port::BridgePort;
use shared::BridgeState;
pub use shared::{InlineReport, InlineState};
use worker::BridgeWorker;

/// One interface of the bridge.
struct Side {
    /// Present while the program is attached; stopped first, because it attaches the program again.
    monitor: Option<InterfaceMonitor>,
    program: Arc<QueueProgram>,
    queues: Vec<u16>,
    sockets: Vec<Arc<XskSocket>>,
    nic: NicLosses,
    interface: Interface,
    _promiscuous: Promiscuous,
}

/// A bridge whose packets a thread forwards.
pub(crate) struct UserBridge {
    sides: Vec<Side>,
    shared: Arc<BridgeState>,
    thread: Option<JoinHandle<()>>,
    pub(crate) channel: Option<Arc<VerdictChannel>>,
    /// Fall-backs and their reasons, one per line, until they are taken.
    notes: Vec<String>,
}

impl UserBridge {
    /// Starts to forward; returns the mirrors, too.
    ///
    /// # Errors
    ///
    /// Those of [`CaptureError`] that concern AF_XDP; nothing is attached then.
    pub(crate) fn open(
        options: &BridgeOptions,
        interfaces: &[Interface; 2],
    ) -> Result<(Vec<Box<dyn Source>>, Self), CaptureError> {
        attach::require_rights(&interfaces[0].name, Purpose::Xdp)?;
        let both = format!("{} and {}", interfaces[0].name, interfaces[1].name);
        let shared = Arc::new(BridgeState::new().map_err(system(&both, "making an event"))?);
        let mut notes = Vec::new();
        let mut sides = Vec::new();
        for interface in interfaces {
            sides.push(Side::load(interface, &mut notes)?);
        }
        let inline = options.inline.as_ref().map(|inline| {
            let channel = Arc::new(VerdictChannel::new(&inline.group, shared.wake.clone()));
            let reader = InlineReader::new(inline, Arc::clone(&channel), Arc::clone(&shared));
            (channel, reader)
        });
        let (channel, inline) = inline.unzip();
        let (mut worker, mirrors) =
            BridgeWorker::new(options, inline, &both, &mut sides, &shared, &mut notes)?;
        // Before the first packet arrives.
        worker.ports.iter_mut().for_each(BridgePort::feed);
        for side in &mut sides {
            for (queue, socket) in side.queues.iter().zip(&side.sockets) {
                let set = side.program.set_socket(*queue, socket);
                set.map_err(system(&both, "telling the program of its sockets"))?;
                side.program.set_state(*queue, state::ON);
            }
        }
        let thread = std::thread::Builder::new().name("bridge".into());
        let thread = thread.spawn(move || {
            limit_source_thread(WHILE_CAPTURING);
            worker.work();
        });
        let mut bridge = UserBridge {
            sides,
            shared,
            thread: Some(thread.map_err(system(&both, "starting a thread"))?),
            channel,
            notes,
        };
        for side in &mut bridge.sides {
            side.program.attach(&side.interface)?;
            let attachment = Box::new(QueueAttachment::new(Arc::clone(&side.program)));
            let monitor = InterfaceMonitor::start(&side.interface, AtRemoval::End, attachment);
            side.monitor = Some(monitor?);
        }
        Ok((mirrors, bridge))
    }

    pub(crate) fn inline(&self) -> Option<InlineReport> {
        self.channel.as_ref().map(|_| self.shared.inline())
    }

    pub(crate) fn failure(&self) -> Option<CaptureError> {
        self.monitors().find_map(InterfaceMonitor::take_failure)
    }

    pub(crate) fn take_notes(&mut self) -> Vec<String> {
        let mut notes = std::mem::take(&mut self.notes);
        notes.extend(self.monitors().flat_map(InterfaceMonitor::take_notes));
        notes
    }

    fn monitors(&self) -> impl Iterator<Item = &InterfaceMonitor> {
        self.sides.iter().filter_map(|side| side.monitor.as_ref())
    }

    /// Counters of the packets that arrived at side 0 or 1.
    pub(crate) fn counters(&mut self, from: usize, moment: Moment) -> Counters {
        let (from, to) = (from & 1, 1 - (from & 1));
        let not_sent = self.sides[to].nic.not_sent();
        let (side, way) = (&mut self.sides[from], &self.shared.ways[from]);
        let sent = way.sent.load(Acquire);
        // Packets that the driver accepted and then dropped.
        let not_sent = not_sent.min(sent);
        let (filtered, full) = (way.filtered.load(Acquire), way.full.load(Acquire));
        let lost = side.lost();
        let no_verdict = way.no_verdict_dropped.load(Acquire);
        let settled = sent + filtered + full + lost + no_verdict;
        let offered = match moment {
            // Leave out packets in transit.
            Moment::Running => side.offered().min(settled),
            Moment::Final => side.offered(),
        };
        let nic = side.nic.lost();
        Counters {
            offered: offered + nic,
            delivered: sent - not_sent,
            filtered,
            bytes: way.bytes.load(Relaxed),
            dropped: Dropped {
                nic,
                kernel: full + lost + not_sent,
                no_verdict,
                ..Dropped::default()
            },
            ..Counters::default()
        }
    }

    /// Stops forwarding; the counters are final afterwards.
    pub(crate) fn stop(&mut self) {
        for side in &mut self.sides {
            side.monitor = None;
            side.program.detach();
        }
        // When this returns, every packet that the programs redirected is in a ring.
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

/// Converts the error of a system call that failed for both interfaces.
fn system(both: &str, action: &'static str) -> impl FnOnce(io::Error) -> CaptureError + use<> {
    CaptureError::system(both, action)
}

impl Side {
    fn load(interface: &Interface, notes: &mut Vec<String>) -> Result<Self, CaptureError> {
        let queues = queues::selected(&Queues::All, interface)?;
        conflict::refuse_another_ringtap(interface, Effect::Takes, &[])?;
        conflict::wait_for_another(interface, |_| true)?;
        let hook = attach::hooks(
            Mode::Auto,
            Variants::Xdp,
            Binding::ToInterface,
            interface,
            notes,
        );
        let hook = hook.first().copied().unwrap_or(Hook::Generic);
        Ok(Side {
            monitor: None,
            program: Arc::new(QueueProgram::load(hook, interface, StampClock::Host)?),
            queues,
            sockets: Vec::new(),
            nic: NicLosses::of(interface)?,
            _promiscuous: Promiscuous::enable(interface.index)?,
            interface: interface.clone(),
        })
    }

    /// Number of packets that the program saw.
    fn offered(&self) -> u64 {
        self.words(|words| words.offered.load(Acquire))
    }

    /// Number of packets that the sockets or the program lost.
    fn lost(&self) -> u64 {
        let sockets = self.sockets.iter().filter_map(|socket| socket.lost().ok());
        sockets.sum::<u64>() + self.words(|words| words.failed.load(Acquire))
    }

    fn words(&self, count: impl Fn(&QueueWords) -> u64) -> u64 {
        let queues = self.queues.iter().map(|queue| usize::from(*queue));
        let words = queues.filter_map(|queue| self.program.counters.get(queue));
        words.map(count).sum()
    }
}

fn bind(
    side: &Side,
    queue: u16,
    first: Option<&XskSocket>,
    memory: &BridgeMemory,
    notes: &mut Vec<String>,
) -> Result<BothWays, CaptureError> {
    let (_, needs_several) = cell_for(side.interface.largest_frame_bytes());
    let several = match needs_several {
        true => Flags::XDP_USE_SG,
        false => Flags::empty(),
    };
    let wanted = |mode| SocketSettings {
        interface: side.interface.index,
        cell: memory.cell(),
        entries: CELLS,
        flags: mode | Flags::XDP_USE_NEED_WAKEUP | several,
    };
    let attempt = |mode| -> io::Result<BothWays> {
        let shared = match first {
            Some(socket) => socket::Umem::Of(socket),
            None => socket::Umem::New(SocketMemory::of(memory.region())?),
        };
        socket::both_ways(&wanted(mode), queue, shared)
    };
    let failed = |error| {
        let bytes = to_u64(memory.region().bytes());
        explain(error, queue, &side.interface, bytes, memory.cell())
    };
    let is_native = side.program.hook != Hook::Generic;
    if first.is_none() && is_native {
        match attempt(Flags::XDP_ZEROCOPY) {
            Err(error) if error.raw_os_error() != Some(libc::EBUSY) => notes.push(format!(
                "{}: the driver gives AF_XDP no zero-copy ({error}); falling back to copy mode: \
                 the kernel copies each packet in and out",
                side.interface.name
            )),
            done => return done.map_err(failed),
        }
    }
    attempt(Flags::XDP_COPY).map_err(failed)
}
