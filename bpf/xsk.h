/* SPDX-License-Identifier: Dual MIT/GPL */
/*
 * What the program in front of AF_XDP sockets shares with user space;
 * crates/capture/ringtap-capture/src/xdp/layout.rs is the Rust view, and a test compares the two.
 */
#ifndef RINGTAP_XSK_H
#define RINGTAP_XSK_H

#include <linux/types.h>

/* Receive queues that a source may have. */
#define RT_XSK_QUEUES 256

/* In front of each packet that a socket gets. */
struct rt_stamp {
	__u64 time_ns;	/* atomic time (TAI) */
	__u64 seen;	/* rt_queue.seen with this packet */
	__u32 unwanted; /* rt_queue.unwanted, its low half */
	__u32 tag;	/* VLAN tag that the driver had stripped, as on the wire; 0 if none */
};

/* One receive queue's counters. Only the program writes them. */
struct rt_queue {
	__u64 seen; /* = redirected + unwanted + paused + failed */
	__u64 unwanted;
	__u64 paused;
	__u64 failed; /* no socket, or the driver has no room in front of packets */
	__u64 reserved[4];
} __attribute__((aligned(64)));

enum rt_xsk_state {
	RT_XSK_OFF,    /* packets go by, not counted */
	RT_XSK_ON,
	RT_XSK_PAUSED, /* packets go by, counted */
};

/* One receive queue's words that user space writes. */
struct rt_queue_control {
	__u32 state; /* one of RT_XSK_* */
	__u32 reserved[15];
} __attribute__((aligned(64)));

/* Set before the program is loaded, constant for the verifier from then on. */
struct rt_xsk_config {
	__u32 snap_length;
	__u32 shared; /* 1: several CPUs may serve one queue at a time (generic mode) */
};

#endif
