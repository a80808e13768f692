// SPDX-License-Identifier: MIT OR Apache-2.0
//! Variables of the environment. A program with more rights than its user obeys none of them.
//!
//! This module is the only one that reads the environment; a test of the layout checks that.
//!
//! Invariants
//! - In a program with a set-user-id bit or file capabilities (`AT_SECURE`), no variable is set.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

/// A variable of the environment, unless this program has more rights than its user.
pub fn variable(name: &str) -> Option<OsString> {
    if is_secure() { None } else { env::var_os(name) }
}

/// Whether a variable is set to a value other than 0.
pub fn is_set(name: &str) -> bool {
    variable(name).is_some_and(|value| value != "0")
}

/// All variables, for a program that this one starts.
pub fn all() -> impl Iterator<Item = (OsString, OsString)> {
    let all = (!is_secure()).then(env::vars_os);
    all.into_iter().flatten()
}

/// The folder of this user for sockets, if there is one.
pub fn runtime_folder() -> Option<PathBuf> {
    let named = variable("XDG_RUNTIME_DIR").map(PathBuf::from);
    // Where systemd creates it; only this user can write there.
    let usual = || PathBuf::from(format!("/run/user/{}", rustix::process::geteuid().as_raw()));
    named.or_else(|| Some(usual()).filter(|folder| is_secure() && folder.is_dir()))
}

/// The folder for temporary files.
pub fn temporary_folder() -> PathBuf {
    if is_secure() {
        "/tmp".into()
    } else {
        env::temp_dir()
    }
}

/// Whether this program has more rights than its user.
fn is_secure() -> bool {
    // SAFETY: reads a number that the kernel gave the process.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}
