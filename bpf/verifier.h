/* SPDX-License-Identifier: Dual MIT/GPL */
/* Helps compiler and verifier to agree about values. */
#ifndef RINGTAP_VERIFIER_H
#define RINGTAP_VERIFIER_H

/* Keeps clang from merging a bound with an earlier check, which the verifier could not follow. */
#define rt_opaque(x) asm volatile("" : "+r"(x))
#define rt_compiler_barrier() asm volatile("" ::: "memory")
#define rt_load(x) (*(volatile typeof(x) *)&(x))

/* Makes the verifier forget the range of `x`, so that it merges the paths that lead here. */
#define rt_forget(x, unknown)           \
	do {                            \
		(x) ^= (unknown);       \
		rt_opaque(x);           \
		(x) ^= (unknown);       \
	} while (0)

#endif
