// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conformance suite of tables of flows, in user space and in the kernel: packets and rules, and what each member gets.

use std::net::IpAddr;

use super::{
    CutOff, EndPattern, FlowAction, FlowDirection, FlowId, FlowPattern, FlowRule, FlowSettings,
    FlowTotals, StandingCutOff, WildcardRule,
};

const TCP: u8 = 6;
const UDP: u8 = 17;
const FIN: u8 = 0x11;
const SYN: u8 = 0x02;
const SYN_ACK: u8 = 0x12;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;
/// Longer than `EVICT_IDLE` of the suite's tables, in milliseconds.
const PAUSE: u64 = 300;
const EVICT_IDLE: u64 = 200;
/// Time of a rule, in milliseconds: longer than a packet needs to be sent.
const LASTS: u64 = 5000;

/// Members that want every packet.
pub const MEMBERS: u64 = 0b111;

/// One step of a case.
#[derive(Clone, Debug)]
pub enum FlowStep {
    /// A packet, and the members that get it.
    Packet(Vec<u8>, u64),
    /// Sets a rule for members.
    Set(FlowRule, u64),
    /// A rule for which there is no room.
    Full(FlowRule, u64),
    /// Removes members' rule.
    Remove(FlowId, u64),
    /// Other settings, with the same capacity.
    Apply(FlowSettings),
    /// Milliseconds pass.
    Wait(u64),
}

/// A case: settings, steps, and the counts afterwards.
pub struct FlowCase {
    /// Its name.
    pub name: &'static str,
    /// Settings of the table.
    pub settings: FlowSettings,
    /// Steps, in order.
    pub steps: Vec<FlowStep>,
    /// Packets, bytes and TCP flags of flows; times are not compared.
    pub flows: Vec<(FlowId, [FlowDirection; 2])>,
    /// Counts of the table.
    pub totals: FlowTotals,
}

/// A table behind the suite.
pub trait FlowHarness {
    /// Runs the steps of a case; panics if a packet's members or a rule's result are not as expected. Returns packets
    /// and bytes withheld from each member, the counts of these flows, and the table's counts.
    fn run(&mut self, case: &FlowCase) -> FlowOutcome;
}

/// What a table counted.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FlowOutcome {
    /// Packets and bytes withheld from members 0, 1 and 2.
    pub withheld: [(u64, u64); 3],
    /// The flows of [`FlowCase::flows`]: packets, bytes, TCP flags.
    pub flows: Vec<[(u64, u64, u8); 2]>,
    /// Counts of the table.
    pub totals: FlowTotals,
}

/// Runs all cases.
pub fn check(harness: &mut dyn FlowHarness) {
    for case in cases() {
        let outcome = harness.run(&case);
        assert_eq!(outcome, expected(&case), "{}", case.name);
    }
}

fn expected(case: &FlowCase) -> FlowOutcome {
    let mut withheld = [(0, 0); 3];
    for step in &case.steps {
        if let FlowStep::Packet(data, gets) = step {
            for (member, sum) in withheld.iter_mut().enumerate() {
                if gets & 1 << member == 0 {
                    sum.0 += 1;
                    sum.1 += data.len() as u64;
                }
            }
        }
    }
    let flows = case.flows.iter();
    let counts = |direction: FlowDirection| (direction.packets, direction.bytes, direction.flags);
    FlowOutcome {
        withheld,
        flows: flows
            .map(|(_, directions)| directions.map(counts))
            .collect(),
        totals: case.totals,
    }
}

/// The packets' flow: 10.0.0.1 port 1000 and 10.0.0.2 port `port`.
#[must_use]
pub fn key(protocol: u8, port: u16) -> FlowId {
    tagged_key(protocol, port, 0)
}

fn tagged_key(protocol: u8, port: u16, vlan: u16) -> FlowId {
    let ends = [([10, 0, 0, 1], 1000), ([10, 0, 0, 2], port)];
    let [low, high] = ends.map(|(address, port)| (IpAddr::from(address), port));
    FlowId::new(high, low, protocol, [vlan, 0]).unwrap_or_else(|error| panic!("{error}"))
}

