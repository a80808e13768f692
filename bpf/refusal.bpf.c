// SPDX-License-Identifier: Dual MIT/GPL
/*
 * Records the kernel's message when it refuses an XDP attachment by this thread. The system call returns only an error
 * number; the driver's reason is in this tracepoint alone.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct rt_refusal {
	__u64 thread; /* the loading thread; set by user space */
	char reason[120];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rt_refusal);
} rt_refusal SEC(".maps");

SEC("raw_tp/bpf_xdp_link_attach_failed")
int rt_refused(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 key = 0;
	struct rt_refusal *refusal = bpf_map_lookup_elem(&rt_refusal, &key);

	/* Ignore attachments by other threads. */
	if (!refusal || (__u32)bpf_get_current_pid_tgid() != (__u32)refusal->thread)
		return 0;
	bpf_probe_read_kernel_str(refusal->reason, sizeof(refusal->reason), (void *)ctx->args[0]);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
