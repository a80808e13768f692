// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flow rules in the kernel: the conformance suite at each hook, both directions on several CPUs, and rules that end.

use std::collections::HashMap;
use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use ringtap_capture::tap::{Direction, Tap};
use ringtap_device::Rate;
use ringtap_filter::flow::conformance::{self, MEMBERS, frame, key};
use ringtap_filter::flow::{
    CutOff, FlowAction, FlowEnd, FlowId, FlowRule, FlowSettings, StandingCutOff,
};
use ringtap_filter::{Rule, Rules};
use ringtap_packet::Traffic;
use ringtap_pool::source::{Counts, Source};
use ringtap_send::{Load, Method, Qdisc, Sender, SenderOptions};
use ringtap_testkit::{
    LIMIT, Namespace, require_root, require_tool, say_skipped, usable_cpus, with,
};

use crate::flow_sources::{Conforming, OnInterface, Taken, sum, with_flows};
use crate::rules::HOOKS;
use crate::support::{SOON, attach, finish, options};

const UDP: u8 = 17;

fn taken(source: Source) -> (Vec<Taken>, Counts) {
    let (captured, counts) = finish(source);
    let taken = captured
        .into_iter()
        .map(|it| (it.slot.time_ns, it.slot.mask, it.data));
    (taken.collect(), counts)
}

#[test]
fn the_table_in_the_kernel_conforms() {
    require_root!();
    require_tool!("ip", "python3");
    for mode in HOOKS {
        let options = with(options("rx0"), |it| {
            it.on.mode = mode;
            it.on.direction = Direction::InOut;
        });
        conformance::check(&mut Conforming(OnInterface {
            name: format!("tap, {mode:?}"),
            open: |net: &Namespace| attach(net, &options).into(),
            finish: taken,
            both_ways: true,
            net: None,
        }));
    }
}

fn cut(packets: Option<u64>, bytes: Option<u64>) -> FlowRule {
    FlowRule {
        flow: key(UDP, 53),
        action: FlowAction::CutOff(CutOff { packets, bytes }),
        lasts_ns: None,
    }
}

/// Traffic of one flow, and of its other direction.
fn both_directions() -> [Traffic; 2] {
    let there = Traffic::default();
    let back = with(Traffic::default(), |it| {
        it.source = there.destination;
        it.destination = there.source;
        it.source_port = there.destination_port;
        it.destination_port = there.source_port;
    });
    [there, back]
}

/// Sends a flow from two CPUs at the same time, out of these devices.
fn send_from_two_cpus(net: &Namespace, devices: [&str; 2]) {
    const EACH: u64 = 200_000;
    let [there, back] = both_directions();
    let cpus = usable_cpus();
    let senders: Vec<_> = devices
        .iter()
        .zip(cpus)
        .map(|(device, cpu)| {
            let traffic = if *device == "tx0" { &there } else { &back };
            let load = Load::Made {
                traffic: traffic.clone(),
                rate: Rate::Max,
            };
            let options = with(SenderOptions::new(device, load), |it| {
                it.count = Some(EACH);
                it.cpu = Some(cpu);
                it.method = Some(Method::Packet);
                it.qdisc = Qdisc::Use;
            });
            net.enter(|| Sender::start(options)).expect("a sender")
        })
        .collect();
    for sender in senders {
        assert!(sender.wait(LIMIT));
        sender.finish().expect("the sender sends");
    }
}

