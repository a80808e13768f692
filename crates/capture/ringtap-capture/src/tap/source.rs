// SPDX-License-Identifier: MIT OR Apache-2.0
//! A tap as a source: lanes, counters, signals and end of capture.

use std::io;
use std::mem::offset_of;
use std::ops::{Deref, DerefMut};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use std::time::Duration;

use libbpf_rs::RingBuffer;
use ringtap_device::DeviceSpec;
use ringtap_ipc::time::now_ns;
use ringtap_pool::counters::{Counters, Dropped};
use ringtap_pool::distributor::{LaneEnds, Policy};
use ringtap_pool::ids::LaneId;
use ringtap_pool::memory::Words;
use ringtap_pool::queue::{Consumer, Producer, QueueMemory};
use ringtap_pool::source::{Counts, Facts, Pause, Source, SourceDriver, Status};
use ringtap_pool::view::Pool;
use ringtap_pool::wake::WakeWord;

use super::attach::{AttachedTap, attach, plan};
use super::attachment::{TapAttachment, UnseenPackets};
use super::forward::Forwarded;
use super::layout::{ControlWords, LaneWords};
use super::object::Loaded;
use super::options::TapOptions;
use super::plan::TapPlan;
use super::programs::{LinkSet, Links};
use super::rules::TapRules;
use super::verdicts::InlineControl;
use crate::CaptureError;
use crate::monitor::{InterfaceMonitor, Repairs};
use crate::nic::SharedLosses;
use crate::nic_stamps;
use crate::source::SourceStart;
use crate::source::any_of;
use ringtap_bpf::map::Mapping;
use ringtap_bpf::{self as bpf, link};
use ringtap_net::interface::{Interface, Promiscuous};

const LINKTYPE_ETHERNET: u16 = 1;
/// Time within which other CPUs see that a program marked its lane as busy, in nanoseconds. Stores
/// become visible much faster.
const BUSY_VISIBLE_NS: u64 = 10_000;
/// Maximum number of looks at a busy lane. A program runs for less; a virtual CPU may stop within it.
const MAX_BUSY_LOOKS: u32 = 64;
/// Maximum number of attempts to read consistent counters of a lane that is being written.
const MAX_LOOKS: u32 = 1000;

/// A tap on one interface.
pub struct Tap {
    /// The tap as a source.
    pub source: Source,
    /// The forwarding counters.
    pub forwarded: Forwarded,
    /// What the programs do for the inline reader of a bridge.
    pub inline: InlineControl,
    words: Words<LaneWords>,
    #[cfg(test)]
    pub(super) links: Links,
}

impl Deref for Tap {
    type Target = Source;

    fn deref(&self) -> &Source {
        &self.source
    }
}

impl DerefMut for Tap {
    fn deref_mut(&mut self) -> &mut Source {
        &mut self.source
    }
}

impl From<Tap> for Source {
    fn from(tap: Tap) -> Source {
        tap.source
    }
}

/// The tap's driver.
struct TapDriver {
    /// Stopped first: it attaches programs.
    monitor: InterfaceMonitor,
    links: Links,
    missed: UnseenPackets,
    lanes: Words<LaneWords>,
    signals: RingBuffer<'static>,
    /// Packets have time stamps of the NIC, of whose clock nothing is known.
    has_nic_time: bool,
    /// Set when capture has ended; holds the reason until it is reported.
    ended: Option<Option<CaptureError>>,
    loaded: Loaded,
}

impl Tap {
    /// Attaches a tap; packets are captured when the function returns.
    ///
    /// # Errors
    ///
    /// Every [`CaptureError`]; nothing is attached then.
    pub fn attach(options: &TapOptions) -> Result<Self, CaptureError> {
        let interface = Interface::find(&options.on.interface)?;
        interface.require_up()?;
        if !interface.link_type.is_ethernet() {
            return Err(CaptureError::NotEthernet {
                kind: "the tap",
                link_type: interface.link_type.0,
                interface: interface.name,
            });
        }
        let missed = UnseenPackets::new(SharedLosses::for_interface(&interface)?);
        let plan = plan(options, &interface)?;
        let attached = attach(options, &interface, &plan)?;
        Tap::assemble(options, &interface, &plan, attached, missed)
    }

