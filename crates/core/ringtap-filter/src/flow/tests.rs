// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table in user space: the conformance suite, and what the kernel's table does otherwise.

use super::conformance::{
    self, FlowCase, FlowHarness, FlowOutcome, FlowStep, GROUP, MEMBERS, bits_of,
};
use super::*;
use crate::hash::Link;

const SECOND: u64 = 1_000_000_000;

struct InUserSpace;

fn packet(data: &[u8]) -> Option<FlowPacket> {
    FlowPacket::from_bytes(data, u32::try_from(data.len()).unwrap(), Link::Ethernet)
}

impl FlowHarness for InUserSpace {
    fn run(&mut self, case: &FlowCase) -> FlowOutcome {
        let mut table = RuleTable::new(case.settings.clone());
        let mut outcome = FlowOutcome::default();
        let mut now = SECOND;
        for (number, step) in case.steps.iter().enumerate() {
            now += 1000;
            let at = format!("{}, step {number}", case.name);
            match step {
                FlowStep::Packet(data, gets) => {
                    let packet = packet(data);
                    let found = packet.map(|it| table.recipients(&it, MEMBERS, now));
                    let Recipients { withheld, added } = found.unwrap_or_default();
                    assert_eq!(MEMBERS & !withheld | added, *gets, "{at}");
                    for (member, sum) in outcome.withheld.iter_mut().enumerate() {
                        let is_withheld = withheld >> member & 1;
                        sum.0 += is_withheld;
                        sum.1 += is_withheld * data.len() as u64;
                    }
                }
                FlowStep::Set(rule, members) => {
                    let set = table.set(rule, bits_of(rule, *members), now);
                    set.expect(&at);
                }
                FlowStep::Full(rule, members) => {
                    let refused = table.set(rule, *members, now);
                    assert!(matches!(refused, Err(FlowRuleError::Full { .. })), "{at}");
                }
                FlowStep::Remove(key, members) => assert!(table.remove(key, *members), "{at}"),
                FlowStep::Apply(settings) => table.apply(settings.clone()),
                FlowStep::Wait(ms) => now += ms * 1_000_000,
            }
        }
        let counts = |(key, _): &(FlowId, _)| {
            let flow = table.get(key).expect("the flow is in the table");
            flow.directions
                .map(|direction| (direction.packets, direction.bytes, direction.flags))
        };
        outcome.flows = case.flows.iter().map(counts).collect();
        outcome.totals = table.totals();
        outcome
    }
}

#[test]
fn a_group_gets_only_packets_for_the_member_whose_rule_it_is() {
    let mut table = RuleTable::new(FlowSettings {
        adds: GROUP,
        ..FlowSettings::default()
    });
    let group = "group".parse().unwrap();
    let mirror = FlowRule {
        action: FlowAction::Mirror { group },
        ..ignore(1)
    };
    table.set(&mirror, bits_of(&mirror, 1), 0).unwrap();
    assert_eq!(table.recipients(&udp(1), 0b11, 0).added, GROUP);
    assert_eq!(table.recipients(&udp(1), 0b10, 0).added, 0);
}

#[test]
fn the_table_in_user_space_conforms() {
    conformance::check(&mut InUserSpace);
}

fn ignore(port: u16) -> FlowRule {
    FlowRule {
        flow: conformance::key(17, port),
        action: FlowAction::Ignore,
        lasts_ns: None,
    }
}

fn udp(port: u16) -> FlowPacket {
    packet(&conformance::frame(17, port, true, 0, 60)).unwrap()
}

#[test]
fn impossible_flows_are_refused() {
    let four = ([10, 0, 0, 1].into(), 0);
    let six = ([0_u8; 16].into(), 0);
    let refused = FlowId::new(four, six, 17, [0; 2]).unwrap_err();
    assert!(matches!(refused, FlowKeyError::MixedVersions { .. }));
    let refused = FlowId::new((four.0, 5), four, 1, [0; 2]).unwrap_err();
    assert_eq!(refused, FlowKeyError::NoPorts { protocol: 1 });
    let refused = FlowId::new(four, four, 1, [4096, 0]).unwrap_err();
    assert_eq!(refused, FlowKeyError::Vlan { vlan: 4096 });
}

#[test]
fn a_key_is_its_words_and_its_text() {
    let key = conformance::key(6, 80);
    assert_eq!(FlowId::from_words(key.to_words()), key);
    assert_eq!(key.to_string(), "tcp 10.0.0.1:1000 10.0.0.2:80");
    assert_eq!(size_of::<FlowId>(), 48);
}

#[test]
fn a_cut_off_without_a_limit_is_refused() {
    let mut table = RuleTable::new(FlowSettings::default());
    let rule = FlowRule {
        action: FlowAction::CutOff(CutOff::default()),
        ..ignore(1)
    };
    assert_eq!(table.set(&rule, 1, 0), Err(FlowRuleError::NoLimit));
}

