// SPDX-License-Identifier: MIT OR Apache-2.0
//! A guest's subscription: a thread reads the hub's pools in place and copies the packets that pass the
//! filter into the guest's part.
//!
//! Copies, because a guest can read all memory that its device maps, and may see only what its groups give it. Each
//! subscription has a thread, so that none delays another.
//!
//! Invariants
//! - The thread waits for nothing that the guest does: packets without room in the part are lost, and
//!   counted.
//! - The guest can spoil only its own reading: nothing that it writes into its control region is used
//!   without a check, at each packet for it, and each [`RETURN_LOOK`] while it holds a full chunk.

use std::io;
use std::os::fd::AsFd as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::sync::mpsc::{Receiver as Inbox, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ringtap_client::{
    Batch, Connection, Control as _, ControlError, Copier, CopyCounts, CopyPool, Next,
    ReceiveError, Receiver,
};
use ringtap_filter::{FilterLocation, Program};
use ringtap_ipc::event::Event;
use ringtap_ipc::mutex::lock;
use ringtap_ipc::protocol::{Reply, Request};
use ringtap_ipc::subscription::{Subscription, Wanted};
use ringtap_ipc::thread::{join, panic_text};
use ringtap_pool::counters::{Counters, Dropped};
use ringtap_pool::format::Geometry;
use ringtap_pool::memory::Region;
use ringtap_pool::private::PrivatePool;
use ringtap_pool::wake::Signal;

use super::answers::Answers;
use super::report::GroupReport;
use super::rules::GuestRules;
use crate::messages::{GuestCounters, GuestGap, GuestPool, HostMessage};

/// Interval between looks at the control region of a guest that has not returned all full chunks.
const RETURN_LOOK: Duration = Duration::from_millis(10);

/// A guest's pool.
pub(super) struct RelayPool(Box<Copier>);

/// What a relay needs besides its subscription.
pub(super) struct RelaySetup {
    /// The subscription, without counters.
    pub(super) report: GroupReport,
    pub(super) epoch: u64,
    /// The memory of the pool, and its sizes.
    pub(super) pool: (Region, Geometry),
    /// How the guest wants it.
    pub(super) wanted: GuestPool,
    /// What the guest missed before.
    pub(super) gap: Option<GuestGap>,
    pub(super) control: Region,
    /// Wakes the guest.
    pub(super) guest: Arc<dyn Signal>,
    pub(super) answers: Answers,
}

/// A subscription of the guest. Its thread ends when this is dropped.
pub(super) struct GuestRelay {
    pub(super) common: Arc<RelayCommon>,
    connection: Arc<Connection>,
    adoptions: Sender<Adoption>,
    rules: GuestRules,
    thread: Option<JoinHandle<RelayPool>>,
}

/// A subscription whose thread has ended.
pub(super) struct EndedRelay {
    /// The final counters.
    pub(super) counters: GuestCounters,
    /// Its memory, which the guest may still read.
    pub(super) pool: Option<RelayPool>,
}

/// State that the relay's thread shares with others.
pub(super) struct RelayCommon {
    pub(super) epoch: u64,
    counts: Mutex<RelayCounts>,
    /// Something happened besides packets: `wake` is signalled.
    news: AtomicBool,
    stop: AtomicBool,
    wake: Event,
}

/// What the thread has counted.
#[derive(Clone)]
struct RelayCounts {
    copies: CopyCounts,
    /// The counters when the hub was asked last.
    at_hub: Counters,
    /// Without counters.
    report: GroupReport,
}

/// Why no more packets come.
pub(super) struct RelayEnd {
    pub(super) reason: String,
    /// The hub has ended, or all of its sources; another one may begin.
    pub(super) hub_is_over: bool,
}

impl RelayEnd {
    fn because(reason: impl ToString) -> Self {
        RelayEnd {
            reason: reason.to_string(),
            hub_is_over: false,
        }
    }
}

impl From<ReceiveError> for RelayEnd {
    fn from(error: ReceiveError) -> Self {
        RelayEnd {
            // Packets that cannot be read would be so again.
            hub_is_over: !matches!(error, ReceiveError::Corrupt(_)),
            ..RelayEnd::because(error)
        }
    }
}

/// Runs the thread's work. A panic ends the subscription, and the guest learns why.
fn caught(work: impl FnOnce() -> Option<RelayEnd>) -> Option<RelayEnd> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic_text(&*panic);
        let reason = format!("the host's thread that copies has panicked: {text}");
        Some(RelayEnd::because(reason))
    })
}

/// A filter that is in force at the hub.
struct Adoption {
    wanted: Vec<Wanted>,
    agent: u64,
    request: u32,
}

struct RelayThread {
    receiver: Receiver,
    pool: RelayPool,
    common: Arc<RelayCommon>,
    adoptions: Inbox<Adoption>,
    setup: RelaySetup,
}

