// SPDX-License-Identifier: MIT OR Apache-2.0
//! `status` and `why` where nothing is lost, where no hub runs, and where it ends.

use std::path::Path;

use ringtap_ipc::protocol::HubStatus;
use ringtap_testkit::Running;
use serde_json::Value;

use crate::served::{LIMIT, ServedFile, command};

#[test]
fn status_is_one_line_of_json_with_everything_in_it() {
    let served = ServedFile::open();
    let end = served.run(&["status"]).success();
    assert_eq!(end.stdout.lines().count(), 1);
    let status: HubStatus = serde_json::from_str(&end.stdout).expect("JSON");
    let mut value: Value = serde_json::from_str(&end.stdout).expect("JSON");
    let kind = value.as_object_mut().expect("an object").remove("type");
    assert_eq!(kind, Some(Value::from("status")));
    assert_eq!(serde_json::to_value(&status).expect("JSON"), value);
    assert_eq!(status.pid, i32::try_from(std::process::id()).unwrap());
    assert!(status.sources[0].device.starts_with("pcap:"));
    assert!(status.sources[0].balanced);
    assert_eq!(status.groups[0].name, "all");
}

#[test]
fn status_repeats_and_ends_with_an_error_when_the_hub_does() {
    let mut served = ServedFile::open();
    let child = Running::start(command(&served.socket(), &["status", "--interval", "0.1"]));
    child.wait_for_stdout("\n", LIMIT);
    served.close();
    let end = child.wait(LIMIT);
    assert_eq!(end.status.code(), Some(1), "{}", end.stderr);
    assert!(end.stderr.starts_with("ringtap: "), "{}", end.stderr);
    let times = end.stdout.lines().map(|line| {
        let status: HubStatus = serde_json::from_str(line).expect("an object a line");
        status.time_ns
    });
    let times: Vec<_> = times.collect();
    assert!(times.is_sorted() && !times.is_empty());
}

#[test]
fn why_says_that_nothing_was_lost_and_what_it_checked() {
    let served = ServedFile::open();
    let end = served.run(&["why", "--interval", "0.2"]).success();
    assert!(
        end.stdout.starts_with("Nothing was lost since"),
        "{}",
        end.stdout
    );
    assert!(
        end.stdout
            .contains("offered = delivered + filtered + dropped.kernel + dropped.pool_full holds")
    );
    let end = served
        .run(&["why", "--interval", "0.2", "--json"])
        .success();
    let value: Value = serde_json::from_str(&end.stdout).expect("JSON");
    assert_eq!(value["lost"], false);
    assert_eq!(value["checked"].as_array().map(Vec::len), Some(1));
}

#[test]
fn without_a_hub_every_verb_says_so_and_fails() {
    for (verb, status) in [("status", 1), ("why", 1)] {
        let end = Running::start(command(Path::new("/nonexistent/hub.sock"), &[verb])).wait(LIMIT);
        assert_eq!(end.status.code(), Some(status), "{verb}");
        assert!(
            end.stderr.contains("no hub is running there"),
            "{}",
            end.stderr
        );
        assert_eq!(end.stdout, "");
    }
}

#[test]
fn top_refuses_to_draw_into_a_pipe() {
    let served = ServedFile::open();
    let end = served.run(&["top"]);
    assert_eq!(end.status.code(), Some(2));
    assert!(
        end.stderr.contains("standard output is not one"),
        "{}",
        end.stderr
    );
}
