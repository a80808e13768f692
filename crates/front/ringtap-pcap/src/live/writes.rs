// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that write into packets. libpcap's `const` forbids it and its buffer allows it; nobody
//! can write the pool, so the kernel would end them.
//!
//! Their first write is a fault. The handler lays a private copy of the packet's pages over those
//! of the pool, and the program goes on; the next read takes the copy away, and from then on each
//! packet of that handle is copied before it is given out.
//!
//! Invariants
//! - Only a write to the packet that a handle gave out last is helped. Any other fault goes to
//!   whoever had it before.
//! - The handler allocates nothing, takes no lock and leaves `errno` as it was.
//! - Nothing is read from the pool's pages while a copy lies over them.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

/// As many as there can be handles.
const MOST: usize = 1024;
/// The page is there, but not for that.
const SEGV_ACCERR: c_int = 2;

static WINDOWS: [Window; MOST] = [const { Window::new() }; MOST];
/// Who had faults before, and the size of a page; set before the handler is.
static BEFORE: OnceLock<(libc::sigaction, usize)> = OnceLock::new();

/// The packet that one handle gave out last, for the handler.
struct Window {
    taken: AtomicBool,
    /// Its address; 0 for none.
    at: AtomicUsize,
    bytes: AtomicUsize,
    /// Where the pool's pages lie while a copy lies in their place; 0 if none does.
    aside: AtomicUsize,
    covered_at: AtomicUsize,
    covered_bytes: AtomicUsize,
    /// Somebody wrote.
    written: AtomicBool,
}

/// What a handle has of all this.
pub(super) struct Writes(Option<&'static Window>);

impl Writes {
    pub(super) fn new() -> Self {
        install();
        let free = WINDOWS.iter().find(|window| {
            let taken = window.taken.compare_exchange(false, true, Acquire, Relaxed);
            taken.is_ok()
        });
        Writes(free)
    }

    /// Whether this handle's packets are written to, so that copies are to be given out.
    #[inline]
    pub(super) fn were_seen(&self) -> bool {
        self.0.is_some_and(|window| window.written.load(Relaxed))
    }

    /// This packet in the pool is given out.
    #[inline]
    pub(super) fn expect(&self, data: *const u8, bytes: u32) {
        if let Some(window) = self.0 {
            window.at.store(data.addr(), Relaxed);
            // Pairs with the load in `help`, in whatever thread the program writes.
            let bytes = usize::try_from(bytes).unwrap_or(0);
            window.bytes.store(bytes, Release);
        }
    }

    /// The packet that was given out is no longer the program's.
    #[inline]
    pub(super) fn take_back(&self) {
        if let Some(window) = self.0.filter(|window| window.aside.load(Relaxed) != 0) {
            window.uncover();
        }
    }
}

impl Drop for Writes {
    fn drop(&mut self) {
        self.take_back();
        if let Some(window) = self.0 {
            window.bytes.store(0, Relaxed);
            window.written.store(false, Relaxed);
            // Pairs with the exchange in `new`.
            window.taken.store(false, Release);
        }
    }
}

impl Window {
    const fn new() -> Self {
        Window {
            taken: AtomicBool::new(false),
            at: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            aside: AtomicUsize::new(0),
            covered_at: AtomicUsize::new(0),
            covered_bytes: AtomicUsize::new(0),
            written: AtomicBool::new(false),
        }
    }

    /// Makes the packet writable, if this address is in it.
    fn help(&self, address: usize, page_bytes: usize) -> bool {
        // Pairs with the store in `expect`.
        let bytes = self.bytes.load(Acquire);
        let at = self.at.load(Relaxed);
        let is_in = address.checked_sub(at).is_some_and(|from| from < bytes);
        if !is_in || self.aside.load(Relaxed) != 0 {
            return false;
        }
        let begin = at & !(page_bytes - 1);
        let end = (at + bytes).next_multiple_of(page_bytes);
        let Some(aside) = cover(begin, end - begin) else {
            return false;
        };
        self.covered_at.store(begin, Relaxed);
        self.covered_bytes.store(end - begin, Relaxed);
        self.written.store(true, Relaxed);
        self.aside.store(aside, Release);
        true
    }

    /// Puts the pool's pages back into their place.
    fn uncover(&self) {
        let aside = self.aside.swap(0, Acquire);
        let begin = self.covered_at.load(Relaxed);
        let bytes = self.covered_bytes.load(Relaxed);
        // It fails for want of memory only; the handle then goes on with the copy.
        let _moved = move_pages(aside, bytes, begin);
    }
}

/// Lays a private copy over pages of the pool; where those lie now.
fn cover(begin: usize, bytes: usize) -> Option<usize> {
    let aside = place_for_pages(0, bytes)?;
    if !move_pages(begin, bytes, aside) {
        return None;
    }
    // Nobody else may have taken the place meanwhile: it is refused if so.
    let copy = place_for_pages(begin, bytes)?;
    let (from, to) = (
        ptr::with_exposed_provenance::<u8>(aside),
        ptr::with_exposed_provenance_mut::<u8>(copy),
    );
    // SAFETY: the pool's pages, moved, and as many new ones of our own.
    unsafe { ptr::copy_nonoverlapping(from, to, bytes) };
    Some(aside)
}

/// New private pages: anywhere, or at an address where nothing is.
fn place_for_pages(at: usize, bytes: usize) -> Option<usize> {
    let mut flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    if at != 0 {
        flags |= libc::MAP_FIXED_NOREPLACE;
    }
    let hint = ptr::without_provenance_mut(at);
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: new pages, in nobody's place.
    let place = unsafe { libc::mmap(hint, bytes, rights, flags, -1, 0) };
    (place != libc::MAP_FAILED).then(|| place.expose_provenance())
}

/// Moves pages over others, which are gone then.
fn move_pages(from: usize, bytes: usize, to: usize) -> bool {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    let (from, to) = (
        ptr::with_exposed_provenance_mut::<c_void>(from),
        ptr::with_exposed_provenance_mut::<c_void>(to),
    );
    // SAFETY: both are this module's, or the pool's pages around a packet that is given out, from
    // which nothing is read until they are back.
    let moved = unsafe { libc::mremap(from, bytes, bytes, flags, to) };
    moved != libc::MAP_FAILED
}

/// Catches faults from now on.
fn install() {
    BEFORE.get_or_init(|| {
        // SAFETY: all zeros: the default action, no flags, no signals.
        let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: asks for the action in force.
        let _never = unsafe { libc::sigaction(libc::SIGSEGV, ptr::null(), &raw mut before) };
        (before, rustix::param::page_size())
    });
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        // SAFETY: as above.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = (on_fault as *const ()).expose_provenance();
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        // SAFETY: a handler that keeps to what is allowed in one.
        let _never = unsafe { libc::sigaction(libc::SIGSEGV, &raw const action, ptr::null_mut()) };
    });
}

extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the thread's own.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let kept = unsafe { errno.read() };
    let Some((before, page_bytes)) = BEFORE.get() else {
        return;
    };
    // SAFETY: the kernel gives it to every handler that asked for it.
    let told = unsafe { &*info };
    // SAFETY: every fault has an address; of a signal that somebody sent it is not looked at.
    let address = unsafe { told.si_addr() }.addr();
    let helped = told.si_code == SEGV_ACCERR
        && WINDOWS
            .iter()
            .any(|window| window.help(address, *page_bytes));
    if !helped {
        pass_on(before, signal, info, told.si_code, context);
    }
    // SAFETY: as above.
    unsafe { errno.write(kept) };
}

/// Does what would have been done without us.
fn pass_on(
    before: &libc::sigaction,
    signal: c_int,
    info: *mut libc::siginfo_t,
    code: c_int,
    context: *mut c_void,
) {
    type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
    if before.sa_sigaction != libc::SIG_DFL && before.sa_sigaction != libc::SIG_IGN {
        // SAFETY: the address of a handler; one that takes less overlooks the rest.
        let handler: Handler =
            unsafe { std::mem::transmute(ptr::with_exposed_provenance::<()>(before.sa_sigaction)) };
        return handler(signal, info, context);
    }
    // SAFETY: the action that was there; the fault comes again when this returned.
    let _never = unsafe { libc::sigaction(signal, before, ptr::null_mut()) };
    if code <= 0 {
        // SAFETY: somebody sent it: it would not come again by itself.
        let _never = unsafe { libc::raise(signal) };
    }
}