    fn assemble(
        options: &TapOptions,
        interface: &Interface,
        plan: &TapPlan,
        attached: AttachedTap,
        missed: UnseenPackets,
    ) -> Result<Self, CaptureError> {
        let facts = facts(options, plan, &attached);
        let AttachedTap { links, loaded, .. } = attached;
        let action = "sharing memory with the program";
        let system = |error| CaptureError::system(&interface.name, action)(error);
        let lanes = words::<LaneWords>(&loaded.lanes, 0, plan.possible).map_err(system)?;
        let ends = (0..plan.lanes).map(|lane| ends(&loaded, plan, lane));
        let ends = ends.collect::<io::Result<_>>().map_err(system)?;
        let links = Links::new(links);
        let forward = options.forward.clone();
        let inline = InlineControl::new(loaded.inline.clone());
        let rules = TapRules::new(interface, &loaded, &links, &lanes, forward, inline.clone());
        let rules = rules.map_err(system)?;
        // The loopback and outgoing captures do not need promiscuous mode.
        let is_promiscuous =
            options.on.promiscuous && options.on.direction.arriving() && !interface.is_loopback;
        let promiscuous = is_promiscuous.then(|| Promiscuous::enable(interface.index));
        let mut attachment = TapAttachment {
            links: links.clone(),
            lanes: lanes.clone(),
            controls: loaded.control_words.clone(),
            missed: missed.clone(),
            is_promiscuous,
            promiscuous: promiscuous.transpose()?,
            reading: None,
            repairs: Repairs::default(),
        };
        if plan.queues.is_empty() {
            attachment.begin();
        }
        let monitor =
            InterfaceMonitor::start(interface, options.on.at_removal, Box::new(attachment))?;
        let wakeups = [loaded.wakeups.as_fd(), monitor.as_fd()];
        let pool = Pool::new(loaded.pool.region(), plan.geometry);
        let pool = pool.map_err(|error| system(io::Error::other(error)))?;
        let pool_file = loaded.pool_map.as_fd().try_clone_to_owned();
        let readers_wake = loaded.readers_wakeups.as_ref();
        let readers_wake = readers_wake.map(|fd| fd.as_fd().try_clone_to_owned());
        let wake = any_of(wakeups).map_err(system)?;
        let forwarded = Forwarded {
            words: loaded.forwarded.clone(),
            lanes: words(&loaded.lanes, 0, plan.lanes).map_err(system)?,
        };
        let update_losses = missed.nic.update();
        #[cfg(test)]
        let for_tests = links.clone();
        let driver = TapDriver {
            monitor,
            links,
            missed,
            lanes: lanes.clone(),
            signals: loaded.signals().map_err(system)?,
            has_nic_time: facts.time_from.is_some(),
            ended: None,
            loaded,
        };
        let source = Source {
            driver: Box::new(driver),
            facts,
            pool,
            pool_file: Some(pool_file.map_err(system)?),
            pool_is_map: true,
            lanes: ends,
            rules: Box::new(rules),
            update_losses: Some(update_losses),
            wake,
            readers_wake: readers_wake.transpose().map_err(system)?.map(Arc::new),
        };
        Ok(Tap {
            source,
            forwarded,
            inline,
            words: lanes,
            #[cfg(test)]
            links: for_tests,
        })
    }

    /// Number of impossible chunk numbers recycled, which only a corrupt distributor sends.
    #[must_use]
    pub fn refused(&self) -> u64 {
        let lanes = self.words.iter();
        lanes.map(|lane| lane.refused.load(Relaxed)).sum()
    }
}

/// Opens a device of this kind.
pub(crate) fn open_device(
    device: &DeviceSpec,
    _start: SourceStart,
) -> Result<Source, CaptureError> {
    let interface = Interface::find(&device.name)?;
    interface.require_up()?;
    let options = TapOptions::from_device(device, &interface);
    nic_stamps::enable(device)?;
    Ok(Tap::attach(&options)?.source)
}

