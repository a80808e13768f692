/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * libringtap: reads packets from a running hub (`ringtap hub`), in place and without privilege;
 * as the inline reader of a bridge (`ringtap bridge --inline`) also says which of them pass.
 *
 *     ringtap_handle *handle;
 *     if (ringtap_open(&handle, NULL, "ids", NULL) < 0)
 *         errx(1, "%s", ringtap_error(NULL));
 *     const struct ringtap_packet *packet;
 *     int got;
 *     while ((got = ringtap_next(handle, &packet, -1)) == 1)
 *         look_at(packet->data, packet->captured_bytes);
 *     if (got != RINGTAP_END)
 *         warnx("%s", ringtap_error(handle));
 *     ringtap_close(handle);
 *
 * Rules
 * - A call that returns a negative number other than RINGTAP_END failed; ringtap_error() says why.
 * - A handle is used by one thread at a time. A call that comes while another thread is inside
 *   one on the same handle fails with RINGTAP_ERROR_BUSY and does no harm. Only ringtap_stop()
 *   may be called at any time. Different handles are independent.
 * - A handle that was closed, or never was one, is recognised: RINGTAP_ERROR_HANDLE.
 * - What a call returns (packets, their bytes, texts) stays valid until the next call on the
 *   same handle; only ringtap_error(), ringtap_fd(), ringtap_stop(), ringtap_verdict() and
 *   ringtap_send_verdicts() leave it untouched.
 * - A handle belongs to the process that opened it: after fork() the child must not use it.
 * - Times are nanoseconds since 1970-01-01 UTC. All counters have 64 bits.
 *
 * Link with `pkg-config --cflags --libs ringtap`; libringtap needs libpcap, which compiles filters.
 */
#ifndef RINGTAP_H
#define RINGTAP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A reader's subscription at a hub. */
typedef struct ringtap_handle ringtap_handle;

/* What calls return. */
#define RINGTAP_OK 0
#define RINGTAP_END (-1)             /* no error: the capture ended, and everything was read */
#define RINGTAP_ERROR_ARGUMENT (-2)  /* a null pointer, or a value that makes no sense */
#define RINGTAP_ERROR_HANDLE (-3)    /* closed already, or never was a handle */
#define RINGTAP_ERROR_BUSY (-4)      /* another thread is using this handle */
#define RINGTAP_ERROR_NO_HUB (-5)    /* no hub listens there */
#define RINGTAP_ERROR_REFUSED (-6)   /* the hub refused */
#define RINGTAP_ERROR_FILTER (-7)    /* the filter is not valid */
#define RINGTAP_ERROR_HUB_LEFT (-8)  /* the hub died; open again once it is back */
#define RINGTAP_ERROR_CORRUPT (-9)   /* the hub does not keep to the protocol */
#define RINGTAP_ERROR_SYSTEM (-10)   /* the system refused memory or a descriptor */
#define RINGTAP_ERROR_INTERNAL (-11) /* a mistake in the library: close the handle, report it */

/* Options of a subscription. Begin with RINGTAP_OPTIONS_INIT. */
struct ringtap_options {
    size_t size;                /* sizeof(struct ringtap_options) */
    const char *name;           /* the reader's name in `ringtap status`; NULL: the program's */
    const char *filter;         /* pcap-filter syntax, as for tcpdump; NULL: everything */
    uint32_t credit_chunks;     /* chunks of a lane that it may hold; 0: the group's number */
    uint32_t watermark_packets; /* wake the reader when this many packets wait; 0: one */
    uint32_t time_limit_ms;     /* or when the first has waited this long; 0: 10 */
    uint32_t flags;             /* bits of RINGTAP_OPEN_*; all others are 0 */
};

#define RINGTAP_OPTIONS_INIT { sizeof(struct ringtap_options), NULL, NULL, 0, 0, 0, 0 }

