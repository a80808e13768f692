// SPDX-License-Identifier: MIT OR Apache-2.0
//! Live migration of a guest, between an unplug here and a plug at the destination.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::budget::GuestLimits;
use super::inventory;
use super::qmp::{Monitor, Qmp};
use super::vm::VmError;

/// Interval between two looks at the state of a migration.
const LOOK: Duration = Duration::from_millis(20);

/// Prefix that no name of a device has.
const NO_EVENTS: &str = "/";

/// Duration of a migration, as QEMU measured it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migration {
    /// From the command to the end.
    pub total_ms: u64,
    /// Time during which the guest did not run.
    pub downtime_ms: u64,
}

/// Migrates a guest, from which everything is unplugged, to the QEMU that waits at `uri`. A migration
/// that has not ended after `limit` is cancelled.
///
/// # Errors
///
/// [`VmError::Migration`]: the guest goes on here; and those of [`GuestVm::attach`](super::GuestVm::attach).
pub fn migrate(monitor: &Monitor, uri: &str, limit: Duration) -> Result<Migration, VmError> {
    let mut qmp = Qmp::connect(monitor, NO_EVENTS, &GuestLimits::default())?;
    inventory::check(&mut qmp)?;
    qmp.run("migrate", json!({ "uri": uri }))?;
    let deadline = Instant::now() + limit;
    let mut is_cancelled = false;
    loop {
        let state = qmp.run("query-migrate", json!({}))?;
        let text = |name| state.get(name).and_then(Value::as_str);
        let number = |name| state.get(name).and_then(Value::as_u64).unwrap_or_default();
        match text("status") {
            Some("completed") => {
                return Ok(Migration {
                    total_ms: number("total-time"),
                    downtime_ms: number("downtime"),
                });
            }
            Some("failed") => {
                let reason = text("error-desc").unwrap_or("QEMU says no reason");
                return Err(VmError::Migration(reason.to_owned()));
            }
            Some("cancelled") => {
                let reason = format!("it did not end within {} s", limit.as_secs());
                return Err(VmError::Migration(reason));
            }
            _ => {}
        }
        if Instant::now() >= deadline && !is_cancelled {
            qmp.run("migrate_cancel", json!({}))?;
            is_cancelled = true;
        }
        std::thread::sleep(LOOK);
    }
}

/// Waits at most `limit` while the guest still migrates to this QEMU.
pub(super) fn wait_for_arrival(qmp: &mut Qmp, limit: Duration) -> Result<(), VmError> {
    let deadline = Instant::now() + limit;
    while inventory::state(qmp)? == "inmigrate" && Instant::now() < deadline {
        std::thread::sleep(LOOK);
    }
    Ok(())
}
