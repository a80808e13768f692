/* SPDX-License-Identifier: Dual MIT/GPL */
/*
 * Selects the members that get a packet: runs the filters of the rules in force, then finds for
 * each matching rule the packet's bucket and the members of that bucket.
 * User space takes the loaded program, replaces the markers of splice.h according to the rules,
 * and loads the result. The verifier removes code that the rules do not need.
 */
#ifndef RINGTAP_STEER_H
#define RINGTAP_STEER_H

#include "flow.h"
#include "lane.h"
#include "packet.h"
#include "splice.h"

/* Balance modes. */
#define RT_BY_FLOW 0x01
#define RT_BY_INNER_FLOW 0x02
#define RT_BY_ADDRESS 0x04
#define RT_BY_INNER_ADDRESS 0x08
#define RT_BY_VLAN 0x10
#define RT_BY_TURN 0x20
#define RT_BY_PROGRAM 0x40
#define RT_SECOND_HALF 0x80
#define RT_COUNT_SHIFT 8 /* and then the number of rules */

/* Result of a user's program. */
static __noinline __u64 rt_program(void *ctx, __u64 number)
{
	asm volatile("" : : "r"(ctx), "r"(number));
	return rt_number(RT_PROGRAMS);
}

/* Bit numbers, indexed by the top 6 bits of the bit times RT_BIT_PLACES. */
static const __u8 rt_bit_numbers[64] = {
	0,  1,	2,  7,	3,  13, 8,  19, 4,  25, 14, 28, 9,  34, 20, 40,
	5,  17, 26, 38, 15, 46, 29, 48, 10, 31, 35, 54, 21, 50, 41, 57,
	63, 6,	12, 18, 24, 27, 33, 39, 16, 37, 45, 47, 30, 53, 49, 56,
	62, 11, 23, 32, 36, 44, 52, 55, 61, 22, 43, 51, 60, 42, 59, 58,
};
#define RT_BIT_PLACES 0x0218a392cd3d5dbfULL

/* Values that decide about a packet's buckets. */
struct rt_keys {
	__u32 flow;
	__u32 inner_flow;
	__u32 address;
	__u32 inner_address;
	__u32 vlan;
};

static __always_inline __u32 rt_hash_by(const struct rt_packet *packet, __u32 what, __u32 captured)
{
	__u64 tag = packet->tag;
	__u32 hash;

	/* What the function learns of the tag must not split the paths after it. */
	rt_forget(tag, packet->length);
	hash = rt_hash(packet->ctx, what | packet->hook, tag, captured, packet->length);
	rt_forget(hash, packet->length);
	return hash;
}

/* The outermost VLAN; 0 without a tag. */
static __always_inline __u32 rt_vlan(const struct rt_packet *packet, __u32 captured)
{
	__u32 tag = packet->tag;

	if (captured < RT_MACS + RT_TAG)
		return 0;
	if (!tag && rt_copy(packet, RT_MACS, (__u8 *)&tag, sizeof(tag)))
		return 0;
	if (!rt_is_vlan(tag & 0xffff))
		return 0;
	tag = __builtin_bswap16(tag >> 16) & 0xfff;
	return tag;
}

static __always_inline __u32 rt_next_turn(__u32 rule)
{
	__u32 lane = bpf_get_smp_processor_id();
	struct rt_turns *turns = bpf_map_lookup_elem(&rt_turns, &lane);

	return turns ? turns->next[rule & (RT_MAX_RULES - 1)]++ : 0;
}

