/* SPDX-License-Identifier: Dual MIT/GPL */
/*
 * Headers of tunnels: those that ringtap_filter::hash marks with K, one level deep. It specifies the rules; a test
 * compares the two.
 * One level only: behind each further one, the verifier would follow all paths through the headers again.
 */
#ifndef RINGTAP_TUNNEL_H
#define RINGTAP_TUNNEL_H

#include "headers.h"

#define RT_ETHERNET 0x6558 /* GRE protocol type */
#define RT_ERSPAN2 0x88be /* and type I; GRE protocol types */
#define RT_ERSPAN3 0x22eb
#define RT_VXLAN_PORT 4789
#define RT_GTP_PORT 2152
#define RT_GENEVE_PORT 6081
#define RT_MPLS_PORT 6635

/* A tunnel's number in its header, if it has one; read only with rt_view.is_detailed. */
struct rt_tunnel_id {
	__u32 kind; /* RT_TUNNEL_*; 0: no tunnel */
	__u32 is_set;
	__u32 number;
};

/* As enum TunnelKind of ringtap_filter::hash, plus 1. */
enum rt_tunnel_kind {
	RT_TUNNEL_IP = 1,
	RT_TUNNEL_GRE,
	RT_TUNNEL_NVGRE,
	RT_TUNNEL_ERSPAN,
	RT_TUNNEL_MPLS,
	RT_TUNNEL_L2TP,
	RT_TUNNEL_VXLAN,
	RT_TUNNEL_GENEVE,
	RT_TUNNEL_GTP,
};

static __always_inline void rt_name(struct rt_tunnel_id *id, enum rt_tunnel_kind kind, __u32 number)
{
	id->kind = kind;
	id->is_set = 1;
	id->number = number;
}

/* A number of 4 bytes. */
static __always_inline __u32 rt_number_at(const __u8 *bytes)
{
	return (__u32)bytes[0] << 24 | (__u32)bytes[1] << 16 | (__u32)bytes[2] << 8 | bytes[3];
}

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
static __always_inline __u32 rt_gtp(const struct rt_view *view, __u64 *at, struct rt_tunnel_id *id)
{
	__u8 head[8] __attribute__((aligned(8))), options[4] __attribute__((aligned(4)));

	if (!rt_read(view, *at, head, sizeof(head)) || (head[0] & 0xf0) != 0x30 || head[1] != 255)
		return 0;
	*at += sizeof(head);
	rt_name(id, RT_TUNNEL_GTP, rt_number_at(head + 4));
	if (head[0] & 0x07) {
		if (!rt_read(view, *at, options, sizeof(options)))
			return 0;
		*at += sizeof(options);
		if (head[0] & 0x04 && !rt_gtp_extensions(view, at, options[3]))
			return 0;
	}
	return rt_version(view, *at);
}

/* The type of a packet in GRE or Geneve; 0 if it is neither Ethernet nor IP. */
static __always_inline __u32 rt_inner_type(__u32 type)
{
	return type == RT_ETHERNET || type == RT_IPV4 || type == RT_IPV6 ? type : 0;
}

/* Skips an ERSPAN header of type II or III. */
static __always_inline __u32 rt_erspan(const struct rt_view *view, __u64 *at, struct rt_tunnel_id *id)
{
	__u8 head[8] __attribute__((aligned(8))), more[4] __attribute__((aligned(4)));
	__u32 version;

	if (!rt_read(view, *at, head, sizeof(head)))
		return 0;
	version = head[0] >> 4;
	rt_name(id, RT_TUNNEL_ERSPAN, (head[2] & 3) << 8 | head[3]);
	*at += sizeof(head);
	if (version == 1)
		return RT_ETHERNET;
	if (version != 2 || !rt_read(view, *at, more, sizeof(more)))
		return 0;
	*at += sizeof(more) + (more[3] & 1 ? 8 : 0);
	version = more[2] >> 2 & 0x1f; /* of the frame */
	return !version ? RT_ETHERNET : version == 2 ? rt_version(view, *at) : 0;
}

/* The last MPLS label is the number of the tunnel. */
static __always_inline __u32 rt_mpls_tunnel(const struct rt_view *view, __u64 *at,
					    struct rt_tunnel_id *id)
{
	__u32 type = rt_mpls(view, at);
	__u8 label[4] __attribute__((aligned(4)));

	if (!type || !rt_read(view, *at - sizeof(label), label, sizeof(label)))
		return 0;
	rt_name(id, RT_TUNNEL_MPLS, rt_number_at(label) >> 12);
	return type;
}

