// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tells which `pcap_t *` belong to this library, and finds their handles.
//!
//! A handle of this library is the address of a [`HandleToken`]. Tokens are reused, never freed.
//!
//! Invariants
//! - A token begins with [`MARK`]. A handle of the real library begins with the address of a
//!   function, which `MARK` cannot be: such addresses are below 2^47.
//! - A closed handle is recognised until [`REMEMBERED`] other handles are closed.
//! - [`break_loop`] takes no lock, allocates nothing and does not change `errno`. It never writes
//!   to a closed descriptor.

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use ringtap_client::Stop;
use ringtap_ipc::mutex::lock;
use rustix::event::{EventfdFlags, eventfd};

use crate::abi::Pcap;
use crate::handle::PcapHandle;

const MARK: u64 = u64::from_ne_bytes(*b"Ringtap\xff");
/// Closed handles whose tokens are not reused yet.
const REMEMBERED: usize = 64;

/// Tokens of closed handles, the first closed in front.
static CLOSED: Mutex<VecDeque<&'static HandleToken>> = Mutex::new(VecDeque::new());

/// A handle of this library points to its token.
#[repr(C)]
pub(crate) struct HandleToken {
    mark: AtomicU64,
    /// The program called `pcap_breakloop`.
    breaking: AtomicBool,
    /// Ends a wait; created when the handle is activated, and kept for the token's next handle.
    wakeup: OnceLock<OwnedFd>,
    /// The real library's handle, if that library opened the device.
    real: AtomicPtr<Pcap>,
    open: Mutex<Option<Arc<PcapHandle>>>,
}

/// Owner of a handle.
pub(crate) enum HandleOwner {
    /// This library.
    Ringtap(Arc<PcapHandle>),
    /// The real library, with its pointer to the handle.
    Libpcap(*mut Pcap),
    /// None: NULL, or a closed handle of this library.
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

    /// Creates the eventfd that ends a wait.
    pub(crate) fn prepare_wakeup(&self) -> Result<(), String> {
        if self.wakeup.get().is_none() {
            let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
            let made = eventfd(0, flags).map_err(|error| format!("no descriptor: {error}"))?;
            // Another thread that activates this handle may have been faster.
            let _duplicate = self.wakeup.set(made);
        }
        Ok(())
    }

    /// Flag and descriptor that end a wait.
    pub(crate) fn stop(&self) -> Option<Stop<'_>> {
        let fd = self.wakeup.get()?;
        Some(Stop {
            raised: &self.breaking,
            fd: fd.as_fd(),
        })
    }

    /// Whether the loop must be broken; clears the request.
    #[inline]
    pub(crate) fn take_break(&self) -> bool {
        if !self.breaking.load(Relaxed) {
            return false;
        }
        self.breaking.store(false, Relaxed);
        if let Some(wakeup) = self.wakeup.get() {
            // Fails if `break_loop` has not written yet; one later wait then ends early.
            let _empty = rustix::io::read(wakeup, &mut [0; 8]);
        }
        true
    }

    fn break_loop(&self) {
        // Pairs with the load in the client: a woken reader finds the flag set.
        self.breaking.store(true, Release);
        if let Some(wakeup) = self.wakeup.get() {
            let _full = rustix::io::write(wakeup, &1_u64.to_ne_bytes());
        }
    }

    /// Directs all further calls to this handle of the real library.
    pub(crate) fn hand_over(&self, real: *mut Pcap) {
        self.real.store(real, Release);
    }

    fn real(&self) -> Option<*mut Pcap> {
        let real = self.real.load(Acquire);
        (!real.is_null()).then_some(real)
    }

    /// Lets a later handle reuse the token, once nothing uses this handle any more.
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
    // SAFETY: by libpcap's manual a handle: a token, or an open handle of the real library, which
    // is larger than a mark.
    let mark = unsafe { &*mark }.load(Relaxed);
    // SAFETY: only tokens begin with the mark, and they are never freed.
    (mark == MARK).then(|| unsafe { &*p.cast::<HandleToken>() })
}

/// Whether this is a handle of this library, open or closed.
pub(crate) fn is_ours(p: *const Pcap) -> bool {
    token(p).is_some()
}

/// The owner of this handle.
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

/// Closes a handle and ends its reads, in other threads and outer calls; returns the handle and the
/// real library's handle behind it.
pub(crate) fn remove(p: *const Pcap) -> Option<(Arc<PcapHandle>, Option<*mut Pcap>)> {
    let token = token(p)?;
    let handle = token.open().take()?;
    handle.close();
    token.break_loop();
    let real = token.real.swap(ptr::null_mut(), AcqRel);
    Some((handle, (!real.is_null()).then_some(real)))
}

/// Breaks the loop of a handle; fails with the real library's handle if that library must do it.
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
