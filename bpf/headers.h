/* SPDX-License-Identifier: Dual MIT/GPL */
/*
 * Headers of a packet: Ethernet, VLAN tags, MPLS, PPPoE and IP. ringtap_filter::hash specifies the rules;
 * a test compares the two.
 * One parser for all hooks, which differ only in how they read bytes: a flow has the same hash wherever its packets are
 * seen. Numbers of tags, labels and extension headers are limited, because the verifier follows each turn of a loop.
 */
#ifndef RINGTAP_HEADERS_H
#define RINGTAP_HEADERS_H

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "verifier.h"

enum rt_hook {
	RT_XDP,
	RT_TC,
	RT_BYTES, /* the first bytes of the packet are at rt_view.bytes */
};

#define RT_MACS 12 /* bytes before a VLAN tag */
#define RT_TAG 4
#define RT_MAX_BYTES 256 /* of a packet at rt_view.bytes; as many lie behind them */

#define RT_MOST_TAGS 3
#define RT_MOST_LABELS 4
#define RT_MOST_EXTENSIONS 4

#define RT_IPV4 0x0800
#define RT_IPV6 0x86dd
#define RT_MPLS 0x8847
#define RT_MPLS_MULTICAST 0x8848
#define RT_PPPOE 0x8864 /* a session's packets */

#define RT_HOP_BY_HOP 0
#define RT_TCP 6
#define RT_UDP 17
#define RT_ROUTING 43
#define RT_FRAGMENT 44
#define RT_IPV4_IN_IP 4
#define RT_IPV6_IN_IP 41
#define RT_GRE 47
#define RT_DESTINATION 60
#define RT_SCTP 132

/* Whether an ethertype, in network order, begins a VLAN tag. */
static __always_inline int rt_is_vlan(__u32 type)
{
	return type == bpf_htons(0x8100) || type == bpf_htons(0x88a8) || type == bpf_htons(0x9100);
}

static __always_inline __u32 rt_tag(__u32 network_proto, __u32 tci)
{
	return (network_proto & 0xffff) | (__u32)__builtin_bswap16(tci) << 16;
}

/* The captured bytes of a packet, with the stripped VLAN tag restored. */
struct rt_view {
	void *ctx;
	__u64 hook;
	__u64 tag;
	__u64 shift; /* rt_shift() of the tag */
	__u64 captured;
	const __u8 *bytes;
	__u64 length; /* unknown to the verifier: used with rt_forget() */
	__u64 is_detailed; /* 1: VLAN numbers and numbers of tunnels, too */
};

/* The fields to hash. */
struct rt_found {
	__u32 source[4]; /* addresses in words, host order */
	__u32 destination[4];
	__u32 words; /* of an address: 2 for MAC, 1 for IPv4, 4 for IPv6 addresses */
	__u32 is_ip;
	__u32 last;  /* the protocol, without IP the ethertype */
	__u32 ports; /* the source's in the upper half */
	__u32 payload; /* its offset; 0 for fragments */
	__u32 header;  /* offset of the IP header */
	__u32 total;   /* length that the IP header claims; 0 if none */
	__u32 vlans[RT_MOST_TAGS]; /* numbers of the tags; 0 without */
	__u32 service; /* type of service, or traffic class */
};

typedef __u64 __attribute__((may_alias)) rt_word64;
typedef __u32 __attribute__((may_alias)) rt_word32;
typedef __u16 __attribute__((may_alias)) rt_word16;

/* Copies a constant number of bytes in words, which clang would copy one by one. */
static __always_inline void rt_copy_words(void *to, const __u8 *from, __u32 size)
{
	__u32 at = 0;

	for (; at + 8 <= size; at += 8)
		*(rt_word64 *)(to + at) = *(const rt_word64 *)(from + at);
	if (size & 4) {
		*(rt_word32 *)(to + at) = *(const rt_word32 *)(from + at);
		at += 4;
	}
	if (size & 2) {
		*(rt_word16 *)(to + at) = *(const rt_word16 *)(from + at);
		at += 2;
	}
	if (size & 1)
		*(__u8 *)(to + at) = from[at];
}

/*
 * Bytes of a restored tag. The verifier learns nothing of the tag or the result, so it does not follow all that
 * comes once for packets with a tag and once for those without.
 */
static __always_inline __u64 rt_shift(__u64 tag, __u64 unknown)
{
	__u64 shift;

	rt_forget(tag, unknown);
	shift = tag ? RT_TAG : 0;
	rt_forget(shift, unknown);
	return shift;
}

