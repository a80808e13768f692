/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * libringtap: reads packets from a running hub (`ringtap hub`), in place and without privilege.
 * The inline reader of a bridge (`ringtap bridge --inline`) also decides which packets pass.
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
 * - A call failed if it returns a negative number other than RINGTAP_END; ringtap_error() says why.
 * - One thread at a time uses a handle. A call on a handle that another thread uses fails with
 *   RINGTAP_ERROR_BUSY and does no harm; only ringtap_stop() may be called at any time. Different
 *   handles are independent.
 * - A call on a closed or invalid handle fails with RINGTAP_ERROR_HANDLE.
 * - Results of a call (packets, their bytes, texts) stay valid until the next call on the same
 *   handle, other than ringtap_error(), ringtap_fd(), ringtap_stop(), ringtap_verdict(),
 *   ringtap_flow_verdict(), ringtap_send_verdicts(), ringtap_release_batch() and calls for flow rules.
 *   Packets of ringtap_take_batch() stay valid until their batch is released, the text of a flow event
 *   until the next one.
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

/* Return values. */
#define RINGTAP_OK 0
#define RINGTAP_END (-1)             /* no error: the capture has ended and every packet was read */
#define RINGTAP_ERROR_ARGUMENT (-2)  /* a null pointer or an invalid value */
#define RINGTAP_ERROR_HANDLE (-3)    /* a closed or invalid handle */
#define RINGTAP_ERROR_BUSY (-4)      /* another thread is using this handle */
#define RINGTAP_ERROR_NO_HUB (-5)    /* no hub listens on the socket */
#define RINGTAP_ERROR_REFUSED (-6)   /* the hub refused */
#define RINGTAP_ERROR_FILTER (-7)    /* the filter is not valid */
#define RINGTAP_ERROR_HUB_LEFT (-8)  /* the hub died; open again once it is back */
#define RINGTAP_ERROR_CORRUPT (-9)   /* the hub does not follow the protocol */
#define RINGTAP_ERROR_SYSTEM (-10)   /* the system refused memory or a descriptor */
#define RINGTAP_ERROR_INTERNAL (-11) /* a fault of the library: close the handle and report it */

/* Options of a subscription. Begin with RINGTAP_OPTIONS_INIT. */
struct ringtap_options {
    size_t size;                /* sizeof(struct ringtap_options) */
    const char *name;           /* the reader's name in `ringtap status`; NULL: the program's */
    const char *filter;         /* pcap-filter syntax, as for tcpdump; NULL: every packet */
    uint32_t credit_chunks;     /* chunks of a lane that the reader may hold; 0: the group's number */
    uint32_t watermark_packets; /* wake the reader when this many packets wait; 0: 1 */
    uint32_t time_limit_ms;     /* or when the first packet has waited this long; 0: 10 */
    uint32_t flags;             /* bits of RINGTAP_OPEN_*; other bits must be 0 */
    const char *marks;          /* marks packets that rules give to this group, too; NULL: none */
    uint32_t order_ms;          /* all lanes in time order: a packet waits at most this long for others; 0: lanes in turn */
    uint32_t reserved;          /* 0 */
};

#define RINGTAP_OPTIONS_INIT { sizeof(struct ringtap_options), NULL, NULL, 0, 0, 0, 0, NULL, 0, 0 }

#define RINGTAP_OPEN_PRIVATE 0x1u /* a private pool, even in a group with shared delivery */

/* One packet, in the pool. */
struct ringtap_packet {
    uint64_t time_ns;        /* time of capture */
    uint64_t sequence;       /* number in the lane, over all captured packets */
    uint64_t lost_before;    /* packets of this lane that the reader lost just before this one */
    const uint8_t *data;     /* the captured bytes, read-only */
    uint32_t captured_bytes; /* number of captured bytes */
    uint32_t wire_bytes;     /* number of bytes on the wire */
    uint32_t lane;           /* the writer's ordered stream, counted over all sources */
    uint32_t hash;           /* flow hash, the same in both directions; see RINGTAP_PACKET_HASHED */
    uint32_t source;         /* index for ringtap_source() */
    uint16_t queue;          /* receive queue */
    uint16_t flags;          /* bits of RINGTAP_PACKET_*; ignore unknown bits */
};

#define RINGTAP_PACKET_OUT 0x01u              /* sent by the host, not received */
#define RINGTAP_PACKET_VLAN_RESTORED 0x02u    /* the VLAN tag was stripped and put back */
#define RINGTAP_PACKET_HASHED 0x04u           /* `hash` is valid */
#define RINGTAP_PACKET_PARTIAL_CHECKSUM 0x08u /* the checksum is left to the NIC: not valid here */
#define RINGTAP_PACKET_SUPER 0x10u            /* merged, or not split yet: larger than on the wire */
#define RINGTAP_PACKET_NIC_TIME 0x20u         /* the time is of the NIC's clock, not of the host's */
#define RINGTAP_PACKET_MARKED 0x40u           /* a rule gives it to the group in `marks` of the options, too */

