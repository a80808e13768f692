// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread's work, step by step, on a table in user space.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use ringtap_filter::flow::{
    CutOff, FlowAction, FlowEnd, FlowId, FlowPacket, FlowRuleError, FlowSettings, FlowSums,
    FlowTotals, RuleBits, RuleTable,
};
use ringtap_ipc::mutex::lock;
use ringtap_ipc::protocol::{FlowEvent, Refused};
use ringtap_ipc::time::monotonic_ns;
use ringtap_pool::source::WithheldCounts;

use super::worker::FlowWorker;
use super::*;

/// A table in user space, and the number of ends that it reports as lost.
struct InMemory(Mutex<RuleTable>, AtomicU64);

impl FlowRules for InMemory {
    fn set(&self, rule: &FlowRule, bits: RuleBits) -> Result<(), FlowRuleError> {
        lock(&self.0).set(rule, bits, monotonic_ns())
    }

    fn remove(&self, key: &FlowId, members: u64) -> bool {
        lock(&self.0).remove(key, members)
    }

    fn get(&self, key: &FlowId) -> Option<FlowSums> {
        lock(&self.0).get(key)
    }

    fn sweep(&self, most: usize) {
        lock(&self.0).sweep(monotonic_ns(), most);
    }

    fn take_ends(&self) -> Vec<(FlowEnd, FlowSums)> {
        lock(&self.0).take_ends().collect()
    }

    fn totals(&self) -> FlowTotals {
        FlowTotals {
            lost_ends: self.1.load(Relaxed),
            ..lock(&self.0).totals()
        }
    }

    fn withheld(&self, _member: u32) -> Vec<WithheldCounts> {
        Vec::new()
    }
}

/// A worker with one table.
struct Desk {
    worker: FlowWorker,
    table: Arc<InMemory>,
    released: Receiver<u64>,
}

fn limits(reader: u32, user: u32, hub: u32) -> Limits {
    let number = |number| NonZeroU32::new(number).unwrap();
    Limits {
        flow_rules_per_reader: number(reader),
        flow_rules_per_user: number(user),
        flow_rules: number(hub),
        ..Limits::default()
    }
}

impl Desk {
    fn new(limits: Limits) -> Self {
        Desk::with(limits, FlowSettings::default())
    }

    fn with(limits: Limits, settings: FlowSettings) -> Self {
        let (free, released) = mpsc::channel();
        let table = Arc::new(InMemory(
            Mutex::new(RuleTable::new(settings)),
            AtomicU64::new(0),
        ));
        let mut worker = FlowWorker::new(limits, free, Event::new().unwrap());
        worker.take(FlowWork::Tables(vec![table.clone()]));
        Desk {
            worker,
            table,
            released,
        }
    }

    fn know(&mut self, reader: FlowReader) {
        self.worker.take(FlowWork::Reader(reader));
    }

    fn ask(&mut self, id: u64, request: Request) -> Result<Reply, Refused> {
        let (responder, answer) = Responder::new(None);
        let id = SubscriptionId(id);
        self.worker.take(FlowWork::Request {
            id,
            request,
            responder,
        });
        answer.recv().expect("an answer")
    }

    fn set(&mut self, id: u64, ports: std::ops::Range<u16>) -> (u64, Option<String>) {
        let rules = ports.map(|port| ignore(port).into());
        let request = Request::SetRules {
            reader: None,
            rules: rules.collect(),
        };
        match self.ask(id, request).expect("it is answered") {
            Reply::RulesDone { done, refused } => (done, refused.map(|why| why.message)),
            other => panic!("{other:?}"),
        }
    }

    fn events(&mut self, id: u64) -> (Vec<FlowEvent>, u64) {
        match self.ask(id, Request::FlowEvents { reader: None }) {
            Ok(Reply::FlowEvents { events, lost, .. }) => (events, lost),
            other => panic!("{other:?}"),
        }
    }

    fn leave(&mut self, id: u64, bits: u64) {
        let id = SubscriptionId(id);
        self.worker.take(FlowWork::Leave { id, bits });
    }

