// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cases of the suite.

use std::net::IpAddr;

use super::super::{
    CutOff, EndPattern, FlowAction, FlowDirection, FlowId, FlowPattern, FlowRule, FlowSettings,
    FlowTotals, StandingCutOff, WildcardRule,
};
use super::{
    ACK, EVICT_IDLE, FIN, FlowCase, FlowStep, GROUP, LASTS, PAUSE, RST, SYN, SYN_ACK, TCP, UDP,
    bits_of, ethernet, frame, ipv4, key, tagged_key, tcp, udp,
};
use crate::GroupName;

fn ignore(key: FlowId) -> FlowRule {
    FlowRule {
        flow: key,
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
        adds: GROUP,
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
        mirroring(),
        mirroring_patterns(),
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
    let inside = crate::flow::FlowPacket::from_bytes(&vxlan(7), 0, crate::hash::Link::Ethernet);
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
        bits: members.into(),
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
        action: FlowAction::Sample { one_in },
        ..ignore(key(UDP, 53))
    };
    let of_all = WildcardRule {
        action: FlowAction::Sample { one_in: 2 },
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

fn to_group(key: FlowId, action: fn(GroupName) -> FlowAction) -> FlowRule {
    let group: Result<GroupName, _> = "group".parse();
    FlowRule {
        action: action(group.unwrap_or_else(|error| panic!("{error}"))),
        ..ignore(key)
    }
}

fn mirror(key: FlowId) -> FlowRule {
    to_group(key, |group| FlowAction::Mirror { group })
}

fn mirroring() -> FlowCase {
    use FlowStep::{Apply, Packet, Remove, Set};
    let flow = key(UDP, 53);
    let forward = to_group(flow, |group| FlowAction::Forward { group });
    let without_readers = FlowSettings {
        adds: 0,
        ..settings(16, vec![])
    };
    FlowCase {
        name: "a group gets mirrored packets, too, and forwarded ones instead, while a member says so",
        settings: settings(16, vec![]),
        steps: vec![
            Set(mirror(flow), 1),
            Packet(udp(53, true, 60), 7 | GROUP),
            Packet(udp(54, true, 60), 7),
            Set(forward, 2),
            Packet(udp(53, false, 60), 5 | GROUP),
            Remove(flow, 1),
            Packet(udp(53, true, 60), 5 | GROUP),
            Set(ignore(flow), 2),
            Packet(udp(53, true, 60), 5),
            Set(forward, 7),
            Packet(udp(53, true, 60), GROUP),
            Apply(without_readers),
            Packet(udp(53, true, 60), 0),
        ],
        flows: vec![(flow, [direction(5, 300, 0), direction(1, 60, 0)])],
        totals: one_flow(),
    }
}

fn mirroring_patterns() -> FlowCase {
    use FlowStep::{Packet, Remove, Set};
    let flow = key(UDP, 53);
    let of = |members, action, pattern| WildcardRule {
        bits: bits_of(&to_group(flow, action), members),
        action: to_group(flow, action).action,
        pattern,
    };
    let rules = vec![
        of(
            1,
            |group| FlowAction::Mirror { group },
            network(0, 8, (53, 54)),
        ),
        of(
            2,
            |group| FlowAction::Forward { group },
            network(0, 8, (54, 54)),
        ),
        wildcard(network(2, 32, (55, 55)), 1, 0),
    ];
    FlowCase {
        name: "patterns give packets to a group, unless a member has a rule for the flow",
        settings: with_wildcards(rules),
        steps: vec![
            Packet(udp(53, true, 60), 7 | GROUP),
            Packet(udp(54, false, 60), 5 | GROUP),
            Packet(udp(55, true, 60), 6),
            Set(cut(flow, Some(2), None), 1),
            Packet(udp(53, true, 60), 7),
            Packet(udp(53, true, 60), 6),
            Set(mirror(flow), 1),
            Packet(udp(53, true, 60), 7 | GROUP),
            Remove(flow, 1),
            Packet(udp(53, true, 60), 7 | GROUP),
        ],
        flows: vec![(flow, [direction(5, 300, 0), direction(0, 0, 0)])],
        totals: FlowTotals {
            flows: 3,
            ..FlowTotals::default()
        },
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
