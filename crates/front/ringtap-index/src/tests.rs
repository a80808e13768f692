// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the whole crate, over generated captures.

mod descriptions;
mod faults;
mod filters;
mod hostile;
pub(crate) mod made;
mod oracle;
mod torn;

use std::path::{Path, PathBuf};

use crate::indexing::index_with;
use crate::segment::IndexSizes;
use crate::{FilterTarget, IndexOutcome, Search, SearchNote, SearchRequest, SearchTotals};

/// Small parts, so that small captures have several of each.
const SMALL: IndexSizes = IndexSizes {
    block_bytes: 1500,
    segment_blocks: 12,
    segment_terms: 400,
    page_bytes: 48,
    frame_bytes: 64 * 1024,
    max_share: 1,
};

/// Time, bytes on the wire, data.
type Packet = (u64, u32, Vec<u8>);

struct Found {
    packets: Vec<Packet>,
    totals: SearchTotals,
    notes: Vec<SearchNote>,
}

fn search(request: SearchRequest) -> Found {
    let mut search = Search::new(request).unwrap();
    let mut packets = Vec::new();
    while let Some(packet) = search.next_packet() {
        packets.push((packet.time_ns, packet.wire_length, packet.data.to_vec()));
    }
    Found {
        packets,
        totals: search.totals(),
        notes: search.take_notes(),
    }
}

fn find(folder: &Path, filter: &str, target: FilterTarget) -> Found {
    search(SearchRequest {
        target,
        ..SearchRequest::new(vec![folder.to_owned()], filter)
    })
}

fn index(capture: &Path) -> IndexOutcome {
    index_with(capture, SMALL).unwrap()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let found = crate::capture_files(&[folder.to_owned()], &mut Vec::new());
    found.into_iter().map(|file| file.path).collect()
}
