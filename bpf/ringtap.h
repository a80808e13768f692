/* SPDX-License-Identifier: Dual MIT/GPL */
/*
 * The pool's format for eBPF, specified in docs/internals/format.md; a test compares it with
 * crates/core/ringtap-pool/src/format.rs. All numbers are little-endian.
 * Written by hand for each language: the structures are few, and the build needs no generator.
 */
#ifndef RINGTAP_H
#define RINGTAP_H

#include <linux/types.h>

#define RT_MAGIC 0x31504154474e4952ULL /* "RINGTAP1" */
#define RT_VERSION 4

#define RT_MAX_CHUNK_SIZE (512 * 1024)
#define RT_SEALED 0x80000000U /* in rt_chunk.state: nothing more will be published here */

/* First bytes of a region. Chunk 0 holds this header, chunks 1 to chunk_count - 1 hold packets. */
struct rt_region {
	__u64 magic;
	__u32 version;
	__u32 header_size;
	__u64 features;
	__u32 chunk_size;  /* bytes, a power of two */
	__u32 chunk_count; /* with chunk 0 */
	__u32 lane_count;
	__u32 snap_length;
	__u64 segment_size;   /* bytes of chunks in one segment: a power of two */
	__u64 segment_stride; /* bytes from one segment to the next */
	__u64 epoch;          /* distinguishes the region from those it replaced */
};

/* First bytes of a chunk; slots follow upwards, payloads grow down from the chunk's end. */
struct rt_chunk {
	__u32 state; /* slots published, with RT_SEALED once no more will follow */
	__u32 lane;
	__u64 first_sequence; /* of the packet in slot 0, counted per lane from 0 */
	__u64 chunk_sequence; /* n-th chunk of this lane, from 0 */
	__u64 lost_before;    /* packets that the lane lost before this chunk because none was free */
	__u64 wanted;         /* masks of all published slots together */
	__u64 gap_sequence;   /* of the lane's first packet after its last capture gap */
	__u64 gap_ns;         /* length of that gap; 0 without one, as on every lane of a tap */
	__u64 gap_after;      /* packets of the capture that the gap ended */
};

/* One packet. */
struct rt_slot {
	__u64 time_ns; /* since 1970, UTC */
	__u64 mask;    /* readers that want it; all ones while nothing classifies */
	__u32 hash;    /* symmetric flow hash, valid with RT_HASHED */
	__u32 wire_length;
	__u32 captured; /* low 24 bits: bytes captured; high 8 bits: RT_* flags */
	__u16 payload;  /* offset in the chunk, in units of 8 bytes */
	__u16 queue;    /* receive queue */
};

#define RT_OUT 0x01          /* sent by this host, not received */
#define RT_VLAN_RESTORED 0x02 /* the VLAN tag was stripped before capture and restored */
#define RT_HASHED 0x04
#define RT_PARTIAL_CHECKSUM 0x08 /* the host left the checksum to the NIC */
#define RT_SUPER 0x10        /* merged by GRO, or not yet segmented by GSO */
#define RT_NIC_TIME 0x20     /* time_ns is of the NIC's clock, not of the host's */
#define RT_MARKED 0x40       /* only in the pool of one reader: a rule gives the packet to the group of its marks */

#endif
