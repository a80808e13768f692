// SPDX-License-Identifier: Dual MIT/GPL
/*
 * Lower bound for the benchmark: counts and drops every packet. What a capture costs is the difference from this, because
 * the driver and XDP cost the same without it.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} rt_dropped SEC(".maps");

SEC("xdp.frags")
int rt_drop(struct xdp_md *ctx)
{
	__u32 key = 0;
	__u64 *count = bpf_map_lookup_elem(&rt_dropped, &key);

	(void)ctx;
	if (count)
		++*count;
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
