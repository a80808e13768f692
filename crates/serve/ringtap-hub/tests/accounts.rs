// SPDX-License-Identifier: MIT OR Apache-2.0
//! Accounts of readers that are interrupted at any moment: with the hub's own numbers, and together.

#[path = "shared/fed.rs"]
mod fed;

use std::sync::Arc;
use std::time::Instant;

use proptest::prelude::*;
use ringtap_client::{Control, ControlError, Cursor, Deadline, Look, Next, Receiver, Tally};
use ringtap_filter::Program;
use ringtap_hub::{Group, Handle, Hub, HubOptions};
use ringtap_ipc::protocol::{Division, HubStatus, Snapshot};
use ringtap_ipc::subscription::{SubscriptionId, SubscriptionRequest, Wanted};
use ringtap_pool::number::to_u64;
use ringtap_testkit::LIMIT;

use fed::{FedSource, Feed};

/// Chunks of the pool; readers together hold fewer.
const CHUNKS: u32 = 40;

/// Upper bound of the packets in one chunk.
const CHUNK_PACKETS: u64 = 60;

struct LocalControl(Handle, SubscriptionId);

impl Control for LocalControl {
    fn snapshot(&self) -> Result<Snapshot, ControlError> {
        Ok(self.0.snapshot(self.1).expect("it has a subscription"))
    }

    fn set_filter(&self, _: &Program) -> Result<Vec<Wanted>, ControlError> {
        unreachable!("no test changes a filter")
    }

    fn stop(&self) {}
}

impl Drop for LocalControl {
    fn drop(&mut self) {
        self.0.leave(self.1);
    }
}

struct TestReader {
    id: u64,
    receiver: Receiver,
    tally: Tally,
}

/// A reader's numbers: those that it prints when it is interrupted, or those of the hub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Numbers {
    delivered: u64,
    filtered: u64,
    other_members: u64,
    overrun: u64,
}

impl Numbers {
    fn sum(&self) -> u64 {
        self.delivered + self.filtered + self.other_members + self.overrun
    }
}

impl TestReader {
    fn attach(hub: &Hub, request: SubscriptionRequest) -> Self {
        let handle = hub.handle().clone();
        let subscription = handle.attach(request).expect("a subscription");
        let id = subscription.id;
        let control = Arc::new(LocalControl(handle, id));
        let receiver = Receiver::new(subscription, control).expect("a receiver");
        TestReader {
            id: id.0,
            tally: Tally::new(receiver.lanes()),
            receiver,
        }
    }

    /// Reads at most this many batches.
    fn read(&mut self, batches: usize) {
        for _ in 0..batches {
            let Next::Batch(batch) = self.receiver.try_next().expect("the hub is there") else {
                break;
            };
            let counted = self.tally.count_batch(&batch, |_| true);
            counted.expect("the pool is good");
            self.receiver.publish_progress(&self.tally);
        }
    }

    /// The final account of a reader that stops now, which must balance.
    fn account(&self) -> Numbers {
        let snapshot = self.receiver.snapshot().expect("the hub answers");
        let counters = self.tally.total(&snapshot);
        assert!(counters.balance().holds(), "{counters:?} {snapshot:?}");
        Numbers {
            delivered: counters.delivered,
            filtered: counters.filtered,
            other_members: counters.other_members,
            overrun: counters.dropped.overrun,
        }
    }
}

/// The hub's numbers of a reader, and the packets that the reader has yet to read.
fn by_hub(status: &HubStatus, id: u64) -> (Numbers, u64) {
    let one = status.readers.iter().find(|one| one.reader == id);
    let one = one.expect("it has a subscription");
    let numbers = Numbers {
        delivered: one.counters.delivered,
        filtered: one.counters.filtered,
        other_members: one.counters.other_members,
        overrun: one.counters.dropped.overrun,
    };
    (numbers, one.unread)
}

/// The hub's numbers of the readers that have left.
fn of_departed(status: &HubStatus) -> (Numbers, u64) {
    let mut sum = (Numbers::default(), 0);
    for one in &status.departed {
        sum.0.delivered += one.counters.delivered;
        sum.0.filtered += one.counters.filtered;
        sum.0.other_members += one.counters.other_members;
        sum.0.overrun += one.counters.dropped.overrun;
        sum.1 += one.unread;
    }
    sum
}

/// A step of a test.
#[derive(Clone, Debug)]
enum Step {
    /// The source captures this many packets.
    Write(u64),
    /// A reader reads at most this many batches.
    Read(usize, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (1..4 * CHUNK_PACKETS).prop_map(Step::Write),
        (0..3_usize, 1..4_usize).prop_map(|(reader, batches)| Step::Read(reader, batches)),
    ];
    prop::collection::vec(step, 1..24)
}

fn start(group: Group) -> (Hub, Feed) {
    let (source, feed) = FedSource::new(CHUNKS);
    let options = HubOptions::default();
    let started = Hub::start(vec![Box::new(source)], vec![group], options, Vec::new());
    (started.expect("a hub starts").0, feed)
}

fn status(hub: &Hub) -> HubStatus {
    hub.handle().status().expect("the hub answers")
}

/// Takes the steps with three readers; returns the packets of the source.
fn take(steps: &[Step], hub: &Hub, feed: &Feed, readers: &mut [TestReader]) -> u64 {
    let mut written = 0;
    for step in steps {
        match step {
            Step::Write(packets) => {
                feed.write(*packets, 7);
                written += packets;
                // The hub moves the chunks, so that the writer finds a free one.
                let _moved = status(hub);
            }
            Step::Read(reader, batches) => readers[*reader].read(*batches),
        }
    }
    written
}

