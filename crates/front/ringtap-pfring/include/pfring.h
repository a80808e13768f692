/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The part of PF_RING's interface that libpfring.so of Ringtap has: see docs/pfring.md. Names, values and
 * layouts are those of PF_RING 8.9, so that programs compiled with its header work, too.
 *
 * A call returns a negative number if it failed. Threads may share a ring, but a packet that was not copied is valid
 * only until any of them receives again; its bytes are read-only. No thread may use a ring that another one closes.
 * A signal handler may call pfring_breakloop(), pfring_shutdown() and pfring_stats(): if it interrupted another
 * call of this library, pfring_stats() returns the counters of its last call. Other calls fail there.
 */
#ifndef RINGTAP_PFRING_H
#define RINGTAP_PFRING_H

#include <netinet/in.h>
#include <stddef.h>
#include <sys/time.h>
#include <sys/types.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PF_RING_ERROR_GENERIC -1
#define PF_RING_ERROR_INVALID_ARGUMENT -2
#define PF_RING_ERROR_NO_PKT_AVAILABLE -3
#define PF_RING_ERROR_NOT_SUPPORTED -7
#define PF_RING_ERROR_RING_NOT_ENABLED -12

/* Flags of pfring_open(). Headers are parsed with PF_RING_LONG_HEADER and without PF_RING_DO_NOT_PARSE;
 * other flags change nothing. */
#define PF_RING_LONG_HEADER (1 << 2)
#define PF_RING_PROMISC (1 << 3)
#define PF_RING_TIMESTAMP (1 << 4)
#define PF_RING_DO_NOT_PARSE (1 << 9)
/* A packet's pkt_hash, or hash, is the number of its flow, for pfring_add_hw_rule(). */
#define PF_RING_FLOW_OFFLOAD (1 << 17)
#define PF_RING_FLOW_OFFLOAD_NOUPDATES (1 << 18)

#define NO_TUNNEL_ID 0xFFFFFFFF

/* A ring; its fields are not for programs compiled with this header. */
typedef struct __pfring pfring;

/* IPv4: in the host's order; IPv6: in the network's. */
typedef union {
    struct in6_addr v6;
    u_int32_t v4;
} ip_addr;

/* 0 if it is not there. */
struct pkt_offset {
    int16_t eth_offset;
    int16_t vlan_offset;
    int16_t l3_offset;
    int16_t l4_offset;
    int16_t payload_offset;
} __attribute__((packed));

/* Not filled in: tunnel_id is NO_TUNNEL_ID. */
typedef struct {
    u_int32_t tunnel_id;
    u_int8_t tunneled_dmac[6], tunneled_smac[6];
    u_int16_t tunneled_eth_type;
    u_int8_t tunneled_ip_version;
    u_int8_t tunneled_proto;
    ip_addr tunneled_ip_src, tunneled_ip_dst;
    u_int16_t tunneled_l4_src_port, tunneled_l4_dst_port;
} __attribute__((packed)) tunnel_info;

/* What the headers of a packet say. Numbers are in the host's order. */
struct pkt_parsing_info {
    u_int8_t dmac[6], smac[6];
    u_int16_t eth_type;
    u_int16_t vlan_id;      /* of the outer tag; 0 without */
    u_int16_t qinq_vlan_id; /* of the inner tag; 0 without */
    u_int8_t ip_version;
    u_int8_t l3_proto, ip_tos;
    ip_addr ip_src, ip_dst;
    u_int16_t l4_src_port, l4_dst_port;
    u_int8_t icmp_type, icmp_code;
    struct {
        u_int8_t flags;
        u_int32_t seq_num, ack_num;
    } tcp;
    tunnel_info tunnel;
    int32_t last_matched_rule_id; /* 0 */
    struct pkt_offset offset;
} __attribute__((packed));

