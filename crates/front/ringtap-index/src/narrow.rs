// SPDX-License-Identifier: MIT OR Apache-2.0
//! Translates what a filter requires of the bytes of a packet into terms of the index.
//!
//! Invariant: a block with a packet that the filter matches holds, for one alternative, a term of each of its ranges.
//! Conditions that are not understood are left out, which only adds blocks.

use ringtap_filter::{ByteField, FieldBase, FieldConditions, LinkType, Program, ValueRange, flow};

use crate::extract::{ARP, FRAGMENT, IPV4, IPV6, LinkHeader, MAX_TAGS, TAGS};
use crate::term::{FIRST_ETHER_TYPE, TermKind, TermRange};

/// Ranges that all have to occur in a block.
pub(crate) type Alternative = Vec<TermRange>;

/// The alternatives of a filter for packets of a link type. None: no packet matches. One without ranges: every
/// block may hold a match.
pub(crate) fn alternatives(program: &Program, link_type: LinkType) -> Vec<Alternative> {
    let entries = program.required_fields();
    let ranges = |conditions| match LinkHeader::from_link_type(link_type) {
        Some(header) => Conditions(conditions).ranges(header),
        None => Alternative::new(),
    };
    let mut all: Vec<_> = entries.iter().map(ranges).collect();
    if all.iter().any(Vec::is_empty) {
        return vec![Alternative::new()];
    }
    all.sort();
    all.dedup();
    all
}

struct Conditions<'a>(&'a FieldConditions);

impl Conditions<'_> {
    fn ranges(&self, header: LinkHeader) -> Alternative {
        let mut ranges = Alternative::new();
        match header {
            LinkHeader::Ip => {
                let version = self.range(FieldBase::Packet, 0, 1, 0xf0);
                let ether_type = match version {
                    Some(ValueRange {
                        min: 0x40,
                        max: 0x40,
                    }) => IPV4,
                    Some(ValueRange {
                        min: 0x60,
                        max: 0x60,
                    }) => IPV6,
                    _ => return ranges,
                };
                push(
                    &mut ranges,
                    TermKind::EtherType,
                    ether_type.into(),
                    ether_type.into(),
                );
                self.network(ether_type, 0, &mut ranges);
            }
            LinkHeader::Typed {
                ether_type,
                network,
                has_tags,
            } => self.typed(ether_type, network, has_tags, &mut ranges),
        }
        ranges
    }

    /// The conditions on ethertypes and tags, and on the header behind them.
    fn typed(&self, mut type_at: u32, mut at: u32, has_tags: bool, ranges: &mut Alternative) {
        for _ in 0..=MAX_TAGS {
            let Some(ether_type) = self.range(FieldBase::Packet, type_at, 2, 0xffff) else {
                return;
            };
            let first = u32::from(FIRST_ETHER_TYPE);
            let known = |value| if value < first { 0 } else { value };
            push(
                ranges,
                TermKind::EtherType,
                known(ether_type.min),
                known(ether_type.max),
            );
            let Some(only) = single(ether_type) else {
                return;
            };
            if !has_tags || !TAGS.contains(&only) {
                return self.network(only, at, ranges);
            }
            if let Some(vlan) = self.range(FieldBase::Packet, type_at + 2, 2, 0x0fff) {
                push(ranges, TermKind::Vlan, vlan.min, vlan.max);
            }
            (type_at, at) = (type_at + 4, at + 4);
        }
    }

    fn network(&self, ether_type: u16, at: u32, ranges: &mut Alternative) {
        match ether_type {
            IPV4 => self.ipv4(at, ranges),
            IPV6 => self.ipv6(at, ranges),
            kind if ARP.contains(&kind) => {
                for place in [14, 24] {
                    self.ipv4_address(at + place, ranges);
                }
            }
            _ => {}
        }
    }

    fn ipv4(&self, at: u32, ranges: &mut Alternative) {
        for place in [12, 16] {
            self.ipv4_address(at + place, ranges);
        }
        let protocol = self.protocol(at + 9, ranges);
        let place = self.range(FieldBase::Packet, at + 6, 2, 0x1fff);
        let is_first = place.is_some_and(|place| place.max == 0);
        if is_first && protocol.is_some_and(has_ports) {
            self.ports(FieldBase::HeaderLength(at), at, ranges);
        }
    }

    fn ipv6(&self, at: u32, ranges: &mut Alternative) {
        for place in [8, 24] {
            self.ipv6_address(at + place, ranges);
        }
        match self.protocol(at + 6, ranges).and_then(single) {
            Some(protocol) if protocol == u16::from(FRAGMENT) => {
                self.protocol(at + 40, ranges);
            }
            Some(protocol) if has_ports_number(protocol) => {
                self.ports(FieldBase::Packet, at + 40, ranges);
            }
            _ => {}
        }
    }

    fn protocol(&self, at: u32, ranges: &mut Alternative) -> Option<ValueRange> {
        let protocol = self.range(FieldBase::Packet, at, 1, 0xff)?;
        push(ranges, TermKind::Protocol, protocol.min, protocol.max);
        Some(protocol)
    }

    fn ports(&self, base: FieldBase, at: u32, ranges: &mut Alternative) {
        for place in [0, 2] {
            if let Some(port) = self.range(base, at + place, 2, 0xffff) {
                push(ranges, TermKind::Port, port.min, port.max);
            }
        }
    }

    fn ipv4_address(&self, at: u32, ranges: &mut Alternative) {
        for (mask, range) in self.masked(at) {
            let Some(free) = free_bits(mask) else {
                continue;
            };
            push(ranges, TermKind::Ipv4, range.min, range.max | free);
        }
    }

    /// The words from the first one on, as long as they are known; of the last one, bits may be free.
    fn ipv6_address(&self, at: u32, ranges: &mut Alternative) {
        let (mut min, mut max) = (0_u128, u128::MAX);
        for word in 0..4 {
            let shift = 96 - 32 * word;
            let free_below = (1_u128 << shift) - 1;
            let known = self.masked(at + 4 * word);
            let known = known.filter_map(|(mask, range)| Some((free_bits(mask)?, range)));
            let Some((free, range)) = known.min_by_key(|(free, _)| *free) else {
                break;
            };
            min |= u128::from(range.min) << shift;
            let above = !(u128::from(u32::MAX) << shift | free_below);
            max = max & above | u128::from(range.max | free) << shift | free_below;
            if free != 0 || range.min != range.max {
                break;
            }
        }
        if (min, max) != (0, u128::MAX) {
            ranges.push(TermRange {
                kind: TermKind::Ipv6,
                min,
                max,
            });
        }
    }

    /// Conditions on the word at this offset, with their masks.
    fn masked(&self, at: u32) -> impl Iterator<Item = (u32, ValueRange)> {
        let conditions = self.0.iter();
        conditions
            .filter(move |(field, _)| {
                (field.base, field.at, field.bytes) == (FieldBase::Packet, at, 4)
            })
            .map(|(field, range)| (field.mask, *range))
    }

    fn range(&self, base: FieldBase, at: u32, bytes: u8, mask: u32) -> Option<ValueRange> {
        let field = ByteField {
            base,
            at,
            bytes,
            mask,
        };
        self.0.get(&field).copied()
    }
}

