// SPDX-License-Identifier: MIT OR Apache-2.0
//! Users' own analyses: shared libraries in processes of their own.
//!
//! The probe starts one *supervisor* process before it gives up the right to start programs. The supervisor starts the
//! *processes* of all libraries, starts them again when they end, and kills those that do not answer. Each process
//! is a reader of the probe's hub: a member of its library's group, which divides the flows.
//!
//! Invariants
//! - No thread of the probe waits for a library: messages of its process have a limit, and come on a thread of
//!   their own.
//! - A packet is counted as analysed once the results that it is part of have arrived.
//! - A library runs in a sandbox from its first instruction on; no process of it outlives the supervisor or the probe.

mod copy;
#[expect(unsafe_code, reason = "functions of the user's library")]
mod loaded;
mod messages;
mod process;
mod running;
mod supervisor;

pub(crate) use messages::SlotMessage;
pub use messages::{LONGEST_PAUSE, LibraryPlan, ProcessSetup};
pub use process::run;
pub use running::{LibraryError, LibrarySupervisor};
pub(crate) use running::{LibraryLedgers, RunningLibraries, group};
pub use supervisor::serve;
