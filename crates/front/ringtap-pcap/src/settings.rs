// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings of a handle, as the program gives them before it activates the handle.

use std::ffi::c_int;
use std::time::Duration;

use ringtap_filter::MAX_SNAP_LENGTH;

use crate::abi::{PRECISION_NANO, TSTAMP_HOST};

/// A program with at least this time-out, and without immediate mode, lets packets wait.
const PATIENT_MS: c_int = 10;

/// Settings of a handle. As in libpcap, a number is 0 until a `pcap_set_*` function sets it.
#[derive(Clone, Debug, Default)]
pub(crate) struct PcapSettings {
    /// The device as the program named it; absent: "any".
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

impl PcapSettings {
    /// Bytes to keep of each packet; an impossible setting counts as the largest number.
    pub(crate) fn snap_length(&self) -> u32 {
        match u32::try_from(self.snap_bytes) {
            Ok(possible @ 1..=MAX_SNAP_LENGTH) => possible,
            _ => MAX_SNAP_LENGTH,
        }
    }

    /// Longest wait of a read; absent: without limit.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        let ms = u64::try_from(self.timeout_ms).ok().filter(|ms| *ms > 0)?;
        Some(Duration::from_millis(ms))
    }

    /// Whether the program lets packets wait for each other, so that it is woken less often.
    pub(crate) fn lets_packets_wait(&self) -> bool {
        self.immediate == 0 && self.timeout_ms >= PATIENT_MS
    }

    /// Whether time stamps are in nanoseconds.
    pub(crate) fn nanoseconds(&self) -> bool {
        self.precision == PRECISION_NANO
    }

    /// Name of a setting in use that only the real library supports.
    pub(crate) fn unsupported(&self) -> Option<&'static str> {
        if self.rfmon != 0 {
            return Some("the program asks for monitor mode");
        }
        if self.protocol.is_some_and(|protocol| protocol != 0) {
            return Some("the program asks for a protocol of the packet socket");
        }
        match self.tstamp_type {
            None | Some(TSTAMP_HOST) => None,
            Some(_) => Some("the program asks for another time stamp type than the host's"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_wait_only_for_a_program_that_lets_them() {
        for (timeout_ms, immediate, wait) in [
            (1000, 0, true),
            (10, 0, true),
            (9, 0, false),
            (0, 0, false),
            (1000, 1, false),
        ] {
            let settings = PcapSettings {
                timeout_ms,
                immediate,
                ..PcapSettings::default()
            };
            assert_eq!(
                settings.lets_packets_wait(),
                wait,
                "{timeout_ms} ms, {immediate}"
            );
        }
    }

    #[test]
    fn an_impossible_snap_length_keeps_all_of_the_packet() {
        let mut settings = PcapSettings::default();
        for (asked, kept) in [(96, 96), (0, 262_144), (-5, 262_144), (c_int::MAX, 262_144)] {
            settings.snap_bytes = asked;
            assert_eq!(settings.snap_length(), kept);
        }
    }
}
