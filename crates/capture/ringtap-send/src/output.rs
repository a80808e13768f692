// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends by live frames if they work, else by AF_PACKET, with a note.
//!
//! Invariants
//! - Packets leave in the order in which they are given, also across a change of the method.
//! - Counters never decrease; a packet that is tried by both methods counts once.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::io::Errno;

use ringtap_ipc::time::{nanoseconds, now_ns};
use ringtap_packet::Plan;
use ringtap_pool::number::{to_u32, to_usize};

use super::{
    batch::PacketBatch,
    counters::{Method, SendCounters},
    error::{NoLiveFrames, SendError},
    live::{self, Live},
    options::SenderOptions,
    packet::{Qdisc, SendSocket},
    shared::SharedRun,
};
use ringtap_net::interface::{Interface, InterfaceChange, Watch};

/// Longest wait for the interface between two looks at the stop flag.
const LOOK: Duration = Duration::from_millis(20);
/// Most packets that AF_PACKET is given at once.
const MAX_COPIES: u64 = 256;

enum Backend {
    Live(Box<Live>),
    Packet(SendSocket),
}

/// One interface and how packets reach it.
pub(super) struct SendOutput {
    backend: Backend,
    /// Counters of the method before this one.
    before: SendCounters,
    /// Counters of this method.
    now: SendCounters,
    interface: Interface,
    method: Option<Method>,
    qdisc: Qdisc,
    shared: Arc<SharedRun>,
    /// Time in which the interface was down.
    outages: Duration,
    batch: PacketBatch,
}

impl SendOutput {
    /// Opens an output for the packets of a plan, or of a file if there is none.
    pub(super) fn open(
        options: &SenderOptions,
        interface: Interface,
        shared: Arc<SharedRun>,
        plan: Option<&Plan>,
    ) -> Result<Self, SendError> {
        let live = || match plan {
            Some(plan) => Live::for_plan(interface.index, plan),
            None => Live::for_file(interface.index),
        };
        let packet = || SendSocket::open(interface.index, options.qdisc).map(Backend::Packet);
        let backend = match options.method {
            Some(Method::Packet) => packet()?,
            Some(Method::Live) => Backend::Live(Box::new(live().map_err(SendError::Live)?)),
            None => match live() {
                Ok(live) => Backend::Live(Box::new(live)),
                Err(why) => {
                    let backend = packet()?;
                    shared.say(fell_back(&why));
                    backend
                }
            },
        };
        if let Backend::Live(live) = &backend
            && !live.starts_at_once()
        {
            shared.say(
                "without CAP_SYS_ADMIN live frames leave in bursts every 10 to 40 ms, and more \
                 slowly: `--method packet` sends evenly",
            );
        }
        if !interface.has_carrier {
            shared.say(format!(
                "{} has no carrier, perhaps because its other end is down: the kernel drops packets and \
                 reports them as sent",
                interface.name
            ));
        }
        Ok(Self {
            backend,
            before: SendCounters::default(),
            now: SendCounters::default(),
            interface,
            method: options.method,
            qdisc: options.qdisc,
            shared,
            outages: Duration::ZERO,
            batch: PacketBatch::default(),
        })
    }

    /// Counters of all packets so far, without the time.
    pub(super) fn counters(&self) -> SendCounters {
        let method = match self.backend {
            Backend::Live(_) => Method::Live,
            Backend::Packet(_) => Method::Packet,
        };
        SendCounters {
            method,
            ..self.before.and(self.now)
        }
    }

    /// Makes and sends the next packets, from number `sequence` on, at most `count`.
    ///
    /// # Errors
    ///
    /// When nothing can be sent any more.
    pub(super) fn make(&mut self, plan: &Plan, sequence: u64, count: u64) -> Result<(), SendError> {
        if let Backend::Live(live) = &mut self.backend {
            let unproven = self.now.attempted() == 0;
            let count = if unproven { 1 } else { count };
            let count = to_u32(count);
            let done = live.send_next(count);
            if self.settle(done)? {
                return Ok(());
            }
        }
        self.batch.clear();
        let time_ns = now_ns();
        for number in sequence..sequence + count.min(MAX_COPIES) {
            self.batch.push_with(|bytes| {
                plan.write(number, time_ns, bytes);
            });
        }
        let batch = std::mem::take(&mut self.batch);
        let done = self.copy(&batch);
        self.batch = batch;
        done
    }

