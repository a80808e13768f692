// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exhausted pools, monitor-only ports, removed interfaces, sleeping readers.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringtap_capture::tap::{Direction, Mode, Taking, Tap};
use ringtap_device::ChunkOptions;
use ringtap_ipc::event::sleep_until_readable;
use ringtap_pool::distributor::{Distributor, ReaderOptions, Returns};
use ringtap_pool::reader::{NextBatch, Reader};
use ringtap_pool::source::Status;
use ringtap_pool::wake::NoSignal;
pub(crate) use ringtap_testkit::LIMIT;
use ringtap_testkit::{Namespace, Running, require_root, require_tool, with};

use crate::rules::{classify, rule};
use crate::stack::{for_everyone, received};
use crate::support::{SOON, attach, finish, frame, options, python, sending};

/// tcpdump, which ends after `count` of the tests' frames have reached the network stack.
fn stack_receives(net: &Namespace, interface: &str, count: usize) -> Running {
    let count = count.to_string();
    let dump = net.spawn(
        "tcpdump",
        &[
            "-i",
            interface,
            "-Q",
            "in",
            "-c",
            &count,
            // It gives its file, here the device, to the user that it becomes.
            "-Z",
            "root",
            "-w",
            "/dev/null",
            "ether proto 0x88b5",
        ],
    );
    dump.wait_for_stderr("listening on", LIMIT);
    dump
}

#[test]
fn without_a_free_chunk_packets_are_counted_and_pass() {
    require_root!();
    require_tool!("ip", "python3", "tcpdump");
    for mode in [Mode::Native, Mode::Generic, Mode::Tc] {
        for taking in [Taking::Pass, Taking::Exclusive] {
            let net = Namespace::with_veth("exhausted");
            let cpus = u64::try_from(std::thread::available_parallelism().unwrap().get()).unwrap();
            let tap = attach(
                &net,
                &with(options("rx0"), |it| {
                    it.on.mode = mode;
                    it.taking = taking;
                    it.on.pool.chunk_bytes = Some(4096);
                    it.on.pool.bytes = Some((2 * cpus + 1) * 4096);
                }),
            );
            let frames = vec![frame(1, 1000); 300];
            // At most two chunks per lane with three packets each: the rest passes.
            let passing = match taking {
                Taking::Pass => 300,
                Taking::Exclusive => 280,
            };
            let dump = stack_receives(&net, "rx0", passing);
            net.inject("tx0", &frames);
            let end = dump.wait(SOON);
            assert!(end.status.success(), "{mode:?} {taking:?}: {}", end.stderr);
            let (captured, counts) = finish(tap);
            let sum = |f: fn(&ringtap_pool::counters::Counters) -> u64| -> u64 {
                counts.lanes.iter().map(f).sum()
            };
            assert_eq!(sum(|lane| lane.delivered), captured.len() as u64);
            assert_eq!(
                sum(|lane| lane.dropped.pool_full) + captured.len() as u64,
                300,
                "{counts:?}"
            );
            assert!(
                captured.len() <= 20,
                "{mode:?} {taking:?}: {}",
                captured.len()
            );
        }
    }
}

#[test]
fn an_exclusive_tap_drops_only_packets_that_it_has_captured() {
    require_root!();
    require_tool!("ip", "python3");
    for mode in [Mode::Native, Mode::Generic, Mode::Tc] {
        let net = Namespace::with_veth("dropped");
        let tap = attach(
            &net,
            &with(options("rx0"), |it| {
                it.on.mode = mode;
                it.taking = Taking::Exclusive;
                it.on.pool.chunks = ChunkOptions {
                    per_lane: Some(2),
                    packets: Some(8),
                };
            }),
        );
        let before = received(&net);
        net.inject("tx0", &vec![for_everyone(ping()); 50]);
        let (captured, counts) = finish(tap);
        assert_eq!(captured.len(), 16, "{mode:?}: {counts:?}");
        assert_eq!(received(&net) - before, 34, "{mode:?}: {counts:?}");
    }
}

