// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends generated packets or those of a file out of one interface, at a rate, and counts all.
//!
//! # Examples
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
//! - Each tried packet counts as sent or as refused, by the result of the device.
//! - Dropping the sender, or killing its process, leaves no eBPF program behind.

mod batch;
mod clock;
mod counters;
mod error;
mod feed;
mod inject;
mod live;
mod options;
mod output;
mod pace;
mod packet;
mod shared;
mod worker;

use std::{
    sync::{
        Arc,
        atomic::Ordering::Relaxed,
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use ringtap_ipc::thread::join;
use ringtap_net::{confine::limit_thread, interface::Interface, rights::WHILE_CAPTURING};
use ringtap_packet::FCS_BYTES;
use shared::SharedRun;
use worker::SendWorker;

pub use counters::{Method, SendCounters, SendRates};
pub use error::{NoLiveFrames, SendError};
pub use inject::PacketInjector;
pub use options::{Load, SenderOptions};
pub use packet::Qdisc;

/// Time after the duration of a run until [`Sender::wait`] stops it.
const GRACE: Duration = Duration::from_nanos(2 * worker::GRACE_NS);

/// A running sender; dropping it stops it.
#[derive(Debug)]
pub struct Sender {
    shared: Arc<SharedRun>,
    thread: Option<JoinHandle<Result<(), SendError>>>,
    /// The thread has the other end: the channel closes when the thread ends.
    ended: Receiver<()>,
    deadline: Option<Instant>,
}

impl Sender {
    /// Starts a thread that sends; returns at about the time of the first packet.
    ///
    /// # Errors
    ///
    /// - [`SendError::Interface`]: no such interface (with near names), or it is down.
    /// - [`SendError::Mtu`], [`SendError::Traffic`]: such packets cannot be sent.
    /// - [`SendError::Live`]: the options ask for live frames, which cannot be used. Whether the
    ///   device takes them shows with the first packet: then [`finish`](Self::finish) returns this.
    /// - [`SendError::NoRights`], [`SendError::Cpu`], [`SendError::File`].
    pub fn start(options: SenderOptions) -> Result<Self, SendError> {
        let interface = usable(&options)?;
        let deadline = options
            .duration
            .and_then(|one| Instant::now().checked_add(one + GRACE));
        let shared = Arc::<SharedRun>::default();
        let (ready, is_ready) = mpsc::channel();
        let (until_end, ended) = mpsc::channel();
        let run = Arc::clone(&shared);
        let thread = thread::Builder::new().name("sender".into()).spawn(move || {
            let _until_end = until_end;
            let prepared = SendWorker::prepare(options, interface, run);
            let (start, run) = match prepared {
                Ok(run) => (Ok(()), Some(run)),
                Err(error) => (Err(error), None),
            };
            // Opening needs more rights than sending.
            let _keeps_them = limit_thread(WHILE_CAPTURING);
            let _starter_is_gone = ready.send(start);
            run.map_or(Ok(()), |(worker, packets)| worker.run(packets))
        });
        let thread = thread.map_err(SendError::kernel("starting the sending thread"))?;
        is_ready.recv().unwrap_or(Err(SendError::Lost))?;
        Ok(Self {
            shared,
            thread: Some(thread),
            ended,
            deadline,
        })
    }

    /// The counters so far; final once [`wait`](Self::wait) returns true.
    #[must_use]
    pub fn counters(&self) -> SendCounters {
        self.shared.counters()
    }

    /// The notes since the last call.
    #[must_use]
    pub fn take_notes(&self) -> Vec<String> {
        self.shared.take_notes()
    }

    /// Asks the sender to end, which takes about 20 ms.
    pub fn stop(&self) {
        self.shared.stop.store(true, Relaxed);
    }

    /// A function that stops this sender, from another thread or a signal handler.
    pub fn stopper(&self) -> impl Fn() + Send + 'static {
        let stop = Arc::clone(&self.shared.stop);
        move || stop.store(true, Relaxed)
    }

    /// Waits for the end of the run, at most `timeout`; returns whether the run has ended.
    ///
    /// Stops a run that waits for a silent pipe when its duration is over.
    #[must_use]
    pub fn wait(&self, timeout: Duration) -> bool {
        let ended = self.ended.recv_timeout(timeout) == Err(RecvTimeoutError::Disconnected);
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
    /// The error that ended the run early.
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
            // Only `finish` returns the error.
            join(thread);
        }
    }
}

/// Finds the interface, and checks that it can send the packets.
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
