// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flow rules of readers: who gets a packet and what is counted, against counts of the packets that were sent.

use std::time::{Duration, Instant};

use ringtap_client::{ReaderRules, Receiver, SubscriptionRequest, Tally};
use ringtap_filter::FlowSelector;
use ringtap_filter::flow::{CutOff, FlowAction, FlowId, FlowRule};
use ringtap_ipc::protocol::{HubStatus, RuleStatus};
use ringtap_pool::counters::Counters;
use ringtap_testkit::{Running, require_root, require_tool};

use crate::support::{Account, BINARY, LARGE_POOL, LIMIT, RunningHub, read, request};

const FRAME_BYTES: u64 = 60;

/// A frame of the UDP flow 10.0.0.1:1000 and 10.0.0.2:`port`, there or back.
fn frame(port: u16, is_there: bool) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    frame.extend([0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0]);
    let ends = [([10, 0, 0, 1], 1000_u16), ([10, 0, 0, 2], port)];
    let [from, to] = if is_there { ends } else { [ends[1], ends[0]] };
    frame.extend(from.0);
    frame.extend(to.0);
    frame.extend(from.1.to_be_bytes());
    frame.extend(to.1.to_be_bytes());
    frame.resize(60, 0);
    frame
}

pub(crate) fn flow(port: u16) -> FlowId {
    let text = format!("udp 10.0.0.1:1000 10.0.0.2:{port}");
    text.parse().expect("a flow")
}

pub(crate) fn ignore(port: u16) -> FlowRule {
    FlowRule {
        flow: flow(port),
        action: FlowAction::Ignore,
        lasts_ns: None,
    }
}

/// This many frames of each of these flows, in turn and in both directions.
pub(crate) fn frames(ports: &[u16], each: usize) -> Vec<Vec<u8>> {
    let one = |at: usize| {
        ports
            .iter()
            .map(move |port| frame(*port, at.is_multiple_of(2)))
    };
    (0..each).flat_map(one).collect()
}

/// A reader in this process, with its own count.
pub(crate) struct OwnReader {
    pub(crate) receiver: Receiver,
    pub(crate) tally: Tally,
}

impl OwnReader {
    pub(crate) fn attach(hub: &RunningHub, request: &SubscriptionRequest) -> Self {
        let receiver = hub.attach(request);
        let tally = Tally::new(receiver.lanes());
        OwnReader { receiver, tally }
    }

    pub(crate) fn rules(&self) -> ReaderRules<'_> {
        ReaderRules::new(&**self.receiver.control())
    }

    /// The counters now; the account balances at every moment.
    fn counters(&mut self) -> Counters {
        read(
            &mut self.receiver,
            &mut self.tally,
            Duration::from_millis(1),
        );
        let snapshot = self.receiver.snapshot().expect("the hub answers");
        self.tally.total(&snapshot)
    }

    /// Reads until these packets are accounted for.
    #[track_caller]
    pub(crate) fn reads(&mut self, offered: u64) -> Counters {
        let deadline = Instant::now() + LIMIT;
        loop {
            let counters = self.counters();
            if counters.offered >= offered && counters.balance().holds() {
                return counters;
            }
            assert!(Instant::now() < deadline, "{offered}: {counters:?}");
        }
    }
}

/// Delivered, filtered, shunted and for other members.
pub(crate) fn outcome(counters: &Counters) -> [u64; 4] {
    [
        counters.delivered,
        counters.filtered,
        counters.shunted,
        counters.other_members,
    ]
}

