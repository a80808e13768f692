// SPDX-License-Identifier: MIT OR Apache-2.0
//! A hub reads its configuration file again while packets flow.

use std::fs;

use ringtap_client::Connection;
use ringtap_filter::Program;
use ringtap_ipc::protocol::{SourceState, SourceStatus};
use ringtap_testkit::Running;
use tempfile::TempDir;

use crate::support::{Account, BINARY, LARGE_POOL, LIMIT, RunningHub, lost_nothing, request};

const PACKETS: u64 = 20_000;

pub(crate) fn reload(hub: &RunningHub) -> Running {
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
    let asked = reload(&hub).wait(LIMIT);
    assert_eq!(asked.status.code(), Some(2), "{}", asked.stderr);
    let place = format!("the configuration is not in force: {text}, line 3, filter: ");
    assert!(asked.stderr.contains(&place), "{}", asked.stderr);
    assert!(asked.stderr.contains("syntax error"), "{}", asked.stderr);
    hub.hub.wait_for_stderr("is not in force", LIMIT);
    assert_eq!(names(&hub.status()), ["a", "old"]);

    // The group `a` has a reader, and keeps its filter.
    let new =
        "[[group]]\nname = \"a\"\nfilter = \"tcp\"\n[[group]]\nname = \"new\"\nfilter = \"udp\"\n";
    fs::write(&file, new).expect("a file");
    let asked = reload(&hub).wait(LIMIT).success();
    assert!(
        asked.stderr.contains("group a: unchanged"),
        "{}",
        asked.stderr
    );
    // In force when the command ends.
    assert_eq!(names(&hub.status()), ["a", "new"]);
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
        reader.is_some_and(|one| one.counters.delivered >= PACKETS)
    });
    lost_nothing(honest);
    let _end = hub.finish();
}

#[test]
fn sources_come_and_go_without_a_lost_packet() {
    let folder = TempDir::new().expect("a folder can be made");
    let file = folder.path().join("hub.toml");
    let text = file.display().to_string();
    let write = |devices: &[&str]| {
        let source = |device: &&str| format!("[[source]]\ndevice = \"{device}\"\n");
        let sources: String = devices.iter().map(source).collect();
        fs::write(&file, sources + "[[group]]\nname = \"a\"\n").expect("a file");
    };
    write(&[]);
    // `tap:rx0` is an argument: it stays.
    let hub = RunningHub::with("reload-source", LARGE_POOL, &["-c", &text]);
    hub.net.add_veth("tx1", "rx1");
    let early = hub.count("a", &["--stamps"]);
    let mut member = hub.receiver("a");
    let sender = hub.start_sending(5_000, PACKETS);

    // An interface that is not there changes nothing.
    write(&["tap:nosuch0"]);
    let asked = reload(&hub).wait(LIMIT);
    assert_eq!(asked.status.code(), Some(2), "{}", asked.stderr);
    assert!(
        asked.stderr.contains("line 2, device: "),
        "{}",
        asked.stderr
    );
    assert_eq!(hub.status().sources.len(), 1);

    write(&["tap:rx1?direction=in"]);
    let _asked = reload(&hub).wait(LIMIT).success();
    hub.wait_until("the new source is there", |status| {
        status.sources.len() == 2
    });
    // A reader of the first source only still changes its filter.
    member
        .set_filter(&Program::everything())
        .expect("it is changed");
    drop(member);
    hub.wait_until("it has left", |status| status.readers.len() == 1);
    write(&["packet:rx1"]);
    let asked = reload(&hub).wait(LIMIT);
    assert_eq!(asked.status.code(), Some(2), "{}", asked.stderr);
    assert!(
        asked.stderr.contains("captures rx1 as tap:rx1"),
        "{}",
        asked.stderr
    );
    let late = hub.count("a", &["udp", "or", "ether", "proto", "0x88b5"]);
    let frame = [vec![2_u8; 12], vec![0x88, 0xb5], vec![0; 50]].concat();
    hub.net.inject("tx1", &vec![frame.clone(); 100]);
    hub.wait_until("both have their packets", |status| {
        let [one, other] = &status.sources[..] else {
            panic!("two sources")
        };
        let captured = |source: &SourceStatus| {
            source
                .lanes
                .iter()
                .map(|lane| lane.counters.delivered)
                .sum()
        };
        let (one, other): (u64, u64) = (captured(one), captured(other));
        one == PACKETS && other == 100
    });
    let _sent = sender.wait(LIMIT).success();

    write(&[]);
    let _asked = reload(&hub).wait(LIMIT).success();
    hub.wait_until("the source has ended", |status| {
        status.sources[1].state == SourceState::Ended
    });
    assert!(!hub.net.has_xdp("rx1"), "nothing is left behind");
    hub.net.inject("tx1", &vec![frame.clone(); 100]);
    hub.net.inject("tx0", &vec![frame; 100]);
    hub.wait_until("the readers have all packets", |status| {
        let of = |at: usize| {
            status
                .readers
                .get(at)
                .map_or(0, |one| one.counters.delivered)
        };
        of(0) == PACKETS + 100 && of(1) >= 200
    });
    let (late, _) = Account::of(late);
    assert_eq!(late.lost(), 0, "{late:?}");
    lost_nothing(early);
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

#[test]
fn a_file_is_checked_without_a_hub() {
    let folder = TempDir::new().expect("a folder can be made");
    let file = folder.path().join("hub.toml");
    let check = |text: &str| {
        fs::write(&file, text).expect("a file");
        let mut command = std::process::Command::new(BINARY);
        command.args(["hub", "--check"]).arg(&file);
        Running::start(command).wait(LIMIT)
    };
    let source = "[[source]]\ndevice = \"tap:nosuch0\"\nwait = true\n";
    let good = check(&format!(
        "{source}[[group]]\nname = \"a\"\nfilter = \"udp\"\n"
    ))
    .success();
    assert!(
        good.stdout.contains("no error: 1 source, 1 group"),
        "{}",
        good.stdout
    );
    assert!(
        good.stderr.contains("for now, no interface \"nosuch0\""),
        "{}",
        good.stderr
    );
    for (text, place) in [
        (
            "[[group]]\nname = \"a\"\nfilter = \"prot 7\"\n",
            "line 6, filter: ",
        ),
        (
            "[[group]]\nname = \"a\"\nbalance = \"hash\"\n",
            "line 6, balance: ",
        ),
        ("[[group]]\nname = \"a\"\nmember = 7\n", "line 6"),
    ] {
        let bad = check(&format!("{source}{text}"));
        assert_eq!(bad.status.code(), Some(2), "{}", bad.stderr);
        assert!(bad.stderr.contains(place), "{}", bad.stderr);
    }
}
