// SPDX-License-Identifier: MIT OR Apache-2.0
//! All functions that libpcap 1.10 exports. The list makes the table of the real library's functions,
//! and the functions that forward calls to them.
#![expect(missing_docs, reason = "pcap/pcap.h has the documentation")]
#![expect(
    clippy::missing_safety_doc,
    reason = "libpcap's manual has the documentation"
)]

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_uint, c_void};

use libc::{FILE, addrinfo, timeval};

use crate::abi::{
    BpfProgram, Callback, Dumper, Instruction, PacketHeader, Pcap, PcapDevice, PcapStatistics,
};

/// A function's result if there is no handle or no real library.
pub(crate) trait Absent {
    const VALUE: Self;
}

impl Absent for () {
    const VALUE: Self = ();
}

impl Absent for c_int {
    const VALUE: Self = -1;
}

impl Absent for c_uint {
    const VALUE: Self = 0;
}

impl Absent for i64 {
    const VALUE: Self = -1;
}

impl<T> Absent for *mut T {
    const VALUE: Self = std::ptr::null_mut();
}

impl<T> Absent for *const T {
    const VALUE: Self = std::ptr::null();
}

/// Finds a function of type `T`; fails with its name.
///
/// # Safety
///
/// `find` returns libpcap's function of that name, which has the type `T`.
unsafe fn function<T>(
    find: &impl Fn(&CStr) -> *mut c_void,
    name: &'static str,
) -> Result<T, &'static str> {
    let address = CString::new(name).map_or(std::ptr::null_mut(), |name| find(&name));
    if address.is_null() {
        return Err(name);
    }
    // SAFETY: the caller guarantees this function and its type.
    Ok(unsafe { std::mem::transmute_copy(&address) })
}

/// Functions that are jumps to a function of `border.c` with the same arguments: no frame of Rust lies
/// below one that a program may leave in the middle. (A linker exports the names of Rust only.)
macro_rules! jumps {
    ($(fn $name:ident($($given:ident: $kind:ty),*) $(-> $gives:ty)?;)*) => {$(
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name($($given: $kind),*) $(-> $gives)? {
            $crate::list::jump!($name)
        }
    )*};
}
pub(crate) use jumps;

#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    ($name:ident) => {
        std::arch::naked_asm!(concat!("jmp ringtap_c_", stringify!($name)))
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    ($name:ident) => {
        std::arch::naked_asm!(concat!("b ringtap_c_", stringify!($name)))
    };
}
#[cfg(target_arch = "riscv64")]
macro_rules! jump {
    ($name:ident) => {
        std::arch::naked_asm!(concat!("tail ringtap_c_", stringify!($name)))
    };
}
pub(crate) use jump;

/// `border.c` passes calls of `passed` functions to the real library; [`crate::calls`] has the `ours`.
macro_rules! libpcap {
    (
        passed { $(fn $passed:ident($($given:ident: $kind:ty),*) $(-> $gives:ty)?;)* }
        ours { $(fn $our:ident($($our_given:ident: $our_kind:ty),*) $(-> $our_gives:ty)?;)* }
    ) => {
        /// The real library's functions.
        #[derive(Debug)]
        #[expect(dead_code, reason = "pcap_open_live is made of other functions here")]
        pub(crate) struct Functions {
            $(pub(crate) $passed: unsafe extern "C" fn($($kind),*) $(-> $gives)?,)*
            $(pub(crate) $our: unsafe extern "C" fn($($our_kind),*) $(-> $our_gives)?,)*
        }

        impl Functions {
            /// Finds all functions by name; fails with the name of a missing one.
            ///
            /// # Safety
            ///
            /// `find` returns libpcap's function of that name.
            pub(crate) unsafe fn find(
                find: impl Fn(&std::ffi::CStr) -> *mut c_void,
            ) -> Result<Self, &'static str> {
                Ok(Functions {
                    // SAFETY: the caller guarantees functions of these names.
                    $($passed: unsafe { function(&find, stringify!($passed)) }?,)*
                    // SAFETY: as above.
                    $($our: unsafe { function(&find, stringify!($our)) }?,)*
                })
            }
        }

        jumps! {
            $(fn $passed($($given: $kind),*) $(-> $gives)?;)*
        }

        /// Names of the functions that are forwarded.
        pub const PASSED: &[&str] = &[$(stringify!($passed)),*];
        /// Names of the functions that this library implements.
        pub const OURS: &[&str] = &[$(stringify!($our)),*];
    };
}

