// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flow rules in the kernel: the conformance suite at each hook, both directions on several CPUs, and rules that end.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ringtap_capture::tap::{Direction, Mode, Tap};
use ringtap_filter::flow::conformance::{
    self, FlowCase, FlowHarness, FlowOutcome, FlowStep, MEMBERS, frame, key,
};
use ringtap_filter::flow::{
    CutOff, FlowAction, FlowEnd, FlowRule, FlowRuleError, FlowSettings, StandingCutOff,
};
use ringtap_filter::{Rule, Rules};
use ringtap_pool::source::{FlowRules, WithheldCounts};
use ringtap_testkit::{Namespace, require_root, require_tool, with};

use crate::rules::HOOKS;
use crate::support::{attach, finish, options};

const UDP: u8 = 17;

/// Rules for [`MEMBERS`] with a table of flows.
fn with_flows(tap: &mut Tap, settings: &FlowSettings) -> Arc<dyn FlowRules> {
    let rules = Rules {
        flows: Some(settings.clone()),
        ..Rules::from(vec![Rule::everything(MEMBERS)])
    };
    tap.rules
        .classify(&rules)
        .unwrap_or_else(|error| panic!("{error}"));
    tap.rules.flow_rules().expect("a table")
}

fn sum(flows: &dyn FlowRules, member: u32) -> (u64, u64) {
    let lanes = flows.withheld(member);
    let add = |(packets, bytes), lane: WithheldCounts| (packets + lane.packets, bytes + lane.bytes);
    lanes.into_iter().fold((0, 0), add)
}

/// A tap at one hook.
struct InKernel(Mode);

impl InKernel {
    /// Sends packets one after the other: those from the lower address arrive, the others leave.
    fn send(net: &Namespace, packets: &mut Vec<Vec<u8>>) {
        let leaves = |packet: &Vec<u8>| {
            packet.windows(4).any(|at| at == [10, 0, 0, 2]) && {
                let (low, high) = ([10, 0, 0, 1], [10, 0, 0, 2]);
                let at = |end: [u8; 4]| packet.windows(4).position(|bytes| bytes == end);
                at(high) < at(low)
            }
        };
        for run in packets.chunk_by(|one, next| leaves(one) == leaves(next)) {
            net.inject(if leaves(&run[0]) { "rx0" } else { "tx0" }, run);
        }
        packets.clear();
    }
}

impl FlowHarness for InKernel {
    fn run(&mut self, case: &FlowCase) -> FlowOutcome {
        let net = Namespace::with_veth("flows");
        let mut tap = attach(
            &net,
            &with(options("rx0"), |it| {
                it.on.mode = self.0;
                it.on.direction = Direction::InOut;
            }),
        );
        let flows = with_flows(&mut tap, &case.settings);
        let (mut waiting, mut expected) = (Vec::new(), Vec::new());
        for (number, step) in case.steps.iter().enumerate() {
            let at = format!("{:?}, {}, step {number}", self.0, case.name);
            if !matches!(step, FlowStep::Packet(..)) {
                InKernel::send(&net, &mut waiting);
            }
            match step {
                FlowStep::Packet(data, gets) => {
                    waiting.push(data.clone());
                    expected.push((data.clone(), *gets));
                }
                FlowStep::Set(rule, members) => flows.set(rule, *members).expect(&at),
                FlowStep::Full(rule, members) => {
                    let refused = flows.set(rule, *members);
                    let is_full = matches!(refused, Err(FlowRuleError::Full { .. }));
                    assert!(is_full, "{at}: {refused:?}");
                }
                FlowStep::Remove(key, members) => assert!(flows.remove(key, *members), "{at}"),
                FlowStep::Wait(ms) => thread::sleep(Duration::from_millis(*ms)),
            }
        }
        InKernel::send(&net, &mut waiting);
        let (mut captured, counts) = finish(tap);
        captured.sort_by_key(|it| it.slot.time_ns);
        let is_ours = |data: &Vec<u8>| expected.iter().any(|(sent, _)| sent == data);
        let captured = captured.into_iter().filter(|it| is_ours(&it.data));
        let captured: Vec<_> = captured.map(|it| (it.data, it.slot.mask)).collect();
        let is_wanted = |(_, gets): &&(Vec<u8>, u64)| *gets != 0;
        let wanted: Vec<_> = expected.iter().filter(is_wanted).cloned().collect();
        let masks = |all: &[(Vec<u8>, u64)]| all.iter().map(|it| it.1).collect::<Vec<_>>();
        assert_eq!(
            masks(&captured),
            masks(&wanted),
            "{:?}, {}",
            self.0,
            case.name
        );
        assert_eq!(captured, wanted, "{:?}, {}", self.0, case.name);
        let shunted: u64 = counts.lanes.iter().map(|lane| lane.shunted).sum();
        assert_eq!(shunted, (expected.len() - wanted.len()) as u64);
        assert!(
            counts.lanes.iter().all(|lane| lane.balance().holds()),
            "{counts:?}"
        );
        let of = |(key, _): &(_, _)| {
            let flow = flows.get(key).expect("the flow is in the table");
            flow.directions
                .map(|direction| (direction.packets, direction.bytes, direction.flags))
        };
        FlowOutcome {
            withheld: [0, 1, 2].map(|member| sum(&*flows, member)),
            flows: case.flows.iter().map(of).collect(),
            totals: flows.totals(),
        }
    }
}

#[test]
fn the_table_in_the_kernel_conforms() {
    require_root!();
    require_tool!("ip", "python3");
    for mode in HOOKS {
        conformance::check(&mut InKernel(mode));
    }
}

