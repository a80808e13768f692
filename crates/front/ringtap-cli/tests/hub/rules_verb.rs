// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap rules`, rules of the hub's file, and rules that are refused.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use ringtap_filter::flow::{FlowAction, FlowPattern, FlowRule};
use ringtap_testkit::{Finished, Running, require_root, require_tool};
use rustix::process::Signal;
use serde_json::Value;

use crate::reload::reload;
use crate::rules::{OwnReader, frames, ignore, of_group, outcome};
use crate::support::{Account, BINARY, LARGE_POOL, LIMIT, RunningHub, request};

const ALICE: u32 = 3001;

/// `ringtap rules` with these words, for a group of the hub.
fn rules(hub: &RunningHub, verb: &str, group: &str, words: &[&str]) -> Finished {
    let mut command = Command::new(BINARY);
    command
        .args(["rules", verb, "-i", &hub.device(group)])
        .args(words);
    Running::start(command).wait(LIMIT)
}

fn lines(text: &str) -> Vec<Value> {
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).expect(line))
        .collect()
}

#[test]
fn rules_are_added_listed_watched_and_removed_by_the_command() {
    require_root!();
    require_tool!("ip", "python3");
    let hub = RunningHub::with("rules-verb", LARGE_POOL, &["-g", "all", "-g", "idle"]);
    let reader = hub.count("all", &[]);
    let added = rules(
        &hub,
        "add",
        "all",
        &["udp", "10.0.0.2:7", "10.0.0.1:1000", "cutoff", "2 packets"],
    );
    assert_eq!(
        added.success().stdout,
        "udp 10.0.0.1:1000 10.0.0.2:7: set for 1 reader of hub:all\n"
    );
    let timed = [
        "udp",
        "10.0.0.2:8",
        "10.0.0.1:1000",
        "ignore",
        "for",
        "60s",
        "--json",
    ];
    let added = rules(&hub, "add", "all", &timed).success();
    assert_eq!(lines(&added.stdout)[0]["type"], "rule_set");
    let mut watch = Command::new(BINARY);
    watch.args(["rules", "watch", "--json", "-i", &hub.device("all")]);
    let watch = Running::start(watch);
    hub.net.inject("tx0", &frames(&[7, 8, 9], 10));
    hub.wait_until("all is read", |status| {
        of_group(status, "all").offered >= 30
    });
    let listed = rules(&hub, "list", "all", &["--json"]).success();
    let listed = lines(&listed.stdout);
    let [seven, eight] = &listed[..] else {
        panic!("{listed:?}")
    };
    let name = |rule: &Value| (rule["flow"].clone(), rule["action"].clone());
    assert_eq!(
        name(seven),
        ("udp 10.0.0.1:1000 10.0.0.2:7".into(), "cutoff".into())
    );
    assert_eq!(
        name(eight),
        ("udp 10.0.0.1:1000 10.0.0.2:8".into(), "ignore".into())
    );
    assert_eq!(
        (&seven["packets"], &seven["reader"]),
        (&2.into(), &1.into())
    );
    assert_eq!(seven["directions"][0]["packets"], 5);
    assert_eq!(seven["directions"][1]["bytes"], 300);
    assert!(
        eight["lasts_ms"]
            .as_u64()
            .is_some_and(|ms| (1..60_000).contains(&ms))
    );
    let text = rules(&hub, "list", "all", &[]).success().stdout;
    assert!(
        text.starts_with("reader 1: udp 10.0.0.1:1000 10.0.0.2:7 cutoff 2 packets: 5 packets"),
        "{text}"
    );
    // Removed, its end is an event, once somebody watches.
    let other = ["udp", "10.0.0.1:1000", "10.0.0.2:99"];
    let deadline = Instant::now() + LIMIT;
    while !watch.stdout().contains("10.0.0.2:99") {
        assert!(Instant::now() < deadline, "nobody watches");
        let _set = rules(&hub, "add", "all", &[&other[..], &["ignore"]].concat()).success();
        let _gone = rules(&hub, "remove", "all", &other).success();
        std::thread::sleep(Duration::from_millis(200));
    }
    let seven = ["udp", "10.0.0.1:1000", "10.0.0.2:7"];
    let removed = rules(&hub, "remove", "all", &seven).success();
    assert!(
        removed.stdout.contains("removed from 1 reader"),
        "{}",
        removed.stdout
    );
    let again = rules(&hub, "remove", "all", &seven);
    assert_eq!(again.status.code(), Some(1), "{}", again.stdout);
    watch.wait_for_stdout("10.0.0.2:7\"", LIMIT);
    // Of all flows that match a pattern.
    let pattern = ["udp", "net", "10.0.0.0/8", "port", "1-6"];
    let added = rules(
        &hub,
        "add",
        "all",
        &[&pattern[..], &["sample", "10"]].concat(),
    )
    .success();
    let told = "udp net 10.0.0.0/8 port 1-6: set for 1 reader of hub:all\n";
    assert_eq!(added.stdout, told);
    let text = rules(&hub, "list", "all", &[]).success().stdout;
    let first = "reader 1: udp net 10.0.0.0/8 port 1-6 sample 10\n";
    assert!(text.starts_with(first), "{text}");
    let _gone = rules(&hub, "remove", "all", &pattern).success();
    watch.signal(Signal::TERM);
    let told = lines(&watch.wait(LIMIT).stdout);
    let last = told.last().expect("an event");
    assert_eq!(
        (&last["why"], &last["reader"]),
        (&"removed".into(), &1.into()),
        "{told:?}"
    );
    assert_eq!(last["directions"][0]["packets"], 5);
    let (account, _) = Account::of(reader);
    let counts = ["delivered", "shunted"].map(|name| account.number(name));
    assert_eq!(counts, [2 * 2 + 10, 6 + 10], "{account:?}");
    // What cannot be.
    for (verb, group, words, status, reason) in [
        (
            "add",
            "idle",
            "udp 10.0.0.1:1 10.0.0.2:2 ignore",
            1,
            "has no reader of this user now",
        ),
        (
            "add",
            "none",
            "udp 10.0.0.1:1 10.0.0.2:2 ignore",
            1,
            "there is no group \"none\"",
        ),
        (
            "add",
            "idle",
            "icmp 10.0.0.1:1 10.0.0.2 ignore",
            2,
            "protocol 1 has no ports",
        ),
        (
            "add",
            "idle",
            "tcp 10.0.0.1:1 [fe80::1]:2 ignore",
            2,
            "different IP versions",
        ),
        ("remove", "idle", "tcp 10.0.0.1 10.0.0.2", 2, "have ports"),
        (
            "add",
            "idle",
            "--reader 99 udp 10.0.0.1:1 10.0.0.2:2 ignore",
            1,
            "there is no reader 99",
        ),
    ] {
        let words: Vec<_> = words.split(' ').collect();
        let refused = rules(&hub, verb, group, &words);
        assert_eq!(refused.status.code(), Some(status), "{}", refused.stderr);
        assert!(
            refused.stderr.contains(reason),
            "{reason}: {}",
            refused.stderr
        );
    }
    hub.finish();
}

