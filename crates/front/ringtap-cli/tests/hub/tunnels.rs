// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups that balance by the headers inside tunnels, from the wire to the members.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use ringtap_client::{Next, Receiver};
use ringtap_testkit::require_root;

use crate::support::{LIMIT, RunningHub};

const FLOWS: u8 = 64;
const UDP: u8 = 17;
const GRE: u8 = 47;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Tunnel {
    Vxlan,
    Gre,
    GtpU,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    There,
    Back,
}

/// Tunnel, way, and number of the flow inside.
type Label = (Tunnel, Way, u8);

const TUNNELS: [Tunnel; 3] = [Tunnel::Vxlan, Tunnel::Gre, Tunnel::GtpU];
const ETHERNET: [u8; 14] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];

fn two(number: usize) -> [u8; 2] {
    u16::try_from(number).expect("a short packet").to_be_bytes()
}

fn ipv4(protocol: u8, ends: [[u8; 4]; 2], payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend(two(20 + payload.len()));
    packet.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
    packet.extend(ends.concat());
    packet.extend(payload);
    packet
}

fn udp(ports: [u16; 2], payload: &[u8]) -> Vec<u8> {
    let mut packet: Vec<u8> = ports.iter().flat_map(|port| port.to_be_bytes()).collect();
    packet.extend(two(8 + payload.len()));
    packet.extend([0, 0]);
    packet.extend(payload);
    packet
}

fn turned<T>(way: Way, [one, other]: [T; 2]) -> [T; 2] {
    match way {
        Way::There => [one, other],
        Way::Back => [other, one],
    }
}

/// A frame of one flow in a tunnel; its last three bytes are its label.
fn frame((tunnel, way, flow): Label) -> Vec<u8> {
    let label = [tunnel as u8, way as u8, flow];
    let ports = turned(way, [1000 + u16::from(flow), 80]);
    let inside = ipv4(
        UDP,
        turned(way, [[10, 0, 0, flow], [10, 1, 0, 1]]),
        &udp(ports, &label),
    );
    let (protocol, payload) = match tunnel {
        Tunnel::Vxlan => {
            let header = [8, 0, 0, 0, 0, 0, 7, 0];
            let vxlan = [&header[..], &ETHERNET, &inside].concat();
            (UDP, udp([5555, 4789], &vxlan))
        }
        Tunnel::Gre => (GRE, [&[0, 0, 8, 0][..], &inside].concat()),
        Tunnel::GtpU => {
            let [high, low] = two(inside.len());
            let header = [0x30, 255, high, low, 0, 0, 0, 9];
            (UDP, udp([2152, 2152], &[&header[..], &inside].concat()))
        }
    };
    let ends = turned(way, [[192, 0, 2, 1], [192, 0, 2, 2]]);
    [&ETHERNET[..], &ipv4(protocol, ends, &payload)].concat()
}

/// The labels of what a member got.
fn take(member: &mut Receiver, seen: &mut Vec<[u8; 3]>) {
    let short = Some(Duration::from_millis(1));
    while let Next::Batch(batch) = member.next(short).expect("the hub is there") {
        for received in batch.packets() {
            let received = received.expect("the pool is good");
            if let Some(label) = received
                .packet
                .data
                .last_chunk()
                .filter(|_| received.is_ours())
            {
                seen.push(*label);
            }
        }
    }
}

/// Which members of a group of four got each of these packets, all of which were sent once.
fn members_of(members: &mut [Receiver], labels: &[Label]) -> BTreeMap<Label, usize> {
    let deadline = Instant::now() + LIMIT;
    let mut seen = vec![Vec::new(); members.len()];
    while seen.iter().map(Vec::len).sum::<usize>() < labels.len() {
        assert!(Instant::now() < deadline, "{seen:?}");
        for (member, seen) in members.iter_mut().zip(&mut seen) {
            take(member, seen);
        }
    }
    let mut who = BTreeMap::new();
    for label in labels {
        let bytes = [label.0 as u8, label.1 as u8, label.2];
        let got = |seen: &Vec<[u8; 3]>| seen.iter().filter(|one| **one == bytes).count();
        let counts: Vec<_> = seen.iter().map(got).collect();
        assert_eq!(counts.iter().sum::<usize>(), 1, "{label:?}: {counts:?}");
        let member = counts.iter().position(|count| *count == 1);
        who.extend(member.map(|member| (*label, member)));
    }
    who
}

#[test]
fn what_is_in_a_tunnel_is_shared_by_its_own_flows_where_that_is_asked_for() {
    require_root!();
    let groups = ["inner:4:inner-flow:ip", "outer:4:flow:ip"];
    let hub = RunningHub::new("hub-tunnels", &groups);
    let attach = |group| -> Vec<_> { (0..4).map(|_| hub.receiver(group)).collect() };
    let (mut inner, mut outer) = (attach("inner"), attach("outer"));
    let ways = [Way::There, Way::Back];
    let each = |tunnel| ways.into_iter().map(move |way| (tunnel, way));
    let labels: Vec<Label> = TUNNELS
        .into_iter()
        .flat_map(each)
        .flat_map(|(tunnel, way)| (0..FLOWS).map(move |flow| (tunnel, way, flow)))
        .collect();
    let frames: Vec<_> = labels.iter().map(|label| frame(*label)).collect();
    hub.net.inject("tx0", &frames);

    let who = members_of(&mut inner, &labels);
    let distinct = |members: &mut dyn Iterator<Item = usize>| members.collect::<BTreeSet<_>>();
    for flow in 0..FLOWS {
        let of_flow = who.iter().filter(|(label, _)| label.2 == flow);
        let members = distinct(&mut of_flow.map(|(_, member)| *member));
        assert_eq!(members.len(), 1, "flow {flow}, in any tunnel, either way");
    }
    assert_eq!(
        distinct(&mut who.values().copied()).len(),
        4,
        "all have work"
    );

    let who = members_of(&mut outer, &labels);
    for (tunnel, way) in TUNNELS.into_iter().flat_map(each) {
        let of_tunnel = who
            .iter()
            .filter(|(label, _)| (label.0, label.1) == (tunnel, way));
        let members = distinct(&mut of_tunnel.map(|(_, member)| *member));
        assert_eq!(
            members.len(),
            1,
            "{tunnel:?} {way:?} is one flow from outside"
        );
    }
    drop((inner, outer));
    hub.finish();
}
