// SPDX-License-Identifier: MIT OR Apache-2.0
//! The steps that `border.c` takes to read packets. It runs them without cancellation and signal handlers.
//!
//! Invariants
//! - A step never waits for packets and never calls the program.
//! - Only the thread that the handle's [`SharedState`](crate::shared::SharedState) names uses the state, and one that
//!   closes the handle while no thread is named.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::Ordering::SeqCst;

use crate::abi::{ERROR, ERROR_BREAK};
use crate::calls::guarded;
use crate::capture::ReadStep;
use crate::error::LibpcapError;
use crate::handles::{self, HandleOwner};
use crate::real;
use crate::shared::{AfterStep, Call};
use crate::text;

/// Finds packets, or a reason to wait or to return.
#[unsafe(no_mangle)]
unsafe extern "C" fn ringtap_pcap_step(call: *mut Call) -> c_int {
    // SAFETY: `border.c` passes its own call.
    let call = unsafe { &mut *call };
    let after = guarded(None, || {
        let token = handles::token(call.shared.cast())?;
        if token.control.shared.serial.load(SeqCst) != call.serial {
            return None;
        }
        // SAFETY: `border.c` marked the shared state with this thread, and runs one step at a time.
        let state = unsafe { token.state.get() }.as_mut()?;
        let step = match state.handle.capture() {
            Some(capture) => capture.step(&token.control, &mut state.reader, call),
            None => Err(LibpcapError::general("not activated")),
        };
        Some(match step {
            Ok(ReadStep::Packets) => AfterStep::Packets,
            Ok(ReadStep::Wait(wait)) => {
                call.wait(wait);
                AfterStep::Wait
            }
            done => {
                let status = done.map(|step| match step {
                    ReadStep::Done(status) => status,
                    ReadStep::Packets | ReadStep::Wait(_) => 0,
                });
                call.status = state.handle.status(status);
                AfterStep::Done
            }
        })
    });
    // A callback closed the handle.
    let after = after.unwrap_or_else(|| {
        call.status = ERROR_BREAK;
        AfterStep::Done
    });
    after as c_int
}

/// The status of a read that cannot begin; sets the error text.
#[unsafe(no_mangle)]
unsafe extern "C" fn ringtap_pcap_refuse(call: *mut Call) -> c_int {
    // SAFETY: `border.c` passes its own call.
    let call = unsafe { &*call };
    guarded(ERROR, || {
        match handles::owner(call.shared.cast_mut().cast()) {
            HandleOwner::Ringtap(handle) => handle.with_capture(|_| {
                Err(if handle.control().is_read_by_another() {
                    busy()
                } else {
                    LibpcapError::general("no callback was given")
                })
            }),
            HandleOwner::Libpcap(_) | HandleOwner::None => ERROR,
        }
    })
}

/// Releases what a thread that closed the handle left to the call that read from it.
#[unsafe(no_mangle)]
unsafe extern "C" fn ringtap_pcap_release(call: *mut Call) -> c_int {
    // SAFETY: `border.c` passes its own call.
    let call = unsafe { &*call };
    guarded(ERROR, || {
        if let Some(token) = handles::token(call.shared.cast()) {
            // SAFETY: `border.c` marked the shared state with this thread.
            drop(unsafe { token.state.get() }.take());
        }
        0
    })
}

/// The real library's function of this name, or NULL: then the reason is printed, or is in `errbuf`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ringtap_pcap_real(name: *const c_char, errbuf: *mut c_char) -> *mut c_void {
    guarded(ptr::null_mut(), || {
        // SAFETY: `border.c` passes a text.
        match unsafe { real::address(name) } {
            Ok(address) => address,
            Err(why) if errbuf.is_null() => {
                crate::messages::once(&why.to_string());
                ptr::null_mut()
            }
            Err(why) => {
                // SAFETY: an error buffer, by libpcap's manual.
                unsafe { text::give(errbuf, &why.to_string()) };
                ptr::null_mut()
            }
        }
    })
}

pub(crate) fn busy() -> LibpcapError {
    LibpcapError::general(
        "another thread is reading from this handle, or left a read by a jump: use a handle in one thread \
         at a time",
    )
}