    /// The members from whom a packet of the flow is withheld.
    fn withheld(&self, port: u16) -> u64 {
        let packet = FlowPacket {
            key: flow(port),
            direction: 0,
            flags: 0,
            wire_length: 60,
        };
        lock(&self.table.0)
            .recipients(&packet, u64::MAX, monotonic_ns())
            .withheld
    }
}

fn flow(port: u16) -> FlowId {
    let ends = [([10, 0, 0, 1], 1), ([10, 0, 0, 2], port)];
    let [one, other] = ends.map(|(address, port)| (address.into(), port));
    FlowId::new(one, other, 17, [0; 2]).unwrap()
}

fn ignore(port: u16) -> FlowRule {
    FlowRule {
        flow: flow(port),
        action: FlowAction::Ignore,
        lasts_ns: None,
    }
}

/// A reader of a user with a bit of its own.
fn reader(id: u64, user: Option<u32>) -> FlowReader {
    let own = u32::try_from(id).unwrap();
    FlowReader {
        id: SubscriptionId(id),
        members: FlowMembers {
            target: own,
            bits: 1 << own,
            own,
            group: None,
        },
        user: user.map(FilterOwner::User),
        sees_counts: true,
        sees_all: false,
        file_rules: Vec::new(),
    }
}

/// A member of a group with the bit 9, and the members with these bits.
fn member(id: u64, others: u64) -> FlowReader {
    let mut reader = reader(id, None);
    reader.members.target = 9;
    reader.members.group = Some(9);
    reader.members.bits |= others | 1 << 9;
    reader
}

#[test]
fn the_rules_of_a_guest_in_all_its_groups_are_limited_as_those_of_a_user() {
    let mut desk = Desk::new(limits(10, 15, 100));
    for (id, pid) in [(1, 7), (2, 7), (3, 8)] {
        desk.know(FlowReader {
            user: Some(FilterOwner::Guest(pid)),
            ..reader(id, None)
        });
    }
    assert_eq!(desk.set(1, 0..10), (10, None));
    let (done, refused) = desk.set(2, 0..10);
    assert_eq!(done, 5);
    let refused = refused.unwrap();
    assert!(
        refused.contains("this virtual machine has 15 flow rules"),
        "{refused}"
    );
    assert_eq!(desk.set(3, 0..10), (10, None), "another guest");
}

#[test]
fn a_flood_of_rules_is_refused_by_the_limit_that_it_reaches() {
    let mut desk = Desk::new(limits(10, 15, 22));
    for id in [1, 2] {
        desk.know(reader(id, Some(7)));
    }
    desk.know(reader(3, None));
    let refused = |key: &'static str, have: u32| {
        move |(_, why): &(u64, Option<String>)| {
            why.as_ref().is_some_and(|why| {
                why.contains(&format!("(limits.{key})"))
                    && why.contains(&format!("{have} flow rules"))
            })
        }
    };
    let told = desk.set(1, 0..20);
    assert_eq!(told.0, 10);
    assert!(refused("flow_rules_per_reader", 10)(&told), "{told:?}");
    let told = desk.set(2, 100..120);
    assert_eq!(told.0, 5);
    assert!(refused("flow_rules_per_user", 15)(&told), "{told:?}");
    let told = desk.set(3, 200..220);
    assert_eq!(told.0, 7, "root has no limit as a user");
    assert!(refused("flow_rules", 22)(&told), "{told:?}");
    // A rule in place of an own one is no further rule, and removed ones count no more.
    assert_eq!(desk.set(1, 0..10), (10, None));
    let flows = (0..5).map(|port| flow(port).into()).collect();
    let removed = desk.ask(
        1,
        Request::RemoveRules {
            reader: None,
            flows,
        },
    );
    assert!(
        matches!(removed, Ok(Reply::RulesDone { done: 5, .. })),
        "{removed:?}"
    );
    assert_eq!(desk.set(2, 105..110), (5, None));
}