fn request(name: &str, credit: u32) -> SubscriptionRequest {
    SubscriptionRequest {
        credit_chunks: Some(credit),
        ..SubscriptionRequest::new("all", name)
    }
}

/// Each reader's account when it is interrupted, against the hub's; then those of all that have left.
fn agree_with_hub(hub: &Hub, readers: Vec<TestReader>, written: u64) -> Vec<Numbers> {
    let mut accounts = Vec::new();
    let mut all_unread = 0;
    for reader in readers {
        // One after another: a reader that leaves may leave a chunk to another.
        let (account, (numbers, unread)) = (reader.account(), by_hub(&status(hub), reader.id));
        assert_eq!(account, numbers, "reader and hub, {unread} unread");
        assert_eq!(
            account.sum() + unread,
            written,
            "{account:?}, {unread} unread"
        );
        accounts.push(account);
        all_unread += unread;
    }
    let (departed, unread) = of_departed(&status(hub));
    let sum = |number: fn(&Numbers) -> u64| accounts.iter().map(number).sum::<u64>();
    let told = format!("{accounts:?}, {all_unread} unread: {departed:?}, {unread}");
    assert_eq!(
        departed.sum() + unread,
        sum(Numbers::sum) + all_unread,
        "{told}"
    );
    assert_eq!(departed.delivered, sum(|one| one.delivered), "{told}");
    // A reader that leaves returns its chunk first, and what it missed of the open chunk becomes known.
    let later = departed.overrun - sum(|one| one.overrun);
    assert!(later <= CHUNK_PACKETS * to_u64(accounts.len()), "{told}");
    accounts
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_interrupted_reader_and_the_hub_count_the_same(steps in steps()) {
        let (hub, feed) = start(Group::new("all"));
        let mut readers: Vec<_> = [1, 2, 9]
            .map(|credit| TestReader::attach(&hub, request("reader", credit)))
            .into();
        let written = take(&steps, &hub, &feed, &mut readers);
        agree_with_hub(&hub, readers, written);
    }

    #[test]
    fn members_that_are_interrupted_leave_no_packet_out(steps in steps()) {
        let group = Group {
            division: Division::Lanes,
            offload_percent: Some(5),
            ..Group::new("all")
        };
        let (hub, feed) = start(group);
        let mut readers: Vec<_> = [2, 3, 5]
            .map(|credit| TestReader::attach(&hub, request("member", credit)))
            .into();
        let written = take(&steps, &hub, &feed, &mut readers);
        // All have read what they got: each packet is delivered to one member, or lost by one. Only the
        // chunk that is being filled may be unread by those that do not get it.
        readers.iter_mut().for_each(|reader| reader.read(100));
        let accounts = agree_with_hub(&hub, readers, written);
        let taken: u64 = accounts.iter().map(|one| one.delivered + one.overrun).sum();
        prop_assert!(taken <= written && taken + CHUNK_PACKETS > written, "{accounts:?} of {written}");
    }
}

/// The cursor's packets, each with the losses that it states; their sum.
fn take_stated(cursor: &mut Cursor, next: &mut u64) -> u64 {
    let mut stated = 0;
    while matches!(cursor.look(Deadline::Now), Ok(Look::Packets)) {
        for packet in cursor.take_all() {
            assert_eq!(
                packet.sequence,
                *next + packet.lost_before,
                "each loss once"
            );
            *next = packet.sequence + 1;
            stated += packet.lost_before;
        }
    }
    stated
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn losses_before_packets_add_up_to_the_readers_loss(bursts in prop::collection::vec(1..5 * CHUNK_PACKETS, 1..8)) {
        let (hub, feed) = start(Group::new("all"));
        let TestReader { receiver, id, .. } = TestReader::attach(&hub, request("cursor", 2));
        let (mut cursor, mut next, mut stated) = (Cursor::new(receiver), 0, 0);
        for packets in bursts {
            feed.write(packets, 7);
            let _moved = status(&hub);
            stated += take_stated(&mut cursor, &mut next);
        }
        // The rest of the losses lies before a packet that is yet to come.
        let (numbers, _) = by_hub(&status(&hub), id);
        prop_assert!(stated <= numbers.overrun);
        while by_hub(&status(&hub), id).1 > 0 || stated < by_hub(&status(&hub), id).0.overrun {
            feed.write(CHUNK_PACKETS, 7);
            let _moved = status(&hub);
            stated += take_stated(&mut cursor, &mut next);
        }
        let snapshot = cursor.receiver().snapshot().expect("the hub answers");
        let counters = cursor.tally().total(&snapshot);
        prop_assert_eq!((counters.dropped.overrun, counters.delivered + stated), (stated, next));
    }
}

#[test]
fn a_private_reader_that_is_interrupted_counts_what_its_relay_lost() {
    let (hub, feed) = start(Group::new("all"));
    let private = SubscriptionRequest {
        private: true,
        ..request("private", 1)
    };
    let reader = TestReader::attach(&hub, private);
    let mut written = 0;
    let deadline = Instant::now() + LIMIT;
    // The relay holds one chunk at most: it loses packets when several come at once.
    while by_hub(&status(&hub), reader.id).0.overrun == 0 {
        assert!(Instant::now() < deadline, "the relay loses nothing");
        feed.write(20 * CHUNK_PACKETS, 7);
        written += 20 * CHUNK_PACKETS;
    }
    loop {
        let (account, (numbers, unread)) = (reader.account(), by_hub(&status(&hub), reader.id));
        assert!(account.overrun > 0, "{account:?}");
        if account.overrun == numbers.overrun && numbers.sum() + unread == written {
            break;
        }
        assert!(
            Instant::now() < deadline,
            "{account:?}, {numbers:?}, {unread} of {written}"
        );
    }
}
