// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets by IP protocol, as `protocols.c`. Build: `rustc -O --edition 2024 --crate-type cdylib protocols.rs`.

use std::ffi::{CString, c_char, c_void};
use std::ptr::null;

const VERSION: u32 = 1;

#[repr(C)]
struct Start {
    settings: *const c_char,
    worker: u32,
    starts: u32,
    link_type: u32,
    why: [c_char; 256],
}

#[repr(C)]
struct Packet {
    time_ns: u64,
    data: *const u8,
    length: u32,
    wire_length: u32,
}

#[repr(C)]
struct Output {
    to: *mut c_void,
    value: unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char, f64),
}

#[repr(C)]
pub struct Analysis {
    version: u32,
    init: unsafe extern "C" fn(*mut Start) -> *mut c_void,
    packets: unsafe extern "C" fn(*mut c_void, *const Packet, usize),
    periodic: *const c_void,
    results: unsafe extern "C" fn(*mut c_void, *const Output),
    end: unsafe extern "C" fn(*mut c_void),
}

// SAFETY: the table never changes.
unsafe impl Sync for Analysis {}

#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name is the interface's")]
pub static ringtap_analysis: Analysis = Analysis {
    version: VERSION,
    init,
    packets,
    periodic: null(),
    results,
    end,
};

struct Counts([u64; 256]);

unsafe extern "C" fn init(_: *mut Start) -> *mut c_void {
    Box::into_raw(Box::new(Counts([0; 256]))).cast()
}

unsafe extern "C" fn packets(state: *mut c_void, packets: *const Packet, count: usize) {
    // SAFETY: the state is that of `init`, and the probe calls from one thread.
    let counts = unsafe { &mut *state.cast::<Counts>() };
    // SAFETY: the probe gives `count` packets.
    for packet in unsafe { std::slice::from_raw_parts(packets, count) } {
        // SAFETY: each packet has `length` bytes.
        let data = unsafe { std::slice::from_raw_parts(packet.data, packet.length as usize) };
        if data.len() >= 34 && data[12..14] == [8, 0] {
            counts.0[usize::from(data[23])] += 1;
        }
    }
}

unsafe extern "C" fn results(state: *mut c_void, output: *const Output) {
    // SAFETY: as in `packets`; the output lives during the call.
    let (counts, output) = unsafe { (&mut *state.cast::<Counts>(), &*output) };
    for (protocol, packets) in counts.0.iter().enumerate().filter(|(_, packets)| **packets > 0) {
        let key = CString::new(protocol.to_string()).expect("digits");
        // SAFETY: both texts end with a zero.
        unsafe { (output.value)(output.to, c"packets".as_ptr(), key.as_ptr(), *packets as f64) };
    }
    counts.0 = [0; 256];
}

unsafe extern "C" fn end(state: *mut c_void) {
    // SAFETY: made by `init`, and not used after this.
    drop(unsafe { Box::from_raw(state.cast::<Counts>()) });
}
