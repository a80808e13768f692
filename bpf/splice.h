/* SPDX-License-Identifier: Dual MIT/GPL */
/*
 * Marker numbers in a loaded program that user space replaces:
 * crates/capture/ringtap-bpf/src/splice.rs.
 * Rules are code, not data that a program interprets: a packet pays only for the comparisons of its rules, the verifier
 * removes the rest, and the update of one link changes all rules between two packets.
 */
#ifndef RINGTAP_SPLICE_H
#define RINGTAP_SPLICE_H

#define RT_NO_RULES 0x52545f52554c4553LL /* replaced by the needs of the rules, below 2^32 */
#define RT_FILTERS 0x52545f46494c5453LL	 /* in the function that the filters replace */
#define RT_PROGRAMS 0x52545f50524f4753LL /* in the function that users' programs replace */
#define RT_KEYS 0x52545f4b45595300LL /* and the 10 numbers that follow: replaced by the hash's keys */

#define rt_number(value)                                                \
	({                                                              \
		__u64 number;                                           \
		asm volatile("%0 = %1 ll" : "=r"(number) : "i"(value)); \
		number;                                                 \
	})

/*
 * The needs of the rules. Read again at each decision: otherwise the compiler wastes registers on
 * it and on values derived from it, which are constants for the verifier.
 */
#define rt_rules() rt_number(RT_NO_RULES)

/* The replacement fits into the low 32 bits, RT_NO_RULES does not. */
static __always_inline int rt_has_rules(void)
{
	return !(rt_rules() >> 32);
}

/* The rules whose filters match the packet, one bit each. */
static __noinline __u64 rt_filters(void *ctx, __u64 tag, __u64 wire, __u64 captured)
{
	asm volatile("" : : "r"(ctx), "r"(tag), "r"(wire), "r"(captured));
	return rt_number(RT_FILTERS);
}

#endif
