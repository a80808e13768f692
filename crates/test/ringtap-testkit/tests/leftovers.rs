// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs after all other tests: nothing of ours may have outlived its process.

use std::time::{Duration, Instant};

use ringtap_testkit::{
    LIMIT, assert_no_orphans, require_root, require_tool, stale_folders, stale_namespaces,
};

#[test]
fn no_namespace_outlived_its_test() {
    require_root!();
    assert_eq!(stale_namespaces(), Vec::<String>::new());
}

#[test]
fn no_temporary_folder_outlived_its_process() {
    // Each is removed a moment after the end of its process.
    let deadline = Instant::now() + LIMIT;
    while !stale_folders().is_empty() {
        assert!(Instant::now() < deadline, "{:?}", stale_folders());
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn no_ebpf_object_outlived_its_process() {
    require_root!();
    require_tool!("bpftool");
    assert_no_orphans();
}