#[test]
fn a_bit_is_free_only_after_all_its_rules_are_forgotten_and_others_go_on_meanwhile() {
    let mut desk = Desk::new(Limits::default());
    desk.know(reader(1, None));
    desk.know(reader(2, None));
    for first in (0..2000).step_by(500) {
        assert_eq!(desk.set(1, first..first + 500), (500, None));
    }
    desk.leave(1, 1 << 1);
    desk.worker.do_slice();
    assert!(desk.released.try_recv().is_err(), "rules remain");
    assert_eq!(desk.withheld(1999), 1 << 1);
    assert_eq!(desk.set(2, 0..1), (1, None));
    for _ in 0..4 {
        desk.worker.do_slice();
    }
    assert_eq!(desk.released.try_recv(), Ok(1 << 1));
    assert_eq!(desk.table.totals().flows, 1);
    assert_eq!(desk.withheld(0), 1 << 2);
    assert!(desk.ask(1, Request::FlowEvents { reader: None }).is_err());
}

#[test]
fn a_members_rule_is_its_groups_and_goes_with_the_member() {
    let mut desk = Desk::new(Limits::default());
    desk.know(member(1, 0));
    assert_eq!(desk.set(1, 0..2), (2, None));
    assert_eq!(desk.withheld(0), 1 << 1 | 1 << 9);
    // The next member: the rules hold for it, too.
    desk.know(member(2, 1 << 1));
    desk.worker.do_slice();
    assert_eq!(desk.withheld(0), 1 << 1 | 1 << 2 | 1 << 9);
    // A rule that another member sets again is its own.
    assert_eq!(desk.set(2, 1..2), (1, None));
    desk.leave(1, 1 << 1);
    desk.worker.do_slice();
    assert_eq!(desk.released.try_recv(), Ok(1 << 1));
    assert_eq!(desk.withheld(0), 0);
    assert_eq!(desk.withheld(1), 1 << 2 | 1 << 9);
    desk.leave(2, 1 << 2 | 1 << 9);
    desk.worker.do_slice();
    assert_eq!(desk.withheld(1), 0);
    assert_eq!(desk.released.try_recv(), Ok(1 << 2 | 1 << 9));
}

#[test]
fn the_owner_of_a_rule_gets_the_end_of_its_flow_with_the_counts_and_no_other_does() {
    let mut desk = Desk::new(Limits::default());
    desk.know(reader(1, None));
    desk.know(FlowReader {
        sees_counts: false,
        ..reader(2, Some(7))
    });
    desk.know(reader(3, None));
    assert_eq!(desk.set(1, 0..1), (1, None));
    assert_eq!(desk.set(2, 1..2), (1, None));
    for _ in 0..3 {
        desk.withheld(0);
    }
    desk.withheld(1);
    for id in [1, 2] {
        let flows = vec![flow(0).into(), flow(1).into()];
        let removed = desk.ask(
            id,
            Request::RemoveRules {
                reader: None,
                flows,
            },
        );
        assert!(
            matches!(removed, Ok(Reply::RulesDone { done: 1, .. })),
            "{removed:?}"
        );
    }
    let (events, lost) = desk.events(1);
    let [event] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(
        (event.flow, event.why.word(), lost),
        (flow(0), "removed", 0)
    );
    let counts = event.directions.expect("counts");
    assert_eq!(
        (counts[0].packets, counts[0].bytes, counts[1].packets),
        (3, 180, 0)
    );
    assert!(counts[0].first_ns > 1_600_000_000_000_000_000, "since 1970");
    let (events, _) = desk.events(2);
    assert_eq!(events.len(), 1);
    assert_eq!(
        events[0].directions, None,
        "its group does not have all packets"
    );
    assert_eq!(desk.events(3), (Vec::new(), 0));
}

#[test]
fn ends_that_no_reader_takes_are_counted_as_lost() {
    let mut desk = Desk::new(Limits::default());
    desk.know(reader(1, None));
    for _ in 0..10 {
        assert_eq!(desk.set(1, 0..500), (500, None));
        let flows = (0..500).map(|port| flow(port).into()).collect();
        let removed = desk.ask(
            1,
            Request::RemoveRules {
                reader: None,
                flows,
            },
        );
        assert!(removed.is_ok());
    }
    let (mut taken, mut lost) = (0, 0);
    for _ in 0..30 {
        let (events, more) = desk.events(1);
        taken += events.len() as u64;
        lost += more;
    }
    assert_eq!((taken, taken + lost), (events::MAX_EVENTS as u64, 5000));
}

