/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The part of PF_RING's interface that libpfring.so of Ringtap has: see docs/pfring.md. Names, values and
 * layouts are those of PF_RING 8.9, so that programs compiled with its header work, too.
 *
 * A call returns a negative number if it failed. One thread at a time uses a ring; only
 * pfring_breakloop() and pfring_shutdown() may be called at any time, also in a signal handler. Packet
 * bytes are read-only, and valid until the next call that receives.
 */
#ifndef RINGTAP_PFRING_H
#define RINGTAP_PFRING_H

#include <sys/time.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PF_RING_ERROR_GENERIC -1
#define PF_RING_ERROR_INVALID_ARGUMENT -2
#define PF_RING_ERROR_NOT_SUPPORTED -7
#define PF_RING_ERROR_RING_NOT_ENABLED -12

/* Flags of pfring_open(), which change nothing. */
#define PF_RING_LONG_HEADER (1 << 2)
#define PF_RING_PROMISC (1 << 3)
#define PF_RING_TIMESTAMP (1 << 4)
#define PF_RING_DO_NOT_PARSE (1 << 9)

/* A ring; its fields are not for programs compiled with this header. */
typedef struct __pfring pfring;

struct pfring_extended_pkthdr {
    u_int64_t timestamp_ns; /* nanoseconds since 1970 */
    u_int32_t flags;        /* 0 */
    u_int8_t rx_direction;  /* 1: received by the NIC; 0: sent by the host */
    u_int8_t port_id;       /* 0 */
    u_int16_t device_id;    /* 0 */
    int32_t if_index;       /* -1: unknown */
    u_int32_t pkt_hash;     /* flow hash, the same in both directions */
    u_int8_t unused[161];   /* 0: nothing is parsed */
} __attribute__((packed));

struct pfring_pkthdr {
    struct timeval ts;
    u_int32_t caplen; /* captured bytes */
    u_int32_t len;    /* bytes on the wire */
    struct pfring_extended_pkthdr extended_hdr;
} __attribute__((packed));

typedef struct {
    u_char *data;
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
typedef enum { cluster_per_flow, cluster_round_robin } cluster_type;

typedef void (*pfringProcesssPacket)(const struct pfring_pkthdr *header, const u_char *packet,
                                     const u_char *user);

/* Opens hub:GROUP, or host:GROUP in a virtual machine. NULL, and errno, if there is no such hub. */
pfring *pfring_open(const char *device, u_int32_t caplen, u_int32_t flags);
void pfring_close(pfring *ring);
void pfring_shutdown(pfring *ring);

/* Subscribes: fails if there is no such group, or it admits no further reader. */
int pfring_enable_ring(pfring *ring);

/* Before pfring_enable_ring(): the name in `ringtap status`; packets to wait for. */
int pfring_set_application_name(pfring *ring, char *name);
int pfring_set_poll_watermark(pfring *ring, u_int16_t packets);

int pfring_set_direction(pfring *ring, packet_direction direction);
int pfring_set_socket_mode(pfring *ring, socket_mode mode);
int pfring_set_bpf_filter(pfring *ring, const char *filter);
int pfring_remove_bpf_filter(pfring *ring);

/* Does nothing: the hub's group divides its packets among its readers. */
int pfring_set_cluster(pfring *ring, u_int cluster, cluster_type type);

/* 1 and a packet, 0 without one. With `bytes` 0, *packet points to the packet; else it is copied there. */
int pfring_recv(pfring *ring, u_char **packet, u_int bytes, struct pfring_pkthdr *header, u_int8_t wait);

/* Returns the number of packets, at most `most`. */
int pfring_recv_burst(pfring *ring, pfring_packet_info *packets, u_int8_t most, u_int8_t wait);

/* Returns 0 after pfring_breakloop(). */
int pfring_loop(pfring *ring, pfringProcesssPacket looper, const u_char *user, u_int8_t wait);
void pfring_breakloop(pfring *ring);

/* Waits for packets, in milliseconds; (u_int)-1: without limit. Returns 1 if there are packets, else 0. */
int pfring_poll(pfring *ring, u_int wait_ms);

/* For poll(): receive without waiting until there is no packet, then poll. */
int pfring_get_selectable_fd(pfring *ring);

int pfring_stats(pfring *ring, pfring_stat *stats);
int pfring_version(pfring *ring, u_int32_t *version);

/* PF_RING_ERROR_NOT_SUPPORTED. */
int pfring_send(pfring *ring, char *packet, u_int bytes, u_int8_t flush);
int pfring_add_filtering_rule(pfring *ring, void *rule);
int pfring_handle_hash_filtering_rule(pfring *ring, void *rule, u_char add);

#ifdef __cplusplus
}
#endif

#endif