fn cut(packets: Option<u64>, bytes: Option<u64>) -> FlowRule {
    FlowRule {
        key: key(UDP, 53),
        action: FlowAction::CutOff(CutOff { packets, bytes }),
        lasts_ns: None,
    }
}

#[test]
fn a_cut_is_exact_while_both_directions_come_on_several_cpus() {
    require_root!();
    require_tool!("ip", "python3");
    const PACKETS: usize = 3000;
    let net = Namespace::with_veth("cut");
    let options = with(options("rx0"), |it| it.on.direction = Direction::InOut);
    let mut tap = attach(&net, &options);
    let flows = with_flows(&mut tap, &FlowSettings::default());
    flows.set(&cut(Some(1000), None), 1).unwrap();
    flows.set(&cut(None, Some(60 * 500)), 2).unwrap();
    let send = |device: &'static str, is_there, cpus: [usize; 2]| {
        let frames = vec![frame(UDP, 53, is_there, 0, 60); PACKETS];
        let net = &net;
        move || net.inject_from(&cpus, 7, device, &frames)
    };
    thread::scope(|scope| {
        scope.spawn(send("tx0", true, [0, 1]));
        scope.spawn(send("tx0", true, [1, 0]));
        scope.spawn(send("rx0", false, [1, 0]));
    });
    let (captured, counts) = finish(tap);
    let of = |member: u64| captured.iter().filter(move |it| it.slot.mask & member != 0);
    assert_eq!(
        [of(1).count(), of(2).count(), of(4).count()],
        [2000, 1000, 3 * PACKETS]
    );
    let sent = 3 * PACKETS as u64;
    assert_eq!(
        sum(&*flows, 0),
        (sent - 2000, (sent - 2000) * 60),
        "{counts:?}"
    );
    assert_eq!(sum(&*flows, 1), (sent - 1000, (sent - 1000) * 60));
    assert_eq!(sum(&*flows, 2), (0, 0));
    let flow = flows.get(&key(UDP, 53)).unwrap();
    assert_eq!(
        flow.directions.map(|direction| direction.packets),
        [6000, 3000]
    );
    assert_eq!(
        flow.directions.map(|direction| direction.bytes),
        [360_000, 180_000]
    );
}

#[test]
fn rules_and_flows_stay_when_filters_change_and_go_with_the_table() {
    require_root!();
    require_tool!("ip", "python3");
    let net = Namespace::with_veth("stay");
    let mut tap = attach(&net, &options("rx0"));
    let settings = FlowSettings::default();
    let flows = with_flows(&mut tap, &settings);
    flows.set(&cut(Some(0), None), 1).unwrap();
    let send = || net.inject("tx0", &[frame(UDP, 53, true, 0, 60)]);
    send();
    let rules = Rules {
        flows: Some(settings),
        ..Rules::from(vec![crate::rules::rule("udp", MEMBERS)])
    };
    tap.rules.classify(&rules).unwrap();
    send();
    assert_eq!(sum(&*flows, 0), (2, 120));
    flows.forget(1);
    let ends: Vec<_> = flows.take_ends();
    assert_eq!(
        (ends.len(), ends[0].0, ends[0].1.directions[0].packets),
        (1, FlowEnd::Removed, 2)
    );
    send();
    tap.rules
        .classify(&Rules::from(vec![Rule::everything(MEMBERS)]))
        .unwrap();
    assert!(tap.rules.flow_rules().is_none());
    let (captured, _) = finish(tap);
    let masks: Vec<_> = captured.iter().map(|it| it.slot.mask).collect();
    assert_eq!(masks, [6, 6, 7]);
}

#[test]
fn flows_that_restart_or_idle_are_reported_with_their_counts() {
    require_root!();
    require_tool!("ip", "python3");
    const SYN: u8 = 2;
    const RST: u8 = 4;
    let net = Namespace::with_veth("ends");
    let mut tap = attach(&net, &options("rx0"));
    let standing = StandingCutOff {
        members: 1,
        cut: CutOff {
            packets: Some(1),
            bytes: None,
        },
    };
    let settings = FlowSettings {
        idle_ns: 400_000_000,
        standing: vec![standing],
        ..FlowSettings::default()
    };
    let flows = with_flows(&mut tap, &settings);
    let tcp = |flags| frame(6, 80, true, flags, 60);
    net.inject("tx0", &[tcp(SYN), tcp(RST), tcp(SYN)]);
    net.inject("tx0", &[frame(UDP, 53, true, 0, 60)]);
    thread::sleep(Duration::from_millis(600));
    net.inject("tx0", &[frame(UDP, 53, true, 0, 60)]);
    flows.sweep(usize::MAX);
    let ends: Vec<_> = flows.take_ends();
    let ends: Vec<_> = ends
        .iter()
        .map(|(why, flow)| {
            (
                *why,
                flow.key,
                flow.directions[0].packets,
                flow.directions[0].flags,
            )
        })
        .collect();
    for expected in [
        (FlowEnd::Restarted, key(6, 80), 2, SYN | RST),
        (FlowEnd::Idle, key(6, 80), 1, SYN),
        (FlowEnd::Idle, key(UDP, 53), 1, 0),
    ] {
        assert!(ends.contains(&expected), "{expected:?} in {ends:?}");
    }
    assert_eq!(ends.len(), 3);
    assert_eq!(flows.totals().flows, 1);
    let (captured, _) = finish(tap);
    let masks: Vec<_> = captured.iter().map(|it| it.slot.mask).collect();
    assert_eq!(masks, [7, 6, 7, 7, 7]);
}
