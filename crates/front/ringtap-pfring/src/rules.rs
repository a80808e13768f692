// SPDX-License-Identifier: MIT OR Apache-2.0
//! PF_RING's rules that stand for one flow, as flow rules of the hub.
//!
//! Invariants
//! - A rule that could mean more than one flow is refused.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ringtap_filter::flow::{FlowId, FlowPacket};
use ringtap_filter::hash::Link;

use crate::abi::ParsedAddress;
use crate::error::RingError;

/// `dont_forward_packet_and_stop_rule_evaluation`.
const IGNORE: i32 = 1;
/// `flow_drop_rule`.
const DROP: i32 = 0;
/// `generic_flow_id_rule` and `generic_flow_tuple_rule`.
const FLOW_ID: i32 = 3;
const FLOW_TUPLE: i32 = 4;
const IPV6: u16 = 0x86dd;
/// Flows whose numbers are known: a power of two.
const NAMES: usize = 1 << 16;

/// The bytes of a structure in the order of its fields.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (taken, rest) = self.0.split_at_checked(N).unwrap_or_default();
        self.0 = rest;
        taken.try_into().unwrap_or([0; N])
    }

    fn byte(&mut self) -> u8 {
        let [byte] = self.take();
        byte
    }

    fn short(&mut self) -> u16 {
        u16::from_ne_bytes(self.take())
    }

    fn number(&mut self) -> i32 {
        i32::from_ne_bytes(self.take())
    }

    fn skip(&mut self, bytes: usize) {
        self.0 = self.0.get(bytes..).unwrap_or_default();
    }
}

/// Two ends, a protocol and a VLAN number.
struct Tuple {
    hosts: [ParsedAddress; 2],
    ports: [u16; 2],
    protocol: u8,
    vlan: u16,
    is_v6: bool,
}

impl Tuple {
    fn flow(&self) -> Result<FlowId, RingError> {
        let [one, other] = self.hosts.map(|host| address(host, self.is_v6));
        let is_unset = |address: &IpAddr| address.is_unspecified();
        if self.protocol == 0 || is_unset(&one) || is_unset(&other) {
            return Err(RingError::Unsupported);
        }
        let ends = ((one, self.ports[0]), (other, self.ports[1]));
        let flow = FlowId::new(ends.0, ends.1, self.protocol, [self.vlan, 0]);
        flow.map_err(|_| RingError::Argument)
    }
}

fn address(host: ParsedAddress, is_v6: bool) -> IpAddr {
    let [a, b, c, d, ..] = host;
    if is_v6 {
        Ipv6Addr::from(host).into()
    } else {
        Ipv4Addr::from_bits(u32::from_ne_bytes([a, b, c, d])).into()
    }
}

/// The flow of a `hash_filtering_rule`.
pub(crate) fn hash_rule(bytes: &[u8; 70]) -> Result<FlowId, RingError> {
    let mut fields = Fields(bytes);
    let _rule_id = fields.short();
    let vlan = fields.short();
    let version = fields.byte();
    let protocol = fields.byte();
    let hosts = [fields.take(), fields.take()];
    let ports = [fields.short(), fields.short()];
    if fields.number() != IGNORE {
        return Err(RingError::Unsupported);
    }
    let tuple = Tuple {
        hosts,
        ports,
        protocol,
        vlan,
        is_v6: version == 6,
    };
    tuple.flow()
}

/// The number and the flow of a `filtering_rule`, of which only its hosts, ports, protocol and VLAN are set.
pub(crate) fn wildcard_rule(bytes: &[u8; 230]) -> Result<(u16, FlowId), RingError> {
    let mut fields = Fields(bytes);
    let number = fields.short();
    let action = fields.number();
    let (_balance_id, balance_pool, _locked) = (fields.byte(), fields.byte(), fields.byte());
    let is_bidirectional = fields.byte() != 0;
    let _interface = fields.number();
    let macs: [u8; 12] = fields.take();
    let (vlan, eth_type) = (fields.short(), fields.short());
    let protocol = fields.byte();
    let hosts: [ParsedAddress; 2] = [fields.take(), fields.take()];
    let masks: [ParsedAddress; 2] = [fields.take(), fields.take()];
    let ports = [
        [fields.short(), fields.short()],
        [fields.short(), fields.short()],
    ];
    let tcp_flags = fields.byte();
    let optional = fields.short();
    fields.skip(68);
    let pattern: [u8; 32] = fields.take();
    let is_v6 = eth_type == IPV6;
    let mask_bytes = if is_v6 { 16 } else { 4 };
    let has_one_host = |mask: &ParsedAddress| mask[..mask_bytes].iter().all(|byte| *byte == 0xff);
    let is_one_flow = action == IGNORE
        && is_bidirectional
        && balance_pool == 0
        && macs == [0; 12]
        && (tcp_flags, optional, pattern[0]) == (0, 0, 0)
        && masks.iter().all(has_one_host)
        && ports.iter().all(|[low, high]| low == high);
    if !is_one_flow {
        return Err(RingError::Unsupported);
    }
    let tuple = Tuple {
        hosts,
        ports: ports.map(|[port, _]| port),
        protocol,
        vlan,
        is_v6,
    };
    Ok((number, tuple.flow()?))
}

