/* SPDX-License-Identifier: Dual MIT/GPL */
/*
 * Flow rules: finds the flow of a packet, counts it, and withholds it from the members whose rules for the flow say so.
 * ringtap_filter::flow specifies keys and rules; its conformance suite compares the two.
 * User space creates the maps of flows when the first rule comes, and changes the programs then; without, the verifier
 * removes this code.
 */
#ifndef RINGTAP_SHUNT_H
#define RINGTAP_SHUNT_H

#include "flow_key.h"
#include "packet.h"
#include "splice.h"
#include "steer.h"
#include "wildcard.h"

#define RT_NO_SHUNT 0x52545f5348554e54LL /* replaced by 1 if there are flow rules */

#define RT_NO_WILDCARDS 0x52545f57494c4443LL /* replaced by 1 if there are wildcard rules */

#define RT_MAX_CUTS 4

/* Counts of one direction. */
struct rt_direction {
	__u64 packets;
	__u64 bytes;
	__u64 flags;
	__u64 first_ns; /* CLOCK_MONOTONIC */
	__u64 last_ns;
};

struct rt_flow {
	struct rt_direction directions[2];
	__u64 created_ns;
	__u64 choice; /* of wildcard rules, see rt_choose() */
};

/* From these members, packets are withheld once their direction has had this many packets, or bytes. */
struct rt_cut {
	__u64 members;
	__u64 adds; /* groups that get the packets of these members, too */
	__u64 packets; /* as in struct rt_wildcard */
	__u64 bytes;
	__u64 expires_ns;
};

struct rt_cuts {
	struct rt_cut each[RT_MAX_CUTS];
};

/* Written by user space before the programs that use it are attached. */
struct rt_flow_settings {
	struct rt_cuts standing; /* of all flows */
	__u64 members; /* of `standing` and of wildcard rules, together */
	__u64 idle_ns;
	__u64 has_marks; /* 1: flows without their mark are not in the table */
	__u64 wildcards; /* see rt_first_wildcard() */
	__u64 adds; /* groups that have readers */
};

enum rt_flow_end {
	RT_FLOW_IDLE = 1,
	RT_FLOW_RESTARTED,
};

/* A flow whose counts begin anew. */
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
	__u64 untracked; /* packets of flows for which there was no room */
	__u64 lost_ends;
	/* Of the packet at hand: the stack is too small. */
	struct rt_flow_scratch scratch;
	struct rt_recipients recipients;
	struct rt_flow old;
} __attribute__((aligned(64)));

/*
 * User space puts larger maps in the place of these two. Programs add flows, but never remove one: the kernel gives
 * the memory of a removed entry to the next one at once, while another CPU may still count in it. User space removes
 * flows that are idle, or without rules. A packet whose program has looked the flow up before, and counts after, is
 * missing in the reported counts: at most one for each CPU and removed flow. It counts in another flow only if an
 * interrupt separates the two for as long as it takes to add that flow. The sums of withheld packets in rt_shunted
 * are exact in both cases.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct rt_flow_key);
	__type(value, struct rt_flow);
} rt_flows SEC(".maps");

/* Written by user space; the programs only remove entries, when a flow's counts begin anew. */
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

/*
 * A bit for the marks of flows in the table, of which several may share one: packets of other flows read one cache
 * line, not those of the table. Written by user space, which puts a larger map here; flows that programs add have no
 * mark.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} rt_flow_marks SEC(".maps");

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

static __always_inline int rt_has_wildcards(void)
{
	return !(rt_number(RT_NO_WILDCARDS) >> 32);
}

static __always_inline int rt_is_idle(const struct rt_flow *flow, __u64 now, __u64 idle_ns)
{
	__u64 last = rt_load(flow->created_ns);

	for (int i = 0; i < 2; i++) {
		__u64 of_direction = rt_load(flow->directions[i].last_ns);

		if (of_direction > last)
			last = of_direction;
	}
	return now > last && now - last > idle_ns;
}

/* Takes the counts of a direction. A packet that another CPU counts meanwhile is in these or in the next ones. */
static __always_inline void rt_take_counts(struct rt_direction *from, struct rt_direction *to)
{
	to->flags = __sync_lock_test_and_set(&from->flags, 0);
	to->packets = __sync_lock_test_and_set(&from->packets, 0);
	to->bytes = __sync_lock_test_and_set(&from->bytes, 0);
	to->first_ns = __sync_lock_test_and_set(&from->first_ns, 0);
	to->last_ns = __sync_lock_test_and_set(&from->last_ns, 0);
}

