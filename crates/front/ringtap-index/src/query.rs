// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a search looks for: a filter and a range of times.

use std::ops::Range;

use ringtap_file::RawPacket;
use ringtap_filter::hash::{self, Link, Tunnels};
use ringtap_filter::text::{FilterError, compile};
use ringtap_filter::{LinkType, MAX_SNAP_LENGTH, Program};
use ringtap_pool::number::to_u32;

use crate::extract::inner_packet;
use crate::layout::{MAX_LINK_TYPES, SegmentHeader};
use crate::narrow::{Alternative, alternatives};

/// The packet of which a filter decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FilterTarget {
    /// The packet as it was captured.
    #[default]
    Outer,
    /// The IP packet inside all tunnels, or the packet's own if there is no tunnel; other packets never match.
    Innermost,
}

/// A filter for packets of one link type.
struct TypedFilter {
    program: Program,
    alternatives: Vec<Alternative>,
}

/// A query.
pub(crate) struct Query {
    filter: String,
    target: FilterTarget,
    pub(crate) times: Range<u64>,
    /// `None`: the filter means nothing for the link type.
    typed: Vec<(LinkType, Option<TypedFilter>)>,
    /// Why not.
    refused: Vec<(LinkType, FilterError)>,
}

impl Query {
    /// A query, if the filter is valid for Ethernet or bare IP packets.
    pub(crate) fn new(
        filter: &str,
        target: FilterTarget,
        times: Range<u64>,
    ) -> Result<Self, FilterError> {
        let first = match target {
            FilterTarget::Outer => LinkType::ETHERNET,
            FilterTarget::Innermost => LinkType::RAW_IP,
        };
        compile(filter, first, MAX_SNAP_LENGTH)?;
        Ok(Query {
            filter: filter.to_owned(),
            target,
            times,
            typed: Vec::new(),
            refused: Vec::new(),
        })
    }

    /// Takes the link types for which the filter means nothing.
    pub(crate) fn take_refused(&mut self) -> Vec<(LinkType, FilterError)> {
        std::mem::take(&mut self.refused)
    }

    fn filter(&mut self, link_type: LinkType) -> Option<&TypedFilter> {
        let link_type = match self.target {
            FilterTarget::Outer => link_type,
            FilterTarget::Innermost => LinkType::RAW_IP,
        };
        let known = self.typed.iter().position(|(it, _)| *it == link_type);
        let place = known.unwrap_or_else(|| {
            self.add(link_type);
            self.typed.len() - 1
        });
        self.typed.get(place)?.1.as_ref()
    }

    fn add(&mut self, link_type: LinkType) {
        let typed = match compile(&self.filter, link_type, MAX_SNAP_LENGTH) {
            Ok(program) => Some(TypedFilter {
                alternatives: alternatives(&program, link_type),
                program,
            }),
            Err(error) => {
                self.refused.push((link_type, error));
                None
            }
        };
        self.typed.push((link_type, typed));
    }

    /// The alternatives for the packets of a segment.
    pub(crate) fn alternatives(&mut self, header: &SegmentHeader) -> Vec<Alternative> {
        if header.omitted == u32::MAX {
            return vec![Alternative::new()];
        }
        let types: [LinkType; MAX_LINK_TYPES] = header.link_types;
        let mut all = Vec::new();
        for link_type in types.into_iter().filter(|it| *it != LinkType::UNKNOWN) {
            let typed = self.filter(link_type);
            all.extend(typed.iter().flat_map(|it| it.alternatives.iter().cloned()));
        }
        all
    }

    /// Whether a packet is wanted.
    #[inline]
    pub(crate) fn matches(&mut self, packet: &RawPacket<'_>) -> bool {
        if !self.times.contains(&packet.time_ns) {
            return false;
        }
        let target = self.target;
        let Some(typed) = self.filter(packet.link_type) else {
            return false;
        };
        match target {
            FilterTarget::Outer => typed.program.matches(packet.data, packet.wire_length),
            FilterTarget::Innermost => {
                let link = Link::from_link_type(packet.link_type);
                let ip = link.and_then(|link| hash::ip(packet.data, link, Tunnels::All));
                ip.is_some_and(|ip| {
                    let data = inner_packet(packet.data, &ip);
                    let before = to_u32(packet.data.len() - data.len());
                    let wire_length = packet.wire_length.saturating_sub(before);
                    typed.program.matches(data, wire_length)
                })
            }
        }
    }
}