impl GuestRelay {
    /// Starts to copy; `ended` runs on the thread when no more packets come, with the reason.
    pub(super) fn start(
        subscription: Subscription,
        connection: Arc<Connection>,
        setup: RelaySetup,
        ended: impl FnOnce(RelayEnd) + Send + 'static,
    ) -> io::Result<Self> {
        let rules = GuestRules::new(subscription.id);
        let receiver = Receiver::new(subscription, Arc::clone(&connection) as _);
        let receiver = receiver.map_err(io::Error::other)?;
        let (region, geometry) = setup.pool.clone();
        let wanted = &setup.wanted;
        let without = wanted.chunks_without();
        // SAFETY: the device's memory is mapped writable here. Each part has one relay at a time: the thread
        // of the one before has ended. The guest reads the pool and shares the control region, through
        // another machine's mapping.
        let private = unsafe {
            PrivatePool::in_used_memory(
                region,
                geometry,
                wanted.epoch,
                &setup.control,
                (wanted.begins_at, &without),
            )
        };
        let mut private = private.map_err(io::Error::other)?;
        if let Some(gap) = setup.gap {
            private.writers[0].capture_gap(gap.after, gap.duration_ns);
        }
        let pool = CopyPool {
            private,
            waits: false,
        };
        let pool = RelayPool(Box::new(Copier::new(&receiver, vec![pool])));
        let common = Arc::new(RelayCommon {
            epoch: setup.epoch,
            counts: Mutex::new(RelayCounts {
                copies: CopyCounts::new(receiver.lanes()),
                at_hub: Counters::default(),
                report: setup.report.clone(),
            }),
            news: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            wake: Event::new()?,
        });
        let listens = receiver.listen(common.wake.as_fd());
        listens.map_err(io::Error::other)?;
        let (adoptions, inbox) = channel();
        let mut thread = RelayThread {
            receiver,
            pool,
            common: Arc::clone(&common),
            adoptions: inbox,
            setup,
        };
        let builder = std::thread::Builder::new().name("relay".into());
        let thread = builder.spawn(move || {
            let end = caught(|| thread.run());
            thread.pool.end();
            thread.setup.guest.signal();
            if let Some(end) = end {
                ended(end);
            }
            thread.pool
        })?;
        Ok(GuestRelay {
            common,
            connection,
            adoptions,
            rules,
            thread: Some(thread),
        })
    }

    /// Changes the filter at the hub. The thread answers when it is in force in the part, too.
    pub(super) fn set_filter(
        &self,
        filter: &Program,
        agent: u64,
        request: u32,
    ) -> Result<(), ControlError> {
        let adoption = Adoption {
            wanted: self.connection.set_filter(filter)?,
            agent,
            request,
        };
        // Fails if the thread has ended, which the guest learns.
        let _ended = self.adoptions.send(adoption);
        self.common.tell();
        Ok(())
    }

    /// Carries out a request for flow rules at the hub.
    pub(super) fn flow_rules(&mut self, request: Request) -> Result<Reply, ControlError> {
        self.rules.carry_out(&*self.connection, request)
    }

    /// The counters now.
    pub(super) fn counters(&self) -> Result<GuestCounters, ControlError> {
        // First: the hub then knows of every packet that is counted here.
        let counts = lock(&self.common.counts).clone();
        let snapshot = self.connection.snapshot()?;
        let total = counts.copies.tally.total(&snapshot);
        lock(&self.common.counts).at_hub = total;
        Ok(counts.with(&total))
    }

    /// Ends the thread, and with it the counting of packets.
    pub(super) fn end(mut self) -> EndedRelay {
        let pool = self.join();
        let counters = self.counters();
        EndedRelay {
            counters: counters.unwrap_or_else(|_| self.common.known().counters),
            pool,
        }
    }

    fn join(&mut self) -> Option<RelayPool> {
        self.common.stop();
        // The thread waits for no other process.
        self.thread.take().and_then(join)
    }
}

impl Drop for GuestRelay {
    fn drop(&mut self) {
        drop(self.join());
    }
}

impl RelayCommon {
    /// The subscription, with counters as far as they are known without the hub: losses before the reader
    /// are those of the last time that the hub was asked.
    pub(super) fn known(&self) -> GroupReport {
        let counts = lock(&self.counts).clone();
        GroupReport {
            counters: counts.with(&counts.known()),
            ..counts.report
        }
    }

    /// Makes the thread end soon.
    pub(super) fn stop(&self) {
        self.stop.store(true, Relaxed);
        self.tell();
    }

    fn tell(&self) {
        // Pairs with the swap in `RelayThread::run`: the thread sees what was stored before.
        self.news.store(true, Release);
        self.wake.signal();
    }
}