/*
 * Reports the counts of a flow, which begin anew, and removes its rules. Of CPUs that try at the same time, one does.
 * If two begin new connections at the same time, it may do so twice: the second report is about no packets.
 */
static __noinline int rt_restart(const struct rt_flow_key *key, struct rt_flow *flow,
				 struct rt_shunted *counts, __u64 why, __u64 now)
{
	__u64 created = rt_load(flow->created_ns);
	struct rt_flow *old = &counts->old;
	struct rt_ended *ended;

	/* First: from now on, the flow is idle for no other CPU. */
	if (__sync_val_compare_and_swap(&flow->created_ns, created, now) != created)
		return 0;
	flow->choice = 0; /* the number of its edition may have come again */
	rt_take_counts(&flow->directions[0], &old->directions[0]);
	rt_take_counts(&flow->directions[1], &old->directions[1]);
	old->created_ns = created;
	/* Before the report: rules that are set after it stay. */
	bpf_map_delete_elem(&rt_flow_cuts, key);
	ended = bpf_ringbuf_reserve(&rt_flow_ends, sizeof(*ended), 0);
	if (!ended) {
		counts->lost_ends++;
		return 0;
	}
	ended->key = *key;
	ended->why = why;
	ended->flow = *old;
	bpf_ringbuf_submit(ended, 0);
	return 0;
}

/* The flow, created if a standing cut-off or a wildcard rule needs it; 0 if there is no room. */
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

		if (now < cut->expires_ns && rt_is_past(cut->packets, cut->bytes, packets, bytes))
			members |= cut->members;
		rt_forget(members, packets);
	}
	return members;
}

/* The members whose rule for a flow has not expired. */
static __always_inline __u64 rt_deciding(const struct rt_cuts *cuts, __u64 now)
{
	__u64 members = 0;

#pragma unroll
	for (int i = 0; i < RT_MAX_CUTS; i++) {
		if (now < cuts->each[i].expires_ns)
			members |= cuts->each[i].members;
		rt_forget(members, now);
	}
	return members;
}

/* The groups that get a packet of these members, too. */
static __always_inline __u64 rt_added(const struct rt_cuts *cuts, __u64 wanted, __u64 now)
{
	__u64 added = 0;

#pragma unroll
	for (int i = 0; i < RT_MAX_CUTS; i++) {
		const struct rt_cut *cut = &cuts->each[i];

		if (now < cut->expires_ns && cut->members & wanted)
			added |= cut->adds;
		rt_forget(added, now);
	}
	return added;
}

/* The members from whom wildcard rules withhold a packet. */
static __always_inline __u64 rt_past_wildcards(struct rt_shunted *counts, struct rt_flow *flow, __u64 wildcards,
					       __u64 packets, __u64 bytes)
{
	__u64 choice = rt_load(flow->choice);

	if (choice >> (RT_CHOICES * 8) != wildcards >> 32) {
		choice = rt_choose(&counts->scratch.key, wildcards);
		flow->choice = choice;
	}
	rt_forget(choice, wildcards);
	return rt_wildcards_past(choice, wildcards, packets, bytes, &counts->recipients);
}

/* The members from whom rules for the flow itself withhold a packet. No other rules decide for members that have one. */
static __noinline __u64 rt_past_rules(struct rt_shunted *counts, __u64 packets, __u64 bytes, __u64 now)
{
	const struct rt_flow_key *key = &counts->scratch.key;
	const struct rt_cuts *cuts = bpf_map_lookup_elem(&rt_flow_cuts, key);
	__u64 past, added;

	if (!cuts)
		return 0;
	past = rt_past(cuts, packets, bytes, now);
	added = rt_added(cuts, counts->recipients.wanted, now);
	counts->recipients.wanted &= ~rt_deciding(cuts, now);
	/* If the rules were replaced meanwhile, their memory may already hold those of another flow. */
	if ((past | added) && bpf_map_lookup_elem(&rt_flow_cuts, key) != cuts)
		return 0;
	counts->recipients.added = added;
	return past;
}

