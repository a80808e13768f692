// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exit statuses of all verbs.
//!
//! Invariants
//! - One kind of end has one status, whichever verb ends.
//! - [`TABLE`] is the only list: manual pages and `docs/command-line.md` have its words.

/// Arguments or a configuration file that cannot be used, as clap has it.
pub(crate) const USAGE: u8 = 2;
/// A source or a sender ended because its interface was removed.
pub(crate) const INTERFACE_REMOVED: u8 = 3;
/// `why` found losses, or `doctor` a fault.
pub(crate) const FOUND: u8 = 4;

/// Status and meaning, in the order of the numbers.
pub(crate) const TABLE: [(&str, &str); 9] = [
    (
        "0",
        "ended as asked: by its limit, a signal, or the end of the file; or the program that read its output ended",
    ),
    (
        "1",
        "failed: the device, the hub, a file or the network; or the counters do not balance",
    ),
    ("2", "the arguments or a configuration file cannot be used"),
    (
        "3",
        "the interface was removed (`--wait` waits for it instead)",
    ),
    (
        "4",
        "`why` found losses or faults; `doctor` found something bad",
    ),
    (
        "10-18, 20",
        "`vm attach` has no VM yet; `ringtap vm --help` lists the reasons",
    ),
    ("19", "`vm migrate-out`: QEMU did not migrate the VM"),
    (
        "126, 127",
        "`exec`: the program cannot run, or does not exist; else the status is that of the program",
    ),
    (
        "128 + N",
        "a second signal N ended it at once, before its end was in order",
    ),
];