#[test]
fn a_reader_loses_what_it_ignores_and_no_other_does_and_all_accounts_balance() {
    require_root!();
    require_tool!("ip", "python3");
    let hub = RunningHub::with("rules-own", LARGE_POOL, &["-g", "all"]);
    let [mut one, mut other] = [(); 2].map(|()| OwnReader::attach(&hub, &request("all")));
    hub.net.inject("tx0", &frames(&[1, 2], 5));
    assert_eq!(outcome(&one.reads(10)), [10, 0, 0, 0]);
    one.rules().set(&[ignore(1)]).expect("the tap has a table");
    hub.net.inject("tx0", &frames(&[1, 2], 100));
    assert_eq!(outcome(&one.reads(210)), [110, 0, 100, 0]);
    assert_eq!(outcome(&other.reads(210)), [210, 0, 0, 0]);
    // Now from both: no packet of the flow is copied.
    other.rules().set(&[ignore(1)]).expect("it has room");
    hub.net.inject("tx0", &frames(&[1, 2], 100));
    assert_eq!(outcome(&one.reads(410)), [210, 0, 200, 0]);
    assert_eq!(outcome(&other.reads(410)), [310, 0, 100, 0]);
    for it in [&one, &other] {
        it.receiver.publish_progress(&it.tally);
    }
    let status = hub.wait_until("the hub knows", |status| {
        status.readers.iter().all(|reader| reader.unread == 0)
    });
    let lanes = status.sources[0]
        .lanes
        .iter()
        .map(|lane| lane.counters.shunted);
    assert_eq!(lanes.sum::<u64>(), 100);
    let expected = [[210, 0, 200, 0], [310, 0, 100, 0]];
    for (reader, expected) in status.readers.iter().zip(expected) {
        assert_eq!(outcome(&reader.counters), expected);
        assert_eq!(reader.shunted_bytes, reader.counters.shunted * FRAME_BYTES);
        assert!(reader.counters.balance().holds(), "{reader:?}");
    }
    // Readers that have left.
    drop((one, other));
    let left = hub.wait_until("both left", |status| status.readers.is_empty());
    assert_eq!(outcome(&left.departed[0].counters), [520, 0, 300, 0]);
    assert!(left.departed[0].counters.balance().holds());
    hub.finish();
}

#[test]
fn packets_withheld_from_a_slow_reader_that_came_before_the_first_rule_are_no_losses() {
    require_root!();
    require_tool!("ip", "python3");
    let device = "tap:rx0?exclusive&direction=in&pool=8MiB";
    let hub = RunningHub::with("rules-slow", device, &["-g", "all"]);
    let slow = SubscriptionRequest {
        credit_chunks: Some(2),
        ..request("all")
    };
    let mut slow = OwnReader::attach(&hub, &slow);
    let mut other = OwnReader::attach(&hub, &request("all"));
    slow.rules().set(&[ignore(1)]).expect("the tap has a table");
    // Far more than the credit of the slow reader, which reads nothing meanwhile; the other wants every packet.
    const EACH: u64 = 5000;
    for _ in 0..10 {
        hub.net.inject("tx0", &frames(&[1, 2], 500));
        other.counters();
    }
    assert_eq!(outcome(&other.reads(2 * EACH)), [2 * EACH, 0, 0, 0]);
    let counters = slow.reads(2 * EACH);
    assert!(counters.dropped.overrun > 0, "{counters:?}");
    let of_second = counters.delivered + counters.dropped.overrun;
    assert_eq!((counters.shunted, of_second), (EACH, EACH), "{counters:?}");
    hub.finish();
}

/// A rule for a pattern.
fn for_pattern(text: &str, action: FlowAction) -> FlowRule<FlowSelector> {
    FlowRule {
        flow: text.parse().expect("a pattern"),
        action,
        lasts_ns: None,
    }
}