#[test]
fn an_exclusive_tap_drops_no_leaving_packet() {
    require_root!();
    require_tool!("ip", "python3");
    for mode in [Mode::Native, Mode::Generic, Mode::Tc] {
        let net = Namespace::with_veth("leaving");
        let tap = attach(
            &net,
            &with(options("rx0"), |it| {
                it.on.mode = mode;
                it.taking = Taking::Exclusive;
                it.on.direction = Direction::InOut;
            }),
        );
        let before = net.counter("tx0", "rx_packets");
        net.inject("rx0", &vec![frame(1, 60); 5]);
        assert_eq!(finish(tap).0.len(), 5, "{mode:?}");
        let arrived = net.counter("tx0", "rx_packets") - before;
        assert_eq!(arrived, 5, "{mode:?}");
    }
}

#[test]
fn a_chunk_states_all_losses_of_its_lane_before_it() {
    require_root!();
    require_tool!("ip", "python3", "taskset");
    let net = Namespace::with_veth("lost-before");
    let mut tap = attach(
        &net,
        &with(options("rx0"), |it| {
            it.on.pool.chunks = ChunkOptions {
                per_lane: Some(4),
                packets: Some(16),
            }
        }),
    );
    let pool = tap.pool.clone();
    let mut distributor = Distributor::new(
        pool.clone(),
        std::mem::take(&mut tap.lanes),
        Arc::new(NoSignal),
    );
    let all = ReaderOptions {
        credit: Some(u32::MAX),
        ..ReaderOptions::default()
    };
    let (_, mut reader) = distributor.add_reader(&all).unwrap();
    // Filtered packets are no losses.
    classify(&mut tap, vec![rule("ether[17] & 1 = 0", u64::MAX)]);
    let mut before = vec![0; tap.counts().lanes.len()];
    let mut next = before.clone();
    for packets in [200, 400, 40] {
        python(&net, "0", &sending("tx0", packets));
        let mut read = 0;
        while distributor.step().unwrap() {}
        while let NextBatch::Batch(batch) = reader.try_next().unwrap() {
            // The packets that were lost after this chunk, while it was full, are not before it.
            let lost = pool.chunk(batch.chunk()).unwrap().lost_before();
            assert_eq!(lost, before[batch.lane.index()], "{packets}");
            read += batch.len();
            for packet in batch.packets() {
                let next: &mut u64 = &mut next[batch.lane.index()];
                assert_eq!(packet.unwrap().sequence, *next, "lost packets have none");
                *next += 1;
            }
        }
        assert!(read > 0);
        while distributor.step().unwrap() {}
        let lanes = tap.counts().lanes;
        before = lanes.iter().map(|lane| lane.dropped.pool_full).collect();
    }
    assert!(before.iter().sum::<u64>() > 0, "the pool is too small");
}

#[test]
fn a_lane_holds_exactly_the_chunks_and_packets_that_were_asked_for() {
    require_root!();
    require_tool!("ip", "python3");
    for mode in [Mode::Native, Mode::Generic, Mode::Tc] {
        let net = Namespace::with_veth("shape");
        let tap = attach(
            &net,
            &with(options("rx0"), |it| {
                it.on.mode = mode;
                it.taking = Taking::Pass;
                it.on.snap_length = Some(96);
                it.on.pool.chunks = ChunkOptions {
                    per_lane: Some(5),
                    packets: Some(16),
                };
            }),
        );
        net.inject("tx0", &vec![frame(1, 1000); 300]);
        let (captured, counts) = finish(tap);
        for lane in &counts.lanes {
            let expected = lane.offered.min(80);
            assert_eq!(lane.delivered, expected, "{mode:?}: {counts:?}");
        }
        assert!(captured.iter().all(|packet| packet.data.len() <= 96));
        let full = counts.lanes.iter().filter(|lane| lane.delivered == 80);
        assert!(full.count() > 0, "{mode:?}: {counts:?}");
    }
}

