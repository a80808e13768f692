// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs after all other tests: nothing of ours may have outlived its process.

use ringtap_testkit::{assert_no_orphans, require_root, require_tool, stale_namespaces};

#[test]
fn no_namespace_outlived_its_test() {
    require_root!();
    assert_eq!(stale_namespaces(), Vec::<String>::new());
}

#[test]
fn no_ebpf_object_outlived_its_process() {
    require_root!();
    require_tool!("bpftool");
    assert_no_orphans();
}
