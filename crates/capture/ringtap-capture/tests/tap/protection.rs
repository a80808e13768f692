// SPDX-License-Identifier: MIT OR Apache-2.0
//! Only the program writes the pool, and nothing remains after the end.

use ringtap_pool::source::Source as _;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;
use std::ptr;
use std::time::Duration;

use libbpf_rs::libbpf_sys;
use ringtap_capture::tap::{Direction, Mode, Tap};
use ringtap_ipc::event::sleep_until_readable;
use ringtap_testkit::{LIMIT, Namespace, Running, require_root, require_tool, with};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mprotect, munmap};

use crate::support::{attach, options, tcx_programs};

const PAGE: usize = 4096;
/// Set in the process that attaches and is killed; contains the interface.
const CHILD: &str = "RINGTAP_TEST_TAP";

#[test]
fn the_pool_can_be_read_and_not_written() {
    require_root!();
    require_tool!("ip");
    let net = Namespace::with_veth("frozen");
    let tap = attach(&net, &options("rx0"));
    let map = tap.pool_file().unwrap();
    let all = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel chooses the place; a mapping that should be refused is not used.
    let writable = unsafe { mmap(ptr::null_mut(), PAGE, all, MapFlags::SHARED, map, 0) };
    assert_eq!(writable.unwrap_err(), Errno::PERM);

    // SAFETY: as above.
    let readable = unsafe {
        mmap(
            ptr::null_mut(),
            PAGE,
            ProtFlags::READ,
            MapFlags::SHARED,
            map,
            0,
        )
    };
    let page = readable.unwrap();
    // SAFETY: the page was mapped above, and nothing refers to it.
    let upgraded = unsafe { mprotect(page, PAGE, MprotectFlags::READ | MprotectFlags::WRITE) };
    assert_eq!(upgraded.unwrap_err(), Errno::ACCESS);
    // SAFETY: mapped above with this size.
    unsafe { munmap(page, PAGE) }.unwrap();

    let value = vec![0_u8; 64 << 20];
    // SAFETY: key and value live during the call, and the value is larger than the map's.
    let updated = unsafe {
        libbpf_sys::bpf_map_update_elem(
            map.as_fd().as_raw_fd(),
            ptr::from_ref(&0_u32).cast(),
            value.as_ptr().cast(),
            0,
        )
    };
    assert_eq!(
        io::Error::from_raw_os_error(-updated).raw_os_error(),
        Some(libc_eperm())
    );
}

#[test]
fn who_sleeps_on_the_signals_can_neither_take_nor_change_them() {
    require_root!();
    require_tool!("ip");
    let net = Namespace::with_veth("signals");
    let tap = attach(&net, &options("rx0"));
    let signals = tap.readers_wake_fd().expect("this kernel gives it");
    // The page with the ring's consumer position, then that with the producer position.
    for at in [0, 4096] {
        let map = |access| {
            // SAFETY: the kernel chooses the place, and nothing refers to what is mapped.
            unsafe { mmap(ptr::null_mut(), PAGE, access, MapFlags::SHARED, signals, at) }
        };
        let writable = map(ProtFlags::READ | ProtFlags::WRITE);
        assert_eq!(writable.unwrap_err(), Errno::ACCESS, "at {at}");
        // Some kernels refuse to map a page that could not be written.
        if let Ok(page) = map(ProtFlags::READ) {
            // SAFETY: mapped above, and nothing refers to it.
            let upgraded =
                unsafe { mprotect(page, PAGE, MprotectFlags::READ | MprotectFlags::WRITE) };
            assert_eq!(upgraded.unwrap_err(), Errno::ACCESS, "at {at}");
            // SAFETY: mapped above with this size.
            unsafe { munmap(page, PAGE) }.unwrap();
        }
    }
    // SAFETY: a plain system call on a descriptor that the tap keeps open.
    let frozen = unsafe { libbpf_sys::bpf_map_freeze(signals.as_raw_fd()) };
    assert_eq!(-frozen, libc_eperm());

    let nothing = sleep_until_readable(&[signals], Some(Duration::from_millis(5)));
    assert!(!nothing.unwrap(), "nothing was captured yet");
}

fn libc_eperm() -> i32 {
    Errno::PERM.raw_os_error()
}

/// Code of the killed process: attaches and waits.
fn be_killed(interface: &str) -> ! {
    let all = with(options(interface), |it| it.on.direction = Direction::InOut);
    let native = Tap::attach(&all).unwrap();
    let tc = Tap::attach(&with(all, |it| it.on.mode = Mode::Tc)).unwrap();
    println!("attached");
    std::thread::sleep(2 * LIMIT);
    drop((native, tc));
    panic!("nobody killed us");
}

#[test]
fn a_killed_tap_leaves_nothing() {
    if let Ok(interface) = std::env::var(CHILD) {
        be_killed(&interface);
    }
    require_root!();
    require_tool!("ip");
    let net = Namespace::with_veth("killed");
    let mut child: Command = net.command(std::env::current_exe().unwrap());
    child.args([
        "--exact",
        "protection::a_killed_tap_leaves_nothing",
        "--nocapture",
    ]);
    child.env(CHILD, "rx0");
    let child = Running::start(child);
    child.wait_for_stdout("attached", LIMIT);
    assert!(net.has_xdp("rx0"));
    assert_eq!(tcx_programs(&net, "rx0"), 3);
    let held = Held::by(child.pid());
    assert!(
        held.programs.len() >= 4 && held.maps.len() >= 14,
        "{held:?}"
    );
    child.signal(rustix::process::Signal::KILL);
    assert!(!child.wait(LIMIT).status.success());
    let deadline = std::time::Instant::now() + LIMIT;
    while net.has_xdp("rx0") || tcx_programs(&net, "rx0") > 0 || !held.left().is_empty() {
        let left = held.left();
        assert!(
            std::time::Instant::now() < deadline,
            "left behind: {left:?}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Ids of eBPF objects that a process holds.
#[derive(Debug, Default)]
struct Held {
    programs: Vec<u32>,
    maps: Vec<u32>,
}

impl Held {
    fn by(process: u32) -> Self {
        let mut held = Held::default();
        for entry in std::fs::read_dir(format!("/proc/{process}/fdinfo")).unwrap() {
            // A descriptor may be closed before it is read.
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap_or_default();
            let number =
                |line: &str, name: &str| line.strip_prefix(name)?.trim().parse::<u32>().ok();
            held.programs
                .extend(text.lines().filter_map(|line| number(line, "prog_id:")));
            held.maps
                .extend(text.lines().filter_map(|line| number(line, "map_id:")));
        }
        held
    }

    /// Objects that still exist, in any process.
    fn left(&self) -> Vec<u32> {
        let program = |id: &&u32| libbpf_rs::Program::fd_from_id(**id).is_ok();
        let map = |id: &&u32| libbpf_rs::MapHandle::from_map_id(**id).is_ok();
        let programs = self.programs.iter().filter(program);
        programs
            .chain(self.maps.iter().filter(map))
            .copied()
            .collect()
    }
}

#[test]
fn a_dropped_tap_leaves_nothing() {
    require_root!();
    require_tool!("ip");
    let net = Namespace::with_veth("dropped");
    let tap = attach(
        &net,
        &with(options("rx0"), |it| it.on.direction = Direction::InOut),
    );
    assert!(net.has_xdp("rx0"));
    assert_eq!(tcx_programs(&net, "rx0"), 1);
    drop(tap);
    assert!(!net.has_xdp("rx0"));
    assert_eq!(tcx_programs(&net, "rx0"), 0);
}
