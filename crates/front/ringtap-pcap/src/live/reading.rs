// SPDX-License-Identifier: MIT OR Apache-2.0
//! The packets of a capture, for one thread at a time: which may come again from within a
//! callback, and leave a callback without coming back.
//!
//! Invariants
//! - Who is inside is known by its thread. A thread that is inside may enter again.
//! - [`Entered::with`] calls nothing that enters again, and no callback.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicUsize, Ordering::*};

use ringtap_client::{Lender, ReceiveError};
use ringtap_filter::Program;
use ringtap_ipc::subscription::Wanted;
use ringtap_pool::format::flag;

use super::outlet::Outlet;
use crate::abi::{DIRECTION_IN, DIRECTION_OUT, PacketHeader};

/// How much of a packet is given out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keep {
    /// Runs for each packet: what it returns is how many bytes.
    pub(crate) program: Option<Program>,
}

/// What belongs to the thread that is inside.
pub(crate) struct Inside {
    /// Holds the packet that was delivered last; `None`: packets are delivered in place.
    ///
    /// It never moves: a program that reads within its callback overwrites that packet, no more.
    copy: Option<Box<[u8]>>,
    pub(crate) lender: Lender,
    pub(crate) keep: Keep,
    /// What `pcap_next_ex` points to.
    pub(crate) header: Box<PacketHeader>,
}

/// How packets are to be told.
#[derive(Clone, Copy)]
pub(crate) struct Manner<'a> {
    pub(crate) snap_bytes: u32,
    pub(crate) nanoseconds: bool,
    pub(crate) direction: std::ffi::c_int,
    /// What was sent by it is left out.
    pub(crate) outlet: &'a Outlet,
}

/// The way in.
pub(crate) struct Reading {
    /// Of the thread that is inside; 0 for none.
    owner: AtomicUsize,
    depth: Cell<usize>,
    inside: RefCell<Inside>,
}

// SAFETY: depth and inside are used only by the thread whose number `owner` holds, and that word
// is passed on with release and acquire; a lender may be sent.
unsafe impl Sync for Reading {}

/// Somebody is inside.
pub(crate) struct Entered<'a>(&'a Reading);

impl Reading {
    /// Packets of at most `snap_bytes` are copied, unless they are to be read in place.
    pub(crate) fn new(lender: Lender, snap_bytes: u32, in_place: bool) -> Self {
        let copy_bytes = usize::try_from(snap_bytes).unwrap_or(0);
        let nothing = PacketHeader {
            time: libc::timeval {
                tv_sec: 0,
                tv_usec: 0,
            },
            captured_bytes: 0,
            wire_bytes: 0,
        };
        Reading {
            owner: AtomicUsize::new(0),
            depth: Cell::new(0),
            inside: RefCell::new(Inside {
                copy: (!in_place).then(|| vec![0; copy_bytes].into_boxed_slice()),
                lender,
                keep: Keep::default(),
                header: Box::new(nothing),
            }),
        }
    }

    /// Goes in; `None` while another thread is there.
    pub(crate) fn enter(&self) -> Option<Entered<'_>> {
        let me = this_thread();
        if self.owner.load(Relaxed) != me {
            let taken = self.owner.compare_exchange(0, me, Acquire, Relaxed);
            taken.ok()?;
        }
        self.depth.set(self.depth.get() + 1);
        Some(Entered(self))
    }
}

impl Entered<'_> {
    /// Looks inside; `None` in a signal handler that came while this thread did.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Inside) -> T) -> Option<T> {
        Some(work(&mut *self.0.inside.try_borrow_mut().ok()?))
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let depth = self.0.depth.get() - 1;
        self.0.depth.set(depth);
        if depth == 0 {
            self.0.owner.store(0, Release);
        }
    }
}

/// A number that no other living thread has.
fn this_thread() -> usize {
    thread_local!(static PLACE: u8 = const { 0 });
    PLACE.with(|place| std::ptr::from_ref(place).addr())
}

impl Inside {
    /// The next packet at hand that is to be given out.
    #[inline]
    pub(crate) fn next(&mut self, manner: &Manner<'_>) -> Option<(PacketHeader, *const u8)> {
        loop {
            let lent = *self.lender.one()?;
            let bytes = usize::try_from(lent.captured_bytes).unwrap_or(0);
            // SAFETY: the lender gave this address and length just now. The lease lasts until the
            // lender is asked for more, which is after the last use of `data`; nobody writes there.
            let data = unsafe { std::slice::from_raw_parts(lent.data, bytes) };
            let out = lent.flags & u16::from(flag::OUT) != 0;
            let elsewhere = match manner.direction {
                DIRECTION_IN => out,
                DIRECTION_OUT => !out,
                _ => false,
            };
            if elsewhere || (out && manner.outlet.sent(lent.time_ns, lent.wire_bytes, data)) {
                continue;
            }
            let kept = match &self.keep.program {
                Some(program) => program.run(data, lent.wire_bytes),
                None => lent.captured_bytes,
            };
            let captured_bytes = kept.min(lent.captured_bytes).min(manner.snap_bytes);
            if captured_bytes == 0 && lent.captured_bytes > 0 {
                continue;
            }
            let header = PacketHeader {
                time: time(lent.time_ns, manner.nanoseconds),
                captured_bytes,
                wire_bytes: lent.wire_bytes,
            };
            let kept = usize::try_from(captured_bytes).unwrap_or(0);
            return Some((header, self.give(&data[..kept])));
        }
    }

    /// Where the program finds these bytes: in memory that it may write, or in the pool.
    #[inline]
    fn give(&mut self, data: &[u8]) -> *const u8 {
        let Some(copy) = &mut self.copy else {
            return data.as_ptr();
        };
        copy[..data.len()].copy_from_slice(data);
        copy.as_mut_ptr()
    }

    /// Packets are from now on those that the hub answered this for.
    pub(crate) fn adopt(
        &mut self,
        filter: &Program,
        wanted: &[Wanted],
        keep: Keep,
    ) -> Result<(), ReceiveError> {
        self.lender.adopt(filter, wanted)?;
        self.keep = keep;
        Ok(())
    }
}

/// A time as libpcap tells it.
#[inline]
fn time(time_ns: u64, nanoseconds: bool) -> libc::timeval {
    let fraction = time_ns % 1_000_000_000;
    let fraction = if nanoseconds {
        fraction
    } else {
        fraction / 1000
    };
    libc::timeval {
        tv_sec: libc::time_t::try_from(time_ns / 1_000_000_000).unwrap_or(libc::time_t::MAX),
        tv_usec: libc::suseconds_t::try_from(fraction).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_told_in_the_unit_that_was_asked_for() {
        let (micro, nano) = (
            time(5_123_456_789_012, false),
            time(5_123_456_789_012, true),
        );
        assert_eq!((micro.tv_sec, micro.tv_usec), (5123, 456_789));
        assert_eq!((nano.tv_sec, nano.tv_usec), (5123, 456_789_012));
    }
}
