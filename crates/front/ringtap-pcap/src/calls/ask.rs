// SPDX-License-Identifier: MIT OR Apache-2.0
//! Facts about a handle, its descriptor and its counters; library versions.

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr;
use std::sync::OnceLock;

use libc::{FILE, timeval};
use ringtap_device::DeviceSpec;
use ringtap_ipc::environment;
use ringtap_net::interface::{Interface, NicStamps};

use super::{guarded, on_handle};
use crate::abi::{
    ERROR, ERROR_NOT_ACTIVATED, Pcap, PcapStatistics, TSTAMP_ADAPTER_UNSYNCED, TSTAMP_HOST,
};
use crate::error::LibpcapError;
use crate::handle::PcapHandle;
use crate::handles::{HandleOwner, owner};
use crate::reading::busy;
use crate::real::{self, RealHandle};
use crate::{route, text};

const NO_HANDLE: &CStr = c"this capture handle was closed, or never opened";

on_handle! {
    fn pcap_datalink(p) -> c_int => |handle| handle.number(|capture| capture.dlt);
    fn pcap_datalink_ext(p) -> c_int => |handle| handle.number(|_| 0);
    fn pcap_snapshot(p) -> c_int => |handle| handle.number(|capture| capture.snap_bytes);
    fn pcap_bufsize(p) -> c_int => |handle| handle.number(|capture| capture.snap_bytes);
    fn pcap_is_swapped(p) -> c_int => |handle| handle.number(|_| 0);
    fn pcap_major_version(p) -> c_int => |handle| handle.number(|_| 0);
    fn pcap_minor_version(p) -> c_int => |handle| handle.number(|_| 0);
    fn pcap_get_tstamp_precision(p) -> c_int => |handle| handle.settings().precision;
    fn pcap_file(p) -> *mut FILE => |_handle| ptr::null_mut();
    fn pcap_get_required_select_timeout(p) -> *const timeval => |_handle| ptr::null();
    fn pcap_fileno(p) -> c_int => |handle| descriptor(&handle);
    fn pcap_get_selectable_fd(p) -> c_int => |handle| if environment::is_set("RINGTAP_NO_SELECT") { ERROR } else { descriptor(&handle) };
    fn pcap_getnonblock(p, errbuf: *mut c_char) -> c_int => |handle| {
        let on = handle.with_capture(|capture| Ok(capture.nonblock().into()));
        if on == ERROR {
            // SAFETY: an error buffer or NULL, by libpcap's manual.
            unsafe { text::give(errbuf, &handle.error.get()) };
        }
        on
    };
    fn pcap_stats(p, statistics: *mut PcapStatistics) -> c_int => |handle| handle.with_capture(|capture| {
        let counted = capture.statistics(handle.control().shared.window.delivered())?;
        if !statistics.is_null() {
            // SAFETY: not null; a place for this, by libpcap's manual.
            unsafe { statistics.write(counted) };
        }
        Ok(0)
    });
    fn pcap_can_set_rfmon(p) -> c_int => |handle| if is_plain(&handle) { real_handle(&handle).map_or(0, |real| {
            // SAFETY: an open handle.
            unsafe { (real.functions.pcap_can_set_rfmon)(real.p) }
        }) } else { 0 };
    fn pcap_list_tstamp_types(p, list: *mut *mut c_int) -> c_int => |handle| {
        if !is_plain(&handle) && has_nic_stamps(&handle) {
            // SAFETY: the list is a place for a pointer, by libpcap's manual.
            return unsafe { give_list(&[TSTAMP_HOST, TSTAMP_ADAPTER_UNSYNCED], list) };
        }
        real_handle(&handle).map_or(ERROR, |real| {
            // SAFETY: an open handle, and as above.
            unsafe { (real.functions.pcap_list_tstamp_types)(real.p, list) }
        })
    };
    fn pcap_list_datalinks(p, list: *mut *mut c_int) -> c_int => |handle| match handle.capture() {
        None => ERROR_NOT_ACTIVATED,
        Some(_) => real_handle(&handle).map_or(ERROR, |real| {
            // SAFETY: as above.
            unsafe { (real.functions.pcap_list_datalinks)(real.p, list) }
        }),
    };
}

fn descriptor(handle: &PcapHandle) -> c_int {
    match handle.capture() {
        None => ERROR,
        Some(_) => {
            let found = handle.token().with_state(|state| match state {
                Some(state) => Ok(state.reader.cursor.descriptor()?),
                None => Err(LibpcapError::general("the handle is being closed")),
            });
            handle.status(found.unwrap_or_else(|| Err(busy())))
        }
    }
}

/// Whether a handle is for an interface that the real library may still open.
pub(super) fn is_plain(handle: &PcapHandle) -> bool {
    let settings = handle.settings();
    let name = settings.source.as_deref();
    handle.capture().is_none() && name.is_some_and(|name| !route::has_prefix(name))
}

