// SPDX-License-Identifier: Dual MIT/GPL
/*
 * The program of the AF_XDP sockets: counts each packet of the chosen queues, passes filtered
 * packets to the network stack, and redirects the others, with a stamp, to the queue's socket.
 * A socket gets neither time nor VLAN tag nor the number of packets before: only the program sees them, and writes them
 * in front of the packet.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "splice.h"
#include "xsk.h"

const volatile struct rt_xsk_config xsk_config SEC(".rodata.config");

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, RT_XSK_QUEUES);
	__type(key, __u32);
	__type(value, __u32);
} rt_sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, RT_XSK_QUEUES);
	__type(key, __u32);
	__type(value, struct rt_queue);
} rt_queues SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, RT_XSK_QUEUES);
	__type(key, __u32);
	__type(value, struct rt_queue_control);
} rt_queue_controls SEC(".maps");

extern int bpf_xdp_metadata_rx_vlan_tag(const struct xdp_md *ctx, __be16 *vlan_proto,
					__u16 *vlan_tci) __ksym __weak;

extern int bpf_xdp_metadata_rx_timestamp(const struct xdp_md *ctx, __u64 *timestamp) __ksym __weak;

/* Adds one and returns the sum. In native mode one CPU at a time serves a queue. */
static __always_inline __u64 rt_count(__u64 *counter)
{
	if (xsk_config.shared)
		return __sync_fetch_and_add(counter, 1) + 1;
	return ++*(volatile __u64 *)counter;
}

static __always_inline int rt_is_wanted(struct xdp_md *ctx, __u32 tag)
{
	__u32 wire = bpf_xdp_get_buff_len(ctx) + (tag ? 4 : 0);

	return !rt_has_rules() || rt_filters(ctx, tag, wire, wire);
}

/* `nic_time_ns` is the time of the NIC, or 0: the host's is taken. */
static __always_inline int rt_hand_over(struct xdp_md *ctx, __u32 tag, __u64 nic_time_ns)
{
	__u32 queue = ctx->rx_queue_index;
	struct rt_queue *counts = bpf_map_lookup_elem(&rt_queues, &queue);
	struct rt_queue_control *control = bpf_map_lookup_elem(&rt_queue_controls, &queue);
	struct rt_stamp *stamp;
	__u32 state;
	__u64 offered;
	int action;

	if (!counts || !control)
		return XDP_PASS;
	state = *(volatile __u32 *)&control->state;
	/* Another queue, or one whose socket is not ready: pass the packet on. */
	if (state == RT_XSK_OFF)
		return XDP_PASS;
	offered = rt_count(&counts->offered);
	if (!rt_is_wanted(ctx, tag)) {
		rt_count(&counts->filtered);
		return XDP_PASS;
	}
	/* Readers are far behind: packets captured now would be lost later. */
	if (state == RT_XSK_PAUSED) {
		rt_count(&counts->paused);
		return XDP_PASS;
	}
	/* No room for the stamp, without which the packet could not be counted. */
	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*stamp))) {
		rt_count(&counts->failed);
		return XDP_PASS;
	}
	stamp = (void *)(long)ctx->data_meta;
	if ((void *)(stamp + 1) > (void *)(long)ctx->data) {
		rt_count(&counts->failed);
		return XDP_PASS;
	}
	stamp->time_ns = nic_time_ns ? nic_time_ns | RT_XSK_NIC_TIME : bpf_ktime_get_tai_ns();
	stamp->offered = offered;
	stamp->filtered = counts->filtered;
	stamp->tag = tag;
	action = bpf_redirect_map(&rt_sockets, queue, XDP_PASS);
	if (action != XDP_REDIRECT)
		rt_count(&counts->failed);
	return action;
}

SEC("xdp.frags")
int rt_xsk(struct xdp_md *ctx)
{
	return rt_hand_over(ctx, 0, 0);
}

/* Bound to one device, whose driver reports the VLAN tags that it strips, and time stamps. */
SEC("xdp.frags")
int rt_xsk_bound(struct xdp_md *ctx)
{
	__u64 time_ns = 0;
	__be16 proto = 0;
	__u16 tci = 0;
	__u32 tag = 0;

	if (!bpf_xdp_metadata_rx_vlan_tag(ctx, &proto, &tci))
		tag = proto | (__u32)__builtin_bswap16(tci) << 16;
	if (xsk_config.nic_time && bpf_xdp_metadata_rx_timestamp(ctx, &time_ns))
		time_ns = 0;
	return rt_hand_over(ctx, tag, time_ns);
}

/* Never called: adds the stamp to the BTF, which a test compares with the Rust view. */
int rt_stamp_format(const struct rt_stamp *stamp)
{
	return !stamp;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
