// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a process that only reads can no longer do. One test: nothing is undone in this process.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::net::TcpListener;
use std::process::Command;

use ringtap_net::confine::{Confinement, Sandbox};
use ringtap_testkit::folder_until_exit;
use rustix::thread::CapabilitySet;

#[test]
fn a_process_that_only_reads_changes_nothing_and_one_with_threads_enters_no_sandbox() {
    let several = Sandbox::default()
        .enter()
        .expect_err("the test's own thread and the first");
    assert!(several.to_string().contains("several"), "{several}");
    // Its removal is refused to this process, too.
    let folder = folder_until_exit();
    let path = |name: &str| folder.join(name);
    fs::write(path("own"), "text").expect("before, it may write");
    let confinement = Confinement {
        only_reads: true,
        ..Confinement::keeping(CapabilitySet::empty())
    };
    confinement.enter().expect("rights can be given up");
    assert_eq!(fs::read(path("own")).expect("reading is free"), b"text");
    let in_thread = std::thread::spawn(|| 1).join();
    assert_eq!(in_thread.expect("threads are free"), 1);
    let refused = [
        ("create", File::create(path("other")).err()),
        (
            "overwrite",
            File::options().write(true).open(path("own")).err(),
        ),
        (
            "append",
            File::options().append(true).open(path("own")).err(),
        ),
        ("remove", fs::remove_file(path("own")).err()),
        ("rename", fs::rename(path("own"), path("other")).err()),
        ("folder", fs::create_dir(path("other")).err()),
        ("listen", TcpListener::bind("127.0.0.1:0").err()),
        ("program", Command::new("true").spawn().err()),
    ];
    for (what, error) in refused {
        let kind = error.map(|error| error.kind());
        assert_eq!(kind, Some(ErrorKind::PermissionDenied), "{what}");
    }
}
