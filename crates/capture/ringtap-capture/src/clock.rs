// SPDX-License-Identifier: MIT OR Apache-2.0
//! Difference between TAI, which eBPF can read, and UTC, which slots hold.
//!
//! The kernel tells nobody when the difference changes (`adjtimex` with `ADJ_TAI`); a step of the wall
//! clock does not change it. The monitors of the interfaces read it every second.

use std::io;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use rustix::time::{ClockId, DynamicClockId, Timespec, clock_gettime, clock_gettime_dynamic};

const SECOND_NS: i64 = 1_000_000_000;

/// The difference at the last reading.
static TAI_MINUS_UTC_NS: AtomicI64 = AtomicI64::new(0);

/// TAI minus UTC in nanoseconds at the last reading; a whole number of seconds.
#[inline]
pub(crate) fn tai_minus_utc_ns() -> i64 {
    TAI_MINUS_UTC_NS.load(Relaxed)
}

/// Reads the difference again; keeps the old one on a failure.
pub(crate) fn refresh() {
    let _old = read();
}

/// Reads the difference (0 if the kernel's offset is not set).
pub(crate) fn read() -> io::Result<i64> {
    let difference_ns = measure()?;
    TAI_MINUS_UTC_NS.store(difference_ns, Relaxed);
    Ok(difference_ns)
}

fn measure() -> io::Result<i64> {
    loop {
        let before = clock_gettime(ClockId::Realtime);
        let atomic = clock_gettime_dynamic(DynamicClockId::Tai)?;
        let after = clock_gettime(ClockId::Realtime);
        // Without a long interruption, rounding gives the exact second.
        if nanoseconds(after) - nanoseconds(before) < 100_000_000 {
            return Ok(round(nanoseconds(atomic) - nanoseconds(before)) + injected_ns());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The wall clock minus the time since boot (CLOCK_MONOTONIC): the most exact of a few measurements.
pub(crate) fn wall_minus_boot_ns() -> i64 {
    let measurements = (0..4).map(|_| {
        let before = nanoseconds(clock_gettime(ClockId::Monotonic));
        let wall = nanoseconds(clock_gettime(ClockId::Realtime));
        let after = nanoseconds(clock_gettime(ClockId::Monotonic));
        (after - before, wall - before - (after - before) / 2)
    });
    measurements.min().map_or(0, |(_, difference)| difference)
}

pub(crate) fn nanoseconds(time: Timespec) -> i64 {
    time.tv_sec
        .saturating_mul(SECOND_NS)
        .saturating_add(time.tv_nsec)
}

fn round(difference_ns: i64) -> i64 {
    (difference_ns + SECOND_NS / 2).div_euclid(SECOND_NS) * SECOND_NS
}

/// Nanoseconds that tests add to the difference, which belongs to the whole machine.
#[cfg(test)]
static INJECTED_NS: AtomicI64 = AtomicI64::new(0);

#[cfg(test)]
fn injected_ns() -> i64 {
    INJECTED_NS.load(Relaxed)
}

#[cfg(not(test))]
const fn injected_ns() -> i64 {
    0
}

#[cfg(test)]
mod tests;