/* The members from whom a packet of a known flow is withheld. */
static __noinline __u64 rt_count_in_flow(struct rt_shunted *counts, struct rt_flow *flow,
					 const struct rt_flow_settings *settings, __u64 how, __u64 now)
{
	/* Without a branch, which the verifier would follow to the end. */
	struct rt_direction *direction = &flow->directions[how / RT_FROM_HIGH & 1];
	__u64 flags = how >> RT_FLAGS_SHIFT & 0xff, wire = how >> 32, packets, bytes, members;
	__u64 wildcards = rt_load(settings->wildcards);

	/* The returned numbers are the packet's own: a cut is exact when several CPUs count. */
	packets = __sync_fetch_and_add(&direction->packets, 1);
	bytes = __sync_fetch_and_add(&direction->bytes, wire);
	/* First: the verifier follows what is in these for each path that leads here. */
	members = rt_past_rules(counts, packets, bytes, now);
	rt_forget(members, packets);
	if (rt_has_wildcards() && (__u32)wildcards)
		members |= rt_past_wildcards(counts, flow, wildcards, packets, bytes);
	rt_forget(members, packets);
	if (flags & ~rt_load(direction->flags))
		__sync_fetch_and_or(&direction->flags, flags);
	if (!packets)
		direction->first_ns = now;
	direction->last_ns = now;
	counts->recipients.added &= rt_load(settings->adds);
	return members | rt_past(&settings->standing, packets, bytes, now);
}

/* Whether the flow may be in the table. */
static __always_inline int rt_has_mark(const struct rt_flow_key *key)
{
	__u64 mark = rt_mark_of(key);
	__u32 zero = 0;
	__u64 *marks = bpf_map_lookup_elem(&rt_flow_marks, &zero);

	return marks && rt_load(marks[mark >> 6]) >> (mark & 63) & 1;
}

/* The members of `mask` from whom the packet is withheld. Leaves the groups that get it, too, in `recipients`. */
static __always_inline __u64 rt_withheld(const struct rt_packet *packet, struct rt_shunted *counts,
					 __u64 mask, __u64 captured, __u64 wire)
{
	const struct rt_flow_key *key = &counts->scratch.key;
	__u64 lengths = (__u64)packet->length << 32 | captured, tag = packet->tag, how, now;
	struct rt_flow_settings *settings;
	struct rt_flow *flow;
	__u32 zero = 0, why = 0;

	counts->recipients.wanted = mask;
	counts->recipients.added = 0;
	rt_forget(tag, packet->length);
	how = rt_flow_of(packet->ctx, packet->hook, tag, lengths, &counts->scratch);
	rt_forget(how, packet->length);
	settings = bpf_map_lookup_elem(&rt_flow_settings, &zero);
	if (!how || !settings || (rt_load(settings->has_marks) && !rt_has_mark(key)))
		return 0;
	flow = bpf_map_lookup_elem(&rt_flows, key);
	if (!flow && !(settings->members & mask))
		return 0;
	now = bpf_ktime_get_ns();
	if (flow) {
		if (rt_is_restart(how >> RT_FLAGS_SHIFT & 0xff, rt_load(flow->directions[0].flags),
				  rt_load(flow->directions[1].flags)))
			why = RT_FLOW_RESTARTED;
		if (rt_is_idle(flow, now, settings->idle_ns))
			why = RT_FLOW_IDLE;
		if (why)
			rt_restart(key, flow, counts, why, now);
	} else {
		flow = rt_new_flow(key, now, counts);
		if (!flow)
			return 0;
	}
	rt_forget(now, packet->length);
	return rt_count_in_flow(counts, flow, settings, (wire << 32) | how, now) & mask;
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
