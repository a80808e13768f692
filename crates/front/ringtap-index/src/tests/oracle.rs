// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results of searches, held against a scan of all packets with the filter alone.

use std::collections::HashMap;
use std::path::Path;

use ringtap_file::FileReader;
use ringtap_file::write::classic;
use ringtap_filter::hash::{self, Link, Tunnels};
use ringtap_filter::text::compile;
use ringtap_filter::{LinkType, MAX_SNAP_LENGTH, Program};
use ringtap_packet::CommunityId;

use super::filters::filter;
use super::made::{self, Random};
use super::{Packet, files, find, index};
use crate::{FilterTarget, IndexError, SearchRequest};

/// All packets of a folder, in the order of files and of each file.
pub(super) fn everything(folder: &Path) -> Vec<(LinkType, Packet)> {
    let mut all = Vec::new();
    for file in files(folder) {
        let mut reader = FileReader::open(file.to_str().unwrap()).unwrap();
        while let Ok(Some(packet)) = reader.next_packet() {
            let one = (packet.time_ns, packet.wire_length, packet.data.to_vec());
            all.push((packet.link_type, one));
        }
    }
    all
}

/// The packets that a scan finds, in the order of their times.
pub(super) fn scan(all: &[(LinkType, Packet)], filter: &str, target: FilterTarget) -> Vec<Packet> {
    let mut programs: HashMap<LinkType, Option<Program>> = HashMap::new();
    let mut found: Vec<Packet> = Vec::new();
    for (link_type, packet) in all {
        let inner = target == FilterTarget::Innermost;
        let of = if inner { LinkType::RAW_IP } else { *link_type };
        let program = programs
            .entry(of)
            .or_insert_with(|| compile(filter, of, MAX_SNAP_LENGTH).ok());
        let Some(program) = program else { continue };
        let (_, wire_length, data) = packet;
        let (data, wire_length) = if inner {
            let link = Link::from_link_type(*link_type);
            let Some(ip) = link.and_then(|link| hash::ip(data, link, Tunnels::All)) else {
                continue;
            };
            let behind = ip.payload.len() + ip.header_length;
            // The payload is empty if the header was cut: then the header is where its source is.
            let start = match ip.payload {
                [] => {
                    let before = if ip.source.len() == 4 { 12 } else { 8 };
                    ip.source.as_ptr().addr() - data.as_ptr().addr() - before
                }
                _ => data.len() - behind,
            };
            (&data[start..], wire_length - start as u32)
        } else {
            (&data[..], *wire_length)
        };
        if program.matches(data, wire_length) {
            found.push(packet.clone());
        }
    }
    found.sort_by_key(|(time_ns, ..)| *time_ns);
    found
}

/// The Community ID of a packet.
fn id(link_type: LinkType, data: &[u8]) -> Option<CommunityId> {
    let link = Link::from_link_type(link_type)?;
    CommunityId::from_packet(&hash::ip(data, link, Tunnels::All)?, 0)
}