#[test]
fn more_different_rules_than_places_are_refused_and_nothing_changes() {
    let mut table = RuleTable::new(FlowSettings::default());
    let rule = |packets| FlowRule {
        action: FlowAction::CutOff(CutOff {
            packets: Some(packets),
            bytes: None,
        }),
        ..ignore(1)
    };
    for packets in 0..4 {
        table.set(&rule(packets), 1 << packets, 0).unwrap();
    }
    let refused = table.set(&rule(4), 1 << 4, 0);
    assert!(matches!(refused, Err(FlowRuleError::TooManyCuts { .. })));
    // A member's own place is free for its new rule, and equal rules share a place.
    table.set(&rule(9), 1, 0).unwrap();
    table.set(&rule(9), 1 << 4, 0).unwrap();
    assert_eq!(table.recipients(&udp(1), u64::MAX, 1).withheld, 0);
    assert_eq!(table.recipients(&udp(1), u64::MAX, 1).withheld, 0b10);
}

#[test]
fn idle_flows_end_with_their_rules_and_their_counts() {
    let mut table = RuleTable::new(FlowSettings {
        idle_ns: SECOND,
        ..FlowSettings::default()
    });
    table.set(&ignore(1), 1, 0).unwrap();
    table.set(&ignore(2), 1, 0).unwrap();
    assert_eq!(table.recipients(&udp(1), 1, SECOND).withheld, 1);
    assert_eq!(
        table.recipients(&udp(2), 1, SECOND + 1).withheld,
        0,
        "it was idle"
    );
    table.sweep(2 * SECOND + 1, 10);
    let ends: Vec<_> = table.take_ends().collect();
    let ends: Vec<_> = ends
        .iter()
        .map(|(why, flow)| (*why, flow.key, flow.directions[0].packets))
        .collect();
    let keys = [2, 1].map(|port| conformance::key(17, port));
    assert_eq!(
        ends,
        [(FlowEnd::Idle, keys[0], 0), (FlowEnd::Idle, keys[1], 1)]
    );
    table.sweep(2 * SECOND + 2, 10);
    let last: Vec<_> = table.take_ends().collect();
    assert_eq!((last.len(), last[0].1.directions[0].packets), (1, 1));
    assert_eq!(table.totals(), FlowTotals::default());
}

#[test]
fn a_table_of_standing_cut_offs_evicts_the_flow_that_is_idle_for_longest() {
    let mut table = RuleTable::new(FlowSettings {
        capacity: 3,
        standing: vec![StandingCutOff {
            members: 1,
            cut: CutOff {
                packets: Some(1),
                bytes: None,
            },
        }],
        ..FlowSettings::default()
    });
    for port in [1, 2, 3, 1] {
        table.recipients(&udp(port), 1, u64::from(port));
    }
    assert_eq!(table.recipients(&udp(4), 1, 10).withheld, 0);
    assert_eq!(table.totals().untracked, 1);
    assert_eq!(table.recipients(&udp(4), 1, 2 * SECOND).withheld, 0);
    let ends: Vec<_> = table.take_ends().collect();
    assert_eq!(ends.len(), 1);
    assert_eq!((ends[0].0, ends[0].1.key), (FlowEnd::Evicted, udp(2).key));
    assert_eq!(table.recipients(&udp(1), 1, 2 * SECOND).withheld, 1);
}

#[test]
fn rules_of_members_that_leave_go_with_them() {
    let mut table = RuleTable::new(FlowSettings::default());
    for port in 1..100 {
        table.set(&ignore(port), 1, 0).unwrap();
        table.set(&ignore(port), 2, 0).unwrap();
    }
    table.set(&ignore(200), 1, 0).unwrap();
    let leave = |table: &mut RuleTable, members| {
        (1..=200).for_each(|port| {
            table.remove(&udp(port).key, members);
        });
    };
    leave(&mut table, 1);
    assert_eq!(table.totals().flows, 99);
    assert_eq!(table.recipients(&udp(50), 3, 1).withheld, 2);
    leave(&mut table, 2);
    assert_eq!(table.totals().flows, 0);
}

#[test]
fn a_sweep_in_small_steps_reaches_every_flow() {
    let mut table = RuleTable::new(FlowSettings {
        idle_ns: SECOND,
        ..FlowSettings::default()
    });
    for port in 0..100 {
        table.set(&ignore(port), 1, 0).unwrap();
    }
    for port in (0..100).filter(|port| port % 3 == 0) {
        table.recipients(&udp(port), 1, SECOND);
    }
    for _ in 0..15 {
        table.sweep(SECOND + 1, 7);
    }
    assert_eq!(table.totals().flows, 34);
    assert!((0..100).all(|port| table.get(&udp(port).key).is_some() == (port % 3 == 0)));
}

#[test]
fn parts_of_a_table_share_its_room_and_its_ends() {
    let settings = FlowSettings {
        capacity: 3,
        ..FlowSettings::default()
    };
    let (mut parts, in_use) = RuleTable::parts(&settings, 2);
    for port in 0..3 {
        parts[usize::from(port % 2)]
            .set(&ignore(port), 1, 0)
            .unwrap();
    }
    assert_eq!(in_use.flows(), 3);
    let refused = parts[1].set(&ignore(5), 1, 0);
    assert_eq!(refused, Err(FlowRuleError::Full { capacity: 3 }));
    assert!(parts[0].remove(&udp(0).key, 1));
    parts[1].set(&ignore(5), 1, 0).unwrap();
    // Its own oldest flow makes room.
    parts[1].set(&ignore(7), 1, 2 * SECOND).unwrap();
    assert_eq!((in_use.flows(), parts[1].totals().evicted), (3, 1));
    assert_eq!(parts[0].take_ends().count(), 1);
    assert_eq!(parts[1].take_ends().count(), 1);
}