struct pfring_extended_pkthdr {
    u_int64_t timestamp_ns; /* nanoseconds since 1970 */
    u_int32_t flags;        /* 0 */
    u_int8_t rx_direction;  /* 1: received by the NIC; 0: sent by the host */
    u_int8_t port_id;       /* 0 */
    u_int16_t device_id;    /* 0 */
    int32_t if_index;       /* -1: unknown */
    u_int32_t pkt_hash;     /* flow hash, the same in both directions */
    struct {
        int32_t bounce_interface;
        void *reserved;
    } tx; /* 0 */
    struct {
        u_int32_t pid;
    } process; /* 0 */
    struct pkt_parsing_info parsed_pkt;
} __attribute__((packed));

struct pfring_pkthdr {
    struct timeval ts;
    u_int32_t caplen; /* captured bytes */
    u_int32_t len;    /* bytes on the wire */
    struct pfring_extended_pkthdr extended_hdr;
} __attribute__((packed));

typedef struct {
    unsigned char *data;
    struct timeval ts;
    u_int16_t caplen;
    u_int16_t len;
    u_int32_t flags;
    u_int32_t hash;
} pfring_packet_info;

typedef struct {
    u_int64_t recv;  /* packets that this ring received */
    u_int64_t drop;  /* packets that were lost before it, by any reason */
    u_int64_t shunt; /* packets that flow rules withheld */
} pfring_stat;

typedef enum { rx_and_tx_direction, rx_only_direction, tx_only_direction } packet_direction;
typedef enum { send_and_recv_mode, send_only_mode, recv_only_mode } socket_mode;
/* All are the group's balance. */
typedef enum {
    cluster_per_flow,
    cluster_round_robin,
    cluster_per_flow_2_tuple,
    cluster_per_flow_4_tuple,
    cluster_per_flow_5_tuple,
    cluster_per_flow_tcp_5_tuple,
    cluster_per_inner_flow,
    cluster_per_inner_flow_2_tuple,
    cluster_per_inner_flow_4_tuple,
    cluster_per_inner_flow_5_tuple,
    cluster_per_inner_flow_tcp_5_tuple,
    cluster_per_flow_ip_5_tuple,
    cluster_per_inner_flow_ip_5_tuple,
    cluster_per_flow_ip_with_dup_tuple
} cluster_type;
#define MAX_CLUSTER_QUEUES 64

typedef void (*pfringProcesssPacket)(const struct pfring_pkthdr *header, const unsigned char *packet,
                                     const unsigned char *user);

/* Opens hub:GROUP, host:GROUP in a virtual machine, or any device of Ringtap; an interface that a hub captures
 * whole is read through the hub. NULL, and errno, if there is no such hub or interface. */
pfring *pfring_open(const char *device, u_int32_t caplen, u_int32_t flags);
void pfring_close(pfring *ring);
void pfring_shutdown(pfring *ring);

/* Begins to receive: fails if there is no such group, if it admits no further reader, or without the rights to
 * capture an interface. */
int pfring_enable_ring(pfring *ring);

/* Before pfring_enable_ring(): the name in `ringtap status`; packets to wait for. */
int pfring_set_application_name(pfring *ring, char *name);
int pfring_set_poll_watermark(pfring *ring, u_int16_t packets);

int pfring_set_direction(pfring *ring, packet_direction direction);
/* Before pfring_enable_ring(): with send_only_mode, the ring does not receive. */
int pfring_set_socket_mode(pfring *ring, socket_mode mode);
int pfring_set_bpf_filter(pfring *ring, const char *filter);
int pfring_remove_bpf_filter(pfring *ring);

/* The hub's group divides its packets among its readers, whatever the type is. Of a group that does not divide
 * them, and of an interface, a cluster has one ring: a second one is PF_RING_ERROR_NOT_SUPPORTED, because it would
 * receive all packets again. The queue must be MAX_CLUSTER_QUEUES: the hub chooses. */
int pfring_set_cluster(pfring *ring, unsigned int cluster, cluster_type type);
int pfring_set_cluster_consumer(pfring *ring, u_int16_t cluster, u_int16_t queue, cluster_type type,
                                u_int32_t options);

/* 1 and a packet, 0 without one. With `bytes` 0, *packet points to the packet; else it is copied there. */
int pfring_recv(pfring *ring, unsigned char **packet, unsigned int bytes, struct pfring_pkthdr *header,
                u_int8_t wait);

