// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a program set on a handle before it was activated.
#![forbid(unsafe_code)]

use std::ffi::c_int;
use std::time::Duration;

use crate::abi::{MOST_SNAP_BYTES, PRECISION_MICRO, PRECISION_NANO, TSTAMP_HOST};

/// What `pcap_create` begins with and the `pcap_set_*` functions change.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The device as the program named it; absent for "any".
    pub(crate) source: Option<String>,
    pub(crate) snap_bytes: c_int,
    pub(crate) promiscuous: c_int,
    pub(crate) rfmon: c_int,
    pub(crate) timeout_ms: c_int,
    pub(crate) immediate: c_int,
    pub(crate) buffer_bytes: Option<c_int>,
    pub(crate) tstamp_type: Option<c_int>,
    pub(crate) precision: c_int,
    pub(crate) protocol: Option<c_int>,
    pub(crate) nonblock: c_int,
}

impl Settings {
    pub(crate) fn new(source: Option<String>) -> Self {
        Settings {
            source,
            snap_bytes: 0,
            promiscuous: 0,
            rfmon: 0,
            timeout_ms: 0,
            immediate: 0,
            buffer_bytes: None,
            tstamp_type: None,
            precision: PRECISION_MICRO,
            protocol: None,
            nonblock: 0,
        }
    }

    /// Bytes to keep of each packet: what makes no sense is as much as there can be.
    pub(crate) fn snap_length(&self) -> u32 {
        let known = (1..=MOST_SNAP_BYTES).contains(&self.snap_bytes);
        let bytes = if known {
            self.snap_bytes
        } else {
            MOST_SNAP_BYTES
        };
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    /// How long a read waits; for ever if not said.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        let ms = u64::try_from(self.timeout_ms).ok().filter(|ms| *ms > 0)?;
        Some(Duration::from_millis(ms))
    }

    /// Whether times are told in nanoseconds.
    pub(crate) fn nanoseconds(&self) -> bool {
        self.precision == PRECISION_NANO
    }

    /// What only the real library can do, if such a thing was asked for.
    pub(crate) fn beyond_us(&self) -> Option<&'static str> {
        if self.rfmon != 0 {
            return Some("monitor mode was asked for");
        }
        if self.protocol.is_some_and(|protocol| protocol != 0) {
            return Some("a protocol of the packet socket was asked for");
        }
        match self.tstamp_type {
            None | Some(TSTAMP_HOST) => None,
            Some(_) => Some("another time stamp type than the host's was asked for"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snap_length_that_makes_no_sense_is_all_of_the_packet() {
        let mut settings = Settings::new(None);
        for (asked, kept) in [(96, 96), (0, 262_144), (-5, 262_144), (c_int::MAX, 262_144)] {
            settings.snap_bytes = asked;
            assert_eq!(settings.snap_length(), kept);
        }
    }
}
