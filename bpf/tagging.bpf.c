// SPDX-License-Identifier: Dual MIT/GPL
/* For tests: adds VLAN tag 5 to each outgoing packet's metadata, like a NIC that strips tags. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#define ETHERTYPE_8021Q 0x8100
#define NEXT (-1) /* next program of the hook */

SEC("tcx/egress")
int rt_tagging(struct __sk_buff *ctx)
{
	/* A packet that cannot be tagged leaves unchanged, and the test fails. */
	bpf_skb_vlan_push(ctx, bpf_htons(ETHERTYPE_8021Q), 5);
	return NEXT;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
