/* SPDX-License-Identifier: Dual MIT/GPL */
/*
 * Flow rules: finds the flow of a packet, counts it, and withholds it from the members whose rules for the flow say so.
 * ringtap_filter::flow specifies keys and rules; its conformance suite compares the two.
 * User space creates the maps of flows when the first rule comes, and changes the programs then; without, the verifier
 * removes this code.
 */
#ifndef RINGTAP_SHUNT_H
#define RINGTAP_SHUNT_H

#include "flow.h"
#include "packet.h"
#include "splice.h"
#include "steer.h"

#define RT_NO_SHUNT 0x52545f5348554e54LL /* replaced by 1 if there are flow rules */

#define RT_MAX_CUTS 4
#define RT_FIN 0x01
#define RT_SYN 0x02
#define RT_RST 0x04
#define RT_ACK 0x10

/* Key of a flow: the same for both directions. Parts that do not exist are 0. */
struct rt_flow_key {
	__u32 low[4]; /* the lower address, in words, host order */
	__u32 high[4];
	__u32 ports; /* that of the lower address in the upper half */
	__u32 vlans; /* the outermost number in the upper half, then the second */
	__u32 identifier; /* of the tunnel, if both directions have the same */
	__u32 rest; /* RT_TUNNEL_* << 16 | protocol << 8 | IP version */
};

/* Counts of one direction. */
struct rt_way {
	__u64 packets;
	__u64 bytes;
	__u64 flags;
	__u64 first_ns; /* CLOCK_MONOTONIC */
	__u64 last_ns;
};

struct rt_flow {
	struct rt_way ways[2];
	__u64 created_ns;
};

/* Members from which packets are withheld that have this many packets, or bytes, of their direction before them. */
struct rt_cut {
	__u64 members;
	__u64 packets; /* ~0: no limit */
	__u64 bytes;
	__u64 expires_ns;
};

struct rt_cuts {
	struct rt_cut each[RT_MAX_CUTS];
};

/* Written by user space before the programs that use it are attached. */
struct rt_flow_settings {
	struct rt_cuts standing; /* of all flows */
	__u64 members; /* of `standing`, together */
	__u64 idle_ns;
};

enum rt_flow_end {
	RT_FLOW_IDLE = 1,
	RT_FLOW_RESTARTED,
};

/* A flow that left the table. */
struct rt_ended {
	struct rt_flow_key key;
	__u64 why; /* enum rt_flow_end */
	struct rt_flow flow;
};

/* Packets and bytes withheld from each member, and counts of flows, on one CPU. */
struct rt_shunted {
	__u64 packets[64];
	__u64 bytes[64];
	__u64 added;
	__u64 removed;
	__u64 untracked; /* packets of flows for which there was no room */
	__u64 lost_ends;
	/* Of the packet at hand: the stack is too small. */
	struct rt_flow_key key;
	struct rt_found outer;
} __attribute__((aligned(64)));

/* User space puts larger maps in the place of these two. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct rt_flow_key);
	__type(value, struct rt_flow);
} rt_flows SEC(".maps");

/* Written by user space; the programs only remove entries, with their flows. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct rt_flow_key);
	__type(value, struct rt_cuts);
} rt_flow_cuts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rt_flow_settings);
} rt_flow_settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rt_shunted);
} rt_shunted SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1); /* user space sets the size */
} rt_flow_ends SEC(".maps");

static __always_inline int rt_has_flow_rules(void)
{
	return !(rt_number(RT_NO_SHUNT) >> 32);
}

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
				   struct rt_shunted *lane)
{
	struct rt_flow_key *key = &lane->key;
	struct rt_found *outer = &lane->outer;
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

static __always_inline int rt_is_end(__u64 first, __u64 second)
{
	return (first | second) & RT_RST || first & second & RT_FIN;
}

/* Whether a segment begins a new connection with the flow's addresses and ports. */
static __always_inline int rt_is_restart(__u64 flags, const struct rt_flow *flow)
{
	__u64 first = rt_load(flow->ways[0].flags), second = rt_load(flow->ways[1].flags);

	if ((flags & (RT_SYN | RT_ACK)) != RT_SYN)
		return 0;
	return (first | second) & RT_ACK || rt_is_end(first, second);
}

static __always_inline int rt_is_idle(const struct rt_flow *flow, __u64 now, __u64 idle_ns)
{
	__u64 last = rt_load(flow->created_ns);

	for (int i = 0; i < 2; i++) {
		__u64 of_way = rt_load(flow->ways[i].last_ns);

		if (of_way > last)
			last = of_way;
	}
	return now > last && now - last > idle_ns;
}

/* Removes a flow with its rules, and reports its counts; of two CPUs that try, one does. */
static __noinline int rt_end_flow(const struct rt_flow_key *key, struct rt_flow *flow,
				  struct rt_shunted *counts, __u64 why)
{
	struct rt_ended *ended = bpf_ringbuf_reserve(&rt_flow_ends, sizeof(*ended), 0);

