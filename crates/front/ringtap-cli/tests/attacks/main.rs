// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attacks by an ordinary user, written in Python from the documents alone (`checks/ringtap_checks/attack/`).

mod chaos;
mod neighbours;
mod pool;

use std::process::Command;
use std::time::Duration;

use ringtap_testkit::Running;

const BINARY: &str = env!("CARGO_BIN_EXE_ringtap");
/// The lab waits for its conditions, each for minutes.
const LIMIT: Duration = Duration::from_secs(1200);

/// A file or folder of the project.
macro_rules! project {
    ($path:literal) => {
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../../", $path)
    };
}
pub(crate) use project;

/// Measures the battery `NAME.toml` of this folder; the lab ends with 0 if all accounts agree and each promise is kept.
fn battery(name: &str) {
    let mut command = Command::new(project!("scripts/lab"));
    command.args(["run", "--contenders", project!("checks/contenders")]);
    command.arg(format!(
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/attacks/{}.toml"),
        name
    ));
    command.args(["--ringtap", BINARY, "--records"]);
    command.arg(concat!(env!("CARGO_TARGET_TMPDIR"), "/lab-records"));
    let end = Running::start(command).wait(LIMIT);
    println!("{}", end.stdout);
    assert!(end.status.success(), "{}\n{}", end.stdout, end.stderr);
}
