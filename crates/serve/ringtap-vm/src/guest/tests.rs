// SPDX-License-Identifier: MIT OR Apache-2.0
//! A group in the guest against a host in the same process: its hub, its requests, its packets.
#![allow(
    unsafe_code,
    reason = "the host's half is the only writer of its pools"
)]

mod busy_host;
mod exchange;
mod rules;

use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use ringtap_filter::flow::CutOff;
use ringtap_filter::{Instruction, Program};
use ringtap_hub::{Group, Handle, Hub, HubOptions};
use ringtap_ipc::event::{Event, sleep_until_readable};
use ringtap_ipc::mapping::{Access as MappingAccess, Mapping};
use ringtap_ipc::memfd::SharedMemory;
use ringtap_ipc::subscription::{Recipient, Subscription, SubscriptionRequest};
use ringtap_pool::control::control_bytes;
use ringtap_pool::distributor::Policy;
use ringtap_pool::format::FIRST_EPOCH;
use ringtap_pool::ids::LaneId;
use ringtap_pool::number::{to_u64, to_usize};
use ringtap_pool::private::PrivatePool;
use ringtap_pool::reader::{CaptureGap, NextBatch, Reader};
use ringtap_pool::wake::Signal;
use ringtap_pool::writer::PacketMeta;

use super::group::{HostGroup, MappedRange};
use crate::messages::{
    DeviceRange, GrantedGroup, GuestCounters, GuestGap, GuestPool, GuestRequest, HostMessage,
    pool_geometry,
};

/// A test that waits longer on a busy machine has failed.
const LIMIT: Duration = Duration::from_secs(120);
const POOL: u64 = 1;
const CONTROL: u64 = 2;
const CHUNKS: u32 = 32;

/// The memory of devices.
struct Devices {
    number: u64,
    pool: SharedMemory,
    control: SharedMemory,
}

impl Devices {
    fn plug(number: u64) -> Self {
        let geometry = pool_geometry(CHUNKS).unwrap();
        let make = |bytes| SharedMemory::create(bytes).unwrap();
        Devices {
            number,
            pool: make(to_usize(geometry.region_bytes())),
            control: make(control_bytes(&geometry)),
        }
    }

    fn part(&self, asked: DeviceRange) -> Option<MappedRange> {
        if asked.device == CONTROL {
            let region = self.control.region.clone();
            return Some(MappedRange { region, file: None });
        }
        let file = self.pool.file.try_clone().unwrap();
        (asked.device == self.number).then(|| MappedRange {
            region: self.pool.region.clone(),
            file: Some((Arc::new(file), 0)),
        })
    }
}

/// The memory of a subscription on the host.
struct HostHalf {
    private: PrivatePool,
    filter: Program,
    copied: u64,
    cutoff: Option<CutOff>,
    /// Rules that the guest has set, and packets that they withheld.
    rules: usize,
    shunted: u64,
}

impl HostHalf {
    fn new(filter: Program, devices: &Devices, pool: &GuestPool, gap: Option<GuestGap>) -> Self {
        let geometry = pool_geometry(pool.chunks).unwrap();
        let without = pool.chunks_without();
        let region = devices.pool.region.clone();
        let first = (pool.begins_at, &*without);
        // SAFETY: mapped writable, and the subscription before has ended.
        let private = unsafe {
            PrivatePool::in_used_memory(
                region,
                geometry,
                pool.epoch,
                &devices.control.region,
                first,
            )
        };
        let mut private = private.unwrap();
        if let Some(gap) = gap {
            private.writers[0].capture_gap(gap.after, gap.duration_ns);
        }
        HostHalf {
            private,
            filter,
            copied: 0,
            cutoff: None,
            rules: 0,
            shunted: 0,
        }
    }

    fn put(&mut self, length: usize) {
        let meta = PacketMeta {
            wire_length: u32::try_from(length).unwrap(),
            ..PacketMeta::default()
        };
        self.private.writers[0]
            .write(&meta, [&vec![0; length][..]])
            .unwrap();
        self.copied += 1;
        self.private.distributor.step().unwrap();
    }

    /// Copies packets of 60 bytes.
    fn write(&mut self, packets: u64) {
        (0..packets).for_each(|_| self.put(60));
    }
}

/// The agent's thread, and a host that grants one group.
struct GroupAndHost {
    group: HostGroup,
    agent: Event,
    part: Option<HostHalf>,
    /// Refuses filters other than the one that takes everything.
    refuses_filters: bool,
    refuses_cutoffs: bool,
    /// Subscriptions that began.
    subscriptions: u32,
    /// Packets that the host copies before it ends a subscription.
    before_unsubscribing: u64,
    devices: Devices,
}

