// SPDX-License-Identifier: MIT OR Apache-2.0
//! libpcap's functions that compile an expression; no libpcap object outlives the call.
#![allow(unsafe_code, reason = "the one place that calls libpcap's C interface")]

use std::{
    ffi::{CStr, CString, NulError, c_char, c_int, c_uint, c_void},
    ptr::NonNull,
};

use crate::Instruction;

/// Link types whose header is an address family (`NULL`, `LOOP`, `ENC`). Systems number IPv6
/// differently, and libpcap compares with all of their numbers only for files.
const FAMILY_HEADERS: [u16; 3] = [0, 108, 109];
/// Size of the buffer for errors without a handle; `PCAP_ERRBUF_SIZE`.
const ERROR_BYTES: usize = 256;

#[repr(C)]
struct LibpcapHandle {
    _opaque: [u8; 0],
}

#[repr(C)]
struct LibpcapProgram {
    length: c_uint,
    instructions: *mut Instruction,
}

#[link(name = "pcap")]
unsafe extern "C" {
    fn pcap_open_dead(link_type: c_int, snap_length: c_int) -> *mut LibpcapHandle;
    fn pcap_fopen_offline(file: *mut c_void, error: *mut c_char) -> *mut LibpcapHandle;
    fn pcap_close(handle: *mut LibpcapHandle);
    fn pcap_geterr(handle: *mut LibpcapHandle) -> *const c_char;
    fn pcap_compile(
        handle: *mut LibpcapHandle,
        program: *mut LibpcapProgram,
        expression: *const c_char,
        optimize: c_int,
        netmask: u32,
    ) -> c_int;
    fn pcap_freecode(program: *mut LibpcapProgram);
}

unsafe extern "C" {
    fn fmemopen(bytes: *mut c_void, length: usize, mode: *const c_char) -> *mut c_void;
}

/// A handle without a device, closed when dropped.
struct Dead {
    handle: NonNull<LibpcapHandle>,
    /// The empty little-endian file that the handle reads, if it reads one.
    _file: Vec<u8>,
}

impl Dead {
    /// A handle for packets of a link type; `None` when memory is short.
    fn open(dlt: u16, snap_length: u32) -> Option<Self> {
        if !FAMILY_HEADERS.contains(&dlt) {
            let snap_length = c_int::try_from(snap_length).unwrap_or(c_int::MAX);
            // SAFETY: takes two numbers and gives a new handle, or null.
            let handle = unsafe { pcap_open_dead(c_int::from(dlt), snap_length) };
            let handle = NonNull::new(handle)?;
            let _file = Vec::new();
            return Some(Self { handle, _file });
        }
        let header = [0xa1b2_c3d4, 0x0004_0002, 0, 0, snap_length, dlt.into()];
        let mut file = header.map(u32::to_le_bytes).concat();
        // SAFETY: the bytes live as long as the handle, which closes the stream.
        let stream = unsafe { fmemopen(file.as_mut_ptr().cast(), file.len(), c"r".as_ptr()) };
        let stream = NonNull::new(stream)?;
        let mut error: [c_char; ERROR_BYTES] = [0; ERROR_BYTES];
        // SAFETY: the stream is open, and the buffer has the size that libpcap wants.
        let handle = unsafe { pcap_fopen_offline(stream.as_ptr(), error.as_mut_ptr()) };
        let handle = NonNull::new(handle)?;
        Some(Self {
            handle,
            _file: file,
        })
    }
}

impl Drop for Dead {
    fn drop(&mut self) {
        // SAFETY: `open` made the handle, and it is closed only here.
        unsafe { pcap_close(self.handle.as_ptr()) }
    }
}

/// Whether libpcap optimizes the program.
#[derive(Clone, Copy)]
pub(super) enum Optimizer {
    On,
    /// Accepts valid expressions that contradict themselves.
    Off,
}

/// Reason why libpcap compiles no program.
#[derive(Debug, thiserror::Error)]
pub(super) enum CompileError {
    #[error(transparent)]
    Nul(#[from] NulError),
    #[error("libpcap: out of memory")]
    NoMemory,
    /// In libpcap's words.
    #[error("{0}")]
    Refused(String),
}

/// Compiles `expression`.
pub(super) fn compile(
    expression: &str,
    dlt: u16,
    snap_length: u32,
    netmask: u32,
    optimizer: Optimizer,
) -> Result<Vec<Instruction>, CompileError> {
    let text = CString::new(expression)?;
    // A match returns the snap length, so 0 would never match.
    let handle = Dead::open(dlt, snap_length.max(1)).ok_or(CompileError::NoMemory)?;
    let mut program = LibpcapProgram {
        length: 0,
        instructions: std::ptr::null_mut(),
    };
    // SAFETY: handle, program and text live until the call returns; libpcap keeps none of them.
    let outcome = unsafe {
        pcap_compile(
            handle.handle.as_ptr(),
            &raw mut program,
            text.as_ptr(),
            c_int::from(matches!(optimizer, Optimizer::On)),
            netmask,
        )
    };
    if outcome != 0 {
        return Err(CompileError::Refused(message(&handle)));
    }
    let instructions = copy(&program);
    // SAFETY: pcap_compile filled the program, and it is freed once, here.
    unsafe { pcap_freecode(&raw mut program) };
    Ok(instructions)
}

fn message(handle: &Dead) -> String {
    // SAFETY: gives a pointer to the handle's own buffer, valid until the handle is closed.
    let text = unsafe { pcap_geterr(handle.handle.as_ptr()) };
    if text.is_null() {
        return "libpcap gave no reason".to_owned();
    }
    // SAFETY: libpcap ends its messages with a NUL; the handle is still open while we copy.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}

fn copy(program: &LibpcapProgram) -> Vec<Instruction> {
    let length = usize::try_from(program.length).unwrap_or(0);
    if length == 0 || program.instructions.is_null() {
        return Vec::new();
    }
    // SAFETY: libpcap allocated `length` instructions of this layout, freed only after this copy.
    unsafe { std::slice::from_raw_parts(program.instructions, length) }.to_vec()
}

/// Result of libpcap's own interpreter, for comparison.
#[cfg(test)]
pub(super) fn interpret(program: &[Instruction], data: &[u8], wire_length: u32) -> u32 {
    #[link(name = "pcap")]
    unsafe extern "C" {
        fn bpf_filter(
            program: *const Instruction,
            packet: *const u8,
            wire_length: c_uint,
            captured: c_uint,
        ) -> c_uint;
    }
    let captured = c_uint::try_from(data.len()).unwrap_or(c_uint::MAX);
    // SAFETY: the program was checked, and both slices live until the call returns.
    unsafe { bpf_filter(program.as_ptr(), data.as_ptr(), wire_length, captured) }
}
