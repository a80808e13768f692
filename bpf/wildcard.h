/* SPDX-License-Identifier: Dual MIT/GPL */
/*
 * Wildcard rules: finds the rules that apply to a flow, and the members from whom they withhold a packet of it.
 * ringtap_filter::flow specifies them; its conformance suite compares the two.
 */
#ifndef RINGTAP_WILDCARD_H
#define RINGTAP_WILDCARD_H

#include "flow_key.h"

#define RT_MAX_WILDCARDS 64
#define RT_CHOICES 6

#define RT_SAMPLE (1ULL << 63)
#define RT_NO_LIMIT (RT_SAMPLE - 1)

struct rt_wildcard {
	__u32 address[2][4]; /* of the two ends, in words, host order */
	__u32 mask[2][4];
	__u32 ports[2]; /* the first port in the upper half, then the last */
	__u32 rest; /* protocol << 8 | IP version, as in the key */
	__u32 rest_mask;
	__u32 vlan; /* the outermost number in the upper half, as in the key */
	__u32 vlan_mask;
	__u64 members; /* packets are withheld from these once their direction has had so many packets, or bytes */
	__u64 adds; /* groups that get the packets of these members, too */
	__u64 packets; /* RT_NO_LIMIT; with RT_SAMPLE: one packet in this many is not withheld */
	__u64 bytes;
};

/* Of the packet at hand. */
struct rt_recipients {
	__u64 wanted; /* members whose rules may still decide */
	__u64 added; /* groups that get it, too */
};

/* Two sets of rules, each in their order: one is in force while user space writes the other. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* user space puts a larger map here */
	__type(key, __u32);
	__type(value, struct rt_wildcard);
} rt_wildcards SEC(".maps");

/* Whether a packet with this many packets and bytes of its direction before it is withheld. */
static __always_inline int rt_is_past(__u64 most_packets, __u64 most_bytes, __u64 packets, __u64 bytes)
{
	if (most_packets & RT_SAMPLE)
		return packets % (most_packets & ~RT_SAMPLE) != 0;
	return packets >= most_packets || bytes >= most_bytes;
}

/* `wildcards` of the settings: the number of rules, and above it the edition, whose lowest bit selects the set. */
static __always_inline __u32 rt_first_wildcard(__u64 wildcards)
{
	return wildcards >> 32 & 1 ? RT_MAX_WILDCARDS : 0;
}

/* Not 0 if an end does not match. Without branches, because the verifier follows each for each rule. */
static __always_inline __u64 rt_end_differs(const struct rt_wildcard *rule, __u32 end, const __u32 *address,
					    __u64 port)
{
	__u64 first = rule->ports[end] >> 16, last = rule->ports[end] & 0xffff, differs;

	differs = (port - first) >> 63 | (last - port) >> 63;
	for (int i = 0; i < 4; i++)
		differs |= (address[i] ^ rule->address[end][i]) & rule->mask[end][i];
	return differs;
}

/* Not 0 if the flow does not match. */
static __always_inline __u64 rt_flow_differs(const struct rt_wildcard *rule, const struct rt_flow_key *key)
{
	__u32 low = key->ports >> 16, high = key->ports & 0xffff;
	__u64 straight = rt_end_differs(rule, 0, key->low, low) | rt_end_differs(rule, 1, key->high, high);
	__u64 swapped = rt_end_differs(rule, 1, key->low, low) | rt_end_differs(rule, 0, key->high, high);
	__u64 rest = (key->rest ^ rule->rest) & rule->rest_mask, vlan = (key->vlans ^ rule->vlan) & rule->vlan_mask;

	/* The highest bit of these is set if any is. */
	straight |= -straight;
	swapped |= -swapped;
	rt_opaque(straight);
	rt_opaque(swapped);
	return (straight & swapped) >> 63 | rest | vlan;
}

/* The rules that apply to a flow: their numbers from 1, a byte each, and the edition above them. */
static __noinline __u64 rt_choose(const struct rt_flow_key *key, __u64 wildcards)
{
	__u32 first = rt_first_wildcard(wildcards), count = (__u32)wildcards, shift = 0;
	__u64 decided = 0, choice = 0;

	/* The verifier follows each turn: hence few rules, and no turn depends on what the ones before have found. */
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < RT_MAX_WILDCARDS; i++) {
		__u32 at = first + i;
		const struct rt_wildcard *rule = bpf_map_lookup_elem(&rt_wildcards, &at);

		if (!rule || i >= count || shift >= RT_CHOICES * 8)
			break;
		if (!(rule->members & ~decided) || rt_flow_differs(rule, key))
			continue;
		choice |= (__u64)(i + 1) << (shift & 63);
		shift += 8;
		decided |= rule->members;
		rt_forget(choice, wildcards);
		rt_forget(shift, count);
		rt_forget(decided, wildcards);
	}
	return wildcards >> 32 << (RT_CHOICES * 8) | choice;
}

/*
 * The members of `wanted` from whom the chosen rules withhold a packet with this many packets and bytes before it. Adds
 * the groups that get it, too.
 */
static __noinline __u64 rt_wildcards_past(__u64 choice, __u64 wildcards, __u64 packets, __u64 bytes,
					  struct rt_recipients *recipients)
{
	__u64 members = 0, left = recipients->wanted, added = recipients->added;

#pragma clang loop unroll(disable)
	for (int i = 0; i < RT_CHOICES; i++) {
		__u32 number = choice >> (8 * i) & 0xff, at;
		const struct rt_wildcard *rule;
		__u64 decides;

		if (!number)
			break;
		at = rt_first_wildcard(wildcards) + number - 1;
		rule = bpf_map_lookup_elem(&rt_wildcards, &at);
		if (!rule)
			break;
		decides = rule->members & left;
		if (rt_is_past(rule->packets, rule->bytes, packets, bytes))
			members |= decides;
		left &= ~decides;
		/* All bits, or none: without a branch, which the verifier would follow. */
		decides |= -decides;
		rt_opaque(decides);
		added |= rule->adds & -(decides >> 63);
		rt_forget(members, packets);
		rt_forget(left, packets);
		rt_forget(added, packets);
	}
	recipients->added = added;
	return members;
}

#endif
