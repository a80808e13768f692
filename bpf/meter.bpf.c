// SPDX-License-Identifier: Dual MIT/GPL
/*
 * The meter: counts packets by flow, by keys and by length in the kernel. No packet goes to user
 * space; user space takes the counts of one half of the flows while packets count in the other.
 */
#include "meter.h"

/* Return values of a tcx program (kernel 6.6's linux/bpf.h). */
#define RT_TC_NEXT (-1)
#define RT_TC_DROP 2
#define RT_PACKET_LOOPBACK 5 /* linux/if_packet.h */

#define RT_CHAIN 16 /* most flows of a bucket that are compared */

#define RT_FIN 0x01
#define RT_SYN 0x02
#define RT_RST 0x04
#define RT_ACK 0x10
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

/* The outermost VLAN number; 0 without a tag. */
static __always_inline __u32 rt_vlan_number(const struct rt_view *view)
{
	__be16 tag[2] __attribute__((aligned(4)));

	if (view->tag)
		return bpf_ntohs(view->tag >> 16) & 0xfff;
	if (!rt_read(view, RT_MACS, tag, sizeof(tag)) || !rt_is_vlan(tag[0]))
		return 0;
	return bpf_ntohs(tag[1]) & 0xfff;
}

/* Type and code of ICMP, then 1; 0 without them. */
static __always_inline __u32 rt_icmp_number(const struct rt_view *view, const struct rt_found *found)
{
	__u8 head[2] __attribute__((aligned(2)));

	if (!found->payload || !rt_read(view, found->payload, head, sizeof(head)))
		return 0;
	return (__u32)head[0] << 24 | (__u32)head[1] << 16 | 1;
}

/* Fills in lengths and TCP fields. */
static __always_inline void rt_measure(const struct rt_view *view, const struct rt_found *found,
				       struct rt_seen *seen)
{
	__u64 wire = seen->frame_bytes, end = found->payload, extra = seen->segments - 1;

	seen->service = found->service;
	seen->ip_bytes = found->total ? found->total : wire - found->header;
	if (found->payload && found->last == RT_UDP) {
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

static __always_inline __u32 rt_bucket_of(const struct rt_seen *seen)
{
	const __u32 *words = (const __u32 *)&seen->key, *outside = (const __u32 *)seen->outside;
	__u64 sum = config.keys[RT_KEY_WORDS];

	for (int i = 0; i < RT_KEY_WORDS; i++)
		sum += config.keys[i] * words[i];
	if (seen->key.rest & RT_OUTSIDE) {
		for (int i = 0; i < RT_OUTSIDE_WORDS; i++)
			sum += config.keys[RT_KEY_WORDS + 1 + i] * outside[i];
	}
	return sum >> 32 & (config.buckets - 1);
}

static __always_inline int rt_is_same(const struct rt_meter_flow *flow, const struct rt_seen *seen)
{
	const __u64 *a = (const __u64 *)&flow->key, *b = (const __u64 *)&seen->key;

	if ((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]) | (a[4] ^ b[4]))
		return 0;
	if (!(seen->key.rest & RT_OUTSIDE))
		return 1;
	a = (const __u64 *)&flow->outside;
	b = (const __u64 *)seen->outside;
	return !((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]) | (a[4] ^ b[4]) |
		 (a[5] ^ b[5]));
}

/* A new flow without packets; null if there is no room. */
static __always_inline struct rt_meter_flow *rt_add_flow(struct rt_meter_lane *lane, __u32 area,
							 const struct rt_seen *seen)
{
	__u32 half = area & 1, count = lane->count[half], index = area * config.flows + count;
	struct rt_meter_flow *flow = bpf_map_lookup_elem(&rt_meter_flows, &index);

	if (count >= config.flows || !flow)
		return 0;
	lane->count[half] = count + 1;
	if (count + 1 == config.signal_at) {
		__u64 note = 0;

		/* A full ring already holds unread signals. */
		bpf_ringbuf_output(&rt_meter_wakes, &note, sizeof(note), BPF_RB_FORCE_WAKEUP);
	}
	__builtin_memset(flow, 0, sizeof(*flow));
	flow->key = seen->key;
	if (seen->key.rest & RT_OUTSIDE)
		flow->outside = *seen->outside;
	return flow;
}