impl SourceDriver for TapDriver {
    fn counts(&mut self) -> Counts {
        Counts {
            lanes: self.lanes.iter().map(lane_counts).collect(),
            dropped: Dropped {
                kernel: self.missed.unseen(),
                ..self.missed.nic.dropped()
            },
        }
    }

    fn pause(&mut self, lane: LaneId, pause: Pause) {
        let is_paused = pause == Pause::Paused;
        if let Ok(lane) = usize::try_from(lane.0) {
            self.loaded.set_paused(lane, is_paused);
        }
    }

    fn horizon_ns(&mut self) -> Option<u64> {
        if self.has_nic_time {
            return None;
        }
        // Before the lanes: a program that marks its lane later also takes a later time stamp.
        let now = now_ns().saturating_sub(BUSY_VISIBLE_NS);
        self.lanes.iter().all(has_published).then_some(now)
    }

    fn status(&mut self) -> Status {
        match &mut self.ended {
            None if self.monitor.is_waiting() => Status::Waiting,
            None => Status::Running,
            Some(reason) => reason
                .take()
                .map_or(Status::Ended, CaptureError::into_status),
        }
    }

    fn detached_count(&self) -> u64 {
        self.monitor.repairs()
    }

    fn take_notes(&mut self) -> Vec<String> {
        self.monitor.take_notes()
    }

    fn clear_wake(&mut self) {
        // After a failure the signals stay, and the caller is woken again.
        let _again = self.signals.consume();
        self.monitor.clear();
        if let Some(error) = self.monitor.take_failure() {
            self.ended.get_or_insert(Some(error));
        }
    }

    fn stop(&mut self) {
        self.monitor.stop();
        let LinkSet {
            capturing,
            forwarding,
            ..
        } = std::mem::take(&mut *self.links.lock());
        if capturing.is_empty() && forwarding.is_none() {
            return;
        }
        for attached in capturing {
            link::detach(attached.link);
        }
        // After the XDP program, which leaves packets to it.
        if let Some(attached) = forwarding {
            wait_for_running_programs(&self.lanes);
            link::detach(attached.link);
        }
        wait_for_running_programs(&self.lanes);
        self.missed.nic.finish();
        self.ended.get_or_insert(None);
    }
}

impl Drop for TapDriver {
    fn drop(&mut self) {
        self.stop();
    }
}

fn facts(options: &TapOptions, plan: &TapPlan, attached: &AttachedTap) -> Facts {
    Facts {
        device: format!("tap:{}", options.on.interface),
        interface: Some(options.on.interface.clone()),
        link_type: LINKTYPE_ETHERNET,
        snap_length: plan.geometry.snap_length,
        policy: Policy::DropNewest,
        notes: attached.notes.clone(),
        offered_from: format!(
            "the packets that the program saw ({}) and the interface's missed packets",
            attached.hook
        ),
        sent_from: options.on.direction.leaving().then(|| {
            "sent packets are captured before queueing and segmentation: some may be sent later, in \
             several packets, or not at all"
                .to_owned()
        }),
        time_from: nic_stamps::time_from(options.on.stamps),
    }
}

fn words<T>(mapping: &Arc<Mapping>, at: usize, count: u32) -> io::Result<Words<T>> {
    let count = usize::try_from(count).map_err(io::Error::other)?;
    let outside = || io::Error::other("a lane lies outside its map");
    mapping.words(at, count).ok_or_else(outside)
}

/// The distributor's ends of one lane.
fn ends(loaded: &Loaded, plan: &TapPlan, lane: u32) -> io::Result<LaneEnds> {
    let index = usize::try_from(lane).map_err(io::Error::other)?;
    let (written, ours) = (
        index * size_of::<LaneWords>(),
        index * size_of::<ControlWords>(),
    );
    let entries = usize::try_from(plan.ring_entries).map_err(io::Error::other)?;
    let ring = index * entries * size_of::<AtomicU64>();
    let of_lane = |at| words::<AtomicU32>(&loaded.lanes, written + at, 1);
    let of_ours = |at| words::<AtomicU32>(&loaded.control, ours + at, 1);
    let opened = QueueMemory::new(
        of_ours(offset_of!(ControlWords, capture_head))?,
        of_lane(offset_of!(LaneWords, capture_tail))?,
        words(&loaded.capture_ring, ring, plan.ring_entries)?,
    );
    let recycle = QueueMemory::new(
        of_lane(offset_of!(LaneWords, recycle_head))?,
        of_ours(offset_of!(ControlWords, recycle_tail))?,
        words(&loaded.recycle_ring, ring, plan.ring_entries)?,
    );
    Ok(LaneEnds {
        opened: Consumer::new(opened.map_err(io::Error::other)?),
        recycle: Producer::new(recycle.map_err(io::Error::other)?),
        wake: WakeWord::new(of_ours(offset_of!(ControlWords, wake))?),
        chunks: plan.share(),
    })
}

