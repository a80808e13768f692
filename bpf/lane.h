/* SPDX-License-Identifier: Dual MIT/GPL */
/*
 * A lane: one CPU's stream of chunks. Reserves room for a packet, publishes it, and signals
 * sleeping readers. Only one run on a CPU is inside (rt_enter in verifier.h), so a lane needs no lock.
 */
#ifndef RINGTAP_LANE_H
#define RINGTAP_LANE_H

#include "tap.h"

/*
 * Maximum number of recycled chunks taken over for one that is opened. The verifier follows each turn of the
 * loop, for each path that leads to it.
 */
#define RT_DRAIN 2

#if defined(__TARGET_ARCH_x86)
/* x86 does not reorder stores with stores, nor loads with loads. */
#define rt_store_release(word, value)                                  \
	do {                                                           \
		rt_compiler_barrier();                                 \
		*(volatile typeof(word) *)&(word) = (value);           \
	} while (0)
#define rt_load_acquire(word) rt_load(word)
#else
#define rt_store_release(word, value) ((void)__sync_lock_test_and_set(&(word), (value)))
#define rt_load_acquire(word) __sync_fetch_and_add(&(word), 0)
#endif

/* Room for one packet. */
struct rt_room {
	struct rt_chunk *chunk;
	struct rt_slot *slot;
	__u8 *payload;
	__u32 payload_offset; /* in the chunk */
};

static __always_inline __u8 *rt_segment(__u32 chunk)
{
	__u32 segment = chunk >> config.segment_shift;

	return bpf_map_lookup_elem(&rt_pool, &segment);
}

/* Address of byte `offset` of a chunk; the slack makes RT_SLACK bytes from there accessible. */
static __always_inline void *rt_at(__u8 *segment, __u32 chunk, __u32 offset)
{
	__u64 at = ((__u64)chunk << config.chunk_shift) + offset;

	rt_opaque(at);
	return segment + (at & config.segment_mask);
}

static __always_inline void rt_signal(struct rt_control *words, __u32 lane, __u32 event)
{
	__u64 note = lane;

	if (rt_load(words->wake) < event)
		return;
	words->wake = RT_WAKE_NEVER;
	/* A full ring already holds unread signals. */
	bpf_ringbuf_output(&rt_wakeups, &note, sizeof(note), BPF_RB_FORCE_WAKEUP);
}

/*
 * Accepts a recycled chunk number and marks the chunk as free. Refuses a chunk of another lane and
 * one that was recycled already, so that user space cannot cause a write into either.
 */
static __always_inline int rt_come_back(__u64 number, __u32 index)
{
	struct rt_chunk *chunk;
	__u8 *segment;

	if (!number || number >= config.chunk_count)
		return 0;
	segment = rt_segment(number);
	if (!segment)
		return 0;
	chunk = rt_at(segment, number, 0);
	if (chunk->lane != index || !(chunk->state & RT_SEALED))
		return 0;
	/* Not sealed, like a chunk that was never opened. */
	chunk->state = 0;
	return 1;
}

/* Moves recycled chunks to the lane's stack, the last one on top. */
static __always_inline void rt_drain(struct rt_lane *lane, __u32 index, struct rt_control *words)
{
	__u32 size = 1U << config.ring_shift, base = index << config.ring_shift;
	__u32 head = lane->recycle_head, waiting = rt_load_acquire(words->recycle_tail) - head;

	/* User space corrupted its own ring: do not repair it. */
	if (waiting > size) {
		lane->refused++;
		return;
	}
	for (int i = 0; i < RT_DRAIN; i++) {
		__u32 key = base + (head & (size - 1));
		__u64 *entry, *top, chunk;

		if (!waiting)
			break;
		entry = bpf_map_lookup_elem(&rt_recycle_ring, &key);
		key = base + lane->free_depth;
		top = bpf_map_lookup_elem(&rt_free_chunks, &key);
		if (!entry || !top)
			break;
		chunk = rt_load(*entry);
		head++;
		waiting--;
		if (lane->free_depth >= size || !rt_come_back(chunk, index)) {
			lane->refused++;
			continue;
		}
		*top = chunk;
		lane->free_depth++;
	}
	rt_store_release(lane->recycle_head, head);
}

/* Opens the chunk that was freed last and hands it to the readers; returns 0 if none is free. */
static __noinline int rt_open(struct rt_lane *lane, __u32 index, struct rt_control *words)
{
	__u32 key, tail;
	__u64 *free_chunk, *entry;
	struct rt_chunk *chunk;
	__u8 *segment;

	rt_drain(lane, index, words);
	if (!lane->free_depth)
		return 0;
	key = (index << config.ring_shift) + lane->free_depth - 1;
	free_chunk = bpf_map_lookup_elem(&rt_free_chunks, &key);
	tail = lane->capture_tail;
	key = (index << config.ring_shift) + (tail & ((1U << config.ring_shift) - 1));
	entry = bpf_map_lookup_elem(&rt_capture_ring, &key);
	segment = free_chunk ? rt_segment(*free_chunk) : 0;
	if (!free_chunk || !entry || !segment)
		return 0;
	lane->free_depth--;
	lane->chunk = *free_chunk;
	lane->count = 0;
	lane->back = config.chunk_size;

	chunk = rt_at(segment, lane->chunk, 0);
	chunk->state = 0;
	chunk->lane = index;
	chunk->first_sequence = lane->sequence;
	chunk->chunk_sequence = lane->chunk_sequence++;
	chunk->lost_before = lane->pool_full;
	chunk->wanted = 0;
	*entry = lane->chunk;
	rt_store_release(lane->capture_tail, tail + 1);
	rt_signal(words, index, RT_WAKE_CHUNK);
	return 1;
}

static __always_inline void rt_seal(struct rt_lane *lane)
{
	__u8 *segment = rt_segment(lane->chunk);
	struct rt_chunk *chunk;

	if (segment && lane->chunk) {
		chunk = rt_at(segment, lane->chunk, 0);
		rt_store_release(chunk->state, lane->count | RT_SEALED);
	}
	lane->chunk = 0;
	lane->back = 0;
}

/* Reserves room for `bytes` bytes of one packet; returns 0 if no chunk is free. */
static __always_inline int rt_reserve(struct rt_lane *lane, __u32 index, struct rt_control *words,
				      __u32 bytes, struct rt_room *room)
{
	__u32 need = (bytes + 7) & ~7U;
	__u32 front = sizeof(struct rt_chunk) + (lane->count + 1) * sizeof(struct rt_slot);
	int full = config.chunk_packets && lane->count >= config.chunk_packets;
	__u8 *segment;

	if (lane->back < front + need || full) {
		if (lane->chunk)
			rt_seal(lane);
		if (!rt_open(lane, index, words))
			return 0;
		front = sizeof(struct rt_chunk) + sizeof(struct rt_slot);
	}
	segment = rt_segment(lane->chunk);
	if (!segment)
		return 0;
	room->payload_offset = lane->back - need;
	room->chunk = rt_at(segment, lane->chunk, 0);
	room->slot = rt_at(segment, lane->chunk, front - sizeof(struct rt_slot));
	room->payload = rt_at(segment, lane->chunk, room->payload_offset);
	return 1;
}

/* Publishes the complete packet in `room`. */
static __always_inline void rt_publish(struct rt_lane *lane, struct rt_room *room)
{
	lane->back = room->payload_offset;
	room->chunk->wanted |= room->slot->mask;
	lane->count++;
	lane->sequence++;
	rt_store_release(room->chunk->state, lane->count);
}

#endif