#[test]
fn a_cut_and_all_counts_are_exact_while_two_cpus_count_one_flow() {
    require_root!();
    require_tool!("ip");
    if usable_cpus().len() < 2 {
        return say_skipped("it needs two CPUs");
    }
    const CUT: u64 = 1000;
    for mode in HOOKS {
        let net = Namespace::new("cpus");
        // A receive queue for each CPU, else XDP runs on one CPU at a time.
        let queues = ["numtxqueues", "2", "numrxqueues", "2"];
        let [peer, veth] = [["peer", "name"], ["type", "veth"]];
        let add = ["link", "add", "tx0"];
        net.ip(&[&add[..], &queues, &veth, &peer, &["rx0"], &queues].concat());
        for device in ["tx0", "rx0"] {
            net.ip(&["link", "set", device, "arp", "off"]);
            net.ip(&["link", "set", device, "up"]);
        }
        let options = with(options("rx0"), |it| {
            it.on.mode = mode;
            it.on.direction = Direction::InOut;
        });
        let mut tap = attach(&net, &options);
        let flows = with_flows(&mut tap, &FlowSettings::default());
        let [there, _] = both_directions();
        let end = |address: IpAddr, port| (address, port);
        let ends = (
            end(there.source, there.source_port),
            end(there.destination, there.destination_port),
        );
        let key = FlowId::new(ends.0, ends.1, UDP, [0; 2]).unwrap();
        let rule = |action| FlowRule {
            flow: key,
            action,
            lasts_ns: None,
        };
        let cut = FlowAction::CutOff(CutOff {
            packets: Some(CUT),
            bytes: None,
        });
        flows.set(&rule(cut), 1.into()).unwrap();
        flows
            .set(&rule(FlowAction::Ignore), (MEMBERS & !1).into())
            .unwrap();
        for devices in [["tx0", "tx0"], ["rx0", "rx0"], ["tx0", "rx0"]] {
            send_from_two_cpus(&net, devices);
        }
        // What the devices say: of tx0 what arrived, of rx0 what was sent, with what was lost behind the program.
        let arrived = net.counter("tx0", "tx_packets");
        let left = net.counter("rx0", "tx_packets") + net.counter("rx0", "tx_dropped");
        let all = arrived + left;
        assert!(left > 300_000 && arrived > 300_000, "{arrived}, {left}");
        let seen = |tap: &mut Tap| tap.counts().total().offered;
        let start = Instant::now();
        while seen(&mut tap) < all {
            assert!(start.elapsed() < SOON, "{} of {all}", seen(&mut tap));
            thread::sleep(Duration::from_millis(1));
        }
        let (captured, counts) = finish(tap);
        let of = |direction: usize| flows.get(&key).unwrap().directions[direction];
        let expected = [(arrived, 60 * arrived), (left, 60 * left)];
        let counted = [0, 1].map(|at| (of(at).packets, of(at).bytes));
        assert_eq!(counted, expected, "{mode:?}: {counts:?}");
        assert_eq!(captured.len() as u64, 2 * CUT, "{mode:?}");
        assert!(captured.iter().all(|it| it.slot.mask == 1), "{mode:?}");
        let past = all - 2 * CUT;
        assert_eq!(counts.total().shunted, past, "{mode:?}");
        assert_eq!(sum(&*flows, 0), (past, 60 * past), "{mode:?}");
        assert_eq!(sum(&*flows, 1), (all, 60 * all), "{mode:?}");
    }
}

#[test]
fn rules_and_flows_stay_when_filters_change_and_go_with_the_table() {
    require_root!();
    require_tool!("ip", "python3");
    let net = Namespace::with_veth("stay");
    let mut tap = attach(&net, &options("rx0"));
    let settings = FlowSettings::default();
    let flows = with_flows(&mut tap, &settings);
    flows.set(&cut(Some(0), None), 1.into()).unwrap();
    let send = || net.inject("tx0", &[frame(UDP, 53, true, 0, 60)]);
    send();
    let rules = Rules {
        flows: Some(settings),
        ..Rules::from(vec![crate::rules::rule("udp", MEMBERS)])
    };
    tap.rules.classify(&rules).unwrap();
    send();
    assert_eq!(sum(&*flows, 0), (2, 120));
    flows.remove(&key(UDP, 53), 1);
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

#[test]
fn a_flow_keeps_its_mark_when_another_with_the_same_one_leaves() {
    require_root!();
    require_tool!("ip", "python3");
    let tagged = |port, vlan| {
        let ends = [([10, 0, 0, 1], 1000), ([10, 0, 0, 2], port)];
        let [low, high] = ends.map(|(address, port)| (IpAddr::from(address), port));
        FlowId::new(low, high, UDP, [vlan, 0]).unwrap()
    };
    let ports = || 1..=u16::MAX;
    let marks: HashMap<_, _> = ports().map(|it| (key(UDP, it).mark(), it)).collect();
    let all = (1..4096).flat_map(|vlan| ports().map(move |port| (port, vlan)));
    let mut shared = all.filter_map(|(port, vlan)| {
        let other = marks.get(&tagged(port, vlan).mark())?;
        Some((*other, (port, vlan)))
    });
    let (one, (port, vlan)) = shared.next().expect("flows that share a mark");
    let net = Namespace::with_veth("marks");
    let mut tap = attach(&net, &options("rx0"));
    let flows = with_flows(&mut tap, &FlowSettings::default());
    let keys = [key(UDP, one), tagged(port, vlan)];
    let send = || {
        let mut other = frame(UDP, port, true, 0, 60);
        let [high, low] = vlan.to_be_bytes();
        other.splice(12..12, [0x81, 0, high, low]);
        net.inject("tx0", &[frame(UDP, one, true, 0, 60), other]);
    };
    for key in keys {
        let ignore = FlowRule {
            flow: key,
            action: FlowAction::Ignore,
            lasts_ns: None,
        };
        flows.set(&ignore, 1.into()).unwrap();
    }
    send();
    assert!(flows.remove(&keys[0], 1));
    send();
    assert!(flows.remove(&keys[1], 1));
    send();
    let (captured, _) = finish(tap);
    let masks: Vec<_> = captured.iter().map(|it| it.slot.mask).collect();
    assert_eq!(masks, [6, 6, 7, 6, 7, 7]);
}
