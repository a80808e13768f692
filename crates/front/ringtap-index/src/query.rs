// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a search looks for: a filter, a Community ID and a range of times.

use std::ops::Range;

use ringtap_file::RawPacket;
use ringtap_filter::text::{FilterError, compile};
use ringtap_filter::{LinkType, MAX_SNAP_LENGTH, Program};
use ringtap_packet::CommunityId;
use ringtap_pool::number::to_u32;

use crate::extract::{inner_packet, innermost_ip};
use crate::layout::{MAX_LINK_TYPES, SegmentHeader};
use crate::narrow::{Alternative, alternatives};
use crate::request::{FilterTarget, SearchRequest};
use crate::term::{TermKind, TermRange, id_prefix};

/// A filter for packets of one link type.
struct TypedFilter {
    program: Program,
    alternatives: Vec<Alternative>,
}

/// A query.
pub(crate) struct Query {
    filter: String,
    target: FilterTarget,
    community_id: Option<CommunityId>,
    pub(crate) times: Range<u64>,
    /// `None`: the filter means nothing for the link type.
    typed: Vec<(LinkType, Option<TypedFilter>)>,
    /// Why not.
    refused: Vec<(LinkType, FilterError)>,
}

impl Query {
    /// The query of a request, if its filter is valid for Ethernet or bare IP packets.
    pub(crate) fn new(request: &SearchRequest) -> Result<Self, FilterError> {
        let first = match request.target {
            FilterTarget::Outer => LinkType::ETHERNET,
            FilterTarget::Innermost => LinkType::RAW_IP,
        };
        compile(&request.filter, first, MAX_SNAP_LENGTH)?;
        Ok(Query {
            filter: request.filter.clone(),
            target: request.target,
            community_id: request.community_id,
            times: request.from_ns..request.to_ns,
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
        if let Some(id) = self.community_id {
            let range = TermRange::single(TermKind::CommunityId, id_prefix(id).into());
            all.iter_mut()
                .for_each(|it: &mut Alternative| it.push(range));
        }
        all
    }

    /// Whether a packet is wanted.
    #[inline]
    pub(crate) fn matches(&mut self, packet: &RawPacket<'_>) -> bool {
        if !self.times.contains(&packet.time_ns) {
            return false;
        }
        let (target, community_id) = (self.target, self.community_id);
        let Some(typed) = self.filter(packet.link_type) else {
            return false;
        };
        let is_in_flow = || {
            community_id.is_none_or(|id| {
                let ip = innermost_ip(packet.data, packet.link_type);
                ip.and_then(|ip| CommunityId::from_packet(&ip, 0)) == Some(id)
            })
        };
        let is_passed = match target {
            FilterTarget::Outer => typed.program.matches(packet.data, packet.wire_length),
            FilterTarget::Innermost => {
                let ip = innermost_ip(packet.data, packet.link_type);
                ip.is_some_and(|ip| {
                    let data = inner_packet(packet.data, &ip);
                    let before = to_u32(packet.data.len() - data.len());
                    let wire_length = packet.wire_length.saturating_sub(before);
                    typed.program.matches(data, wire_length)
                })
            }
        };
        is_passed && is_in_flow()
    }
}
