// SPDX-License-Identifier: MIT OR Apache-2.0
//! One handle: its settings until it is activated, then its capture; and its last error.

use std::ffi::c_int;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use ringtap_filter::MAX_SNAP_LENGTH;
use ringtap_ipc::mutex::lock;

use crate::abi::{ERROR, ERROR_ACTIVATED, ERROR_NOT_ACTIVATED};
use crate::abi::{PRECISION_NANO, TSTAMP_HOST};
use crate::capture::{PacketReader, PcapCapture};
use crate::error::LibpcapError;
use crate::handles::HandleToken;
use crate::reading::ReadState;
use crate::text::ErrorText;

/// libpcap's error texts, which programs may compare.
const NOT_ACTIVATED: &str = "This handle hasn't been activated yet";
const IS_ACTIVATED: &str = "can't perform  operation on activated capture";

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

pub(crate) struct PcapHandle {
    token: &'static HandleToken,
    pub(crate) error: ErrorText,
    settings: Mutex<PcapSettings>,
    capture: OnceLock<PcapCapture>,
}

impl PcapHandle {
    pub(crate) fn new(token: &'static HandleToken, source: Option<String>) -> Self {
        PcapHandle {
            token,
            error: ErrorText::new(),
            settings: Mutex::new(PcapSettings {
                source,
                ..PcapSettings::default()
            }),
            capture: OnceLock::new(),
        }
    }

    pub(crate) fn token(&self) -> &'static HandleToken {
        self.token
    }

    pub(crate) fn settings(&self) -> MutexGuard<'_, PcapSettings> {
        lock(&self.settings)
    }

    /// Changes a setting; an error once the handle is activated.
    pub(crate) fn set(&self, change: impl FnOnce(&mut PcapSettings)) -> c_int {
        if self.capture.get().is_some() {
            self.error.set(IS_ACTIVATED);
            return ERROR_ACTIVATED;
        }
        change(&mut self.settings());
        0
    }

    /// The capture, once the handle is activated.
    pub(crate) fn capture(&self) -> Option<&PcapCapture> {
        self.capture.get()
    }

    /// Runs `work` with the capture; fails before the handle is activated.
    pub(crate) fn with_capture(
        &self,
        work: impl FnOnce(&PcapCapture) -> Result<c_int, LibpcapError>,
    ) -> c_int {
        let Some(capture) = self.capture.get() else {
            self.error.set(NOT_ACTIVATED);
            return ERROR_NOT_ACTIVATED;
        };
        self.status(work(capture))
    }

    /// The status of an outcome; stores the text of an error.
    pub(crate) fn status(&self, outcome: Result<c_int, LibpcapError>) -> c_int {
        outcome.unwrap_or_else(|error| {
            self.error.set(&error.text);
            error.status
        })
    }

    /// A number of the capture; an error before activation has no text in libpcap.
    pub(crate) fn number(&self, number: impl FnOnce(&PcapCapture) -> c_int) -> c_int {
        self.capture.get().map_or(ERROR_NOT_ACTIVATED, number)
    }

    /// Stores the started capture, and lets the program read from it.
    pub(crate) fn begin(
        self: &Arc<Self>,
        (capture, mut reader): (PcapCapture, PacketReader),
    ) -> Result<(), LibpcapError> {
        reader.begin(self.token)?;
        let begun = self.capture.set(capture);
        begun.map_err(|_| LibpcapError::new(ERROR, "the handle is being activated already"))?;
        let handle = Arc::clone(self);
        self.token.begin(ReadState { handle, reader });
        Ok(())
    }

    /// Whether a read must end: its loop is broken or the handle is closed.
    pub(crate) fn take_break(&self) -> bool {
        self.token.shared.window.clear_interrupt();
        self.token.take_break() || self.token.shared.closed.load(SeqCst) != 0
    }
}

impl Drop for PcapHandle {
    fn drop(&mut self) {
        self.token.retire();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_impossible_snap_length_keeps_all_of_the_packet() {
        let mut settings = PcapSettings::default();
        for (asked, kept) in [(96, 96), (0, 262_144), (-5, 262_144), (c_int::MAX, 262_144)] {
            settings.snap_bytes = asked;
            assert_eq!(settings.snap_length(), kept);
        }
    }
}