#define RINGTAP_OPEN_PRIVATE 0x1u /* a pool of its own, even where the group shares */

/* One packet, in the pool. */
struct ringtap_packet {
    uint64_t time_ns;        /* when it was captured */
    uint64_t sequence;       /* its number in its lane, over all captured packets */
    uint64_t lost_before;    /* packets that this reader lost on this lane just before this one */
    const uint8_t *data;     /* the captured bytes: read only */
    uint32_t captured_bytes; /* number of captured bytes */
    uint32_t wire_bytes;     /* number of bytes on the wire */
    uint32_t lane;           /* its ordered stream, counted over all sources */
    uint32_t hash;           /* flow hash, the same both ways; with RINGTAP_PACKET_HASHED */
    uint32_t source;         /* for ringtap_source() */
    uint16_t queue;          /* receive queue */
    uint16_t flags;          /* bits of RINGTAP_PACKET_*; ignore those you do not know */
};

#define RINGTAP_PACKET_OUT 0x01u              /* sent by the host, not received */
#define RINGTAP_PACKET_VLAN_RESTORED 0x02u    /* its VLAN tag had been stripped and was put back */
#define RINGTAP_PACKET_HASHED 0x04u           /* `hash` is valid */
#define RINGTAP_PACKET_PARTIAL_CHECKSUM 0x08u /* the checksum was left to the NIC: not valid here */
#define RINGTAP_PACKET_SUPER 0x10u            /* merged or not yet cut: larger than on the wire */

/* What becomes of a packet of a bridge. */
#define RINGTAP_PASS 0 /* it leaves by the other interface */
#define RINGTAP_DROP 1 /* it goes no further */

/* A source of the hub. Set `size` before the call. */
struct ringtap_source {
    size_t size;                   /* sizeof(struct ringtap_source) */
    const char *device;            /* as the hub's user wrote it, e.g. "tap:eth0" */
    const char *offered_from;      /* where `offered` in the counters comes from, in words */
    uint32_t link_type;            /* LINKTYPE_*: 1 is Ethernet */
    uint32_t snap_length_bytes;    /* most bytes captured of a packet */
    uint32_t first_lane;           /* its lanes are first_lane to first_lane + lanes - 1 */
    uint32_t lanes;
};

/*
 * Where every packet went since ringtap_open(). Set `size` before the call.
 *
 *     offered = delivered + filtered + other_members + dropped_nic + dropped_kernel
 *             + dropped_pool_full + dropped_overrun + dropped_not_written + dropped_no_verdict
 */
struct ringtap_statistics {
    size_t size;                  /* sizeof(struct ringtap_statistics) */
    uint64_t offered;             /* packets that reached the source */
    uint64_t delivered;           /* packets that calls on this handle gave */
    uint64_t filtered;            /* packets that do not pass the filter */
    uint64_t other_members;       /* packets for other members of a balanced group */
    uint64_t bytes;               /* bytes on the wire of the delivered packets */
    uint64_t dropped_nic;         /* lost by the NIC or its driver */
    uint64_t dropped_kernel;      /* lost by the kernel before capture */
    uint64_t dropped_pool_full;   /* lost because the pool was full */
    uint64_t dropped_overrun;     /* lost by this reader, which was past its credit */
    uint64_t dropped_not_written; /* always 0: recorders count it */
    uint64_t dropped_no_verdict;  /* always 0: bridges count it */
    uint32_t balanced;            /* 1 if the equation above holds */
    uint32_t ended;               /* 1 if the sources ended and these numbers are final */
};

/*
 * Subscribes to `group` of the hub at `socket` (NULL: $RINGTAP_SOCKET, else the usual place).
 * `options` may be NULL. Packets are captured for this reader from now on.
 *
 * Returns RINGTAP_OK and a handle, or an error and NULL; the text is then ringtap_error(NULL).
 */
int ringtap_open(ringtap_handle **handle, const char *socket, const char *group,
                 const struct ringtap_options *options);

