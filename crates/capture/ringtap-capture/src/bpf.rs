// SPDX-License-Identifier: MIT OR Apache-2.0
//! The eBPF toolbox: loads objects, changes programs, attaches them, and explains refusals.
//!
//! Invariants
//! - Programs are attached by links only: the kernel detaches them when the process ends.

#[doc(hidden)]
pub mod attach;
pub(crate) mod clock;
#[doc(hidden)]
pub mod conflict;
pub mod link;
pub(crate) mod map;
pub(crate) mod namespace;
pub mod object;
pub(crate) mod program;
mod refusal;
pub(crate) mod splice;
pub(crate) mod trial;

use std::time::Duration;

use rustix::thread::{MembarrierCommand, membarrier};

/// `RT_NO_RULES` and `RT_FILTERS` of `bpf/splice.h`: replaced by the number of rules and by the
/// filters in a changed copy.
pub(crate) const MARK_RULES: u64 = 0x5254_5f52_554c_4553;
pub(crate) const MARK_FILTERS: u64 = 0x5254_5f46_494c_5453;

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
