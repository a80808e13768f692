// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attacks by an ordinary user, written in Python from the documents alone (`lab/attack/`).

mod chaos;
mod neighbours;
mod pool;

use std::path::PathBuf;

const BINARY: &str = env!("CARGO_BIN_EXE_ringtap");

/// A script of the lab.
fn lab(script: &str) -> PathBuf {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../lab");
    PathBuf::from(root).join(script)
}
