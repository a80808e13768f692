/* SPDX-License-Identifier: Dual MIT/GPL */
/*
 * A packet at one of the tap's hooks. Its bytes are copied as they were on the wire: with the
 * stripped VLAN tag restored. XDP and tcx have the tag at different places; readers, filters and
 * files get one form.
 */
#ifndef RINGTAP_PACKET_H
#define RINGTAP_PACKET_H

#include "headers.h"
#include "tap.h"

struct rt_packet {
	void *ctx;
	enum rt_hook hook;
	__u32 length;
	__u32 queue;
	__u32 flags;
	__u32 tag; /* VLAN tag to put back, as the wire has it; 0 if none */
	__u32 hash; /* with RT_HASHED in the flags */
	__u32 is_bound; /* 1: the program is bound to the interface */
	__u32 is_skipped; /* 1: no member gets the packet */
	__u64 hidden; /* members that do not get the packet */
	__u64 members; /* those that got it */
};

/* bpf_xdp_load_bytes() takes 16-bit offsets and lengths: larger packets are copied in two parts. */
#define RT_XDP_PART 0xfff0
#define RT_XDP_MOST (2 * RT_XDP_PART)

/* Length on the wire, in bytes. */
static __always_inline __u32 rt_wire_length(const struct rt_packet *packet)
{
	return packet->length + rt_shift(packet->tag, packet->length);
}

/* Limits a length to 1 to `most`, a power of two, in a way that the verifier understands. */
static __always_inline __u64 rt_bounded(__u64 length, __u64 most)
{
	length -= 1;
	rt_opaque(length);
	return (length & (most - 1)) + 1;
}

/* Copies `length` bytes, from 1 to RT_SLACK, to an address from rt_at(). */
static __always_inline long rt_copy(const struct rt_packet *packet, __u32 from, __u8 *to,
				    __u64 length)
{
	if (packet->hook == RT_TC)
		return bpf_skb_load_bytes(packet->ctx, from, to, rt_bounded(length, RT_SLACK));
	if (length > RT_XDP_PART) {
		if (bpf_xdp_load_bytes(packet->ctx, from, to, RT_XDP_PART))
			return -1;
		from += RT_XDP_PART;
		to += RT_XDP_PART;
		length -= RT_XDP_PART;
	}
	return bpf_xdp_load_bytes(packet->ctx, from, to, rt_bounded(length, 1 << 16));
}

static __always_inline long rt_copy_tagged(const struct rt_packet *packet, __u8 *to, __u32 length)
{
	if (rt_copy(packet, 0, to, RT_MACS))
		return -1;
	*(__u32 *)(to + RT_MACS) = packet->tag;
	if (length <= RT_MACS + RT_TAG)
		return 0;
	/* Never true: it tells the verifier that the rest fits. */
	if (length > RT_SLACK)
		return -1;
	return rt_copy(packet, RT_MACS, to + RT_MACS + RT_TAG, length - RT_MACS - RT_TAG);
}

#endif
