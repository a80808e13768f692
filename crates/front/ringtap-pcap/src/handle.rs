// SPDX-License-Identifier: MIT OR Apache-2.0
//! What stands behind a handle: settings, then a capture; and the text of the last error.
#![forbid(unsafe_code)]

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::abi::{ERROR, ERROR_ACTIVATED, ERROR_NOT_ACTIVATED};
use crate::error::Refused;
use crate::handles::Token;
use crate::live::Live;
use crate::settings::Settings;
use crate::text::ErrorText;

/// libpcap's words, which programs may look for.
const NOT_ACTIVATED: &str = "This handle hasn't been activated yet";
const IS_ACTIVATED: &str = "can't perform  operation on activated capture";

/// One handle.
pub(crate) struct PcapHandle {
    token: &'static Token,
    pub(crate) error: ErrorText,
    settings: Mutex<Settings>,
    live: OnceLock<Live>,
    closed: AtomicBool,
}

impl PcapHandle {
    pub(crate) fn new(token: &'static Token, source: Option<String>) -> Self {
        PcapHandle {
            token,
            error: ErrorText::new(),
            settings: Mutex::new(Settings::new(source)),
            live: OnceLock::new(),
            closed: AtomicBool::new(false),
        }
    }

    pub(crate) fn token(&self) -> &'static Token {
        self.token
    }

    pub(crate) fn settings(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes a setting, as long as that can be done.
    pub(crate) fn set(&self, change: impl FnOnce(&mut Settings) -> c_int) -> c_int {
        if self.live.get().is_some() {
            self.error.set(IS_ACTIVATED);
            return ERROR_ACTIVATED;
        }
        change(&mut self.settings())
    }

    /// The capture, if there is one.
    pub(crate) fn live(&self) -> Option<&Live> {
        self.live.get()
    }

    /// Does `work` with the capture; an error if there is none, or if there is one.
    pub(crate) fn with_live(&self, work: impl FnOnce(&Live) -> Result<c_int, Refused>) -> c_int {
        let Some(live) = self.live.get() else {
            self.error.set(NOT_ACTIVATED);
            return ERROR_NOT_ACTIVATED;
        };
        self.told(work(live))
    }

    /// The status of an outcome, whose text is kept.
    pub(crate) fn told(&self, outcome: Result<c_int, Refused>) -> c_int {
        outcome.unwrap_or_else(|refused| {
            self.error.set(&refused.text);
            refused.status
        })
    }

    /// A number of the capture; libpcap gives no text where there is none.
    pub(crate) fn number(&self, number: impl FnOnce(&Live) -> c_int) -> c_int {
        self.live.get().map_or(ERROR_NOT_ACTIVATED, number)
    }

    /// Begins to capture.
    pub(crate) fn go_live(&self, live: Live) -> c_int {
        match self.live.set(live) {
            Ok(()) => 0,
            Err(_) => ERROR,
        }
    }

    /// Says that nobody will call any more, and that who is inside is to come out.
    pub(crate) fn close(&self) {
        self.closed.store(true, Release);
    }

    /// Ends the capture, whoever still holds the handle.
    pub(crate) fn end(&self) {
        if let Some(live) = self.live() {
            live.end_stay();
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Acquire)
    }
}

impl Drop for PcapHandle {
    fn drop(&mut self) {
        self.token.retire();
    }
}
