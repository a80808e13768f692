// SPDX-License-Identifier: MIT OR Apache-2.0
//! One handle: its settings until it is activated, then its capture; and its last error.

use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use ringtap_ipc::mutex::lock;

use crate::abi::{ERROR, ERROR_ACTIVATED, ERROR_NOT_ACTIVATED};
use crate::capture::{PacketReader, PcapCapture};
use crate::control::ReadControl;
use crate::error::LibpcapError;
use crate::handles::{HandleToken, ReadState};
use crate::settings::PcapSettings;
use crate::text::ErrorText;

/// libpcap's error texts, which programs may compare.
const NOT_ACTIVATED: &str = "This handle hasn't been activated yet";
const IS_ACTIVATED: &str = "can't perform  operation on activated capture";

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

    /// Break requests, wake-up and window of the handle's reads.
    pub(crate) fn control(&self) -> &'static ReadControl {
        &self.token.control
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
        reader.begin(self.control())?;
        let begun = self.capture.set(capture);
        begun.map_err(|_| LibpcapError::new(ERROR, "the handle is being activated already"))?;
        let handle = Arc::clone(self);
        self.token.begin(ReadState { handle, reader });
        Ok(())
    }
}

impl Drop for PcapHandle {
    fn drop(&mut self) {
        self.token.retire();
    }
}