#[test]
fn rules_for_patterns_withhold_from_their_reader_only_and_end_with_it() {
    require_root!();
    require_tool!("ip", "python3");
    let groups = ["-g", "all", "-g", "ids:2:flow"];
    let hub = RunningHub::with("rules-patterns", LARGE_POOL, &groups);
    let [mut one, mut other] = [(); 2].map(|()| OwnReader::attach(&hub, &request("all")));
    let mut ids = [(); 2].map(|()| OwnReader::attach(&hub, &request("ids")));
    let ports: Vec<u16> = (1..=10).collect();
    let ignored = for_pattern("udp net 10.0.0.0/8 port 1-4", FlowAction::Ignore);
    one.rules().set(&[ignored]).expect("a rule");
    // Longer than the network: of port 4 one packet in five.
    let sampled = for_pattern("host 10.0.0.2 port 4", FlowAction::Sample { one_in: 5 });
    one.rules().set(&[sampled]).expect("a rule");
    // The rule for the flow itself comes before those for patterns.
    let cut = CutOff {
        packets: Some(3),
        bytes: None,
    };
    let own = FlowRule {
        action: FlowAction::CutOff(cut),
        ..ignore(1)
    };
    one.rules().set(&[own]).expect("a rule");
    let of_group = for_pattern("host 10.0.0.2 port 9-10", FlowAction::Ignore);
    ids[0].rules().set(&[of_group]).expect("a rule");
    // 100 packets of each flow, half of them in each direction.
    hub.net.inject("tx0", &frames(&ports, 100));
    // Port 1: 2 × 3; ports 2 and 3: none; port 4: 2 × 10; the other six.
    assert_eq!(outcome(&one.reads(1000)), [626, 0, 374, 0]);
    assert_eq!(outcome(&other.reads(1000)), [1000, 0, 0, 0]);
    let both = ids.each_mut().map(|member| member.reads(1000));
    let sum = |of: fn(&Counters) -> u64| both.iter().map(of).sum::<u64>();
    assert_eq!(
        (sum(|it| it.delivered), sum(|it| it.shunted)),
        (800, 200),
        "{both:?}"
    );
    // The list: patterns first, of a group those of all members.
    let texts = |reader: &OwnReader| {
        let rules = reader.rules().list().expect("a list");
        let text = |rule: &RuleStatus| rule.rule.flow.to_string();
        rules.iter().map(text).collect::<Vec<_>>()
    };
    let expected = [
        "host 10.0.0.2 port 4",
        "udp net 10.0.0.0/8 port 1-4",
        "udp 10.0.0.1:1000 10.0.0.2:1",
    ];
    let mut listed = texts(&one);
    listed[..2].sort_unstable();
    assert_eq!(listed, expected);
    assert_eq!(texts(&ids[1]), ["host 10.0.0.2 port 9-10"]);
    assert!(texts(&other).is_empty());
    // Removed, at its time, and with its reader.
    assert_eq!(
        one.rules()
            .remove(&[ignored.flow, sampled.flow])
            .expect("removed"),
        2
    );
    assert_eq!(one.rules().remove(&[ignored.flow]).expect("removed"), 0);
    let short = FlowRule {
        lasts_ns: Some(200_000_000),
        ..ignored
    };
    other.rules().set(&[short]).expect("a rule");
    drop(ids);
    let deadline = Instant::now() + LIMIT;
    while !texts(&other).is_empty() {
        assert!(Instant::now() < deadline, "the rule stays");
        std::thread::sleep(Duration::from_millis(20));
    }
    // The rules that this reader waits for are without it.
    let mut late = OwnReader::attach(&hub, &request("ids"));
    hub.net.inject("tx0", &frames(&ports, 100));
    assert_eq!(
        outcome(&one.reads(2000)),
        [1526, 0, 474, 0],
        "only the rule for its flow is left"
    );
    assert_eq!(outcome(&other.reads(2000)), [2000, 0, 0, 0]);
    assert_eq!(outcome(&late.reads(1000)), [1000, 0, 0, 0]);
    hub.finish();
}

#[test]
fn rules_for_patterns_are_few_and_those_of_the_file_leave_room_for_them() {
    require_root!();
    require_tool!("ip", "python3");
    let hub = RunningHub::with("rules-few", LARGE_POOL, &["-g", "all"]);
    let [one, other] = [(); 2].map(|()| OwnReader::attach(&hub, &request("all")));
    let rule = |port: u16| for_pattern(&format!("udp port {port}"), FlowAction::Ignore);
    let all: Vec<_> = (1..=32).map(rule).collect();
    one.rules().set(&all).expect("as many as there may be");
    // The same rules of another reader are no further ones.
    other.rules().set(&all).expect("the same");
    let refused = other.rules().set(&[rule(33)]).unwrap_err().to_string();
    assert!(refused.contains("32 rules for patterns"), "{refused}");
    let endless = for_pattern("udp", FlowAction::Sample { one_in: 1 });
    let refused = one.rules().set(&[endless]).unwrap_err().to_string();
    assert!(refused.contains("one packet in 2 to"), "{refused}");
    hub.net.inject("tx0", &frames(&[1, 32, 33], 10));
    let [mut one, mut other] = [one, other];
    assert_eq!(outcome(&one.reads(30)), [10, 0, 20, 0]);
    assert_eq!(outcome(&other.reads(30)), [10, 0, 20, 0]);
    hub.finish();
}