/* The flow of a packet in the half that is in use; null if there is no room for another. */
static __always_inline struct rt_meter_flow *rt_flow_of(struct rt_meter_lane *lane, __u32 area,
							const struct rt_seen *seen)
{
	__u32 bucket = area * config.buckets + rt_bucket_of(seen);
	__u32 pair = bucket / 2, at, first, *chain;
	struct rt_meter_buckets *both = bpf_map_lookup_elem(&rt_meter_buckets, &pair);
	struct rt_meter_flow *flow;

	if (!both)
		return 0;
	chain = &both->first[bucket & 1];
	at = first = *chain;
	for (int i = 0; at && i < RT_CHAIN; i++) {
		__u32 index = area * config.flows + at - 1;

		flow = bpf_map_lookup_elem(&rt_meter_flows, &index);
		if (!flow)
			return 0;
		if (rt_is_same(flow, seen))
			return flow;
		at = flow->next;
	}
	flow = rt_add_flow(lane, area, seen);
	if (!flow)
		return 0;
	if (at) {
		/* Too many flows to compare: the packet has a record of its own. */
		lane->chained++;
		return flow;
	}
	flow->next = first;
	*chain = lane->count[area & 1];
	return flow;
}

static __always_inline void rt_count_tcp(struct rt_meter_flow *flow, const struct rt_seen *seen,
					 __u64 now)
{
	__u32 controls = !!(seen->flags & RT_SYN) + !!(seen->flags & RT_FIN);
	__u32 length = (__u32)seen->payload_bytes + controls, end = seen->sequence + length;
	__s32 ahead = (__s32)(end - flow->expected);

	if (!(flow->flags & 0xff)) {
		flow->flags |= seen->flags << 8;
		flow->first_end = end;
		flow->expected = end;
		flow->retransmissions = length > 1 || controls ? 1U << 31 : 0;
	} else if (ahead > 0) {
		flow->expected = end;
	} else if (length && (seen->payload_bytes > 1 || ahead)) { /* no keep-alive */
		flow->retransmissions++;
	}
	flow->flags |= seen->flags;
	flow->resets += !!(seen->flags & RT_RST);
	if (!flow->first_ack_ns && (seen->flags & (RT_SYN | RT_ACK | RT_RST)) == RT_ACK)
		flow->first_ack_ns = now;
}

/* The exact time where it matters; a tick's, which costs much less, for most packets. */
static __always_inline __u64 rt_now(const struct rt_meter_flow *flow, const struct rt_seen *seen)
{
	int is_exact = !flow->packets || (seen->payload_bytes && !flow->first_payload_ns);
	__u64 now;

	if (seen->is_tcp)
		is_exact |= seen->flags & (RT_SYN | RT_FIN | RT_RST) || !flow->first_ack_ns;
	now = is_exact ? bpf_ktime_get_ns() : bpf_ktime_get_coarse_ns();
	return now > flow->last_ns ? now : flow->last_ns;
}

static __always_inline void rt_count(struct rt_meter_flow *flow, const struct rt_seen *seen)
{
	__u64 now = rt_now(flow, seen);

	if (!flow->packets) {
		flow->first_ns = now;
		flow->flags = seen->service << 16 | seen->is_sent << 24;
	}
	if (seen->payload_bytes && !flow->first_payload_ns)
		flow->first_payload_ns = now;
	flow->packets += seen->segments;
	flow->bytes += seen->ip_bytes;
	flow->frame_bytes += seen->frame_bytes;
	flow->payload_bytes += seen->payload_bytes;
	flow->last_ns = now;
	if (seen->is_tcp)
		rt_count_tcp(flow, seen, now);
}

/* In the ranges of RMON (RFC 2819), as crates/front/ringtap-probe/src/analysis/sizes.rs. */
static __always_inline void rt_count_size(struct rt_meter_lane *lane, const struct rt_seen *seen)
{
	__u64 each = seen->frame_bytes / seen->segments;
	__u64 range = (each > 64) + (each > 127) + (each > 255) + (each > 511) + (each > 1023) +
		      (each > 1518);

	lane->sizes[range & (RT_SIZE_RANGES - 1)].packets += seen->segments;
	lane->sizes[range & (RT_SIZE_RANGES - 1)].bytes += seen->frame_bytes;
}

/* Loops for each call of the kernel's helper: a call takes as long as several loops. */
#define RT_LOOPS_TOGETHER 100

/* One loop of the analysis `load`, which the compiler must not leave out. Workers' loops have the same factor
 * (LOOP_FACTOR), by which all compilers multiply in the same way. */
static long rt_loop(__u32 loop, void *sum)
{
	volatile __u32 *word = sum;

	*word = *word * 1664525 + loop;
	return 0;
}