/// A frame of the flow of [`key`], there (from 10.0.0.1) or back.
#[must_use]
pub fn frame(protocol: u8, port: u16, is_there: bool, flags: u8, length: usize) -> Vec<u8> {
    let mut ip = ipv4(protocol, port, is_there, 0);
    if protocol == TCP {
        ip.extend([0, 0, 0, 0, 0, 0, 0, 0, 0x50, flags, 0, 0, 0, 0, 0, 0]);
    } else {
        ip.extend([0, 8, 0, 0]);
    }
    let mut frame = ethernet(&[8, 0], &ip);
    frame.resize(length, 0);
    frame
}

fn ipv4(protocol: u8, port: u16, is_there: bool, fragment: u8) -> Vec<u8> {
    let (ends, ports) = if is_there {
        ([1, 2], [1000, port])
    } else {
        ([2, 1], [port, 1000])
    };
    let mut ip = vec![0x45, 0, 0, 44, 0, 0, fragment, 0, 64, protocol, 0, 0];
    ip.extend(ends.iter().flat_map(|end| [10, 0, 0, *end]));
    ip.extend(ports.into_iter().flat_map(u16::to_be_bytes));
    ip
}

fn ethernet(kind: &[u8], payload: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1], kind, payload].concat()
}

fn udp(port: u16, is_there: bool, length: usize) -> Vec<u8> {
    frame(UDP, port, is_there, 0, length)
}

fn tcp(flags: u8, is_there: bool) -> Vec<u8> {
    frame(TCP, 80, is_there, flags, 60)
}

fn ignore(key: FlowId) -> FlowRule {
    FlowRule {
        key,
        action: FlowAction::Ignore,
        lasts_ns: None,
    }
}

fn cut(key: FlowId, packets: Option<u64>, bytes: Option<u64>) -> FlowRule {
    FlowRule {
        action: FlowAction::CutOff(CutOff { packets, bytes }),
        ..ignore(key)
    }
}

fn direction(packets: u64, bytes: u64, flags: u8) -> FlowDirection {
    FlowDirection {
        packets,
        bytes,
        flags,
        ..FlowDirection::default()
    }
}

fn one_flow() -> FlowTotals {
    FlowTotals {
        flows: 1,
        ..FlowTotals::default()
    }
}

fn settings(capacity: u32, standing: Vec<StandingCutOff>) -> FlowSettings {
    FlowSettings {
        capacity,
        idle_ns: 60_000_000_000,
        evict_idle_ns: EVICT_IDLE * 1_000_000,
        standing,
        wildcards: vec![],
    }
}

/// All cases.
#[must_use]
pub fn cases() -> Vec<FlowCase> {
    vec![
        ignoring(),
        replacing(),
        timed(),
        cutting(),
        standing(),
        restarting(),
        outside(),
        tunnelled(),
        full(),
        wildcards(),
        wildcards_that_change(),
        sampling(),
    ]
}

fn ignoring() -> FlowCase {
    use FlowStep::{Packet, Set};
    FlowCase {
        name: "a member ignores a flow, in both directions, and no other",
        settings: settings(16, vec![]),
        steps: vec![
            Packet(udp(53, true, 60), 7),
            Set(ignore(key(UDP, 53)), 2),
            Packet(udp(53, true, 60), 5),
            Packet(udp(53, false, 100), 5),
            Packet(udp(54, true, 60), 7),
            Packet(frame(TCP, 53, true, ACK, 60), 7),
            Set(ignore(key(UDP, 53)), 5),
            Packet(udp(53, false, 70), 0),
        ],
        flows: vec![(key(UDP, 53), [direction(1, 60, 0), direction(2, 170, 0)])],
        totals: one_flow(),
    }
}

fn replacing() -> FlowCase {
    use FlowStep::{Packet, Remove, Set};
    FlowCase {
        name: "a member's rule replaces its earlier one, and is removed alone",
        settings: settings(16, vec![]),
        steps: vec![
            Set(ignore(key(UDP, 53)), 3),
            Packet(udp(53, true, 60), 4),
            Set(cut(key(UDP, 53), Some(3), None), 1),
            Packet(udp(53, true, 60), 5),
            Packet(udp(53, true, 60), 5),
            Packet(udp(53, true, 60), 4),
            Remove(key(UDP, 53), 2),
            Packet(udp(53, true, 60), 6),
        ],
        flows: vec![(key(UDP, 53), [direction(5, 300, 0), direction(0, 0, 0)])],
        totals: one_flow(),
    }
}

