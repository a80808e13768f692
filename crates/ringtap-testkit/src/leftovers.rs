// SPDX-License-Identifier: MIT OR Apache-2.0
//! What killed programs must not leave behind: namespaces, and eBPF objects that nobody holds.

use std::{
    collections::HashSet,
    fs,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::needs::bpftool;

/// The kernel frees objects a moment after their last holder is gone.
const PATIENCE: Duration = Duration::from_secs(10);

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

/// eBPF programs, maps and links of ours that no living process holds.
///
/// Our programs and maps are called `rt_…`; our links lead to our programs. Needs `bpftool` and
/// root.
///
/// # Panics
///
/// When `bpftool` cannot be run or prints no JSON.
#[must_use]
pub fn orphans() -> Vec<String> {
    let tool = bpftool().expect("bpftool is installed");
    let list = |kind| {
        let output = Command::new(&tool)
            .args(["--json", kind, "show"])
            .output()
            .expect("bpftool can be run");
        serde_json::from_slice(&output.stdout).expect("bpftool prints JSON")
    };
    // The holders come last: who ended in between is found again by the next look.
    orphans_in(&list("prog"), &list("map"), &list("link"), &holds_of_all())
}

/// A program, map or link, as a descriptor's `fdinfo` calls it: `prog_id`, 17.
type Hold = (String, u64);

/// What some process holds by a descriptor.
fn holds_of_all() -> HashSet<Hold> {
    let processes = fs::read_dir("/proc").into_iter().flatten();
    processes
        .filter_map(|process| fs::read_dir(process.ok()?.path().join("fdinfo")).ok())
        .flatten()
        .filter_map(|descriptor| fs::read_to_string(descriptor.ok()?.path()).ok())
        .flat_map(|text| holds_in(&text))
        .collect()
}

fn holds_in(fdinfo: &str) -> Vec<Hold> {
    fdinfo
        .lines()
        .filter_map(|line| line.split_once(':'))
        .filter(|(key, _)| ["prog_id", "map_id", "link_id"].contains(key))
        .filter_map(|(key, id)| Some((key.to_owned(), id.trim().parse().ok()?)))
        .collect()
}

/// The same for listings of `bpftool --json KIND show`.
fn orphans_in(progs: &Value, maps: &Value, links: &Value, held: &HashSet<Hold>) -> Vec<String> {
    let is_held = |key: &str, id: &Value| {
        id.as_u64()
            .is_some_and(|id| held.contains(&(key.into(), id)))
    };
    let ours = |object: &&Value| {
        object["name"]
            .as_str()
            .is_some_and(|n| n.starts_with("rt_"))
    };
    let (progs, maps, links) = (array(progs), array(maps), array(links));
    let our_progs: Vec<_> = progs.iter().filter(ours).collect();
    // A held program keeps its maps.
    let kept: HashSet<_> = our_progs
        .iter()
        .filter(|prog| is_held("prog_id", &prog["id"]))
        .flat_map(|prog| array(&prog["map_ids"]))
        .filter_map(Value::as_u64)
        .collect();
    let lost_progs = our_progs
        .iter()
        .filter(|prog| !is_held("prog_id", &prog["id"]))
        .map(|prog| format!("program {}: {}", prog["id"], prog["name"]));
    let lost_maps = maps
        .iter()
        .filter(ours)
        .filter(|map| !is_held("map_id", &map["id"]))
        .filter(|map| map["id"].as_u64().is_none_or(|id| !kept.contains(&id)))
        .map(|map| format!("map {}: {}", map["id"], map["name"]));
    let lost_links = links
        .iter()
        .filter(|link| our_progs.iter().any(|prog| prog["id"] == link["prog_id"]))
        .filter(|link| !is_held("link_id", &link["id"]))
        .map(|link| format!("link {}", link["id"]));
    lost_progs.chain(lost_maps).chain(lost_links).collect()
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Checks that nothing of ours outlived its process, waiting a moment for the kernel to tidy up.
///
/// # Panics
///
/// When something is left: the panic names it.
pub fn assert_no_orphans() {
    let deadline = Instant::now() + PATIENCE;
    let mut left = orphans();
    while !left.is_empty() {
        assert!(Instant::now() < deadline, "left behind: {left:#?}");
        thread::sleep(Duration::from_millis(100));
        // Others come and go meanwhile: only what stays is left behind.
        let now = orphans();
        left.retain(|orphan| now.contains(orphan));
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
    fn what_a_descriptor_holds_is_read_from_its_fdinfo() {
        let link = "pos:\t0\nlink_type:\txdp\nlink_id:\t5\nprog_id:\t7\nifindex:\t2\n";
        let held = [("link_id".to_owned(), 5), ("prog_id".to_owned(), 7)];
        assert_eq!(holds_in(link), held);
    }

    fn found(held: &[(&str, u64)]) -> Vec<String> {
        let progs = json!([
            {"id": 1, "name": "rt_rx", "map_ids": [10, 11]},
            {"id": 2, "name": "somebody_else"},
        ]);
        let maps = json!([{"id": 10, "name": "rt_pool"}, {"id": 12, "name": "other"}]);
        let links = json!([{"id": 5, "prog_id": 1}, {"id": 6, "prog_id": 2}]);
        let held = held.iter().map(|(key, id)| ((*key).to_owned(), *id));
        orphans_in(&progs, &maps, &links, &held.collect())
    }

    #[test]
    fn an_object_of_ours_that_nobody_holds_is_an_orphan() {
        let all = ["program 1: \"rt_rx\"", "map 10: \"rt_pool\"", "link 5"];
        assert_eq!(found(&[]), all);
    }

    #[test]
    fn what_a_process_holds_is_no_orphan() {
        assert_eq!(found(&[("prog_id", 1), ("link_id", 5)]), [] as [String; 0]);
        assert_eq!(found(&[("prog_id", 1)]), ["link 5"]);
    }
}
