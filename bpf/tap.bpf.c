// SPDX-License-Identifier: Dual MIT/GPL
/*
 * The tap: an XDP or tcx program copies each packet once into the open chunk of the current
 * CPU's lane, and passes it on (or drops it, if the tap is exclusive).
 * It writes where readers have the pool mapped, so that a packet costs one copy and no system call, for any number of
 * readers.
 */
#include <bpf/bpf_core_read.h>

#include "forward.h"
#include "lane.h"
#include "packet.h"
#include "shunt.h"
#include "steer.h"

/* Return values of a tcx program: next program, or drop (kernel 6.6's linux/bpf.h). */
#define RT_TC_NEXT (-1)
#define RT_TC_DROP 2
#define RT_PACKET_LOOPBACK 5 /* linux/if_packet.h */

extern int bpf_xdp_metadata_rx_vlan_tag(const struct xdp_md *ctx, __be16 *vlan_proto,
					__u16 *vlan_tci) __ksym __weak;

extern int bpf_xdp_metadata_rx_timestamp(const struct xdp_md *ctx, __u64 *timestamp) __ksym __weak;

extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym __weak;

/* A field missing from the stable view of a packet buffer; CO-RE resolves its offset. */
struct sk_buff {
	__u8 ip_summed : 2;
} __attribute__((preserve_access_index));

#define RT_CHECKSUM_PARTIAL 3 /* CHECKSUM_PARTIAL of linux/skbuff.h */

static __always_inline int rt_is_other_queue(const struct rt_packet *packet)
{
	if (config.all_queues || packet->flags & RT_OUT)
		return 0;
	return packet->queue > 255 ||
	       !(config.queues[packet->queue / 64 & 3] >> (packet->queue & 63) & 1);
}

/* Replaces the host's time by the NIC's, if the NIC stamped the packet. */
static __always_inline void rt_use_nic_time(const struct rt_packet *packet, struct rt_slot *slot)
{
	__u64 time_ns = 0;

	if (bpf_xdp_metadata_rx_timestamp(packet->ctx, &time_ns) || !time_ns)
		return;
	slot->time_ns = time_ns;
	slot->captured |= (__u32)RT_NIC_TIME << 24;
}

/* Captures one packet into an idle lane; returns 1 if it is captured or filtered. */
static __always_inline int rt_capture(struct rt_packet *packet, struct rt_lane *lane, __u32 index)
{
	struct rt_control *words = bpf_map_lookup_elem(&rt_control, &index);
	__u32 wire = rt_wire_length(packet);
	__u32 most = packet->hook == RT_XDP ? RT_XDP_MOST : RT_SLACK;
	__u32 readable = wire < most ? wire : most;
	__u32 length = readable < config.snap_length ? readable : config.snap_length;
	__u32 bytes = length < 16 ? 16 : length;
	__u64 mask = ~0ULL, withheld = 0;
	struct rt_shunted *shunted = 0;
	struct rt_room room;
	struct rt_slot *slot;
	long error;

	/* Otherwise the verifier follows all that comes once for short packets and once for long ones. */
	rt_forget(wire, packet->length);
	rt_forget(readable, packet->length);
	rt_forget(length, packet->length);
	rt_forget(bytes, packet->length);
	lane->offered++;
	if (packet->is_skipped) {
		lane->shunted++;
		return 1;
	}
	if (rt_is_other_queue(packet)) {
		lane->other_queue++;
		return 0;
	}
	/* Readers are far behind: packets captured now would be lost later, at a higher cost. */
	if (!words || rt_load(words->paused)) {
		lane->pool_full++;
		return 0;
	}
	if (rt_has_rules())
		mask = rt_steer(packet, words, readable); /* the snap length cuts afterwards */
	rt_forget(wire, packet->length); /* the filters learnt something of it */
	if (mask && !(mask & ~packet->hidden)) {
		lane->shunted++;
		return 1;
	}
	mask &= ~packet->hidden;
	if (!mask) {
		lane->filtered++;
		return 1;
	}
	if (rt_has_flow_rules()) {
		shunted = bpf_map_lookup_elem(&rt_shunted, &index);
		if (shunted)
			withheld = rt_withheld(packet, shunted, mask, readable, wire);
		rt_forget(withheld, packet->length);
		mask &= ~withheld;
		if (shunted)
			mask |= shunted->recipients.added;
		rt_forget(mask, packet->length);
		if (!mask) {
			if (shunted)
				rt_count_withheld(shunted, withheld, wire);
			lane->shunted++;
			return 1;
		}
	}
	/* No chunk free: count the packet and pass it on, so that capture never cuts the network. */
	if (!rt_reserve(lane, index, words, bytes, &room)) {
		lane->pool_full++;
		return 0;
	}
	error = packet->tag ? rt_copy_tagged(packet, room.payload, length)
			    : rt_copy(packet, 0, room.payload, length);
	/* The next packet uses the room. */
	if (error) {
		lane->failed++;
		return 0;
	}
	slot = room.slot;
	slot->time_ns = bpf_ktime_get_tai_ns() - words->tai_minus_utc_ns;
	slot->mask = mask;
	slot->hash = packet->hash;
	slot->wire_length = wire;
	slot->captured = length | packet->flags << 24;
	slot->payload = room.payload_offset >> 3;
	slot->queue = packet->queue;
	if (packet->is_bound && config.nic_time)
		rt_use_nic_time(packet, slot);
	lane->bytes += wire;
	rt_publish(lane, &room);
	packet->members = mask;
	if (rt_has_flow_rules() && withheld && shunted)
		rt_count_withheld(shunted, withheld, wire);
	rt_signal(words, index, RT_WAKE_PACKET);
	return 1;
}