/// Indexes every second file, or all; those that no index helps have none.
fn index_some(folder: &Path, random: &mut Random) -> usize {
    let mut indexed = 0;
    for file in files(folder) {
        if random.chance(15) {
            continue;
        }
        match crate::indexing::index_with(&file, super::SMALL) {
            Ok(_) => indexed += 1,
            Err(IndexError::LargeFrames { .. } | IndexError::Interfaces { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    indexed
}

/// Searches `captures` files with `filters` filters; returns how many blocks an index spared and how many packets
/// were found.
fn compare(seed: u64, captures: usize, packets: usize, filters: usize) -> (u64, u64) {
    let folder = tempfile::TempDir::new().unwrap();
    let mut random = Random(seed);
    for number in 0..captures {
        made::capture(folder.path(), number, &mut random, packets);
    }
    let all = everything(folder.path());
    let mut blocks_of_all = find(folder.path(), "", FilterTarget::Outer).totals.blocks;
    assert!(index_some(folder.path(), &mut random) > captures / 2);
    blocks_of_all = blocks_of_all.max(find(folder.path(), "", FilterTarget::Outer).totals.blocks);
    let (mut spared, mut found) = (0, 0);
    let mut done = 0;
    while done < filters {
        let (link_type, (.., data)) = random.one(&all);
        let id_of_one = id(*link_type, data).filter(|_| random.chance(20));
        let filter = if id_of_one.is_some() && random.chance(70) {
            String::new()
        } else {
            filter(&mut random)
        };
        let target = if random.chance(25) {
            FilterTarget::Innermost
        } else {
            FilterTarget::Outer
        };
        let first = match target {
            FilterTarget::Outer => LinkType::ETHERNET,
            FilterTarget::Innermost => LinkType::RAW_IP,
        };
        if compile(&filter, first, MAX_SNAP_LENGTH).is_err() {
            continue;
        }
        done += 1;
        let of_flow = |(link_type, (.., data)): &&(LinkType, Packet)| {
            id_of_one.is_none_or(|one| id(*link_type, data) == Some(one))
        };
        let of_flow: Vec<_> = all.iter().filter(of_flow).cloned().collect();
        let expected = scan(&of_flow, &filter, target);
        let (from, to) = if random.chance(30) {
            {
                let (one, other) = (random.one(&all).1.0, random.one(&all).1.0);
                (one.min(other), one.max(other))
            }
        } else {
            (0, u64::MAX)
        };
        let result = super::search(SearchRequest {
            target,
            community_id: id_of_one,
            from_ns: from,
            to_ns: to,
            ..SearchRequest::new(vec![folder.path().to_owned()], &*filter)
        });
        let expected: Vec<_> = expected
            .into_iter()
            .filter(|(time_ns, ..)| (from..to).contains(time_ns))
            .collect();
        assert!(
            result.packets == expected,
            "seed {seed}: {filter:?} {id_of_one:?} {target:?} {from}..{to}: {} packets, not {}",
            result.packets.len(),
            expected.len()
        );
        let faults: Vec<_> = result.notes.iter().filter(|note| note.is_fault()).collect();
        assert!(faults.is_empty(), "{faults:?}");
        spared += blocks_of_all.saturating_sub(result.totals.blocks);
        found += result.totals.packets;
    }
    (spared * 100 / (blocks_of_all * filters as u64), found)
}

#[test]
fn results_equal_those_of_scans() {
    for seed in 0..3 {
        let (spared, found) = compare(seed, 12, 120, 250);
        assert!(found > 1000, "the filters find something");
        assert!(spared > 25, "the index spares {spared} % of the blocks");
    }
}

/// `cargo test -p ringtap-index --release -- --ignored --nocapture ten_thousand`
#[test]
#[ignore = "10,000 filters over 100 captures take minutes"]
fn ten_thousand_results_equal_those_of_scans() {
    let (spared, found) = compare(36, 100, 40, 10_000);
    println!(
        "10,000 filters over 100 captures: {found} packets, {spared} % of the blocks not read"
    );
}

#[test]
fn an_index_is_used() {
    let folder = tempfile::TempDir::new().unwrap();
    let mut random = Random(5);
    let mut bytes = Vec::new();
    classic::file_header(&mut bytes, LinkType::ETHERNET);
    for number in 0..400 {
        let data = made::packet(&mut random, LinkType::ETHERNET);
        made::append(&mut bytes, &data, number * 1000);
    }
    let capture = folder.path().join("a.pcap");
    std::fs::write(&capture, bytes).unwrap();
    let search = |filter| find(folder.path(), filter, FilterTarget::Outer);
    let before = search("host 10.0.3.1");
    index(&capture);
    let after = search("host 10.0.3.1");
    assert!(before.packets == after.packets && !after.packets.is_empty());
    assert_eq!(
        (before.totals.scanned_files, after.totals.scanned_files),
        (1, 0)
    );
    let all = search("").totals.blocks;
    assert!(
        after.totals.blocks < all,
        "{} of {all}",
        after.totals.blocks
    );
    for filter in [
        "host 99.9.9.9",
        "ip6 net 2001:db9::/32",
        "vlan 7",
        "ip proto 99",
        "tcp port 7",
    ] {
        let nothing = search(filter).totals;
        assert_eq!((nothing.blocks, nothing.scanned_bytes), (0, 0), "{filter}");
    }
    let of_flow = |id| {
        super::search(SearchRequest {
            community_id: Some(id),
            ..SearchRequest::new(vec![folder.path().to_owned()], "")
        })
    };
    let packets = everything(folder.path());
    let one = packets
        .iter()
        .find_map(|(link_type, (.., data))| id(*link_type, data));
    let found = of_flow(one.unwrap());
    assert!(!found.packets.is_empty());
    // The packets of generated captures have ports at random: a flow is in few blocks.
    assert!(found.totals.blocks < all / 4, "{:?}", found.totals);
    assert_eq!(of_flow(CommunityId([7; 20])).totals.blocks, 0);
}