/* Returns the number of packets, at most `most`. */
int pfring_recv_burst(pfring *ring, pfring_packet_info *packets, u_int8_t most, u_int8_t wait);

/* Returns 0 after pfring_breakloop(). */
int pfring_loop(pfring *ring, pfringProcesssPacket looper, const unsigned char *user, u_int8_t wait);
void pfring_breakloop(pfring *ring);

/* Waits for packets, in milliseconds; (unsigned int)-1: without limit. Returns 1 if there are packets, else 0. */
int pfring_poll(pfring *ring, unsigned int wait_ms);

/* For poll(): receive without waiting until there is no packet, then poll. */
int pfring_get_selectable_fd(pfring *ring);

/* `drop` and `shunt` may be 10 ms old. */
int pfring_stats(pfring *ring, pfring_stat *stats);
int pfring_version(pfring *ring, u_int32_t *version);

/* As pfring_recv(), with the headers parsed up to layer 2, 3 or 4. */
int pfring_recv_parsed(pfring *ring, unsigned char **packet, unsigned int bytes, struct pfring_pkthdr *header,
                       u_int8_t wait, u_int8_t level, u_int8_t add_timestamp, u_int8_t add_hash);

/* Leaves when the ring is closed. */
int pfring_remove_from_cluster(pfring *ring);

/* Sends through the ring's interface, at once; returns the bytes. Of a group it is the interface of the hub's
 * first source, if it is in this namespace. Needs CAP_NET_RAW. */
int pfring_send(pfring *ring, char *packet, unsigned int bytes, u_int8_t flush);
int pfring_flush_tx_packets(pfring *ring);

/* Sends the packet that was received last through the interface with this number. */
int pfring_send_last_rx_packet(pfring *ring, int interface);

/* Of the ring's interface; PF_RING_ERROR_NOT_SUPPORTED if it has none here. */
int pfring_get_mtu_size(pfring *ring);
int pfring_get_bound_device_ifindex(pfring *ring, int *index);
int pfring_get_bound_device_address(pfring *ring, unsigned char address[6]);
int pfring_get_device_ifindex(pfring *ring, char *name, int *index);
u_int8_t pfring_get_num_rx_channels(pfring *ring);   /* 1 without an interface */
u_int32_t pfring_get_interface_speed(pfring *ring);  /* in Mbit/s; 0 if not known */

/* Parses a packet of header->caplen bytes up to layer 2, 3 or 4; returns the last layer that it has. */
int pfring_parse_pkt(unsigned char *packet, struct pfring_pkthdr *header, u_int8_t level, u_int8_t add_timestamp,
                     u_int8_t add_hash);

/* Write a line about a packet, and return its length. */
int pfring_print_parsed_pkt(char *text, unsigned int bytes, const unsigned char *packet,
                            const struct pfring_pkthdr *header);
int pfring_print_pkt(char *text, unsigned int bytes, const unsigned char *packet, unsigned int len,
                     unsigned int caplen);

/* Writes a number with marks between thousands; returns the text. */
char *pfring_format_numbers(double value, char *text, unsigned int bytes, u_int8_t add_decimals);

/* Change nothing. */
int pfring_set_poll_duration(pfring *ring, unsigned int ms);
int pfring_set_tx_watermark(pfring *ring, u_int16_t packets);
void pfring_config(unsigned short percent);

/* Rules that ignore one flow, in both directions: what they withhold counts in pfring_stat.shunt, and in the
 * kernel no packet of the flow is copied. Others are PF_RING_ERROR_NOT_SUPPORTED: another action than
 * dont_forward_packet_and_stop_rule_evaluation or flow_drop_rule, and a filtering_rule without `bidirectional`,
 * full masks, single ports and a protocol, or with MAC addresses, flags, a tunnel or a pattern. */
typedef enum {
    forward_packet_and_stop_rule_evaluation = 0,
    dont_forward_packet_and_stop_rule_evaluation
} rule_action_behaviour;

