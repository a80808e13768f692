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
mod side;
mod verdicts;
mod waiting;
mod worker;

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::thread::JoinHandle;

use ringtap_bpf::attach::{self};
use ringtap_bpf::wait_for_running_programs;
use ringtap_capture::CaptureError;
use ringtap_capture::monitor::{AtRemoval, InterfaceMonitor};
use ringtap_capture::xdp::layout::state;
use ringtap_capture::xdp::program::QueueAttachment;
use ringtap_ipc::thread::join;
use ringtap_ipc::verdict::VerdictChannel;
use ringtap_net::confine::limit_source_thread;
use ringtap_net::interface::Interface;
use ringtap_net::rights::{Purpose, WHILE_CAPTURING};
use ringtap_pool::counters::{Counters, Dropped};
use ringtap_pool::source::Source;

use crate::{BridgeOptions, Moment};
use inline::InlineReader;
use port::BridgePort;
use shared::BridgeState;
pub use shared::{InlineReport, InlineState};
use side::{Side, system};
use worker::BridgeWorker;

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
    ) -> Result<(Vec<Source>, Self), CaptureError> {
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
            join(thread);
        }
    }
}

impl Drop for UserBridge {
    fn drop(&mut self) {
        self.stop();
    }
}