/// Reads a consistent set of a lane's counters; gives up consistency on a very busy CPU.
pub(super) fn lane_counts(lane: &LaneWords) -> Counters {
    let mut counts = look(lane);
    for _ in 0..MAX_LOOKS {
        if counts.offered == counts.accounted() {
            break;
        }
        counts = look(lane);
    }
    counts
}

fn look(lane: &LaneWords) -> Counters {
    // Later counters first, so that `offered` is never behind the others.
    let captured = lane.sequence.load(Acquire);
    let pool_full = lane.pool_full.load(Acquire);
    let filtered = lane.filtered.load(Acquire);
    let shunted = lane.shunted.load(Acquire);
    let failed = lane.failed.load(Acquire);
    let other_queue = lane.other_queue.load(Acquire);
    let nested = lane.nested.load(Acquire);
    let offered = lane.offered.load(Acquire);
    Counters {
        offered: (offered + nested).saturating_sub(other_queue),
        delivered: captured,
        bytes: lane.bytes.load(Acquire),
        filtered,
        shunted,
        dropped: Dropped {
            pool_full,
            kernel: failed + nested,
            ..Dropped::default()
        },
        ..Counters::default()
    }
}

/// Whether the program's run that was going on has ended, and with it its packet is published.
fn has_published(lane: &LaneWords) -> bool {
    // Pairs with the program's store at its end, after which its packet is visible.
    let is_idle = || lane.busy.load(Acquire) == 0;
    if is_idle() {
        return true;
    }
    let offered = lane.offered.load(Acquire);
    // The run counts its packet somewhere within it, so the next run is certain only at the second.
    let next_began = || lane.offered.load(Acquire).wrapping_sub(offered) >= 2;
    (0..MAX_BUSY_LOOKS).any(|_| is_idle() || next_began())
}

/// Waits until no detached or replaced program is running.
pub(super) fn wait_for_running_programs(lanes: &[LaneWords]) {
    if bpf::wait_for_running_programs() {
        return;
    }
    // Runs mark their lane as busy, and are far shorter than the wait above.
    while lanes.iter().any(|lane| lane.busy.load(Acquire) != 0) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

    /// Reads during which packets are counted.
    const LOOKS: u32 = 1000;

    #[test]
    fn no_packet_is_settled_before_it_is_offered() {
        let lane = LaneWords::default();
        let settles = [
            &lane.sequence,
            &lane.filtered,
            &lane.shunted,
            &lane.pool_full,
            &lane.failed,
        ];
        let is_over = AtomicBool::new(false);
        let all = thread::scope(|scope| {
            let unsettled = scope.spawn(|| {
                let (mut looks, mut last, mut found) = (0, 0, None);
                while looks < LOOKS {
                    let counts = look(&lane);
                    looks += u32::from(counts.offered != last);
                    last = counts.offered;
                    found = found.or((counts.offered < counts.accounted()).then_some(counts));
                }
                is_over.store(true, Release);
                found
            });
            // In the program's order.
            let mut packets = 0_u64;
            for settled in settles.iter().cycle() {
                lane.offered.fetch_add(1, Release);
                settled.fetch_add(1, Release);
                packets += 1;
                if is_over.load(Acquire) {
                    break;
                }
            }
            assert_eq!(unsettled.join().unwrap(), None);
            packets
        });
        let counts = lane_counts(&lane);
        assert_eq!((counts.offered, counts.accounted()), (all, all));
    }
}
