// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs in virtual time against arithmetic that knows nothing of pools.

use super::*;
use crate::PoolAsked;
use crate::sim::{LinkTraffic, PS_PER_SECOND, RING};
use proptest::prelude::*;
use ringtap_device::{ChunkOptions, Rate};
use ringtap_packet::{Sizes, Traffic};
use ringtap_pool::distributor::EvenLanes;

/// One queue at 10 Gbit/s, 64-byte packets, a reader of 38,844 packets a second.
fn wirecap(chunks: u32, packets: u32, burst: u64) -> Experiment {
    Experiment {
        nic: SimOptions {
            burst: Some(burst),
            pool: pool(chunks, packets),
            ..SimOptions::new(Rate::BitsPerSecond(10_000_000_000))
        },
        capture_ps: 0,
        service_ps: PS_PER_SECOND / 38_844,
        counts_disorder: false,
    }
}

fn pool(chunks: u32, packets: u32) -> PoolAsked {
    PoolAsked {
        chunks: ChunkOptions {
            per_lane: Some(chunks),
            packets: Some(packets),
        },
        ..PoolAsked::default()
    }
}

fn run(experiment: &Experiment) -> SimOutcome {
    let outcome = experiment.run(Arc::new(EvenLanes)).unwrap();
    let balance = outcome.counters().balance();
    assert!(balance.holds(), "{balance}: {outcome:?}");
    outcome
}

fn lost(experiment: &Experiment) -> u64 {
    run(experiment).counters().dropped.total()
}

/// Packets that a queue loses if capture costs nothing: packet by packet, by counting alone.
fn expected(chunks: u64, m: u64, ring: u64, packets: u64, gap_ps: u64, service_ps: u64) -> u64 {
    let (mut captured, mut waiting, mut lost, mut served) = (0_u64, 0_u64, 0, 0_u64);
    // Time at which the reader finishes its packet.
    let mut busy_until: Option<u64> = None;
    let mut arrived = 0;
    loop {
        let arrival = (arrived < packets).then(|| arrived * gap_ps);
        let now = match (busy_until, arrival) {
            (Some(done), Some(next)) => done.min(next),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => return lost,
        };
        if busy_until == Some(now) {
            (served, busy_until) = (served + 1, None);
        } else if waiting < ring {
            (arrived, waiting) = (arrived + 1, waiting + 1);
        } else {
            (arrived, lost) = (arrived + 1, lost + 1);
        }
        while waiting > 0 && captured < m * (chunks + served / m) {
            (captured, waiting) = (captured + 1, waiting - 1);
        }
        if busy_until.is_none() && captured > served {
            busy_until = Some(now + service_ps);
        }
    }
}

#[test]
fn a_run_ends_as_arithmetic_says_to_the_packet() {
    for (chunks, m) in [(100, 256), (500, 256), (10, 64), (2, 17)] {
        for packets in [1, 1000, 3000, 30_000, 100_000] {
            let experiment = wirecap(chunks, m, packets);
            let service_ps = experiment.service_ps;
            let (r, m) = (u64::from(chunks), u64::from(m));
            let want = expected(r, m, RING.into(), packets, 67_200, service_ps);
            assert_eq!(lost(&experiment), want, "B-({m},{chunks}), P = {packets}");
        }
    }
}

#[test]
fn the_papers_larger_pool_loses_nothing_and_repeats() {
    let experiment = wirecap(500, 256, 100_000);
    let outcome = run(&experiment);
    assert_eq!(outcome.counters().dropped.total(), 0);
    assert_eq!(run(&experiment), outcome, "every run ends alike");
    assert!(outcome.lanes[0].max_chunks > 300, "{outcome:?}");
}

#[test]
fn only_the_product_of_chunks_and_packets_counts() {
    for packets in [30_000, 50_000, 100_000, 300_000] {
        let losses = [(400, 64), (200, 128), (100, 256)];
        let losses = losses.map(|(chunks, m)| run(&wirecap(chunks, m, packets)).loss());
        let most = losses.iter().copied().fold(0.0, f64::max);
        let least = losses.iter().copied().fold(1.0, f64::min);
        assert!(most - least < 0.005, "P = {packets}: {losses:?}");
    }
}

#[test]
fn what_fills_the_ring_is_charged_to_its_cause() {
    let slow_capture = Experiment {
        capture_ps: 100_000,
        service_ps: 0,
        ..wirecap(100, 256, 20_000)
    };
    let outcome = run(&slow_capture);
    assert!(outcome.lanes[0].nic > 4000, "{outcome:?}");
    assert_eq!(outcome.lanes[0].pool_full, 0);
    let outcome = run(&wirecap(10, 256, 20_000));
    assert!(outcome.lanes[0].pool_full > 10_000, "{outcome:?}");
    assert_eq!(outcome.lanes[0].nic, 0);
}

#[test]
fn a_fast_reader_loses_nothing_at_any_length() {
    let fast = |burst| Experiment {
        capture_ps: 20_000,
        service_ps: 10_000,
        ..wirecap(100, 256, burst)
    };
    for burst in [1000, 100_000, 1_000_000] {
        assert_eq!(lost(&fast(burst)), 0);
    }
}

#[test]
fn what_cannot_be_run_is_refused() {
    let endless = Experiment {
        nic: SimOptions::new(Rate::PacketsPerSecond(1000)),
        ..wirecap(10, 10, 10)
    };
    assert!(matches!(
        endless.run(Arc::new(EvenLanes)),
        Err(CaptureError::Endless)
    ));
    let timeless = Experiment {
        nic: SimOptions::new(Rate::Max),
        ..wirecap(10, 10, 10)
    };
    assert!(matches!(
        timeless.run(Arc::new(EvenLanes)),
        Err(CaptureError::VirtualMax)
    ));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_experiment_balances(
        queues in 1_u32..5,
        chunks in 2_u32..20,
        packets in 1_u32..40,
        ring in 1_u32..200,
        times in (0_u64..200_000, 0_u64..3_000_000),
        imix in any::<bool>(),
    ) {
        let sizes = if imix { Sizes::Imix } else { Sizes::Fixed(64) };
        let traffic = Traffic { flows: 3 * queues, sizes, ..Traffic::default() };
        let experiment = Experiment {
            nic: SimOptions {
                queues,
                ring,
                traffic: LinkTraffic::Generated(traffic),
                burst: Some(5000),
                pool: pool(chunks, packets),
                ..SimOptions::new(Rate::BitsPerSecond(10_000_000_000))
            },
            capture_ps: times.0,
            service_ps: times.1,
            counts_disorder: true,
        };
        let outcome = experiment.run(Arc::new(EvenLanes)).unwrap();
        prop_assert!(outcome.counters().balance().holds(), "{:?}", outcome);
        prop_assert_eq!(outcome.counters().dropped.overrun, 0, "{:?}", outcome);
        prop_assert_eq!(outcome.disordered_packets, 0, "{:?}", outcome);
    }
}