#define RINGTAP_PACKET_AFTER_GAP 0x100u       /* first packet after a gap: see ringtap_last_gap() */

/*
 * A time in which nothing was captured: this virtual machine was detached from its host, or migrated.
 * Another capture followed; how many packets passed meanwhile is unknown. Set `size` before the call.
 */
struct ringtap_gap {
    size_t size;          /* sizeof(struct ringtap_gap) */
    uint64_t sequence;    /* sequence of the lane's first packet after it */
    uint64_t duration_ns; /* its length */
    uint64_t after;       /* packets of the host's capture that it ended */
    uint32_t lane;
    uint32_t number;      /* 1 for the first one of this handle */
};

/* Verdicts on a packet of a bridge. */
#define RINGTAP_PASS 0 /* the packet leaves by the other interface */
#define RINGTAP_DROP 1 /* the packet is dropped */

/* How long a verdict on a flow lasts. */
#define RINGTAP_FOR_GOOD 0   /* as long as this reader is the inline reader */
#define RINGTAP_FOR_TIME 1   /* for time_ms */
#define RINGTAP_UNTIL_IDLE 2 /* until the flow has no packets for time_ms */

/*
 * A rule for one flow, or for all that match a pattern: "tcp net 10.0.0.0/8 port 8000-8999". docs/verdicts.md describes
 * both. Begin with RINGTAP_FLOW_RULE_INIT.
 */
struct ringtap_flow_rule {
    size_t size;       /* sizeof(struct ringtap_flow_rule) */
    const char *flow;  /* "tcp 10.0.0.1:80 10.0.0.2:5000", both directions; then perhaps " vlan 7" or " in vxlan 42" */
    uint32_t action;   /* one of RINGTAP_IGNORE to RINGTAP_FORWARD */
    uint32_t reserved; /* 0 */
    uint64_t packets;  /* RINGTAP_CUTOFF: the reader gets this many packets of each direction; 0: no such limit.
                          RINGTAP_SAMPLE: it gets one in so many */
    uint64_t bytes;    /* RINGTAP_CUTOFF: and packets that begin within this many bytes; 0: no such limit */
    uint64_t lasts_ms; /* until the rule ends; 0: until the flow ends, or the reader of a rule for a pattern */
    const char *group; /* RINGTAP_MIRROR, RINGTAP_FORWARD: name of a group that gets packets by rules; else NULL */
};

#define RINGTAP_FLOW_RULE_INIT { sizeof(struct ringtap_flow_rule), NULL, 0, 0, 0, 0, 0, NULL }

#define RINGTAP_IGNORE 0u /* no packet of the flow is for this reader */
#define RINGTAP_CUTOFF 1u /* only the first packets or bytes of each direction are */
#define RINGTAP_SAMPLE 2u /* only the first of each so many packets of each direction is */
#define RINGTAP_MIRROR 3u /* all packets are for this reader, and for another group, too */
#define RINGTAP_FORWARD 4u /* another group gets the packets instead */

/* What one direction of a flow had: packets that some reader of the hub wanted. */
struct ringtap_flow_direction {
    uint64_t packets;
    uint64_t bytes;     /* on the wire */
    uint64_t first_ns;  /* time of the first packet; 0 without packets */
    uint64_t last_ns;
    uint32_t tcp_flags; /* all flags of its segments */
    uint32_t reserved;
};

/* The end of a flow. Set `size` before the call. */
struct ringtap_flow_event {
    size_t size;          /* sizeof(struct ringtap_flow_event) */
    const char *flow;     /* as in a rule; the lower address first */
    uint32_t why;         /* one of RINGTAP_FLOW_* */
    uint32_t counted;     /* 1 if `directions` is valid; 0 if the user may not see it */
    uint64_t lost_before; /* events lost before this one */
    struct ringtap_flow_direction directions[2]; /* from the lower address, from the higher */
};

#define RINGTAP_FLOW_ENDED 0u     /* FIN of both directions, or RST */
#define RINGTAP_FLOW_IDLE 1u      /* no packets for too long */
#define RINGTAP_FLOW_RESTARTED 2u /* a new connection has its addresses and ports */
#define RINGTAP_FLOW_EVICTED 3u   /* a new flow needed its room */
#define RINGTAP_FLOW_REMOVED 4u   /* its last rule was removed, or its time was over */

