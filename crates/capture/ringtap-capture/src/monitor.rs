// SPDX-License-Identifier: MIT OR Apache-2.0
//! Thread that follows a source's interface: it reports outages, repairs the attachment, and ends the
//! source when the interface is removed.
//!
//! Invariants
//! - Whatever may wait for the kernel's network lock runs on this thread, not on the hub's.
//! - An outage gives two messages: one at its start and one at its end.
//! - The clock difference of the stamps is at most [`TICK`] old.

mod attachment;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ringtap_device::Options;
use ringtap_ipc::event::{Event, readable_among};
use ringtap_ipc::mutex::lock;
use ringtap_ipc::thread::join;
use ringtap_net::confine::limit_source_thread;
use ringtap_net::interface::{Arrival, Interface, InterfaceChange, InterfaceError, Watch};
use ringtap_net::rights::WHILE_CAPTURING;
use ringtap_pool::wake::Signal as _;

use crate::CaptureError;
use crate::clock;
pub use attachment::{Attachment, Repairs, repaired_note};

/// Interval of the checks of the attachment and of the clock.
const TICK: Duration = Duration::from_secs(1);
/// Most messages that wait for the hub; beyond it the oldest is dropped.
const MAX_NOTES: usize = 64;

/// Reaction of a source to the removal of its interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AtRemoval {
    /// The source ends.
    #[default]
    End,
    /// The source waits for an interface of the same name.
    Wait,
}

impl AtRemoval {
    /// The choice in a device's options.
    #[must_use]
    pub fn from_options(options: &Options) -> Self {
        if options.wait {
            AtRemoval::Wait
        } else {
            AtRemoval::End
        }
    }
}

/// The monitor of one interface; its thread ends when this is dropped.
pub struct InterfaceMonitor {
    shared: Arc<MonitorState>,
    thread: Option<JoinHandle<()>>,
}

/// State that the thread and its owner share.
struct MonitorState {
    found: Mutex<MonitorFindings>,
    /// Signals the owner.
    changed: Event,
    stopping: AtomicBool,
    /// Signals the thread.
    stop: Event,
}

/// Findings of the thread that the owner has not taken yet.
#[derive(Default)]
struct MonitorFindings {
    is_waiting: bool,
    notes: VecDeque<String>,
    repairs: u64,
    failure: Option<CaptureError>,
}

impl MonitorState {
    fn found(&self) -> MutexGuard<'_, MonitorFindings> {
        lock(&self.found)
    }
}

impl InterfaceMonitor {
    /// Starts to follow an interface of the calling thread's namespace.
    pub fn start(
        interface: &Interface,
        at_removal: AtRemoval,
        attachment: Box<dyn Attachment>,
    ) -> Result<Self, CaptureError> {
        let watch = Watch::new(interface)?;
        let action = "starting the interface's monitor";
        let events = || -> io::Result<_> { Ok((Event::new()?, Event::new()?)) };
        let (changed, stop) = events().map_err(CaptureError::system(&interface.name, action))?;
        let shared = Arc::new(MonitorState {
            found: Mutex::default(),
            changed,
            stopping: AtomicBool::new(false),
            stop,
        });
        let mut follower = Follower {
            interface: interface.clone(),
            watch,
            attachment,
            at_removal,
            shared: Arc::clone(&shared),
            out_since: None,
            checked: Instant::now(),
        };
        let thread = std::thread::Builder::new().name("interface".into());
        let thread = thread.spawn(move || {
            limit_source_thread(WHILE_CAPTURING);
            if let Err(error) = follower.follow() {
                follower.shared.found().failure = Some(error);
                follower.shared.changed.signal();
            }
        });
        Ok(InterfaceMonitor {
            shared,
            thread: Some(thread.map_err(CaptureError::system(&interface.name, action))?),
        })
    }

    /// Discards the signal that something was found.
    pub fn clear(&self) {
        self.shared.changed.clear();
    }

    /// Whether no packet can arrive: the interface is down, has no carrier, or is missing.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.shared.found().is_waiting
    }

    /// Number of times that another program detached the source's program.
    #[must_use]
    pub fn repairs(&self) -> u64 {
        self.shared.found().repairs
    }

    /// The messages since the last call.
    #[must_use]
    pub fn take_notes(&self) -> Vec<String> {
        self.shared.found().notes.drain(..).collect()
    }

    /// The reason why the source has to end, once.
    #[must_use]
    pub fn take_failure(&self) -> Option<CaptureError> {
        self.shared.found().failure.take()
    }

    /// Ends the thread.
    pub fn stop(&mut self) {
        self.shared.stopping.store(true, Release);
        self.shared.stop.signal();
        if let Some(thread) = self.thread.take() {
            join(thread);
        }
    }
}

impl AsFd for InterfaceMonitor {
    /// Readable when something was found.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.changed.as_fd()
    }
}

