// SPDX-License-Identifier: MIT OR Apache-2.0
//! Captured bytes and their position in the pool.

use std::ffi::c_void;
use std::fs::OpenOptions;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::null_mut;

use ringtap_capture::xdp::XdpOptions;
use ringtap_device::Mode;
use ringtap_ipc::mapping::{Access, Mapping};
use ringtap_pool::source::Source;
use ringtap_testkit::{Namespace, require_root, require_tool, with};
use rustix::fs::{FallocateFlags, fallocate, ftruncate};
use rustix::io::{Errno, pwrite};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mprotect, munmap};

use crate::support::{finish, frame, open, options, own};

const MODES: [Mode; 2] = [Mode::Native, Mode::Generic];
/// Default chunk size in bytes; cells lie at its end.
const CHUNK: usize = 512 << 10;
/// Bytes from one cell to the next in copy mode.
const CELL_PITCH: usize = 2048 + 64;
/// Bytes in a cell before its packet.
const HEADROOM: usize = 280;

#[test]
fn packets_are_read_where_the_kernel_put_them() {
    require_root!();
    require_tool!("ip", "python3");
    for mode in MODES {
        let net = Namespace::with_veth("in_place");
        let source = open(&net, &with(options("rx0"), |it| it.on.mode = mode));
        let sent: Vec<_> = (0..200)
            .map(|number| frame(number, 60 + 7 * usize::from(number)))
            .collect();
        net.inject("tx0", &sent);
        let (captured, counts) = finish(source);
        assert_eq!(own(&captured), sent, "{mode:?}");
        for packet in &captured {
            let payload = usize::from(packet.slot.payload) * 8;
            let from_the_end = CHUNK - payload % CHUNK;
            assert_eq!(
                (from_the_end + HEADROOM) % CELL_PITCH,
                0,
                "{mode:?}: in its cell, behind the headroom"
            );
        }
        assert_eq!(counts.lanes[0].offered, 200);
    }
}

#[test]
fn every_fall_back_is_said() {
    require_root!();
    require_tool!("ip");
    let net = Namespace::with_veth("aloud");
    let says = |options: &XdpOptions, words: &[&str]| {
        let source = open(&net, options);
        let notes = source.facts().notes.join("\n");
        assert!(words.iter().all(|word| notes.contains(word)), "{notes}");
        assert_eq!(notes.is_empty(), words.is_empty(), "{notes}");
    };
    let usual = options("rx0");
    says(&usual, &["no zero-copy", "falling back to copy mode"]);
    let no_native = options("lo");
    says(
        &no_native,
        &["no native XDP; falling back to generic XDP", "no zero-copy"],
    );
    let asked = with(usual, |it| it.zero_copy = false);
    says(&asked, &[]);
}

/// Tries every way in which a process with the pool's descriptor could change a packet.
#[test]
fn nobody_can_map_the_pool_writable() {
    require_root!();
    require_tool!("ip");
    let net = Namespace::with_veth("sealed");
    let source = open(&net, &options("rx0"));
    let file = source.pool_file().expect("other processes can read it");
    let length = rustix::fs::fstat(file).unwrap().st_size.cast_unsigned();
    // With its own descriptor, opened for writing.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let reopened = OpenOptions::new().read(true).write(true).open(path);
    let own = reopened.as_ref().map_or(file, AsFd::as_fd);
    for file in [file, own] {
        assert!(Mapping::new(file, 4096, Access::Read).is_ok());
        assert!(Mapping::new(file, 4096, Access::ReadWrite).is_err());
        let page = map_read_only(file);
        // SAFETY: the page was mapped above, and nothing refers to it.
        let upgraded = unsafe { mprotect(page, 4096, MprotectFlags::READ | MprotectFlags::WRITE) };
        assert_eq!(upgraded.unwrap_err(), Errno::ACCESS);
        // SAFETY: mapped above with this size.
        unsafe { munmap(page, 4096) }.unwrap();
        assert_eq!(pwrite(file, b"changed", 0).unwrap_err(), Errno::PERM);
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        assert_eq!(fallocate(file, hole, 0, 4096).unwrap_err(), Errno::PERM);
        assert_eq!(ftruncate(file, 0).unwrap_err(), Errno::PERM);
        assert_eq!(ftruncate(file, 2 * length).unwrap_err(), Errno::PERM);
    }
}

fn map_read_only(file: BorrowedFd<'_>) -> *mut c_void {
    // SAFETY: the kernel chooses the place, and nothing refers to what is mapped.
    let page = unsafe { mmap(null_mut(), 4096, ProtFlags::READ, MapFlags::SHARED, file, 0) };
    page.unwrap()
}

#[test]
fn frames_of_several_cells_are_captured_whole() {
    require_root!();
    require_tool!("ip", "python3");
    for mode in MODES {
        let net = Namespace::with_veth("jumbo");
        for end in ["tx0", "rx0"] {
            net.ip(&["link", "set", end, "mtu", "9000"]);
        }
        let source = open(&net, &with(options("rx0"), |it| it.on.mode = mode));
        let lengths = [9014, 60, 3816, 3817, 9000, 1514, 7632, 7633];
        let sent: Vec<_> = (0..40_u8)
            .flat_map(|round| lengths.map(|length| frame(round, length)))
            .collect();
        net.inject("tx0", &sent);
        let (captured, counts) = finish(source);
        let found = own(&captured);
        assert_eq!(found.len(), sent.len(), "{mode:?}: {counts:?}");
        assert!(found == sent, "{mode:?}: bytes are those that were sent");
        assert!(captured.iter().all(|packet| {
            usize::try_from(packet.slot.wire_length).unwrap() == packet.data.len()
        }));
    }
}

#[test]
fn a_snap_length_cuts_and_tells_the_length_on_the_wire() {
    require_root!();
    require_tool!("ip", "python3");
    let net = Namespace::with_veth("snap");
    let cut = with(options("rx0"), |it| it.on.snap_length = Some(96));
    let source = open(&net, &cut);
    let sent = frame(3, 1000);
    net.inject("tx0", std::slice::from_ref(&sent));
    let (captured, _) = finish(source);
    assert_eq!(own(&captured), [sent[..96].to_vec()]);
    assert_eq!(captured[0].slot.wire_length, 1000);
}
