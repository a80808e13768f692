// SPDX-License-Identifier: MIT OR Apache-2.0
//! The counters of a running hub: as JSON, on a screen, in sentences.

pub(crate) mod status;
pub(crate) mod top;
pub(crate) mod why;

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, anyhow};
use clap::Args;
use ringtap_client::{Connection, default_socket};

use crate::reading;

/// Selects a hub.
#[derive(Args, Clone, Debug)]
pub(crate) struct HubSocketArgs {
    /// The hub's socket. Without it: $RINGTAP_SOCKET, else /run/ringtap/hub.sock, else
    /// $XDG_RUNTIME_DIR/ringtap.sock.
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
}

impl HubSocketArgs {
    pub(crate) fn path(&self) -> PathBuf {
        self.socket.clone().unwrap_or_else(default_socket)
    }

    pub(crate) fn connect(&self, verb: &str) -> Result<Connection> {
        Ok(Connection::open(&self.path(), verb)?)
    }
}

/// Parses an interval of at most a day, in seconds.
pub(crate) fn seconds(text: &str) -> Result<Duration> {
    const RANGE: RangeInclusive<Duration> =
        Duration::from_millis(100)..=Duration::from_secs(86_400);
    let interval = reading::seconds(text).ok();
    let interval = interval.filter(|interval| RANGE.contains(interval));
    interval.ok_or_else(|| anyhow!("\"{text}\" is not a number of seconds from 0.1 to 86400"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_that_cannot_be_waited_for_is_refused() {
        assert_eq!(seconds("0.5").unwrap(), Duration::from_millis(500));
        for wrong in ["0", "-1", "NaN", "inf", "1s", "", "1e9"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