/// What flow rules of several groups, with and without filters, leave to each reader.
#[test]
fn groups_that_overlap_count_each_packet_once_for_each_reader() {
    require_root!();
    require_tool!("ip", "python3");
    let groups = [
        "-g",
        "all",
        "-g",
        "ids:2:flow",
        "-g",
        "web:udp port 1 or udp port 2",
        "-g",
        "own:private",
    ];
    let hub = RunningHub::with("rules-many", LARGE_POOL, &groups);
    let mut all = OwnReader::attach(&hub, &request("all"));
    let mut web = OwnReader::attach(&hub, &request("web"));
    let mut own = OwnReader::attach(&hub, &request("own"));
    let mut ids = [(); 2].map(|()| OwnReader::attach(&hub, &request("ids")));
    web.rules().set(&[ignore(1), ignore(3)]).expect("rules");
    own.rules().set(&[ignore(2), ignore(4)]).expect("rules");
    ids[1].rules().set(&[ignore(1), ignore(5)]).expect("rules");
    const EACH: usize = 50;
    let ports = [1, 2, 3, 4, 5, 6, 7, 8];
    let sent = frames(&ports, EACH);
    hub.net.inject("tx0", &sent);
    let (sent, each) = (sent.len() as u64, EACH as u64);
    assert_eq!(outcome(&all.reads(sent)), [sent, 0, 0, 0]);
    // Port 3 does not pass its filter: the rule for it withholds nothing.
    assert_eq!(outcome(&web.reads(sent)), [each, sent - 2 * each, each, 0]);
    assert_eq!(outcome(&own.reads(sent)), [sent - 2 * each, 0, 2 * each, 0]);
    let both = ids.each_mut().map(|member| member.reads(sent));
    let sum = |of: fn(&Counters) -> u64| both.iter().map(of).sum::<u64>();
    assert_eq!(sum(|it| it.delivered), sent - 2 * each, "{both:?}");
    assert_eq!(
        sum(|it| it.shunted),
        2 * each,
        "the rule of one is that of both: {both:?}"
    );
    assert_eq!(sum(|it| it.other_members), sent, "{both:?}");
    assert_eq!(sum(|it| it.filtered), 0, "{both:?}");
    for it in [&mut all, &mut web].into_iter().chain(&mut ids) {
        it.receiver.publish_progress(&it.tally);
    }
    let status = hub.wait_until("the hub knows", |status| {
        let shared = status.readers.iter().filter(|one| one.group != "own");
        shared.into_iter().all(|reader| reader.unread == 0)
    });
    for reader in &status.readers {
        let counters = &reader.counters;
        assert!(counters.balance().holds(), "{reader:?}");
        // The hub learns with a delay what a private reader has read.
        assert_eq!(counters.offered + reader.unread, sent, "{reader:?}");
        match &*reader.group {
            "all" => assert_eq!(outcome(counters), [sent, 0, 0, 0]),
            "web" => assert_eq!(outcome(counters), [each, sent - 2 * each, each, 0]),
            "own" => assert_eq!((counters.shunted, counters.filtered), (2 * each, 0)),
            _ => assert_eq!(counters.filtered, 0, "{reader:?}"),
        }
    }
    hub.finish();
}

