// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times in nanoseconds, as in packets, and processor time.

use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, clock_gettime};

/// Time now, in nanoseconds since 1970; 0 if the machine's clock is earlier.
#[must_use]
pub fn now_ns() -> u64 {
    nanoseconds(SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default())
}

/// A duration in nanoseconds; `u64::MAX` for more than 584 years.
#[must_use]
pub fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Processor time of the calling thread so far.
#[must_use]
pub fn thread_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// Time of the clock that never steps (`CLOCK_MONOTONIC`), in nanoseconds.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let now = Duration::try_from(clock_gettime(ClockId::Monotonic));
    nanoseconds(now.unwrap_or_default())
}
