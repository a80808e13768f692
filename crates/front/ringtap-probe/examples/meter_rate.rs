// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rate of flow metering alone: packets of many flows, made in memory, through one meter.
//!
//! The rate is packets per second of the thread's processor time, without the time in which the flows begin. At the end
//! all flows become idle while one goes on. The longest time for a group of packets, in each part, is how long others
//! waited at most. Compare two versions by turns, in one run: the speed of a machine changes.

use std::error::Error;
use std::time::Duration;

use ringtap_probe::flows::FlowOptions;
use ringtap_probe::rate::MeterRun;
use rustix::time::{ClockId, clock_gettime};

const USAGE: &str =
    "usage: meter_rate FLOWS PACKETS [udp|tcp] [uniform|zipf]   (65536 20000000 udp uniform)";
/// Length of a frame without its check sequence, in bytes.
const FRAME_BYTES: usize = 60;
/// Packets that a worker takes together.
const GROUP: usize = 32;
/// Idle time-out of flows.
const IDLE: Duration = Duration::from_secs(60);
/// Frames made at a time.
const FRAMES: usize = 1024;
/// Time between two packets in nanoseconds.
const GAP_NS: u64 = 250;
const START_NS: u64 = 1_700_000_000_000_000_000;
/// Ethernet and IPv4 headers from 10.0.0.0 to 11.0.0.0; protocol and addresses are filled in.
const HEADERS: [u8; 34] = [
    2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 8, 0, 0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 0, 0, 0, 10, 0, 0,
    0, 11, 0, 0, 0,
];
/// TCP header behind the ports: numbers, offset, ACK, window.
const TCP: [u8; 16] = [0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 4, 0, 0, 0, 0, 0];
/// UDP header behind the ports: the length.
const UDP: [u8; 4] = [0, 26, 0, 0];

/// Makes packets.
struct Frames {
    frames: Vec<[u8; FRAME_BYTES]>,
    flows: u32,
    is_zipf: bool,
    random: u64,
    time_ns: u64,
    /// Longest processor time for packets that were sent together, since it was taken last.
    longest: Duration,
}

impl Frames {
    fn new(flows: u32, is_tcp: bool, is_zipf: bool) -> Self {
        let mut frame = [0; FRAME_BYTES];
        frame[..HEADERS.len()].copy_from_slice(&HEADERS);
        frame[23] = if is_tcp { 6 } else { 17 };
        let transport = if is_tcp { &TCP[..] } else { &UDP[..] };
        frame[38..38 + transport.len()].copy_from_slice(transport);
        Frames {
            frames: vec![frame; FRAMES],
            flows,
            is_zipf,
            random: 0x9e37_79b9_7f4a_7c15,
            time_ns: START_NS,
            longest: Duration::ZERO,
        }
    }

    /// A flow by chance: all alike, or with the frequencies of Zipf's law (exponent 1).
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a random number below the number of flows"
    )]
    fn random_flow(&mut self) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let upper = self.random >> 32;
        if self.is_zipf {
            let exponent = upper as f64 / f64::from(u32::MAX);
            (f64::from(self.flows).powf(exponent) as u32 - 1).min(self.flows - 1)
        } else {
            ((upper * u64::from(self.flows)) >> 32) as u32
        }
    }

    /// Meters a packet of each of these flows.
    fn send(&mut self, run: &mut MeterRun, flows: &[u32]) {
        for (frame, flow) in self.frames.iter_mut().zip(flows) {
            let [a, b, c, d] = flow.to_be_bytes();
            // One packet in four is an answer.
            let is_answer = self.time_ns / GAP_NS % 4 == 3;
            self.time_ns += GAP_NS;
            let (client, server) = ([10, a, b, c], [11, 0, 0, d]);
            let (source, destination) = if is_answer {
                (server, client)
            } else {
                (client, server)
            };
            frame[26..30].copy_from_slice(&source);
            frame[30..34].copy_from_slice(&destination);
            let ports = if is_answer {
                [0, 99, 200, d]
            } else {
                [200, d, 0, 99]
            };
            frame[34..38].copy_from_slice(&ports);
        }
        let first_ns = self.time_ns - GAP_NS * flows.len() as u64;
        let mut times = (0..).map(|number| first_ns + number * GAP_NS);
        for group in self.frames[..flows.len()].chunks(GROUP) {
            let before = processor_time();
            let frames = group.iter().zip(times.by_ref());
            run.meter(frames.map(|(frame, time_ns)| (time_ns, &frame[..])));
            self.longest = self.longest.max(processor_time() - before);
        }
    }

    /// The longest time so far, in milliseconds.
    fn take_longest_ms(&mut self) -> f64 {
        std::mem::take(&mut self.longest).as_secs_f64() * 1e3
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let number = |at: usize, usual: u32| {
        let text = arguments.get(at);
        text.map_or(Ok(usual), |text| text.replace('_', "").parse())
    };
    let (Ok(flows), Ok(packets)) = (number(0, 65_536), number(1, 20_000_000)) else {
        return Err(USAGE.into());
    };
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    let options = FlowOptions {
        max_flows: flows.max(1_000_000),
        idle: IDLE,
        payload_bytes: 0,
        ..FlowOptions::default()
    };
    let mut run = MeterRun::new(options);
    let mut frames = Frames::new(flows.max(1), has("tcp"), has("zipf"));
    let all: Vec<u32> = (0..flows).collect();
    let before = processor_time();
    all.chunks(FRAMES)
        .for_each(|some| frames.send(&mut run, some));
    let start = processor_time();
    let mut longest_ms = [frames.take_longest_ms(), 0.0, 0.0];
    let mut some = vec![0; FRAMES];
    let rounds = packets as usize / FRAMES;
    for _ in 0..rounds {
        some.iter_mut()
            .for_each(|flow| *flow = frames.random_flow());
        frames.send(&mut run, &some);
    }
    let end = processor_time();
    longest_ms[1] = frames.take_longest_ms();
    let sent = (rounds * FRAMES) as u64;
    // Each flow ends in this time.
    frames.time_ns += 2 * IDLE.as_secs() * 1_000_000_000;
    let last = u64::from(flows)
        .max(FRAMES as u64)
        .next_multiple_of(FRAMES as u64);
    for _ in 0..last / FRAMES as u64 {
        frames.send(&mut run, &[0; FRAMES]);
    }
    longest_ms[2] = frames.take_longest_ms();
    let totals = run.finish();
    let expected = sent + u64::from(flows) + last;
    if totals.packets != expected || totals.bytes != 46 * expected {
        return Err(format!("{expected} packets were metered, the records say {totals:?}").into());
    }
    let [begin, go_on, expire] = longest_ms;
    println!(
        "{:.3} Mpps, {:.3} million new flows a second; longest for {GROUP} packets: {begin:.3} ms while flows begin, \
         {go_on:.3} ms afterwards, {expire:.3} ms while they expire",
        mega(sent) / (end - start).as_secs_f64(),
        mega(flows.into()) / (start - before).as_secs_f64()
    );
    Ok(())
}

/// Processor time of the thread.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn mega(count: u64) -> f64 {
    count as f64 / 1e6
}