/*
 * Gives the next packet for this reader: in order within a lane, lanes in turn.
 *
 * timeout_ms: -1 waits without limit, 0 does not wait, more waits at most this long. A signal handler does not end the
 * wait: use a time-out, or ringtap_stop().
 *
 * Returns 1 and a packet, 0 if none came in time, RINGTAP_END, or an error.
 */
int ringtap_next(ringtap_handle *handle, const struct ringtap_packet **packet, int timeout_ms);

/* As ringtap_next(), but gives consecutive packets: returns their number from *packets on. */
int ringtap_next_batch(ringtap_handle *handle, const struct ringtap_packet **packets,
                       int timeout_ms);

/*
 * A descriptor for poll(), select() or epoll: readable when packets, the end or an error wait. Do not read from it or close it.
 *
 * Call ringtap_next() or ringtap_next_batch() with timeout_ms 0 until it returns 0, and only then
 * wait for the descriptor; wait for it as long as you like. It may be readable for nothing: the
 * next call then returns 0 again. Level- or edge-triggered, both work.
 *
 * Returns the descriptor, or an error.
 */
int ringtap_fd(ringtap_handle *handle);

/*
 * Changes the filter while packets come; NULL or "" takes everything. All packets that later calls
 * give out pass it. After an error the filter before is still in force.
 */
int ringtap_set_filter(ringtap_handle *handle, const char *filter);

/*
 * Makes this reader the inline reader of a bridge that was started with --inline: from now on its
 * packets wait for its verdicts, each no longer than the bridge's --verdict-timeout. There is one
 * inline reader at a time. It reads every packet, in place: without a filter and without
 * RINGTAP_OPEN_PRIVATE.
 *
 * It stays the inline reader until ringtap_close(), or until its process ends; the bridge then
 * passes or drops packets, as its --no-verdict says.
 *
 * Returns RINGTAP_OK, or an error; RINGTAP_ERROR_REFUSED if there is an inline reader already, or
 * the bridge has none.
 */
int ringtap_inline(ringtap_handle *handle);

/*
 * Says what becomes of a packet: RINGTAP_PASS or RINGTAP_DROP, by its `lane` and `sequence`. In
 * any order, at once or after later calls; packets of one receive queue leave in the order in which
 * they came. A verdict on a packet that does not wait, or does not wait any more, changes nothing.
 *
 * Verdicts are sent by the next ringtap_next(), ringtap_next_batch() or ringtap_send_verdicts().
 */
int ringtap_verdict(ringtap_handle *handle, uint32_t lane, uint64_t sequence, int verdict);

/*
 * Sends the verdicts now. Call it before waiting for anything else than packets of this handle, for
 * instance in poll().
 */
int ringtap_send_verdicts(ringtap_handle *handle);

/* Fills in the counters. */
int ringtap_statistics(ringtap_handle *handle, struct ringtap_statistics *statistics);

/* Describes source number `index`, from 0. Returns 1, 0 if there is no such source, or an error. */
int ringtap_source(ringtap_handle *handle, uint32_t index, struct ringtap_source *source);

/*
 * Ends the capture for this reader: a call that waits returns, and RINGTAP_END follows the packets
 * that are left in the pool. From any thread, at any time; not from a signal handler.
 */
int ringtap_stop(ringtap_handle *handle);

/*
 * Why the last call on this handle failed; "" if it did not. With NULL, or with what is no handle:
 * why the last call of this thread failed that had no handle, for instance ringtap_open().
 * Never NULL; valid until the next call.
 */
const char *ringtap_error(const ringtap_handle *handle);

/* Ends the subscription; the hub notices it a moment later. NULL is allowed and does nothing. */
int ringtap_close(ringtap_handle *handle);

/* The library's version, e.g. "0.1.0". */
const char *ringtap_version(void);

#ifdef __cplusplus
}
#endif

#endif
