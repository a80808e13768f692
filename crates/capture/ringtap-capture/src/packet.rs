// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `packet` source: a thread copies an AF_PACKET ring (TPACKET_V3) into the pool.
//!
//! Invariants
//! - Works with `CAP_NET_RAW` alone, also inside a user namespace.
//! - The kernel rejects unwanted packets (other direction, second passage on `lo`) before it
//!   counts them: `offered` is the kernel's count of offered packets.
//! - After a stop every packet that the kernel counted is captured or counted as lost.

mod frame;
mod options;
mod ring;
mod socket;
mod worker;

use std::sync::Arc;

use ringtap_device::{DeviceSpec, StampClock};
use ringtap_filter::LinkType;
use ringtap_net::interface::{Interface, Promiscuous};
use ringtap_pool::distributor::Policy;
use ringtap_pool::source::{Counts, Facts, LossUpdate, Source};

use crate::monitor::{Attachment, InterfaceMonitor};
use crate::nic::SharedLosses;
use crate::nic_stamps;
use crate::source::SourceStart;
use crate::source::{LaneTotals, SourceSetup, ThreadedDriver};
use crate::{CaptureError, InterfaceOptions};

use options::PacketPlan;
pub use options::options;
use ring::Ring;
use socket::{PacketSocket, system};
use worker::{PacketProgress, PacketWorker};

/// Opens an interface; packets are captured when the function returns.
///
/// # Errors
///
/// Those of [`CaptureError`] that concern packet sockets.
pub fn open(options: &InterfaceOptions) -> Result<Source, CaptureError> {
    let interface = Interface::find(&options.interface)?;
    let plan = PacketPlan::new(options, &interface)?;
    let mut setup = SourceSetup::new(&options.interface, plan.geometry)?;
    let lane = setup.lane(options.pool.chunks.packets)?;
    let promiscuous = plan.promiscuous;
    let promiscuous = promiscuous.then(|| Promiscuous::enable(interface.index));
    let (socket, ring, mut notes) = open_ring(&plan, options.stamps)?;
    notes.splice(0..0, options.notes.iter().cloned());
    let progress = PacketProgress::new(socket)?;
    let nic = SharedLosses::for_interface(&interface)?;
    let (writer, classifier) = (lane.writer, lane.classifier);
    let mut worker = PacketWorker::new(ring, writer, classifier, Arc::clone(&progress), &interface);
    progress.socket().bind(interface.index)?;
    let attachment = PacketAttachment {
        progress: Arc::clone(&progress),
        nic: nic.clone(),
        is_promiscuous: plan.promiscuous,
        promiscuous: promiscuous.transpose()?,
        link_type: interface.link_type,
    };
    let driver = PacketDriver {
        monitor: InterfaceMonitor::start(&interface, options.at_removal, Box::new(attachment))?,
        progress,
        totals: lane.totals,
        nic,
    };
    let work = move || worker.work();
    let facts = facts(&plan, options, &interface, notes);
    setup.start(
        facts,
        Box::new(driver),
        vec![("packet".into(), Box::new(work))],
    )
}

/// Opens a device of this kind.
pub(crate) fn open_device(
    device: &DeviceSpec,
    _start: SourceStart,
) -> Result<Source, CaptureError> {
    let options = options::from_device(device)?;
    nic_stamps::enable(device)?;
    open(&options)
}

/// Opens a socket that receives nothing yet, and its ring, which is smaller if memory is short.
fn open_ring(
    plan: &PacketPlan,
    stamps: StampClock,
) -> Result<(PacketSocket, Ring, Vec<String>), CaptureError> {
    let mut notes = Vec::new();
    let mut layout = plan.ring;
    loop {
        let socket = PacketSocket::open()?;
        socket.attach(&plan.filter)?;
        if stamps == StampClock::Nic {
            socket.use_nic_stamps()?;
        }
        match socket.make_ring(&layout) {
            Ok(()) => {
                let mapped = Ring::map(&socket, &layout);
                let ring = mapped.map_err(system("mapping the ring"))?;
                return Ok((socket, ring, notes));
            }
            Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => {
                let smaller = layout.halved();
                layout = smaller.ok_or(CaptureError::NoRing {
                    bytes: layout.bytes(),
                })?;
                notes = vec![format!(
                    "memory is short: the kernel's ring has {} MiB instead of {}",
                    layout.bytes() >> 20,
                    plan.ring.bytes() >> 20,
                )];
            }
            Err(error) => return Err(system("making the ring")(error)),
        }
    }
}

fn facts(
    plan: &PacketPlan,
    options: &InterfaceOptions,
    interface: &Interface,
    mut notes: Vec<String>,
) -> Facts {
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
        sent_from: options.direction.leaving().then(|| {
            "sent packets are captured after queueing and after segmentation by the kernel, and \
             before segmentation by the interface"
                .to_owned()
        }),
        time_from: nic_stamps::time_from(options.stamps),
    }
}

/// The packet socket's part of the source.
struct PacketDriver {
    /// Stopped first: it binds the socket.
    monitor: InterfaceMonitor,
    progress: Arc<PacketProgress>,
    totals: LaneTotals,
    nic: SharedLosses,
}

impl ThreadedDriver for PacketDriver {
    fn counts(&mut self) -> Counts {
        // First, so that the counters are not older.
        let is_final = self.progress.is_final();
        let kernel = self.progress.kernel();
        let mut lane = self.totals.counts();
        lane.dropped.kernel = kernel.dropped.kernel;
        // Until the thread has ended, packets in the kernel's ring do not count as offered.
        lane.offered = if is_final {
            kernel.offered
        } else {
            lane.accounted()
        };
        Counts {
            lanes: vec![lane],
            dropped: self.nic.dropped(),
        }
    }

    fn loss_update(&self) -> Option<LossUpdate> {
        Some(self.nic.update())
    }

    fn stop(&mut self) {
        self.monitor.stop();
        // Last reading while the interface may still exist.
        self.nic.finish();
        self.progress.stop();
    }

    fn monitor(&self) -> Option<&InterfaceMonitor> {
        Some(&self.monitor)
    }
}

/// The socket's attachment to its interface. The kernel keeps it while the interface is down.
struct PacketAttachment {
    progress: Arc<PacketProgress>,
    nic: SharedLosses,
    /// Whether the interface receives packets for other hosts too, and the socket for it.
    is_promiscuous: bool,
    promiscuous: Option<Promiscuous>,
    link_type: LinkType,
}

impl Attachment for PacketAttachment {
    fn detach(&mut self) {
        self.promiscuous = None;
    }

    fn attach(&mut self, interface: &Interface) -> Result<(), CaptureError> {
        if interface.link_type != self.link_type {
            return Err(CaptureError::OtherLinkType {
                interface: interface.name.clone(),
                before: self.link_type,
                now: interface.link_type,
            });
        }
        self.nic.lock().continue_with(interface)?;
        if self.is_promiscuous {
            self.promiscuous = Some(Promiscuous::enable(interface.index)?);
        }
        self.progress.socket().bind(interface.index)
    }
}
