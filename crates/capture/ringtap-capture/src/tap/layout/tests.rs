// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares the C view and the Rust view of data shared with the programs.

use super::*;
use std::mem::offset_of;

use ringtap_filter::flow::{CUTS_WORDS, FlowId, WILDCARD_WORDS};
use ringtap_filter::{BUCKETS, Balance, MASKS};
use ringtap_pool::format::{self, chunk, flag, region};
use ringtap_pool::number::to_u32;

use crate::c_view::{c_struct, places, same};
use crate::tap::verdicts::DECIDED_WORDS;
use crate::tap::{flows, groups};

#[test]
fn lanes_and_control_words_lie_where_the_program_has_them() {
    let lane = places!(LaneWords: chunk, count, back, busy, sequence, chunk_sequence, offered,
        bytes, free_depth, filtered, capture_tail, recycle_head, pool_full, nested, failed, other_queue,
        refused, shunted);
    same("tap", "rt_lane", size_of::<LaneWords>(), &lane);
    let control = places!(ControlWords: recycle_tail, capture_head, wake, paused,
        tai_minus_utc_ns, group_sets);
    same("tap", "rt_control", size_of::<ControlWords>(), &control);
    let group = [
        ("balance", 0),
        ("program", 4),
        ("masks", 8),
        ("owners", 8 + 8 * MASKS),
    ];
    same("tap", "rt_group", groups::GROUP_WORDS * 8, &group);
}

#[test]
fn counters_of_what_was_forwarded_lie_where_the_programs_have_them() {
    let words = places!(ForwardedWords: offered, filtered, redirected, to_stack, from_stack, bytes, blocked, passed,
        waiting, no_verdict_passed, no_verdict_dropped);
    same("tap", "rt_forwarded", size_of::<ForwardedWords>(), &words);
    let words = places!(InlineWords: bridge, reader, state, passes, mirrors);
    same("tap", "rt_inline", size_of::<InlineWords>(), &words);
    let direction = [("packets", 0), ("bytes", 8), ("flags", 16), ("last_ns", 24)];
    same("tap", "rt_decided_direction", 32, &direction);
    let decided = [
        ("verdict", 0),
        ("decided_ns", 8),
        ("expires_ns", 16),
        ("idle_ns", 24),
        ("directions", 32),
    ];
    same("tap", "rt_decided", DECIDED_WORDS * 8, &decided);
}

#[test]
fn flows_lie_where_the_programs_have_them() {
    let shunted = places!(ShuntedWords: packets, bytes, added, untracked, lost_ends);
    same("tap", "rt_shunted", size_of::<ShuntedWords>(), &shunted);
    let key = [
        ("low", 0),
        ("high", 16),
        ("ports", 32),
        ("vlans", 36),
        ("identifier", 40),
        ("rest", 44),
    ];
    same("tap", "rt_flow_key", size_of::<FlowId>(), &key);
    let direction = [
        ("packets", 0),
        ("bytes", 8),
        ("flags", 16),
        ("first_ns", 24),
        ("last_ns", 32),
    ];
    same("tap", "rt_direction", 40, &direction);
    same(
        "tap",
        "rt_flow",
        flows::FLOW_WORDS * 8,
        &[("directions", 0), ("created_ns", 80), ("choice", 88)],
    );
    let cut = [
        ("members", 0),
        ("adds", 8),
        ("packets", 16),
        ("bytes", 24),
        ("expires_ns", 32),
    ];
    same("tap", "rt_cut", 40, &cut);
    let settings = [
        ("standing", 0),
        ("members", 160),
        ("idle_ns", 168),
        ("has_marks", 176),
        ("wildcards", 184),
        ("adds", 192),
    ];
    same("tap", "rt_flow_settings", (CUTS_WORDS + 5) * 8, &settings);
    let wildcard = [
        ("address", 0),
        ("mask", 32),
        ("ports", 64),
        ("rest", 72),
        ("rest_mask", 76),
        ("vlan", 80),
        ("vlan_mask", 84),
        ("members", 88),
        ("adds", 96),
        ("packets", 104),
        ("bytes", 112),
    ];
    same("tap", "rt_wildcard", WILDCARD_WORDS * 8, &wildcard);
    let ended = [("key", 0), ("why", 48), ("flow", 56)];
    same("tap", "rt_ended", 48 + 8 + flows::FLOW_WORDS * 8, &ended);
}

#[test]
fn what_user_space_watches_is_not_in_the_writers_cache_line() {
    assert_eq!(offset_of!(LaneWords, capture_tail), 64);
    assert_eq!(size_of::<LaneWords>(), 128);
}

