/* SPDX-License-Identifier: Dual MIT/GPL */
/*
 * Forwarding in the kernel: an arriving packet leaves by another interface.
 * XDP redirects packets that need nothing but their bytes. The tcx program redirects from the
 * network stack's buffer: packets with a VLAN tag or a checksum that the sender left to the
 * NIC, and packets to be segmented.
 */
#ifndef RINGTAP_FORWARD_H
#define RINGTAP_FORWARD_H

#include "packet.h"
#include "splice.h"
#include "verdict.h"

/* Marker numbers that user space replaces. */
#define RT_NO_FORWARD 0x52545f464f525744LL /* replaced by one of RT_FORWARD_* */
#define RT_VERDICT 0x52545f5645524449LL	   /* in the function that the bridge's filter replaces */

enum rt_forwarding {
	RT_FORWARD_ALL = 1,
	RT_FORWARD_MATCHING, /* packets that match the filter */
	RT_FORWARD_OTHERS,   /* packets that do not match */
};

/* Counters of one CPU. Only the programs write them. */
struct rt_forwarded {
	__u64 offered; /* = filtered + blocked + waiting + no_verdict_dropped + redirected + to_stack */
	__u64 filtered;
	__u64 redirected; /* handed to the other interface by XDP */
	__u64 to_stack;	  /* left to the tcx program */
	__u64 from_stack; /* handed to the other interface by tcx; counted in segments */
	__u64 bytes;	  /* of the packets that passed the filter */
	__u64 blocked;	  /* by the verdict on their flow */
	__u64 passed;	  /* by the verdict on their flow; redirected or to_stack */
	__u64 waiting;	  /* captured for the inline reader, whose verdict user space applies */
	__u64 no_verdict_passed; /* redirected or to_stack */
	__u64 no_verdict_dropped;
	__u64 reserved[5];
} __attribute__((aligned(64)));

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rt_forwarded);
} rt_forwarded SEC(".maps");

/* Whether packets are forwarded; forwarding begins with the first rules, which set the filter. */
static __always_inline int rt_is_forwarding(void)
{
	return config.forward_to && !(rt_number(RT_NO_FORWARD) >> 32);
}

/* The verdict of the bridge's filter. */
static __noinline __u64 rt_verdict(void *ctx, __u64 tag, __u64 wire, __u64 captured)
{
	asm volatile("" : : "r"(ctx), "r"(tag), "r"(wire), "r"(captured));
	return rt_number(RT_VERDICT);
}

static __always_inline int rt_is_stopped(const struct rt_packet *packet)
{
	__u32 wire = rt_wire_length(packet);
	__u64 taken;

	if (rt_number(RT_NO_FORWARD) == RT_FORWARD_ALL)
		return 0;
	taken = rt_verdict(packet->ctx, packet->tag, wire, wire);
	return rt_number(RT_NO_FORWARD) == RT_FORWARD_MATCHING ? !taken : !!taken;
}

static __always_inline struct rt_forwarded *rt_forward_counts(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&rt_forwarded, &cpu);
}

static __always_inline __u32 rt_word(const __u8 *at)
{
	return *(const __u16 *)at;
}

/* Sums `words` 16-bit words. */
static __always_inline __u32 rt_sum(const __u8 *at, int words)
{
	__u32 sum = 0;

#pragma unroll
	for (int i = 0; i < words; i++)
		sum += rt_word(at + 2 * i);
	return sum;
}

/* Whether a UDP port belongs to a tunnel; the inner checksum may be left to the NIC, too. */
static __always_inline int rt_is_tunnel(__u32 port)
{
	return port == bpf_htons(4789) || port == bpf_htons(8472) || port == bpf_htons(6081) ||
	       port == bpf_htons(2152);
}

/* Whether the checksum field holds only the sum of the pseudo header, which begins as `sum`. */
static __always_inline int rt_is_unfinished(const __u8 *l4, const __u8 *end, __u32 protocol,
					    __u32 length, __u32 sum)
{
	if (l4 + 8 > end)
		return 0;
	if (protocol == 17 && rt_is_tunnel(rt_word(l4 + 2)))
		return 1;
	sum += bpf_htons(protocol) + bpf_htons(length);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	if (protocol == 6)
		return l4 + 18 <= end && rt_word(l4 + 16) == sum;
	return rt_word(l4 + 6) == sum;
}

/*
 * Whether a checksum may be left to the NIC. One in 65,536 complete checksums looks like this;
 * its packet takes the slower path and leaves unchanged.
 */
static __always_inline int rt_may_lack_checksum(struct xdp_md *ctx)
{
	const __u8 *at = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 type, protocol, header;

	if (at + 14 > end)
		return 0;
	type = rt_word(at + 12);
	at += 14;
#pragma unroll
	for (int i = 0; i < 2; i++) {
		if (!rt_is_vlan(type))
			break;
		if (at + 4 > end)
			return 0;
		type = rt_word(at + 2);
		at += 4;
	}
	if (type == bpf_htons(0x0800)) {
		if (at + 20 > end)
			return 0;
		protocol = at[9];
		header = (at[0] & 15) * 4;
		/* A fragment's checksum is complete. */
		if (rt_word(at + 6) & bpf_htons(0x3fff) || protocol == 1 || protocol == 2)
			return 0;
		if (protocol != 6 && protocol != 17)
			return 1;
		return rt_is_unfinished(at + header, end, protocol,
					bpf_ntohs(rt_word(at + 2)) - header, rt_sum(at + 12, 4));
	}
	if (type == bpf_htons(0x86dd)) {
		if (at + 40 > end)
			return 0;
		protocol = at[6];
		if (protocol == 58 || protocol == 59)
			return 0;
		if (protocol != 6 && protocol != 17)
			return 1;
		return rt_is_unfinished(at + 40, end, protocol, bpf_ntohs(rt_word(at + 4)),
					rt_sum(at + 8, 16));
	}
	return rt_is_vlan(type);
}

