// SPDX-License-Identifier: MIT OR Apache-2.0
//! Collects the terms of successive blocks, and writes them as a segment.
//!
//! Invariants
//! - Memory is bounded: [`SegmentBuilder::is_full`] says when to write.
//! - A kind of terms that would need more than a sixteenth of the space of its packets is left out.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use ringtap_filter::LinkType;
use ringtap_packet::CommunityFlow;
use ringtap_pool::number::{to_u32, to_u64};

use crate::extract::{self, Terms};
use crate::layout::{
    BlockEntry, MAX_LINK_TYPES, PageEntry, SEGMENT_HEADER, Sample, SegmentHeader, write_blocks,
};
use crate::posting::Posting;
use crate::term::{TermKind, id_prefix};

/// Most flows whose Community ID is kept, about 4 MB; beyond it, IDs are computed again.
const MAX_FLOWS: usize = 1 << 16;

/// Sizes of the parts of an index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexSizes {
    /// Bytes of content after which a block ends.
    pub(crate) block_bytes: u64,
    /// Most blocks of a segment.
    pub(crate) segment_blocks: usize,
    /// Most different terms of a segment.
    pub(crate) segment_terms: usize,
    /// Bytes at which a page of the dictionary ends.
    pub(crate) page_bytes: usize,
    /// Largest frame of a compressed file that is read to find one block in it, in bytes of content.
    pub(crate) frame_bytes: u64,
    /// Terms of one kind may use one part in this many of the packets' space.
    pub(crate) max_share: u64,
}

impl IndexSizes {
    /// Segments of 256 MiB, and less of captures with many addresses: these need 100 bytes of memory each.
    pub(crate) const USUAL: Self = IndexSizes {
        block_bytes: 64 * 1024,
        segment_blocks: 4096,
        segment_terms: 1 << 20,
        page_bytes: 4096,
        frame_bytes: 16 << 20,
        max_share: 16,
    };
}

/// Part of a capture's content that a segment covers.
pub(crate) struct Coverage {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) tail: Sample,
}

/// A segment that grows.
pub(crate) struct SegmentBuilder {
    sizes: IndexSizes,
    blocks: Vec<BlockEntry>,
    link_types: Vec<LinkType>,
    terms: TermTable,
}

/// The blocks in which each term occurs.
struct TermTable {
    /// Number of the block that grows.
    block: u32,
    count: usize,
    /// Ports, protocols and VLANs by their numbers.
    small: [Vec<Posting>; 3],
    ether_types: HashMap<u16, Posting, RandomState>,
    ipv4: HashMap<u32, Posting, RandomState>,
    ipv6: HashMap<u128, Posting, RandomState>,
    /// By the first bytes of the ID.
    community_ids: HashMap<u32, Posting, RandomState>,
    /// Flows whose ID is computed, at most [`MAX_FLOWS`], and the last block in which each was.
    flows: HashMap<CommunityFlow, FlowTerm, RandomState>,
}

/// First bytes of a flow's Community ID, and the last block with the flow.
struct FlowTerm {
    id: u32,
    block: u32,
}

impl TermTable {
    fn new() -> Self {
        TermTable {
            block: 0,
            count: 0,
            small: [1 << 16, 1 << 8, 1 << 12].map(|values| vec![Posting::default(); values]),
            ether_types: HashMap::default(),
            ipv4: HashMap::default(),
            ipv6: HashMap::default(),
            community_ids: HashMap::default(),
            flows: HashMap::default(),
        }
    }

    /// The terms of a kind in the order of their values.
    fn sorted(&self, kind: TermKind) -> Vec<(u128, &Posting)> {
        fn of_map<K: Copy + Into<u128>>(
            map: &HashMap<K, Posting, RandomState>,
        ) -> Vec<(u128, &Posting)> {
            let mut all: Vec<_> = map
                .iter()
                .map(|(value, posting)| ((*value).into(), posting))
                .collect();
            all.sort_unstable_by_key(|(value, _)| *value);
            all
        }
        let small = |at: usize| {
            let all = (0..).zip(&self.small[at]);
            all.filter(|(_, posting)| !posting.is_empty()).collect()
        };
        match kind {
            TermKind::Port => small(0),
            TermKind::Protocol => small(1),
            TermKind::Vlan => small(2),
            TermKind::EtherType => of_map(&self.ether_types),
            TermKind::Ipv4 => of_map(&self.ipv4),
            TermKind::Ipv6 => of_map(&self.ipv6),
            TermKind::CommunityId => of_map(&self.community_ids),
        }
    }
}

impl TermTable {
    /// Computes the ID of a flow.
    fn add_flow(&mut self, flow: CommunityFlow) -> u32 {
        if self.flows.len() >= MAX_FLOWS {
            self.flows.clear();
        }
        let (id, block) = (id_prefix(flow.id(0)), self.block);
        self.flows.insert(flow, FlowTerm { id, block });
        id
    }
}

impl Terms for TermTable {
    #[inline]
    fn term(&mut self, kind: TermKind, value: u16) {
        let place = usize::from(value);
        let posting = match kind {
            TermKind::Port => self.small[0].get_mut(place),
            TermKind::Protocol => self.small[1].get_mut(place),
            TermKind::Vlan => self.small[2].get_mut(place),
            _ => Some(self.ether_types.entry(value).or_default()),
        };
        let is_new = posting.is_some_and(|posting| posting.add(self.block));
        self.count += usize::from(is_new);
    }

    #[inline]
    fn ipv4(&mut self, address: u32) {
        let is_new = self.ipv4.entry(address).or_default().add(self.block);
        self.count += usize::from(is_new);
    }

