/* SPDX-License-Identifier: Dual MIT/GPL */
/*
 * Inline reader of a bridge: decides about flows in user space. A packet of a decided flow is forwarded or dropped here.
 * Any other packet waits: the program captures it for the inline reader and for the bridge's thread, which sends it.
 * Without an inline reader that answers in time, the packet passes or is dropped at once.
 */
#ifndef RINGTAP_VERDICT_H
#define RINGTAP_VERDICT_H

#include "flow_key.h"
#include "packet.h"
#include "splice.h"

#define RT_NO_INLINE 0x52545f494e4c494eLL /* replaced by 1 if an inline reader decides */

enum rt_inline_state {
	RT_INLINE_ABSENT,
	RT_INLINE_DECIDING,
	RT_INLINE_LATE, /* the inline reader sees packets that do not wait for it */
};

enum rt_flow_verdict {
	RT_FLOW_ASK, /* the entry has ended: the inline reader decides again */
	RT_FLOW_PASS,
	RT_FLOW_DROP,
};

/* Written by user space. */
struct rt_inline {
	__u64 bridge; /* mask bits of the bridge's thread */
	__u64 reader; /* mask bits of the inline reader */
	__u32 state;  /* enum rt_inline_state */
	__u32 passes; /* 1: packets without a verdict pass */
	__u32 mirrors; /* 1: other readers exist, which get packets of decided flows, too */
	__u32 reserved;
};

/* Counts of one direction of a decided flow. */
struct rt_decided_direction {
	__u64 packets;
	__u64 bytes;
	__u64 flags;
	__u64 last_ns;
};

/* A decided flow. User space adds and removes entries; the programs count, and end them. */
struct rt_decided {
	__u32 verdict; /* enum rt_flow_verdict */
	__u32 reserved;
	__u64 decided_ns; /* CLOCK_MONOTONIC, as all times here */
	__u64 expires_ns;
	__u64 idle_ns;
	struct rt_decided_direction directions[2];
};

/* Of the packet at hand; the stack is too small for it. */
struct rt_flow_look {
	__u32 busy;
	__u32 reserved;
	__u64 nested;
	struct rt_flow_scratch scratch;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rt_inline);
} rt_inline SEC(".maps");

/* User space puts a larger map, which both sides of a bridge share, in the place of this one. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct rt_flow_key);
	__type(value, struct rt_decided);
} rt_decided SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rt_flow_look);
} rt_flow_look SEC(".maps");

static __always_inline int rt_has_inline(void)
{
	return !(rt_number(RT_NO_INLINE) >> 32);
}

static __always_inline struct rt_inline *rt_inline_words(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&rt_inline, &zero);
}

static __always_inline int rt_is_over(const struct rt_decided *flow, __u64 flags, __u64 now)
{
	__u64 last = rt_load(flow->decided_ns), first = rt_load(flow->directions[0].last_ns);
	__u64 second = rt_load(flow->directions[1].last_ns);

	if (first > last)
		last = first;
	if (second > last)
		last = second;
	if (now >= rt_load(flow->expires_ns) || (now > last && now - last > rt_load(flow->idle_ns)))
		return 1;
	return rt_is_restart(flags, rt_load(flow->directions[0].flags),
			     rt_load(flow->directions[1].flags));
}

/* Looks up a decided flow, and counts the packet there. */
static __noinline __u32 rt_decided_flow(const struct rt_flow_key *key, __u64 how, __u64 packets)
{
	struct rt_decided *flow = bpf_map_lookup_elem(&rt_decided, key);
	__u64 flags = how >> RT_FLAGS_SHIFT & 0xff, now;
	struct rt_decided_direction *direction;
	__u32 verdict;

	if (!flow)
		return RT_FLOW_ASK;
	verdict = rt_load(flow->verdict);
	if (!verdict)
		return RT_FLOW_ASK;
	now = bpf_ktime_get_coarse_ns();
	if (rt_is_over(flow, flags, now)) {
		*(volatile __u32 *)&flow->verdict = RT_FLOW_ASK;
		return RT_FLOW_ASK;
	}
	direction = &flow->directions[how & RT_FROM_HIGH ? 1 : 0];
	__sync_fetch_and_add(&direction->packets, packets);
	__sync_fetch_and_add(&direction->bytes, how >> 32);
	if (flags & ~rt_load(direction->flags))
		__sync_fetch_and_or(&direction->flags, flags);
	if (rt_load(direction->last_ns) != now)
		*(volatile __u64 *)&direction->last_ns = now;
	return verdict;
}

/* The verdict on the packet's flow. */
static __always_inline __u32 rt_flow_verdict(const struct rt_packet *packet, __u64 packets)
{
	__u64 wire = rt_wire_length(packet), tag = packet->tag, readable, how;
	__u32 zero = 0, verdict = RT_FLOW_ASK;
	struct rt_flow_look *look = bpf_map_lookup_elem(&rt_flow_look, &zero);

	if (!look || !rt_enter(&look->busy, &look->nested))
		return RT_FLOW_ASK;
	rt_forget(wire, packet->length);
	rt_forget(tag, packet->length);
	readable = wire < RT_XDP_MOST ? wire : RT_XDP_MOST;
	rt_forget(readable, packet->length);
	how = rt_flow_of(packet->ctx, packet->hook, tag, (__u64)packet->length << 32 | readable,
			 &look->scratch);
	rt_forget(how, packet->length);
	if (how)
		verdict = rt_decided_flow(&look->scratch.key, wire << 32 | how, packets);
	rt_forget(verdict, packet->length);
	rt_leave(&look->busy);
	return verdict;
}

#endif