typedef struct {
    u_int16_t rule_id; /* unused */
    u_int16_t vlan_id; /* 0: without a tag */
    u_int8_t ip_version;
    u_int8_t proto;
    ip_addr host_peer_a, host_peer_b;
    u_int16_t port_peer_a, port_peer_b;
    rule_action_behaviour rule_action;
    char reflector_device_name[8];
    u_int8_t internals[16];
} __attribute__((packed)) hash_filtering_rule;

typedef struct {
    u_int16_t rule_id; /* for pfring_remove_filtering_rule() */
    rule_action_behaviour rule_action;
    u_int8_t balance_id, balance_pool; /* 0 */
    u_int8_t locked;                   /* unused */
    u_int8_t bidirectional;
    struct {
        int32_t if_index; /* unused */
        u_int8_t smac[6], dmac[6];
        u_int16_t vlan_id;
        u_int16_t eth_type; /* 0x86dd: the hosts are IPv6 */
        u_int8_t proto;
        ip_addr shost, dhost;
        ip_addr shost_mask, dhost_mask;
        u_int16_t sport_low, sport_high;
        u_int16_t dport_low, dport_high;
        struct {
            u_int8_t flags;
        } tcp;
    } __attribute__((packed)) core_fields;
    struct {
        u_int16_t optional_fields;
        struct {
            u_int32_t tunnel_id;
            ip_addr shost, dhost;
            ip_addr shost_mask, dhost_mask;
        } tunnel;
        char payload_pattern[32];
    } __attribute__((packed)) extended_fields;
    char reflector_device_name[8];
    u_int8_t internals[16];
} __attribute__((packed)) filtering_rule;

typedef enum { flow_drop_rule, flow_mark_rule, flow_pass_rule } generic_flow_rule_action_type;
typedef enum { generic_flow_id_rule = 3, generic_flow_tuple_rule } hw_filtering_rule_type;

typedef struct {
    hw_filtering_rule_type rule_family_type;
    u_int16_t rule_id;
    u_int16_t priority; /* unused */
    union {
        struct {
            generic_flow_rule_action_type action;
            u_int64_t flow_id; /* the hash of a packet */
            u_int32_t thread;
        } __attribute__((packed)) flow_id_rule;
        struct {
            generic_flow_rule_action_type action;
            ip_addr src_ip, dst_ip;
            ip_addr src_ip_mask, dst_ip_mask; /* unused */
            u_int16_t src_port, dst_port;
            u_int16_t vlan_id;
            u_int8_t ip_version;
            u_int8_t protocol;
            u_int8_t interface; /* unused */
            u_int8_t queue_id;
            u_int64_t flow_id;
        } __attribute__((packed)) flow_tuple_rule;
    } rule_family;
} __attribute__((packed)) hw_filtering_rule;

int pfring_handle_hash_filtering_rule(pfring *ring, hash_filtering_rule *rule, unsigned char add);
int pfring_add_filtering_rule(pfring *ring, filtering_rule *rule);
int pfring_remove_filtering_rule(pfring *ring, u_int16_t number);
int pfring_add_hw_rule(pfring *ring, hw_filtering_rule *rule);
int pfring_remove_hw_rule(pfring *ring, u_int16_t number);

/* Only 1: packets without a rule are received. */
int pfring_toggle_filtering_policy(pfring *ring, u_int8_t accepts);

typedef struct pfring_if {
    char *name; /* for pfring_open() */
    char *system_name, *module, *module_version;
    char *sn; /* NULL */
    char mac[6];
    struct {
        int slot, bus, device, function;
    } bus_id;               /* 0 */
    int status;             /* 1: up, 0: down */
    int license;            /* 1 */
    time_t license_expiration; /* 0 */
    struct pfring_if *next;
} pfring_if_t;

/* The groups of the running hub that this user may join, then the interfaces. */
pfring_if_t *pfring_findalldevs(void);
void pfring_freealldevs(pfring_if_t *list);

/* Seconds by which local time is ahead of UTC; 0: now. */
int32_t gmt_to_local(time_t time);

/* PF_RING_ERROR_NOT_SUPPORTED. */
int pfring_recv_chunk(pfring *ring, void **chunk, void *info, u_int8_t wait);
#ifdef __cplusplus
}
#endif

#endif
