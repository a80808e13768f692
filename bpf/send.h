/* SPDX-License-Identifier: Dual MIT/GPL */
/*
 * Configuration and counters shared by the sender's eBPF programs and
 * crates/capture/ringtap-send. The Rust side accesses them field by field, in this order,
 * without gaps.
 */
#ifndef RINGTAP_SEND_H
#define RINGTAP_SEND_H

#include <linux/types.h>

#define RT_SEND_SHAPES 4	/* different packet sizes in one run; a power of two */
#define RT_SEND_CYCLE 12	/* packets after which the sizes repeat */
#define RT_SEND_HEAD 88		/* bytes of the longest header (82), in words of 8 */
#define RT_SEND_CELLS 1024	/* packets of a file that wait to be sent; a power of two */
#define RT_SEND_CELL_BYTES 3072 /* the longest of them */

/* Packets of one size. The sums omit the varying fields: source address, source port, stamp. */
struct rt_send_shape {
	__u32 length;
	__u32 ip_sum;	    /* of the IPv4 header, as 16-bit words in host order */
	__u32 transport_sum; /* of pseudo header, UDP or TCP header and payload */
	__u8 head[RT_SEND_HEAD];
};

/* Written and frozen before the load, so constant for the verifier. Offsets in bytes. */
struct rt_send_config {
	__u32 ifindex;
	__u32 flows;
	__u32 address;	    /* of flow 0: the low 32 bits, host order */
	__u32 port;	    /* of flow 0 */
	__u32 port_span;    /* ports from there on, before they start again */
	__u32 cycle;	    /* 1: all packets have the first shape */
	__u32 head_length;
	__u32 ip_sum_at;    /* 0: IPv6 has none */
	__u32 address_at;
	__u32 port_at;
	__u32 transport_sum_at;
	__u32 stamp_at;	    /* 0: no stamp */
	__u32 udp;
	__u8 order[RT_SEND_CYCLE];
	struct rt_send_shape shapes[RT_SEND_SHAPES];
};

struct rt_send_counters {
	__u64 attempted;    /* packets given to the redirect */
	__u64 sent;	    /* of these, taken by the device */
	__u64 sent_bytes;
	__u64 refused;
	__s64 refusal;	    /* the latest reason: a negative errno; 0: the device was full */
};

/* One packet of a file. */
struct rt_send_cell {
	__u32 length;
	__u32 reserved;
	__u8 data[RT_SEND_CELL_BYTES];
};

#endif
