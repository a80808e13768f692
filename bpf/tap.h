/* SPDX-License-Identifier: Dual MIT/GPL */
/*
 * Data shared by the tap's programs and user space besides the pool's format: settings, lanes,
 * control words and their maps. A test compares it with the Rust view,
 * crates/capture/ringtap-capture/src/tap/layout.rs.
 * What the program writes and what user space writes are in different maps: user space can change no packet and no count.
 */
#ifndef RINGTAP_TAP_H
#define RINGTAP_TAP_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "ringtap.h"
#include "verifier.h"

/* Slack after a segment's last byte: a masked offset plus a masked length stays inside. */
#define RT_SLACK RT_MAX_CHUNK_SIZE

/* Set before the programs are loaded, then constant for the verifier. */
struct rt_config {
	__u64 segment_mask; /* segment_size - 1 */
	__u64 queues[4];    /* receive queues to capture, a bit each */
	__u32 all_queues;
	__u32 exclusive;   /* 1: a packet that was captured goes no further */
	__u32 snap_length; /* at most what an empty chunk holds */
	__u32 chunk_size;
	__u32 chunk_shift;   /* log2(chunk_size) */
	__u32 segment_shift; /* log2(chunks in a segment) */
	__u32 chunk_count;
	__u32 ring_shift; /* log2(entries in each of a lane's rings) */
	__u32 forward_to; /* interface that arriving packets go out of; 0 if they do not */
	__u32 largest_frame; /* largest that forward_to takes from XDP, in bytes */
	__u32 partial; /* 1: arriving packets may have checksums that are left to the NIC */
	__u32 chunk_packets; /* most packets of a chunk; 0: as many as fit */
	__u32 nic_time; /* 1: time stamps of the NIC */
	__u32 reserved;
};

/* Writer state of one CPU. Only the program writes it; user space maps it read-only. */
struct rt_lane {
	/* First cache line: private to the CPU. */
	__u32 chunk; /* open chunk, 0 if none */
	__u32 count; /* slots published in it */
	__u32 back;  /* offset in it below which payload may be put */
	__u32 busy;
	__u64 sequence; /* packets captured */
	__u64 chunk_sequence;
	__u64 offered; /* = sequence + filtered + shunted + pool_full + failed + other_queue, when not busy */
	__u64 bytes; /* wire bytes of the packets captured */
	__u32 free_depth;
	__u32 reserved;
	__u64 filtered; /* packets that no rule wanted */
	/* Second cache line: user space watches it. */
	__u32 capture_tail;
	__u32 recycle_head;
	__u64 pool_full;
	__u64 nested; /* runs that met a busy lane; not in `offered` */
	__u64 failed; /* the kernel refused to copy */
	__u64 other_queue;
	__u64 refused; /* invalid recycled chunk numbers */
	__u64 shunted; /* packets withheld from every member that wanted them */
	__u64 reserved2;
} __attribute__((aligned(64)));

enum rt_wake {
	RT_WAKE_NEVER,
	RT_WAKE_CHUNK, /* signal when a chunk is opened */
	RT_WAKE_PACKET,
};

/* Control words of one lane, written by user space. */
struct rt_control {
	__u32 recycle_tail;
	__u32 capture_head;
	__u32 wake;
	__u32 paused; /* 1: packets are not captured, but counted as pool_full */
	__s64 tai_minus_utc_ns;
	__u32 group_sets; /* the set of groups in force, a bit for each half of rt_groups */
	__u32 reserved;
	__u64 reserved2[4];
} __attribute__((aligned(64)));

#define RT_MAX_RULES 64
#define RT_BUCKETS 2048
#define RT_MASKS 64
/* Sets of groups: two for each half. One is in force while user space writes the other. */
#define RT_GROUP_SETS 4

/* How one rule divides packets. */
struct rt_group {
	__u32 balance; /* one of RT_BY_*, 0 for bucket 0 */
	__u32 program; /* number of the user's program */
	__u64 masks[RT_MASKS];
	__u8 owners[RT_BUCKETS]; /* the mask of each bucket */
};

/* The next bucket of each round-robin rule, for one lane. */
struct rt_turns {
	__u32 next[RT_MAX_RULES];
};

const volatile struct rt_config config SEC(".rodata.config");

/* User space replaces every size of 1 before it creates the maps. */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, 1); /* a segment and its slack */
} rt_pool SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rt_lane);
} rt_lanes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rt_control);
} rt_control SEC(".maps");

/* Written by user space, one set at a time. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, RT_GROUP_SETS * RT_MAX_RULES);
	__type(key, __u32);
	__type(value, struct rt_group);
} rt_groups SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rt_turns);
} rt_turns SEC(".maps");

/* A stack of free chunks per lane. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} rt_free_chunks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} rt_capture_ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} rt_recycle_ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1); /* a page, rounded up by the loader */
} rt_wakeups SEC(".maps");

#endif
