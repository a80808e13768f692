// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules that give packets of a reader's flows to another group, and the way from there to another interface.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use ringtap_client::{Connection, Next, SubscriptionRequest};
use ringtap_filter::FlowSelector;
use ringtap_filter::flow::{FlowAction, FlowRule};
use ringtap_pool::format::flag;
use ringtap_testkit::{require_root, require_tool};
use serde_json::Value;

use crate::rights::as_user;
use crate::rules::{OwnReader, flow, frames, outcome};
use crate::support::{BINARY, LARGE_POOL, LIMIT, RunningHub, request};

fn to_suspects(flow: impl Into<FlowSelector>, action: &str) -> FlowRule<FlowSelector> {
    let group = "suspects".parse().expect("a name");
    FlowRule {
        flow: flow.into(),
        action: match action {
            "mirror" => FlowAction::Mirror { group },
            _ => FlowAction::Forward { group },
        },
        lasts_ns: None,
    }
}

#[test]
fn a_group_gets_mirrored_packets_too_and_forwarded_ones_instead() {
    require_root!();
    require_tool!("ip", "python3");
    for device in [LARGE_POOL, "packet:rx0?direction=in"] {
        let groups = ["-g", "all", "-g", "ids:2:flow", "-g", "suspects:by-rule"];
        let hub = RunningHub::with("mirror", device, &groups);
        let mut one = OwnReader::attach(&hub, &request("all"));
        let mut other = OwnReader::attach(&hub, &request("all"));
        let mut ids = [(); 2].map(|()| OwnReader::attach(&hub, &request("ids")));
        let rules = [
            to_suspects(flow(1), "mirror"),
            to_suspects(flow(2), "forward"),
        ];
        one.rules().set(&rules).expect("rules");
        // The rule of a member is that of its group: the packet is mirrored, whoever gets it.
        ids[0]
            .rules()
            .set(&[to_suspects(flow(3), "mirror")])
            .expect("a rule");
        // Before the group has a reader, its packets are for nobody.
        hub.net.inject("tx0", &frames(&[1, 2, 3, 4], 50));
        assert_eq!(outcome(&one.reads(200)), [150, 0, 50, 0]);
        let mut suspects = [(); 2].map(|()| OwnReader::attach(&hub, &request("suspects")));
        hub.net.inject("tx0", &frames(&[1, 2, 3, 4], 100));
        assert_eq!(outcome(&one.reads(600)), [450, 0, 150, 0]);
        assert_eq!(outcome(&other.reads(600)), [600, 0, 0, 0]);
        for reader in &mut suspects {
            // Flows 1, 2 and 3; not 4.
            assert_eq!(outcome(&reader.reads(400)), [300, 100, 0, 0], "{device}");
        }
        let of_ids = ids.each_mut().map(|reader| outcome(&reader.reads(600))[0]);
        assert_eq!(of_ids.iter().sum::<u64>(), 600);
        // A pattern; and no rule chooses what this group itself does with its packets.
        let pattern: FlowSelector = "udp port 4".parse().expect("a pattern");
        other
            .rules()
            .set(&[to_suspects(pattern, "forward")])
            .expect("a rule");
        let refused = suspects[0].rules().set(&[to_suspects(flow(1), "mirror")]);
        let refused = refused.expect_err("it has no rules").to_string();
        assert!(
            refused.contains("choose the packets of this group"),
            "{refused}"
        );
        one.rules().remove(&[flow(1), flow(2)]).expect("its rules");
        hub.net.inject("tx0", &frames(&[1, 2, 3, 4], 100));
        assert_eq!(outcome(&one.reads(1000)), [850, 0, 150, 0]);
        assert_eq!(outcome(&other.reads(1000)), [900, 0, 100, 0]);
        for reader in &mut suspects {
            assert_eq!(outcome(&reader.reads(800)), [500, 300, 0, 0], "{device}");
        }
        // With their reader, its rules end.
        drop((one, other));
        hub.wait_until("two readers left", |status| status.readers.len() == 4);
        // The programs for which this reader waits are without them.
        let _late = OwnReader::attach(&hub, &request("all"));
        hub.net.inject("tx0", &frames(&[1, 2, 3, 4], 100));
        for reader in &mut suspects {
            assert_eq!(outcome(&reader.reads(1200)), [600, 600, 0, 0], "{device}");
        }
        for reader in suspects.iter_mut().chain(&mut ids) {
            reader.receiver.publish_progress(&reader.tally);
        }
        let status = hub.status();
        let balances = |it: &ringtap_ipc::protocol::ReaderStatus| it.counters.balance().holds();
        assert!(status.readers.iter().all(balances), "{status:?}");
        hub.finish();
    }
}

