// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wrong arguments, wrong handles and use by two threads cause an error each, and nothing else.

use std::process::Command;

use ringtap_testkit::Running;

use crate::support::{LIMIT, build, crate_folder, hub, ringtap, with_library};

#[test]
fn every_misuse_is_refused_with_its_own_error() {
    let Some(ringtap) = ringtap() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let (socket, file) = (
        folder.path().join("hub.sock"),
        folder.path().join("in.pcapng"),
    );
    let mut sample = Command::new(&ringtap);
    sample.args(["record", "-q", "-i", "sim:max?burst=200", "-w"]);
    sample.arg(&file);
    let _made = Running::start(sample).wait(LIMIT).success();
    // 200 packets take longer than the program runs.
    let device = format!("pcap:{}?speed=2pps", file.display());
    let hub = hub(
        &ringtap,
        None,
        &socket,
        &["-i", &device, "-g", "all", "-g", "few:1"],
    );
    let program = build(&crate_folder().join("tests/library/misuse.c"));
    let end = Running::start(with_library(Command::new(program), &socket)).wait(LIMIT);
    assert!(
        end.status.success(),
        "{}\nhub: {}",
        end.stderr,
        hub.stderr()
    );
    assert!(end.stdout.contains("all refused\n"), "{}", end.stdout);
    hub.interrupt();
    let _ended = hub.wait(LIMIT).success();
}