/* A source of the hub. Set `size` before the call. */
struct ringtap_source {
    size_t size;                   /* sizeof(struct ringtap_source) */
    const char *device;            /* as the hub's user wrote it, e.g. "tap:eth0" */
    const char *offered_from;      /* origin of the counter `offered`, in words */
    uint32_t link_type;            /* LINKTYPE_*: 1 is Ethernet */
    uint32_t snap_length_bytes;    /* most bytes captured of a packet */
    uint32_t first_lane;           /* the source's lanes are first_lane to first_lane + lanes - 1 */
    uint32_t lanes;
};

/*
 * Counters since ringtap_open(), which account for every packet. Set `size` before the call.
 *
 *     offered = delivered + filtered + shunted + other_members + dropped_nic
 *             + dropped_kernel + dropped_pool_full + dropped_overrun + dropped_not_written
 *             + dropped_no_verdict
 */
struct ringtap_statistics {
    size_t size;                  /* sizeof(struct ringtap_statistics) */
    uint64_t offered;             /* packets that reached the source */
    uint64_t delivered;           /* packets that calls on this handle returned */
    uint64_t filtered;            /* packets that do not pass the filter */
    uint64_t shunted;             /* packets that a flow rule of this reader withheld */
    uint64_t other_members;       /* packets for other members of a balanced group */
    uint64_t bytes;               /* bytes on the wire of the delivered packets */
    uint64_t dropped_nic;         /* lost by the NIC or its driver */
    uint64_t dropped_kernel;      /* lost by the kernel before capture */
    uint64_t dropped_pool_full;   /* lost because the pool was full */
    uint64_t dropped_overrun;     /* lost because this reader was past its credit */
    uint64_t dropped_not_written; /* always 0: only recorders count these */
    uint64_t dropped_no_verdict;  /* always 0: only bridges count these */
    uint32_t balanced;            /* 1 if the equation above holds */
    uint32_t ended;               /* 1 if the sources have ended and the counters are final */
};

/*
 * Subscribes to `group` of the hub at `socket` (NULL: $RINGTAP_SOCKET, else the standard path). In a
 * virtual machine, "host:GROUP" is a group of the host.
 * `options` may be NULL. The reader gets packets captured from now on.
 *
 * Returns RINGTAP_OK and a handle, or an error and NULL; the text is then ringtap_error(NULL).
 */
int ringtap_open(ringtap_handle **handle, const char *socket, const char *group,
                 const struct ringtap_options *options);

/*
 * Returns the next packet for this reader: in order within a lane, lanes in turn, or all in time order (`order_ms`).
 *
 * timeout_ms is the longest wait: -1 waits without limit, 0 does not wait. A signal handler does not
 * end the wait: use a time-out, or ringtap_stop().
 *
 * Returns 1 and a packet, 0 if none came in time, RINGTAP_END, or an error.
 */
int ringtap_next(ringtap_handle *handle, const struct ringtap_packet **packet, int timeout_ms);

/* As ringtap_next(), but returns consecutive packets, from *packets on, and their number. */
int ringtap_next_batch(ringtap_handle *handle, const struct ringtap_packet **packets,
                       int timeout_ms);

/*
 * As ringtap_next_batch(), but the packets and their bytes stay valid until ringtap_release_batch()
 * or ringtap_close(). A program may keep several batches and release them in any order. While it
 * keeps more memory than its credit, further packets are lost to it and counted as dropped_overrun.
 *
 * Fills in *batch, the batch's number, only if it returns packets.
 */
int ringtap_take_batch(ringtap_handle *handle, const struct ringtap_packet **packets,
                       uint64_t *batch, int timeout_ms);

/* Releases a batch of ringtap_take_batch(): its packets are no longer valid. */
int ringtap_release_batch(ringtap_handle *handle, uint64_t batch);

/*
 * Descriptor for poll(), select() or epoll: readable when a packet, the end or an error waits. Do
 * not read from it or close it. Level- and edge-triggered polling both work.
 *
 * Call ringtap_next() or ringtap_next_batch() with timeout_ms 0 until it returns 0, and only then
 * poll the descriptor, without any limit of time. It may be readable without a packet: the next
 * call then returns 0 again.
 *
 * Returns the descriptor, or an error.
 */
int ringtap_fd(ringtap_handle *handle);

/*
 * Changes the filter while packets arrive; NULL or "" takes every packet. All packets that later
 * calls return pass the new filter. After an error the old filter stays in force.
 */
int ringtap_set_filter(ringtap_handle *handle, const char *filter);

