// SPDX-License-Identifier: MIT OR Apache-2.0
//! The eBPF toolbox: loads objects, changes programs, attaches them, and explains refusals.
//!
//! Invariants
//! - Programs are attached by links only: the kernel detaches them when the process ends.

pub mod attach;
pub mod conflict;
mod error;
pub mod link;
pub mod map;
mod namespace;
pub mod object;
pub mod program;
mod refusal;
pub mod splice;
mod timing;
pub mod trial;

use std::time::Duration;

pub use error::BpfError;
use rustix::thread::{MembarrierCommand, membarrier};

/// Waits until all running programs and driver polling rounds have ended.
///
/// Returns `false` where the kernel cannot tell (`nohz_full`), after a wait far longer than a run.
pub fn wait_for_running_programs() -> bool {
    // The kernel waits until every CPU has left its running programs.
    let is_sure = membarrier(MembarrierCommand::Global).is_ok();
    if !is_sure {
        std::thread::sleep(Duration::from_millis(50));
    }
    is_sure
}
