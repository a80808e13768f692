// SPDX-License-Identifier: MIT OR Apache-2.0
//! A real hub whose members help a stopped one: `status`, `why` and a scraper all tell of it.

use std::path::Path;
use std::process::Command;

use ringtap_ipc::protocol::{GroupStatus, HubStatus};
use ringtap_pool::distributor::Policy;
use ringtap_testkit::{Running, require_tool};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::served::{LIMIT, command, seen, status_when};

fn group<'a>(status: &'a HubStatus, name: &str) -> &'a GroupStatus {
    let mut groups = status.groups.iter();
    groups.find(|one| one.name == name).expect("it is there")
}

/// Every metric of the page that `curl` gets, by its name.
fn scraped(address: &str) -> String {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--fail", address]);
    Running::start(curl).wait(LIMIT).success().stdout
}

/// The value of a sample, by its whole name.
#[track_caller]
fn value(page: &str, sample: &str) -> u64 {
    let mut lines = page.lines().filter_map(|line| line.split_once(sample));
    let found = lines.find_map(|(before, value)| before.is_empty().then(|| value.trim()));
    let found = found.unwrap_or_else(|| panic!("no {sample} in\n{page}"));
    found.parse().expect("a number")
}

fn number(running: &Running) -> i32 {
    i32::try_from(running.pid()).expect("a process number")
}

/// Readers of these groups, each with its process.
fn readers(socket: &Path, groups: &[&str]) -> Vec<Running> {
    let reader = |group: &&str| {
        let mut count = Command::new(env!("CARGO_BIN_EXE_ringtap"));
        count.args(["count", "-i", &format!("hub:{group}")]);
        let running = Running::start({
            count.env("RINGTAP_SOCKET", socket);
            count
        });
        let pid = number(&running);
        status_when(socket, |status| {
            status.readers.iter().any(|one| one.pid == pid)
        });
        running
    };
    groups.iter().map(reader).collect()
}

#[test]
fn help_between_members_is_told_by_status_why_and_the_metrics() {
    require_tool!("curl");
    let folder = TempDir::new().expect("a folder");
    let socket = folder.path().join("hub.sock");
    let mut hub = command(&socket, &["hub"]);
    hub.args(["-i", "sim:20kpps?queues=2&flows=200&chunks=64&packets=16"])
        .args(["-g", "chunks:4:lanes:offload=20", "-g", "all"])
        .args(["--congestion", "1:2", "--metrics", "127.0.0.1:0"]);
    let hub = Running::start(hub);
    hub.wait_for_stderr("hub of", LIMIT);
    let said = hub.stderr();
    let address = said
        .split_whitespace()
        .find(|word| word.starts_with("http://"));
    let address = address.expect("an address").to_owned();
    let readers = readers(&socket, &["chunks", "chunks", "all"]);
    let stopped = [&readers[0], &readers[2]];
    let stopped = stopped.map(|one| Pid::from_raw(number(one)).expect("a process"));
    for pid in stopped {
        kill_process(pid, Signal::STOP).expect("it is ours");
    }
    let status = status_when(&socket, |status| {
        group(status, "chunks").buddies.offloaded_packets > 0
            && status
                .readers
                .iter()
                .any(|one| one.counters.dropped.overrun > 0)
    });
    assert_eq!(group(&status, "chunks").policy, Policy::DropNewest);
    let marks = status.sources[0].congestion.expect("marks were given");
    assert_eq!((marks.low_percent, marks.high_percent), (1, 2));

    let page = scraped(&address);
    let at_least = [
        (
            r#"ringtap_group_offloaded_chunks_total{group="chunks"}"#,
            group(&status, "chunks").buddies.offloaded_chunks,
        ),
        (
            r#"ringtap_group_offloaded_packets_total{group="chunks"}"#,
            group(&status, "chunks").buddies.offloaded_packets,
        ),
        (
            r#"ringtap_delivered_wire_bytes_total{source="sim:20kpps?chunks=64&packets=16&flows=200&queues=2",lane="1"}"#,
            status.sources[0].lanes[1].counters.bytes,
        ),
    ];
    for (sample, then) in at_least {
        let now = value(&page, sample);
        assert!(now >= then && then > 0, "{sample}: {then}, then {now}");
    }
    let threshold = r#"ringtap_group_offload_percent{group="chunks"}"#;
    assert_eq!(value(&page, threshold), 20);
    for name in [
        "ringtap_group_info",
        "ringtap_group_disordered_packets_total",
        "ringtap_reader_helped_chunks_total",
        "ringtap_reader_buckets",
        "ringtap_source_congestion_percent",
    ] {
        assert!(
            page.contains(&format!("\n{name}{{")),
            "no {name} in\n{page}"
        );
    }

    let why = seen(&socket, &["why", "--interval", "0.1"]).stdout;
    for words in [
        "Group chunks offloads above 20 percent of a lane's chunks: ",
        "(drop: past 25 chunks of a lane the newest packets are lost)",
    ] {
        assert!(why.contains(words), "no {words:?} in\n{why}");
    }
    for pid in stopped {
        kill_process(pid, Signal::CONT).expect("it is ours");
    }
}
