// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `xdp` source: AF_XDP sockets that receive packets directly into the pool.
//!
//! Each receive queue is a lane: a socket, a thread, and chunks divided into cells. The kernel
//! fills the cells; the thread writes each packet's slot. The kernel gets the cells of a chunk
//! again when the readers have released the chunk.
//!
//! Invariants
//! - Only the kernel and this process can write the pool.
//! - The program counts every packet of the chosen queues: each is captured, filtered or lost.
//! - Every fall-back is a note in [`Facts::notes`].

mod capture;
mod cells;
mod filters;
mod layout;
mod options;
mod program;
mod ring;
mod setup;
mod socket;
mod statistics;
mod worker;

use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use ringtap_device::DeviceSpec;
use ringtap_filter::LinkType;
use ringtap_net::interface::{Interface, Promiscuous};
use ringtap_pool::distributor::Policy;
use ringtap_pool::ids::LaneId;
use ringtap_pool::source::{Counts, Facts, LossUpdate, Pause, Source};

use crate::CaptureError;
use crate::monitor::{AtRemoval, InterfaceMonitor};
use crate::nic::SharedLosses;
use crate::nic_stamps;
use crate::source::SourceStart;
use crate::source::{RulesHook, ThreadedDriver};
use filters::QueueFilters;
use layout::state;
pub use options::{DEFAULT_POOL_BYTES, XdpOptions};
use program::{QueueAttachment, QueueProgram};
use ring::RingWatch;
use ringtap_bpf::wait_for_running_programs;
use setup::XdpSetup;
use statistics::LaneStatistics;

/// How long a change of rules waits for packets that are already in the rings.
const ON_THEIR_WAY: Duration = Duration::from_secs(1);

/// State of one queue's lane that the source and the thread share.
pub(crate) struct QueueLane {
    /// The receive queue.
    pub(crate) queue: u16,
    /// The lane's counters.
    pub(crate) statistics: Arc<LaneStatistics>,
    /// How far the thread has read the socket's ring.
    pub(crate) ring: RingWatch,
}

/// Counters of a source whose lanes are receive queues.
pub(crate) fn queue_counts(lanes: &[QueueLane], nic: &SharedLosses) -> Counts {
    let lanes = lanes.iter();
    Counts {
        lanes: lanes.map(|lane| lane.statistics.counts()).collect(),
        dropped: nic.dropped(),
    }
}

/// Opens the interface; packets are captured when the function returns.
///
/// # Errors
///
/// Those of [`CaptureError`] that concern AF_XDP; nothing is attached then.
pub fn open(options: &XdpOptions) -> Result<Source, CaptureError> {
    let interface = Interface::find(&options.on.interface)?;
    interface.require_up()?;
    if !interface.link_type.is_ethernet() {
        return Err(CaptureError::NotEthernet {
            kind: "the xdp source",
            link_type: interface.link_type.0,
            interface: interface.name,
        });
    }
    let nic = SharedLosses::for_interface(&interface)?;
    let wanted = options.on.promiscuous && !interface.is_loopback;
    let setup = XdpSetup::new(options, &interface)?;
    let promiscuous = wanted.then(|| Promiscuous::enable(interface.index));
    let program = Arc::new(setup.program);
    let attachment = QueueAttachment::new(Arc::clone(&program));
    let driver = XdpDriver {
        monitor: InterfaceMonitor::start(&interface, AtRemoval::End, Box::new(attachment))?,
        program,
        lanes: setup.lanes.into(),
        _promiscuous: promiscuous.transpose()?,
        nic,
    };
    let shell = setup.shell;
    shell.start(setup.facts, Box::new(driver), setup.workers)
}

/// Opens a device of this kind.
pub(crate) fn open_device(
    device: &DeviceSpec,
    _start: SourceStart,
) -> Result<Source, CaptureError> {
    nic_stamps::enable(device)?;
    open(&XdpOptions::from_device(device))
}

struct XdpDriver {
    /// Stopped first: it attaches the program.
    monitor: InterfaceMonitor,
    program: Arc<QueueProgram>,
    lanes: Arc<[QueueLane]>,
    nic: SharedLosses,
    _promiscuous: Option<Promiscuous>,
}

impl ThreadedDriver for XdpDriver {
    fn counts(&mut self) -> Counts {
        queue_counts(&self.lanes, &self.nic)
    }

    fn loss_update(&self) -> Option<LossUpdate> {
        Some(self.nic.update())
    }

    fn stop(&mut self) {
        self.monitor.stop();
        self.program.detach();
        // When this returns, every packet that the program handed over is in a ring.
        wait_for_running_programs();
        for lane in &*self.lanes {
            lane.statistics.stop();
        }
    }

    fn finish(&mut self) {
        for lane in &*self.lanes {
            lane.statistics.close();
        }
        self.nic.finish();
    }

    fn pause(&mut self, lane: LaneId, pause: Pause) {
        let state = match pause {
            Pause::Paused => state::PAUSED,
            Pause::Capturing => state::ON,
        };
        if let Some(lane) = self.lanes.get(lane.index()) {
            self.program.set_state(lane.queue, state);
        }
    }

    fn rules_hook(&self) -> Option<RulesHook> {
        let (program, lanes) = (Arc::clone(&self.program), Arc::clone(&self.lanes));
        let mut filters = QueueFilters::new(program, lanes);
        Some(Box::new(move |rules| filters.change(rules)))
    }

    fn monitor(&self) -> Option<&InterfaceMonitor> {
        Some(&self.monitor)
    }
}

/// Waits until the threads have classified all packets that are in the rings now, so that the new
/// rules apply to every packet that a new reader counts.
pub(crate) fn wait_for_received(lanes: &[QueueLane]) {
    wait_for_running_programs();
    let marks: Vec<_> = lanes.iter().map(|lane| lane.ring.produced()).collect();
    let start = Instant::now();
    let all_passed = || {
        let mut lanes = lanes.iter().zip(&marks);
        lanes.all(|(lane, mark)| lane.ring.has_passed(*mark))
    };
    while !all_passed() && start.elapsed() < ON_THEIR_WAY {
        sleep(Duration::from_micros(50));
    }
}

/// Description of the source for users and file headers.
fn facts(options: &XdpOptions, snap_length: u32, hook: &str, notes: Vec<String>) -> Facts {
    Facts {
        device: format!("xdp:{}{}", options.on.interface, options.on.queues),
        interface: Some(options.on.interface.clone()),
        link_type: LinkType::ETHERNET.0,
        snap_length,
        policy: Policy::DropNewest,
        notes,
        time_from: nic_stamps::time_from(options.on.stamps),
        offered_from: format!(
            "the packets that the program in front of the sockets saw ({hook}) and the \
             interface's missed packets"
        ),
        ..Facts::default()
    }
}
