// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a confined process can no longer do. One test: nothing is undone in this process.

use std::fs;
use std::io::ErrorKind;
use std::process::Command;

use landlock::{AccessFs, Ruleset, RulesetAttr as _, RulesetStatus};
use ringtap_net::confine::Confinement;
use rustix::thread::CapabilitySet;

/// Whether the kernel has Landlock; asked in a thread, which ends with the answer.
fn has_landlock() -> bool {
    let ask = || {
        let ruleset = Ruleset::default().handle_access(AccessFs::from_write(landlock::ABI::V1));
        let ruleset = ruleset.and_then(Ruleset::create);
        ruleset.and_then(landlock::RulesetCreated::restrict_self)
    };
    let status = std::thread::spawn(ask).join().expect("no panic");
    status.is_ok_and(|status| status.ruleset != RulesetStatus::NotEnforced)
}

#[test]
fn a_confined_process_starts_no_program_and_writes_only_where_it_said() {
    let has_landlock = has_landlock();
    let folder = tempfile::tempdir().expect("a folder can be made");
    let own = folder.path().join("own");
    fs::create_dir(&own).expect("the folder is ours");
    // In a thread: the test itself must be able to remove its folder.
    let confined = || {
        let mut confinement = Confinement::keeping(CapabilitySet::empty());
        confinement.writes_below = Some(vec![own.clone()]);
        confinement.enter().expect("rights can be given up");
        let held = rustix::thread::capabilities(None).expect("the own capabilities");
        assert_eq!(held.permitted, CapabilitySet::empty());
        fs::write(own.join("file"), "packets").expect("here it may write");
        fs::remove_file(own.join("file")).expect("here it may remove");
        fs::read("/proc/self/status").expect("reading is free");
        fs::write(folder.path().join("file"), "no").map_err(|error| error.kind())
    };
    let written = std::thread::scope(|scope| scope.spawn(confined).join().expect("no panic"));
    let started = Command::new("true")
        .spawn()
        .expect_err("no thread starts a program");
    assert_eq!(started.kind(), ErrorKind::PermissionDenied);
    if has_landlock {
        assert_eq!(written, Err(ErrorKind::PermissionDenied))
    } else {
        ringtap_testkit::say_skipped("the kernel has no Landlock")
    }
}