    /// Sends the packets of a batch, at most [`live::MAX_PACKETS`].
    ///
    /// # Errors
    ///
    /// When nothing can be sent any more.
    pub(super) fn send(&mut self, batch: &PacketBatch) -> Result<(), SendError> {
        let longest = batch.longest();
        if let Backend::Live(live) = &mut self.backend {
            if longest > live::LONGEST_BYTES {
                self.fall_back(live::too_long(longest))?;
            } else {
                let done = live.send(batch);
                if self.settle(done)? {
                    return Ok(());
                }
            }
        }
        self.copy(batch)
    }

    /// Takes the counters of live frames; false if AF_PACKET has to send the packets instead.
    fn settle(&mut self, done: Result<SendCounters, SendError>) -> Result<bool, SendError> {
        let now = match done {
            Ok(now) => now,
            Err(SendError::Live(why)) => return self.fall_back(why).map(|()| false),
            Err(error) => return Err(error),
        };
        let never_took_one = now.sent == 0;
        let news = now.refused > self.now.refused;
        if never_took_one && matches!(refusal(now), Some(Errno::NXIO | Errno::OPNOTSUPP)) {
            self.now = SendCounters::default();
            let why = NoLiveFrames::Device {
                name: self.interface.name.clone(),
                errno: now.refusal_errno,
                is_veth: self.interface.kind.as_deref() == Some("veth"),
            };
            return self.fall_back(why).map(|()| false);
        }
        self.now = now;
        if news {
            self.wait_until_up()?;
        }
        Ok(true)
    }

    /// Waits while the interface is down, unless the run is stopped.
    fn wait_until_up(&mut self) -> Result<(), SendError> {
        let interface = self.interface.refresh()?;
        if interface.is_up {
            return Ok(());
        }
        let start = Instant::now();
        self.shared
            .say(format!("{} is down; waiting", interface.name));
        let mut watch = Watch::new(&interface)?;
        let mut is_up = false;
        while !is_up && !self.shared.is_stopped() {
            match watch.wait(Some(LOOK))? {
                Some(InterfaceChange::Removed) => return Err(interface.removed().into()),
                Some(InterfaceChange::Up | InterfaceChange::NoCarrier) => is_up = true,
                _ => {}
            }
        }
        let waited = start.elapsed();
        self.outages += waited;
        if is_up {
            let (name, seconds) = (watch.name(), waited.as_secs_f64());
            self.shared
                .say(format!("{name} is up again after {seconds:.1} s"));
        }
        Ok(())
    }

    /// Time in which the interface was down.
    pub(super) fn outages_ns(&self) -> u64 {
        nanoseconds(self.outages)
    }

    /// Continues through AF_PACKET, unless the options ask for live frames.
    fn fall_back(&mut self, why: NoLiveFrames) -> Result<(), SendError> {
        if self.method == Some(Method::Live) {
            return Err(SendError::Live(why));
        }
        let packet = SendSocket::open(self.interface.index, self.qdisc)?;
        self.before = self.before.and(std::mem::take(&mut self.now));
        self.backend = Backend::Packet(packet);
        self.shared.say(fell_back(&why));
        Ok(())
    }

    /// Sends the packets of a batch by AF_PACKET, also through outages.
    fn copy(&mut self, batch: &PacketBatch) -> Result<(), SendError> {
        let mut skip = 0;
        loop {
            let Backend::Packet(packet) = &mut self.backend else {
                return Ok(());
            };
            let before = packet.counters().attempted();
            let done = packet.send(batch, skip, &self.shared.stop);
            self.now = packet.counters();
            let tried = self.now.attempted() - before;
            skip = skip.saturating_add(to_usize(tried));
            match done {
                Ok(()) => return Ok(()),
                Err(Errno::NETDOWN | Errno::NXIO | Errno::NODEV) => self.wait_until_up()?,
                Err(errno) => {
                    return Err(SendError::kernel("sending through AF_PACKET")(errno.into()));
                }
            }
        }
    }
}

fn fell_back(why: &NoLiveFrames) -> String {
    format!("{why}; sending through AF_PACKET instead")
}

/// The error of the latest refusal, if it came with one.
fn refusal(counters: SendCounters) -> Option<Errno> {
    let errno = counters.refusal_errno;
    (errno > 0).then(|| Errno::from_raw_os_error(errno))
}
