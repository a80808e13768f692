// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sender: made packets or those of a file, out of one interface, at a rate, all counted.
//!
//! ```no_run
//! use ringtap_device::Rate;
//! use ringtap_packet::Traffic;
//! use ringtap_send::{Load, Sender, SenderOptions};
//!
//! # fn main() -> Result<(), ringtap_send::SendError> {
//! let load = Load::Made { traffic: Traffic::default(), rate: Rate::PacketsPerSecond(100_000) };
//! let sender = Sender::start(SenderOptions::new("veth0", load))?;
//! std::thread::sleep(std::time::Duration::from_secs(1));
//! println!("{} sent so far", sender.counters().sent);
//! sender.stop();
//! let counters = sender.finish()?;
//! # Ok(())
//! # }
//! ```
//!
//! Invariants
//! - A packet that was tried counts either as sent or as refused, by the device's own word.
//! - Nothing is left behind when the sender is dropped or its process killed.

mod batch;
mod clock;
mod error;
mod feed;
mod live;
mod note;
mod output;
mod pace;
mod packet;
mod shared;
mod totals;
mod worker;

use std::{
    num::NonZeroU64,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use clock::Clock;
use feed::Feed;
use note::Notes;
use output::{Output, Wish};
use pace::Pace;
use ringtap_device::Rate;
use ringtap_net::interface::Interface;
use ringtap_packet::{FCS_BYTES, MacAddress, Plan, Sizes, Traffic, WIRE_OVERHEAD_BYTES};
use shared::Shared;
use worker::{Limits, Span, Worker};

pub use error::{NoLiveFrames, SendError};
pub use note::Note;
pub use packet::Qdisc;

/// What to send.
#[derive(Clone, Debug)]
pub enum Load {
    /// Packets made on the way.
    Made {
        /// What they look like.
        traffic: Traffic,
        /// How fast.
        rate: Rate,
    },
    /// The packets of a pcap or pcapng file.
    File {
        /// Which file; `-` is standard input.
        path: String,
        /// Whether to start again at its end.
        repeat: bool,
        /// How fast.
        timing: Timing,
    },
}

/// How much longer than its duration a run may take to end by itself.
const PATIENCE: Duration = Duration::from_nanos(2 * worker::GRACE_NS);

/// How fast the packets of a file are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Timing {
    /// At a steady rate.
    Rate(Rate),
    /// With the gaps with which they were recorded.
    Recorded {
        /// 1 is the recorded speed, 10 is ten times as fast.
        factor: f64,
    },
}

/// Which way out to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// Live frames where they can be used, else AF_PACKET, with a [`Note`].
    #[default]
    Auto,
    /// XDP live frames or an error.
    Live,
    /// AF_PACKET.
    Packet,
}

/// The way that packets really go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// XDP live frames.
    #[default]
    Live,
    /// AF_PACKET.
    Packet,
}

/// What a sender is to do.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SenderOptions {
    /// Interface to send out of; its name in the calling thread's network namespace.
    pub interface: String,
    /// What to send, and how fast.
    pub load: Load,
    /// Stop after this many packets, sent or refused.
    pub count: Option<u64>,
    /// Stop after this time.
    pub duration: Option<Duration>,
    /// CPU for the sending thread.
    pub cpu: Option<usize>,
    /// Which way out to use.
    pub method: Method,
    /// Whether AF_PACKET goes through the queueing discipline.
    pub qdisc: Qdisc,
}

impl SenderOptions {
    /// Sends `load` out of `interface` without an end, in the best way there is.
    #[must_use]
    pub fn new(interface: &str, load: Load) -> Self {
        Self {
            interface: interface.to_owned(),
            load,
            count: None,
            duration: None,
            cpu: None,
            method: Method::default(),
            qdisc: Qdisc::default(),
        }
    }
}

/// What became of the packets so far; all of one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SendCounters {
    /// Packets that the device took.
    pub sent: u64,
    /// Packets that it did not take.
    pub refused: u64,
    /// Bytes of the packets sent, without frame check sequence.
    pub bytes: u64,
    /// Time since the first packet.
    pub elapsed_ns: u64,
    /// How packets went out last.
    pub way: Way,
    /// Number of the error that the latest refusal came with; 0 if it came without.
    pub refusal_errno: i32,
}

