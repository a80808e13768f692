// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs after all other tests: nothing of ours may have outlived its process. `scripts/private` looks for network
//! namespaces after each program of tests.

use std::time::{Duration, Instant};

use ringtap_testkit::{LIMIT, assert_no_orphans, require_root, require_tool, stale_folders};

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
