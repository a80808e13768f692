// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requirements of tests; a test whose requirements are missing prints a line and returns.

use std::{
    env, fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
    thread,
};

/// Skips the calling test unless it may make namespaces and load eBPF programs.
#[macro_export]
macro_rules! require_root {
    () => {
        if let Some(missing) = $crate::missing_capability() {
            $crate::say_skipped(&format!("needs root ({missing})"));
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

/// Name and number of each capability that a test with namespaces and eBPF needs.
const CAPABILITIES: [(&str, u32); 5] = [
    ("CAP_DAC_OVERRIDE", 1),
    ("CAP_NET_ADMIN", 12),
    ("CAP_NET_RAW", 13),
    ("CAP_SYS_ADMIN", 21),
    ("CAP_BPF", 39),
];

/// The first capability that this process lacks, if any.
#[must_use]
pub fn missing_capability() -> Option<&'static str> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0);
    first_missing(effective)
}

fn first_missing(effective: u64) -> Option<&'static str> {
    CAPABILITIES
        .iter()
        .find(|(_, bit)| effective & (1 << bit) == 0)
        .map(|(name, _)| *name)
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
        assert_eq!(first_missing(0), Some("CAP_DAC_OVERRIDE"));
        assert_eq!(first_missing(1 << 1), Some("CAP_NET_ADMIN"));
        assert_eq!(first_missing(u64::MAX), None);
    }

    #[test]
    fn a_tool_that_is_not_installed_is_not_found() {
        assert!(tool_exists("sh"));
        assert!(!tool_exists("ringtap-no-such-tool"));
    }
}
