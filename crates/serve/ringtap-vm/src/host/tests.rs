// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host's side with a real hub; the guest is this test, and its devices are plain memory.

mod ends;
mod feeder;

use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use ringtap_filter::{Instruction, Program};
use ringtap_ipc::event::Event;
use ringtap_ipc::mapping::{Access, Mapping};
use ringtap_ipc::memfd::SharedMemory;
use ringtap_pool::distributor::Policy;
use ringtap_pool::number::to_u64;
use ringtap_pool::reader::{NextBatch, Reader};
use ringtap_pool::view::Pool;
use ringtap_pool::wake::NoSignal;
use ringtap_testkit::LIMIT;
use ringtap_vnplug::host::Monitor;

use super::*;
use crate::messages::{APPLICATION, GuestCounters, GuestPool, VERSION};
use feeder::Feeder;

/// Chunks of a part, and what the guest says of its pool.
const CHUNKS: u32 = 6;
const EPOCH: u64 = 77;
const BEGINS_AT: u64 = 1000;
const POOL_BYTES: u64 = CHUNKS as u64 * (64 << 10);
const CONTROL_BYTES: u64 = 16_384;

/// The two devices, with a part for each group.
struct Devices {
    pools: Vec<SharedMemory>,
    controls: Vec<SharedMemory>,
}

struct Setup {
    host: HostGroups,
    devices: Devices,
    waker: Event,
}

/// Packets of this byte.
fn only(byte: u32) -> Program {
    let instruction = |code, jump_false, k| Instruction {
        code,
        jump_true: 0,
        jump_false,
        k,
    };
    // Load byte 0, compare, take all or nothing.
    let program = [
        instruction(0x30, 0, 0),
        instruction(0x15, 1, byte),
        instruction(0x06, 0, u32::MAX),
        instruction(0x06, 0, 0),
    ];
    Program::new(&program).unwrap()
}

fn subscribe(group: &str, filter: Program) -> GuestRequest {
    GuestRequest::Subscribe {
        group: group.into(),
        name: "reader".into(),
        filter,
        pool: GuestPool {
            chunks: CHUNKS,
            epoch: EPOCH,
            begins_at: BEGINS_AT,
            // The guest's readers still have one.
            without: vec![[2, 1]],
        },
        gap: None,
        cutoff: None,
    }
}

fn statistics() -> GuestRequest {
    GuestRequest::Statistics {
        group: "all".into(),
    }
}

impl Setup {
    fn new(feeder: &Feeder) -> Self {
        let options = GroupOptions {
            vm: "vm1".into(),
            monitor: Monitor::Libvirt("vm1".into()),
            socket: feeder.socket(),
            groups: vec!["all".into(), "more".into()],
            memory_bytes: 64 << 20,
        };
        let make = |bytes| SharedMemory::create(to_usize(bytes)).unwrap();
        let devices = Devices {
            pools: vec![make(POOL_BYTES), make(POOL_BYTES)],
            controls: vec![make(CONTROL_BYTES), make(CONTROL_BYTES)],
        };
        let memory = |at: usize| GrantedMemory {
            group: options.groups[at].clone(),
            pool: devices.pools[at].region.clone(),
            pool_range: DeviceRange {
                device: 1,
                at: to_u64(at),
                bytes: POOL_BYTES,
            },
            control: devices.controls[at].region.clone(),
            control_range: DeviceRange {
                device: 2,
                at: to_u64(at),
                bytes: CONTROL_BYTES,
            },
        };
        let memory = vec![memory(0), memory(1)];
        let state = VmState::new(&options, &[]);
        let waker = Event::new().unwrap();
        let guest = Arc::new(NoSignal);
        let started = start(&options, memory, guest, waker.clone(), &state.lives);
        let (queue, inbox) = started.unwrap();
        let host = HostGroups {
            agent: 0,
            queue,
            inbox,
            state: Arc::new(Mutex::new(state)),
            report: Box::new(|_| {}),
            is_stopped: false,
        };
        let mut setup = Setup {
            host,
            devices,
            waker,
        };
        let granted = setup.new_agent();
        let HostMessage::Granted { groups, .. } = granted else {
            panic!("{granted:?}")
        };
        let names: Vec<_> = groups.iter().map(|group| &*group.name).collect();
        assert_eq!(names, ["all", "more"]);
        assert_eq!((&*groups[0].devices[0], groups[0].link_type), ("fed", 1));
        setup
    }