#[test]
fn a_reader_sees_which_of_its_packets_a_rule_gives_to_the_group_of_its_marks() {
    require_root!();
    require_tool!("ip", "python3");
    let groups = [
        "-g",
        "all",
        "-g",
        "suspects:by-rule",
        "-g",
        "others:by-rule",
    ];
    let hub = RunningHub::with("marks", LARGE_POOL, &groups);
    let suspects = "suspects".parse().expect("a name");
    let marking = |private| SubscriptionRequest {
        marks: Some(suspects),
        private,
        ..request("all")
    };
    let mut readers = [false, true].map(|private| OwnReader::attach(&hub, &marking(private)));
    let mut plain = OwnReader::attach(&hub, &request("all"));
    let other = FlowRule {
        flow: flow(2),
        action: FlowAction::Mirror {
            group: "others".parse().expect("a name"),
        },
        lasts_ns: None,
    };
    // The mark is that of the group, whoever gave the packet to it.
    let rules = [to_suspects(flow(1), "mirror"), other.into()];
    plain.rules().set(&rules).expect("rules");
    hub.net.inject("tx0", &frames(&[1, 2, 3], 50));
    for (reader, expected) in readers.iter_mut().chain([&mut plain]).zip([50, 50, 0]) {
        let mut marked = 0;
        let mut seen = 0;
        let deadline = Instant::now() + LIMIT;
        while seen < 150 {
            assert!(Instant::now() < deadline, "{seen} packets");
            let Ok(Next::Batch(batch)) = reader.receiver.next(Some(LIMIT)) else {
                panic!("no packets");
            };
            for packet in batch.packets() {
                let packet = packet.expect("a packet").packet;
                let is_marked = packet.slot().flags & flag::MARKED != 0;
                let is_first = packet.data[34..38].windows(2).any(|port| port == [0, 1]);
                assert!(!is_marked || is_first, "{:?}", packet.data);
                marked += u32::from(is_marked);
                seen += 1;
            }
        }
        assert_eq!(marked, expected);
    }
    let request = SubscriptionRequest {
        marks: Some("nothing".parse().expect("a name")),
        ..request("all")
    };
    let refused = Connection::attach(&hub.socket, &request).err();
    let refused = refused.expect("it has no such group").to_string();
    assert!(
        refused.contains("there is no group \"nothing\""),
        "{refused}"
    );
    hub.finish();
}

#[test]
fn a_user_gives_packets_only_to_groups_that_take_them_and_that_it_may_read() {
    require_root!();
    require_tool!("ip");
    const USER: u32 = 3003;
    let groups = [
        "-g",
        "all:users=3003",
        "-g",
        "own:by-rule:users=3003",
        "-g",
        "suspects:by-rule",
    ];
    let hub = RunningHub::with("mirror-rights", LARGE_POOL, &groups);
    fs::set_permissions(hub.path(""), Permissions::from_mode(0o755)).expect("it is ours");
    let reader = as_user(USER, &hub, &["count", "-q", "-i", "hub:all"]);
    hub.wait_until("the user reads", |status| status.readers.len() == 1);
    let add = |group: &str| {
        let flow = [
            "rules",
            "add",
            "-i",
            "hub:all",
            "udp",
            "10.0.0.1:1000",
            "10.0.0.2:1",
        ];
        let words = [&flow[..], &["mirror", group]].concat();
        as_user(USER, &hub, &words).wait(LIMIT)
    };
    assert!(add("own").success().stderr.is_empty());
    for group in ["suspects", "all", "nothing"] {
        let refused = add(group).stderr;
        let reason = format!("there is no group \"{group}\" that gets packets by rules");
        assert!(refused.contains(&reason), "{refused}");
    }
    drop(reader);
    hub.finish();
}

#[test]
fn what_a_rule_gives_to_a_group_leaves_by_another_interface() {
    require_root!();
    require_tool!("ip", "python3");
    let hub = RunningHub::with(
        "mirror-out",
        LARGE_POOL,
        &["-g", "all", "-g", "out:by-rule"],
    );
    hub.net.add_veth("tx1", "rx1");
    for device in ["tx1", "rx1"] {
        hub.net.ip(&["link", "set", device, "arp", "off"]);
        hub.net.ip(&["link", "set", device, "up"]);
    }
    let mut reader = OwnReader::attach(&hub, &request("all"));
    let before = hub.status().readers.len();
    let device = hub.device("out");
    let sender = hub.net.spawn(
        BINARY,
        &["send", "-q", "--json", "-i", "tx1", "--from", &device],
    );
    hub.wait_until("it reads", |status| status.readers.len() > before);
    let group = "out".parse().expect("a name");
    let rule = FlowRule {
        flow: flow(1),
        action: FlowAction::Forward { group },
        lasts_ns: None,
    };
    reader.rules().set(&[rule]).expect("a rule");
    let out = || hub.net.counter("tx1", "tx_packets");
    let already = out();
    hub.net.inject("tx0", &frames(&[1, 2], 100));
    assert_eq!(outcome(&reader.reads(200)), [100, 0, 100, 0]);
    let deadline = Instant::now() + LIMIT;
    while out() < already + 100 {
        assert!(Instant::now() < deadline, "{} left", out() - already);
        std::thread::sleep(Duration::from_millis(10));
    }
    sender.interrupt();
    let line = sender.wait(LIMIT).success().stdout;
    let counts: Value = serde_json::from_str(&line).expect("an object");
    assert_eq!(
        (&counts["sent"], &counts["refused"]),
        (&100.into(), &0.into()),
        "{line}"
    );
    hub.finish();
}