/* Reads bytes after the first tag; returns 0 if they were not captured completely. */
static __always_inline int rt_read(const struct rt_view *view, __u64 at, void *to, __u32 size)
{
	__u64 from = at - view->shift;

	if (at + size > view->captured)
		return 0;
	if (view->hook == RT_BYTES) {
		rt_opaque(from);
		rt_copy_words(to, view->bytes + (from & (RT_MAX_BYTES - 1)), size);
		return 1;
	}
	if (view->hook == RT_TC)
		return !bpf_skb_load_bytes(view->ctx, from, to, size);
	return !bpf_xdp_load_bytes(view->ctx, from, to, size);
}

/* Skips an Ethernet header and its tags: advances `at`, returns the last ethertype; 0 if too short. */
static __always_inline int rt_ethernet(const struct rt_view *view, __u64 *at, int is_outer,
				       struct rt_found *found)
{
	struct {
		__be16 destination[3];
		__be16 source[3];
		__be16 type;
		__u16 reserved;
	} head __attribute__((aligned(8))) = {};
	struct rt_view untagged = *view;
	__u32 type;

	untagged.tag = 0;
	untagged.shift = 0;
	if (is_outer && view->tag) {
		if (view->captured < RT_MACS + 2 || !rt_read(&untagged, 0, &head, RT_MACS))
			return 0;
		head.type = view->tag;
	} else if (!rt_read(is_outer ? &untagged : view, *at, &head, RT_MACS + 2)) {
		return 0;
	}
	*at += RT_MACS + 2;
	type = head.type;
	for (int i = 0; i < RT_MOST_TAGS; i++) {
		__be16 next;

		if (!rt_is_vlan(type))
			break;
		rt_forget(type, view->length);
		if (!rt_read(view, *at + 2, &next, sizeof(next)))
			break;
		/* The first tag of the packet may be the restored one. */
		if (view->is_detailed && (i || !is_outer || !view->tag) && rt_read(view, *at, &next, sizeof(next)))
			found->vlans[i] = bpf_ntohs(next) & 0xfff;
		if (!rt_read(view, *at + 2, &next, sizeof(next)))
			break;
		type = next;
		*at += RT_TAG;
	}
	rt_forget(*at, view->length);
	rt_forget(type, view->length);
	found->words = 2;
	found->is_ip = 0;
	found->source[0] = bpf_ntohs(head.source[0]);
	found->source[1] = (__u32)bpf_ntohs(head.source[1]) << 16 | bpf_ntohs(head.source[2]);
	found->destination[0] = bpf_ntohs(head.destination[0]);
	found->destination[1] =
		(__u32)bpf_ntohs(head.destination[1]) << 16 | bpf_ntohs(head.destination[2]);
	found->last = bpf_ntohs(type);
	found->ports = 0;
	found->payload = 0;
	return 1;
}

/* The outermost VLAN number; 0 without a tag. */
static __always_inline __u32 rt_vlan_number(const struct rt_view *view)
{
	__be16 tag[2] __attribute__((aligned(4)));

	if (view->tag)
		return bpf_ntohs(view->tag >> 16) & 0xfff;
	if (!rt_read(view, RT_MACS, tag, sizeof(tag)) || !rt_is_vlan(tag[0]))
		return 0;
	return bpf_ntohs(tag[1]) & 0xfff;
}

/* Ethertype of an IP packet, by its first byte; 0 if it is neither IPv4 nor IPv6. */
static __always_inline __u32 rt_version(const struct rt_view *view, __u64 at)
{
	__u8 version;

	if (!rt_read(view, at, &version, 1))
		return 0;
	version >>= 4;
	return version == 4 ? RT_IPV4 : version == 6 ? RT_IPV6 : 0;
}

/* Skips MPLS labels: advances `at`, returns the ethertype of what follows; 0 if that is not IP. */
static __always_inline __u32 rt_mpls(const struct rt_view *view, __u64 *at)
{
	for (int i = 0; i < RT_MOST_LABELS; i++) {
		__u8 label[4] __attribute__((aligned(4)));

		if (!rt_read(view, *at, label, sizeof(label)))
			return 0;
		*at += sizeof(label);
		if (label[2] & 1)
			return rt_version(view, *at);
	}
	return 0;
}

/* Skips a PPPoE session header: advances `at`, returns the ethertype of what follows; 0 if that is not IP. */
static __always_inline __u32 rt_pppoe(const struct rt_view *view, __u64 *at)
{
	__u8 head[8] __attribute__((aligned(8)));

	if (!rt_read(view, *at, head, sizeof(head)) || head[0] != 0x11 || head[1] || head[6])
		return 0;
	*at += sizeof(head);
	return head[7] == 0x21 ? RT_IPV4 : head[7] == 0x57 ? RT_IPV6 : 0;
}

