// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds namespaces and eBPF objects that outlived the process that made them.

use std::{
    fs,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{LIMIT, needs::bpftool};

/// Kinds of eBPF objects, as `bpftool` and `/proc/PID/fdinfo` name them.
const KINDS: [&str; 3] = ["prog", "map", "link"];

/// Namespaces of tests whose process has ended.
pub(crate) fn stale_namespaces() -> Vec<String> {
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

/// A program, map or link of eBPF, by its unique number: `prog 12`.
pub type EbpfObject = String;

/// The eBPF objects behind the descriptors of a process.
#[must_use]
pub fn ebpf_objects_of(pid: u32) -> Vec<EbpfObject> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fdinfo"));
    let texts = descriptors
        .into_iter()
        .flatten()
        .filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok());
    let mut objects: Vec<_> = texts.flat_map(|text| objects_in(&text)).collect();
    objects.sort_unstable();
    objects.dedup();
    objects
}

/// The objects that a descriptor's text in `/proc/PID/fdinfo` names.
fn objects_in(text: &str) -> Vec<EbpfObject> {
    let number_of = |kind: &str| {
        let key = format!("{kind}_id:");
        let line = text.lines().find_map(|line| line.strip_prefix(&key))?;
        Some(format!("{kind} {}", line.trim()))
    };
    KINDS.into_iter().filter_map(number_of).collect()
}

/// Waits until none of these objects exists: the kernel frees objects a moment after their last
/// user ends. Needs `bpftool` and root.
///
/// # Panics
///
/// When one still exists after [`LIMIT`], and when `bpftool` cannot be run.
pub fn wait_until_gone(objects: &[EbpfObject]) {
    wait_for_none(|| {
        let mut all = listed(|_| true);
        all.retain(|one| objects.contains(one));
        all
    });
}

/// Waits until no eBPF object whose name begins with `rt_` or `ringtap` is without a process that
/// holds it. Needs `bpftool` and root, and a machine on which no other test runs.
///
/// # Panics
///
/// When one is still left after [`LIMIT`], and when `bpftool` cannot be run.
pub fn assert_no_orphans() {
    wait_for_none(|| listed(is_orphan));
}

/// Not every `bpftool` knows the holders of an object; without them each object is an orphan.
fn is_orphan(object: &Value) -> bool {
    let name = object["name"].as_str().unwrap_or_default();
    let is_ours = name.starts_with("rt_") || name.starts_with("ringtap");
    is_ours && object["pids"].as_array().is_none_or(Vec::is_empty)
}

/// All eBPF objects that satisfy `wanted`, which gets the JSON of `bpftool`.
fn listed(wanted: impl Fn(&Value) -> bool) -> Vec<EbpfObject> {
    let tool = bpftool().expect("bpftool is installed");
    let of_kind = |kind: &str| {
        let mut command = Command::new(&tool);
        let output = command
            .args(["--json", kind, "show"])
            .output()
            .expect("bpftool can be run")
            .stdout;
        let all: Vec<Value> = serde_json::from_slice(&output).expect("bpftool prints JSON");
        let wanted = all.into_iter().filter(|object| wanted(object));
        let named = wanted.map(|object| format!("{kind} {}", object["id"]));
        named.collect::<Vec<_>>()
    };
    KINDS.into_iter().flat_map(of_kind).collect()
}

fn wait_for_none(left: impl Fn() -> Vec<EbpfObject>) {
    let deadline = Instant::now() + LIMIT;
    loop {
        let left = left();
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "left behind: {left:#?}");
        thread::sleep(Duration::from_millis(100));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_namespaces_that_tests_made_have_a_maker() {
        assert_eq!(maker("rt-t123-0-tap_counts"), Some(123));
        assert_eq!(maker("rt-tap-1"), None);
        assert_eq!(maker("rt-demo-55"), None);
        assert_eq!(maker("somebody-else"), None);
    }

    #[test]
    fn the_descriptor_of_a_link_names_the_link_and_its_program() {
        let text = "pos:\t0\nlink_type:\txdp\nlink_id:\t7\nprog_tag:\tab\nprog_id:\t31\n";
        assert_eq!(objects_in(text), ["prog 31", "link 7"]);
        assert_eq!(objects_in("pos:\t0\nmap_type:\t2\nmap_id:\t4\n"), ["map 4"]);
        assert!(objects_in("pos:\t0\nflags:\t02\n").is_empty());
    }

    #[test]
    fn an_object_of_ours_without_a_process_is_an_orphan() {
        for (object, expected) in [
            (
                json!({"name": "rt_tap", "pids": [{"pid": 7, "comm": "ringtap"}]}),
                false,
            ),
            (json!({"name": "rt_tap"}), true),
            (json!({"name": "rt_pool", "pids": []}), true),
            (json!({"name": "somebody_else"}), false),
        ] {
            assert_eq!(is_orphan(&object), expected, "{object}");
        }
    }
}