#[test]
fn rules_of_the_file_hold_for_all_members_and_begin_again_after_their_flow() {
    let mut desk = Desk::with(
        Limits::default(),
        FlowSettings {
            idle_ns: 1,
            ..FlowSettings::default()
        },
    );
    let with_rules = |rules: Vec<FlowRule>| FlowReader {
        file_rules: rules,
        ..reader(1, None)
    };
    desk.know(with_rules(vec![ignore(0), ignore(1)]));
    assert_eq!(desk.table.totals().flows, 2);
    desk.worker.look();
    assert_eq!(
        desk.table.totals().flows,
        2,
        "set again, though they were idle"
    );
    // A reload of the file.
    desk.know(with_rules(vec![ignore(1)]));
    let Ok(Reply::Rules { rules, .. }) = desk.ask(
        1,
        Request::Rules {
            reader: None,
            after: None,
        },
    ) else {
        panic!("rules")
    };
    let flows: Vec<_> = rules
        .iter()
        .map(|one| (one.rule.flow, one.reader))
        .collect();
    assert_eq!(flows, [(flow(1).into(), None)]);
}

#[test]
fn a_readers_rule_stays_in_place_of_the_files_which_holds_again_after_it() {
    let mut desk = Desk::new(Limits::default());
    let of_file = || FlowReader {
        file_rules: vec![ignore(0)],
        ..reader(1, None)
    };
    let whose = |desk: &mut Desk| {
        let (reader, after) = (None, None);
        match desk.ask(1, Request::Rules { reader, after }) {
            Ok(Reply::Rules { rules, .. }) => rules[0].reader,
            other => panic!("{other:?}"),
        }
    };
    desk.know(of_file());
    assert_eq!(whose(&mut desk), None);
    assert_eq!(desk.set(1, 0..1), (1, None));
    // A reload that changes nothing of this file.
    desk.know(of_file());
    assert_eq!(whose(&mut desk), Some(1));
    let (reader, flows) = (None, vec![flow(0).into()]);
    let removed = desk.ask(1, Request::RemoveRules { reader, flows });
    assert!(removed.is_ok());
    desk.worker.look();
    assert_eq!(whose(&mut desk), None);
    assert_eq!(desk.withheld(0), 1 << 1);
}

#[test]
fn lost_ends_make_one_check_wait_however_often_a_reader_asks() {
    let mut desk = Desk::new(Limits::default());
    desk.know(reader(1, None));
    desk.know(reader(2, None));
    for first in (0..2000).step_by(500) {
        assert_eq!(desk.set(1, first..first + 500), (500, None));
    }
    for _ in 0..100 {
        desk.table.1.fetch_add(1, Relaxed);
        assert!(desk.events(1).1 > 0);
    }
    // One for each reader; the first half of one may be done.
    assert_eq!(desk.worker.jobs.len(), 2);
    desk.worker.do_slice();
    desk.table.1.fetch_add(1, Relaxed);
    desk.events(1);
    assert_eq!(desk.worker.jobs.len(), 3);
}

#[test]
fn a_rule_ends_at_its_time_and_a_refused_one_changes_nothing() {
    let mut desk = Desk::new(Limits::default());
    desk.know(reader(1, None));
    let ask = |desk: &mut Desk, rule: FlowRule| {
        let rules = vec![rule.into()];
        desk.ask(
            1,
            Request::SetRules {
                reader: None,
                rules,
            },
        )
    };
    let short = FlowRule {
        lasts_ns: Some(2_000_000),
        ..ignore(0)
    };
    assert!(ask(&mut desk, short).is_ok());
    let endless = FlowRule {
        action: FlowAction::CutOff(CutOff::default()),
        ..ignore(0)
    };
    let refused = ask(&mut desk, endless);
    let Ok(Reply::RulesDone {
        done: 0,
        refused: Some(refused),
    }) = refused
    else {
        panic!("{refused:?}")
    };
    assert!(
        refused.message.contains("a cut-off needs a number"),
        "{refused}"
    );
    std::thread::sleep(std::time::Duration::from_millis(3));
    desk.worker.look();
    assert_eq!(desk.table.totals().flows, 0);
    assert_eq!(desk.events(1).0.len(), 1);
}
