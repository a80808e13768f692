// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tools for tests that need root: private networks, child processes with time limits, skips that
//! are always printed.
//!
//! Invariants
//! - Used as a dev-dependency only; a failure here panics, because the panic is the test's report.
//! - Dropping a [`Namespace`] or a [`Running`] removes everything that it made, also while a panic
//!   unwinds.
//! - Each skipped test prints a line that starts with `SKIPPED:`.
//!
//! ```no_run
//! use ringtap_testkit::{Namespace, require_root, require_tool};
//!
//! # fn tap_counts_what_was_sent() {
//! require_root!();
//! require_tool!("tcpdump");
//! let net = Namespace::with_veth("tap_counts_what_was_sent");
//! let dump = net.spawn("tcpdump", &["-i", "rx0", "-c", "1"]);
//! net.inject("tx0", &[vec![0xff; 64]]);
//! # drop(dump);
//! # }
//! ```

#![forbid(unsafe_code)]

mod exit_folder;
mod lanes;
mod leftovers;
mod libvirt;
mod limit;
mod machine;
mod namespace;
mod needs;
mod public;
mod running;
mod script;
mod settle;
mod talk;
mod wire;
mod with;

pub use exit_folder::{folder_until_exit, stale_folders};
pub use lanes::{LANE_PACKETS, LaneOrder, send_on};
pub use leftovers::{EbpfObject, assert_no_orphans, ebpf_objects_of, wait_until_gone};
pub use libvirt::{DOMAIN, LibvirtDomain};
pub use limit::LIMIT;
pub use machine::{GUEST_LIMIT, GUEST_MODULES, GUEST_STARTED, VirtualMachine};
pub use namespace::Namespace;
pub use needs::{bpftool, missing_capability, say_skipped, tool_exists};
pub use public::{NOBODY, PublicProgram};
pub use running::{Finished, Running};
pub use script::Script;
pub use settle::{sending_cpu, settle, settle_everywhere, usable_cpus};
pub use talk::LoCapture;
pub use wire::{Ends, Wire};
pub use with::with;