fn timed() -> FlowCase {
    use FlowStep::{Packet, Set, Wait};
    let timed = FlowRule {
        lasts_ns: Some(LASTS * 1_000_000),
        ..ignore(key(UDP, 53))
    };
    FlowCase {
        name: "a rule ends at its time, without anybody's help",
        settings: settings(16, vec![]),
        steps: vec![
            Set(ignore(key(UDP, 53)), 4),
            Set(timed, 1),
            Packet(udp(53, true, 60), 2),
            Wait(LASTS + PAUSE),
            Packet(udp(53, true, 60), 3),
        ],
        flows: vec![(key(UDP, 53), [direction(2, 120, 0), direction(0, 0, 0)])],
        totals: one_flow(),
    }
}

fn cutting() -> FlowCase {
    use FlowStep::{Packet, Set};
    FlowCase {
        name: "packets and bytes of each direction before the cut are delivered exactly",
        settings: settings(16, vec![]),
        steps: vec![
            Set(cut(key(UDP, 53), Some(2), None), 1),
            Set(cut(key(UDP, 53), None, Some(130)), 2),
            Packet(udp(53, true, 60), 7),
            Packet(udp(53, true, 70), 7),
            Packet(udp(53, true, 60), 4),
            Packet(udp(53, false, 129), 7),
            Packet(udp(53, false, 60), 7),
            Packet(udp(53, false, 60), 4),
        ],
        flows: vec![(key(UDP, 53), [direction(3, 190, 0), direction(3, 249, 0)])],
        totals: one_flow(),
    }
}

fn standing() -> FlowCase {
    use FlowStep::Packet;
    let after = |members, packets| StandingCutOff {
        members,
        cut: CutOff {
            packets: Some(packets),
            bytes: None,
        },
    };
    FlowCase {
        name: "standing cut-offs hold for every flow",
        settings: settings(16, vec![after(1, 1), after(2, 2)]),
        steps: vec![
            Packet(udp(53, true, 60), 7),
            Packet(udp(53, true, 60), 6),
            Packet(udp(53, true, 60), 4),
            Packet(udp(53, false, 60), 7),
            Packet(udp(54, true, 60), 7),
            Packet(udp(54, true, 60), 6),
        ],
        flows: vec![
            (key(UDP, 53), [direction(3, 180, 0), direction(1, 60, 0)]),
            (key(UDP, 54), [direction(2, 120, 0), direction(0, 0, 0)]),
        ],
        totals: FlowTotals {
            flows: 2,
            ..FlowTotals::default()
        },
    }
}

fn restarting() -> FlowCase {
    use FlowStep::{Packet, Set};
    let flow = key(TCP, 80);
    FlowCase {
        name: "rules end with a connection, not with its last segments",
        settings: settings(16, vec![]),
        steps: vec![
            Packet(tcp(SYN, true), 7),
            Set(ignore(flow), 1),
            Packet(tcp(SYN, true), 6),
            Packet(tcp(SYN_ACK, false), 6),
            Packet(tcp(FIN, true), 6),
            Packet(tcp(FIN, false), 6),
            Packet(tcp(ACK, true), 6),
            Packet(tcp(SYN, true), 7),
            Set(ignore(flow), 1),
            Packet(tcp(SYN, true), 6),
            Packet(tcp(RST, false), 6),
            Packet(tcp(SYN, false), 7),
            Set(ignore(flow), 2),
            Packet(tcp(SYN_ACK, false), 5),
        ],
        flows: vec![(flow, [direction(0, 0, 0), direction(2, 120, SYN | SYN_ACK)])],
        totals: one_flow(),
    }
}

