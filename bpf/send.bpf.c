// SPDX-License-Identifier: Dual MIT/GPL
/*
 * The sender: fills live frames (BPF_F_TEST_XDP_LIVE_FRAMES) and redirects them to an
 * interface; a tracepoint counts the frames that the device took.
 * A live frame is a recycled page, which an earlier receiver may have changed. The program
 * therefore writes all headers anew for each packet. It does not rewrite payloads: a receiver
 * that changes payloads in place sees its own changes again.
 */
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "send.h"

#define RT_STAMP_MAGIC 0x5254 /* "RT" */
#define RT_STAMP_BYTES 18
#define RT_WAITING 64 /* more than the 16 frames that a device's bulk queue holds */

const volatile struct rt_send_config config SEC(".rodata.config") = {};
struct rt_send_counters counters SEC(".data.counters") = {};
/* CLOCK_REALTIME minus CLOCK_MONOTONIC; user space sets it before each run. */
__s64 clock_offset_ns SEC(".data.clock") = 0;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, RT_SEND_CELLS);
	__type(key, __u32);
	__type(value, struct rt_send_cell);
} rt_send_cells SEC(".maps");

/* Lengths of frames between redirect and device, which takes or refuses them in this order. */
static __u16 waiting[RT_WAITING];
static __u32 waiting_head, waiting_tail;
/* The sending task. Softirq is off while frames wait, so only its own frames are counted. */
static __u64 task;

static __u32 flow, position, cell;

struct rt_stamp {
	__be16 magic;
	__be64 sequence;
	__be64 time_ns;
} __attribute__((packed));

/* A word at any address, since packet fields are unaligned. */
struct rt_word {
	__u64 value;
} __attribute__((packed));

static __always_inline __u32 sum_u64(__u64 value)
{
	return (__u32)(value >> 48) + (__u16)(value >> 32) + (__u16)(value >> 16) + (__u16)value;
}

/* The checksum field for a sum of 16-bit words, both in host order. */
static __always_inline __u16 checksum(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (__u16)~sum;
}

static __always_inline int redirect(__u32 length)
{
	waiting[waiting_tail++ % RT_WAITING] = (__u16)length;
	counters.attempted++;
	task = bpf_get_current_task();
	return (int)bpf_redirect(config.ifindex, 0);
}

/* Writes sequence number and time; returns what they add to the checksum. */
static __always_inline __u32 stamp(struct rt_stamp *at)
{
	__u64 time_ns = bpf_ktime_get_ns() + clock_offset_ns;
	__u64 sequence = counters.attempted;

	at->magic = bpf_htons(RT_STAMP_MAGIC);
	at->sequence = bpf_cpu_to_be64(sequence);
	at->time_ns = bpf_cpu_to_be64(time_ns);
	return RT_STAMP_MAGIC + sum_u64(sequence) + sum_u64(time_ns);
}

/* Writes the header of one shape; all constant fields are correct afterwards. */
static __always_inline void write_head(__u8 *data, const volatile __u8 *head)
{
	__u32 last = config.head_length - sizeof(struct rt_word);

	for (__u32 at = 0; at < last; at += sizeof(struct rt_word))
		((struct rt_word *)(data + at))->value = ((struct rt_word *)(head + at))->value;
	((struct rt_word *)(data + last))->value = ((struct rt_word *)(head + last))->value;
}

/* Sends the next generated packet; drops it uncounted if its page is too short. */
SEC("xdp")
int rt_send_made(struct xdp_md *ctx)
{
	const volatile struct rt_send_shape *shape = &config.shapes[0];
	__u32 address = config.address + flow, port = config.port + flow % config.port_span;
	__u32 sum;
	__u8 *data;

	if (config.cycle > 1) {
		__u32 which = position < RT_SEND_CYCLE ? config.order[position] : 0;

		shape = &config.shapes[which % RT_SEND_SHAPES];
		position = position + 1 < config.cycle ? position + 1 : 0;
		if (bpf_xdp_adjust_tail(ctx, (int)(shape->length - bpf_xdp_get_buff_len(ctx))))
			return XDP_DROP;
	}
	data = (__u8 *)(long)ctx->data;
	if (data + config.head_length + RT_STAMP_BYTES > (__u8 *)(long)ctx->data_end) {
		if (config.stamp_at || data + config.head_length > (__u8 *)(long)ctx->data_end)
			return XDP_DROP;
	}
	write_head(data, shape->head);
	*(__be32 *)(data + config.address_at) = bpf_htonl(address);
	*(__be16 *)(data + config.port_at) = bpf_htons(port);
	sum = (address >> 16) + (address & 0xffff);
	if (config.ip_sum_at)
		*(__be16 *)(data + config.ip_sum_at) = bpf_htons(checksum(shape->ip_sum + sum));
	sum += shape->transport_sum + port;
	if (config.stamp_at && data + config.stamp_at + RT_STAMP_BYTES <= (__u8 *)(long)ctx->data_end)
		sum += stamp((struct rt_stamp *)(data + config.stamp_at));
	sum = checksum(sum);
	if (config.udp && !sum) /* in UDP, 0 means: no checksum */
		sum = 0xffff;
	*(__be16 *)(data + config.transport_sum_at) = bpf_htons(sum);
	flow = flow + 1 < config.flows ? flow + 1 : 0;
	return redirect(shape->length);
}

/* Sends the next packet of a file; drops it uncounted if its cell is invalid. */
SEC("xdp")
int rt_send_file(struct xdp_md *ctx)
{
	__u32 index = cell % RT_SEND_CELLS;
	struct rt_send_cell *from = bpf_map_lookup_elem(&rt_send_cells, &index);
	__u64 length;

	if (!from)
		return XDP_DROP;
	length = from->length;
	if (length < 14 || length > RT_SEND_CELL_BYTES)
		return XDP_DROP;
	if (bpf_xdp_adjust_tail(ctx, (int)(length - bpf_xdp_get_buff_len(ctx))))
		return XDP_DROP;
	if (bpf_xdp_store_bytes(ctx, 0, from->data, length))
		return XDP_DROP;
	cell++;
	return redirect(length);
}

/* xdp_devmap_xmit(from, to, sent, drops, err): outcome of one bulk of our frames. */
SEC("raw_tp/xdp_devmap_xmit")
int rt_send_taken(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 sent = (__u32)ctx->args[2], drops = (__u32)ctx->args[3];

	if (waiting_head == waiting_tail || bpf_get_current_task() != task)
		return 0;
	for (__u32 i = 0; i < RT_WAITING && i < sent; i++)
		counters.sent_bytes += waiting[(waiting_head + i) % RT_WAITING];
	waiting_head += sent + drops;
	counters.sent += sent;
	counters.refused += drops;
	if (drops)
		counters.refusal = (__s32)ctx->args[4];
	return 0;
}

/* xdp_redirect_err(from, prog, to, err, ...): the latest frame did not reach a queue. */
SEC("raw_tp/xdp_redirect_err")
int rt_send_refused(struct bpf_raw_tracepoint_args *ctx)
{
	if (waiting_head == waiting_tail || bpf_get_current_task() != task)
		return 0;
	waiting_tail--;
	counters.refused++;
	counters.refusal = (__s32)ctx->args[3];
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