static __always_inline __u32 rt_bucket(const struct rt_packet *packet, __u32 rule,
				       const struct rt_group *group, const struct rt_keys *keys)
{
	__u32 balance = rt_load(group->balance);

	if (!balance)
		return 0;
	if (rt_rules() & RT_BY_FLOW && balance == RT_BY_FLOW)
		return keys->flow;
	if (rt_rules() & RT_BY_INNER_FLOW && balance == RT_BY_INNER_FLOW)
		return keys->inner_flow;
	if (rt_rules() & RT_BY_ADDRESS && balance == RT_BY_ADDRESS)
		return keys->address;
	if (rt_rules() & RT_BY_INNER_ADDRESS && balance == RT_BY_INNER_ADDRESS)
		return keys->inner_address;
	if (rt_rules() & RT_BY_VLAN && balance == RT_BY_VLAN)
		return keys->vlan;
	if (rt_rules() & RT_BY_PROGRAM && balance == RT_BY_PROGRAM)
		return rt_program(packet->ctx, rt_load(group->program));
	if (rt_rules() & RT_BY_TURN && balance == RT_BY_TURN)
		return rt_next_turn(rule);
	return 0;
}

/* The members that get a packet matching these rules. */
static __always_inline __u64 rt_members(const struct rt_packet *packet,
					struct rt_control *words, __u64 wanted,
					const struct rt_keys *keys)
{
	__u32 half = rt_rules() & RT_SECOND_HALF ? 1 : 0;
	__u32 set = half * 2 + (rt_load(words->group_sets) >> half & 1);
	__u64 members = 0;

#pragma clang loop unroll(disable)
	for (__u64 i = 0; i < rt_rules() >> RT_COUNT_SHIFT; i++) {
		__u64 lowest = wanted & -wanted;
		__u32 rule, key, bucket, owner;
		struct rt_group *group;

		if (!wanted)
			break;
		wanted ^= lowest;
		/* Without this, clang 18 uses an instruction that eBPF does not have, and fails. */
		rt_opaque(lowest);
		rule = rt_bit_numbers[lowest * RT_BIT_PLACES >> 58];
		key = set * RT_MAX_RULES + rule;
		group = bpf_map_lookup_elem(&rt_groups, &key);
		if (!group)
			break;
		bucket = rt_bucket(packet, rule, group, keys);
		rt_forget(bucket, packet->length);
		owner = rt_load(group->owners[bucket & (RT_BUCKETS - 1)]);
		members |= rt_load(group->masks[owner & (RT_MASKS - 1)]);
	}
	return members;
}

/* Computes the keys that the rules need. */
static __always_inline struct rt_keys rt_keys_of(struct rt_packet *packet, __u32 captured)
{
	struct rt_keys keys = {};

	if (rt_rules() & RT_BY_INNER_FLOW) {
		keys.inner_flow = rt_hash_by(packet, RT_OF_INNER, captured);
		packet->hash = keys.inner_flow;
		packet->flags |= RT_HASHED;
	}
	if (rt_rules() & RT_BY_FLOW) {
		keys.flow = rt_hash_by(packet, 0, captured);
		packet->hash = keys.flow;
		packet->flags |= RT_HASHED;
	}
	if (rt_rules() & RT_BY_ADDRESS)
		keys.address = rt_hash_by(packet, RT_OF_ADDRESSES, captured);
	if (rt_rules() & RT_BY_INNER_ADDRESS)
		keys.inner_address = rt_hash_by(packet, RT_OF_ADDRESSES | RT_OF_INNER, captured);
	if (rt_rules() & RT_BY_VLAN)
		keys.vlan = rt_vlan(packet, captured);
	rt_forget(keys.vlan, packet->length);
	return keys;
}

/* The members that get a packet of which `captured` bytes can be read, one bit each. */
static __always_inline __u64 rt_steer(struct rt_packet *packet, struct rt_control *words,
				      __u32 captured)
{
	__u64 wanted = rt_filters(packet->ctx, packet->tag, rt_wire_length(packet), captured);
	struct rt_keys keys;

	rt_forget(wanted, packet->length);
	/* What the filters learnt of these must not split the paths after them. */
	rt_forget(packet->tag, packet->length);
	rt_forget(captured, packet->length);
	if (!wanted)
		return 0;
	keys = rt_keys_of(packet, captured);
	return rt_members(packet, words, wanted, &keys);
}

#endif
