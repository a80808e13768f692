/* SPDX-License-Identifier: Dual MIT/GPL */
/*
 * Helps compiler and verifier to agree about values. clang removes a check that it can prove to be useless, and the verifier
 * needs to see it, because it forgets what clang knows.
 */
#ifndef RINGTAP_VERIFIER_H
#define RINGTAP_VERIFIER_H

#include <linux/types.h>

/* Keeps clang from merging a bound with an earlier check, which the verifier could not follow. */
#define rt_opaque(x) asm volatile("" : "+r"(x))
#define rt_compiler_barrier() asm volatile("" ::: "memory")
#define rt_load(x) (*(volatile typeof(x) *)&(x))

/*
 * Enters a CPU's state. A run that interrupted another run finds the state inconsistent: it counts the packet
 * in `nested`, and must skip it.
 */
static __always_inline int rt_enter(__u32 *busy, __u64 *nested)
{
	if (rt_load(*busy)) {
		__sync_fetch_and_add(nested, 1);
		return 0;
	}
	*(volatile __u32 *)busy = 1;
	rt_compiler_barrier();
	return 1;
}

static __always_inline void rt_leave(__u32 *busy)
{
	rt_compiler_barrier();
	*(volatile __u32 *)busy = 0;
}

/* Makes the verifier forget the range of `x`, so that it merges the paths that lead here. */
#define rt_forget(x, unknown)           \
	do {                            \
		(x) ^= (unknown);       \
		rt_opaque(x);           \
		(x) ^= (unknown);       \
	} while (0)

#endif
