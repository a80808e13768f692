// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes settings of a handle, before and after it is activated.

use std::ffi::{c_char, c_int};

use ringtap_filter::Instruction;

use super::ask::{has_nic_stamps, is_plain, real_handle};
use super::on_handle;
use crate::abi::{
    BpfProgram, DIRECTION_INOUT, DIRECTION_OUT, ERROR_TSTAMP_PRECISION_NOTSUP, PRECISION_MICRO,
    PRECISION_NANO, TSTAMP_ADAPTER_UNSYNCED, TSTAMP_HOST, WARNING_TSTAMP_TYPE_NOTSUP,
};
use crate::error::LibpcapError;
use crate::handle::PcapHandle;

on_handle! {
    fn pcap_set_snaplen(p, bytes: c_int) -> c_int => |handle| handle.set(|settings| settings.snap_bytes = bytes);
    fn pcap_set_promisc(p, on: c_int) -> c_int => |handle| handle.set(|settings| settings.promiscuous = on);
    fn pcap_set_rfmon(p, on: c_int) -> c_int => |handle| handle.set(|settings| settings.rfmon = on);
    fn pcap_set_timeout(p, timeout_ms: c_int) -> c_int => |handle| handle.set(|settings| settings.timeout_ms = timeout_ms);
    fn pcap_set_immediate_mode(p, on: c_int) -> c_int => |handle| handle.set(|settings| settings.immediate = on);
    fn pcap_set_protocol_linux(p, protocol: c_int) -> c_int => |handle| handle.set(|settings| settings.protocol = Some(protocol));
    fn pcap_set_buffer_size(p, bytes: c_int) -> c_int => |handle| handle.set(|settings| {
        // libpcap ignores impossible sizes, too.
        if bytes > 0 {
            settings.buffer_bytes = Some(bytes);
        }
    });
    fn pcap_set_tstamp_type(p, kind: c_int) -> c_int => |handle| {
        let supported = supports_tstamp_type(&handle, kind);
        let status = handle.set(|settings| if supported { settings.tstamp_type = Some(kind) });
        match status {
            0 if !supported => WARNING_TSTAMP_TYPE_NOTSUP,
            status => status,
        }
    };
    fn pcap_set_tstamp_precision(p, precision: c_int) -> c_int => |handle| {
        let supported = matches!(precision, PRECISION_MICRO | PRECISION_NANO);
        let status = handle.set(|settings| if supported { settings.precision = precision });
        match status {
            0 if !supported => ERROR_TSTAMP_PRECISION_NOTSUP,
            status => status,
        }
    };
    fn pcap_setfilter(p, program: *mut BpfProgram) -> c_int => |handle| handle.with_capture(|capture| {
        // SAFETY: NULL or a program, by libpcap's manual.
        let instructions = unsafe { instructions(program) };
        let missing = || LibpcapError::general("setfilter: No filter specified");
        let set = capture.set_filter(instructions.ok_or_else(missing)?);
        handle.control().shared.window.interrupt();
        set
    });
    fn pcap_setdirection(p, direction: c_int) -> c_int => |handle| handle.with_capture(|capture| {
        if !(DIRECTION_INOUT..=DIRECTION_OUT).contains(&direction) {
            return Err(LibpcapError::general("Invalid direction"));
        }
        capture.set_direction(direction);
        handle.control().shared.window.interrupt();
        Ok(0)
    });
    fn pcap_setnonblock(p, on: c_int, errbuf: *mut c_char) -> c_int => |handle| {
        let _never_fails = errbuf;
        match handle.capture() {
            Some(capture) => capture.set_nonblock(on != 0),
            None => handle.settings().nonblock = on,
        }
        0
    };
    fn pcap_set_datalink(p, dlt: c_int) -> c_int => |handle| {
        let now = handle.capture().map_or(0, |capture| capture.dlt);
        handle.status(if dlt == now { Ok(0) } else { Err(LibpcapError::general(format!(
                "{} is not one of the DLTs supported by this device",
                name_of(dlt)
            ))) })
    };
}

/// Whether the device supports time stamps of this type. The real library knows that for a plain
/// interface.
fn supports_tstamp_type(handle: &PcapHandle, kind: c_int) -> bool {
    let real = is_plain(handle).then(|| real_handle(handle)).flatten();
    let ours = || kind == TSTAMP_HOST || kind == TSTAMP_ADAPTER_UNSYNCED && has_nic_stamps(handle);
    real.map_or_else(ours, |real| {
        // SAFETY: an open handle.
        unsafe { (real.functions.pcap_set_tstamp_type)(real.p, kind) == 0 }
    })
}

/// A link type's name, as in libpcap's messages.
fn name_of(dlt: c_int) -> String {
    let unnamed = || format!("DLT {dlt}");
    let Ok(functions) = crate::real::functions() else {
        return unnamed();
    };
    // SAFETY: takes a number; returns NULL or a static text.
    let name = unsafe { (functions.pcap_datalink_val_to_name)(dlt) };
    // SAFETY: as above.
    unsafe { crate::text::take(name) }.unwrap_or_else(unnamed)
}

/// The instructions of a program; `None` if there is no program.
///
/// # Safety
///
/// `program` is NULL or points to a program whose instructions outlive `'a`.
unsafe fn instructions<'a>(program: *const BpfProgram) -> Option<&'a [Instruction]> {
    if program.is_null() {
        return None;
    }
    // SAFETY: not null; the caller guarantees the rest.
    let BpfProgram {
        length,
        instructions,
    } = *unsafe { &*program };
    if instructions.is_null() {
        return Some(&[]);
    }
    let length = usize::try_from(length).unwrap_or(0);
    // SAFETY: the caller guarantees this many instructions.
    Some(unsafe { std::slice::from_raw_parts(instructions, length) })
}