#[test]
fn a_killed_reader_loses_its_rules_and_one_of_another_user_can_be_given_none() {
    require_root!();
    require_tool!("ip", "python3");
    let hub = RunningHub::with(
        "rules-kill",
        LARGE_POOL,
        &["-g", "all:users=3001", "--max-flow-rules", "3"],
    );
    std::fs::set_permissions(hub.path(""), Permissions::from_mode(0o755)).expect("it is ours");
    let victim = hub.count("all", &[]);
    let own = ["udp", "10.0.0.1:1000", "10.0.0.2:7", "ignore"];
    let _set = rules(&hub, "add", "all", &own).success();
    let as_alice = |words: &[&str]| {
        let mut command = Command::new(BINARY);
        command
            .args(["rules", "add", "-i", &hub.device("all")])
            .args(words);
        command.uid(ALICE).gid(ALICE);
        Running::start(command).wait(LIMIT)
    };
    let others = as_alice(&[
        "--reader",
        "1",
        "udp",
        "10.0.0.1:1000",
        "10.0.0.2:8",
        "ignore",
    ]);
    assert!(
        others.stderr.contains("reader 1 is none of user 3001"),
        "{}",
        others.stderr
    );
    let none = as_alice(&own);
    assert!(
        none.stderr.contains("no reader of this user"),
        "{}",
        none.stderr
    );
    // A flood is refused at the hub's limit.
    let mut flooding = OwnReader::attach(&hub, &request("all"));
    let flood: Vec<_> = (100..110).map(ignore).collect();
    let refused = flooding.rules().set(&flood).unwrap_err().to_string();
    assert!(
        refused.contains("have 3 flow rules (limits.flow_rules)"),
        "{refused}"
    );
    assert_eq!(flooding.rules().list().expect("a list").len(), 2);
    victim.signal(Signal::KILL);
    let _killed = victim.wait(LIMIT);
    let deadline = Instant::now() + LIMIT;
    while flooding.rules().set(&[ignore(200)]).is_err() {
        assert!(
            Instant::now() < deadline,
            "the rule of the killed reader stays"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    // Nothing of it is withheld from a reader with its bit.
    let mut next = OwnReader::attach(&hub, &request("all"));
    hub.net.inject("tx0", &frames(&[7, 100], 10));
    assert_eq!(outcome(&next.reads(20)), [20, 0, 0, 0]);
    assert_eq!(outcome(&flooding.reads(20)), [10, 0, 10, 0]);
    hub.finish();
}

#[test]
fn the_hubs_file_has_rules_and_cut_offs_and_a_reload_applies_them() {
    require_root!();
    require_tool!("ip", "python3");
    let folder = tempfile::TempDir::new().expect("a folder");
    let file = folder.path().join("hub.toml");
    let text = |group: &str, rule: &str| {
        format!("[[group]]\nname = \"all\"\n{group}[[group]]\nname = \"rest\"\n{rule}")
    };
    let ignored =
        "[[rule]]\ngroup = \"all\"\nflow = \"udp 10.0.0.1:1000 10.0.0.2:7\"\naction = \"ignore\"\n";
    std::fs::write(&file, text("", ignored)).expect("a file of the test");
    let hub = RunningHub::with(
        "rules-file",
        LARGE_POOL,
        &["-c", &file.display().to_string()],
    );
    let [mut all, mut rest] = ["all", "rest"].map(|group| OwnReader::attach(&hub, &request(group)));
    let listed = all.rules().list().expect("a list");
    assert_eq!((listed.len(), listed[0].reader), (1, None));
    hub.net.inject("tx0", &frames(&[7, 8], 10));
    assert_eq!(outcome(&all.reads(20)), [10, 0, 10, 0]);
    assert_eq!(outcome(&rest.reads(20)), [20, 0, 0, 0]);
    // Instead of the rule, a cut-off of flows that begin now.
    std::fs::write(&file, text("cutoff = \"2 packets\"\n", "")).expect("a file of the test");
    let _done = reload(&hub).wait(LIMIT).success();
    let deadline = Instant::now() + LIMIT;
    while !all.rules().list().expect("a list").is_empty() {
        assert!(Instant::now() < deadline, "the rule stays");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(500));
    hub.net.inject("tx0", &frames(&[17, 18], 10));
    assert_eq!(outcome(&all.reads(40)), [10 + 8, 0, 10 + 12, 0]);
    assert_eq!(outcome(&rest.reads(40)), [40, 0, 0, 0]);
    // Instead of the cut-off, a rule for a pattern.
    let sampled = "[[rule]]\ngroup = \"all\"\nflow = \"udp port 17-18\"\nsample = 5\n";
    std::fs::write(&file, text("", sampled)).expect("a file of the test");
    let _done = reload(&hub).wait(LIMIT).success();
    std::thread::sleep(Duration::from_millis(1000));
    let listed = all.rules().list().expect("a list");
    let found = listed
        .iter()
        .map(|rule| (rule.rule.flow.to_string(), rule.reader));
    assert_eq!(
        found.collect::<Vec<_>>(),
        [("udp port 17-18".to_owned(), None)]
    );
    hub.net.inject("tx0", &frames(&[16, 18], 20));
    // Of the flow, five packets of each direction came before.
    assert_eq!(outcome(&all.reads(80)), [18 + 20 + 4, 0, 22 + 16, 0]);
    // What is wrong is told with its line and key.
    for (wrong, reason) in [
        (
            "[[rule]]\ngroup = \"no\"\nflow = \"udp 10.0.0.1:1 10.0.0.2:2\"\naction = \"ignore\"\n",
            "line 6, group: there is no [[group]] \"no\"",
        ),
        (
            "[[rule]]\ngroup = \"all\"\nflow = \"icmp 10.0.0.1:1 10.0.0.2\"\naction = \"ignore\"\n",
            "line 7, flow: protocol 1 has no ports",
        ),
        (
            "[[rule]]\ngroup = \"all\"\nflow = \"udp 10.0.0.1:1 10.0.0.2:2\"\n",
            "line 7, action: expected action",
        ),
        (
            "[[rule]]\ngroup = \"all\"\nflow = \"udp port 1\"\nsample = 1\n",
            "line 7, action: a sample is of one packet in 2",
        ),
        (
            "[[rule]]\ngroup = \"all\"\nflow = \"udp port 1\"\nsample = 9\nseconds = 3\n",
            "line 7, flow: a rule of the file for a pattern has no end",
        ),
    ] {
        std::fs::write(&file, text("", wrong)).expect("a file of the test");
        let mut check = Command::new(BINARY);
        check.args(["hub", "--check", &file.display().to_string()]);
        let refused = Running::start(check).wait(LIMIT);
        assert!(
            refused.stderr.contains(reason),
            "{reason}: {}",
            refused.stderr
        );
    }
    hub.finish();
}

#[test]
fn a_source_in_user_space_withholds_as_the_tap_does() {
    require_root!();
    require_tool!("ip", "python3");
    let hub = RunningHub::with("rules-packet", "packet:rx0?direction=in", &["-g", "all"]);
    let mut reader = OwnReader::attach(&hub, &request("all"));
    reader.rules().set(&[ignore(1)]).expect("it has a table");
    hub.net.inject("tx0", &frames(&[1, 2], 10));
    let counters = reader.reads(20);
    assert_eq!((counters.delivered, counters.shunted), (10, 10));
    let pattern: FlowRule<FlowPattern> = FlowRule {
        flow: "host 10.0.0.2 port 2-3".parse().expect("a pattern"),
        action: FlowAction::Sample { one_in: 5 },
        lasts_ns: None,
    };
    reader.rules().set(&[pattern]).expect("it has a table");
    hub.net.inject("tx0", &frames(&[3, 4], 20));
    let counters = reader.reads(60);
    assert_eq!((counters.delivered, counters.shunted), (34, 26));
}
