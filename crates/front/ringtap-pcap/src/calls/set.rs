// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a program sets on a handle: before it is activated, and after.

use std::ffi::{c_char, c_int};

use ringtap_filter::Instruction;

use super::about_a_handle;
use super::ask::{is_plain, with_real};
use crate::abi::{
    BpfProgram, DIRECTION_INOUT, DIRECTION_OUT, ERROR, ERROR_TSTAMP_PRECISION_NOTSUP,
    PRECISION_MICRO, PRECISION_NANO, TSTAMP_HOST, WARNING_TSTAMP_TYPE_NOTSUP,
};
use crate::error::Refused;
use crate::handle::PcapHandle;

about_a_handle! {
    fn pcap_set_snaplen(p, bytes: c_int) -> c_int, or ERROR => |handle| handle.set(|settings| {
        settings.snap_bytes = bytes;
        0
    });
    fn pcap_set_promisc(p, on: c_int) -> c_int, or ERROR => |handle| handle.set(|settings| {
        settings.promiscuous = on;
        0
    });
    fn pcap_set_rfmon(p, on: c_int) -> c_int, or ERROR => |handle| handle.set(|settings| {
        settings.rfmon = on;
        0
    });
    fn pcap_set_timeout(p, timeout_ms: c_int) -> c_int, or ERROR => |handle| handle.set(|settings| {
        settings.timeout_ms = timeout_ms;
        0
    });
    fn pcap_set_immediate_mode(p, on: c_int) -> c_int, or ERROR => |handle| handle.set(|settings| {
        settings.immediate = on;
        0
    });
    fn pcap_set_protocol_linux(p, protocol: c_int) -> c_int, or ERROR => |handle| handle.set(|settings| {
        settings.protocol = Some(protocol);
        0
    });
    fn pcap_set_buffer_size(p, bytes: c_int) -> c_int, or ERROR => |handle| handle.set(|settings| {
        // What makes no sense is left as it was, as libpcap does.
        settings.buffer_bytes = Some(bytes).filter(|bytes| *bytes > 0).or(settings.buffer_bytes);
        0
    });
    fn pcap_set_tstamp_type(p, kind: c_int) -> c_int, or ERROR => |handle| {
        let supported = supports_tstamp_type(&handle, kind);
        handle.set(|settings| match supported {
            true => {
                settings.tstamp_type = Some(kind);
                0
            }
            false => WARNING_TSTAMP_TYPE_NOTSUP,
        })
    };
    fn pcap_set_tstamp_precision(p, precision: c_int) -> c_int, or ERROR => |handle| handle.set(|settings| {
        if !matches!(precision, PRECISION_MICRO | PRECISION_NANO) {
            return ERROR_TSTAMP_PRECISION_NOTSUP;
        }
        settings.precision = precision;
        0
    });
    fn pcap_setfilter(p, program: *mut BpfProgram) -> c_int, or ERROR => |handle| handle.with_live(|live| {
        // SAFETY: NULL or a program, by libpcap's manual.
        let instructions = unsafe { instructions(program) };
        live.set_filter(instructions.ok_or_else(|| Refused::general("setfilter: No filter specified"))?)
    });
    fn pcap_setdirection(p, direction: c_int) -> c_int, or ERROR => |handle| handle.with_live(|live| {
        if !(DIRECTION_INOUT..=DIRECTION_OUT).contains(&direction) {
            return Err(Refused::general("Invalid direction"));
        }
        live.set_direction(direction);
        Ok(0)
    });
    fn pcap_setnonblock(p, on: c_int, errbuf: *mut c_char) -> c_int, or ERROR => |handle| {
        match handle.live() {
            Some(live) => live.set_nonblock(on != 0),
            None => handle.settings().nonblock = on,
        }
        let _unused = errbuf;
        0
    };
    fn pcap_set_datalink(p, dlt: c_int) -> c_int, or ERROR => |handle| {
        let now = handle.live().map_or(0, |live| live.facts.dlt);
        handle.told(match dlt == now {
            true => Ok(0),
            false => Err(Refused::general(format!("{} is not one of the DLTs supported by this device", name_of(dlt)))),
        })
    };
}

/// Whether the device may have time stamps of this type: the real library knows of a plain
/// interface, and Ringtap's devices have the host's.
fn supports_tstamp_type(handle: &PcapHandle, kind: c_int) -> bool {
    let told = with_real(handle, |functions, real| {
        // SAFETY: a handle of the real library's that was just made.
        unsafe { (functions.pcap_set_tstamp_type)(real, kind) }
    });
    match told.filter(|_| is_plain(handle)) {
        Some(status) => status == 0,
        None => kind == TSTAMP_HOST,
    }
}

/// A link type's name, as libpcap has it in its messages.
fn name_of(dlt: c_int) -> String {
    let unnamed = || format!("DLT {dlt}");
    let Ok(functions) = crate::real::functions() else {
        return unnamed();
    };
    // SAFETY: a number; gives NULL or a text that stays.
    let name = unsafe { (functions.pcap_datalink_val_to_name)(dlt) };
    // SAFETY: as above.
    unsafe { crate::text::take(name) }.unwrap_or_else(unnamed)
}

/// The instructions of a program; `None` if there is no program.
///
/// # Safety
///
/// `program` is NULL or leads to a program, whose instructions outlive `'a`.
unsafe fn instructions<'a>(program: *const BpfProgram) -> Option<&'a [Instruction]> {
    if program.is_null() {
        return None;
    }
    // SAFETY: not null; the rest is the caller's word.
    let BpfProgram {
        length,
        instructions,
    } = *unsafe { &*program };
    if instructions.is_null() {
        return Some(&[]);
    }
    let length = usize::try_from(length).unwrap_or(0);
    // SAFETY: so many instructions are there, by the caller's word.
    Some(unsafe { std::slice::from_raw_parts(instructions, length) })
}