fn granted() -> GrantedGroup {
    GrantedGroup {
        name: "ids".to_owned(),
        devices: vec!["tap:eth0".to_owned()],
        link_type: 1,
        pool_bytes: pool_geometry(CHUNKS).unwrap().region_bytes(),
    }
}

fn both() -> (Hub, GroupAndHost) {
    let agent = Event::new().unwrap();
    let (mut group, source) = HostGroup::new(granted(), agent.clone()).unwrap();
    group.begin(granted());
    let (hub, _) = Hub::start(
        vec![source],
        vec![Group::new("ids")],
        HubOptions::default(),
        Vec::new(),
    )
    .unwrap();
    group.serve(hub.handle().clone());
    let both = GroupAndHost {
        group,
        agent,
        part: None,
        refuses_filters: false,
        refuses_cutoffs: false,
        subscriptions: 0,
        before_unsubscribing: 0,
        devices: Devices::plug(POOL),
    };
    (hub, both)
}

impl GroupAndHost {
    /// Carries out the group's requests until `is_done`.
    fn serve_until(&mut self, is_done: impl Fn(&GroupAndHost) -> bool) {
        let deadline = Instant::now() + LIMIT;
        loop {
            while let Some(request) = self.group.request() {
                let answer = self.carry_out(request);
                let memory = |asked| self.devices.part(asked);
                self.group.answer(answer, memory);
            }
            while self.group.step() {}
            if is_done(self) {
                return;
            }
            assert!(Instant::now() < deadline, "not done in time");
            let nap = Some(Duration::from_millis(5));
            sleep_until_readable(&[self.agent.as_fd()], nap).unwrap();
            self.agent.clear();
        }
    }

    fn carry_out(&mut self, request: GuestRequest) -> HostMessage {
        let refused = |text: &str| HostMessage::Refused {
            text: text.to_owned(),
        };
        match request {
            GuestRequest::Subscribe {
                filter,
                group,
                pool,
                gap,
                cutoff,
                ..
            } => {
                if self.refuses_cutoffs && cutoff.is_some() {
                    return refused("at most four cut-offs");
                }
                if self.refuses_filters && !filter.takes_everything() {
                    return refused("no filters");
                }
                let mut part = HostHalf::new(filter, &self.devices, &pool, gap);
                part.cutoff = cutoff;
                self.subscriptions += 1;
                let of = |device| DeviceRange {
                    device,
                    at: 0,
                    bytes: 0,
                };
                self.part = Some(part);
                HostMessage::Subscribed {
                    group,
                    pool: of(self.devices.number),
                    epoch: FIRST_EPOCH,
                    control: of(CONTROL),
                    not_in_source: None,
                }
            }
            GuestRequest::ChangeFilter { filter, group } => {
                if self.refuses_filters && !filter.takes_everything() {
                    return refused("no filters");
                }
                let part = self.part.as_mut().expect("a subscription");
                part.filter = filter;
                HostMessage::Filtered {
                    group,
                    from: part.copied,
                    not_in_source: None,
                }
            }
            GuestRequest::Unsubscribe { group } => {
                let mut part = self.part.take().expect("a subscription");
                part.write(self.before_unsubscribing);
                part.private.end();
                let counters = counters(&part);
                HostMessage::Unsubscribed { group, counters }
            }
            GuestRequest::FlowRules { group, request } => {
                let part = self.part.as_mut().expect("a subscription");
                let reply = rules::answer_rules(part, request);
                HostMessage::FlowRules { group, reply }
            }
            GuestRequest::Statistics { group } => {
                let counters = counters(self.part.as_ref().expect("a subscription"));
                HostMessage::Counters {
                    group,
                    epoch: FIRST_EPOCH,
                    counters,
                }
            }
        }
    }

