// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attacks by an ordinary user, written in Python from the documents alone (`lab/ringtap_lab/attack/`).

mod chaos;
mod neighbours;
mod pool;

use std::process::Command;

const BINARY: &str = env!("CARGO_BIN_EXE_ringtap");

/// A command of the lab, `ringtap-lab NAME`.
fn lab(name: &str) -> Command {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../scripts/lab");
    let mut command = Command::new(script);
    command.arg(name);
    command
}
