/* SPDX-License-Identifier: Dual MIT/GPL */
/*
 * Key of the flow to which a packet belongs, and its direction. ringtap_filter::flow specifies it; the conformance suite
 * there compares the two.
 * The key has all fields instead of their hash: a rule must never withhold packets of another flow.
 */
#ifndef RINGTAP_FLOW_KEY_H
#define RINGTAP_FLOW_KEY_H

#include "flow.h"

/* Key of a flow: the same for both directions. Parts that do not exist are 0. */
struct rt_flow_key {
	__u32 low[4]; /* the lower address, in words, host order */
	__u32 high[4];
	__u32 ports; /* that of the lower address in the upper half */
	__u32 vlans; /* the outermost number in the upper half, then the second */
	__u32 identifier; /* of the tunnel, if both directions have the same */
	__u32 rest; /* RT_TUNNEL_* << 16 | protocol << 8 | IP version */
};

#define RT_FIN 0x01
#define RT_SYN 0x02
#define RT_RST 0x04
#define RT_ACK 0x10

/* Whether a flow with these TCP flags of its directions has ended. */
static __always_inline int rt_is_end(__u64 first, __u64 second)
{
	return (first | second) & RT_RST || first & second & RT_FIN;
}

/* Whether a segment with these TCP flags begins a new connection, if its flow's directions had those before it. */
static __always_inline int rt_is_restart(__u64 flags, __u64 first, __u64 second)
{
	if ((flags & (RT_SYN | RT_ACK)) != RT_SYN)
		return 0;
	return (first | second) & RT_ACK || rt_is_end(first, second);
}

/* Number of a key's mark; ringtap_filter::flow computes the same. */
#define RT_MARK_BITS 23

static __always_inline __u64 rt_mark_of(const struct rt_flow_key *key)
{
	const rt_word64 *words = (const rt_word64 *)key;
	__u64 sum = words[0] * 0x2ad1245c92010b39ULL + words[1] * 0x3bb427c1a1da059dULL;

	sum += words[2] * 0xd73c43fad1272a25ULL + words[3] * 0x7a9d969146fc8893ULL;
	sum += words[4] * 0xe158fb57a6e04b65ULL + words[5] * 0x885d6f33e40c2fc5ULL;
	return sum >> (64 - RT_MARK_BITS);
}

/* Of the packet at hand; the stack is too small for it. */
struct rt_flow_scratch {
	struct rt_flow_key key;
	struct rt_found outer;
};

/* Whether a tunnel's number is the same in both directions. */
static __always_inline int rt_is_shared(__u32 kind)
{
	return kind != RT_TUNNEL_MPLS && kind != RT_TUNNEL_L2TP && kind != RT_TUNNEL_GTP;
}

#define RT_IN_FLOW 1
#define RT_FROM_HIGH 2
#define RT_FLAGS_SHIFT 8

/* Writes the addresses and ports; returns RT_FROM_HIGH if the source is the higher end. */
static __always_inline __u32 rt_write_ends(const struct rt_found *found, struct rt_flow_key *key)
{
	__u32 first = found->ports >> 16, second = found->ports & 0xffff;
	int order = rt_order(found);
	__u32 is_swapped = order > 0 || (!order && first > second);

	for (__u32 i = 0; i < 4; i++) {
		if (i && found->words != 4)
			break;
		key->low[i] = is_swapped ? found->destination[i] : found->source[i];
		key->high[i] = is_swapped ? found->source[i] : found->destination[i];
	}
	key->ports = is_swapped ? second << 16 | first : found->ports;
	return is_swapped ? RT_FROM_HIGH : 0;
}

static __always_inline __u32 rt_tcp_flags(const struct rt_view *view, const struct rt_found *found)
{
	__u8 flags;

	if (found->last != RT_TCP || !rt_read(view, found->payload + 13, &flags, 1))
		return 0;
	return (__u32)flags << RT_FLAGS_SHIFT;
}

/* A pointer in the context: clang would join the loads of two kinds of context, which the verifier refuses. */
#define rt_context_word(context, kind, member)                                            \
	({                                                                                \
		void *word;                                                               \
		asm volatile("%0 = *(u32 *)(%1 + %2)"                                     \
			     : "=r"(word)                                                 \
			     : "r"(context), "i"(__builtin_offsetof(kind, member)));      \
		word;                                                                     \
	})

static __always_inline int rt_may_be_tunnel(__u32 port)
{
	return port == RT_VXLAN_PORT || port == RT_GENEVE_PORT || port == RT_GTP_PORT || port == RT_MPLS_PORT;
}

