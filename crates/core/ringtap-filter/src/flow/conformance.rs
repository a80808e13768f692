// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conformance suite of tables of flows, in user space and in the kernel: packets and rules, and what each member gets.

mod cases;

use std::net::IpAddr;

pub use cases::cases;

use super::{FlowDirection, FlowId, FlowRule, FlowSettings, FlowTotals, RuleBits};

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

/// The group that gets packets by rules. It has readers.
pub const GROUP: u64 = 0b1000;

/// The bits of members' rule.
#[must_use]
pub fn bits_of(rule: &FlowRule, members: u64) -> RuleBits {
    RuleBits {
        members,
        adds: rule.action.group().map_or(0, |_| GROUP),
    }
}

/// One step of a case.
#[derive(Clone, Debug)]
pub enum FlowStep {
    /// A packet, and the members that get it; with [`GROUP`], this group, too.
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
