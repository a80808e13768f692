// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters of subscriptions, from start to end.

use ringtap_pool::counters::Counters;
use std::sync::mpsc;
use std::time::Instant;

use ringtap_filter::Program;
use ringtap_hub::Group;
use ringtap_ipc::protocol::{Delivery, LaneSnapshot, Reply, SourceSnapshot, SourceState};
use ringtap_ipc::subscription::{Subscription, SubscriptionId, SubscriptionRequest, Watermark};
use ringtap_ipc::time::now_ns;
use ringtap_testkit::LIMIT;

use crate::{ATTACH, Connection, Setup, read, reader_of};

/// Upper bound of the packets in one chunk of the gated source.
const CHUNK_PACKETS: u64 = 60;

/// Attaches a reader of this process and puts its rules in force at once.
fn attach(setup: &Setup, request: SubscriptionRequest) -> Subscription {
    setup.gate.open(1);
    let attached = setup.handle().attach(request);
    assert!(setup.rules_of_next_set() > 0);
    attached.expect("a subscription")
}

/// The counters of a source that captured every packet.
fn taken(packets: u64) -> Counters {
    Counters {
        offered: packets,
        delivered: packets,
        ..Counters::default()
    }
}

fn source(setup: &Setup, id: SubscriptionId) -> SourceSnapshot {
    let snapshot = setup.handle().snapshot(id).expect("it is attached");
    snapshot.sources.into_iter().next().expect("one source")
}

#[test]
fn a_subscription_counts_from_its_first_packet() {
    let setup = Setup::new();
    let _early = attach(&setup, SubscriptionRequest::new("all", "early"));
    setup.gate.write(30);
    let late = attach(&setup, SubscriptionRequest::new("all", "late"));
    setup.gate.write(12);
    let source = source(&setup, late.id);
    let expected = LaneSnapshot {
        start: 30,
        position: 42,
        counters: taken(12),
        ..LaneSnapshot::default()
    };
    assert_eq!(source.lanes, [expected]);
    assert!(!source.ended && source.failure.is_none());
}

#[test]
fn a_packet_that_is_being_captured_when_a_reader_attaches_is_the_readers_first() {
    let setup = Setup::new();
    setup.gate.write(30);
    setup.gate.feed.begin_packet();
    let reader = attach(&setup, SubscriptionRequest::new("all", "reader"));
    setup.gate.feed.end_packet();
    let expected = LaneSnapshot {
        start: 30,
        position: 31,
        counters: taken(1),
        ..LaneSnapshot::default()
    };
    assert_eq!(source(&setup, reader.id).lanes, [expected]);
}

#[test]
fn a_loss_past_the_credit_is_counted_dated_and_kept_when_the_reader_leaves() {
    let setup = Setup::new();
    let begun = now_ns();
    let request = |credit| SubscriptionRequest {
        credit_chunks: Some(credit),
        ..SubscriptionRequest::new("all", "slow")
    };
    let (slow, fast) = (attach(&setup, request(1)), attach(&setup, request(20)));
    setup.gate.write(8 * CHUNK_PACKETS);
    let lost = source(&setup, slow.id).lanes[0].missed_packets;
    assert!(lost > 0 && lost < 8 * CHUNK_PACKETS, "{lost}");
    assert_eq!(source(&setup, fast.id).lanes[0].missed_packets, 0);
    let status = setup.handle().status().expect("the hub is there");
    let reader = |id: SubscriptionId| status.readers.iter().find(|one| one.reader == id.0);
    let (slow_status, fast_status) = (reader(slow.id).unwrap(), reader(fast.id).unwrap());
    assert_eq!(
        (
            slow_status.counters.dropped.overrun,
            fast_status.counters.dropped.overrun
        ),
        (lost, 0)
    );
    assert!((begun..=now_ns()).contains(&slow_status.last_loss_ns));
    assert_eq!(fast_status.last_loss_ns, 0);
    assert_eq!(
        (slow_status.credit_chunks, fast_status.credit_chunks),
        (1, 20)
    );
    setup.gate.open(1);
    setup.handle().leave(slow.id);
    let after = setup.handle().status().expect("the hub is there");
    assert_eq!((after.departed_overrun, after.readers.len()), (lost, 1));
    assert!(setup.handle().snapshot(slow.id).is_none());
}

#[test]
fn a_private_reader_counts_the_packets_that_were_copied_for_it() {
    let setup = Setup::new();
    let mut private = attach(
        &setup,
        SubscriptionRequest {
            private: true,
            ..SubscriptionRequest::new("all", "private")
        },
    );
    let id = private.id;
    let mut reader = reader_of(&mut private);
    setup.gate.write(20);
    read(&mut reader, 20);
    let copied = LaneSnapshot {
        position: 20,
        counters: taken(20),
        ..LaneSnapshot::default()
    };
    let until = Instant::now() + LIMIT;
    // The relay publishes its counters after the packets.
    while source(&setup, id).lanes != [copied] {
        assert!(Instant::now() < until, "{:?}", source(&setup, id));
    }
    let status = setup.handle().status().expect("the hub is there");
    assert_eq!(status.readers[0].delivery, Delivery::Private);
}