/* The key of GRE, or NVGRE's number. */
static __always_inline void rt_gre_key(const struct rt_view *view, __u64 at, __u32 flags, __u32 type,
				       struct rt_tunnel_id *id)
{
	__u8 key[4] __attribute__((aligned(4)));
	__u32 number;

	id->kind = RT_TUNNEL_GRE;
	if (!view->is_detailed || !(flags & 0x2000))
		return;
	if (!rt_read(view, at + (flags & 0x8000 ? 4 : 0), key, sizeof(key)))
		return;
	number = rt_number_at(key);
	if (type == RT_ETHERNET && flags == 0x2000 && number >> 8 >= 0x1000 && number >> 8 < 0xffffff)
		rt_name(id, RT_TUNNEL_NVGRE, number >> 8);
	else
		rt_name(id, RT_TUNNEL_GRE, number);
}

static __always_inline __u32 rt_gre(const struct rt_view *view, __u64 *at, struct rt_tunnel_id *id)
{
	__be16 head[2] __attribute__((aligned(4)));
	__u32 flags, type;

	if (!rt_read(view, *at, head, sizeof(head)))
		return 0;
	flags = bpf_ntohs(head[0]);
	type = bpf_ntohs(head[1]);
	if (flags & 0x4007)
		return 0;
	*at += sizeof(head);
	rt_gre_key(view, *at, flags, type, id);
	*at += 4 * ((flags >> 15 & 1) + (flags >> 13 & 1) + (flags >> 12 & 1));
	if (type == RT_ERSPAN2 && !(flags & 0x1000)) {
		id->kind = RT_TUNNEL_ERSPAN;
		return RT_ETHERNET;
	}
	if (type == RT_ERSPAN2 || type == RT_ERSPAN3)
		return rt_erspan(view, at, id);
	if (type == RT_MPLS || type == RT_MPLS_MULTICAST)
		return rt_mpls_tunnel(view, at, id);
	return rt_inner_type(type);
}

static __always_inline __u32 rt_vxlan(const struct rt_view *view, __u64 *at, struct rt_tunnel_id *id)
{
	__u8 head[8] __attribute__((aligned(8)));

	if (!rt_read(view, *at, head, sizeof(head)) || !(head[0] & 0x08))
		return 0;
	*at += sizeof(head);
	rt_name(id, RT_TUNNEL_VXLAN, rt_number_at(head + 4) >> 8);
	return RT_ETHERNET;
}

static __always_inline __u32 rt_geneve(const struct rt_view *view, __u64 *at, struct rt_tunnel_id *id)
{
	__u8 head[8] __attribute__((aligned(8)));

	/* Version 0, no control message. */
	if (!rt_read(view, *at, head, sizeof(head)) || head[0] >> 6 || head[1] & 0x80)
		return 0;
	*at += sizeof(head) + 4 * (head[0] & 0x3f);
	rt_name(id, RT_TUNNEL_GENEVE, rt_number_at(head + 4) >> 8);
	return rt_inner_type(head[2] << 8 | head[3]);
}

static __always_inline __u32 rt_udp_tunnel(const struct rt_view *view, __u32 port, __u64 *at,
					   struct rt_tunnel_id *id)
{
	*at += 8;
	if (port == RT_VXLAN_PORT)
		return rt_vxlan(view, at, id);
	if (port == RT_GENEVE_PORT)
		return rt_geneve(view, at, id);
	if (port == RT_MPLS_PORT)
		return rt_mpls_tunnel(view, at, id);
	return port == RT_GTP_PORT ? rt_gtp(view, at, id) : 0;
}

/* Ethertype of a tunnel's payload, and its offset; 0 if the packet is no tunnel's. */
static __always_inline __u32 rt_tunnel(const struct rt_view *view, const struct rt_found *outer,
				       __u64 *at, struct rt_tunnel_id *id)
{
	if (!outer->is_ip || !outer->payload)
		return 0;
	*at = outer->payload;
	if (outer->last == RT_UDP)
		return rt_udp_tunnel(view, outer->ports & 0xffff, at, id);
	if (outer->last == RT_GRE)
		return rt_gre(view, at, id);
	id->kind = RT_TUNNEL_IP;
	return outer->last == RT_IPV4_IN_IP ? RT_IPV4 : outer->last == RT_IPV6_IN_IP ? RT_IPV6 : 0;
}

#endif
