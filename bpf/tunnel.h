/* SPDX-License-Identifier: Dual MIT/GPL */
/* Headers of tunnels: VXLAN, GRE, GTP-U. ringtap_filter::hash specifies the rules; a test compares the two. */
#ifndef RINGTAP_TUNNEL_H
#define RINGTAP_TUNNEL_H

#include "headers.h"

#define RT_ETHERNET 0x6558 /* GRE protocol type */
#define RT_VXLAN_PORT 4789
#define RT_GTP_PORT 2152

/* Skips the extensions of GTP-U; returns 0 if there are too many. */
static __always_inline int rt_gtp_extensions(const struct rt_view *view, __u64 *at, __u8 next)
{
	for (int i = 0; i < RT_MOST_EXTENSIONS; i++) {
		__u8 units;
		__u64 length;

		if (!next)
			return 1;
		if (!rt_read(view, *at, &units, 1) || !units)
			return 0;
		length = 4 * units;
		if (!rt_read(view, *at + length - 1, &next, 1))
			return 0;
		*at += length;
	}
	return !next;
}

/* Skips a GTP-U header: advances `at`, returns the ethertype of the payload; 0 if unknown. */
static __always_inline __u32 rt_gtp(const struct rt_view *view, __u64 *at)
{
	__u8 head[8] __attribute__((aligned(8))), options[4] __attribute__((aligned(4)));

	if (!rt_read(view, *at, head, sizeof(head)) || (head[0] & 0xf0) != 0x30 || head[1] != 255)
		return 0;
	*at += sizeof(head);
	if (head[0] & 0x07) {
		if (!rt_read(view, *at, options, sizeof(options)))
			return 0;
		*at += sizeof(options);
		if (head[0] & 0x04 && !rt_gtp_extensions(view, at, options[3]))
			return 0;
	}
	return rt_version(view, *at);
}

static __always_inline __u32 rt_gre(const struct rt_view *view, __u64 *at)
{
	__be16 head[2] __attribute__((aligned(4)));
	__u32 flags;

	if (!rt_read(view, *at, head, sizeof(head)))
		return 0;
	flags = bpf_ntohs(head[0]);
	if (flags & 0x4007)
		return 0;
	*at += sizeof(head) + 4 * ((flags >> 15 & 1) + (flags >> 13 & 1) + (flags >> 12 & 1));
	return bpf_ntohs(head[1]);
}

static __always_inline __u32 rt_vxlan(const struct rt_view *view, __u64 *at)
{
	__u8 head[8] __attribute__((aligned(8)));

	if (!rt_read(view, *at, head, sizeof(head)) || !(head[0] & 0x08))
		return 0;
	*at += sizeof(head);
	return RT_ETHERNET;
}

/* Ethertype of a tunnel's payload, and its offset; 0 if the packet is no tunnel's. */
static __always_inline __u32 rt_tunnel(const struct rt_view *view, const struct rt_found *outer,
				       __u64 *at)
{
	__u32 port = outer->ports & 0xffff;

	if (!outer->is_ip || !outer->payload)
		return 0;
	*at = outer->payload;
	if (outer->last == RT_GRE)
		return rt_gre(view, at);
	if (outer->last != RT_UDP)
		return 0;
	*at += 8;
	if (port == RT_VXLAN_PORT)
		return rt_vxlan(view, at);
	return port == RT_GTP_PORT ? rt_gtp(view, at) : 0;
}

#endif
