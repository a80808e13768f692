// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times in nanoseconds, as in packets.

use std::time::{Duration, SystemTime};

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
