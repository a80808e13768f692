// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs translated filters in the kernel on test packets.

use std::{
    ffi::c_char,
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    ptr,
    sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
};

use libbpf_rs::libbpf_sys::{
    self, BPF_F_MMAPABLE, BPF_F_XDP_HAS_FRAGS, BPF_MAP_TYPE_ARRAY, BPF_PROG_TYPE_SCHED_CLS,
    BPF_PROG_TYPE_XDP,
};
use ringtap_filter::{
    Program,
    ebpf::{self, FilterHook, Insn},
};

/// Data exchanged by user space and the program.
#[repr(C)]
struct Words {
    tag: AtomicU32,
    snap_length: AtomicU32,
    mask: AtomicU64,
}

/// A loaded program.
pub(crate) struct Kernel {
    hook: FilterHook,
    program: OwnedFd,
    _map: OwnedFd,
    words: &'static Words,
}

/// Sizes of a program in the kernel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) instructions: usize,
    /// Instructions that the verifier followed.
    pub(crate) verified: u32,
}

const PAGE: usize = 4096;

fn size_of_options<T>() -> u64 {
    u64::try_from(size_of::<T>()).unwrap()
}

fn insn(code: u8, dst: u8, src: u8, offset: i16, constant: i32) -> Insn {
    let [o0, o1] = offset.to_le_bytes();
    let [c0, c1, c2, c3] = constant.to_le_bytes();
    let bytes = [code, dst | src << 4, o0, o1, c0, c1, c2, c3];
    Insn(u64::from_le_bytes(bytes))
}

/// A program that calls the function behind it with the arguments in the map.
fn around(function: &[Insn], hook: FilterHook, map: i32) -> Vec<Insn> {
    const MAP_VALUE: u8 = 2;
    let length = match hook {
        FilterHook::Xdp => vec![insn(0xbf, 1, 6, 0, 0), insn(0x85, 0, 0, 0, 188)],
        FilterHook::Tc => vec![insn(0x61, 0, 6, 0, 0)],
    };
    let mut program = vec![
        insn(0xbf, 6, 1, 0, 0),
        insn(0x18, 8, MAP_VALUE, 0, map),
        insn(0, 0, 0, 0, 0),
    ];
    program.extend(length);
    program.extend([
        insn(0x61, 2, 8, 0, 0),
        insn(0xbf, 3, 0, 0, 0),
        insn(0x15, 2, 0, 1, 0),
        insn(0x07, 3, 0, 0, 4),
        insn(0x61, 4, 8, 4, 0),
        insn(0x3d, 3, 4, 1, 0),
        insn(0xbf, 4, 3, 0, 0),
        insn(0xbf, 1, 6, 0, 0),
        insn(0x85, 0, 1, 0, 6),
        insn(0x7b, 8, 0, 8, 0),
        // Like the tap: the verifier must not learn the mask from a branch on it.
        insn(0x15, 0, 0, 2, 0),
        insn(0xb7, 0, 0, 0, 2),
        insn(0x95, 0, 0, 0, 0),
        insn(0xb7, 0, 0, 0, 1),
        insn(0x95, 0, 0, 0, 0),
    ]);
    program.extend(function);
    program
}

impl Kernel {
    pub(crate) fn load(filters: &[Program], hook: FilterHook) -> Result<Self, String> {
        let function = ebpf::classify(filters, hook).map_err(|error| error.to_string())?;
        Self::load_function(&function, hook)
    }

    pub(crate) fn load_function(function: &[Insn], hook: FilterHook) -> Result<Self, String> {
        let (map, words) = map();
        let instructions = around(function, hook, map.as_raw_fd());
        let kind = match hook {
            FilterHook::Xdp => BPF_PROG_TYPE_XDP,
            FilterHook::Tc => BPF_PROG_TYPE_SCHED_CLS,
        };
        let mut log = vec![0_u8; 1 << 22];
        let mut load = |log_level| {
            let mut options = libbpf_sys::bpf_prog_load_opts {
                sz: size_of_options::<libbpf_sys::bpf_prog_load_opts>(),
                log_level,
                prog_flags: if hook == FilterHook::Xdp {
                    BPF_F_XDP_HAS_FRAGS
                } else {
                    0
                },
                ..Default::default()
            };
            if log_level > 0 {
                options.log_buf = log.as_mut_ptr().cast::<c_char>();
                options.log_size = u32::try_from(log.len()).unwrap();
            }
            // SAFETY: instructions, log and options live until the call returns.
            unsafe {
                libbpf_sys::bpf_prog_load(
                    kind,
                    c"rt_test".as_ptr(),
                    c"Dual MIT/GPL".as_ptr(),
                    instructions.as_ptr().cast(),
                    u64::try_from(instructions.len()).unwrap(),
                    &raw mut options,
                )
            }
        };
        let mut descriptor = load(0);
        if descriptor < 0 {
            let error = io::Error::last_os_error();
            descriptor = load(2);
            if descriptor < 0 {
                let text = String::from_utf8_lossy(&log).into_owned();
                let text = text.trim_end_matches('\0');
                let tail = text.len().saturating_sub(3000);
                return Err(format!("{error}: {}", &text[tail..]));
            }
        }
        // SAFETY: a new descriptor that nobody else owns.
        let program = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Ok(Self {
            hook,
            program,
            _map: map,
            words,
        })
    }