    /// Waits until readers know the memory.
    fn settle(&mut self) {
        let deadline = Instant::now() + LIMIT;
        while !self.group.is_settled() {
            assert!(Instant::now() < deadline, "readers are not told");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The host captures a packet of each length.
    fn capture(&mut self, lengths: &[usize]) {
        let part = self.part.as_mut().expect("a subscription");
        for length in lengths {
            let wire_length = u32::try_from(*length).unwrap();
            if part.filter.matches(&vec![0; *length], wire_length) {
                part.put(*length);
            }
        }
        while self.group.step() {}
    }

    fn copied(&self) -> u64 {
        self.part.as_ref().map_or(0, |part| part.copied)
    }

    /// Attaches a reader of the guest, which the host must know of first.
    fn attach(&mut self, hub: &Hub, filter: Program) -> Subscription {
        let request = SubscriptionRequest {
            filter,
            ..SubscriptionRequest::new("ids", "reader")
        };
        self.while_serving(hub.handle(), |handle| handle.attach(request).unwrap())
    }

    fn while_serving<T: Send>(
        &mut self,
        handle: &Handle,
        work: impl FnOnce(&Handle) -> T + Send,
    ) -> T {
        std::thread::scope(|scope: &Scope<'_, '_>| {
            let work: ScopedJoinHandle<'_, T> = scope.spawn(|| work(handle));
            self.serve_until(|_| work.is_finished());
            work.join().unwrap()
        })
    }
}

fn counters(part: &HostHalf) -> GuestCounters {
    let missed = part
        .private
        .distributor
        .missed(part.private.reader, LaneId(0));
    GuestCounters {
        copied: part.copied,
        nic: 3,
        shunted: part.shunted,
        part_full: missed.packets,
        ..GuestCounters::default()
    }
}

/// Matches packets of exactly this length.
fn of_length(length: u32) -> Program {
    let instruction = |code, jump_true, jump_false, k| Instruction {
        code,
        jump_true,
        jump_false,
        k,
    };
    Program::new(&[
        instruction(0x80, 0, 0, 0),
        instruction(0x15, 0, 1, length),
        instruction(0x06, 0, 0, 262_144),
        instruction(0x06, 0, 0, 0),
    ])
    .unwrap()
}

/// Reads packets of the guest's hub until there are `least`; returns how many came.
fn read(subscription: Subscription, least: u64) -> u64 {
    read_with_gaps(subscription, least).0
}

/// As [`read`], with the capture gaps.
fn read_with_gaps(subscription: Subscription, least: u64) -> (u64, Vec<CaptureGap>) {
    let (mut count, mut gaps) = (0, Vec::new());
    let doorbell: Arc<dyn Signal> = subscription.doorbell.clone();
    let endpoint = subscription.endpoints.into_iter().next().unwrap();
    let (pool, wanted) = (endpoint.pool, endpoint.wanted);
    let reader = Reader::open(pool, &endpoint.control, Policy::DropNewest, doorbell);
    let mut reader = reader.unwrap();
    let deadline = Instant::now() + LIMIT;
    while count < least {
        assert!(Instant::now() < deadline, "{count} of {least} packets");
        if let NextBatch::Batch(batch) = reader.try_next().unwrap() {
            gaps.extend(batch.capture_gap);
            let packets = batch.packets().map(Result::unwrap);
            let ours = packets.filter(|packet| {
                wanted.recipient(packet, wanted.classified_from(0)) == Recipient::ThisReader
            });
            count += to_u64(ours.count());
        } else if let Some(memory) = reader.new_memory() {
            // This process has mapped it.
            reader.has_mapped(memory);
        } else {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    (count, gaps)
}

#[test]
fn each_reader_gets_its_packets_and_the_host_copies_no_others() {
    let (hub, mut both) = both();
    assert!(both.group.request().is_none(), "nobody reads");
    let first = both.attach(&hub, of_length(60));
    let second = both.attach(&hub, of_length(70));
    both.capture(&[60, 70, 80, 60, 90]);
    assert_eq!(both.copied(), 3);
    assert_eq!(read(first, 2), 2);
    assert_eq!(read(second, 1), 1);
}

#[test]
fn without_readers_the_host_has_no_subscription() {
    let (hub, mut both) = both();
    let first = both.attach(&hub, of_length(60));
    let second = both.attach(&hub, Program::everything());
    both.capture(&[60, 70]);
    assert_eq!(both.copied(), 2);
    hub.handle().leave(second.id);
    both.serve_until(|both| both.part.as_ref().unwrap().filter == of_length(60));
    hub.handle().leave(first.id);
    both.serve_until(|both| both.part.is_none());
    assert!(!both.group.is_subscribed());
}

#[test]
fn a_filter_that_the_host_refuses_is_replaced_by_everything() {
    let (hub, mut both) = both();
    both.refuses_filters = true;
    let reader = both.attach(&hub, of_length(60));
    assert!(both.part.as_ref().unwrap().filter.takes_everything());
    both.capture(&[60, 70, 60]);
    assert_eq!(read(reader, 2), 2);
    let status = both.while_serving(hub.handle(), |handle| handle.status().unwrap());
    assert_eq!(status.sources[0].lanes[0].counters.delivered, 3);
}

#[test]
fn readers_stay_through_an_interruption_which_is_counted() {
    let (hub, mut both) = both();
    let reader = both.attach(&hub, of_length(60));
    both.capture(&[60, 60]);
    both.group.leave(POOL);
    both.group.end();
    both.part = None;
    both.devices = Devices::plug(POOL + 10);
    // Nobody waits for a host that is not there.
    let other = hub
        .handle()
        .attach(SubscriptionRequest::new("ids", "other"));
    hub.handle().leave(other.unwrap().id);
    both.group.begin(granted());
    both.serve_until(|both| both.part.is_some());
    both.settle();
    both.capture(&[60]);
    let (packets, gaps) = read_with_gaps(reader, 3);
    assert_eq!(packets, 3);
    let places: Vec<_> = gaps.iter().map(|gap| (gap.sequence, gap.after)).collect();
    assert_eq!(places, [(2, 2)]);
    let handle = hub.handle().clone();
    both.while_serving(&handle, |handle| {
        let deadline = Instant::now() + LIMIT;
        let told = |note: &String| note.contains("gap 1: ");
        while !handle.status().unwrap().sources[0].notes.iter().any(told) {
            assert!(Instant::now() < deadline, "no note of the interruption");
        }
    });
}

#[test]
fn a_subscription_that_the_host_ends_begins_again_with_the_next_grant() {
    let (hub, mut both) = both();
    let reader = both.attach(&hub, Program::everything());
    both.capture(&[60]);
    let last = counters(both.part.as_ref().unwrap());
    both.group.end_subscription("the hub has ended", last);
    both.part = None;
    assert!(both.group.request().is_none(), "nothing before the grant");
    assert_eq!(both.group.trouble(), Some("the hub has ended"));
    both.group.begin(granted());
    both.serve_until(|both| both.part.is_some());
    assert_eq!(both.group.trouble(), None);
    both.capture(&[60]);
    assert_eq!(read(reader, 2), 2);
}

#[test]
fn what_the_host_copied_before_the_end_is_read_or_counted_as_lost() {
    let (hub, mut both) = both();
    let reader = both.attach(&hub, Program::everything());
    both.capture(&[60, 60]);
    // The agent has not come to these.
    let part = both.part.as_mut().unwrap();
    part.write(3);
    let last = GuestCounters {
        // And these the memory does not have any more.
        copied: part.copied + 4,
        ..counters(part)
    };
    both.group.end_subscription("the host detaches", last);
    both.part = None;
    both.group.begin(granted());
    both.serve_until(|both| both.part.is_some());
    both.capture(&[60]);
    let (packets, gaps) = read_with_gaps(reader, 6);
    assert_eq!(packets, 6);
    let places: Vec<_> = gaps.iter().map(|gap| (gap.sequence, gap.after)).collect();
    assert_eq!(places, [(5, 9)], "the capture before had 9 packets");
    let status = both.while_serving(hub.handle(), |handle| handle.status().unwrap());
    let source = &status.sources[0];
    assert_eq!(
        (source.lanes[0].counters.delivered, source.dropped.kernel),
        (6, 4)
    );
    assert_eq!(source.dropped.nic, 6, "of both subscriptions");
}

#[test]
fn packets_that_come_while_the_last_reader_leaves_are_counted() {
    let (hub, mut both) = both();
    let reader = both.attach(&hub, Program::everything());
    both.capture(&[60, 60]);
    hub.handle().leave(reader.id);
    // The host copies until it has read the request.
    both.before_unsubscribing = 5;
    both.serve_until(|both| both.part.is_none());
    let status = both.while_serving(hub.handle(), |handle| handle.status().unwrap());
    let counts = &status.sources[0].lanes[0].counters;
    assert_eq!((counts.delivered, counts.filtered), (7, 0));
    assert_eq!(status.sources[0].dropped.kernel, 0);
}

#[test]
fn memory_that_becomes_impossible_ends_only_its_own_use() {
    let (hub, mut both) = both();
    let reader = both.attach(&hub, Program::everything());
    both.capture(&[60]);
    let part = both.part.as_ref().unwrap();
    // The host's words in the control region.
    assert_eq!(part.copied, 1);
    let control = &both.devices.control;
    let bytes = control.region.bytes();
    let mapping = Mapping::new(&control.file, bytes, MappingAccess::ReadWrite).unwrap();
    let words = Arc::new(mapping).words::<AtomicU64>(64, 8).unwrap();
    words
        .iter()
        .for_each(|word| word.store(u64::MAX / 3, SeqCst));
    both.serve_until(|_| true);
    assert!(!both.group.step());
    hub.handle().leave(reader.id);
    both.serve_until(|both| both.part.is_none());
    let again = both.attach(&hub, Program::everything());
    both.capture(&[60, 60]);
    assert_eq!(read(again, 2), 2);
}
