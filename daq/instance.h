/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* An instance of the module. */
#ifndef RINGTAP_DAQ_INSTANCE_H
#define RINGTAP_DAQ_INSTANCE_H

#include <net/if.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <daq_module_api.h>
#include <ringtap.h>

#include "process.h"

#define MAX_BRIDGES 16
#define MAX_INTERFACES (2 * MAX_BRIDGES)
/* Flows that a passive instance remembers to have ignored: a power of two. */
#define IGNORED_FLOWS 1024

/* LibDAQ's functions, from load() on. */
extern DAQ_BaseAPI_t base;

struct interface {
    char name[IF_NAMESIZE];
    int index;
    int sender; /* packet socket for injected packets; -1: none */
};

/* A flow for which a rule was set, by its hash. */
struct ignored {
    uint32_t hash;
    int64_t time_ms;
};

/* A subscription: the group of a hub, or a bridge. */
struct port {
    ringtap_handle *handle;
    struct helper *helper;
    struct pollfd *readable;
    bool is_inline, has_ended;
    int first; /* its first source's entry in `interfaces` */
    struct ringtap_statistics last; /* last known counters */
};

/* Packets that were received together, and that are released together. */
struct batch {
    struct batch *next;
    struct port *port;
    const struct ringtap_packet *packets;
    uint64_t number;
    unsigned count, at, held; /* packets; the next one; messages that refer to them */
};

struct message {
    DAQ_Msg_t msg;
    DAQ_PktHdr_t header;
    struct message *next;
    struct batch *batch; /* of a passive message, as the packet */
    const struct ringtap_packet *packet;
    struct port *port;
    uint64_t sequence;
    uint32_t lane, bytes; /* length of `copy` */
    int source;
    uint8_t *copy; /* of an inline message */
};

struct instance {
    DAQ_ModuleInstance_h owner;
    bool is_inline, can_inject;
    int timeout_ms, snap_length, link_type;
    atomic_bool interrupted;
    int interrupt; /* eventfd */
    unsigned ports_count, turn, messages_count, free_count;
    int interfaces_count;
    struct port ports[MAX_BRIDGES];
    struct pollfd polled[MAX_BRIDGES + 1];
    struct interface interfaces[MAX_INTERFACES];
    struct message *messages, *free_messages;
    struct batch *batches, *free_batches, *current;
    struct ignored ignored[IGNORED_FLOWS];
    uint8_t *copies;
    size_t copy_bytes;
    DAQ_Stats_t stats, before; /* `before`: the hub's counters at the last reset */
    char text[256];
};

/* Sets the text of an error and returns its code. */
int fail(struct instance *self, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Completes the TCP or UDP checksum of an Ethernet frame, if its sender left it to a NIC. */
void complete_checksum(uint8_t *frame, size_t bytes);

/* Opens the subscriptions of the configured input, and starts the processes that serve them. */
int open_input(struct instance *self, DAQ_ModuleConfig_h config);

#endif