/* What happens to a packet that arrived. */
enum rt_fate {
	RT_FORWARD,
	RT_STOP,
	RT_WAIT,
};

/* The fate of a packet for whose flow there is no verdict, without waiting. */
static __always_inline enum rt_fate rt_no_verdict(const struct rt_inline *words,
						  struct rt_forwarded *counts, __u64 segments)
{
	if (rt_load(words->passes)) {
		counts->no_verdict_passed += segments;
		return RT_FORWARD;
	}
	counts->no_verdict_dropped += segments;
	return RT_STOP;
}

/* Decides by the verdict on the packet's flow, and hides the packet from members that have nothing to decide. */
static __always_inline enum rt_fate rt_ask(struct rt_packet *packet, const struct rt_inline *words,
					   struct rt_forwarded *counts, __u64 segments)
{
	__u32 state = rt_load(words->state), verdict;

	packet->hidden = rt_load(words->bridge) | rt_load(words->reader);
	packet->is_skipped = !rt_load(words->mirrors);
	if (state == RT_INLINE_ABSENT)
		return rt_no_verdict(words, counts, segments);
	verdict = rt_flow_verdict(packet, segments);
	if (verdict == RT_FLOW_PASS) {
		counts->passed += segments;
		return RT_FORWARD;
	}
	if (verdict == RT_FLOW_DROP) {
		counts->blocked += segments;
		return RT_STOP;
	}
	packet->is_skipped = 0;
	/* User space cannot send what has to be segmented. */
	if (state == RT_INLINE_DECIDING && segments == 1) {
		packet->hidden = 0;
		return RT_WAIT;
	}
	packet->hidden = rt_load(words->bridge);
	return rt_no_verdict(words, counts, segments);
}

/* Counts a packet that arrived, and decides what happens to it; before it is captured. */
static __always_inline enum rt_fate rt_decide(struct rt_packet *packet, __u64 segments)
{
	struct rt_forwarded *counts = rt_forward_counts();
	enum rt_fate fate = RT_FORWARD;
	struct rt_inline *words;

	if (!counts)
		return RT_STOP;
	counts->offered += segments;
	words = rt_has_inline() ? rt_inline_words() : 0;
	if (rt_is_stopped(packet)) {
		counts->filtered += segments;
		if (words)
			packet->hidden = rt_load(words->bridge) | rt_load(words->reader);
		return RT_STOP;
	}
	counts->bytes += rt_wire_length(packet);
	if (words)
		fate = rt_ask(packet, words, counts, segments);
	return fate;
}

/* The final fate of a packet, after its capture. */
static __always_inline enum rt_fate rt_after_capture(const struct rt_packet *packet, enum rt_fate fate)
{
	struct rt_forwarded *counts;
	struct rt_inline *words;

	if (!rt_has_inline() || fate != RT_WAIT)
		return fate;
	counts = rt_forward_counts();
	words = rt_inline_words();
	if (!counts || !words)
		return RT_STOP;
	/* Without room in the pool, no thread has the packet. */
	if (!(packet->members & rt_load(words->bridge)))
		return rt_no_verdict(words, counts, 1);
	counts->waiting++;
	return RT_STOP;
}

static __always_inline int rt_forward_xdp(struct xdp_md *ctx, const struct rt_packet *packet,
					  enum rt_fate fate)
{
	struct rt_forwarded *counts = rt_forward_counts();

	if (rt_after_capture(packet, fate) == RT_STOP || !counts)
		return XDP_DROP;
	if (packet->tag || packet->length > config.largest_frame ||
	    (config.partial && rt_may_lack_checksum(ctx))) {
		counts->to_stack++;
		return XDP_PASS;
	}
	counts->redirected++;
	return bpf_redirect(config.forward_to, 0);
}

#define RT_NO_DEVICE (-19) /* ENODEV */

/* Redirects a packet buffer. A removed interface takes nothing: the packet counts as lost. */
static __always_inline int rt_redirect(struct __sk_buff *ctx, struct rt_forwarded *counts,
				       __u64 segments)
{
	__u32 mtu = 0;

	/* The call answers whether the interface exists; the MTU was checked before. */
	if (bpf_check_mtu(ctx, config.forward_to, &mtu, 0, 0) == RT_NO_DEVICE)
		return 2;
	counts->from_stack += segments;
	return bpf_redirect(config.forward_to, 0);
}

/* Number of packets in one buffer of the network stack. */
static __always_inline __u32 rt_segments(const struct __sk_buff *ctx)
{
	return ctx->gso_segs > 1 ? ctx->gso_segs : 1;
}

static __always_inline int rt_forward_tc(struct __sk_buff *ctx, const struct rt_packet *packet,
					 enum rt_fate fate)
{
	struct rt_forwarded *counts = rt_forward_counts();
	__u32 segments = rt_segments(ctx);

	if (rt_after_capture(packet, fate) == RT_STOP || !counts)
		return 2;
	counts->to_stack += segments;
	return rt_redirect(ctx, counts, segments);
}

#endif
