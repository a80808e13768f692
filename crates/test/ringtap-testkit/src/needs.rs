// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requirements of tests; a test whose requirements are missing prints a line and returns.

use std::{
    env, fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use rustix::thread::CapabilitySet;

/// Skips the calling test unless it may make namespaces and load eBPF programs.
#[macro_export]
macro_rules! require_root {
    () => {
        if let Some(missing) = $crate::missing_capability() {
            $crate::say_skipped(&format!("needs root (CAP_{missing})"));
            return;
        }
    };
}

/// Skips the calling test unless each named program is installed.
#[macro_export]
macro_rules! require_tool {
    ($($tool:expr),+ $(,)?) => {
        $(if !$crate::tool_exists($tool) {
            $crate::say_skipped(&format!("needs the program {}", $tool));
            return;
        })+
    };
}

/// Capabilities that a test with namespaces and eBPF needs.
const CAPABILITIES: CapabilitySet = CapabilitySet::DAC_OVERRIDE
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::SYS_ADMIN)
    .union(CapabilitySet::BPF);

/// The first capability that this process lacks, if any.
#[must_use]
pub fn missing_capability() -> Option<&'static str> {
    let sets = rustix::thread::capabilities(None);
    first_missing(sets.map_or(CapabilitySet::empty(), |sets| sets.effective))
}

fn first_missing(effective: CapabilitySet) -> Option<&'static str> {
    let missing = CAPABILITIES.difference(effective).iter_names().next();
    missing.map(|(name, _)| name)
}

/// Whether `tool` is an executable on the `PATH` (or in the system's administration folders).
///
/// `bpftool` must also answer: some systems have a wrapper that finds no program to wrap.
#[must_use]
pub fn tool_exists(tool: &str) -> bool {
    if tool == "bpftool" {
        return bpftool().is_some();
    }
    let path = env::var("PATH").unwrap_or_default();
    path.split(':')
        .chain(["/usr/sbin", "/sbin"])
        .any(|folder| Path::new(folder).join(tool).is_file())
}

/// Path of a `bpftool` that runs.
#[must_use]
pub fn bpftool() -> Option<PathBuf> {
    let tools = fs::read_dir("/usr/lib/linux-tools").into_iter().flatten();
    let beside_the_kernel = tools.filter_map(|entry| Some(entry.ok()?.path().join("bpftool")));
    ["bpftool", "/usr/sbin/bpftool"]
        .map(PathBuf::from)
        .into_iter()
        .chain(beside_the_kernel)
        .find(|tool| {
            let version = Command::new(tool).arg("version").output();
            version.is_ok_and(|output| output.status.success())
        })
}

/// Prints `SKIPPED: test: why` past libtest's capture of output, so that a skip is never silent.
///
/// `make test` counts these lines.
pub fn say_skipped(why: &str) {
    let thread = thread::current();
    let line = format!("SKIPPED: {}: {why}\n", thread.name().unwrap_or("test"));
    // One write: parallel tests must not cut each other's lines.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_capabilities_is_told_which_one_it_lacks() {
        let some = CapabilitySet::DAC_OVERRIDE | CapabilitySet::NET_RAW;
        assert_eq!(first_missing(CapabilitySet::empty()), Some("DAC_OVERRIDE"));
        assert_eq!(first_missing(some), Some("NET_ADMIN"));
        assert_eq!(first_missing(CapabilitySet::all()), None);
    }

    #[test]
    fn a_tool_that_is_not_installed_is_not_found() {
        assert!(tool_exists("sh"));
        assert!(!tool_exists("ringtap-no-such-tool"));
    }
}