/*
 * As rt_flow_of() for the usual packets, without calls of the kernel: whole segments of TCP and UDP over IPv4 without
 * options, VLAN tags and tunnels. Returns 0 for other packets.
 */
static __always_inline __u32 rt_usual_flow(void *ctx, __u64 hook, struct rt_flow_key *key)
{
	const __u8 *at, *end;
	__u32 source, destination, ports, protocol, is_swapped, result = RT_IN_FLOW;

	if (hook == RT_XDP) {
		at = rt_context_word(ctx, struct xdp_md, data);
		end = rt_context_word(ctx, struct xdp_md, data_end);
	} else {
		at = rt_context_word(ctx, struct __sk_buff, data);
		end = rt_context_word(ctx, struct __sk_buff, data_end);
	}
	if (at + 48 > end)
		return 0;
	protocol = at[23];
	if (*(const rt_word16 *)(at + 12) != bpf_htons(RT_IPV4) || at[14] != 0x45 ||
	    *(const rt_word16 *)(at + 20) & bpf_htons(0x3fff) || (protocol != RT_TCP && protocol != RT_UDP))
		return 0;
	source = bpf_ntohl(*(const rt_word32 *)(at + 26));
	destination = bpf_ntohl(*(const rt_word32 *)(at + 30));
	ports = bpf_ntohl(*(const rt_word32 *)(at + 34));
	if (protocol == RT_UDP && rt_may_be_tunnel(ports & 0xffff))
		return 0;
	if (protocol == RT_TCP)
		result |= (__u32)at[47] << RT_FLAGS_SHIFT;
	is_swapped = source > destination || (source == destination && ports >> 16 > (ports & 0xffff));
	key->low[0] = is_swapped ? destination : source;
	key->high[0] = is_swapped ? source : destination;
	key->ports = is_swapped ? ports << 16 | ports >> 16 : ports;
	key->rest = protocol << 8 | 4;
	return is_swapped ? result | RT_FROM_HIGH : result;
}

/* Finds a packet's flow; returns RT_IN_FLOW, RT_FROM_HIGH and TCP flags, or 0 if it belongs to none. */
static __noinline __u32 rt_flow_of(void *ctx, __u64 hook, __u64 tag, __u64 lengths,
				   struct rt_flow_scratch *scratch)
{
	struct rt_flow_key *key = &scratch->key;
	struct rt_found *outer = &scratch->outer;
	struct rt_view view = {
		.ctx = ctx,
		.hook = hook,
		.tag = tag,
		.captured = (__u32)lengths,
		.length = lengths >> 32,
		.is_detailed = 1,
	};
	struct rt_found found = {};
	struct rt_tunnel_id id = {};
	__u32 type, result;
	__u64 at = 0;

	view.shift = rt_shift(tag, view.length);
	__builtin_memset(key, 0, sizeof(*key));
	result = tag ? 0 : rt_usual_flow(ctx, hook, key);
	rt_forget(result, view.length);
	if (result)
		return result;
	if (!rt_ethernet(&view, &at, 1, &found))
		return 0;
	type = rt_labels(&view, &at, found.last);
	if (!rt_ip(&view, at, type, &found))
		return 0;
	key->vlans = tag ? __builtin_bswap16(tag >> 16) & 0xfff : found.vlans[0];
	key->vlans = key->vlans << 16 | found.vlans[1];
	rt_forget(key->vlans, view.length);
	*outer = found;
	type = rt_tunnel(&view, &found, &at, &id);
	rt_forget(type, view.length);
	rt_forget(at, view.length);
	rt_forget(id.kind, view.length);
	if (type == RT_ETHERNET && rt_ethernet(&view, &at, 0, &found))
		type = rt_labels(&view, &at, found.last);
	/* A tunnel without IP inside is its outer packet. */
	if (!type || !rt_ip(&view, at, type, &found)) {
		found = *outer;
		id.kind = 0;
	}
	if (!found.payload) /* a fragment */
		return 0;
	result = RT_IN_FLOW | rt_write_ends(&found, key);
	rt_forget(result, view.length);
	if (id.kind && id.is_set && rt_is_shared(id.kind))
		key->identifier = id.number;
	key->rest = id.kind << 16 | found.last << 8 | (found.words == 4 ? 6 : 4);
	result |= rt_tcp_flags(&view, &found);
	rt_forget(result, view.length);
	return result;
}

#endif
