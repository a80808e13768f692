/* SPDX-License-Identifier: Dual MIT/GPL */
/*
 * The symmetric flow hash in the kernel. ringtap_filter::hash specifies it; a test compares
 * the two.
 * The NIC's hash does not serve: most NICs give the directions of a flow different hashes, sources in user space have
 * none, and a sender that knows the key can aim all packets at one member.
 */
#ifndef RINGTAP_FLOW_H
#define RINGTAP_FLOW_H

#include "tunnel.h"
#include "splice.h"

/* Selects the hash; the lowest bit is the hook. */
#define RT_OF_INNER 2
#define RT_OF_ADDRESSES 4

#define RT_TERM(key, word) (rt_number(RT_KEYS + (key)) * (__u64)(word))

static __always_inline __u32 rt_finish(__u32 hash)
{
	hash = (hash ^ hash >> 16) * 0x85ebca6b;
	hash = (hash ^ hash >> 13) * 0xc2b2ae35;
	return hash ^ hash >> 16;
}

/* -1 if the source is the lower address, 1 if the destination is, 0 if they are equal. */
static __always_inline int rt_order(const struct rt_found *found)
{
	for (__u32 i = 0; i < 4; i++) {
		if (i >= found->words)
			break;
		if (found->source[i] != found->destination[i])
			return found->source[i] < found->destination[i] ? -1 : 1;
	}
	return 0;
}

static __always_inline __u64 rt_address_sum(const __u32 *low, const __u32 *high, __u32 words)
{
	__u64 sum = rt_number(RT_KEYS) + RT_TERM(1, low[0]) + RT_TERM(2, high[0]);

	if (words > 1)
		sum += RT_TERM(3, low[1]) + RT_TERM(4, high[1]);
	if (words > 2) {
		sum += RT_TERM(5, low[2]) + RT_TERM(6, high[2]);
		sum += RT_TERM(7, low[3]) + RT_TERM(8, high[3]);
	}
	return sum;
}

static __always_inline __u32 rt_hash_of(const struct rt_view *view, const struct rt_found *found,
					__u64 how)
{
	__u32 first = found->ports >> 16, second = found->ports & 0xffff;
	int order = rt_order(found);
	__u64 sum;

	rt_forget(order, view->length);
	if (order > 0)
		sum = rt_address_sum(found->destination, found->source, found->words);
	else
		sum = rt_address_sum(found->source, found->destination, found->words);
	rt_forget(sum, view->length);
	if (found->is_ip && how & RT_OF_ADDRESSES)
		return rt_finish(sum >> 32);
	if (found->is_ip) {
		__u32 ports = found->ports;

		if (order > 0 || (!order && first > second))
			ports = second << 16 | first;
		sum += RT_TERM(9, ports);
	}
	return rt_finish((sum + RT_TERM(10, found->last)) >> 32);
}

/* The hash selected by `how` (RT_OF_* and the hook); 0 for a packet too short for Ethernet. */
static __noinline __u32 rt_hash(void *ctx, __u64 how, __u64 tag, __u64 captured, __u64 length)
{
	struct rt_view view = {
		.ctx = ctx,
		.hook = how & 1,
		.tag = tag,
		.shift = rt_shift(tag, length),
		.captured = captured,
		.length = length,
	};
	struct rt_found outer = {}, inner = {};
	struct rt_tunnel_id unused = {};
	__u32 type, hash;
	__u64 at = 0;

	if (!rt_ethernet(&view, &at, 1, &outer))
		return 0;
	type = rt_labels(&view, &at, outer.last);
	rt_ip(&view, at, type, &outer);
	/* Before the tunnel is known: the verifier would follow what is inside for each kind of outer packet. */
	hash = rt_hash_of(&view, &outer, how);
	rt_forget(hash, length);
	if (!(how & RT_OF_INNER))
		return hash;
	type = rt_tunnel(&view, &outer, &at, &unused);
	rt_forget(type, length);
	rt_forget(at, length);
	if (type == RT_ETHERNET) {
		if (!rt_ethernet(&view, &at, 0, &inner))
			return hash;
		type = rt_labels(&view, &at, inner.last);
	}
	if (rt_ip(&view, at, type, &inner) || inner.words)
		return rt_hash_of(&view, &inner, how);
	return hash;
}

#endif
