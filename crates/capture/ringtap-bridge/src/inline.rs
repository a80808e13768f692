// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets that wait for an inline reader. The taps capture them, and drop them; a thread of the bridge reads them as a
//! reader of the hub, and sends those that the inline reader passes.
//!
//! Invariants
//! - Every waiting packet is sent, dropped or counted as lost.
//! - Packets wait only for an inline reader that is connected, and no longer than its timeout.
mod checksum;
mod flows;
mod reader;
mod sender;
mod shared;
mod waiting;
mod worker;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use ringtap_bpf::attach::require_rights;
use ringtap_capture::tap::{DecidedFlow, DecidedFlows, Forwarded, InlineControl};
use ringtap_ipc::mutex::lock;
use ringtap_ipc::subscription::{Endpoint, Subscription};
use ringtap_ipc::thread::join;
use ringtap_ipc::verdict::{Verdict, VerdictChannel};
use ringtap_net::confine::limit_source_thread;
use ringtap_net::interface::Interface;
use ringtap_net::rights::{CapabilitySet, Purpose};
use ringtap_pool::number::to_usize;
use ringtap_pool::reader::Reader;
use ringtap_pool::wake::Signal;

use crate::{BridgeError, InlineOptions};
use flows::DecidedTable;
use reader::InlineReader;
use sender::PacketSender;
pub use shared::InlineReport;
use shared::InlineShared;
pub(crate) use shared::SideOutcomes;
use waiting::WaitingPackets;
use worker::{InlineWorker, Side, Wakes};

/// Maximum number of decided flows.
const MAX_FLOWS: u32 = 1 << 18;

/// The part of a bridge that lets an inline reader decide.
pub(crate) struct InlineBridge {
    options: InlineOptions,
    pub(crate) flows: DecidedFlows,
    pub(crate) channel: Arc<VerdictChannel>,
    shared: Arc<InlineShared>,
    /// Until the thread begins.
    parts: Option<[SideInputs; 2]>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread needs of one side.
pub(crate) struct SideInputs {
    pub(crate) control: InlineControl,
    pub(crate) forwarded: Forwarded,
    completes_checksums: bool,
    out: PacketSender,
}

impl SideInputs {
    /// The packets that arrive at `from`, and leave by `to`.
    pub(crate) fn new(
        control: InlineControl,
        forwarded: Forwarded,
        from: &Interface,
        to: &Interface,
    ) -> Result<Self, BridgeError> {
        require_rights(&to.name, Purpose::Packet)?;
        let out = PacketSender::open(to.index);
        Ok(SideInputs {
            control,
            forwarded,
            completes_checksums: from.is_virtual(),
            out: out.map_err(BridgeError::system("opening a packet socket"))?,
        })
    }
}

impl InlineBridge {
    /// Without its sides, which need the table of flows.
    pub(crate) fn new(options: &InlineOptions) -> Result<Self, BridgeError> {
        let shared = InlineShared::new().map_err(BridgeError::system("making an event"))?;
        let flows = DecidedFlows::new(MAX_FLOWS);
        Ok(InlineBridge {
            flows: flows.map_err(BridgeError::system("making the table of flows"))?,
            channel: Arc::new(VerdictChannel::new(&options.group, shared.wake.clone())),
            options: options.clone(),
            shared: Arc::new(shared),
            parts: None,
            thread: None,
        })
    }

    pub(crate) fn set_sides(&mut self, parts: [SideInputs; 2]) {
        for part in &parts {
            let passes = self.options.no_verdict == Verdict::Pass;
            part.control.begin(0, passes);
        }
        self.parts = Some(parts);
    }

    /// Starts the thread, which reads the waiting packets by this subscription.
    pub(crate) fn begin(&mut self, subscription: Subscription) -> io::Result<()> {
        let missing = || io::Error::other("the hub has not the two sources of the bridge");
        let parts = self.parts.take().ok_or_else(missing)?;
        let (doorbell, endpoints) = (subscription.doorbell, subscription.endpoints);
        let endpoints: [Endpoint; 2] = endpoints.try_into().map_err(|_| missing())?;
        let sources = worker::signals(endpoints.iter().filter_map(|it| it.wake.clone()))?;
        let controls = [parts[0].control.clone(), parts[1].control.clone()];
        let passes = self.options.no_verdict == Verdict::Pass;
        let mut first_lane = 0;
        let mut sides = Vec::new();
        for (part, endpoint) in parts.into_iter().zip(endpoints) {
            part.control.begin(endpoint.wanted.mask, passes);
            let hub = Arc::clone(&doorbell) as Arc<dyn Signal>;
            let policy = endpoint.facts.policy;
            let lanes = to_usize(endpoint.pool.geometry().lane_count);
            let reader = Reader::open(endpoint.pool, &endpoint.control, policy, hub);
            sides.push(Side {
                reader: reader.map_err(io::Error::other)?,
                mask: endpoint.wanted.mask,
                first_lane,
                lanes: (0..lanes).map(|_| WaitingPackets::default()).collect(),
                forwarded: part.forwarded,
                completes_checksums: part.completes_checksums,
                out: part.out,
                has_ended: false,
            });
            first_lane += lanes;
        }
        let sleepers = sides.iter().map(|side| side.reader.sleeper()).collect();
        let shared = Arc::clone(&self.shared);
        let channel = Arc::clone(&self.channel);
        let mut worker = InlineWorker {
            sides: sides.try_into().map_err(|_| missing())?,
            wakes: Wakes {
                doorbell,
                sources,
                sleepers,
            },
            inline: InlineReader::new(&self.options, channel, controls, Arc::clone(&shared)),
            flows: DecidedTable::new(self.flows.clone(), Arc::clone(&shared)),
            shared,
            early: VecDeque::new(),
            decided: Vec::new(),
            swept: Instant::now(),
            now: Instant::now(),
        };
        let thread = std::thread::Builder::new().name("inline".into());
        self.thread = Some(thread.spawn(move || {
            limit_source_thread(CapabilitySet::empty());
            worker.work();
        })?);
        Ok(())
    }

    /// State and counters, without the counts of the kernel's programs.
    pub(crate) fn report(&self) -> InlineReport {
        self.shared.report()
    }

    /// Outcomes of waiting packets that arrived at side 0 or 1.
    pub(crate) fn counts(&self, from: usize) -> SideOutcomes {
        self.shared.counts(from)
    }

    pub(crate) fn take_ended(&self) -> Vec<DecidedFlow> {
        std::mem::take(&mut *lock(&self.shared.ended)).into()
    }

    /// Settles the packets that wait until the sources end, and ends the thread.
    pub(crate) fn stop(&mut self) {
        self.shared.stop();
        if let Some(thread) = self.thread.take() {
            join(thread);
        }
    }
}

impl Drop for InlineBridge {
    fn drop(&mut self) {
        self.stop();
    }
}
