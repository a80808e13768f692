// SPDX-License-Identifier: MIT OR Apache-2.0
//! The simulated NIC as a source.

use std::time::{Duration, Instant};

use ringtap_pool::conformance::{self, Harness, PoolSize};
use ringtap_pool::source::Source;

use super::*;
use crate::PoolAsked;
use ringtap_device::{ChunkOptions, DeviceSpec};

/// Offers given frames at a rate that a busy machine keeps up with.
struct Simulated {
    clock: Clock,
}

impl Harness for Simulated {
    fn capture(&mut self, frames: &[Vec<u8>], size: PoolSize) -> Source {
        let (chunks, ring) = match size {
            // The pool and the ring hold all packets, even on a busy machine.
            PoolSize::Ample => (None, 1 << 20),
            PoolSize::Tiny => (Some(2), RING),
        };
        let options = SimOptions {
            traffic: LinkTraffic::Given(frames.to_vec()),
            clock: self.clock,
            ring,
            pool: PoolAsked {
                chunks: ChunkOptions {
                    per_lane: chunks,
                    packets: None,
                },
                ..PoolAsked::default()
            },
            ..SimOptions::new(Rate::PacketsPerSecond(200_000))
        };
        let mut source = super::open(&options).unwrap();
        let all = u64::try_from(frames.len()).unwrap();
        // Without a reader, packets that exceed the pool wait in the ring.
        let waiting = match size {
            PoolSize::Ample => 0,
            PoolSize::Tiny => u64::from(RING),
        };
        let begun = Instant::now();
        // Virtual time may stand still until a reader reads.
        let limit = Duration::from_secs(if self.clock == Clock::Real { 60 } else { 1 });
        while arrived(&mut source) + waiting < all && begun.elapsed() < limit {
            std::thread::sleep(Duration::from_millis(1));
        }
        source
    }
}

/// Packets that arrived and left the ring.
fn arrived(source: &mut Source) -> u64 {
    let counts = source.counts();
    counts.dropped.nic + counts.lanes.iter().map(|lane| lane.offered).sum::<u64>()
}

#[test]
fn the_source_conforms_by_the_clock() {
    let clock = Clock::Real;
    conformance::check(&mut Simulated { clock });
}

#[test]
fn the_source_conforms_in_virtual_time() {
    let clock = Clock::Virtual;
    conformance::check(&mut Simulated { clock });
}

fn opened(device: &str) -> Result<Source, CaptureError> {
    let device: DeviceSpec = device.parse().unwrap();
    super::open(&SimOptions::from_device(&device).unwrap())
}

#[test]
fn a_burst_ends_and_every_packet_is_somewhere() {
    let mut source = opened("sim:10Gbps?burst=30000&queues=3&chunks=20&packets=16").unwrap();
    let begun = Instant::now();
    // Without a reader, three pools of 320 packets and three rings are full, the rest is lost.
    let max_kept = 3 * 320 + u64::from(3 * RING);
    let counts = loop {
        let counts = source.counts();
        let lost: u64 = counts.lanes.iter().map(|lane| lane.dropped.pool_full).sum();
        let full = counts.lanes.iter().all(|lane| lane.delivered >= 320);
        // A thread that began late has a full ring, and its pool is still empty.
        if full && lost + counts.dropped.nic >= 30_000 - max_kept {
            break counts;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{counts:?}");
        std::thread::sleep(Duration::from_millis(1));
    };
    for lane in &counts.lanes {
        assert_eq!(lane.delivered, 320, "{counts:?}");
        assert_eq!(
            lane.offered,
            lane.delivered + lane.dropped.pool_full,
            "{counts:?}"
        );
    }
    source.stop();
}

#[test]
fn what_cannot_be_is_refused_with_what_to_do() {
    for (device, says) in [
        ("sim:max?clock=virtual", "needs a rate"),
        ("sim:1Gbps?queues=65", "at most 64"),
        ("sim:1Gbps?queues=2&skew=1:2:3", "one for each"),
        ("sim:1Gbps?queues=4&flows=2", "flows=4"),
        ("sim:1Gbps?queues=4&flows=4&skew=elephant:50", "flows=5"),
        ("sim:1Gbps?size=63", "63-byte"),
        ("sim:1Gbps?size=1518&packets=1000", "fewer packets"),
        ("sim:1Gbps?chunks=5&pool=1MiB", "only one"),
    ] {
        let error = opened(device).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(says), "{device}: {error}");
    }
}