impl Drop for InterfaceMonitor {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The thread's state.
struct Follower {
    interface: Interface,
    watch: Watch,
    attachment: Box<dyn Attachment>,
    at_removal: AtRemoval,
    shared: Arc<MonitorState>,
    /// Start of the outage, if there is one.
    out_since: Option<Instant>,
    checked: Instant,
}

impl Follower {
    fn follow(&mut self) -> Result<(), CaptureError> {
        loop {
            while let Some(change) = self.watch.take()? {
                self.handle(change)?;
            }
            self.note_name();
            if self.checked.elapsed() >= TICK {
                self.check()?;
            }
            if self.is_stopping() {
                return Ok(());
            }
            let left = TICK.saturating_sub(self.checked.elapsed());
            sleep_on(&self.shared, self.watch.as_fd(), left)
                .map_err(CaptureError::system(&self.interface.name, "waiting"))?;
        }
    }

    fn is_stopping(&self) -> bool {
        self.shared.stopping.load(Acquire)
    }

    fn check(&mut self) -> Result<(), CaptureError> {
        self.checked = Instant::now();
        clock::refresh();
        match self.attachment.check(&self.interface) {
            Ok(None) => Ok(()),
            Ok(Some(note)) => {
                self.shared.found().repairs += 1;
                self.note(note);
                Ok(())
            }
            // The watch reports a removal in the next round.
            Err(CaptureError::Interface(InterfaceError::Removed { .. })) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn handle(&mut self, change: InterfaceChange) -> Result<(), CaptureError> {
        let name = &self.interface.name;
        match change {
            InterfaceChange::Up => self.end_outage(),
            InterfaceChange::Down => self.begin_outage(format!("{name} is down; waiting")),
            InterfaceChange::NoCarrier => {
                self.begin_outage(format!("{name} has no carrier; waiting"))
            }
            InterfaceChange::Removed => return self.removed(),
            // A kind of change that concerns no source.
            _ => {}
        }
        Ok(())
    }

    fn begin_outage(&mut self, note: String) {
        if self.out_since.is_none() {
            self.out_since = Some(Instant::now());
            self.shared.found().is_waiting = true;
            self.note(note);
        }
    }

    fn end_outage(&mut self) {
        if let Some(since) = self.out_since.take() {
            self.shared.found().is_waiting = false;
            self.note(format!(
                "{} is up again after {:.1} s",
                self.interface.name,
                since.elapsed().as_secs_f64()
            ));
        }
    }

    /// Ends the source, or waits for an interface of the same name.
    fn removed(&mut self) -> Result<(), CaptureError> {
        self.attachment.detach();
        if self.at_removal == AtRemoval::End {
            return Err(self.interface.removed().into());
        }
        // The message at the start of the outage said only that the interface is down.
        self.out_since.get_or_insert_with(Instant::now);
        self.shared.found().is_waiting = true;
        self.note(format!(
            "{} was removed; waiting for an interface of this name",
            self.interface.name
        ));
        let mut arrival = Arrival::for_interface(&self.interface.name)?;
        while !self.is_stopping() {
            if let Some(interface) = arrival.take()?
                && self.attach(interface)?
            {
                return Ok(());
            }
            sleep_on(&self.shared, arrival.as_fd(), TICK)
                .map_err(CaptureError::system(&self.interface.name, "waiting"))?;
            clock::refresh();
        }
        Ok(())
    }

    /// Attaches to the interface that came; `false` if it is gone again.
    fn attach(&mut self, interface: Interface) -> Result<bool, CaptureError> {
        match self.attachment.attach(&interface) {
            Ok(()) => {}
            Err(CaptureError::Interface(InterfaceError::Removed { .. })) => return Ok(false),
            Err(error) => return Err(error),
        }
        self.watch = Watch::new(&interface)?;
        self.interface = interface;
        if self.interface.is_up && self.interface.has_carrier {
            self.end_outage();
        }
        Ok(true)
    }

    /// Reports a new name; the interface keeps its index, and the attachment holds.
    fn note_name(&mut self) {
        if self.watch.name() != self.interface.name {
            let name = self.watch.name().to_owned();
            let old = std::mem::replace(&mut self.interface.name, name);
            self.note(format!("{old} has the new name {}", self.interface.name));
        }
    }

    fn note(&self, note: String) {
        let mut found = self.shared.found();
        if found.notes.len() == MAX_NOTES {
            found.notes.pop_front();
        }
        found.notes.push_back(note);
        drop(found);
        self.shared.changed.signal();
    }
}

/// Sleeps until the owner stops the thread, `fd` is readable, or the time is over.
fn sleep_on(shared: &MonitorState, fd: BorrowedFd<'_>, limit: Duration) -> io::Result<()> {
    readable_among(&[shared.stop.as_fd(), fd], Some(limit)).map(drop)
}
