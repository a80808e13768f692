// SPDX-License-Identifier: MIT OR Apache-2.0
//! Guests that read the hub's pool itself.

use ringtap_hub::Group;
use ringtap_pool::reader::ChunkBatch;

use super::*;

#[test]
fn a_guest_reads_in_place_while_further_readers_come_and_the_counters_add_up() {
    let feeder = Feeder::new();
    let setup = Setup::with(&feeder, true);
    let (mut first, _) = setup.subscribed(0, Program::everything());
    feeder.write(50, 0xA1);
    read(&mut first, 50, 0xA1);
    let (mut second, _) = setup.subscribed(1, Program::everything());
    for byte in 1..=100 {
        feeder.write(20, byte);
        read(&mut first, 20, byte);
        read(&mut second, 20, byte);
    }
    let counters = setup.settled(2050);
    assert_eq!((counters.copied, counters.in_place), (0, 2050));
    let report = lock(&setup.host.state).full_report();
    assert_eq!(report.groups[1].copied_because, None);
    assert_eq!(
        bytes_like(&setup.devices.pools[0], 0xA1),
        0,
        "nothing was copied"
    );
    let left = setup.ask(
        10,
        &GuestRequest::Unsubscribe {
            group: "all".into(),
        },
    );
    assert!(matches!(left, HostMessage::Unsubscribed { .. }), "{left:?}");
    feeder.write(30, 7);
    read(&mut second, 30, 7);
    let status = feeder.status();
    assert!(
        status
            .readers
            .iter()
            .all(|reader| reader.counters.dropped.overrun == 0)
    );
    assert_eq!(status.sources[0].lanes[0].counters.dropped.pool_full, 0);
}

#[test]
fn a_guest_that_keeps_all_chunks_in_place_loses_only_its_own_packets() {
    let feeder = Feeder::new();
    let setup = Setup::with(&feeder, true);
    let (mut lazy, _) = setup.subscribed(0, Program::everything());
    let (mut honest, _) = setup.subscribed(1, Program::everything());
    // Several times what the pool holds.
    for _ in 1..=600 {
        feeder.write(40, 3);
        read(&mut honest, 40, 3);
    }
    // The relay's own count is complete once it gets packets again.
    assert_eq!(setup.counters().copied, 0);
    let status = feeder.status();
    let overrun = |group: &str| {
        let found = status.readers.iter().find(|one| one.group == group);
        found.unwrap().counters.dropped.overrun
    };
    assert!(overrun("all") > 0, "{status:?}");
    assert_eq!(overrun("more"), 0);
    assert_eq!(status.sources[0].lanes[0].counters.dropped.pool_full, 0);
    // Once it returns chunks, it gets packets again, and learns of each that it missed.
    let (mut got, mut written) = (0, 24_000);
    let until = Instant::now() + LIMIT;
    while got < written {
        assert!(Instant::now() < until, "{got} of {written}");
        feeder.write(40, 4);
        written += 40;
        read(&mut honest, 40, 4);
        std::thread::sleep(std::time::Duration::from_millis(5));
        while let NextBatch::Batch(batch) = lazy.try_next().unwrap() {
            got += to_u64(ChunkBatch::len(&batch)) + batch.gap.map_or(0, |gap| gap.packets);
        }
    }
    let counters = setup.settled(written);
    assert_eq!(
        (got, counters.in_place + counters.overrun),
        (written, written)
    );
}

#[test]
fn a_group_that_does_not_grant_every_packet_is_copied() {
    // As a program makes it: without a text.
    let narrow = Group {
        filter: only(9).into(),
        ..Group::new("more")
    };
    let feeder = Feeder::with(vec![Group::new("all"), narrow]);
    let setup = Setup::with(&feeder, true);
    let (mut narrow, _) = setup.subscribed(1, Program::everything());
    feeder.write(30, 9);
    read(&mut narrow, 30, 9);
    assert!(bytes_like(&setup.devices.pools[1], 9) >= 30 * 60);
    let report = lock(&setup.host.state).full_report();
    let why = report.groups[1].copied_because.as_deref().unwrap();
    assert!(why.contains("does not grant every packet"), "{why}");
}
