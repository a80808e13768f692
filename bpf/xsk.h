/* SPDX-License-Identifier: Dual MIT/GPL */
/*
 * Data shared by the program of the AF_XDP sockets and user space; a test compares it with the
 * Rust view, crates/capture/ringtap-capture/src/xdp/layout.rs.
 */
#ifndef RINGTAP_XSK_H
#define RINGTAP_XSK_H

#include <linux/types.h>

/* Maximum number of receive queues of a source. */
#define RT_XSK_QUEUES 256

/* Bit of rt_stamp.time_ns: the NIC stamped the packet. */
#define RT_XSK_NIC_TIME (1ULL << 63)

/* Stamp in front of each packet that a socket gets. */
struct rt_stamp {
	__u64 time_ns;	/* atomic time (TAI); with RT_XSK_NIC_TIME the NIC's time */
	__u64 offered;	/* rt_queue.offered with this packet */
	__u32 filtered; /* rt_queue.filtered, its low half */
	__u32 tag;	/* VLAN tag that the driver had stripped, as on the wire; 0 if none */
};

/* Counters of one receive queue. Only the program writes them. */
struct rt_queue {
	__u64 offered; /* = redirected + filtered + paused + failed */
	__u64 filtered;
	__u64 paused;
	__u64 failed; /* no socket, or the driver has no room in front of packets */
	__u64 reserved[4];
} __attribute__((aligned(64)));

enum rt_xsk_state {
	RT_XSK_OFF,    /* packets are neither captured nor counted */
	RT_XSK_ON,
	RT_XSK_PAUSED, /* packets are counted, not captured */
};

/* Control words of one receive queue, written by user space. */
struct rt_queue_control {
	__u32 state; /* one of RT_XSK_* */
	__u32 reserved[15];
} __attribute__((aligned(64)));

/* Set before the program is loaded, then constant for the verifier. */
struct rt_xsk_config {
	__u32 shared;	/* 1: several CPUs may serve one queue at a time (generic mode) */
	__u32 nic_time; /* 1: time stamps of the NIC */
};

#endif