impl SendCounters {
    /// Bits that the packets sent take on the wire: with preamble, check sequence and gap.
    #[must_use]
    pub fn wire_bits(&self) -> u64 {
        (self.bytes + self.sent * WIRE_OVERHEAD_BYTES) * 8
    }

    /// Why the latest refused packet was refused, if any was.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        match (self.refused, self.refusal_errno) {
            (0, _) => None,
            (_, 0) => Some("its queue was full".to_owned()),
            (_, errno) => Some(error::error_name(errno)),
        }
    }
}

/// A running sender; dropping it stops it.
#[derive(Debug)]
pub struct Sender {
    shared: Arc<Shared>,
    stop: Arc<AtomicBool>,
    notes: Notes,
    thread: Option<JoinHandle<Result<(), SendError>>>,
    deadline: Option<Instant>,
}

/// Stops a sender from anywhere.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<AtomicBool>);

impl Stopper {
    /// Asks the sender to end; it does within some 20 ms.
    pub fn stop(&self) {
        self.0.store(true, Relaxed);
    }
}

impl Sender {
    /// Starts to send, in a thread of its own.
    ///
    /// Returns when everything is in place, at about the time of the first packet.
    ///
    /// # Errors
    ///
    /// - [`SendError::Interface`]: no such interface (with near names), or it is down.
    /// - [`SendError::Mtu`], [`SendError::Traffic`]: such packets cannot be sent.
    /// - [`SendError::Live`]: only live frames were wanted and they cannot be used. That a device
    ///   takes none shows with the first packet, so that [`finish`](Self::finish) may tell it.
    /// - [`SendError::NoRights`], [`SendError::Cpu`], [`SendError::File`].
    pub fn start(options: SenderOptions) -> Result<Self, SendError> {
        let interface = usable(&options)?;
        let (shared, stop) = (Arc::<Shared>::default(), Arc::<AtomicBool>::default());
        let notes = Notes::default();
        let job = Job {
            wish: Wish {
                interface,
                method: options.method,
                qdisc: options.qdisc,
                notes: notes.clone(),
                stop: Arc::clone(&stop),
            },
            shared: Arc::clone(&shared),
            limits: Limits {
                count: options.count,
                duration: options.duration,
            },
            load: options.load,
        };
        let (ready, is_ready) = mpsc::channel();
        let at_end = AtEnd(Arc::clone(&shared));
        let thread = thread::Builder::new().name("sender".into()).spawn(move || {
            let prepared = worker::settle(options.cpu).and_then(|()| job.prepare());
            let outcome = match prepared {
                Ok(run) => {
                    let _starter_is_gone = ready.send(Ok(()));
                    run.go()
                }
                Err(error) => {
                    let _starter_is_gone = ready.send(Err(error));
                    Ok(())
                }
            };
            drop(at_end);
            outcome
        });
        let thread = thread.map_err(SendError::kernel("starting the sending thread"))?;
        is_ready.recv().unwrap_or(Err(SendError::Lost))?;
        let deadline = options
            .duration
            .and_then(|one| Instant::now().checked_add(one + PATIENCE));
        Ok(Self {
            shared,
            stop,
            notes,
            thread: Some(thread),
            deadline,
        })
    }

    /// What became of the packets so far; final once [`wait`](Self::wait) tells so.
    #[must_use]
    pub fn counters(&self) -> SendCounters {
        self.shared.counters()
    }

    /// What the user should be told, each once.
    #[must_use]
    pub fn take_notes(&self) -> Vec<Note> {
        self.notes.take()
    }

    /// Asks the sender to end; it does within some 20 ms.
    pub fn stop(&self) {
        self.stopper().stop();
    }

