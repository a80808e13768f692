// SPDX-License-Identifier: MIT OR Apache-2.0
//! Readers that share lanes, at a hub within this process, on a simulated NIC in real time.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ringtap_capture::sim::{self, SimOptions};
use ringtap_client::{Control, ControlError, Next, Receiver, Tally};
use ringtap_device::DeviceSpec;
use ringtap_filter::hash::HashSeed;
use ringtap_filter::{Balance, Headers, Program};
use ringtap_hub::{Group, Handle, Hub, HubOptions};
use ringtap_ipc::protocol::{Division, GroupStatus, Snapshot};
use ringtap_ipc::subscription::{SubscriptionId, SubscriptionRequest, Wanted};
use ringtap_pool::counters::Counters;

const READERS: usize = 4;

struct Subscription {
    hub: Handle,
    subscription: SubscriptionId,
}

impl Control for Subscription {
    fn snapshot(&self) -> Result<Snapshot, ControlError> {
        let snapshot = self.hub.snapshot(self.subscription);
        snapshot.ok_or_else(|| ControlError::Gone("no hub".into()))
    }

    fn set_filter(&self, _filter: &Program) -> Result<Vec<Wanted>, ControlError> {
        Err(ControlError::Gone("not in this test".into()))
    }

    fn stop(&self) {
        self.hub.stop();
    }
}

/// A reader's counters, and its packets by lane and sequence.
struct MemberReading {
    counters: Counters,
    packets: Vec<(u32, u64)>,
}

/// Reads to the end, with a rest after each batch.
fn read(mut receiver: Receiver, rest: Duration) -> MemberReading {
    let (mut tally, mut packets) = (Tally::new(receiver.lanes()), Vec::new());
    loop {
        match receiver.next(None).expect("the hub is there") {
            Next::Batch(batch) => {
                let lane = batch.lane().0;
                let counted = tally.count_batch(&batch, |packet| {
                    packets.push((lane, packet.sequence));
                    true
                });
                counted.expect("the pool is good");
                thread::sleep(rest);
            }
            Next::Empty => {}
            Next::Ended => break,
        }
    }
    let counters = tally.total(&receiver.snapshot().expect("the hub answers"));
    MemberReading { counters, packets }
}

/// Runs a group of readers on a device until it ends; the first of them rests after each batch.
fn run(device: &str, group: Group, rest: Duration) -> (Vec<MemberReading>, GroupStatus) {
    run_with(device, group, rest, HashSeed(1))
}

fn run_with(
    device: &str,
    group: Group,
    rest: Duration,
    seed: HashSeed,
) -> (Vec<MemberReading>, GroupStatus) {
    let device: DeviceSpec = device.parse().expect("a device");
    let options = SimOptions::from_device(&device).expect("a NIC");
    let source = sim::open(&options).expect("it can be simulated");
    let request = |name: usize| SubscriptionRequest {
        from_the_first: true,
        ..SubscriptionRequest::new(group.name.clone(), name.to_string())
    };
    let requests = (0..READERS).map(request).collect();
    let (hub, taken) = Hub::start(
        vec![source],
        vec![group.clone()],
        HubOptions {
            hash_seed: Some(seed),
            ..HubOptions::default()
        },
        requests,
    )
    .expect("the hub starts");
    let readers = taken.into_iter().enumerate().map(|(at, taken)| {
        let taken = taken.expect("a subscription");
        let subscription = Subscription {
            hub: hub.handle().clone(),
            subscription: taken.id,
        };
        let receiver = Receiver::new(taken, Arc::new(subscription)).expect("a good subscription");
        let rest = if at == 0 { rest } else { Duration::ZERO };
        thread::spawn(move || read(receiver, rest))
    });
    let readers: Vec<_> = readers.collect();
    let found = readers
        .into_iter()
        .map(|reader| reader.join().expect("no panic"));
    let found: Vec<_> = found.collect();
    for one in &found {
        let balance = one.counters.balance();
        assert!(balance.holds(), "{balance}: {:?}", one.counters);
    }
    let status = hub.handle().status().expect("the hub answers");
    assert!(status.sources[0].balanced, "{status:?}");
    assert_eq!(status.hash_seed, Some(seed.0));
    (found, status.groups[0].clone())
}

