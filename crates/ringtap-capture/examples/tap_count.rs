// SPDX-License-Identifier: MIT OR Apache-2.0
//! `tap_count INTERFACE SECONDS [KEY=VALUE]...`: captures with a tap, reads in place, prints JSON.
//!
//! Keys: mode (auto, native, generic, tc), direction (in, out, inout), exclusive (true),
//! snap, pool (bytes), chunk (bytes).

use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringtap_capture::tap::{Direction, Mode, Taking, Tap, TapOptions};
use ringtap_pool::distributor::{Distributor, ReaderOptions};
use ringtap_pool::reader::{Next, Reader};
use ringtap_pool::source::{Source, Status};
use ringtap_pool::wake::NoSignal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How long to look for packets before sleeping.
const SPIN: Duration = Duration::from_micros(100);

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tap_count: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let usage = "usage: tap_count INTERFACE SECONDS [KEY=VALUE]...";
    let mut arguments = env::args().skip(1);
    let mut options = TapOptions::new(arguments.next().ok_or(usage)?);
    let seconds = Duration::try_from_secs_f64(arguments.next().ok_or(usage)?.parse()?)?;
    for argument in arguments {
        set(&mut options, &argument)?;
    }
    let mut tap = Tap::attach(&options)?;
    for note in &tap.facts().notes {
        eprintln!("note: {note}");
    }
    eprintln!("ready: {}", tap.facts().offered_from);
    let mut distributor = Distributor::new(tap.pool(), tap.take_lanes(), Arc::new(NoSignal));
    let (id, mut reader) = distributor.add_reader(&ReaderOptions::default())?;
    let end = Instant::now() + seconds;
    let (mut packets, mut sum, mut last) = (0, 0, Instant::now());
    while Instant::now() < end {
        let moved = distributor.step()?;
        if read(&mut reader, &mut packets, &mut sum)? || moved {
            last = Instant::now();
            continue;
        }
        // Signals cost the capture side more than looking again does, and looking without pause
        // costs it the cache lines that it is about to write.
        if last.elapsed() < SPIN {
            (0..100).for_each(|_| std::hint::spin_loop());
            continue;
        }
        if let Status::Failed(error) = tap.status() {
            eprintln!("{error}");
            break;
        }
        reader.sleeper().arm();
        if read(&mut reader, &mut packets, &mut sum)? || distributor.step()? {
            continue;
        }
        let wait = Timespec {
            tv_sec: 0,
            tv_nsec: 2_000_000,
        };
        let _ready = poll(
            &mut [PollFd::new(&tap.wake_fd(), PollFlags::IN)],
            Some(&wait),
        )?;
        tap.clear_wake();
    }
    tap.stop();
    while distributor.step()? | read(&mut reader, &mut packets, &mut sum)? {}
    let counts = tap.counts();
    let total = |f: fn(&ringtap_pool::source::LaneCounts) -> u64| -> u64 {
        counts.lanes.iter().map(f).sum()
    };
    let slow: u64 = (0..tap.pool().geometry().lane_count)
        .map(|lane| {
            distributor
                .missed(id, ringtap_pool::ids::LaneId(lane))
                .packets
        })
        .sum();
    println!(
        "{{\"offered\":{},\"delivered\":{packets},\"no_chunk\":{},\"kernel\":{},\
         \"slow_reader\":{slow},\"touched\":{sum}}}",
        total(|lane| lane.seen),
        total(|lane| lane.no_chunk),
        total(|lane| lane.kernel),
    );
    Ok(())
}

fn set(options: &mut TapOptions, argument: &str) -> Result<(), Box<dyn Error>> {
    let (key, value) = argument.split_once('=').ok_or("want KEY=VALUE")?;
    match (key, value) {
        ("mode", "auto") => options.mode = Mode::Auto,
        ("mode", "native") => options.mode = Mode::Native,
        ("mode", "generic") => options.mode = Mode::Generic,
        ("mode", "tc") => options.mode = Mode::Tc,
        ("direction", "in") => options.direction = Direction::In,
        ("direction", "out") => options.direction = Direction::Out,
        ("direction", "inout") => options.direction = Direction::InOut,
        ("exclusive", "true") => options.taking = Taking::Exclusive,
        ("snap", _) => options.snap_length = value.parse()?,
        ("pool", _) => options.pool_bytes = value.parse()?,
        ("chunk", _) => options.chunk_size = value.parse()?,
        _ => return Err(format!("what is {argument}?").into()),
    }
    Ok(())
}

/// Reads all there is, touching every slot and the first bytes of every packet.
fn read(reader: &mut Reader, packets: &mut u64, sum: &mut u64) -> Result<bool, Box<dyn Error>> {
    let mut any = false;
    while let Next::Batch(batch) = reader.next()? {
        any = true;
        for packet in batch.packets() {
            let packet = packet?;
            *packets += 1;
            let first = packet
                .data
                .first_chunk::<8>()
                .map_or(0, |bytes| u64::from_ne_bytes(*bytes));
            *sum = sum.wrapping_add(first ^ packet.slot.time_ns);
        }
    }
    Ok(any)
}
