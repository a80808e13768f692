// SPDX-License-Identifier: MIT OR Apache-2.0
//! Installs the library as `make install` does, and builds C programs with it.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

pub(crate) use ringtap_testkit::LIMIT;
use ringtap_testkit::{Namespace, Running, say_skipped};

pub(crate) fn crate_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Cargo's output folder of this test.
pub(crate) fn deps() -> PathBuf {
    let exe = env::current_exe().expect("a test has a file");
    exe.parent().expect("in a folder").to_owned()
}

pub(crate) fn script(args: &[&Path]) {
    let script = crate_folder().join("../../../scripts/library");
    let output = Command::new(script).args(args).output();
    let output = output.expect("the script can be run");
    assert!(output.status.success(), "{output:?}");
}

/// The folder below which the library is installed.
pub(crate) fn installed() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("library");
        let prefix = folder.join("prefix");
        script(&[Path::new("install"), &deps(), &prefix, &prefix.join("lib")]);
        prefix
    })
}

/// The flags that `pkg-config` gives.
pub(crate) fn flags() -> Vec<String> {
    let output = Command::new("pkg-config")
        .env("PKG_CONFIG_PATH", installed().join("lib/pkgconfig"))
        .args(["--cflags", "--libs", "ringtap"])
        .output()
        .expect("pkg-config is installed");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("flags are text");
    text.split_whitespace().map(str::to_owned).collect()
}

/// Builds a C program; warnings are errors.
pub(crate) fn build(source: &Path) -> PathBuf {
    let name = source.file_stem().expect("a file");
    let program = installed().join(name);
    let output = Command::new("cc")
        .args(["-std=c99", "-D_DEFAULT_SOURCE", "-Wall", "-Wextra"])
        .args(["-Wpedantic", "-Werror", "-O1", "-pthread", "-o"])
        .args([&program, source])
        .args(flags())
        .output()
        .expect("a C compiler is installed");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    program
}

/// A command that finds the installed library, and the hub at this socket.
pub(crate) fn with_library(mut command: Command, socket: &Path) -> Command {
    command.env("LD_LIBRARY_PATH", installed().join("lib"));
    command.env("RINGTAP_SOCKET", socket);
    command
}

/// The `ringtap` program beside this test; prints a message if it was not built.
pub(crate) fn ringtap() -> Option<PathBuf> {
    let program = deps().parent()?.join("ringtap");
    if program.exists() {
        return Some(program);
    }
    say_skipped("needs the ringtap program: cargo build --bin ringtap");
    None
}

/// Starts a hub, in a namespace if given, and waits until it listens.
pub(crate) fn hub(
    ringtap: &Path,
    network: Option<&Namespace>,
    socket: &Path,
    args: &[&str],
) -> Running {
    let mut command = match network {
        Some(network) => network.command(ringtap),
        None => Command::new(ringtap),
    };
    command.args(["hub", "--duration", "300", "--socket"]);
    command.arg(socket).args(args);
    let hub = Running::start(command);
    hub.wait_for_stderr("ringtap: hub of", LIMIT);
    hub
}
