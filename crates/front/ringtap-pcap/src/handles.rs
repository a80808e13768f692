// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of open handles, and what a signal handler may do to them.
//!
//! Invariants
//! - A handle is the address of a byte of [`GROUND`], which holds nothing: place and generation
//!   follow from it, and it can be no address of the real library's.
//! - [`break_loop`] takes no lock, allocates nothing and leaves `errno` as it was.
#![forbid(unsafe_code)]

use std::os::fd::{AsFd as _, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use ringtap_client::Stop;
use rustix::event::{EventfdFlags, eventfd};

use crate::abi::Pcap;
use crate::handle::Handle;

/// Handles of one process at once.
const MOST: usize = 1024;
/// How often a place is used before an address comes again.
const GENERATIONS: usize = 4096;

/// Address space that handles are addresses of; never touched.
static GROUND: [AtomicU8; MOST * GENERATIONS] = [const { AtomicU8::new(0) }; MOST * GENERATIONS];
static TABLE: [Place; MOST] = [const { Place::new() }; MOST];

/// One handle's place.
pub(crate) struct Place {
    /// Of the handle that is open, or was last.
    generation: AtomicUsize,
    breaking: AtomicBool,
    /// Ends a sleep. It stays for the next handle here: a late signal handler that writes to it
    /// never writes to a descriptor of somebody else.
    bell: OnceLock<OwnedFd>,
    /// The real library's handle behind ours, if it has taken over.
    real: AtomicPtr<Pcap>,
    inside: Mutex<Inside>,
}

/// Whose place it is.
struct Inside {
    open: Option<Arc<Handle>>,
    /// The last one that was closed: somebody may still be in its loop.
    closed: Weak<Handle>,
}

impl Place {
    const fn new() -> Self {
        Place {
            generation: AtomicUsize::new(0),
            breaking: AtomicBool::new(false),
            bell: OnceLock::new(),
            real: AtomicPtr::new(ptr::null_mut()),
            inside: Mutex::new(Inside {
                open: None,
                closed: Weak::new(),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What ends a wait of the handle here.
    pub(crate) fn stop(&self) -> Option<Stop<'_>> {
        let fd = self.bell.get()?;
        Some(Stop {
            raised: &self.breaking,
            fd: fd.as_fd(),
        })
    }

    /// Whether a loop was to be broken, which is then done.
    pub(crate) fn take_break(&self) -> bool {
        if !self.breaking.load(Relaxed) {
            return false;
        }
        self.breaking.store(false, Relaxed);
        if let Some(bell) = self.bell.get() {
            // It refuses when it was not rung yet: the next sleep then ends early, once.
            let _silent = rustix::io::read(bell, &mut [0; 8]);
        }
        true
    }

    fn break_loop(&self) {
        // Pairs with the load in `Lender::find`: who is woken finds it raised.
        self.breaking.store(true, Release);
        if let Some(bell) = self.bell.get() {
            let _full = rustix::io::write(bell, &1_u64.to_ne_bytes());
        }
    }

    /// The real library's handle, if that has taken over.
    pub(crate) fn real(&self) -> Option<*mut Pcap> {
        let real = self.real.load(Acquire);
        (!real.is_null()).then_some(real)
    }

    /// From now on everything goes to this handle of the real library.
    pub(crate) fn hand_over(&self, real: *mut Pcap) {
        self.real.store(real, Release);
    }
}

/// Place and generation of what may be a handle of ours.
fn parts(p: *const Pcap) -> Option<(&'static Place, usize)> {
    let at = p.addr().checked_sub(GROUND.as_ptr().addr())?;
    let place = TABLE.get(at / GENERATIONS)?;
    Some((place, at % GENERATIONS))
}

/// Whether this is or was a handle of ours.
pub(crate) fn is_ours(p: *const Pcap) -> bool {
    parts(p).is_some()
}

/// The open handle at this address.
pub(crate) fn find(p: *const Pcap) -> Option<Arc<Handle>> {
    let (place, generation) = parts(p)?;
    let inside = place.lock();
    if place.generation.load(Relaxed) != generation {
        return None;
    }
    inside.open.clone()
}

/// Gives a new handle a place and an address.
pub(crate) fn add(make: impl FnOnce(&'static Place) -> Handle) -> Result<*mut Pcap, String> {
    for (index, place) in TABLE.iter().enumerate() {
        let mut inside = place.lock();
        if inside.open.is_some() || inside.closed.strong_count() > 0 {
            continue;
        }
        if place.bell.get().is_none() {
            let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
            let bell = eventfd(0, flags).map_err(|error| format!("no descriptor: {error}"))?;
            // Nobody else sets it: we hold the lock.
            let _new = place.bell.set(bell);
        }
        let _old = place.take_break();
        let generation = (place.generation.load(Relaxed) + 1) % GENERATIONS;
        place.generation.store(generation, Relaxed);
        inside.open = Some(Arc::new(make(place)));
        let byte = &GROUND[index * GENERATIONS + generation];
        return Ok(ptr::from_ref(byte).cast_mut().cast());
    }
    Err(format!(
        "this process has {MOST} capture handles open, the most that there can be"
    ))
}

/// Takes a handle out of the table; who is inside it is told to come out.
pub(crate) fn remove(p: *const Pcap) -> Option<(Arc<Handle>, Option<*mut Pcap>)> {
    let (place, generation) = parts(p)?;
    let mut inside = place.lock();
    if place.generation.load(Relaxed) != generation {
        return None;
    }
    let taken = inside.open.take()?;
    inside.closed = Arc::downgrade(&taken);
    taken.close();
    place.break_loop();
    let real = place.real.swap(ptr::null_mut(), AcqRel);
    Some((taken, (!real.is_null()).then_some(real)))
}

/// Breaks the loop of a handle; the real library's handle if it is to be done there.
pub(crate) fn break_loop(p: *const Pcap) -> Result<(), *mut Pcap> {
    let Some((place, generation)) = parts(p) else {
        return Err(p.cast_mut());
    };
    if let Some(real) = place.real() {
        return Err(real);
    }
    if place.generation.load(Relaxed) == generation {
        place.break_loop();
    }
    Ok(())
}