#[test]
fn an_exclusive_tap_takes_packets_from_the_host() {
    require_root!();
    require_tool!("ip", "python3", "tcpdump");
    for mode in [Mode::Native, Mode::Generic, Mode::Tc] {
        let net = Namespace::with_veth("exclusive");
        let taking = Taking::Exclusive;
        let tap = attach(
            &net,
            &with(options("rx0"), |it| {
                it.on.mode = mode;
                it.taking = taking;
            }),
        );
        // Packet sockets see a packet before traffic control does, IP after it.
        net.ip(&["addr", "add", "10.9.9.1/24", "dev", "rx0"]);
        net.inject("tx0", &[ping()]);
        let replies = net.counter("tx0", "rx_packets");
        assert_eq!(
            replies, 0,
            "{mode:?}: the host answers no ping that it does not get"
        );
        let (captured, _) = finish(tap);
        assert_eq!(captured.len(), 1, "{mode:?}");
        net.inject("tx0", &[ping()]);
        let answered_by = Instant::now() + SOON;
        while net.counter("tx0", "rx_packets") == 0 {
            let waits = Instant::now() < answered_by;
            assert!(waits, "{mode:?}: without the tap the host answers");
        }
    }
}

/// An ICMP echo request to 10.9.9.1 from 10.9.9.2, for any MAC address.
pub(crate) fn ping() -> Vec<u8> {
    let mut bytes = vec![0xff; 6];
    bytes.extend([2, 0, 0, 0, 0, 1, 8, 0]);
    bytes.extend([
        0x45, 0, 0, 28, 0, 1, 0, 0, 64, 1, 0, 0, 10, 9, 9, 2, 10, 9, 9, 1,
    ]);
    bytes.extend([8, 0, 0, 0, 0, 1, 0, 1]);
    for (at, from, to) in [(24, 14, 34), (36, 34, 42)] {
        let sum = checksum(&bytes[from..to]);
        bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
    bytes
}

fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    !u16::try_from((sum >> 16) + (sum & 0xffff)).unwrap()
}

/// Waits for the tap's signal and clears it, until `is_so`.
fn wait_for(net: &Namespace, tap: &mut Tap, mut is_so: impl FnMut(&mut Tap) -> bool + Send) {
    net.enter(|| {
        let start = Instant::now();
        while !is_so(tap) {
            assert!(start.elapsed() < SOON, "the tap reports nothing");
            let _signal = sleep_until_readable(&[tap.wake.as_fd()], Some(SOON)).unwrap();
            tap.clear_wake();
        }
    });
}

#[test]
fn an_interface_that_is_removed_ends_capture_with_a_reason_and_one_that_is_down_does_not() {
    require_root!();
    require_tool!("ip", "python3");
    let net = Namespace::with_veth("going");
    let mut tap = attach(&net, &options("rx0"));
    net.inject("tx0", &[frame(1, 60)]);
    assert!(matches!(tap.status(), Status::Running));
    net.ip(&["link", "set", "rx0", "down"]);
    wait_for(&net, &mut tap, |tap| {
        matches!(tap.status(), Status::Waiting)
    });
    assert_eq!(tap.take_notes(), ["rx0 is down; waiting"]);
    net.ip(&["link", "delete", "rx0"]);
    let mut reason = None;
    wait_for(&net, &mut tap, |tap| {
        if let Status::Removed(error) = tap.status() {
            reason = Some(error.to_string());
        }
        reason.is_some()
    });
    assert!(reason.unwrap().contains("was removed"));
    assert!(
        matches!(tap.status(), Status::Ended),
        "a reason is told once"
    );
    assert_eq!(finish(tap).0.len(), 1, "what came before is there");
}

/// Waits until the kernel reports no more changes of the interfaces, which it does for a second.
fn wait_for_quiet(tap: &mut Tap) {
    while sleep_until_readable(&[tap.wake.as_fd()], Some(Duration::from_millis(1500))).unwrap() {
        tap.clear_wake();
    }
}

/// A distributor over the tap's lanes, and its only reader.
fn with_one_reader(tap: &mut Tap) -> (Distributor, Reader) {
    let lanes = std::mem::take(&mut tap.lanes);
    let mut distributor = Distributor::new(tap.pool.clone(), lanes, Arc::new(NoSignal));
    let (_, reader) = distributor.add_reader(&ReaderOptions::default()).unwrap();
    (distributor, reader)
}