    /// Mask of a packet given as on the wire; its tag is stripped if the program restores it.
    pub(crate) fn run(
        &self,
        packet: &[u8],
        tag: Option<[u8; 4]>,
        snap_length: u32,
    ) -> io::Result<u64> {
        self.words.mask.store(u64::MAX, Relaxed);
        self.repeat(packet, tag, snap_length, 1)?;
        Ok(self.words.mask.load(Relaxed))
    }

    /// Nanoseconds per run.
    pub(crate) fn repeat(
        &self,
        packet: &[u8],
        tag: Option<[u8; 4]>,
        snap_length: u32,
        times: i32,
    ) -> io::Result<u32> {
        let tag = tag.map_or(0, u32::from_ne_bytes);
        self.words.tag.store(tag, Relaxed);
        self.words.snap_length.store(snap_length, Relaxed);
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of_options::<libbpf_sys::bpf_test_run_opts>(),
            data_in: packet.as_ptr().cast(),
            data_size_in: u32::try_from(packet.len()).unwrap(),
            repeat: times,
            ..Default::default()
        };
        // SAFETY: packet and options live until the call returns.
        let result = unsafe {
            libbpf_sys::bpf_prog_test_run_opts(self.program.as_raw_fd(), &raw mut options)
        };
        match result {
            0 => Ok(options.duration),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(crate) fn size(&self) -> Size {
        let mut info = libbpf_sys::bpf_prog_info::default();
        let mut length = u32::try_from(size_of_val(&info)).unwrap();
        // SAFETY: info and length live until the call returns.
        let result = unsafe {
            libbpf_sys::bpf_prog_get_info_by_fd(
                self.program.as_raw_fd(),
                &raw mut info,
                &raw mut length,
            )
        };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
        Size {
            instructions: usize::try_from(info.xlated_prog_len / 8).unwrap(),
            verified: info.verified_insns,
        }
    }

    /// Whether the kernel creates a test packet of these bytes.
    pub(crate) fn takes(&self, packet: &[u8]) -> bool {
        match self.hook {
            FilterHook::Xdp => packet.len() >= 14,
            FilterHook::Tc => {
                let header = match packet.get(12..14) {
                    Some([8, 0]) => 20,
                    Some([0x86, 0xdd]) => 40,
                    _ => 1,
                };
                // The kernel creates larger ones only for XDP.
                (14 + header..3000).contains(&packet.len())
            }
        }
    }

    pub(crate) fn hook(&self) -> FilterHook {
        self.hook
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        let start = ptr::from_ref(self.words).cast_mut();
        // SAFETY: mapped by `map`, and not used any more.
        unsafe { libc::munmap(start.cast(), PAGE) };
    }
}

fn map() -> (OwnedFd, &'static Words) {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of_options::<libbpf_sys::bpf_map_create_opts>(),
        map_flags: BPF_F_MMAPABLE,
        ..Default::default()
    };
    let bytes = u32::try_from(size_of::<Words>()).unwrap();
    // SAFETY: the options live until the call returns.
    let descriptor = unsafe {
        let name = c"rt_test".as_ptr();
        libbpf_sys::bpf_map_create(BPF_MAP_TYPE_ARRAY, name, 4, bytes, 1, &raw const options)
    };
    assert!(descriptor >= 0, "{}", io::Error::last_os_error());
    // SAFETY: a new descriptor that nobody else owns.
    let map = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping of the map's only page.
    let start = unsafe {
        let shared = libc::MAP_SHARED;
        libc::mmap(ptr::null_mut(), PAGE, access, shared, map.as_raw_fd(), 0)
    };
    assert_ne!(start, libc::MAP_FAILED, "{}", io::Error::last_os_error());
    // SAFETY: the page holds `Words`, is mapped until `Kernel` is dropped, and all bits are valid.
    (map, unsafe { &*start.cast::<Words>() })
}