/// Whether a device of Ringtap can have time stamps of the NIC.
pub(super) fn has_nic_stamps(handle: &PcapHandle) -> bool {
    let name = handle.settings().source.clone().unwrap_or_default();
    let device = name
        .parse::<DeviceSpec>()
        .ok()
        .filter(|device| !device.kind.is_default() && device.kind.has_key("stamps"));
    let interface = device.and_then(|device| Interface::find(&device.name).ok());
    interface.is_some_and(|interface| interface.nic_stamps() == NicStamps::All)
}

/// Gives numbers in memory that `pcap_free_tstamp_types` frees; returns how many.
///
/// # Safety
///
/// `list` is a place for a pointer.
unsafe fn give_list(numbers: &[c_int], list: *mut *mut c_int) -> c_int {
    // SAFETY: a size above 0.
    let copy = unsafe { libc::malloc(size_of_val(numbers)) }.cast::<c_int>();
    if copy.is_null() || list.is_null() {
        return ERROR;
    }
    // SAFETY: new memory of this size, aligned for every type.
    unsafe { copy.copy_from_nonoverlapping(numbers.as_ptr(), numbers.len()) };
    // SAFETY: not null; the caller guarantees the rest.
    unsafe { list.write(copy) };
    c_int::try_from(numbers.len()).unwrap_or(ERROR)
}

/// A handle of the real library for the same device if that library may open it, otherwise without a
/// device and with the same link type.
pub(super) fn real_handle(handle: &PcapHandle) -> Option<RealHandle> {
    let real = if is_plain(handle) {
        RealHandle::create(handle.settings().source.as_deref().unwrap_or_default())
    } else {
        RealHandle::dead(
            handle.capture().map_or(1, |capture| capture.dlt),
            65_535,
            false,
        )
    };
    real.ok()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_geterr(p: *mut Pcap) -> *mut c_char {
    let nothing = NO_HANDLE.as_ptr().cast_mut();
    guarded(nothing, || match owner(p) {
        HandleOwner::Ringtap(handle) => handle.error.address(),
        HandleOwner::Libpcap(real) => real::functions().map_or(nothing, |functions| {
            // SAFETY: the same call with the real library's handle, and the same caller's guarantee.
            unsafe { (functions.pcap_geterr)(real) }
        }),
        HandleOwner::None => nothing,
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_perror(p: *mut Pcap, prefix: *const c_char) {
    guarded((), || {
        // SAFETY: a handle, by libpcap's manual.
        let error = unsafe { pcap_geterr(p) };
        // SAFETY: a text that is valid while the handle is open.
        let error = unsafe { text::take(error) }.unwrap_or_default();
        // SAFETY: NULL or a text, by libpcap's manual.
        let prefix = unsafe { text::take(prefix) }.unwrap_or_default();
        eprintln!("{prefix}: {error}");
    });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_lib_version() -> *const c_char {
    static VERSION: OnceLock<CString> = OnceLock::new();
    guarded(c"Ringtap".as_ptr(), || {
        let version = VERSION.get_or_init(|| {
            let real = real::functions().ok().and_then(|functions| {
                // SAFETY: takes no arguments and returns a static text.
                let version = unsafe { (functions.pcap_lib_version)() };
                // SAFETY: as above.
                unsafe { text::take(version) }
            });
            let real = real.unwrap_or_else(|| "libpcap version 1.10 (not there)".to_owned());
            let ours = env!("CARGO_PKG_VERSION");
            CString::new(format!("{real}, through Ringtap {ours}")).unwrap_or_default()
        });
        version.as_ptr()
    })
}

/// This library's version; the real library does not export this function.
#[unsafe(no_mangle)]
pub extern "C" fn ringtap_pcap_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// libpcap's version, where old programs look for it.
#[unsafe(no_mangle)]
pub static pcap_version: [u8; 7] = *b"1.10.3\0";

/// A name of an Ethernet protocol and its number.
#[repr(C)]
pub struct EthernetProtocol {
    name: *const c_char,
    number: u16,
}

// SAFETY: constant texts and numbers.
unsafe impl Sync for EthernetProtocol {}

const fn protocol(name: &'static CStr, number: u16) -> EthernetProtocol {
    EthernetProtocol {
        name: name.as_ptr(),
        number,
    }
}

/// Names of Ethernet protocols; the last entry has none.
#[unsafe(no_mangle)]
pub static eproto_db: [EthernetProtocol; 13] = [
    protocol(c"aarp", 0x80f3),
    protocol(c"arp", 0x0806),
    protocol(c"atalk", 0x809b),
    protocol(c"decnet", 0x6003),
    protocol(c"ip", 0x0800),
    protocol(c"ip6", 0x86dd),
    protocol(c"lat", 0x6004),
    protocol(c"loopback", 0x9000),
    protocol(c"mopdl", 0x6001),
    protocol(c"moprc", 0x6002),
    protocol(c"rarp", 0x8035),
    protocol(c"sca", 0x6007),
    EthernetProtocol {
        name: ptr::null(),
        number: 0,
    },
];
