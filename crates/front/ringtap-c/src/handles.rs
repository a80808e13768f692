// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of open handles.
//!
//! Invariants
//! - A handle is an index and a generation, with a tag that no address has.
//! - One thread at a time uses a session. A second thread gets an error and does not wait.
//! - This module catches a panic in a session; after it the session can only be closed.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use ringtap_client::{Connection, Control as _};
use ringtap_ipc::mutex::lock;
use ringtap_ipc::thread::panic_text;

use crate::error::CallError;
use crate::session::{Session, c_text};
use crate::types::CHandle;

/// Most handles of a process; a hub allows fewer connections.
const MOST: usize = 1 << INDEX_BITS;
const INDEX_BITS: u32 = 10;
const TAG_BITS: u32 = 4;
/// No allocation starts at an address with these low bits.
const TAG: usize = 0b0101;
const MAX_GENERATION: usize = usize::MAX >> (INDEX_BITS + TAG_BITS);

static TABLE: [HandleEntry; MOST] = [const { HandleEntry::new() }; MOST];

thread_local! {
    /// Why the last call without a handle failed.
    static WITHOUT_HANDLE: RefCell<Option<CString>> = const { RefCell::new(None) };
}

struct HandleEntry {
    inside: Mutex<Inside>,
    /// For [`stop`], which does not wait for the thread that uses the session.
    stop: Mutex<Option<(usize, Arc<Connection>)>>,
}

struct Inside {
    generation: usize,
    session: Option<Box<Session>>,
    error: Option<CString>,
    /// The panic after which the session can only be closed.
    broken: Option<String>,
}

impl HandleEntry {
    const fn new() -> Self {
        HandleEntry {
            inside: Mutex::new(Inside {
                generation: 0,
                session: None,
                error: None,
                broken: None,
            }),
            stop: Mutex::new(None),
        }
    }
}

/// Index and generation of a handle; an error for other pointers.
fn parts(handle: *const CHandle) -> Result<(usize, usize), CallError> {
    let value = handle.addr();
    if value & ((1 << TAG_BITS) - 1) != TAG {
        return Err(CallError::Handle);
    }
    let rest = value >> TAG_BITS;
    Ok((rest & (MOST - 1), rest >> INDEX_BITS))
}

/// Locks the table entry of an open handle for this thread.
fn enter(handle: *const CHandle) -> Result<MutexGuard<'static, Inside>, CallError> {
    let (index, generation) = parts(handle)?;
    let inside = match TABLE[index].inside.try_lock() {
        Ok(inside) => inside,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return Err(CallError::Busy),
    };
    if inside.session.is_none() || inside.generation != generation {
        return Err(CallError::Handle);
    }
    Ok(inside)
}

/// Stores a session and returns its handle.
pub(crate) fn add(session: Session) -> Result<*mut CHandle, CallError> {
    for (index, entry) in TABLE.iter().enumerate() {
        // Another thread uses this entry.
        let Ok(mut inside) = entry.inside.try_lock() else {
            continue;
        };
        if inside.session.is_some() {
            continue;
        }
        let generation = (inside.generation + 1) & MAX_GENERATION;
        *lock(&entry.stop) = Some((generation, Arc::clone(&session.connection)));
        *inside = Inside {
            generation,
            session: Some(Box::new(session)),
            error: None,
            broken: None,
        };
        let value = (((generation << INDEX_BITS) | index) << TAG_BITS) | TAG;
        return Ok(ptr::without_provenance_mut(value));
    }
    Err(CallError::TooManyHandles(MOST))
}

/// Runs `work` on a handle's session; stores the error for [`error`].
pub(crate) fn with(
    handle: *const CHandle,
    work: impl FnOnce(&mut Session) -> Result<c_int, CallError>,
) -> c_int {
    guarded(|| {
        let mut inside = enter(handle)?;
        let inside = &mut *inside;
        let outcome = match (&inside.broken, inside.session.as_mut()) {
            (Some(why), _) => Err(CallError::Internal(why.clone())),
            (None, None) => Err(CallError::Handle),
            (None, Some(session)) => catch_unwind(AssertUnwindSafe(|| work(session)))
                .unwrap_or_else(|panic| {
                    let why = panic_text(&*panic).to_owned();
                    inside.broken = Some(why.clone());
                    Err(CallError::Internal(why))
                }),
        };
        Ok(outcome.unwrap_or_else(|error| {
            inside.error = Some(c_text(&error.to_string()));
            error.code()
        }))
        .inspect(|code| {
            if *code >= crate::types::END {
                inside.error = None;
            }
        })
    })
}

/// Runs `work` without a handle; stores the error for this thread.
pub(crate) fn guarded(work: impl FnOnce() -> Result<c_int, CallError>) -> c_int {
    let outcome = catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|panic| Err(CallError::Internal(panic_text(&*panic).to_owned())));
    outcome.unwrap_or_else(|error| {
        let text = c_text(&error.to_string());
        // Fails in a thread that is ending.
        let _ending = WITHOUT_HANDLE.try_with(|kept| *kept.borrow_mut() = Some(text));
        error.code()
    })
}

pub(crate) fn close(handle: *const CHandle) -> Result<(), CallError> {
    let mut inside = enter(handle)?;
    let (index, _) = parts(handle)?;
    *lock(&TABLE[index].stop) = None;
    // The lock keeps other threads out while the session closes its connection.
    inside.session = None;
    inside.error = None;
    Ok(())
}

/// Ends the capture of a session, even while another thread uses it.
pub(crate) fn stop(handle: *const CHandle) -> Result<(), CallError> {
    let (index, generation) = parts(handle)?;
    match &*lock(&TABLE[index].stop) {
        Some((of, connection)) if *of == generation => {
            connection.stop();
            Ok(())
        }
        _ => Err(CallError::Handle),
    }
}

/// Why the last call failed, on this handle or without one; valid until the next call.
pub(crate) fn error(handle: *const CHandle) -> *const std::ffi::c_char {
    const NOTHING: &CStr = c"";
    const BUSY: &CStr =
        c"another thread is using this handle: use a handle in one thread at a time";
    let text = |kept: &Option<CString>| kept.as_deref().unwrap_or(NOTHING).as_ptr();
    let looked = catch_unwind(AssertUnwindSafe(|| match enter(handle) {
        Ok(inside) => text(&inside.error),
        Err(CallError::Busy) => BUSY.as_ptr(),
        Err(_) => WITHOUT_HANDLE
            .try_with(|kept| text(&kept.borrow()))
            .unwrap_or(NOTHING.as_ptr()),
    }));
    looked.unwrap_or(NOTHING.as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{ERROR_HANDLE, ERROR_INTERNAL};

    #[test]
    fn numbers_that_never_were_handles_are_recognised() {
        let any = 7_u64;
        for handle in [
            ptr::null(),
            (&raw const any).cast(),
            ptr::without_provenance(TAG),
            ptr::without_provenance(usize::MAX),
            ptr::without_provenance((1023 << TAG_BITS) | TAG),
        ] {
            assert_eq!(with(handle, |_| Ok(0)), ERROR_HANDLE);
            assert!(close(handle).is_err());
            assert!(stop(handle).is_err());
            assert!(!error(handle).is_null());
        }
    }

    #[test]
    fn a_panic_becomes_an_error() {
        assert_eq!(guarded(|| panic!("a made-up mistake")), ERROR_INTERNAL);
        WITHOUT_HANDLE.with(|kept| {
            let kept = kept.borrow();
            let text = kept.as_deref().expect("a reason").to_str();
            assert!(text.expect("text").contains("a made-up mistake"));
        });
    }
}