/// The number and the flow of a `hw_filtering_rule` that drops a flow.
pub(crate) fn hardware_rule(
    bytes: &[u8; 94],
    names: Option<&FlowNames>,
) -> Result<(u16, FlowId), RingError> {
    let mut fields = Fields(bytes);
    let (family, number, _priority) = (fields.number(), fields.short(), fields.short());
    if fields.number() != DROP {
        return Err(RingError::Unsupported);
    }
    match family {
        FLOW_ID => {
            let name = u64::from_ne_bytes(fields.take());
            let flow = names.and_then(|names| names.flow(u32::try_from(name).ok()?));
            Ok((number, flow.ok_or(RingError::Argument)?))
        }
        FLOW_TUPLE => {
            let hosts = [fields.take(), fields.take()];
            fields.skip(32);
            let ports = [fields.short(), fields.short()];
            let vlan = fields.short();
            let (version, protocol) = (fields.byte(), fields.byte());
            let tuple = Tuple {
                hosts,
                ports,
                protocol,
                vlan,
                is_v6: version == 6,
            };
            Ok((number, tuple.flow()?))
        }
        _ => Err(RingError::Unsupported),
    }
}

/// Numbers of flows for `PF_RING_FLOW_OFFLOAD`, in place of packets' hashes: a number means the flow that had it last,
/// or none.
pub(crate) struct FlowNames {
    /// Each with the number of flows that were here before.
    places: Vec<(u16, Option<FlowId>)>,
}

impl FlowNames {
    pub(crate) fn new() -> Self {
        FlowNames {
            places: vec![(0, None); NAMES],
        }
    }

    /// The number of a packet's flow; 0 if it belongs to none.
    pub(crate) fn name(&mut self, data: &[u8], wire_bytes: u32, hash: u32, link: Link) -> u32 {
        let Some(packet) = FlowPacket::from_bytes(data, wire_bytes, link) else {
            return 0;
        };
        let at = hash.to_le_bytes();
        let at = u16::from_le_bytes([at[0], at[1]]);
        let Some((turn, flow)) = self.places.get_mut(usize::from(at)) else {
            return 0;
        };
        if *flow != Some(packet.key) {
            // 0 is no number.
            *turn = turn.checked_add(1).unwrap_or(1);
            *flow = Some(packet.key);
        }
        u32::from(*turn) << 16 | u32::from(at)
    }

    fn flow(&self, name: u32) -> Option<FlowId> {
        let [turn_high, turn_low, high, low] = name.to_be_bytes();
        let (now, flow) = self
            .places
            .get(usize::from(u16::from_be_bytes([high, low])))?;
        flow.filter(|_| *now == u16::from_be_bytes([turn_high, turn_low]))
    }
}

#[cfg(test)]
mod tests {
    use ringtap_filter::hash::Link;

    use super::{FlowNames, hash_rule, wildcard_rule};
    use crate::error::RingError;

    /// A UDP packet between 10.0.0.1:1000 and 10.0.0.2 at this port.
    fn frame(port: u16) -> Vec<u8> {
        let builder = etherparse::PacketBuilder::ethernet2([2; 6], [4; 6]);
        let builder = builder
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            .udp(1000, port);
        let mut frame = Vec::new();
        builder.write(&mut frame, b"").expect("a vector");
        frame
    }

    fn wildcard() -> [u8; 230] {
        let mut rule = [0; 230];
        rule[2] = 1; // the action
        rule[9] = 1; // both directions
        rule[30] = 17;
        rule[31..35].copy_from_slice(&0x0a00_0001_u32.to_ne_bytes());
        rule[47..51].copy_from_slice(&0x0a00_0002_u32.to_ne_bytes());
        rule[63..67].fill(0xff);
        rule[79..83].fill(0xff);
        for (at, port) in [(95, 1000_u16), (97, 1000), (99, 53), (101, 53)] {
            rule[at..at + 2].copy_from_slice(&port.to_ne_bytes());
        }
        rule
    }

    #[test]
    fn rules_of_both_kinds_name_the_same_flow() {
        let (_, flow) = wildcard_rule(&wildcard()).expect("one flow");
        assert_eq!(flow.to_string(), "udp 10.0.0.1:1000 10.0.0.2:53");
        let mut rule = [0; 70];
        (rule[4], rule[5]) = (4, 17);
        rule[6..10].copy_from_slice(&0x0a00_0002_u32.to_ne_bytes());
        rule[22..26].copy_from_slice(&0x0a00_0001_u32.to_ne_bytes());
        rule[38..40].copy_from_slice(&53_u16.to_ne_bytes());
        rule[40..42].copy_from_slice(&1000_u16.to_ne_bytes());
        rule[42] = 1;
        assert_eq!(hash_rule(&rule).expect("one flow"), flow);
        rule[42] = 0;
        assert!(matches!(hash_rule(&rule), Err(RingError::Unsupported)));
    }

    #[test]
    fn a_rule_that_means_more_than_one_flow_is_refused() {
        for (at, value) in [
            (9, 0),
            (14, 2),
            (30, 0),
            (31, 0),
            (66, 0),
            (97, 9),
            (103, 2),
            (174, b'x'),
        ] {
            let mut rule = wildcard();
            rule[at] = value;
            if at == 31 {
                rule[31..35].fill(0);
            }
            assert!(
                matches!(wildcard_rule(&rule), Err(RingError::Unsupported)),
                "{at}"
            );
        }
    }

    #[test]
    fn a_number_means_the_flow_that_had_it_last_or_none() {
        let mut names = FlowNames::new();
        let first = names.name(&frame(53), 60, 7, Link::Ethernet);
        assert_eq!(names.name(&frame(53), 60, 7, Link::Ethernet), first);
        let flow = names.flow(first).expect("known");
        assert_eq!(flow.to_string(), "udp 10.0.0.1:1000 10.0.0.2:53");
        let second = names.name(&frame(54), 60, 7, Link::Ethernet);
        assert_ne!(first, second);
        assert_eq!(names.flow(first), None);
        assert_eq!(names.name(&[0; 60], 60, 7, Link::Ethernet), 0);
        assert_eq!(names.flow(0), None);
    }
}