fn outside() -> FlowCase {
    use FlowStep::{Packet, Set};
    let tagged = |vlan: u8| ethernet(&[0x81, 0, 0, vlan, 8, 0], &ipv4(UDP, 53, true, 0));
    let fragment = ethernet(&[8, 0], &ipv4(UDP, 53, true, 0x20));
    let padded = |mut frame: Vec<u8>| {
        frame.resize(64, 0);
        frame
    };
    FlowCase {
        name: "flows of other VLANs, fragments and packets without IP are not withheld",
        settings: settings(16, vec![]),
        steps: vec![
            Set(ignore(tagged_key(UDP, 53, 5)), 1),
            Packet(padded(tagged(5)), 6),
            Packet(padded(tagged(6)), 7),
            Packet(udp(53, true, 60), 7),
            Set(ignore(key(UDP, 53)), 1),
            Packet(padded(fragment), 7),
            Packet(padded(ethernet(&[0x88, 0xb5], &[])), 7),
        ],
        flows: vec![(
            tagged_key(UDP, 53, 5),
            [direction(1, 64, 0), direction(0, 0, 0)],
        )],
        totals: FlowTotals {
            flows: 2,
            ..FlowTotals::default()
        },
    }
}

/// A frame in VXLAN with this number.
fn vxlan(number: u8) -> Vec<u8> {
    let mut outer = ipv4(UDP, 4789, true, 0);
    outer.extend([0, 100, 0, 0, 8, 0, 0, 0, 0, 0, number, 0]);
    outer.extend(udp(53, true, 60));
    ethernet(&[8, 0], &outer)
}

fn tunnelled() -> FlowCase {
    use FlowStep::{Packet, Set};
    let inside = super::FlowPacket::from_bytes(&vxlan(7), 0, crate::hash::Link::Ethernet);
    let inside = inside.map_or_else(|| key(UDP, 1), |packet| packet.key);
    let length = vxlan(7).len() as u64;
    FlowCase {
        name: "a flow in a tunnel is the tunnel's, and no other's",
        settings: settings(16, vec![]),
        steps: vec![
            Set(ignore(inside), 1),
            Packet(vxlan(7), 6),
            Packet(vxlan(8), 7),
            Packet(udp(53, true, 60), 7),
        ],
        flows: vec![(inside, [direction(1, length, 0), direction(0, 0, 0)])],
        totals: one_flow(),
    }
}

fn full() -> FlowCase {
    use FlowStep::{Full, Packet, Set, Wait};
    FlowCase {
        name: "a full table refuses rules while no flow is idle",
        settings: settings(2, vec![]),
        steps: vec![
            Set(ignore(key(UDP, 1)), 1),
            Set(ignore(key(UDP, 2)), 1),
            Full(ignore(key(UDP, 3)), 1),
            Wait(PAUSE),
            Packet(udp(1, true, 60), 6),
            Set(ignore(key(UDP, 3)), 1),
            Packet(udp(2, true, 60), 7),
            Packet(udp(1, true, 60), 6),
            Packet(udp(3, true, 60), 6),
        ],
        flows: vec![
            (key(UDP, 1), [direction(2, 120, 0), direction(0, 0, 0)]),
            (key(UDP, 3), [direction(1, 60, 0), direction(0, 0, 0)]),
        ],
        totals: FlowTotals {
            flows: 2,
            evicted: 1,
            ..FlowTotals::default()
        },
    }
}

/// Flows with an end in this network and these ports.
fn network(last: u8, prefix: u8, ports: (u16, u16)) -> FlowPattern {
    let network = Some((IpAddr::from([10, 0, 0, last]), prefix));
    FlowPattern {
        ends: [EndPattern { network, ports }, EndPattern::default()],
        ..FlowPattern::default()
    }
}

fn wildcard(pattern: FlowPattern, members: u64, packets: u64) -> WildcardRule {
    WildcardRule {
        pattern,
        members,
        action: FlowAction::CutOff(CutOff {
            packets: Some(packets),
            bytes: None,
        }),
    }
}

fn with_wildcards(wildcards: Vec<WildcardRule>) -> FlowSettings {
    FlowSettings {
        wildcards,
        ..settings(16, vec![])
    }
}