/* Captures one packet into this CPU's lane; returns 1 if it is captured or filtered. */
static __always_inline int rt_take(struct rt_packet *packet)
{
	__u32 index = bpf_get_smp_processor_id();
	struct rt_lane *lane = bpf_map_lookup_elem(&rt_lanes, &index);
	int done;

	if (!lane || !rt_enter(&lane->busy, &lane->nested))
		return 0;
	done = rt_capture(packet, lane, index);
	rt_leave(&lane->busy);
	return done;
}

/* Otherwise the verifier follows all that comes once for packets with a tag and once for those without. */
static __always_inline void rt_forget_tag(struct rt_packet *packet)
{
	rt_forget(packet->tag, packet->length);
	rt_forget(packet->flags, packet->length);
}

static __always_inline int rt_take_xdp(struct xdp_md *ctx, __u32 tag, __u32 is_bound)
{
	struct rt_packet packet = {
		.ctx = ctx,
		.hook = RT_XDP,
		.length = bpf_xdp_get_buff_len(ctx),
		.queue = ctx->rx_queue_index,
		.flags = tag ? RT_VLAN_RESTORED : 0,
		.tag = tag,
		.is_bound = is_bound,
	};

	enum rt_fate fate = RT_FORWARD;
	int done;

	if (is_bound)
		rt_forget_tag(&packet);
	if (rt_is_forwarding())
		fate = rt_decide(&packet, 1);
	rt_forget(fate, packet.length);
	done = rt_take(&packet);
	/* Captured or not: a reader never cuts the bridge. */
	if (rt_is_forwarding())
		return rt_forward_xdp(ctx, &packet, fate);
	return done && config.exclusive ? XDP_DROP : XDP_PASS;
}

/* The verdict on an arriving packet after capture. */
static __always_inline int rt_end_tc(struct __sk_buff *ctx, const struct rt_packet *packet, int done,
				     enum rt_fate fate)
{
	if (rt_is_forwarding())
		return rt_forward_tc(ctx, packet, fate);
	return done && config.exclusive ? RT_TC_DROP : RT_TC_NEXT;
}

static __always_inline int rt_take_tc(struct __sk_buff *ctx, __u32 direction)
{
	enum rt_fate fate = RT_FORWARD;
	int done;
	struct rt_packet packet = {
		.ctx = ctx,
		.hook = RT_TC,
		.length = ctx->len,
		.queue = ctx->queue_mapping,
		.flags = direction,
	};

	if (ctx->vlan_present) {
		packet.tag = rt_tag(ctx->vlan_proto, ctx->vlan_tci);
		packet.flags |= RT_VLAN_RESTORED;
	}
	if (ctx->gso_size)
		packet.flags |= RT_SUPER;
	if (bpf_cast_to_kern_ctx) {
		struct sk_buff *buffer = bpf_cast_to_kern_ctx(ctx);

		if (BPF_CORE_READ_BITFIELD(buffer, ip_summed) == RT_CHECKSUM_PARTIAL)
			packet.flags |= RT_PARTIAL_CHECKSUM;
	}
	/* The kernel numbers a packet's receive queue from 1. */
	if (!direction && packet.queue)
		packet.queue--;
	rt_forget_tag(&packet);
	if (!direction && rt_is_forwarding())
		fate = rt_decide(&packet, rt_segments(ctx));
	rt_forget(fate, packet.length);
	done = rt_take(&packet);
	return direction ? RT_TC_NEXT : rt_end_tc(ctx, &packet, done, fate);
}

SEC("xdp.frags")
int rt_rx(struct xdp_md *ctx)
{
	return rt_take_xdp(ctx, 0, 0);
}

/* Bound to one device, whose driver reports the VLAN tags that it strips, or time stamps. */
SEC("xdp.frags")
int rt_rx_bound(struct xdp_md *ctx)
{
	__be16 proto = 0;
	__u16 tci = 0;
	__u32 tag = 0;

	if (!bpf_xdp_metadata_rx_vlan_tag(ctx, &proto, &tci))
		tag = rt_tag(proto, tci);
	return rt_take_xdp(ctx, tag, 1);
}

SEC("tcx/ingress")
int rt_tc_rx(struct __sk_buff *ctx)
{
	/* A local copy of outgoing multicast, which was never on the wire. */
	if (ctx->pkt_type == RT_PACKET_LOOPBACK)
		return RT_TC_NEXT;
	return rt_take_tc(ctx, 0);
}

/* Forwards packets that the XDP program left to the network stack's buffer. */
SEC("tcx/ingress")
int rt_tc_forward(struct __sk_buff *ctx)
{
	struct rt_forwarded *counts = rt_forward_counts();

	if (ctx->pkt_type == RT_PACKET_LOOPBACK || !counts)
		return RT_TC_NEXT;
	return rt_redirect(ctx, counts, rt_segments(ctx));
}

SEC("tcx/egress")
int rt_tc_tx(struct __sk_buff *ctx)
{
	return rt_take_tc(ctx, RT_OUT);
}

/* Never called: adds the format to the BTF, which a test compares with the Rust view. */
int rt_format(const struct rt_region *region, const struct rt_chunk *chunk,
	      const struct rt_slot *slot, const struct rt_ended *ended)
{
	return !region || !chunk || !slot || !ended;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