    fn new_agent(&mut self) -> HostMessage {
        self.host.new_agent(true);
        self.next(0)
    }

    fn request(&self, number: u32, request: &GuestRequest) -> Option<String> {
        self.host.request(&pack(request, number).unwrap())
    }

    /// The next answer, which is to this request.
    fn next(&self, request: u32) -> HostMessage {
        let until = Instant::now() + LIMIT;
        loop {
            self.waker.clear();
            if let Some(answer) = answers_of(&self.host.inbox, self.host.agent).next() {
                assert_eq!(answer.request, request, "{:?}", answer.message);
                return answer.message;
            }
            assert!(Instant::now() < until, "no answer to request {request}");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    fn ask(&self, number: u32, request: &GuestRequest) -> HostMessage {
        assert_eq!(self.request(number, request), None);
        self.next(number)
    }

    fn refusal(&self, number: u32, request: &GuestRequest) -> String {
        match self.ask(number, request) {
            HostMessage::Refused { text } => text,
            other => panic!("{other:?}"),
        }
    }

    /// Subscribes, and opens the part as a guest does.
    fn subscribed(&self, at: usize, filter: Program) -> (Reader, u64) {
        let group = ["all", "more"][at];
        let answer = self.ask(7, &subscribe(group, filter));
        let HostMessage::Subscribed {
            pool,
            epoch,
            control,
            ..
        } = answer
        else {
            panic!("{answer:?}")
        };
        assert_eq!(control.at, to_u64(at));
        let map = |file: &std::os::fd::OwnedFd, bytes, access| {
            Arc::new(Mapping::new(file, to_usize(bytes), access).unwrap()).region()
        };
        assert_eq!(pool.at, to_u64(at));
        let pool = map(&self.devices.pools[at].file, pool.bytes, Access::Read);
        let file = &self.devices.controls[at].file;
        let control = map(file, control.bytes, Access::ReadWrite);
        let pool = Pool::open(pool, EPOCH).unwrap();
        let reader = Reader::open(pool, &control, Policy::DropNewest, Arc::new(NoSignal));
        (reader.unwrap(), epoch)
    }

    /// Sets each bit of a part's control region.
    fn overwrite_control(&self, at: usize) {
        let bytes = to_usize(CONTROL_BYTES);
        let file = &self.devices.controls[at].file;
        let mapping = Arc::new(Mapping::new(file, bytes, Access::ReadWrite).unwrap());
        let words = mapping.words::<AtomicU64>(0, bytes / 8).unwrap();
        words.iter().for_each(|word| word.store(u64::MAX, Relaxed));
    }

    fn counters(&self) -> GuestCounters {
        match self.ask(9, &statistics()) {
            HostMessage::Counters { counters, .. } => counters,
            other => panic!("{other:?}"),
        }
    }

    /// Waits until the relay of `all` has read this many packets.
    fn wait_until_read(&self, packets: u64) {
        let until = Instant::now() + LIMIT;
        let counters = || lock(&self.host.state).full_report().groups[0].counters;
        while sum(&counters()) < packets {
            assert!(Instant::now() < until, "{:?} of {packets}", counters());
        }
    }

    /// Waits until the counters of `all` account for this many packets.
    fn settled(&self, packets: u64) -> GuestCounters {
        let until = Instant::now() + LIMIT;
        loop {
            let counters = self.counters();
            if sum(&counters) == packets {
                return counters;
            }
            assert!(Instant::now() < until, "{counters:?} of {packets}");
        }
    }
}

fn sum(counters: &GuestCounters) -> u64 {
    let GuestCounters {
        copied,
        filtered,
        shunted,
        other_members,
        nic,
        kernel,
        pool_full,
        overrun,
        part_full,
    } = *counters;
    copied + filtered + shunted + other_members + nic + kernel + pool_full + overrun + part_full
}

/// Reads packets until there are this many; each has this byte.
fn read(reader: &mut Reader, packets: u64, byte: u8) {
    let until = Instant::now() + LIMIT;
    let mut read = 0;
    while read < packets {
        match reader.try_next().unwrap() {
            NextBatch::Batch(batch) => {
                for packet in batch.packets() {
                    assert_eq!(packet.unwrap().data, [byte; 60]);
                    read += 1;
                }
            }
            _ => assert!(Instant::now() < until, "{read} packets"),
        }
    }
    assert_eq!(read, packets);
}

/// Bytes of a part that are this byte.
fn bytes_like(memory: &SharedMemory, byte: u8) -> usize {
    let file = std::fs::File::from(memory.file.try_clone().unwrap());
    let mut all = vec![0; to_usize(POOL_BYTES)];
    file.read_exact_at(&mut all, 0).unwrap();
    all.iter().filter(|one| **one == byte).count()
}

#[test]
fn a_guest_gets_exactly_what_its_filter_takes_and_maps_nothing_else() {
    let feeder = Feeder::new();
    let setup = Setup::new(&feeder);
    let (mut reader, _) = setup.subscribed(0, only(0xA1));
    feeder.write(50, 0xB2);
    feeder.write(30, 0xA1);
    feeder.write(7, 0xB2);
    read(&mut reader, 30, 0xA1);
    let counters = setup.settled(87);
    assert_eq!((counters.copied, counters.filtered), (30, 57));
    assert!(bytes_like(&setup.devices.pools[0], 0xA1) >= 30 * 60);
    assert_eq!(bytes_like(&setup.devices.pools[0], 0xB2), 0);
    let change = GuestRequest::ChangeFilter {
        group: "all".into(),
        filter: only(0xB2),
    };
    let filtered = setup.ask(8, &change);
    assert!(
        matches!(filtered, HostMessage::Filtered { from: 30, .. }),
        "{filtered:?}"
    );
    feeder.write(20, 0xA1);
    feeder.write(10, 0xB2);
    read(&mut reader, 10, 0xB2);
    assert_eq!(setup.settled(117).copied, 40);
    assert_eq!(feeder.status().readers[0].name, "vm1/reader");
    let report = lock(&setup.host.state).full_report();
    assert_eq!(report.groups[0].reader.as_deref(), Some("vm1/reader"));
    assert_eq!(report.groups[0].counters.copied, 40);
    assert_eq!(report.groups[1].reader, None);
    let left = setup.ask(
        10,
        &GuestRequest::Unsubscribe {
            group: "all".into(),
        },
    );
    let HostMessage::Unsubscribed { counters, .. } = left else {
        panic!("{left:?}")
    };
    assert_eq!((sum(&counters), counters.copied), (117, 40));
    let until = Instant::now() + LIMIT;
    while !feeder.status().readers.is_empty() {
        assert!(Instant::now() < until, "no reader is left at the hub");
    }
}

#[test]
fn what_a_guest_may_not_ask_is_refused() {
    let feeder = Feeder::new();
    let setup = Setup::new(&feeder);
    let secret = setup.refusal(1, &subscribe("secret", Program::everything()));
    assert!(secret.contains("all, more"), "{secret}");
    assert!(setup.refusal(2, &statistics()).contains("not subscribed"));
    let _reader = setup.subscribed(0, Program::everything());
    let twice = setup.refusal(3, &subscribe("all", Program::everything()));
    assert!(twice.contains("already"), "{twice}");
    let mut other = pack(&statistics(), 4).unwrap();
    other.kind = VERSION + 1;
    assert!(setup.host.request(&other).unwrap().contains("version"));
    other.kind = VERSION;
    other.payload = b"{}".to_vec();
    assert!(setup.host.request(&other).is_some());
    assert_eq!(other.application, APPLICATION);
    // Nobody takes these requests.
    let queue = CommandQueue::default();
    let queued = (0..1000).filter(|request| queue.request(0, *request, statistics()));
    assert_eq!(queued.count(), 64);
}

#[test]
fn a_guest_that_overwrites_its_control_region_spoils_only_its_own_subscription() {
    let feeder = Feeder::new();
    let setup = Setup::new(&feeder);
    let (_hostile, epoch) = setup.subscribed(0, Program::everything());
    let (mut honest, _) = setup.subscribed(1, Program::everything());
    let mut written = 0;
    let until = Instant::now() + LIMIT;
    let ended = loop {
        setup.overwrite_control(0);
        feeder.write(10, 1);
        written += 10;
        read(&mut honest, 10, 1);
        if let Some(answer) = answers_of(&setup.host.inbox, setup.host.agent).next() {
            break answer.message;
        }
        assert!(Instant::now() < until, "the host does not notice");
    };
    let HostMessage::Ended {
        reason, epoch: of, ..
    } = ended
    else {
        panic!("{ended:?}")
    };
    assert!(reason.contains("control region") && of == epoch, "{reason}");
    // The guest may begin again, in the same memory.
    let (mut again, next) = setup.subscribed(0, Program::everything());
    assert!(next > epoch);
    feeder.write(5, 2);
    read(&mut again, 5, 2);
    read(&mut honest, 5, 2);
    let status = feeder.status();
    assert!(
        status
            .readers
            .iter()
            .all(|reader| reader.counters.dropped.overrun == 0)
    );
    assert_eq!(status.sources[0].lanes[0].counters.delivered, written + 5);
}

#[test]
fn a_control_region_that_is_overwritten_after_the_last_packet_is_noticed() {
    let feeder = Feeder::new();
    let setup = Setup::new(&feeder);
    let (_hostile, epoch) = setup.subscribed(0, Program::everything());
    // More than a chunk holds.
    feeder.write(1000, 1);
    setup.wait_until_read(1000);
    setup.overwrite_control(0);
    let HostMessage::Ended {
        reason, epoch: of, ..
    } = setup.next(0)
    else {
        panic!("the subscription goes on")
    };
    assert!(reason.contains("control region") && of == epoch, "{reason}");
}

#[test]
fn a_guest_that_returns_nothing_loses_only_its_own_packets() {
    let feeder = Feeder::new();
    let setup = Setup::new(&feeder);
    let (_lazy, _) = setup.subscribed(0, Program::everything());
    let (mut honest, _) = setup.subscribed(1, Program::everything());
    // Several times what a part holds.
    for round in 1..=200 {
        feeder.write(40, 3);
        read(&mut honest, 40, 3);
        setup.wait_until_read(round * 40);
    }
    let counters = setup.settled(8000);
    assert!(
        counters.part_full > 0 && counters.overrun == 0,
        "{counters:?}"
    );
    assert!(counters.copied * 96 < POOL_BYTES);
    assert_eq!(counters.copied + counters.part_full, 8000);
    let status = feeder.status();
    assert!(
        status
            .readers
            .iter()
            .all(|reader| reader.counters.dropped.overrun == 0)
    );
}

#[test]
fn the_subscriptions_and_answers_of_an_agent_that_left_are_gone() {
    let feeder = Feeder::new();
    let mut setup = Setup::new(&feeder);
    let (_reader, epoch) = setup.subscribed(0, Program::everything());
    for request in 0..10 {
        assert_eq!(setup.request(request, &statistics()), None);
    }
    let granted = setup.new_agent();
    assert!(
        matches!(granted, HostMessage::Granted { .. }),
        "{granted:?}"
    );
    let none = setup.refusal(0, &statistics());
    assert!(none.contains("not subscribed"), "{none}");
    let (mut reader, next) = setup.subscribed(0, only(4));
    assert!(next > epoch);
    feeder.write(3, 4);
    read(&mut reader, 3, 4);
}
