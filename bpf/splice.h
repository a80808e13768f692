/* SPDX-License-Identifier: Dual MIT/GPL */
/*
 * Numbers in a loaded program that user space finds and replaces:
 * crates/capture/ringtap-capture/src/bpf/splice.rs.
 */
#ifndef RINGTAP_SPLICE_H
#define RINGTAP_SPLICE_H

#define RT_NO_RULES 0x52545f52554c4553LL /* in its place: what the rules need, below 2^32 */
#define RT_FILTERS 0x52545f46494c5453LL	 /* in the function that gives way to the filters */
#define RT_PROGRAMS 0x52545f50524f4753LL /* in the function that gives way to users' programs */

#define rt_number(value)                                                \
	({                                                              \
		__u64 number;                                           \
		asm volatile("%0 = %1 ll" : "=r"(number) : "i"(value)); \
		number;                                                 \
	})

/*
 * What the rules need. Asked for again wherever it decides: the compiler would keep it, and what
 * follows from it, in registers that the verifier shows to be useless.
 */
#define rt_rules() rt_number(RT_NO_RULES)

/* What rules need fits into the low half, RT_NO_RULES does not. */
static __always_inline int rt_has_rules(void)
{
	return !(rt_rules() >> 32);
}

/* Which rules' filters take the packet, a bit each. */
static __noinline __u64 rt_filters(void *ctx, __u64 tag, __u64 wire, __u64 captured)
{
	asm volatile("" : : "r"(ctx), "r"(tag), "r"(wire), "r"(captured));
	return rt_number(RT_FILTERS);
}

#endif