fn push(ranges: &mut Alternative, kind: TermKind, min: u32, max: u32) {
    ranges.push(TermRange {
        kind,
        min: min.into(),
        max: max.into(),
    });
}

/// The only value of a range.
fn single(range: ValueRange) -> Option<u16> {
    let value = u16::try_from(range.min).ok()?;
    (range.min == range.max).then_some(value)
}

fn has_ports(protocol: ValueRange) -> bool {
    single(protocol).is_some_and(has_ports_number)
}

fn has_ports_number(protocol: u16) -> bool {
    u8::try_from(protocol).is_ok_and(flow::has_ports)
}

/// The bits below the mask of a network; `None` if the mask has gaps.
fn free_bits(mask: u32) -> Option<u32> {
    let free = !mask;
    (free & free.wrapping_add(1) == 0).then_some(free)
}

#[cfg(test)]
mod tests {
    use ringtap_filter::text::compile;

    use super::*;
    use crate::term::TermKind::{EtherType, Ipv4, Ipv6, Port, Protocol, Vlan};

    const LINKS: [LinkType; 4] = [
        LinkType::ETHERNET,
        LinkType::LINUX_SLL,
        LinkType::LINUX_SLL2,
        LinkType::RAW_IP,
    ];

    fn of(filter: &str, link_type: LinkType) -> Vec<Alternative> {
        alternatives(&compile(filter, link_type, 65535).unwrap(), link_type)
    }

    #[track_caller]
    fn each_asks_for(filter: &str, links: &[LinkType], kinds: &[TermKind]) {
        for link_type in links {
            let all = of(filter, *link_type);
            let has = |alternative: &Alternative| {
                alternative.iter().any(|range| kinds.contains(&range.kind))
            };
            assert!(
                !all.is_empty() && all.iter().all(has),
                "{filter} on {link_type}: {all:?}"
            );
        }
    }

    #[test]
    fn addresses_ports_protocols_and_tags_narrow() {
        each_asks_for("host 10.1.2.3", &LINKS, &[Ipv4]);
        each_asks_for("net 10.0.0.0/8 or host 2001:db8::1", &LINKS, &[Ipv4, Ipv6]);
        each_asks_for("ip6 net 2001:db8::/40", &LINKS, &[Ipv6]);
        each_asks_for("port 443", &LINKS, &[Port]);
        each_asks_for("tcp dst portrange 1000-2000", &LINKS, &[Port]);
        each_asks_for("icmp", &LINKS, &[Protocol]);
        each_asks_for("arp", &LINKS[..3], &[EtherType]);
        each_asks_for("vlan 100", &LINKS[..1], &[Vlan]);
        each_asks_for("vlan and host 10.1.2.3", &LINKS[..1], &[Ipv4]);
        each_asks_for("vlan 7 and vlan and port 53", &LINKS[..1], &[Port]);
    }

    #[test]
    fn a_conversation_asks_for_both_ends() {
        for alternative in of(
            "host 10.1.2.3 and host 10.4.5.6 and tcp port 443",
            LinkType::ETHERNET,
        ) {
            let of_kind = |kind| {
                alternative
                    .iter()
                    .filter(|range| range.kind == kind)
                    .count()
            };
            assert_eq!((of_kind(Ipv4), of_kind(Port)), (2, 1), "{alternative:?}");
        }
    }

    #[test]
    fn what_is_not_understood_narrows_nothing() {
        for filter in ["", "not host 10.1.2.3", "greater 100", "link[0] = 2"] {
            assert_eq!(
                of(filter, LinkType::ETHERNET),
                [Alternative::new()],
                "{filter}"
            );
        }
        assert_eq!(of("host 10.1.2.3", LinkType(0)), [Alternative::new()]);
        assert_eq!(
            of("less 10 and greater 20", LinkType::ETHERNET),
            [Alternative::new()]
        );
    }
}