/*
 * Makes this reader the inline reader of a bridge that was started with --inline: from now on each
 * packet of a flow without a verdict waits for a verdict, at most for the bridge's --verdict-timeout.
 * A bridge has one inline reader at a time, which reads these packets in place: without a filter and
 * without RINGTAP_OPEN_PRIVATE.
 *
 * The reader stays the inline reader until ringtap_close() or the end of its process; the bridge
 * then passes or drops packets, as its --no-verdict says.
 *
 * Returns RINGTAP_OK, or an error; RINGTAP_ERROR_REFUSED if the bridge has an inline reader already,
 * or takes none.
 */
int ringtap_inline(ringtap_handle *handle);

/*
 * Gives a verdict, RINGTAP_PASS or RINGTAP_DROP, on the packet with this `lane` and `sequence`.
 * Verdicts may come in any order and after later calls; packets of one receive queue leave in the
 * order of their arrival. A verdict on a packet that does not wait (any more) changes nothing.
 *
 * The next ringtap_next(), ringtap_next_batch() or ringtap_send_verdicts() sends the verdicts.
 */
int ringtap_verdict(ringtap_handle *handle, uint32_t lane, uint64_t sequence, int verdict);

/*
 * As ringtap_verdict(), and the verdict holds for all further packets of the packet's flow, in both
 * directions: the kernel forwards or drops them, and this reader does not get them. Packets of the flow
 * that wait already need verdicts of their own.
 *
 * `lasting` is one of RINGTAP_FOR_GOOD, RINGTAP_FOR_TIME and RINGTAP_UNTIL_IDLE. The verdict also ends
 * when a new connection has the flow's addresses and ports, after the end of the connection, and with
 * this reader. On a packet of no flow (not IP, or a fragment) it is a verdict on the packet.
 */
int ringtap_flow_verdict(ringtap_handle *handle, uint32_t lane, uint64_t sequence, int verdict,
                         int lasting, uint32_t time_ms);

/*
 * Sends the verdicts now. Call it before any wait other than for packets of this handle, for example
 * before poll().
 */
int ringtap_send_verdicts(ringtap_handle *handle);

/*
 * Sets a rule for a flow or pattern, in place of this reader's earlier one: packets that it withholds are not copied for this
 * reader and count as `shunted`. Other readers get them; in a balanced group, the rule is that of all members.
 *
 * Returns RINGTAP_OK, or an error; RINGTAP_ERROR_REFUSED if the source has no table of flows, the table is full, or
 * a limit of the hub is reached.
 */
int ringtap_flow_rule(ringtap_handle *handle, const struct ringtap_flow_rule *rule);

/*
 * Sets the rule that ignores the flow of a packet of this handle, whose bytes are still there, until the flow ends.
 * Packets of the flow that wait already are still delivered.
 *
 * Returns 1, 0 if the packet belongs to no flow (not IP, or a fragment), or an error as ringtap_flow_rule().
 */
int ringtap_ignore_flow(ringtap_handle *handle, const struct ringtap_packet *packet);

/* Removes this reader's rule for a flow or pattern. Returns 1, 0 if it has none, or an error. */
int ringtap_remove_flow_rule(ringtap_handle *handle, const char *flow);

/*
 * Fills in the next end of a flow for which this reader has, or had, a rule. Waits for it, at most for timeout_ms
 * (-1: without limit). The hub looks for ends every 100 ms.
 *
 * Returns 1, 0 if none came in time, or an error.
 */
int ringtap_next_flow_event(ringtap_handle *handle, struct ringtap_flow_event *event, int timeout_ms);

/* Fills in the counters. */
int ringtap_statistics(ringtap_handle *handle, struct ringtap_statistics *statistics);

/* Describes source number `index`, from 0. Returns 1, 0 if there is no such source, or an error. */
int ringtap_source(ringtap_handle *handle, uint32_t index, struct ringtap_source *source);

/* Describes the last gap before the packets received so far. Returns 1, 0 without one, or an error. */
int ringtap_last_gap(ringtap_handle *handle, struct ringtap_gap *gap);

/*
 * Ends the capture for this reader: a waiting call returns, and RINGTAP_END follows the packets that
 * are left in the pool. Any thread may call it at any time, but no signal handler.
 */
int ringtap_stop(ringtap_handle *handle);

/*
 * Why the last call on this handle failed; "" if it did not. With NULL or an invalid handle: why
 * this thread's last call without a handle failed, for example ringtap_open(). Never NULL; valid
 * until the next call.
 */
const char *ringtap_error(const ringtap_handle *handle);

/* Ends the subscription; the hub notices the end a moment later. Does nothing with NULL. */
int ringtap_close(ringtap_handle *handle);

/* The library's version, e.g. "0.2.0". */
const char *ringtap_version(void);

#ifdef __cplusplus
}
#endif

#endif