impl RelayCounts {
    fn known(&self) -> Counters {
        let (mut known, at_hub) = (self.copies.tally.alone(), &self.at_hub);
        // By its own count alone, the relay takes what was withheld for filtered.
        known.shunted = at_hub.shunted;
        known.filtered = known.filtered.saturating_sub(at_hub.shunted);
        known.filtered = known.filtered.max(at_hub.filtered);
        known.other_members = known.other_members.max(at_hub.other_members);
        known.dropped = Dropped {
            overrun: known.dropped.overrun.max(at_hub.dropped.overrun),
            ..at_hub.dropped
        };
        known
    }

    fn with(&self, counters: &Counters) -> GuestCounters {
        let (copies, dropped) = (&self.copies, counters.dropped);
        GuestCounters {
            copied: copies.copied(),
            part_full: copies.lost(),
            filtered: counters.filtered,
            shunted: counters.shunted,
            other_members: counters.other_members,
            nic: dropped.nic,
            kernel: dropped.kernel,
            pool_full: dropped.pool_full,
            overrun: dropped.overrun,
        }
    }
}

impl RelayThread {
    /// Copies until a command ends the relay (`None`), or no more packets come.
    fn run(&mut self) -> Option<RelayEnd> {
        loop {
            if self.common.news.swap(false, Acquire) {
                self.common.wake.clear();
                if self.common.stop.load(Relaxed) {
                    return None;
                }
                self.adopt();
            }
            if let Err(end) = self.step() {
                return Some(end);
            }
        }
    }

    fn step(&mut self) -> Result<(), RelayEnd> {
        match self.receiver.try_next()? {
            Next::Batch(batch) => self.take(batch),
            Next::Empty => {
                let next_look = self.pool.look()?;
                Ok(self.receiver.wait(next_look)?)
            }
            Next::Ended => Err(RelayEnd {
                hub_is_over: true,
                ..RelayEnd::because("the hub has ended, or its sources have")
            }),
        }
    }

    fn adopt(&mut self) {
        while let Ok(adoption) = self.adoptions.try_recv() {
            self.receiver.adopt(&adoption.wanted);
            let not_in_source = not_in_source(&adoption.wanted);
            let mut counts = lock(&self.common.counts);
            let report = &mut counts.report;
            report.not_in_source.clone_from(&not_in_source);
            let message = HostMessage::Filtered {
                group: report.group.clone(),
                from: counts.copies.copied(),
                not_in_source,
            };
            let answers = &self.setup.answers;
            answers.send(adoption.agent, adoption.request, message);
        }
    }

    fn take(&mut self, batch: Batch) -> Result<(), RelayEnd> {
        let mut counts = lock(&self.common.counts);
        let copies = &mut counts.copies;
        self.pool.0.copy(&batch, copies, || false)?;
        // Only now: what the hub counts as delivered is there for the guest, also after `kill -9`.
        self.receiver.publish_progress(&copies.tally);
        drop(counts);
        self.pool.wake(&*self.setup.guest);
        self.pool.check_guest()
    }
}

impl RelayPool {
    fn private(&self) -> &PrivatePool {
        &self.0.pools[0].private
    }

    /// Packets that the guest has taken of those that were copied for it, by its own count.
    pub(super) fn taken(&self) -> u64 {
        let pool = self.private();
        let progress = pool.distributor.progress(pool.reader);
        progress.map_or(0, |one| one.delivered.load(Relaxed))
    }

    fn wake(&mut self, guest: &dyn Signal) {
        self.0.wake(|| guest.signal());
    }

    /// Takes back the chunks that the guest has returned, and checks its control region. Returns the time of the
    /// next look, as the guest signals neither returned chunks nor damage.
    fn look(&mut self) -> Result<Option<Instant>, RelayEnd> {
        let pool = &mut self.0.pools[0].private;
        pool.distributor.step().map_err(RelayEnd::because)?;
        let awaits_returns = pool.distributor.holds_sealed(pool.reader);
        self.check_guest()?;
        Ok(awaits_returns.then(|| Instant::now() + RETURN_LOOK))
    }

    /// Checks what the last step read from the guest's control region.
    fn check_guest(&self) -> Result<(), RelayEnd> {
        let pool = self.private();
        if pool.distributor.is_corrupt(pool.reader) {
            Err(RelayEnd::because(
                "the guest wrote impossible values into its control region",
            ))
        } else {
            Ok(())
        }
    }

    fn end(&mut self) {
        self.0.pools[0].private.end();
    }
}

/// Why the filter does not run in the host's kernel; `None` if it does for all sources.
pub(super) fn not_in_source(wanted: &[Wanted]) -> Option<String> {
    wanted.iter().find_map(|wanted| match &wanted.place {
        FilterLocation::Source => None,
        FilterLocation::Reader(reason) => Some(reason.clone()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_the_reason_for_the_end() {
        assert!(caught(|| None).is_none());
        let end = caught(|| panic!("chunk {} is lost", 7)).unwrap();
        assert!(end.reason.ends_with("panicked: chunk 7 is lost"));
        assert!(!end.hub_is_over);
    }
}
