/* SPDX-License-Identifier: Dual MIT/GPL */
/*
 * Data shared by the meter's programs and user space; a test compares it with the Rust view,
 * crates/capture/ringtap-capture/src/meter/layout.rs.
 */
#ifndef RINGTAP_METER_H
#define RINGTAP_METER_H

#include "tunnel.h"

/* Parts of a packet's key that count; the others are 0. */
#define RT_KEY_SOURCE 1
#define RT_KEY_DESTINATION 2
#define RT_KEY_PORTS 4 /* and the protocol */
#define RT_KEY_VLAN 8

#define RT_SIZE_RANGES 8 /* the last is for packets that are not IP */
#define RT_KEY_WORDS 10
#define RT_OUTSIDE_WORDS 12
#define RT_OUTSIDE 0x80 /* in the key's `rest`: the packet has an rt_meter_outside */

/* Set before the programs are loaded, then constant for the verifier. */
struct rt_meter_config {
	__u32 exclusive; /* 1: packets that were counted go no further */
	__u32 parts;     /* RT_KEY_*; 0: no flows are counted */
	__u32 inner;     /* 1: of tunnelled packets, the inner headers count */
	__u32 flows;     /* most flows of one CPU in one half */
	__u32 buckets;   /* of one CPU and half; a power of two */
	__u32 signal_at; /* flows in a half at which user space is woken */
	__u32 loops;     /* of the analysis `load`, for each packet */
	__u32 reserved;
	__u64 keys[RT_KEY_WORDS + RT_OUTSIDE_WORDS + 1]; /* secret: nobody can choose flows of one bucket */
};

/* What the packets of a flow in one direction have in common. */
struct rt_meter_key {
	__u32 source[4]; /* addresses in words, host order; an IPv4 address is one word */
	__u32 destination[4];
	__u32 ports; /* the source's in the upper half; of ICMP type and code, then 1 */
	__u32 rest;  /* VLAN number << 16 | protocol << 8 | IP version */
};

/* Further parts of the key: a tunnel and VLAN tags behind the first. */
struct rt_meter_outside {
	__u32 source[4];
	__u32 destination[4];
	__u32 number; /* of the tunnel */
	__u32 kind;   /* RT_TUNNEL_*; 1 << 8 if it has a number; the outer protocol << 16 */
	__u32 vlans;  /* the second tag's number << 16 | the third's */
	__u32 inside; /* VLAN number of the frame inside << 16 | the outer destination port */
};

/* Counts of one direction of a flow, since user space last took them. */
struct rt_meter_flow {
	struct rt_meter_key key;
	__u32 next;    /* flow of the same bucket, plus 1; 0 if none */
	__u32 flags;   /* all TCP flags; those of the first segment << 8; its service << 16; 1 << 24 if sent */
	__u64 packets;
	__u64 bytes; /* from the IP header on */
	/* Second cache line. */
	__u64 last_ns; /* times are since boot (CLOCK_MONOTONIC); this one may be a tick early */
	__u64 first_ns;
	__u64 frame_bytes;
	__u64 payload_bytes; /* of TCP, UDP and ICMP */
	__u64 first_payload_ns; /* 0: no payload */
	__u64 first_ack_ns; /* first segment with ACK and without SYN and RST; 0: none */
	__u32 expected;  /* sequence number after the latest segment */
	__u32 first_end; /* sequence number after the first segment */
	__u32 retransmissions; /* the highest bit: the first segment may be one, too */
	__u32 resets;
	/* Third cache line, read only for keys with RT_OUTSIDE; the highest bit of `kind` is set for IPv6. */
	struct rt_meter_outside outside;
} __attribute__((aligned(64)));

/* Flows are put into one half while user space takes those of the other. */
struct rt_meter_control {
	__u32 half;
	__u32 reserved;
};

/* Two buckets, as arrays round values up to 8 bytes. Each is the number of its first flow, plus 1; 0 if none. */
struct rt_meter_buckets {
	__u32 first[2];
};

/* State and counters of one CPU. User space writes only `count` of the half that is not in use. */
struct rt_meter_lane {
	__u32 busy;
	__u32 reserved;
	__u32 count[2]; /* flows of each half */
	__u64 seen; /* packets; = analysed + full + those that are not IP, when not busy */
	__u64 analysed;
	__u64 full;   /* packets of new flows for which there was no room */
	__u64 nested; /* packets that met a busy lane; not in `seen` */
	__u64 chained; /* packets with a record of their own, because their bucket had too many flows */
	struct {
		__u64 packets, bytes;
	} sizes[RT_SIZE_RANGES];
	/* Of the packet at hand; the first is set if its key has RT_OUTSIDE. */
	struct rt_meter_outside outside;
	struct rt_found outer;
	__u8 bytes[2 * RT_MAX_BYTES] __attribute__((aligned(8)));
} __attribute__((aligned(64)));

const volatile struct rt_meter_config config SEC(".rodata.meter");

/* User space replaces every size of 1 before it creates the maps. */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rt_meter_lane);
} rt_meter_lanes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rt_meter_control);
} rt_meter_halves SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rt_meter_buckets);
} rt_meter_buckets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rt_meter_flow);
} rt_meter_flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1); /* a page, rounded up by the loader */
} rt_meter_wakes SEC(".maps");

#endif