static long rt_loops(__u32 call, void *sum)
{
	for (__u32 loop = 0; loop < RT_LOOPS_TOGETHER; loop++)
		rt_loop(RT_LOOPS_TOGETHER * call + loop, sum);
	return 0;
}

/* Analyses the packet whose first bytes are in the lane; returns 0 if there is no room for it. */
static __always_inline int rt_analyse(struct rt_meter_lane *lane, __u32 cpu, struct rt_seen *seen,
				      const struct rt_view *view)
{
	struct rt_meter_control *control;
	struct rt_meter_flow *flow;
	__u32 zero = 0;

	lane->seen += seen->segments;
	if (!rt_look(view, seen)) {
		lane->sizes[RT_SIZE_RANGES - 1].packets += seen->segments;
		lane->sizes[RT_SIZE_RANGES - 1].bytes += seen->frame_bytes;
		return 1;
	}
	rt_count_size(lane, seen);
	if (config.loops) {
		bpf_loop(config.loops / RT_LOOPS_TOGETHER, rt_loops, &seen->sum, 0);
		bpf_loop(config.loops % RT_LOOPS_TOGETHER, rt_loop, &seen->sum, 0);
	}
	if (config.parts) {
		control = bpf_map_lookup_elem(&rt_meter_halves, &zero);
		flow = control ? rt_flow_of(lane, 2 * cpu + (rt_load(control->half) & 1), seen) : 0;
		if (!flow) {
			lane->full += seen->segments;
			return 0;
		}
		rt_count(flow, seen);
	}
	lane->analysed += seen->segments;
	return 1;
}

/* Counts one packet at its hook; returns 1 if the packet was analysed or is of no interest. */
static __always_inline int rt_meter(void *ctx, enum rt_hook hook, __u64 length, __u32 tag,
				    __u32 segments, __u32 is_sent)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct rt_meter_lane *lane = bpf_map_lookup_elem(&rt_meter_lanes, &cpu);
	__u64 captured = length < RT_MOST_BYTES ? length : RT_MOST_BYTES;
	struct rt_seen seen = {
		.segments = segments ? segments : 1,
		.frame_bytes = length + (tag ? RT_TAG : 0),
		.is_sent = is_sent,
	};
	long error;
	int done;

	if (!lane || !rt_enter(&lane->busy, &lane->nested))
		return 0;
	seen.outside = &lane->outside;
	seen.outer = &lane->outer;
	captured -= 1;
	rt_opaque(captured);
	captured = (captured & (RT_MOST_BYTES - 1)) + 1;
	error = hook == RT_XDP ? bpf_xdp_load_bytes(ctx, 0, lane->bytes, captured)
			       : bpf_skb_load_bytes(ctx, 0, lane->bytes, captured);
	struct rt_view view = {
		.hook = RT_BYTES,
		.tag = tag,
		.shift = rt_shift(tag, length),
		.captured = error ? 0 : captured + (tag ? RT_TAG : 0),
		.bytes = lane->bytes,
		.length = length,
	};

	done = rt_analyse(lane, cpu, &seen, &view);
	rt_leave(&lane->busy);
	return done;
}

static __always_inline int rt_meter_tc(struct __sk_buff *ctx, __u32 is_sent)
{
	__u32 tag = ctx->vlan_present ? rt_tag(ctx->vlan_proto, ctx->vlan_tci) : 0;

	return rt_meter(ctx, RT_TC, ctx->len, tag, ctx->gso_size ? ctx->gso_segs : 1,
			is_sent);
}

SEC("xdp.frags")
int rt_meter_xdp(struct xdp_md *ctx)
{
	int done = rt_meter(ctx, RT_XDP, bpf_xdp_get_buff_len(ctx), 0, 1, 0);

	return done && config.exclusive ? XDP_DROP : XDP_PASS;
}

SEC("tcx/ingress")
int rt_meter_rx(struct __sk_buff *ctx)
{
	int done;

	/* A local copy of outgoing multicast, which was never on the wire. */
	if (ctx->pkt_type == RT_PACKET_LOOPBACK)
		return RT_TC_NEXT;
	done = rt_meter_tc(ctx, 0);
	return done && config.exclusive ? RT_TC_DROP : RT_TC_NEXT;
}

SEC("tcx/egress")
int rt_meter_tx(struct __sk_buff *ctx)
{
	rt_meter_tc(ctx, 1);
	return RT_TC_NEXT;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
