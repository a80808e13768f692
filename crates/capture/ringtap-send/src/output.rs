// SPDX-License-Identifier: MIT OR Apache-2.0
//! The way out: live frames if they can be used, else AF_PACKET, which is said aloud.
//!
//! Invariants
//! - Packets leave in the order in which they are given, also across a change of the method.
//! - Totals never go back; a packet that is tried a second way counts once.
#![forbid(unsafe_code)]

use std::sync::{Arc, atomic::AtomicBool};

use rustix::io::Errno;

use ringtap_ipc::time::now_ns;
use ringtap_packet::Plan;

use super::{
    Method, Way,
    batch::Batch,
    error::{NoLiveFrames, SendError},
    live::{self, Live},
    note::{Note, Notes},
    packet::{PacketSocket, Qdisc},
    totals::Totals,
};
use ringtap_net::interface::Interface;

/// Most packets that AF_PACKET is given at once.
const MOST_COPIES: u64 = 256;

enum Backend {
    Live(Box<Live>),
    Packet(PacketSocket),
}

/// One interface and how packets reach it.
pub(super) struct Output {
    backend: Backend,
    /// By the methods used before this one.
    before: Totals,
    /// By this one.
    now: Totals,
    interface: Interface,
    method: Method,
    qdisc: Qdisc,
    notes: Notes,
    stop: Arc<AtomicBool>,
    batch: Batch,
}

/// What an output is made from.
pub(super) struct Wish {
    pub(super) interface: Interface,
    pub(super) method: Method,
    pub(super) qdisc: Qdisc,
    pub(super) notes: Notes,
    pub(super) stop: Arc<AtomicBool>,
}

impl Output {
    /// Opens a way for the packets of a plan, or of a file if there is none.
    pub(super) fn open(wish: Wish, plan: Option<&Plan>) -> Result<Self, SendError> {
        let ifindex = wish.interface.index;
        let live = || match plan {
            Some(plan) => Live::for_plan(ifindex, plan),
            None => Live::for_file(ifindex),
        };
        let packet = || PacketSocket::open(ifindex, wish.qdisc).map(Backend::Packet);
        let backend = match wish.method {
            Method::Packet => packet()?,
            Method::Live => Backend::Live(Box::new(live().map_err(SendError::Live)?)),
            Method::Auto => match live() {
                Ok(live) => Backend::Live(Box::new(live)),
                Err(why) => {
                    let backend = packet()?;
                    wish.notes.say(Note::FellBack(why));
                    backend
                }
            },
        };
        if let Backend::Live(live) = &backend
            && !live.starts_at_once()
        {
            wish.notes.say(Note::InBursts);
        }
        Ok(Self {
            backend,
            before: Totals::default(),
            now: Totals::default(),
            interface: wish.interface,
            method: wish.method,
            qdisc: wish.qdisc,
            notes: wish.notes,
            stop: wish.stop,
            batch: Batch::default(),
        })
    }

    /// How packets go out at present.
    pub(super) fn way(&self) -> Way {
        match self.backend {
            Backend::Live(_) => Way::Live,
            Backend::Packet(_) => Way::Packet,
        }
    }

    /// What became of all packets so far.
    pub(super) fn totals(&self) -> Totals {
        self.before + self.now
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
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            let done = live.make(count);
            if self.settle(done)? {
                return Ok(());
            }
        }
        self.batch.clear();
        let time_ns = now_ns();
        for number in sequence..sequence + count.min(MOST_COPIES) {
            self.batch.push_with(|bytes| {
                plan.write(number, time_ns, bytes);
            });
        }
        let batch = std::mem::take(&mut self.batch);
        let done = self.copy(&batch);
        self.batch = batch;
        done
    }

    /// Sends the packets of a batch, at most [`live::MOST_PACKETS`].
    ///
    /// # Errors
    ///
    /// When nothing can be sent any more.
    pub(super) fn send(&mut self, batch: &Batch) -> Result<(), SendError> {
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

    /// Takes the totals of live frames; false when they must go the other way instead.
    fn settle(&mut self, done: Result<Totals, SendError>) -> Result<bool, SendError> {
        let now = match done {
            Ok(now) => now,
            Err(SendError::Live(why)) => return self.fall_back(why).map(|()| false),
            Err(error) => return Err(error),
        };
        let never_took_one = now.sent == 0;
        let news = now.refused > self.now.refused;
        if never_took_one && matches!(errno(now), Some(Errno::NXIO | Errno::OPNOTSUPP)) {
            self.now = Totals::default();
            let why = NoLiveFrames::Device {
                name: self.interface.name.clone(),
                errno: now.refusal,
                is_veth: self.interface.kind.as_deref() == Some("veth"),
            };
            return self.fall_back(why).map(|()| false);
        }
        self.now = now;
        if news {
            self.interface.refresh()?.require_up()?;
        }
        Ok(true)
    }

    /// Goes on through AF_PACKET, unless only live frames will do.
    fn fall_back(&mut self, why: NoLiveFrames) -> Result<(), SendError> {
        if self.method == Method::Live {
            return Err(SendError::Live(why));
        }
        let packet = PacketSocket::open(self.interface.index, self.qdisc)?;
        self.before = self.before + std::mem::take(&mut self.now);
        self.backend = Backend::Packet(packet);
        self.notes.say(Note::FellBack(why));
        Ok(())
    }

    fn copy(&mut self, batch: &Batch) -> Result<(), SendError> {
        let Backend::Packet(packet) = &mut self.backend else {
            return Ok(());
        };
        let done = packet.send(batch, &self.stop);
        self.now = packet.totals();
        done.map_err(|errno| match self.interface.refresh() {
            Ok(interface) => match interface.require_up() {
                Ok(()) => SendError::kernel("sending through AF_PACKET")(errno.into()),
                Err(down) => down.into(),
            },
            Err(gone) => gone.into(),
        })
    }
}

/// None if nothing was refused, or without an error.
fn errno(totals: Totals) -> Option<Errno> {
    (totals.refusal > 0).then(|| Errno::from_raw_os_error(totals.refusal))
}
