// SPDX-License-Identifier: MIT OR Apache-2.0
//! Schedules without a clock, and waiting that can be stopped.

use std::{
    fs::File,
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use ringtap_device::{Rate, Speed};

use super::super::{FileReader, Pace, PaceTurn, Schedule};
use super::made::{Made, ORDERS};

fn pps(rate: u64) -> Speed {
    Speed::Rate(Rate::PacketsPerSecond(rate))
}

#[test]
fn speeds_are_read_as_users_write_them() {
    let speed = |text: &str| text.parse::<Speed>();
    assert_eq!(speed("top"), Ok(Speed::TOP));
    assert_eq!(speed("1x"), Ok(Speed::Recorded { factor: 1.0 }));
    assert_eq!(speed("0.5x"), Ok(Speed::Recorded { factor: 0.5 }));
    assert_eq!(speed("1500pps"), Ok(pps(1500)));
    assert_eq!(speed("2kpps"), Ok(pps(2000)));
    assert_eq!(speed("1.5Mpps"), Ok(pps(1_500_000)));
    for wrong in [
        "", "x", "0x", "-1x", "10", "infx", "NaNpps", "0pps", "fast", "1e400x",
    ] {
        let error = speed(wrong).expect_err(wrong);
        assert!(error.to_string().contains("is not a speed"), "{error}");
    }
}

#[test]
fn recorded_speed_keeps_gaps_divided_by_the_factor() {
    let mut schedule = Schedule::new(Speed::Recorded { factor: 10.0 });
    let due: Vec<_> = [
        5_000_000_000,
        5_000_000_000,
        6_000_000_000,
        4_000_000_000,
        15_000_000_000,
    ]
    .map(|time_ns| schedule.next_ns(time_ns, 60) / 1_000_000)
    .into();
    assert_eq!(due, [0, 0, 100, 100, 1000]);
}

#[test]
fn a_rate_ignores_recorded_times_and_does_not_drift() {
    let mut schedule = Schedule::new(pps(3));
    let due: Vec<_> = (0..300_001).map(|n| schedule.next_ns(n * 77, n)).collect();
    assert_eq!(due[..2], [0, 333_333_334]);
    assert_eq!(due[300_000], 100_000 * 1_000_000_000);
}

#[test]
fn a_mean_gap_parts_two_passes() {
    let mut schedule = Schedule::new(Speed::Recorded { factor: 2.0 });
    let times = [1000, 1400, 1300, 3000];
    let pass = times.map(|time_ns| schedule.next_ns(time_ns, 60));
    assert_eq!(pass, [0, 200, 200, 1000]);
    schedule.again();
    let pass = times.map(|time_ns| schedule.next_ns(time_ns, 60));
    assert_eq!(pass, [1333, 1533, 1533, 2333]);
}

#[test]
fn a_bit_rate_counts_what_the_wire_carries() {
    let mut schedule = Schedule::new(Speed::Rate(Rate::BitsPerSecond(1_000_000)));
    assert_eq!(schedule.next_ns(0, 60), 0);
    assert_eq!(schedule.next_ns(0, 1514), 672_000);
    assert_eq!(schedule.end_ns(), 672_000 + 12_304_000);
}

#[test]
fn pacing_is_never_early() {
    let mut pace = Pace::new(pps(10_000), Arc::default());
    let began = Instant::now();
    for _ in 0..1001 {
        assert_eq!(pace.wait(0), PaceTurn::Due);
    }
    assert!(began.elapsed() >= Duration::from_millis(100));
}

#[test]
fn waiting_ends_when_told_to_stop() {
    let stop = Arc::new(AtomicBool::new(false));
    let mut pace = Pace::new(Speed::Recorded { factor: 1.0 }, Arc::clone(&stop));
    assert_eq!(pace.wait(0), PaceTurn::Due);
    let waiter = thread::spawn(move || pace.wait(u64::MAX));
    thread::sleep(Duration::from_millis(20));
    stop.store(true, Relaxed);
    assert_eq!(waiter.join().unwrap(), PaceTurn::Stopped);
}

#[test]
fn a_silent_pipe_ends_when_told_to_stop() {
    let (from, to) = std::io::pipe().unwrap();
    let mut to = File::from(std::os::fd::OwnedFd::from(to));
    let mut file = Made::new(ORDERS[0]);
    file.pcap_header(0xa1b2_c3d4, 1)
        .pcap_packet(1, 1, 3, b"abc");
    to.write_all(&file.bytes).unwrap();
    to.write_all(b"half a hea").unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let path = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&from));
    let mut reader = FileReader::open(&path)
        .unwrap()
        .stop_when(Arc::clone(&stop));
    assert_eq!(reader.next_packet().unwrap().unwrap().data, b"abc");
    let waiter = thread::spawn(move || reader.next_packet().map(|packet| packet.is_some()));
    thread::sleep(Duration::from_millis(20));
    stop.store(true, Relaxed);
    assert!(!waiter.join().unwrap().unwrap());
    drop(to);
}
