// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which `pcap_t *` belongs to this library, and what each leads to.
//!
//! A handle of this library is the address of a [`HandleToken`]. Tokens are reused, never freed.
//!
//! Invariants
//! - A token begins with [`MARK`]. A handle of the real library begins with the address of a
//!   function, which `MARK` is not: such addresses lie below 2^47.
//! - A closed handle is recognised until [`REMEMBERED`] other handles were closed.
//! - [`break_loop`] takes no lock, allocates nothing and leaves `errno` as it was. It never writes
//!   to a descriptor that was closed.

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use ringtap_client::Stop;
use rustix::event::{EventfdFlags, eventfd};

use crate::abi::Pcap;
use crate::handle::PcapHandle;
use crate::lock;

const MARK: u64 = u64::from_ne_bytes(*b"Ringtap\xff");
/// Closed handles whose tokens are not reused yet.
const REMEMBERED: usize = 64;

/// Tokens of closed handles, the one that was closed first in front.
static CLOSED: Mutex<VecDeque<&'static HandleToken>> = Mutex::new(VecDeque::new());

/// What a handle of this library points to.
#[repr(C)]
pub(crate) struct HandleToken {
    mark: AtomicU64,
    /// `pcap_breakloop` was called.
    breaking: AtomicBool,
    /// Ends a wait; opened when the handle is activated, and kept for the token's next handle.
    wakeup: OnceLock<OwnedFd>,
    /// The real library's handle, if that library opened the device.
    real: AtomicPtr<Pcap>,
    open: Mutex<Option<Arc<PcapHandle>>>,
}

/// Which library a handle belongs to.
pub(crate) enum HandleOwner {
    /// This one.
    Ringtap(Arc<PcapHandle>),
    /// The real library, which knows it by this pointer.
    Libpcap(*mut Pcap),
    /// None: NULL, or a handle of this library that was closed.
    None,
}

impl HandleToken {
    fn new() -> Self {
        HandleToken {
            mark: AtomicU64::new(MARK),
            breaking: AtomicBool::new(false),
            wakeup: OnceLock::new(),
            real: AtomicPtr::new(ptr::null_mut()),
            open: Mutex::new(None),
        }
    }

    fn open(&self) -> MutexGuard<'_, Option<Arc<PcapHandle>>> {
        lock(&self.open)
    }

    /// Opens what ends a wait.
    pub(crate) fn prepare_wakeup(&self) -> Result<(), String> {
        if self.wakeup.get().is_none() {
            let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
            let made = eventfd(0, flags).map_err(|error| format!("no descriptor: {error}"))?;
            // Another thread that activates this handle may have been faster.
            let _duplicate = self.wakeup.set(made);
        }
        Ok(())
    }

    /// What ends a wait.
    pub(crate) fn stop(&self) -> Option<Stop<'_>> {
        let fd = self.wakeup.get()?;
        Some(Stop {
            raised: &self.breaking,
            fd: fd.as_fd(),
        })
    }

    /// Whether the loop is to be broken; clears the request.
    #[inline]
    pub(crate) fn take_break(&self) -> bool {
        if !self.breaking.load(Relaxed) {
            return false;
        }
        self.breaking.store(false, Relaxed);
        if let Some(wakeup) = self.wakeup.get() {
            // Fails if `break_loop` did not write yet: the next wait then ends early, once.
            let _empty = rustix::io::read(wakeup, &mut [0; 8]);
        }
        true
    }

    fn break_loop(&self) {
        // Pairs with the load in the client: a reader that was woken finds it raised.
        self.breaking.store(true, Release);
        if let Some(wakeup) = self.wakeup.get() {
            let _full = rustix::io::write(wakeup, &1_u64.to_ne_bytes());
        }
    }

    /// From now on all calls go to this handle of the real library.
    pub(crate) fn hand_over(&self, real: *mut Pcap) {
        self.real.store(real, Release);
    }

    fn real(&self) -> Option<*mut Pcap> {
        let real = self.real.load(Acquire);
        (!real.is_null()).then_some(real)
    }

    /// Lets a later handle use the token: nobody uses the last one any more.
    pub(crate) fn retire(&'static self) {
        let mut closed = lock(&CLOSED);
        closed.push_back(self);
    }
}

/// The token of a handle of this library, open or closed.
fn token(p: *const Pcap) -> Option<&'static HandleToken> {
    let mark = p.cast::<AtomicU64>();
    if mark.is_null() || !mark.is_aligned() {
        return None;
    }
    // SAFETY: a handle, by libpcap's manual: a token, or an open handle of the real library, which
    // is larger than a mark.
    let mark = unsafe { &*mark }.load(Relaxed);
    // SAFETY: a token, as only tokens begin with the mark, and tokens are never freed.
    (mark == MARK).then(|| unsafe { &*p.cast::<HandleToken>() })
}

/// Whether this is a handle of this library, open or closed.
pub(crate) fn is_ours(p: *const Pcap) -> bool {
    token(p).is_some()
}

/// The library that this handle belongs to.
pub(crate) fn owner(p: *mut Pcap) -> HandleOwner {
    let Some(token) = token(p) else {
        return match p.is_null() {
            true => HandleOwner::None,
            false => HandleOwner::Libpcap(p),
        };
    };
    if let Some(real) = token.real() {
        return HandleOwner::Libpcap(real);
    }
    token
        .open()
        .clone()
        .map_or(HandleOwner::None, HandleOwner::Ringtap)
}

/// Makes a handle for a device.
pub(crate) fn add(source: Option<String>) -> *mut Pcap {
    let mut closed = lock(&CLOSED);
    let oldest = match closed.len() > REMEMBERED {
        true => closed.pop_front(),
        false => None,
    };
    drop(closed);
    let token = oldest.unwrap_or_else(|| Box::leak(Box::new(HandleToken::new())));
    let _of_the_last_handle = token.take_break();
    *token.open() = Some(Arc::new(PcapHandle::new(token, source)));
    ptr::from_ref(token).cast_mut().cast()
}

/// Closes a handle, and ends the read that another thread or an outer call is in; gives the handle,
/// and that of the real library behind it.
pub(crate) fn remove(p: *const Pcap) -> Option<(Arc<PcapHandle>, Option<*mut Pcap>)> {
    let token = token(p)?;
    let handle = token.open().take()?;
    handle.close();
    token.break_loop();
    let real = token.real.swap(ptr::null_mut(), AcqRel);
    Some((handle, (!real.is_null()).then_some(real)))
}

/// Breaks the loop of a handle; fails with the real library's handle if that library has to do it.
pub(crate) fn break_loop(p: *const Pcap) -> Result<(), *mut Pcap> {
    let token = token(p).ok_or(p.cast_mut())?;
    match token.real() {
        Some(real) => Err(real),
        None => {
            token.break_loop();
            Ok(())
        }
    }
}
