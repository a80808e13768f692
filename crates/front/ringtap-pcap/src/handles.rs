// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tells which `pcap_t *` belong to this library, and finds their handles.
//!
//! A handle of this library is the address of a [`HandleToken`]. Tokens are reused, never freed.
//!
//! Invariants
//! - A token begins with [`MARK`]. A handle of the real library begins with the address of a
//!   function, which `MARK` cannot be: such addresses are below 2^47.
//! - A closed handle is recognised until [`REMEMBERED`] other handles are closed. It has no descriptor.
//! - Only the thread that the handle's [`SharedState`](crate::shared::SharedState) names uses its [`ReadState`], and one
//!   that closes the handle while no thread is named.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::ptr;
use std::sync::atomic::Ordering::*;
use std::sync::{Arc, Mutex, MutexGuard};

use ringtap_ipc::mutex::lock;

use crate::abi::Pcap;
use crate::capture::PacketReader;
use crate::control::ReadControl;
use crate::handle::PcapHandle;
use crate::shared::{MARK, this_thread};

/// Closed handles whose tokens are not reused yet.
const REMEMBERED: usize = 64;

/// Tokens of closed handles, the first closed in front.
static CLOSED: Mutex<VecDeque<&'static HandleToken>> = Mutex::new(VecDeque::new());

/// An activated handle and its reader.
pub(crate) struct ReadState {
    pub(crate) handle: Arc<PcapHandle>,
    pub(crate) reader: PacketReader,
}

/// Place of a handle's [`ReadState`].
pub(crate) struct StateCell(UnsafeCell<Option<ReadState>>);

// SAFETY: the `thread` of the shared state gives the state to one thread at a time.
unsafe impl Sync for StateCell {}

impl StateCell {
    pub(crate) const fn new() -> Self {
        StateCell(UnsafeCell::new(None))
    }

    /// The state, while this thread reads from the handle.
    ///
    /// # Safety
    ///
    /// The `thread` of the shared state is this thread, and no other reference to the state is in use.
    #[expect(
        clippy::mut_from_ref,
        reason = "one thread at a time, as for the cell inside"
    )]
    pub(crate) unsafe fn get(&self) -> &mut Option<ReadState> {
        // SAFETY: the caller's guarantee.
        unsafe { &mut *self.0.get() }
    }
}

/// A handle of this library points to its token.
#[repr(C)]
pub(crate) struct HandleToken {
    /// Comes first: it begins with the mark.
    pub(crate) control: ReadControl,
    open: Mutex<Option<Arc<PcapHandle>>>,
    pub(crate) state: StateCell,
    /// Memory of the last packet of a handle that its callback closed.
    last_packet: Mutex<Option<Box<[u8]>>>,
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
            control: ReadControl::new(),
            open: Mutex::new(None),
            state: StateCell::new(),
            last_packet: Mutex::new(None),
        }
    }

    fn open(&self) -> MutexGuard<'_, Option<Arc<PcapHandle>>> {
        lock(&self.open)
    }

    /// Directs all further calls to this handle of the real library.
    pub(crate) fn hand_over(&self, real: *mut Pcap) {
        self.control.shared.real.store(real, Release);
    }

    fn real(&self) -> Option<*mut Pcap> {
        let real = self.control.shared.real.load(Acquire);
        (!real.is_null()).then_some(real)
    }

    /// Lets programs read from an activated handle.
    pub(crate) fn begin(&self, state: ReadState) {
        let begun = self.with_state(|place| *place = Some(state));
        self.control
            .shared
            .active
            .store(begun.is_some().into(), SeqCst);
    }

    /// Runs `work` with the state, unless another thread reads from the handle.
    pub(crate) fn with_state<T>(
        &self,
        work: impl FnOnce(&mut Option<ReadState>) -> T,
    ) -> Option<T> {
        let shared = &self.control.shared;
        let own = shared
            .thread
            .compare_exchange(0, this_thread(), SeqCst, SeqCst);
        if own.is_err_and(|reader| reader != this_thread()) {
            return None;
        }
        // SAFETY: the shared state names this thread, whose steps have all ended: it runs this function.
        let done = work(unsafe { self.state.get() });
        if own.is_ok() {
            shared.thread.store(0, SeqCst);
        }
        Some(done)
    }

    /// Releases the reader. If a call of another thread uses it, that call releases it at its end; one of
    /// this thread finds it gone, but keeps the packet that the callback reads.
    fn release(&self) {
        // Pairs with `end` in border.c.
        self.control.shared.closed.store(1, SeqCst);
        self.control.shared.active.store(0, SeqCst);
        let is_read_here = self.control.shared.thread.load(SeqCst) == this_thread();
        let state = self.with_state(Option::take).flatten();
        let packet = state.and_then(|mut state| state.reader.take_packet());
        if is_read_here {
            *lock(&self.last_packet) = packet;
        }
    }

    /// Lets a later handle reuse the token, once nothing uses this handle any more.
    pub(crate) fn retire(&'static self) {
        self.control.wakeup.close();
        let mut closed = lock(&CLOSED);
        closed.push_back(self);
    }
}

/// The token of a handle of this library, open or closed.
pub(crate) fn token(p: *const Pcap) -> Option<&'static HandleToken> {
    let mark = p.cast::<std::sync::atomic::AtomicU64>();
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
        return if p.is_null() {
            HandleOwner::None
        } else {
            HandleOwner::Libpcap(p)
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
    let oldest = if closed.len() > REMEMBERED {
        closed.pop_front()
    } else {
        None
    };
    drop(closed);
    let token = oldest.unwrap_or_else(|| Box::leak(Box::new(HandleToken::new())));
    token.control.begin_anew();
    *lock(&token.last_packet) = None;
    *token.open() = Some(Arc::new(PcapHandle::new(token, source)));
    ptr::from_ref(token).cast_mut().cast()
}

/// Closes a handle and ends its reads, in other threads and outer calls; returns the handle and the
/// real library's handle behind it.
pub(crate) fn remove(p: *const Pcap) -> Option<(Arc<PcapHandle>, Option<*mut Pcap>)> {
    let token = token(p)?;
    let handle = token.open().take()?;
    if let Some(capture) = handle.capture() {
        token.with_state(|state| {
            if let Some(state) = state {
                state.reader.settle(&token.control.shared.window);
                state.reader.cursor.publish();
            }
        });
        capture.leave();
    }
    token.release();
    token.control.break_loop();
    let real = token.control.shared.real.swap(ptr::null_mut(), AcqRel);
    Some((handle, (!real.is_null()).then_some(real)))
}

/// Breaks the loop of a handle; fails with the real library's handle if that library must do it.
pub(crate) fn break_loop(p: *const Pcap) -> Result<(), *mut Pcap> {
    let token = token(p).ok_or(p.cast_mut())?;
    match token.real() {
        Some(real) => Err(real),
        None => {
            token.control.break_loop();
            Ok(())
        }
    }
}