/// Every packet of a lane, read by exactly one of them.
fn each_once(found: &[MemberReading]) -> usize {
    let mut packets: Vec<_> = found.iter().flat_map(|one| &one.packets).collect();
    let all = packets.len();
    packets.sort_unstable();
    packets.dedup();
    assert_eq!(packets.len(), all, "no packet is read twice");
    all
}

fn buddies(offload_percent: Option<u8>) -> Group {
    Group {
        division: Division::Lanes,
        offload_percent,
        ..Group::new("ids")
    }
}

#[test]
fn each_lane_has_an_owner_that_gets_all_of_it() {
    let device = "sim:max?burst=200000&queues=4&skew=7:1:1:1&chunks=20&packets=64";
    let (found, status) = run(device, buddies(None), Duration::ZERO);
    assert_eq!(each_once(&found), 200_000);
    for (lane, one) in (0..).zip(&found) {
        assert!(one.packets.iter().all(|(other, _)| *other == lane));
        assert!(one.packets.is_sorted(), "order is kept");
        assert_eq!(one.counters.offered, 200_000, "those of others included");
    }
    assert_eq!(
        (
            status.buddies.offloaded_chunks,
            status.buddies.disordered_packets
        ),
        (0, 0)
    );
}

#[test]
fn buddies_take_the_chunks_of_a_busy_one_and_each_packet_is_read_once() {
    let device = "sim:max?burst=200000&queues=4&skew=7:1:1:1&chunks=20&packets=64&flows=40";
    let (found, status) = run(device, buddies(Some(20)), Duration::from_millis(1));
    assert_eq!(
        each_once(&found),
        200_000,
        "the link waits, so nothing is lost"
    );
    assert!(status.buddies.offloaded_chunks > 500, "{status:?}");
    assert!(status.buddies.offloaded_packets > 30_000, "{status:?}");
    assert!(status.buddies.disordered_packets > 0, "{status:?}");
    let taken_over = found[1..].iter().flat_map(|one| &one.packets);
    assert!(taken_over.filter(|(lane, _)| *lane == 0).count() > 30_000);
}

#[test]
fn a_link_that_waits_for_nobody_loses_what_is_counted() {
    let device = "sim:500kpps?burst=200000&queues=4&skew=7:1:1:1&chunks=20&packets=64&flows=40";
    for offload_percent in [None, Some(40)] {
        let (found, _) = run(device, buddies(offload_percent), Duration::from_millis(2));
        let (read, one) = (each_once(&found), &found[0].counters.dropped);
        let read = u64::try_from(read).unwrap();
        let slow: u64 = found.iter().map(|one| one.counters.dropped.overrun).sum();
        let lost = one.pool_full + one.nic + slow;
        assert_eq!(read + lost, 200_000, "{offload_percent:?}");
    }
}

#[test]
fn members_of_a_group_that_divides_flows_read_each_packet_once() {
    let group = Group {
        division: Balance::Flow(Headers::Outer).into(),
        ..Group::new("ids")
    };
    let device = "sim:max?burst=50000&flows=400&chunks=20&packets=64";
    let (mut found, _) = run(device, group, Duration::ZERO);
    // What was captured before there were rules is everybody's: at most the pool.
    for one in &mut found {
        one.packets.retain(|(_, sequence)| *sequence >= 1280);
    }
    assert_eq!(each_once(&found), 50_000 - 1280);
}

#[test]
fn two_hubs_with_one_seed_divide_alike() {
    let group = Group {
        division: Balance::Flow(Headers::Outer).into(),
        ..Group::new("ids")
    };
    let device = "sim:max?burst=20000&flows=400&chunks=20&packets=64";
    // Sequences of the packets that each member read, without those captured before there were rules.
    let divided = |seed| -> Vec<Vec<u64>> {
        let (found, _) = run_with(device, group.clone(), Duration::ZERO, HashSeed(seed));
        let sequences = found.into_iter().map(|one| {
            let all = one.packets.into_iter().map(|(_, sequence)| sequence);
            all.filter(|sequence| *sequence >= 1280).collect()
        });
        sequences.collect()
    };
    let first = divided(7);
    assert!(first.iter().all(|member| member.len() > 3000));
    assert_eq!(first, divided(7));
    assert_ne!(first, divided(8));
}
