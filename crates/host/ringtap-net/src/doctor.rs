// SPDX-License-Identifier: MIT OR Apache-2.0
//! What kernel, interface, driver and limits allow, why it matters, and what to change.
//!
//! Invariants
//! - [`examine`] changes nothing, and [`fix`] changes only what [`restore`] restores.
//! - The command that restores a setting is stored before the setting changes.

mod answers;
mod device;
mod findings;
mod machine;
mod repair;

#[cfg(test)]
mod tests;

use std::thread;

use answers::DeviceAnswers;
pub use findings::{Diagnosis, Remedy, Severity};
pub use repair::{RepairError, fix, restore};

use crate::interface::{Interface, InterfaceError};
use crate::interrupts;
use crate::rights::Purpose;

/// Examines this machine and its rights for these purposes, and an interface if named.
///
/// # Errors
///
/// There is no such interface.
pub fn examine(
    interface: Option<&str>,
    purposes: &[Purpose],
) -> Result<Vec<Diagnosis>, InterfaceError> {
    let mut all = machine::diagnose(purposes);
    if let Some(name) = interface {
        let interface = Interface::find(name)?;
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        let answers = DeviceAnswers::ask(&interface.name, interface.index);
        all.extend(device::diagnose(&interface.name, &answers, cpus));
        if let Some(cpu) = interrupts::receiving_cpu(&interface.name) {
            all.push(Diagnosis::good(
                "interrupts",
                format!("CPU {cpu} receives: `--cpu auto` puts capture and reader near it"),
            ));
        }
    }
    Ok(all)
}