/// While no reader sleeps, the driver of the distributor waits for whole chunks.
#[test]
fn without_a_sleeping_reader_the_first_packet_of_a_chunk_signals_and_no_other() {
    require_root!();
    require_tool!("ip", "python3");
    for mode in [Mode::Native, Mode::Generic, Mode::Tc] {
        let net = Namespace::with_veth("wake-chunk");
        let mut tap = attach(
            &net,
            &with(options("rx0"), |it| {
                it.on.mode = mode;
                it.on.pool.chunks = ChunkOptions {
                    per_lane: Some(8),
                    packets: Some(3),
                };
            }),
        );
        let (mut distributor, mut reader) = with_one_reader(&mut tap);
        wait_for_quiet(&mut tap);
        net.inject("tx0", &[frame(1, 60)]);
        for _ in 0..3 {
            // Until the reader has returned its chunks.
            while distributor.step().unwrap() {
                while let NextBatch::Batch(_) = reader.try_next().unwrap() {}
            }
            distributor.arm(Returns::WhenDry);
            assert!(!distributor.step().unwrap(), "nothing came meanwhile");
            net.inject("tx0", &[frame(2, 60), frame(3, 60)]);
            let is_woken =
                sleep_until_readable(&[tap.wake.as_fd()], Some(Duration::from_millis(50)));
            assert!(
                !is_woken.unwrap(),
                "{mode:?}: these fit into the open chunk"
            );
            net.inject("tx0", &[frame(4, 60)]);
            let is_woken = sleep_until_readable(&[tap.wake.as_fd()], Some(SOON));
            assert!(is_woken.unwrap(), "{mode:?}: a chunk was opened");
            tap.clear_wake();
        }
    }
}

#[test]
fn a_reader_that_sleeps_is_woken_and_one_that_does_not_is_left_alone() {
    require_root!();
    require_tool!("ip", "python3");
    let net = Namespace::with_veth("wake");
    let mut tap = attach(&net, &options("rx0"));
    let (mut distributor, mut reader) = with_one_reader(&mut tap);
    let short = Some(Duration::from_millis(50));
    wait_for_quiet(&mut tap);

    net.inject("tx0", &[frame(1, 60)]);
    assert!(
        !sleep_until_readable(&[tap.wake.as_fd()], short).unwrap(),
        "nobody asked"
    );

    for number in 2..5 {
        distributor.step().unwrap();
        while let NextBatch::Batch(_) = reader.try_next().unwrap() {}
        reader.sleeper().arm();
        distributor.arm(Returns::WhenDry);
        assert!(!distributor.step().unwrap(), "nothing came meanwhile");
        net.inject("tx0", &[frame(number, 60)]);
        assert!(sleep_until_readable(&[tap.wake.as_fd()], Some(SOON)).unwrap());
        tap.clear_wake();
        assert!(
            !sleep_until_readable(&[tap.wake.as_fd()], short).unwrap(),
            "cleared"
        );
        net.inject("tx0", &[frame(number, 60)]);
        assert!(
            !sleep_until_readable(&[tap.wake.as_fd()], short).unwrap(),
            "asked for one signal"
        );
    }
    drop(reader);
    assert_eq!(
        tap.counts()
            .lanes
            .iter()
            .map(|lane| lane.delivered)
            .sum::<u64>(),
        7
    );
}

#[test]
fn chunks_go_round_many_times() {
    require_root!();
    require_tool!("ip", "python3");
    let net = Namespace::with_veth("round");
    let small = with(options("rx0"), |it| {
        it.on.pool.chunk_bytes = Some(4096);
        it.on.pool.bytes = Some(16 * 4096);
    });
    let mut tap = attach(&net, &small);
    let (mut distributor, mut reader) = with_one_reader(&mut tap);
    let mut read = 0;
    for round in 0..20_u8 {
        net.inject("tx0", &vec![frame(round, 900); 12]);
        distributor.step().unwrap();
        while let NextBatch::Batch(batch) = reader.try_next().unwrap() {
            for packet in batch.packets() {
                assert_eq!(packet.unwrap().data, frame(round, 900));
                read += 1;
            }
        }
    }
    assert_eq!(read, 240, "{:?}", tap.counts());
}
