// SPDX-License-Identifier: Dual MIT/GPL
/*
 * Counts packets that XDP redirected between two interfaces, by outcome. Only the kernel's
 * tracepoints report outcomes, one batch at a time.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

/* Fields of the kernel's structures used here; CO-RE resolves their offsets. */
struct ns_common {
	unsigned int inum;
} __attribute__((preserve_access_index));

struct net {
	struct ns_common ns;
} __attribute__((preserve_access_index));

typedef struct {
	struct net *net;
} possible_net_t;

struct net_device {
	int ifindex;
	possible_net_t nd_net;
} __attribute__((preserve_access_index));

/* Set before the programs are loaded. */
struct rt_pair {
	__u32 namespace; /* inode number */
	__u32 interfaces[2];
};

/* Outcomes of packets that arrived at one of the interfaces. */
struct rt_redirected {
	__u64 sent;
	__u64 full;    /* the other interface had no room */
	__u64 refused; /* not offered: too large, or the interface is down */
};

const volatile struct rt_pair pair SEC(".rodata.pair");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct rt_redirected);
} rt_redirected SEC(".maps");

static __always_inline struct rt_redirected *rt_side(const struct net_device *from)
{
	__u32 side;

	if (from->nd_net.net->ns.inum != pair.namespace)
		return 0;
	if ((__u32)from->ifindex == pair.interfaces[0])
		side = 0;
	else if ((__u32)from->ifindex == pair.interfaces[1])
		side = 1;
	else
		return 0;
	return bpf_map_lookup_elem(&rt_redirected, &side);
}

SEC("tp_btf/xdp_devmap_xmit")
int BPF_PROG(rt_transmitted, const struct net_device *from, const struct net_device *to, int sent,
	     int drops, int err)
{
	struct rt_redirected *counts = rt_side(from);

	(void)ctx;
	(void)to;
	(void)err;
	if (!counts)
		return 0;
	if (sent > 0)
		__sync_fetch_and_add(&counts->sent, sent);
	if (drops > 0)
		__sync_fetch_and_add(&counts->full, drops);
	return 0;
}

SEC("tp_btf/xdp_redirect_err")
int BPF_PROG(rt_not_redirected, const struct net_device *from)
{
	struct rt_redirected *counts = rt_side(from);

	(void)ctx;
	if (counts)
		__sync_fetch_and_add(&counts->refused, 1);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