#[test]
fn a_refused_filter_leaves_the_one_before_in_force() {
    let setup = Setup::new();
    let subscription = attach(&setup, SubscriptionRequest::new("all", "reader"));
    let nothing = Program::from_entries(&[6]).expect("a return");
    let (handle, id) = (setup.handle().clone(), subscription.id);
    std::thread::scope(|scope| {
        let changed = scope.spawn(|| handle.set_filter(id, nothing.clone()));
        let rules = setup.gate.begun.recv_timeout(LIMIT).expect("a new set");
        assert_eq!(rules.each[0].filter, nothing);
        let refused = Err("no such filter".to_owned());
        setup
            .gate
            .outcome
            .send(refused)
            .expect("the source is there");
        let error = changed.join().expect("no panic").expect_err("refused");
        assert!(error.to_string().contains("no such filter"), "{error}");
    });
    let restored = setup
        .gate
        .begun
        .recv_timeout(LIMIT)
        .expect("the set before");
    assert!(restored.each[0].filter.takes_everything());
    setup.gate.open(1);
}

#[test]
fn a_reader_that_leaves_while_its_rules_are_loaded_leaves_nothing_behind() {
    let setup = Setup::new();
    let (gone, other) = (setup.connect(), setup.connect());
    gone.send(ATTACH);
    assert_eq!(setup.rules_of_next_set(), 1);
    let Connection(socket) = gone;
    drop(socket);
    setup.gate.open(2);
    let until = Instant::now() + LIMIT;
    loop {
        let status = other.status();
        if status.groups[0].members == 0 && status.readers.is_empty() {
            break;
        }
        assert!(Instant::now() < until, "{status:?}");
    }
}

#[test]
fn the_end_is_reported_when_the_source_has_stopped_and_the_last_reader_left() {
    let setup = Setup::new();
    let reader = attach(&setup, SubscriptionRequest::new("all", "last"));
    let (over, is_over) = mpsc::channel();
    setup.handle().when_over(over);
    setup.handle().stop();
    let until = Instant::now() + LIMIT;
    while !source(&setup, reader.id).ended {
        assert!(Instant::now() < until, "the source does not end");
    }
    assert!(is_over.try_recv().is_err(), "a reader is there");
    setup.gate.open(1);
    setup.handle().leave(reader.id);
    is_over.recv_timeout(LIMIT).expect("it is over");
}

#[test]
fn a_readers_name_is_cut_and_has_no_control_characters() {
    let setup = Setup::new();
    let connection = Connection::new(&setup.socket.path().join("hub.sock"));
    let name = format!("a\\u0007b{}", "x".repeat(100));
    let hello = format!(r#"{{"ask":"hello","protocol":1,"name":"{name}"}}"#);
    assert!(matches!(connection.ask(&hello), Reply::Hello { .. }));
    setup.gate.open(1);
    assert!(matches!(connection.ask(ATTACH), Reply::Attached(_)));
    let shown = format!("a\u{fffd}b{}", "x".repeat(61));
    assert_eq!(connection.status().readers[0].name, shown);
}

#[test]
fn a_hub_whose_sources_ended_is_not_over_while_rules_are_loaded() {
    let setup = Setup::new();
    let late = setup.connect();
    late.send(ATTACH);
    assert_eq!(setup.rules_of_next_set(), 1);
    let (over, is_over) = mpsc::channel();
    setup.handle().when_over(over);
    setup.handle().stop();
    let until = Instant::now() + LIMIT;
    let status = || setup.handle().status().expect("the hub is there");
    while status().sources[0].state != SourceState::Ended {
        assert!(Instant::now() < until, "the source does not end");
    }
    // The hub's thread has stepped at least once since then.
    let _after = (status(), status());
    assert!(is_over.try_recv().is_err(), "a reader waits for its answer");
    setup.gate.open(2);
    assert!(matches!(late.answer(), Reply::Attached(_)));
    drop(late);
    is_over.recv_timeout(LIMIT).expect("it is over");
}

#[test]
fn a_request_up_to_the_groups_limits_is_granted_and_one_more_is_refused() {
    let group = Group {
        max_watermark_packets: 10,
        credit_chunks: Some(4),
        ..Group::new("all")
    };
    let setup = Setup::with(group);
    let request = |packets, credit| SubscriptionRequest {
        watermark: Watermark {
            packets,
            ..Watermark::default()
        },
        credit_chunks: Some(credit),
        ..SubscriptionRequest::new("all", "reader")
    };
    let granted = attach(&setup, request(10, 4));
    for (packets, credit, numbers) in [(11, 4, ["11", "10"]), (10, 5, ["5", "4"])] {
        let refused = setup.handle().attach(request(packets, credit));
        let message = refused.err().expect("too much").to_string();
        assert!(
            numbers.iter().all(|number| message.contains(number)),
            "{message}"
        );
    }
    assert!(setup.handle().set_credit(granted.id, 4).is_ok());
    assert!(setup.handle().set_credit(granted.id, 5).is_err());
}