#[test]
fn a_balanced_groups_account_is_right_while_members_come_and_leave() {
    require_root!();
    require_tool!("ip", "python3");
    let hub = RunningHub::with(
        "rules-group",
        LARGE_POOL,
        &["-g", "all", "-g", "ids:4:flow"],
    );
    let mut all = OwnReader::attach(&hub, &request("all"));
    let mut first = OwnReader::attach(&hub, &request("ids"));
    let ports: Vec<u16> = (1..=20).collect();
    first
        .rules()
        .set(&ports.iter().map(|port| ignore(*port)).collect::<Vec<_>>())
        .expect("rules");
    let mut second = OwnReader::attach(&hub, &request("ids"));
    // The rules of the first hold for the second, too.
    let rules = |reader: &OwnReader| reader.rules().list().expect("a list").len();
    assert_eq!((rules(&first), rules(&second)), (20, 20));
    std::thread::sleep(Duration::from_millis(300));
    hub.net.inject("tx0", &frames(&ports, 10));
    let [one, two] = [first.reads(200), second.reads(200)];
    assert_eq!((one.delivered, two.delivered), (0, 0));
    assert_eq!(
        (
            one.shunted + two.shunted,
            one.other_members + two.other_members
        ),
        (200, 200)
    );
    assert!(one.shunted > 0 && two.shunted > 0, "{one:?} {two:?}");
    // With the first, its rules go; its bit is free for others only then.
    drop(first);
    hub.wait_until("the first left", |status| status.readers.len() == 2);
    let deadline = Instant::now() + LIMIT;
    while rules(&second) > 0 {
        assert!(Instant::now() < deadline, "rules stay");
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut third = OwnReader::attach(&hub, &request("all"));
    hub.net.inject("tx0", &frames(&ports, 10));
    assert_eq!(
        outcome(&third.reads(200)),
        [200, 0, 0, 0],
        "no rule of another is its own"
    );
    assert_eq!(second.reads(400).delivered, 200);
    assert_eq!(outcome(&all.reads(400)), [400, 0, 0, 0]);
    hub.finish();
}

/// The account of a group's reader in the hub's status.
pub(crate) fn of_group<'a>(status: &'a HubStatus, group: &str) -> &'a Counters {
    let mut readers = status.readers.iter();
    let found = readers.find(|reader| reader.group == group);
    &found.expect("the group has a reader").counters
}

#[test]
fn cut_offs_of_groups_and_readers_leave_exactly_the_start_of_each_flow() {
    require_root!();
    require_tool!("ip", "python3");
    let hub = RunningHub::with(
        "rules-cut",
        LARGE_POOL,
        &[
            "-g",
            "heads:cutoff=3 packets",
            "-g",
            "all",
            "-g",
            "bytes:cutoff=300",
        ],
    );
    let [heads, own, bytes] = [
        hub.count("heads", &[]),
        hub.count("all", &["--cutoff", "7 packets"]),
        hub.count("bytes", &[]),
    ];
    // 20 packets of each direction of 50 flows.
    let ports: Vec<u16> = (1..=50).collect();
    hub.net.inject("tx0", &frames(&ports, 40));
    let sent = 2000;
    hub.wait_until("all is read", |status| {
        let of = |group| of_group(status, group).offered;
        ["heads", "all", "bytes"]
            .iter()
            .all(|group| of(group) >= sent)
    });
    // A packet that begins within 300 bytes: the first five of 60 bytes.
    for (reader, each) in [(heads, 3), (own, 7), (bytes, 5)] {
        let (account, _) = Account::of(reader);
        let delivered = 50 * 2 * each;
        let counts = ["delivered", "shunted", "filtered"].map(|name| account.number(name));
        assert_eq!(counts, [delivered, sent - delivered, 0], "{account:?}");
        assert_eq!(account.number("bytes"), delivered * FRAME_BYTES);
    }
    // Of one interface, without a hub.
    hub.finish();
}

#[test]
fn a_capture_of_an_interface_has_a_cut_off_of_its_own() {
    require_root!();
    require_tool!("ip", "python3");
    let net = ringtap_testkit::Namespace::with_veth("rules-alone");
    let mut command = net.command(BINARY);
    let device = "tap:rx0?direction=in";
    command.args([
        "count",
        "-q",
        "--json",
        "-v",
        "--cutoff",
        "4 packets",
        "-i",
        device,
    ]);
    let reader = Running::start(command);
    let deadline = Instant::now() + LIMIT;
    while !net.has_xdp("rx0") {
        assert!(Instant::now() < deadline, "the tap opens");
        std::thread::sleep(Duration::from_millis(20));
    }
    // The rules are in force a moment later.
    std::thread::sleep(Duration::from_secs(2));
    net.inject("tx0", &frames(&[1, 2, 3], 20));
    std::thread::sleep(Duration::from_millis(500));
    let (account, _) = Account::of(reader);
    assert_eq!(account.number("delivered"), 24, "{account:?}");
    assert_eq!(account.number("shunted"), 36, "{account:?}");
}