#[test]
fn settings_lie_where_the_program_has_them() {
    let numbered = TapConfig {
        segment_mask: 1,
        queues: [2, 3, 4, 5],
        all_queues: 6,
        exclusive: 7,
        snap_length: 8,
        chunk_size: 9,
        chunk_shift: 10,
        segment_shift: 11,
        chunk_count: 12,
        ring_shift: 13,
        forward_to: 14,
        largest_frame: 15,
        partial: 16,
        chunk_packets: 17,
        nic_time: 18,
    };
    let bytes = numbered.to_bytes();
    let (size, members) = c_struct("tap", "rt_config");
    assert_eq!(bytes.len(), size);
    for (name, value) in [
        ("queues", 2),
        ("all_queues", 6),
        ("exclusive", 7),
        ("snap_length", 8),
        ("chunk_size", 9),
        ("chunk_shift", 10),
        ("segment_shift", 11),
        ("chunk_count", 12),
        ("ring_shift", 13),
        ("forward_to", 14),
        ("largest_frame", 15),
        ("partial", 16),
        ("chunk_packets", 17),
        ("nic_time", 18),
    ] {
        assert_eq!(bytes[members[name]], value, "{name}");
    }
}

#[test]
fn the_format_is_the_programs_too() {
    let fields = [
        ("magic", region::MAGIC),
        ("version", region::VERSION),
        ("header_size", region::HEADER_SIZE),
        ("features", region::FEATURES),
        ("chunk_size", region::CHUNK_SIZE),
        ("chunk_count", region::CHUNK_COUNT),
        ("lane_count", region::LANE_COUNT),
        ("snap_length", region::SNAP_LENGTH),
        ("segment_size", region::SEGMENT_SIZE),
        ("segment_stride", region::SEGMENT_STRIDE),
        ("epoch", region::EPOCH),
    ];
    same("tap", "rt_region", format::REGION_HEADER_SIZE, &fields);
    let header = [
        ("state", chunk::STATE),
        ("lane", chunk::LANE),
        ("first_sequence", chunk::FIRST_SEQUENCE),
        ("chunk_sequence", chunk::CHUNK_SEQUENCE),
        ("lost_before", chunk::LOST_BEFORE),
        ("wanted", chunk::WANTED),
    ];
    same("tap", "rt_chunk", format::CHUNK_HEADER_SIZE, &header);
    let slot = [
        ("time_ns", 0),
        ("mask", 8),
        ("hash", 16),
        ("wire_length", 20),
        ("captured", 24),
        ("payload", 28),
        ("queue", 30),
    ];
    same("tap", "rt_slot", format::SLOT_SIZE, &slot);
}

#[test]
fn flags_and_limits_are_the_headers() {
    let header = concat!(
        include_str!("../../../../../../bpf/ringtap.h"),
        include_str!("../../../../../../bpf/tap.h"),
        include_str!("../../../../../../bpf/steer.h"),
    );
    for (name, value) in [
        ("RT_OUT", u32::from(flag::OUT)),
        ("RT_VLAN_RESTORED", u32::from(flag::VLAN_RESTORED)),
        ("RT_HASHED", u32::from(flag::HASHED)),
        ("RT_PARTIAL_CHECKSUM", u32::from(flag::PARTIAL_CHECKSUM)),
        ("RT_SUPER", u32::from(flag::SUPER)),
        ("RT_NIC_TIME", u32::from(flag::NIC_TIME)),
        ("RT_SEALED", format::SEALED),
        ("RT_VERSION", format::VERSION),
        ("RT_GROUP_SETS", to_u32(groups::SETS)),
        ("RT_BUCKETS", to_u32(BUCKETS)),
        ("RT_MASKS", to_u32(MASKS)),
        ("RT_SECOND_HALF", groups::SECOND_HALF),
        ("RT_COUNT_SHIFT", groups::count_bits(1).trailing_zeros()),
    ]
    .into_iter()
    .chain(Balance::bits())
    {
        let line = header
            .lines()
            .find_map(|line| line.strip_prefix(&format!("#define {name} ")));
        let number = line
            .unwrap()
            .split_whitespace()
            .next()
            .unwrap()
            .trim_end_matches('U');
        let number = match number.strip_prefix("0x") {
            Some(hex) => u32::from_str_radix(hex, 16).unwrap(),
            None => number.parse().unwrap(),
        };
        assert_eq!(number, value, "{name}");
    }
}