fn wildcards() -> FlowCase {
    use FlowStep::{Packet, Remove, Set};
    let udp_to_53 = FlowPattern {
        protocol: Some(UDP),
        ..network(2, 32, (53, 53))
    };
    let all_tcp = FlowPattern {
        protocol: Some(TCP),
        ..FlowPattern::default()
    };
    let in_vlan = FlowPattern {
        vlan: Some(5),
        ..FlowPattern::default()
    };
    let mut tagged = ethernet(&[0x81, 0, 0, 5, 8, 0], &ipv4(UDP, 53, true, 0));
    tagged.resize(64, 0);
    let rules = vec![
        wildcard(network(0, 8, (50, 60)), 1, 0),
        wildcard(udp_to_53, 1, 1),
        wildcard(all_tcp, 2, 0),
        wildcard(in_vlan, 4, 0),
        wildcard(network(3, 32, (0, u16::MAX)), 7, 0),
        // As long as the second, but for more packets: it decides nothing.
        wildcard(network(2, 32, (0, 53)), 1, 9),
    ];
    FlowCase {
        name: "of the wildcard rules the one with the longest prefix decides, unless the flow has a rule",
        settings: with_wildcards(rules),
        steps: vec![
            Packet(udp(53, true, 60), 7),
            Packet(udp(53, true, 60), 6),
            Packet(udp(53, false, 60), 7),
            Packet(udp(54, true, 60), 6),
            Packet(udp(54, false, 60), 6),
            Packet(udp(61, true, 60), 7),
            Packet(tcp(ACK, true), 5),
            Packet(tagged, 3),
            Set(ignore(key(UDP, 61)), 1),
            Packet(udp(61, false, 60), 6),
            Set(cut(key(UDP, 54), Some(3), None), 1),
            Packet(udp(54, true, 60), 7),
            Packet(udp(54, true, 60), 7),
            Packet(udp(54, true, 60), 6),
            Set(cut(key(UDP, 54), Some(9), None), 1),
            Packet(udp(54, true, 60), 7),
            Remove(key(UDP, 54), 1),
            Packet(udp(54, true, 60), 6),
        ],
        flows: vec![
            (key(UDP, 53), [direction(2, 120, 0), direction(1, 60, 0)]),
            (key(UDP, 54), [direction(6, 360, 0), direction(1, 60, 0)]),
            (key(UDP, 61), [direction(1, 60, 0), direction(1, 60, 0)]),
        ],
        totals: FlowTotals {
            flows: 5,
            ..FlowTotals::default()
        },
    }
}

fn sampling() -> FlowCase {
    use FlowStep::{Packet, Remove, Set};
    let sample = |one_in| FlowRule {
        action: FlowAction::Sample(one_in),
        ..ignore(key(UDP, 53))
    };
    let of_all = WildcardRule {
        action: FlowAction::Sample(2),
        ..wildcard(FlowPattern::default(), 4, 0)
    };
    FlowCase {
        name: "a member of a sample gets one packet in so many of each direction",
        settings: with_wildcards(vec![of_all]),
        steps: vec![
            Set(sample(3), 1),
            Packet(udp(53, true, 60), 7),
            Packet(udp(53, true, 60), 2),
            Packet(udp(53, true, 60), 6),
            Packet(udp(53, true, 60), 3),
            Packet(udp(53, false, 60), 7),
            Packet(udp(53, false, 60), 2),
            Remove(key(UDP, 53), 1),
            Packet(udp(53, false, 60), 7),
        ],
        flows: vec![(key(UDP, 53), [direction(4, 240, 0), direction(3, 180, 0)])],
        totals: one_flow(),
    }
}

fn wildcards_that_change() -> FlowCase {
    use FlowStep::{Apply, Packet};
    let any = |members, packets| wildcard(FlowPattern::default(), members, packets);
    let other = wildcard(network(0, 8, (99, 99)), 7, 0);
    FlowCase {
        name: "known flows follow wildcard rules that change",
        settings: with_wildcards(vec![any(1, 1)]),
        steps: vec![
            Packet(udp(53, true, 60), 7),
            Packet(udp(53, true, 60), 6),
            Apply(with_wildcards(vec![other; 60])),
            Packet(udp(53, true, 60), 7),
            Apply(with_wildcards([vec![other; 63], vec![any(2, 0)]].concat())),
            Packet(udp(53, true, 60), 5),
            Packet(udp(99, true, 60), 0),
            Apply(with_wildcards(vec![])),
            Packet(udp(53, true, 60), 7),
            Packet(udp(54, true, 60), 7),
        ],
        flows: vec![(key(UDP, 53), [direction(5, 300, 0), direction(0, 0, 0)])],
        totals: FlowTotals {
            flows: 2,
            ..FlowTotals::default()
        },
    }
}
