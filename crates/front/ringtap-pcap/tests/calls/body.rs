// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any sequence of calls on open, closed and failed handles: each call returns.
//!
//! A hub in this process delivers packets of a simulated NIC, so that some handles capture. Calls
//! whose result libpcap does not define (invalid pointers, libpcap's closed handles) are left out.

#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "one promise for all calls: what they are given is right, or NULL"
)]

use std::ffi::{CString, c_char, c_int};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ringtap_capture::sim::{self, SimOptions};
use ringtap_device::DeviceSpec;
use ringtap_hub::server::{Server, ServerOptions};
use ringtap_hub::{Group, Hub, HubOptions};
use ringtap_ipc::socket::Listener;
use ringtap_pcap::abi::{BpfProgram, ERRBUF_SIZE, Instruction, PacketHeader, Pcap, PcapStatistics};
use ringtap_pcap::calls::{ask::*, file::*, find::*, open::*, packets::*, set::*};
use ringtap_pcap::list::*;
use ringtap_pool::source::Source;
use ringtap_testkit::{Script, folder_until_exit};

/// Packets read in all runs so far.
pub(crate) static READ: AtomicU64 = AtomicU64::new(0);

/// Most handles at one time.
const PLACES: usize = 4;

/// A hub that serves all runs.
struct HubFixture {
    _hub: Hub,
    _server: Server,
    device: String,
}

impl HubFixture {
    fn new(sources: Vec<Source>) -> Self {
        let folder = folder_until_exit();
        let socket = folder.join("hub.sock");
        let started = Hub::start(
            sources,
            vec![Group::new("all")],
            HubOptions::default(),
            Vec::new(),
        );
        let (hub, _) = started.expect("a hub");
        let listener = Listener::bind(&socket).expect("a socket");
        HubFixture {
            _server: Server::open(listener, &hub, ServerOptions::default()).expect("a server"),
            _hub: hub,
            device: format!("hub:all?socket={}", socket.display()),
        }
    }
}

fn hub_of_a_simulated_nic() -> &'static str {
    static FIXTURE: OnceLock<HubFixture> = OnceLock::new();
    let fixture = FIXTURE.get_or_init(|| {
        let device: DeviceSpec = "sim:20kpps?pool=4MiB".parse().expect("a device");
        let options = SimOptions::from_device(&device).expect("it can be simulated");
        HubFixture::new(vec![sim::open(&options).expect("it starts")])
    });
    &fixture.device
}

/// The device of a hub that captures nothing.
pub(crate) fn hub_without_sources() -> &'static str {
    static FIXTURE: OnceLock<HubFixture> = OnceLock::new();
    &FIXTURE.get_or_init(|| HubFixture::new(Vec::new())).device
}

/// A handle that the script uses.
#[derive(Clone, Copy)]
struct Place {
    handle: *mut Pcap,
    /// The real library's handle, which must not be used after its close.
    real: bool,
}

/// Any number that C may pass.
fn any_int(script: &mut Script<'_>) -> c_int {
    c_int::from_le_bytes(std::array::from_fn(|_| script.byte()))
}

unsafe extern "C" fn touch(user: *mut u8, header: *const PacketHeader, data: *const u8) {
    READ.fetch_add(1, Relaxed);
    // SAFETY: the library passes a header, its bytes, and the number that it was given.
    unsafe {
        let bytes = std::slice::from_raw_parts(
            data,
            usize::try_from((*header).captured_bytes).unwrap_or(0),
        );
        let sum = bytes
            .iter()
            .fold(0_u64, |sum, byte| sum.wrapping_add(u64::from(*byte)));
        *user.cast::<u64>() = (*user.cast::<u64>()).wrapping_add(sum);
    }
}

/// Makes the calls that these bytes choose; returns the number of calls.
pub(crate) fn run(input: &[u8]) -> usize {
    let mut script = Script::new(input);
    let hub = hub_of_a_simulated_nic();
    let mut places = [Place {
        handle: ptr::null_mut(),
        real: false,
    }; PLACES];
    let mut calls = 0;
    while !script.is_empty() && calls < 200 {
        let place = &mut places[script.below(PLACES)];
        // SAFETY: pointers point to places of the right size, or are NULL where that is allowed.
        unsafe { call(&mut script, place, hub) };
        calls += 1;
    }
    for place in places {
        // SAFETY: an open handle, a closed one of this library, or NULL.
        unsafe { pcap_close(place.handle) };
    }
    calls
}

unsafe fn open(script: &mut Script<'_>, place: &mut Place, hub: &str) {
    let mut errbuf: [c_char; ERRBUF_SIZE] = [1; ERRBUF_SIZE];
    let devices = [
        hub,
        hub,
        hub_without_sources(),
        "hub:none",
        "nosuch0",
        "tap:@@",
        "hub:all?socket=/nonexistent",
        "",
    ];
    let name = script.one_of(&devices);
    // These names are neither interfaces nor Ringtap's: the real library opens them.
    let real = matches!(name, "nosuch0" | "");
    let device = CString::new(name).expect("a name");
    if !place.real || !place.handle.is_null() {
        // SAFETY: open, ours, or NULL.
        unsafe { pcap_close(place.handle) };
    }
    // SAFETY: texts and a buffer.
    unsafe {
        *place = match script.byte() % 8 {
            0 => Place {
                handle: pcap_open_dead(1, i32::from(script.byte())),
                real: true,
            },
            1 => Place {
                handle: pcap_open_live(device.as_ptr(), any_int(script), 1, 1, errbuf.as_mut_ptr()),
                real,
            },
            2 => Place {
                handle: pcap_open_offline(device.as_ptr(), errbuf.as_mut_ptr()),
                real: true,
            },
            _ => Place {
                handle: pcap_create(device.as_ptr(), errbuf.as_mut_ptr()),
                real,
            },
        };
        if !place.handle.is_null() && !place.real && !script.byte().is_multiple_of(4) {
            pcap_set_timeout(place.handle, 1);
            pcap_activate(place.handle);
        }
    }
}

