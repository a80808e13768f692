// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a program asks of a handle.

use std::ffi::{CString, c_char, c_int};
use std::ptr;
use std::sync::OnceLock;

use libc::{FILE, timeval};

use super::{about_a_handle, guarded};
use crate::abi::{ERROR, ERROR_NOT_ACTIVATED, Pcap, Statistics};
use crate::handle::PcapHandle;
use crate::handles::{Owner, owner};
use crate::real;
use crate::text;

/// What libpcap says of a handle that is none.
const NO_HANDLE: &std::ffi::CStr = c"this capture handle was closed, or never opened";

about_a_handle! {
    fn pcap_datalink(p) -> c_int, or ERROR => |handle| handle.number(|live| live.facts.dlt);
    fn pcap_datalink_ext(p) -> c_int, or ERROR => |handle| handle.number(|_| 0);
    fn pcap_snapshot(p) -> c_int, or ERROR => |handle| handle.number(|live| {
        c_int::try_from(live.facts.snap_bytes).unwrap_or(c_int::MAX)
    });
    fn pcap_bufsize(p) -> c_int, or ERROR => |handle| handle.number(|live| {
        c_int::try_from(live.facts.snap_bytes).unwrap_or(c_int::MAX)
    });
    fn pcap_is_swapped(p) -> c_int, or ERROR => |handle| handle.number(|_| 0);
    fn pcap_major_version(p) -> c_int, or ERROR => |handle| handle.number(|_| 0);
    fn pcap_minor_version(p) -> c_int, or ERROR => |handle| handle.number(|_| 0);
    fn pcap_get_tstamp_precision(p) -> c_int, or ERROR => |handle| handle.settings().precision;
    fn pcap_file(p) -> *mut FILE, or ptr::null_mut() => |handle| no_file(&handle);
    fn pcap_get_required_select_timeout(p) -> *const timeval, or ptr::null() => |handle| no_timeout(&handle);
    fn pcap_fileno(p) -> c_int, or ERROR => |handle| descriptor(&handle);
    fn pcap_get_selectable_fd(p) -> c_int, or ERROR => |handle| match real::is_set("RINGTAP_NO_SELECT") {
        true => ERROR,
        false => descriptor(&handle),
    };
    fn pcap_geterr(p) -> *mut c_char, or NO_HANDLE.as_ptr().cast_mut() => |handle| handle.error.address();
    fn pcap_getnonblock(p, errbuf: *mut c_char) -> c_int, or ERROR => |handle| {
        let on = handle.with_live(|live| Ok(live.nonblock().into()));
        if on == ERROR {
            // SAFETY: an error buffer or NULL, by libpcap's manual.
            unsafe { text::give(errbuf, &handle.error.get()) };
        }
        on
    };
    fn pcap_stats(p, statistics: *mut Statistics) -> c_int, or ERROR => |handle| handle.with_live(|live| {
        let counted = live.statistics()?;
        if !statistics.is_null() {
            // SAFETY: not null; a place for this, by libpcap's manual.
            unsafe { statistics.write(counted) };
        }
        Ok(0)
    });
    fn pcap_can_set_rfmon(p) -> c_int, or ERROR => |handle| match is_plain(&handle) {
        true => with_real(&handle, |functions, real| {
            // SAFETY: a handle of the real library's that was just made.
            unsafe { (functions.pcap_can_set_rfmon)(real) }
        }).unwrap_or(0),
        false => 0,
    };
    fn pcap_list_tstamp_types(p, list: *mut *mut c_int) -> c_int, or ERROR => |handle| with_real(&handle, |functions, real| {
        // SAFETY: as above; the list is a place for a pointer, by libpcap's manual.
        unsafe { (functions.pcap_list_tstamp_types)(real, list) }
    }).unwrap_or(ERROR);
    fn pcap_list_datalinks(p, list: *mut *mut c_int) -> c_int, or ERROR => |handle| match handle.live() {
        None => ERROR_NOT_ACTIVATED,
        Some(_) => with_real(&handle, |functions, real| {
            // SAFETY: as above.
            unsafe { (functions.pcap_list_datalinks)(real, list) }
        }).unwrap_or(ERROR),
    };
}

/// A live capture has none.
fn no_file(_handle: &PcapHandle) -> *mut FILE {
    ptr::null_mut()
}

/// The descriptor tells all there is to tell.
fn no_timeout(_handle: &PcapHandle) -> *const timeval {
    ptr::null()
}

fn descriptor(handle: &PcapHandle) -> c_int {
    match handle.live().map(crate::live::Live::descriptor) {
        None => ERROR,
        Some(fd) => handle.told(fd),
    }
}

/// Whether a handle is for an interface that the real library may still open.
pub(super) fn is_plain(handle: &PcapHandle) -> bool {
    let settings = handle.settings();
    let name = settings.source.as_deref();
    handle.live().is_none() && name.is_some_and(|name| !crate::plain::has_prefix(name))
}

/// Asks the real library about the device that a handle is for, or about its link type; `None` if
/// it cannot be asked.
pub(super) fn with_real<T>(
    handle: &PcapHandle,
    ask: impl FnOnce(&crate::list::Functions, *mut Pcap) -> T,
) -> Option<T> {
    let functions = real::functions().ok()?;
    let real = match handle.live() {
        None if is_plain(handle) => {
            let name = handle.settings().source.clone().unwrap_or_default();
            let name = CString::new(name).ok()?;
            let mut errbuf: [c_char; crate::abi::ERRBUF_SIZE] = [0; crate::abi::ERRBUF_SIZE];
            // SAFETY: a text and an error buffer.
            unsafe { (functions.pcap_create)(name.as_ptr(), errbuf.as_mut_ptr()) }
        }
        live => {
            let dlt = live.map_or(1, |live| live.facts.dlt);
            // SAFETY: two numbers.
            unsafe { (functions.pcap_open_dead)(dlt, 65_535) }
        }
    };
    if real.is_null() {
        return None;
    }
    let answer = ask(functions, real);
    // SAFETY: made above, and closed once.
    unsafe { (functions.pcap_close)(real) };
    Some(answer)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_perror(p: *mut Pcap, prefix: *const c_char) {
    guarded((), || {
        let error = match owner(p) {
            Owner::Ringtap(handle) => handle.error.get(),
            Owner::Libpcap(real) => {
                if let Ok(functions) = real::functions() {
                    // SAFETY: the same call about the library's own handle, by the caller's word.
                    unsafe { (functions.pcap_perror)(real, prefix) };
                }
                return;
            }
            Owner::None => NO_HANDLE.to_string_lossy().into_owned(),
        };
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
                // SAFETY: takes nothing and gives a text that stays.
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

/// What tells this library from the real one.
#[unsafe(no_mangle)]
pub extern "C" fn ringtap_pcap_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// libpcap's version, from times when programs read it there.
#[unsafe(no_mangle)]
pub static pcap_version: [u8; 7] = *b"1.10.3\0";

/// A name of an Ethernet protocol and its number.
#[repr(C)]
pub struct EthernetProtocol {
    name: *const c_char,
    number: u16,
}

// SAFETY: texts and numbers that never change.
unsafe impl Sync for EthernetProtocol {}

const fn protocol(name: &'static std::ffi::CStr, number: u16) -> EthernetProtocol {
    EthernetProtocol {
        name: name.as_ptr(),
        number,
    }
}

/// Names of Ethernet protocols, the list closed by one without a name.
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
