// SPDX-License-Identifier: MIT OR Apache-2.0
//! A hub reads its configuration file again while packets flow.

use std::fs;

use ringtap_client::Connection;
use ringtap_testkit::Running;
use tempfile::TempDir;

use crate::support::{BINARY, LARGE_POOL, LIMIT, RunningHub, lost_nothing, request};

const PACKETS: u64 = 20_000;

fn reload(hub: &RunningHub) -> Running {
    let mut command = std::process::Command::new(BINARY);
    command.args(["hub", "reload", "--socket"]).arg(&hub.socket);
    Running::start(command)
}

fn names(status: &ringtap_ipc::protocol::HubStatus) -> Vec<&str> {
    status.groups.iter().map(|one| one.name.as_str()).collect()
}

#[test]
fn groups_come_and_go_without_a_lost_packet() {
    let folder = TempDir::new().expect("a folder can be made");
    let file = folder.path().join("hub.toml");
    let text = file.display().to_string();
    fs::write(
        &file,
        "[[group]]\nname = \"a\"\n[[group]]\nname = \"old\"\n",
    )
    .expect("a file");
    let hub = RunningHub::with("reload", LARGE_POOL, &["-c", &text]);
    let honest = hub.count("a", &["--stamps"]);
    let sender = hub.start_sending(5_000, PACKETS);

    // A mistake changes nothing.
    fs::write(&file, "[[group]]\nname = \"a\"\nfilter = \"prot 7\"\n").expect("a file");
    let _asked = reload(&hub).wait(LIMIT).success();
    hub.hub.wait_for_stderr("is not in force", LIMIT);
    assert_eq!(names(&hub.status()), ["a", "old"]);

    // The group `a` has a reader, and keeps its filter.
    let new =
        "[[group]]\nname = \"a\"\nfilter = \"tcp\"\n[[group]]\nname = \"new\"\nfilter = \"udp\"\n";
    fs::write(&file, new).expect("a file");
    let _asked = reload(&hub).wait(LIMIT).success();
    hub.wait_until("the new group is there", |status| {
        names(status) == ["a", "new"]
    });
    hub.hub.wait_for_stderr("group a: unchanged", LIMIT);
    let _member = hub.receiver("new");
    let refused = Connection::attach(&hub.socket, &request("old"))
        .map(|_| ())
        .expect_err("it is gone");
    assert!(
        refused.to_string().contains("the groups are: a, new"),
        "{refused}"
    );

    let _sent = sender.wait(LIMIT).success();
    hub.wait_until("the reader has all packets", |status| {
        let reader = status.readers.iter().find(|one| one.group == "a");
        reader.is_some_and(|one| one.delivered >= PACKETS)
    });
    lost_nothing(honest);
    let _end = hub.finish();
}

#[test]
fn a_hub_without_a_file_is_not_ended_by_a_reload() {
    let hub = RunningHub::new("reload-none", &["a"]);
    let end = reload(&hub).wait(LIMIT);
    assert_eq!(end.status.code(), Some(1), "{}", end.stderr);
    assert!(end.stderr.contains("without -c FILE"), "{}", end.stderr);
    let _end = hub.finish();
}