    #[inline]
    fn ipv6(&mut self, address: u128) {
        let is_new = self.ipv6.entry(address).or_default().add(self.block);
        self.count += usize::from(is_new);
    }

    #[inline]
    fn flow(&mut self, flow: CommunityFlow) {
        let block = self.block;
        let id = match self.flows.get_mut(&flow) {
            Some(known) if known.block == block => return,
            Some(known) => {
                known.block = block;
                known.id
            }
            None => self.add_flow(flow),
        };
        let is_new = self.community_ids.entry(id).or_default().add(block);
        self.count += usize::from(is_new);
    }
}

impl SegmentBuilder {
    pub(crate) fn new(sizes: IndexSizes) -> Self {
        SegmentBuilder {
            sizes,
            blocks: Vec::new(),
            link_types: Vec::new(),
            terms: TermTable::new(),
        }
    }

    /// Whether the segment has to be written before another block.
    pub(crate) fn is_full(&self) -> bool {
        self.blocks.len() >= self.sizes.segment_blocks
            || self.terms.count >= self.sizes.segment_terms
    }

    /// The block that grows.
    pub(crate) fn last_block(&mut self) -> Option<&mut BlockEntry> {
        self.blocks.last_mut()
    }

    /// Begins a block without packets.
    pub(crate) fn begin(&mut self, block: BlockEntry) {
        self.terms.block = to_u32(self.blocks.len());
        self.blocks.push(block);
    }

    /// Adds a packet to the last block.
    #[inline]
    pub(crate) fn packet(&mut self, data: &[u8], link_type: LinkType, time_ns: u64) {
        if let Some(block) = self.blocks.last_mut() {
            block.min_ns = block.min_ns.min(time_ns);
            block.max_ns = block.max_ns.max(time_ns);
        }
        if !self.link_types.contains(&link_type) && self.link_types.len() <= MAX_LINK_TYPES {
            self.link_types.push(link_type);
        }
        extract::packet(data, link_type, &mut self.terms);
    }

    /// Appends the segment in the form of the file, and begins an empty one.
    pub(crate) fn write(&mut self, into: &mut Vec<u8>, description: &[u8], coverage: &Coverage) {
        let (mut pages, mut entries, mut omitted) = (Vec::new(), Vec::new(), 0);
        let max_bytes =
            (coverage.to - coverage.from) / self.sizes.max_share + to_u64(self.sizes.page_bytes);
        for kind in TermKind::ALL {
            let before = (pages.len(), entries.len());
            let terms = self.terms.sorted(kind);
            write_terms(
                kind,
                &terms,
                self.sizes.page_bytes,
                &mut pages,
                &mut entries,
            );
            if to_u64(pages.len() - before.0) > max_bytes {
                pages.truncate(before.0);
                entries.truncate(before.1);
                omitted |= 1 << kind.number();
            }
        }
        let mut directory = description.to_vec();
        entries.iter().for_each(|entry| entry.write(&mut directory));
        let times = |of: fn(&BlockEntry) -> u64| self.blocks.iter().map(of);
        let is_unknown = self.link_types.contains(&LinkType::UNKNOWN);
        if is_unknown || self.link_types.len() > MAX_LINK_TYPES {
            omitted = u32::MAX;
        }
        self.link_types.resize(MAX_LINK_TYPES, LinkType::UNKNOWN);
        let link_types = [0, 1, 2, 3].map(|at: usize| self.link_types[at]);
        let mut header = SegmentHeader {
            blocks: to_u32(self.blocks.len()),
            pages: to_u32(entries.len()),
            description: to_u32(description.len()),
            omitted,
            link_types,
            bytes: 0,
            from: coverage.from,
            to: coverage.to,
            min_ns: times(|block| block.min_ns).min().unwrap_or(0),
            max_ns: times(|block| block.max_ns).max().unwrap_or(0),
            tail: coverage.tail,
            directory: crc32fast::hash(&directory),
        };
        header.bytes = to_u64(header.pages_at() + pages.len());
        let start = into.len();
        header.write(into);
        debug_assert_eq!(into.len() - start, SEGMENT_HEADER);
        into.extend_from_slice(&directory);
        write_blocks(into, &self.blocks);
        into.extend_from_slice(&pages);
        self.blocks.clear();
        self.link_types.clear();
        self.terms = TermTable::new();
    }
}

/// Appends sorted terms as pages, and their entries of the directory.
fn write_terms(
    kind: TermKind,
    terms: &[(u128, &Posting)],
    page_bytes: usize,
    pages: &mut Vec<u8>,
    entries: &mut Vec<PageEntry>,
) {
    let mut start = pages.len();
    let mut first = None;
    let mut close = |pages: &Vec<u8>, start: usize, first: u128| {
        entries.push(PageEntry {
            kind,
            bytes: to_u32(pages.len() - start),
            checksum: crc32fast::hash(&pages[start..]),
            first,
        });
    };
    for (value, posting) in terms {
        let of_page = *first.get_or_insert(*value);
        let bytes = value.to_be_bytes();
        pages.extend_from_slice(&bytes[bytes.len() - kind.width()..]);
        posting.write(pages);
        if pages.len() - start >= page_bytes {
            close(pages, start, of_page);
            start = pages.len();
            first = None;
        }
    }
    if let Some(first) = first {
        close(pages, start, first);
    }
}

/// The value at the start of an entry of a page.
pub(crate) fn take_value(kind: TermKind, from: &mut &[u8]) -> Option<u128> {
    let (value, rest) = from.split_at_checked(kind.width())?;
    *from = rest;
    let digits = value.iter();
    Some(digits.fold(0, |sum, byte| sum << 8 | u128::from(*byte)))
}