unsafe fn call(script: &mut Script<'_>, place: &mut Place, hub: &str) {
    let p = place.handle;
    let mut errbuf: [c_char; ERRBUF_SIZE] = [1; ERRBUF_SIZE];
    let mut sum = 0_u64;
    let user = (&raw mut sum).cast::<u8>();
    let number = any_int(script);
    let choice = script.byte() % 40;
    // This library refuses NULL. Calls for the real library's handles are not under test.
    if place.real && !matches!(choice, 0 | 1 | 20 | 21 | 24) {
        return;
    }
    // SAFETY: the caller's guarantee.
    unsafe {
        match choice {
            0 | 2 | 3 => open(script, place, hub),
            1 => {
                pcap_close(p);
                if place.real {
                    *place = Place {
                        handle: ptr::null_mut(),
                        real: false,
                    };
                }
            }
            4 => drop(pcap_set_snaplen(p, number)),
            5 => drop(pcap_set_promisc(p, number)),
            6 => drop(pcap_set_buffer_size(p, number % (1 << 20))),
            7 => drop(pcap_set_immediate_mode(p, number)),
            8 => drop(pcap_set_tstamp_precision(p, number % 4)),
            9 => drop(pcap_set_tstamp_type(p, number)),
            10 => drop(pcap_set_rfmon(p, number & 1)),
            11 => drop(pcap_setnonblock(p, number, errbuf.as_mut_ptr())),
            12 => drop(pcap_activate(p)),
            13 | 14 => {
                let (mut header, mut data) = (ptr::null_mut(), ptr::null());
                if ready(p) && pcap_next_ex(p, &raw mut header, &raw mut data) == 1 {
                    touch(user, header, data);
                }
            }
            15 => drop(ready(p) && pcap_dispatch(p, number, Some(touch), user) > 0),
            16 => {
                // Without a break the call may wait for ever.
                pcap_breakloop(p);
                pcap_loop(p, number, Some(touch), user);
            }
            17 => pcap_breakloop(p),
            18 | 19 => {
                let mut own: Vec<_> = (0..script.below(12))
                    .map(|_| Instruction::from(script.word()))
                    .collect();
                let mut program = BpfProgram {
                    length: u32::try_from(own.len()).unwrap_or(0),
                    instructions: own.as_mut_ptr(),
                };
                pcap_setfilter(
                    p,
                    if script.byte() == 0 {
                        ptr::null_mut()
                    } else {
                        &raw mut program
                    },
                );
            }
            20 | 21 => {
                let text =
                    script.one_of(&[c"udp", c"", c"tcp port 80", c"((", c"len > 60", c"vlan 5"]);
                let mut program = BpfProgram {
                    length: 0,
                    instructions: ptr::null_mut(),
                };
                if pcap_compile(p, &raw mut program, text.as_ptr(), number & 1, 0) == 0 {
                    if !place.real {
                        pcap_setfilter(p, &raw mut program);
                    }
                    pcap_freecode(&raw mut program);
                }
            }
            22 => drop(pcap_setdirection(p, number % 4)),
            23 => {
                let mut found = PcapStatistics::default();
                pcap_stats(
                    p,
                    if number == 0 {
                        ptr::null_mut()
                    } else {
                        &raw mut found
                    },
                );
            }
            24 => {
                let mut list = ptr::null_mut();
                if pcap_list_datalinks(p, &raw mut list) > 0 {
                    pcap_free_datalinks(list);
                }
            }
            25 => {
                let mut list = ptr::null_mut();
                if pcap_list_tstamp_types(p, &raw mut list) > 0 {
                    pcap_free_tstamp_types(list);
                }
            }
            26 => drop(pcap_inject(p, user.cast(), script.below(8))),
            27 => drop(pcap_sendpacket(p, user, number % 9)),
            28 => {
                let dumper = pcap_dump_open(p, c"/dev/null".as_ptr());
                if !dumper.is_null() {
                    pcap_dump_close(dumper);
                }
            }
            29 => drop(pcap_get_selectable_fd(p)),
            30 => drop(pcap_fileno(p)),
            31 => drop(pcap_set_datalink(p, number)),
            32 => drop(pcap_getnonblock(p, errbuf.as_mut_ptr())),
            33 => assert!(!pcap_geterr(p).is_null()),
            34 => drop(pcap_snapshot(p) + pcap_datalink(p) + pcap_bufsize(p) + pcap_is_swapped(p)),
            35 => {
                let mut list = ptr::null_mut();
                if number % 16 == 0 && pcap_findalldevs(&raw mut list, errbuf.as_mut_ptr()) == 0 {
                    pcap_freealldevs(list);
                }
            }
            36 => drop(pcap_can_set_rfmon(p)),
            37 => drop(pcap_next_ready(p)),
            _ => drop(pcap_major_version(p) + pcap_get_tstamp_precision(p)),
        }
    }
}

/// Makes reads of this handle return at once; returns whether that worked.
unsafe fn ready(p: *mut Pcap) -> bool {
    let mut errbuf: [c_char; ERRBUF_SIZE] = [1; ERRBUF_SIZE];
    // SAFETY: a handle of ours or NULL, and a buffer.
    unsafe { pcap_setnonblock(p, 1, errbuf.as_mut_ptr()) == 0 || p.is_null() }
}

unsafe fn pcap_next_ready(p: *mut Pcap) -> bool {
    // SAFETY: as above; NULL asks for no header.
    unsafe { ready(p) && !pcap_next(p, ptr::null_mut()).is_null() }
}
