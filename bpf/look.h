/* SPDX-License-Identifier: Dual MIT/GPL */
/* What the meter's analyses see of a packet: its key, its lengths, its TCP header, and what is around it. */
#ifndef RINGTAP_LOOK_H
#define RINGTAP_LOOK_H

#include "meter.h"

#define RT_ICMP 1
#define RT_ICMPV6 58

/* One packet as the analyses see it. */
struct rt_seen {
	struct rt_meter_key key;
	struct rt_meter_outside *outside; /* in the lane: the stack is too small */
	struct rt_found *outer;
	__u64 segments; /* packets on the wire: more than 1 if the kernel merged them */
	__u64 frame_bytes, ip_bytes, payload_bytes;
	__u32 is_tcp, flags, sequence, sum, service, is_sent;
};

/* Type and code of ICMP, then 1; 0 without them. */
static __always_inline __u32 rt_icmp_number(const struct rt_view *view, const struct rt_found *found)
{
	__u8 head[2] __attribute__((aligned(2)));

	if (!found->payload || !rt_read(view, found->payload, head, sizeof(head)))
		return 0;
	return (__u32)head[0] << 24 | (__u32)head[1] << 16 | 1;
}

/* Whether the protocol's header has 8 bytes. */
static __always_inline int rt_has_8_bytes(__u32 protocol)
{
	return protocol == RT_UDP || protocol == RT_ICMP || protocol == RT_ICMPV6;
}

/* Fills in lengths and TCP fields. */
static __always_inline void rt_measure(const struct rt_view *view, const struct rt_found *found,
				       struct rt_seen *seen)
{
	__u64 wire = seen->frame_bytes, end = found->payload, extra = seen->segments - 1;

	seen->service = found->service;
	seen->ip_bytes = found->total ? found->total : wire - found->header;
	if (found->payload && rt_has_8_bytes(found->last)) {
		end += 8;
	} else if (found->payload && found->last == RT_TCP) {
		struct {
			__be32 ports, sequence, acknowledged;
			__u8 offset, flags;
			__u16 window;
		} head __attribute__((aligned(8)));

		if (rt_read(view, found->payload, &head, 14)) {
			__u32 words = head.offset >> 4;

			end += words > 5 ? 4 * words : 20;
			seen->is_tcp = 1;
			seen->flags = head.flags;
			seen->sequence = bpf_ntohl(head.sequence);
		} else {
			end += 20;
		}
	} else {
		end = 0;
	}
	if (end) {
		__u64 headers = end - found->header;

		if (seen->ip_bytes > headers)
			seen->payload_bytes = seen->ip_bytes - headers;
		seen->ip_bytes += extra * headers;
		seen->frame_bytes += extra * end;
	}
}

/* Writes what is around the innermost packet, beside the first VLAN tag; returns 1 if there is any. */
static __always_inline int rt_look_outside(const struct rt_found *outer, const struct rt_found *inner,
					   const struct rt_tunnel_id *id,
					   struct rt_meter_outside *outside)
{
	__u32 vlans = outer->vlans[1] << 16 | outer->vlans[2];

	if (!vlans && !id->kind)
		return 0;
	__builtin_memset(outside, 0, sizeof(*outside));
	outside->vlans = vlans;
	if (!id->kind)
		return 1;
	outside->number = id->number;
	outside->kind = id->kind | id->is_set << 8 | outer->last << 16;
	outside->inside = inner->vlans[0] << 16;
	if (outer->last == RT_UDP)
		outside->inside |= outer->ports & 0xffff;
	for (__u32 i = 0; i < 4; i++) {
		if (i && outer->words != 4)
			break;
		outside->source[i] = outer->source[i];
		outside->destination[i] = outer->destination[i];
	}
	if (outer->words == 4)
		outside->kind |= 1U << 31;
	return 1;
}

/* Reads the headers of a packet; returns 0 if it is not IP. */
static __always_inline int rt_look(const struct rt_view *view, struct rt_seen *seen)
{
	struct rt_found found = {}, *outer = seen->outer;
	struct rt_tunnel_id id = {};
	__u64 at = 0;
	__u32 type, icmp;

	if (!rt_ethernet(view, &at, 1, &found))
		return 0;
	type = rt_labels(view, &at, found.last);
	if (!rt_ip(view, at, type, &found))
		return 0;
	*outer = found;
	type = config.inner ? rt_tunnel(view, &found, &at, &id) : 0;
	rt_forget(type, view->length);
	rt_forget(at, view->length);
	rt_forget(id.kind, view->length);
	__builtin_memset(found.vlans, 0, sizeof(found.vlans));
	if (type == RT_ETHERNET && rt_ethernet(view, &at, 0, &found))
		type = rt_labels(view, &at, found.last);
	/* A tunnel without IP inside is its outer packet. */
	if (!type || !rt_ip(view, at, type, &found)) {
		found = *outer;
		id.kind = 0;
	}
	rt_measure(view, &found, seen);
	icmp = found.last == RT_ICMP || found.last == RT_ICMPV6;
	for (__u32 i = 0; i < 4; i++) {
		/* Behind an IPv4 address are words of Ethernet's. */
		if (i && found.words != 4)
			break;
		if (config.parts & RT_KEY_SOURCE)
			seen->key.source[i] = found.source[i];
		if (config.parts & RT_KEY_DESTINATION)
			seen->key.destination[i] = found.destination[i];
	}
	if (config.parts & RT_KEY_PORTS) {
		seen->key.ports = icmp ? rt_icmp_number(view, &found) : found.ports;
		seen->key.rest = found.last << 8;
	}
	if (config.parts & RT_KEY_VLAN) {
		seen->key.rest |= rt_vlan_number(view) << 16;
		if (rt_look_outside(outer, &found, &id, seen->outside))
			seen->key.rest |= RT_OUTSIDE;
	}
	if (config.parts & (RT_KEY_SOURCE | RT_KEY_DESTINATION))
		seen->key.rest |= found.words == 4 ? 6 : 4;
	return 1;
}

#endif