/* Skips MPLS labels or a PPPoE session header, if `type` names them; returns the ethertype at the new `at`. */
static __always_inline __u32 rt_labels(const struct rt_view *view, __u64 *at, __u32 type)
{
	if (type == RT_MPLS || type == RT_MPLS_MULTICAST)
		type = rt_mpls(view, at);
	else if (type == RT_PPPOE)
		type = rt_pppoe(view, at);
	rt_forget(type, view->length);
	rt_forget(*at, view->length);
	return type;
}

static __always_inline void rt_ports(const struct rt_view *view, struct rt_found *found)
{
	__be32 ports;

	found->ports = 0;
	if (found->last != RT_TCP && found->last != RT_UDP && found->last != RT_SCTP)
		return;
	if (found->payload && rt_read(view, found->payload, &ports, sizeof(ports)))
		found->ports = bpf_ntohl(ports);
}

static __always_inline int rt_ipv4(const struct rt_view *view, __u64 at, struct rt_found *found)
{
	struct {
		__u8 version_length, service;
		__be16 total, id, fragment;
		__u8 hops, protocol;
		__be16 sum;
		__be32 source, destination;
	} head __attribute__((aligned(8)));
	__u32 length;

	if (!rt_read(view, at, &head, sizeof(head)))
		return 0;
	length = (head.version_length & 0xf) * 4;
	if (head.version_length >> 4 != 4 || length < sizeof(head))
		return 0;
	found->words = 1;
	found->is_ip = 1;
	found->source[0] = bpf_ntohl(head.source);
	found->destination[0] = bpf_ntohl(head.destination);
	found->last = head.protocol;
	found->payload = head.fragment & bpf_htons(0x3fff) ? 0 : at + length;
	found->header = at;
	found->total = bpf_ntohs(head.total);
	found->service = head.service;
	rt_ports(view, found);
	return 1;
}

static __always_inline void rt_extensions(const struct rt_view *view, __u64 at, __u32 protocol,
					  struct rt_found *found)
{
	found->payload = 0;
	for (int i = 0; i < RT_MOST_EXTENSIONS; i++) {
		__u8 head[8] __attribute__((aligned(8)));

		if (!rt_read(view, at, head, sizeof(head)))
			break;
		if (protocol == RT_FRAGMENT) {
			found->last = head[0];
			return;
		}
		if (protocol != RT_HOP_BY_HOP && protocol != RT_ROUTING &&
		    protocol != RT_DESTINATION)
			break;
		protocol = head[0];
		at += 8 + 8 * head[1];
	}
	found->last = protocol;
	found->payload = at;
}

static __always_inline int rt_ipv6(const struct rt_view *view, __u64 at, struct rt_found *found)
{
	struct {
		__be32 version_class_label;
		__be16 length;
		__u8 protocol, hops;
		__be32 source[4], destination[4];
	} head __attribute__((aligned(8)));

	if (!rt_read(view, at, &head, sizeof(head)))
		return 0;
	if (bpf_ntohl(head.version_class_label) >> 28 != 6)
		return 0;
	found->words = 4;
	found->is_ip = 1;
	for (int i = 0; i < 4; i++) {
		found->source[i] = bpf_ntohl(head.source[i]);
		found->destination[i] = bpf_ntohl(head.destination[i]);
	}
	found->header = at;
	found->service = bpf_ntohl(head.version_class_label) >> 20 & 0xff;
	found->total = head.length ? sizeof(head) + bpf_ntohs(head.length) : 0;
	rt_extensions(view, at + sizeof(head), head.protocol, found);
	rt_ports(view, found);
	return 1;
}

static __always_inline int rt_ip(const struct rt_view *view, __u64 at, __u32 type,
				 struct rt_found *found)
{
	int is_ip = 0;

	if (type == RT_IPV4)
		is_ip = rt_ipv4(view, at, found);
	else if (type == RT_IPV6)
		is_ip = rt_ipv6(view, at, found);
	rt_forget(is_ip, view->length);
	rt_forget(found->words, view->length);
	rt_forget(found->is_ip, view->length);
	rt_forget(found->last, view->length);
	rt_forget(found->ports, view->length);
	rt_forget(found->payload, view->length);
	if (view->hook == RT_BYTES) { /* others do not use them */
		rt_forget(found->header, view->length);
		rt_forget(found->total, view->length);
		rt_forget(found->service, view->length);
	}
	return is_ip;
}

#endif