	if (ended) {
		ended->key = *key;
		ended->why = why;
		ended->flow = *flow;
	}
	if (bpf_map_delete_elem(&rt_flows, key)) {
		if (ended)
			bpf_ringbuf_discard(ended, 0);
		return 0;
	}
	bpf_map_delete_elem(&rt_flow_cuts, key);
	counts->removed++;
	if (ended)
		bpf_ringbuf_submit(ended, 0);
	else
		counts->lost_ends++;
	return 0;
}

/* The flow, created if a standing cut-off needs it; 0 if there is no room. */
static __noinline struct rt_flow *rt_new_flow(const struct rt_flow_key *key, __u64 now,
					      struct rt_shunted *counts)
{
	struct rt_flow fresh = {.created_ns = now};
	struct rt_flow *flow;

	if (!bpf_map_update_elem(&rt_flows, key, &fresh, BPF_NOEXIST))
		counts->added++;
	/* Another CPU may have been first. */
	flow = bpf_map_lookup_elem(&rt_flows, key);
	if (!flow)
		counts->untracked++;
	return flow;
}

static __always_inline __u64 rt_past(const struct rt_cuts *cuts, __u64 packets, __u64 bytes, __u64 now)
{
	__u64 members = 0;

#pragma unroll
	for (int i = 0; i < RT_MAX_CUTS; i++) {
		const struct rt_cut *cut = &cuts->each[i];

		if (now < cut->expires_ns && (packets >= cut->packets || bytes >= cut->bytes))
			members |= cut->members;
	}
	return members;
}

/* The members from whom a packet of a known flow is withheld. */
static __noinline __u64 rt_count_in_flow(const struct rt_flow_key *key, struct rt_flow *flow,
					 const struct rt_flow_settings *settings, __u64 how, __u64 now)
{
	struct rt_way *way = &flow->ways[how & RT_FROM_HIGH ? 1 : 0];
	__u64 flags = how >> RT_FLAGS_SHIFT & 0xff, wire = how >> 32, packets, bytes, members;
	const struct rt_cuts *cuts;

	/* The returned numbers are the packet's own: a cut is exact when several CPUs count. */
	packets = __sync_fetch_and_add(&way->packets, 1);
	bytes = __sync_fetch_and_add(&way->bytes, wire);
	if (flags & ~rt_load(way->flags))
		__sync_fetch_and_or(&way->flags, flags);
	if (!packets)
		way->first_ns = now;
	way->last_ns = now;
	members = rt_past(&settings->standing, packets, bytes, now);
	cuts = bpf_map_lookup_elem(&rt_flow_cuts, key);
	if (cuts)
		members |= rt_past(cuts, packets, bytes, now);
	return members;
}

/* The members of `mask` from whom the packet is withheld. */
static __always_inline __u64 rt_withheld(const struct rt_packet *packet, struct rt_shunted *counts,
					 __u64 mask, __u64 captured, __u64 wire)
{
	const struct rt_flow_key *key = &counts->key;
	__u64 lengths = (__u64)packet->length << 32 | captured, tag = packet->tag, how, now;
	struct rt_flow_settings *settings;
	struct rt_flow *flow;
	__u32 zero = 0, why = 0;

	rt_forget(tag, packet->length);
	how = rt_flow_of(packet->ctx, packet->hook, tag, lengths, counts);
	settings = bpf_map_lookup_elem(&rt_flow_settings, &zero);
	if (!how || !settings)
		return 0;
	flow = bpf_map_lookup_elem(&rt_flows, key);
	if (!flow && !(settings->members & mask))
		return 0;
	now = bpf_ktime_get_ns();
	if (flow && rt_is_restart(how >> RT_FLAGS_SHIFT & 0xff, flow))
		why = RT_FLOW_RESTARTED;
	if (flow && rt_is_idle(flow, now, settings->idle_ns))
		why = RT_FLOW_IDLE;
	if (flow && why) {
		rt_end_flow(key, flow, counts, why);
		flow = 0;
	}
	if (!flow) {
		if (!(settings->members & mask))
			return 0;
		flow = rt_new_flow(key, now, counts);
		if (!flow)
			return 0;
	}
	return rt_count_in_flow(key, flow, settings, (wire << 32) | how, now) & mask;
}

/* Counts a packet for each of these members. */
static __noinline int rt_count_withheld(struct rt_shunted *counts, __u64 members, __u64 wire)
{
#pragma clang loop unroll(disable)
	for (int i = 0; i < 64; i++) {
		__u64 lowest = members & -members;
		__u32 bit;

		if (!members)
			break;
		members ^= lowest;
		rt_opaque(lowest);
		bit = rt_bit_numbers[lowest * RT_BIT_PLACES >> 58] & 63;
		counts->packets[bit]++;
		counts->bytes[bit] += wire;
	}
	return 0;
}

#endif
