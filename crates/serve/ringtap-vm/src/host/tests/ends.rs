// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ends of a hub, of its groups, and of the host process itself.

use ringtap_hub::Group;
use ringtap_pool::reader::ChunkBatch;

use super::*;

/// Reads until the end; returns the number of packets.
fn read_to_end(reader: &mut Reader) -> u64 {
    let until = Instant::now() + LIMIT;
    let mut read = 0;
    loop {
        match reader.try_next().unwrap() {
            NextBatch::Batch(batch) => {
                read += to_u64(ChunkBatch::len(&batch));
                let delivered = &reader.progress().delivered;
                delivered.store(read, Relaxed);
            }
            NextBatch::Empty => assert!(Instant::now() < until, "no end after {read} packets"),
            NextBatch::Ended => return read,
        }
    }
}

/// Delivered packets of all readers at the hub, also of those that have left.
fn delivered(feeder: &Feeder) -> u64 {
    let until = Instant::now() + LIMIT;
    loop {
        let status = feeder.status();
        if status.readers.is_empty() {
            return status
                .departed
                .iter()
                .map(|one| one.counters.delivered)
                .sum();
        }
        assert!(Instant::now() < until, "no reader is left at the hub");
    }
}

#[test]
fn a_guest_learns_that_the_hub_ended_and_that_it_is_back() {
    for (is_killed, asks_meanwhile) in [(false, false), (false, true), (true, false)] {
        let feeder = Feeder::new();
        let setup = Setup::new(&feeder);
        let (mut reader, epoch) = setup.subscribed(0, Program::everything());
        feeder.write(5, 6);
        setup.wait_until_read(5);
        let folder = if is_killed {
            feeder.kill()
        } else {
            feeder.end()
        };
        let ended = setup.next(0);
        let is_orderly = format!("{ended:?}").contains("or its sources have");
        assert_eq!(is_orderly, !is_killed, "{ended:?}");
        let HostMessage::Ended {
            group,
            epoch: of,
            counters,
            ..
        } = ended
        else {
            panic!("{ended:?}")
        };
        assert_eq!((&*group, of, counters.copied), ("all", epoch, 5));
        // What was copied before the end is there.
        assert_eq!(read_to_end(&mut reader), 5);
        if asks_meanwhile {
            let refused = setup.refusal(1, &subscribe("all", Program::everything()));
            assert!(refused.contains("no hub is running"), "{refused}");
        }
        let feeder = Feeder::start(folder);
        let granted = setup.next(0);
        assert!(
            matches!(granted, HostMessage::Granted { .. }),
            "{granted:?}"
        );
        let (mut reader, _) = setup.subscribed(0, Program::everything());
        feeder.write(5, 6);
        read(&mut reader, 5, 6);
        // The counters are those of both subscriptions.
        setup.settled(5);
        let report = lock(&setup.host.state).full_report();
        assert_eq!(report.groups[0].counters.copied, 10);
    }
}

#[test]
fn a_guest_gets_a_group_that_a_reload_of_the_hub_brings_back() {
    let feeder = Feeder::new();
    let setup = Setup::new(&feeder);
    let _reader = setup.subscribed(0, Program::everything());
    // A reader of a removed group stays.
    feeder.replace_groups(vec![Group::new("more")]);
    feeder.write(5, 6);
    setup.settled(5);
    let all = || "all".to_owned();
    let left = setup.ask(10, &GuestRequest::Unsubscribe { group: all() });
    assert!(matches!(left, HostMessage::Unsubscribed { .. }), "{left:?}");
    let refused = setup.refusal(11, &subscribe("all", Program::everything()));
    assert!(refused.contains("no group"), "{refused}");
    let names = |message| match message {
        HostMessage::Granted { groups } => groups.into_iter().map(|one| one.name).collect(),
        other => vec![format!("{other:?}")],
    };
    assert_eq!(names(setup.next(0)), ["more"]);
    feeder.replace_groups(vec![Group::new("all"), Group::new("more")]);
    assert_eq!(names(setup.next(0)), ["all", "more"]);
    let (mut reader, _) = setup.subscribed(0, Program::everything());
    feeder.write(5, 6);
    read(&mut reader, 5, 6);
}

#[test]
fn at_the_end_hub_host_and_guest_agree_on_each_packet() {
    for reads_all in [true, false] {
        let feeder = Feeder::new();
        let mut setup = Setup::new(&feeder);
        let (mut reader, epoch) = setup.subscribed(0, Program::everything());
        let mut taken = 0;
        let stop = AtomicU64::new(0);
        let state = Arc::clone(&setup.host.state);
        let counters = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut written = 0;
                while stop.load(Relaxed) == 0 {
                    let counters = lock(&state).full_report().groups[0].counters;
                    // Never more than the hub's pool has room for.
                    if written < sum(&counters) + 1000 {
                        feeder.write(10, 7);
                        written += 10;
                    }
                }
            });
            setup.wait_until_read(2000);
            if !reads_all && let Ok(NextBatch::Batch(batch)) = reader.try_next() {
                taken = to_u64(ChunkBatch::len(&batch));
                reader.progress().delivered.store(taken, Relaxed);
            }
            let last = setup.host.end_subscriptions();
            stop.store(1, Relaxed);
            last
        });
        let [
            (
                0,
                HostMessage::Ended {
                    epoch: of,
                    counters,
                    ..
                },
            ),
        ] = &counters[..]
        else {
            panic!("{counters:?}")
        };
        let counters = *counters;
        assert_eq!(*of, epoch);
        if reads_all {
            taken = read_to_end(&mut reader)
        } else {
            assert!(taken > 0)
        }
        assert!(sum(&counters) >= 2000, "{counters:?}");
        assert_eq!(delivered(&feeder), counters.copied + counters.part_full);
        let group = &setup.host.groups()[0];
        assert_eq!(group.counters, counters);
        assert_eq!(taken + group.not_taken, counters.copied);
    }
}