libpcap! {
    passed {
        fn bpf_dump(program: *const BpfProgram, option: c_int);
        fn bpf_filter(program: *const Instruction, packet: *const u8, wire: c_uint, captured: c_uint) -> c_uint;
        fn bpf_image(instruction: *const Instruction, number: c_int) -> *mut c_char;
        fn bpf_validate(program: *const Instruction, length: c_int) -> c_int;
        fn pcap_compile_nopcap(snap: c_int, dlt: c_int, program: *mut BpfProgram, text: *const c_char, optimize: c_int, mask: u32) -> c_int;
        fn pcap_datalink_name_to_val(name: *const c_char) -> c_int;
        fn pcap_datalink_val_to_description(dlt: c_int) -> *const c_char;
        fn pcap_datalink_val_to_description_or_dlt(dlt: c_int) -> *const c_char;
        fn pcap_datalink_val_to_name(dlt: c_int) -> *const c_char;
        fn pcap_dump(user: *mut u8, header: *const PacketHeader, packet: *const u8);
        fn pcap_dump_close(dumper: *mut Dumper);
        fn pcap_dump_file(dumper: *mut Dumper) -> *mut FILE;
        fn pcap_dump_flush(dumper: *mut Dumper) -> c_int;
        fn pcap_dump_ftell(dumper: *mut Dumper) -> c_long;
        fn pcap_dump_ftell64(dumper: *mut Dumper) -> i64;
        fn pcap_ether_aton(text: *const c_char) -> *mut u8;
        fn pcap_ether_hostton(name: *const c_char) -> *mut u8;
        fn pcap_fopen_offline(file: *mut FILE, errbuf: *mut c_char) -> *mut Pcap;
        fn pcap_fopen_offline_with_tstamp_precision(file: *mut FILE, precision: c_uint, errbuf: *mut c_char) -> *mut Pcap;
        fn pcap_free_datalinks(list: *mut c_int);
        fn pcap_free_tstamp_types(list: *mut c_int);
        fn pcap_freecode(program: *mut BpfProgram);
        fn pcap_init(options: c_uint, errbuf: *mut c_char) -> c_int;
        fn pcap_lookupdev(errbuf: *mut c_char) -> *mut c_char;
        fn pcap_nametoaddr(name: *const c_char) -> *mut *mut u32;
        fn pcap_nametoaddrinfo(name: *const c_char) -> *mut addrinfo;
        fn pcap_nametoeproto(name: *const c_char) -> c_int;
        fn pcap_nametollc(name: *const c_char) -> c_int;
        fn pcap_nametonetaddr(name: *const c_char) -> u32;
        fn pcap_nametoport(name: *const c_char, port: *mut c_int, protocol: *mut c_int) -> c_int;
        fn pcap_nametoportrange(name: *const c_char, first: *mut c_int, last: *mut c_int, protocol: *mut c_int) -> c_int;
        fn pcap_nametoproto(name: *const c_char) -> c_int;
        fn pcap_next_etherent(file: *mut FILE) -> *mut c_void;
        fn pcap_offline_filter(program: *const BpfProgram, header: *const PacketHeader, packet: *const u8) -> c_int;
        fn pcap_open_dead(dlt: c_int, snap: c_int) -> *mut Pcap;
        fn pcap_open_dead_with_tstamp_precision(dlt: c_int, snap: c_int, precision: c_uint) -> *mut Pcap;
        fn pcap_open_offline(name: *const c_char, errbuf: *mut c_char) -> *mut Pcap;
        fn pcap_open_offline_with_tstamp_precision(name: *const c_char, precision: c_uint, errbuf: *mut c_char) -> *mut Pcap;
        fn pcap_statustostr(status: c_int) -> *const c_char;
        fn pcap_strerror(error: c_int) -> *const c_char;
        fn pcap_tstamp_type_name_to_val(name: *const c_char) -> c_int;
        fn pcap_tstamp_type_val_to_description(value: c_int) -> *const c_char;
        fn pcap_tstamp_type_val_to_name(value: c_int) -> *const c_char;
    }
    ours {
        fn pcap_activate(p: *mut Pcap) -> c_int;
        fn pcap_breakloop(p: *mut Pcap);
        fn pcap_bufsize(p: *mut Pcap) -> c_int;
        fn pcap_can_set_rfmon(p: *mut Pcap) -> c_int;
        fn pcap_close(p: *mut Pcap);
        fn pcap_compile(p: *mut Pcap, program: *mut BpfProgram, text: *const c_char, optimize: c_int, mask: u32) -> c_int;
        fn pcap_create(source: *const c_char, errbuf: *mut c_char) -> *mut Pcap;
        fn pcap_datalink(p: *mut Pcap) -> c_int;
        fn pcap_datalink_ext(p: *mut Pcap) -> c_int;
        fn pcap_dispatch(p: *mut Pcap, count: c_int, callback: Option<Callback>, user: *mut u8) -> c_int;
        fn pcap_dump_fopen(p: *mut Pcap, file: *mut FILE) -> *mut Dumper;
        fn pcap_dump_open(p: *mut Pcap, name: *const c_char) -> *mut Dumper;
        fn pcap_dump_open_append(p: *mut Pcap, name: *const c_char) -> *mut Dumper;
        fn pcap_file(p: *mut Pcap) -> *mut FILE;
        fn pcap_fileno(p: *mut Pcap) -> c_int;
        fn pcap_findalldevs(list: *mut *mut PcapDevice, errbuf: *mut c_char) -> c_int;
        fn pcap_freealldevs(list: *mut PcapDevice);
        fn pcap_get_required_select_timeout(p: *mut Pcap) -> *const timeval;
        fn pcap_get_selectable_fd(p: *mut Pcap) -> c_int;
        fn pcap_get_tstamp_precision(p: *mut Pcap) -> c_int;
        fn pcap_geterr(p: *mut Pcap) -> *mut c_char;
        fn pcap_getnonblock(p: *mut Pcap, errbuf: *mut c_char) -> c_int;
        fn pcap_inject(p: *mut Pcap, packet: *const c_void, size: usize) -> c_int;
        fn pcap_is_swapped(p: *mut Pcap) -> c_int;
        fn pcap_lib_version() -> *const c_char;
        fn pcap_list_datalinks(p: *mut Pcap, list: *mut *mut c_int) -> c_int;
        fn pcap_list_tstamp_types(p: *mut Pcap, list: *mut *mut c_int) -> c_int;
        fn pcap_lookupnet(device: *const c_char, net: *mut u32, mask: *mut u32, errbuf: *mut c_char) -> c_int;
        fn pcap_loop(p: *mut Pcap, count: c_int, callback: Option<Callback>, user: *mut u8) -> c_int;
        fn pcap_major_version(p: *mut Pcap) -> c_int;
        fn pcap_minor_version(p: *mut Pcap) -> c_int;
        fn pcap_next(p: *mut Pcap, header: *mut PacketHeader) -> *const u8;
        fn pcap_next_ex(p: *mut Pcap, header: *mut *mut PacketHeader, packet: *mut *const u8) -> c_int;
        fn pcap_open_live(device: *const c_char, snap: c_int, promiscuous: c_int, timeout_ms: c_int, errbuf: *mut c_char) -> *mut Pcap;
        fn pcap_perror(p: *mut Pcap, prefix: *const c_char);
        fn pcap_sendpacket(p: *mut Pcap, packet: *const u8, size: c_int) -> c_int;
        fn pcap_set_buffer_size(p: *mut Pcap, bytes: c_int) -> c_int;
        fn pcap_set_datalink(p: *mut Pcap, dlt: c_int) -> c_int;
        fn pcap_set_immediate_mode(p: *mut Pcap, on: c_int) -> c_int;
        fn pcap_set_promisc(p: *mut Pcap, on: c_int) -> c_int;
        fn pcap_set_protocol_linux(p: *mut Pcap, protocol: c_int) -> c_int;
        fn pcap_set_rfmon(p: *mut Pcap, on: c_int) -> c_int;
        fn pcap_set_snaplen(p: *mut Pcap, bytes: c_int) -> c_int;
        fn pcap_set_timeout(p: *mut Pcap, timeout_ms: c_int) -> c_int;
        fn pcap_set_tstamp_precision(p: *mut Pcap, precision: c_int) -> c_int;
        fn pcap_set_tstamp_type(p: *mut Pcap, kind: c_int) -> c_int;
        fn pcap_setdirection(p: *mut Pcap, direction: c_int) -> c_int;
        fn pcap_setfilter(p: *mut Pcap, program: *mut BpfProgram) -> c_int;
        fn pcap_setnonblock(p: *mut Pcap, on: c_int, errbuf: *mut c_char) -> c_int;
        fn pcap_snapshot(p: *mut Pcap) -> c_int;
        fn pcap_stats(p: *mut Pcap, statistics: *mut PcapStatistics) -> c_int;
    }
}
