// SPDX-License-Identifier: MIT OR Apache-2.0
//! Benchmark of the simulated NIC: its capture thread on one core; the reader, which also steps the
//! distributor, on another. Sends 64-byte packets through capture, delivery and recycling.
//!
//! The reader loads every slot and every payload byte; every round checks its result.

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use ringtap_capture::sim::{self, SimOptions};
use ringtap_device::DeviceSpec;
use ringtap_pool::distributor::{Distributor, Policy, ReaderOptions};
use ringtap_pool::ids::LaneId;
use ringtap_pool::reader::{NextBatch, Packet, Reader};
use ringtap_pool::source::Source;
use ringtap_pool::wake::NoSignal;
use rustix::thread::{CpuSet, sched_setaffinity};

const PACKETS: u64 = 40_000_000;
const CAPTURE_CPU: usize = 0;
const READER_CPU: usize = 1;

const USAGE: &str = "usage: sim_bench [ROUNDS [CHUNKS PACKETS_PER_CHUNK]]   (7 rounds, 500 x 256)";

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Results of a reader: sums over all bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SimReadSums {
    packets: u64,
    lengths: u64,
    bytes: u64,
}

impl SimReadSums {
    #[inline]
    fn add(&mut self, packet: &Packet<'_>) {
        let slot = packet.slot();
        self.packets += 1;
        self.lengths += u64::from(slot.wire_length) + u64::from(slot.captured_length);
        let words = packet.data.as_chunks::<8>().0.iter();
        let sum = words
            .map(|word| u64::from_le_bytes(*word))
            .fold(0, u64::wrapping_add);
        // The remaining bytes; some were added before.
        let rest = packet.data.last_chunk::<8>();
        let rest = rest.map_or(0, |word| u64::from_le_bytes(*word));
        self.bytes = self.bytes.wrapping_add(sum).wrapping_add(rest);
    }

    /// Expected result for this many packets like the first.
    fn times(self, packets: u64) -> Self {
        SimReadSums {
            packets,
            lengths: self.lengths * packets,
            bytes: self.bytes.wrapping_mul(packets),
        }
    }
}

fn main() -> Result<()> {
    let arguments: std::result::Result<Vec<u32>, _> = std::env::args()
        .skip(1)
        .map(|argument| argument.parse())
        .collect();
    let arguments = arguments.map_err(|error| format!("{error}\n{USAGE}"))?;
    let (rounds, chunks, packets) = match arguments[..] {
        [] => (7, 500, 256),
        [rounds] => (rounds, 500, 256),
        [rounds, chunks, packets] => (rounds, chunks, packets),
        _ => return Err(USAGE.into()),
    };
    let mut rates_mpps = Vec::new();
    let mut max_in_use = 0;
    for _ in 0..rounds {
        let (rate_mpps, in_use) = round(chunks, packets)?;
        rates_mpps.push(rate_mpps);
        max_in_use = max_in_use.max(in_use);
    }
    rates_mpps.sort_by(f64::total_cmp);
    let (Some(least), Some(most)) = (rates_mpps.first(), rates_mpps.last()) else {
        return Ok(());
    };
    let median = rates_mpps[rates_mpps.len() / 2];
    println!(
        r#"{{"benchmark":"sim","chunks":{chunks},"packets_per_chunk":{packets},"packet_bytes":64,"packets":{PACKETS},"rounds":{rounds},"median_mpps":{median:.1},"min_mpps":{least:.1},"max_mpps":{most:.1},"max_chunks_in_use":{max_in_use}}}"#
    );
    println!(
        "simulated NIC, {chunks} chunks of {packets}: {median:.0} Mpps (median of {rounds}, \
         {least:.0} to {most:.0}), at most {max_in_use} chunks in use"
    );
    Ok(())
}

/// Runs a source from its first packet to its last; returns millions of packets per second.
fn round(chunks: u32, packets: u32) -> Result<(f64, u32)> {
    let device = format!("sim:max?size=64&burst={PACKETS}&chunks={chunks}&packets={packets}");
    let device: DeviceSpec = device.parse()?;
    // The source's threads inherit the affinity.
    pin(CAPTURE_CPU)?;
    let mut source = sim::open(&SimOptions::from_device(&device)?)?;
    let begun = Instant::now();
    pin(READER_CPU)?;
    let lanes = source.take_lanes();
    let mut distributor = Distributor::new(source.pool(), lanes, Arc::new(NoSignal));
    let (_, mut reader) = distributor.add_reader(&ReaderOptions {
        policy: Policy::Block,
        ..ReaderOptions::default()
    })?;
    let (first, found, max_in_use) = read(&mut reader, &mut distributor, u64::from(packets))?;
    let seconds = begun.elapsed().as_secs_f64();
    source.stop();
    let counts = source.counts();
    let lost = counts.dropped.nic + counts.lanes[0].dropped.pool_full;
    if found != first.times(PACKETS) || lost != 0 || counts.lanes[0].offered != PACKETS {
        return Err(format!("packets were lost or changed: {found:?} {counts:?}").into());
    }
    Ok((
        f64::from(u32::try_from(PACKETS)?) / seconds / 1e6,
        max_in_use,
    ))
}

/// Reads all packets and steps the distributor; returns the first result, the total, and the maximum
/// number of chunks in use.
fn read(
    reader: &mut Reader,
    distributor: &mut Distributor,
    step_after: u64,
) -> Result<(SimReadSums, SimReadSums, u32)> {
    let (mut first, mut found, mut max_in_use) = (None, SimReadSums::default(), 0);
    let mut since_step = 0;
    while found.packets < PACKETS {
        let before = found.packets;
        if let NextBatch::Batch(batch) = reader.try_next()? {
            let mut packets = batch.packets();
            if first.is_none()
                && let Some(packet) = packets.next()
            {
                found.add(&packet?);
                first = Some(found);
            }
            for packet in packets {
                found.add(&packet?);
            }
            black_box(found);
        }
        let new = found.packets - before;
        since_step += new;
        if new == 0 || since_step >= step_after {
            distributor.step()?;
            max_in_use = max_in_use.max(distributor.chunks_in_use(LaneId(0)));
            since_step = 0;
        }
        if new == 0 {
            std::hint::spin_loop();
        }
    }
    Ok((first.unwrap_or_default(), found, max_in_use))
}

fn pin(cpu: usize) -> Result<()> {
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    let pinned = sched_setaffinity(None, &cpus);
    Ok(pinned.map_err(|error| format!("cannot run on core {cpu}: {error}"))?)
}
