// SPDX-License-Identifier: Dual MIT/GPL
/*
 * The meter: counts packets by flow, by keys and by length in the kernel. No packet goes to user
 * space; user space takes the counts of one half of the flows while packets count in the other.
 * Flows of a CPU have their own records, and halves are exchanged: neither packets nor user space need a lock.
 */
#include "look.h"

/* Return values of a tcx program (kernel 6.6's linux/bpf.h). */
#define RT_TC_NEXT (-1)
#define RT_TC_DROP 2
#define RT_PACKET_LOOPBACK 5 /* linux/if_packet.h */

#define RT_CHAIN 16 /* most flows of a bucket that are compared */

/* A reset farther ahead of its stream has a wrong number: MAX_JUMP of
 * crates/front/ringtap-probe/src/flows/sequence.rs. */
#define RT_MAX_JUMP (1 << 20)

#define RT_FIN 0x01
#define RT_SYN 0x02
#define RT_RST 0x04
#define RT_ACK 0x10

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
	__u32 is_reset = seen->flags & RT_RST;
	/* The payload of a reset is not part of the stream. */
	__u32 data = is_reset ? 0 : (__u32)seen->payload_bytes;
	__u32 length = data + controls, end = seen->sequence + length;
	__s32 ahead = (__s32)(end - flow->expected);

	if (!(flow->flags & 0xff)) {
		flow->flags |= seen->flags << 8;
		flow->first_end = end;
		flow->expected = end;
		flow->retransmissions = length > 1 || controls ? 1U << 31 : 0;
	} else if (ahead > 0) {
		if (!is_reset || ahead <= RT_MAX_JUMP)
			flow->expected = end;
	} else if (length && (data > 1 || ahead)) { /* no keep-alive */
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
	__u64 captured = length < RT_MAX_BYTES ? length : RT_MAX_BYTES;
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
	captured = (captured & (RT_MAX_BYTES - 1)) + 1;
	error = hook == RT_XDP ? bpf_xdp_load_bytes(ctx, 0, lane->bytes, captured)
			       : bpf_skb_load_bytes(ctx, 0, lane->bytes, captured);
	struct rt_view view = {
		.hook = RT_BYTES,
		.is_detailed = 1,
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
