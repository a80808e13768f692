// SPDX-License-Identifier: MIT OR Apache-2.0
//! What killed programs must not leave behind: namespaces, and eBPF objects that nobody holds.

use std::{
    fs,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{LIMIT, needs::bpftool};

/// Namespaces that tests made whose process is gone.
#[must_use]
pub fn stale_namespaces() -> Vec<String> {
    let Ok(folder) = fs::read_dir("/run/netns") else {
        return Vec::new();
    };
    folder
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| maker(name).is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()))
        .collect()
}

/// The process that made the namespace `name`, where a test did.
fn maker(name: &str) -> Option<u32> {
    let (pid, _) = name.strip_prefix("rt-t")?.split_once('-')?;
    pid.parse().ok()
}

/// eBPF programs, maps and links with one of our names that no living process holds.
///
/// Ours are called `rt_…` or `ringtap…`. Needs `bpftool` and root.
///
/// # Panics
///
/// When `bpftool` cannot be run or prints no JSON.
#[must_use]
pub fn orphans() -> Vec<String> {
    let tool = bpftool().expect("bpftool is installed");
    ["prog", "map", "link"]
        .into_iter()
        .flat_map(|kind| {
            let output = Command::new(&tool)
                .args(["--json", kind, "show"])
                .output()
                .expect("bpftool can be run");
            let listed = serde_json::from_slice(&output.stdout).expect("bpftool prints JSON");
            orphans_in(kind, &listed)
        })
        .collect()
}

/// The same for one listing of `bpftool --json KIND show`.
fn orphans_in(kind: &str, listed: &Value) -> Vec<String> {
    let ours = |name: &str| name.starts_with("rt_") || name.starts_with("ringtap");
    listed
        .as_array()
        .into_iter()
        .flatten()
        .filter(|object| object["name"].as_str().is_some_and(ours))
        .filter(|object| object["pids"].as_array().is_none_or(Vec::is_empty))
        .map(|object| format!("{kind} {}: {}", object["id"], object["name"]))
        .collect()
}

/// Checks that nothing of ours outlived its process. The kernel frees objects a moment after their
/// last holder is gone, which is waited for.
///
/// # Panics
///
/// When something is left: the panic names it.
pub fn assert_no_orphans() {
    let deadline = Instant::now() + LIMIT;
    loop {
        let left = orphans();
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "left behind: {left:#?}");
        thread::sleep(Duration::from_millis(100));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_namespaces_that_tests_made_have_a_maker() {
        assert_eq!(maker("rt-t123-0-tap_counts"), Some(123));
        assert_eq!(maker("rt-tap-1"), None);
        assert_eq!(maker("rt-demo-55"), None);
        assert_eq!(maker("somebody-else"), None);
    }

    #[test]
    fn an_object_of_ours_without_a_holder_is_an_orphan() {
        let listed = serde_json::json!([
            {"id": 1, "name": "rt_tap", "pids": [{"pid": 7, "comm": "ringtap"}]},
            {"id": 2, "name": "rt_tap"},
            {"id": 3, "name": "rt_pool", "pids": []},
            {"id": 4, "name": "somebody_else"},
        ]);
        assert_eq!(
            orphans_in("prog", &listed),
            ["prog 2: \"rt_tap\"", "prog 3: \"rt_pool\""]
        );
    }
}