    /// What stops this sender from another thread or a signal handler.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.stop))
    }

    /// Waits for the end of the run, at most `timeout`; tells whether it has come.
    ///
    /// Also ends a run whose duration is over while it waits for a silent pipe.
    #[must_use]
    pub fn wait(&self, timeout: Duration) -> bool {
        let ended = self.shared.wait(timeout);
        if self
            .deadline
            .is_some_and(|deadline| Instant::now() >= deadline)
        {
            self.stop();
        }
        ended
    }

    /// Waits for the end of the run.
    ///
    /// # Errors
    ///
    /// What ended it early; [`counters`](Self::counters) has the figures up to there.
    pub fn finish(mut self) -> Result<SendCounters, SendError> {
        while !self.wait(Duration::from_millis(100)) {}
        let thread = self.thread.take();
        thread.map_or(Ok(()), |thread| {
            thread.join().unwrap_or(Err(SendError::Lost))
        })?;
        Ok(self.shared.counters())
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            // What went wrong is only told by `finish`.
            let _untold = thread.join();
        }
    }
}

/// The interface, if such packets can leave it.
fn usable(options: &SenderOptions) -> Result<Interface, SendError> {
    let interface = Interface::find(&options.interface)?;
    interface.require_up()?;
    if !interface.link_type.is_ethernet() {
        return Err(SendError::NotAnEthernetInterface {
            name: interface.name,
            link_type: interface.link_type.dlt(),
        });
    }
    if let Load::Made { traffic, .. } = &options.load {
        traffic.check()?;
        let tag_bytes = if traffic.vlans.is_empty() { 0 } else { 4 };
        let size_bytes = traffic.largest_size_bytes();
        let needed_bytes = size_bytes.saturating_sub(FCS_BYTES + 14 + tag_bytes);
        if needed_bytes > interface.mtu_bytes {
            return Err(SendError::Mtu {
                name: interface.name,
                size_bytes,
                needed_bytes,
                mtu_bytes: interface.mtu_bytes,
            });
        }
    }
    Ok(interface)
}

/// Tells that the run is over, however its thread ends.
struct AtEnd(Arc<Shared>);

impl Drop for AtEnd {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A run that is not prepared yet.
struct Job {
    wish: Wish,
    shared: Arc<Shared>,
    limits: Limits,
    load: Load,
}

/// A run that can begin.
struct Run {
    worker: Worker,
    source: RunSource,
}

enum RunSource {
    Made { plan: Box<Plan>, pace: Pace },
    File { feed: Box<Feed>, is_recorded: bool },
}

impl Job {
    /// Opens everything that the run needs.
    fn prepare(self) -> Result<Run, SendError> {
        let stop = Arc::clone(&self.wish.stop);
        let notes = self.wish.notes.clone();
        let (output, source) = match self.load {
            Load::Made { traffic, rate } => {
                let own_mac = self.wish.interface.mac.filter(|mac| *mac != [0; 6]);
                let plan = Plan::new(&traffic, MacAddress(own_mac.unwrap_or([2, 0, 0, 0, 0, 1])))?;
                say_if_raised(&traffic, &notes);
                let (packets, bits): (NonZeroU64, NonZeroU64) = plan.cycle();
                let pace = Pace::new(rate, packets, bits);
                let output = Output::open(self.wish, Some(&plan))?;
                let plan = Box::new(plan);
                (output, RunSource::Made { plan, pace })
            }
            Load::File {
                path,
                repeat,
                timing,
            } => {
                let feed = Feed::open(&path, repeat, timing, notes, Arc::clone(&stop))?;
                let feed = Box::new(feed);
                let is_recorded = matches!(timing, Timing::Recorded { .. });
                let output = Output::open(self.wish, None)?;
                (output, RunSource::File { feed, is_recorded })
            }
        };
        let worker = Worker {
            output,
            shared: self.shared,
            stop,
            limits: self.limits,
            clock: Clock::start(),
            span: Span::default(),
        };
        Ok(Run { worker, source })
    }
}

impl Run {
    fn go(mut self) -> Result<(), SendError> {
        self.worker.clock = Clock::start();
        match self.source {
            RunSource::Made { plan, pace } => {
                let outcome = self.worker.run_made(&plan, pace);
                self.worker.close(0);
                outcome
            }
            RunSource::File {
                mut feed,
                is_recorded,
            } => {
                let outcome = self.worker.run_file(&mut feed, is_recorded);
                self.worker.close(feed.short());
                outcome
            }
        }
    }
}

fn say_if_raised(traffic: &Traffic, notes: &Notes) {
    let least_bytes = traffic.least_size_bytes();
    if traffic.sizes == Sizes::Imix && least_bytes > 64 {
        notes.say(Note::MixRaised { least_bytes });
    }
}
