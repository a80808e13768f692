/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * LibDAQ 3 module: Snort 3 reads from Ringtap's hubs, and decides at Ringtap's bridges.
 *
 * docs/snort.md says how to build and use it. The structures of LibDAQ change between versions without
 * a check: compile this file against the LibDAQ that loads it.
 *
 * - Passive messages lie in the pool, read-only, until they are finalised. Messages of a bridge are
 *   copies, which the application may change (REPLACE).
 * - A device, or a pair of interfaces, is captured by a `ringtap` process that this module starts. The
 *   instances of a device share the process. It ends with its last instance, or with this process.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "instance.h"

#define MODULE_VERSION 1
#define USUAL_MESSAGES 1024
/* A verdict on a flow ends when the flow has no packets for so long. */
#define FLOW_IDLE_MS (300 * 1000)
/* A passive instance sets no rule for a flow again within this time. */
#define IGNORED_MS 1000
/* The first version of daq_common.h whose statistics count outstanding packets. */
#if defined(DAQ_COMMON_API_VERSION) && DAQ_COMMON_API_VERSION >= 0x00030007
#define HAS_OUTSTANDING
#endif

DAQ_BaseAPI_t base;

int fail(struct instance *self, int code, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(self->text, sizeof(self->text), format, arguments);
    va_end(arguments);
    base.set_errbuf(self->owner, "ringtap: %s", self->text);
    return code;
}

static void destroy(void *handle)
{
    struct instance *self = handle;

    for (unsigned at = 0; at < self->ports_count; at++) {
        ringtap_close(self->ports[at].handle);
        helper_release(self->ports[at].helper);
    }
    for (int at = 0; at < self->interfaces_count; at++)
        if (self->interfaces[at].sender >= 0)
            close(self->interfaces[at].sender);
    if (self->interrupt >= 0)
        close(self->interrupt);
    free(self->copies);
    free(self->messages);
    free(self->batches);
    free(self);
}

static int make_messages(struct instance *self, unsigned count)
{
    self->messages = calloc(count, sizeof(*self->messages));
    self->batches = calloc(count + 1, sizeof(*self->batches));
    if (self->is_inline)
        self->copies = malloc(count * self->copy_bytes);
    if (!self->messages || !self->batches || (self->is_inline && !self->copies))
        return fail(self, DAQ_ERROR_NOMEM, "no memory for %u messages", count);
    for (unsigned at = 0; at < count; at++) {
        struct message *one = &self->messages[at];

        one->copy = self->is_inline ? self->copies + at * self->copy_bytes : NULL;
        one->msg = (DAQ_Msg_t){ .type = DAQ_MSG_TYPE_PACKET, .hdr = &one->header, .hdr_len = sizeof(one->header),
                                .owner = self->owner, .priv = one };
        one->next = self->free_messages;
        self->free_messages = one;
    }
    for (unsigned at = 0; at <= count; at++) {
        self->batches[at].next = self->free_batches;
        self->free_batches = &self->batches[at];
    }
    self->messages_count = self->free_count = count;
    return DAQ_SUCCESS;
}

static int instantiate(const DAQ_ModuleConfig_h config, DAQ_ModuleInstance_h owner, void **handle)
{
    struct instance *self = calloc(1, sizeof(*self));
    unsigned messages = base.config_get_msg_pool_size(config);
    int code;

    if (!self)
        return DAQ_ERROR_NOMEM;
    self->owner = owner;
    self->can_inject = true;
    self->link_type = 1;
    self->snap_length = base.config_get_snaplen(config);
    self->timeout_ms = base.config_get_timeout(config) ? (int)base.config_get_timeout(config) : -1;
    self->interrupt = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    code = self->interrupt < 0 ? fail(self, DAQ_ERROR, "no descriptor: %s", strerror(errno)) : open_input(self, config);
    if (code == DAQ_SUCCESS)
        code = make_messages(self, messages ? messages : USUAL_MESSAGES);
    self->polled[0] = (struct pollfd){ .fd = self->interrupt, .events = POLLIN };
    for (unsigned at = 0; code == DAQ_SUCCESS && at < self->ports_count; at++) {
        self->ports[at].readable = &self->polled[at + 1];
        self->polled[at + 1] = (struct pollfd){ .fd = ringtap_fd(self->ports[at].handle), .events = POLLIN };
        if (self->polled[at + 1].fd < 0)
            code = fail(self, DAQ_ERROR, "%s", ringtap_error(self->ports[at].handle));
    }
    if (code != DAQ_SUCCESS)
        destroy(self);
    else
        *handle = self;
    return code;
}

static int set_filter(void *handle, const char *filter)
{
    struct instance *self = handle;

    if (self->is_inline)
        return fail(self, DAQ_ERROR_NOTSUP, "an inline reader sees every packet: no BPF filter");
    if (ringtap_set_filter(self->ports[0].handle, filter) < 0)
        return fail(self, DAQ_ERROR, "%s", ringtap_error(self->ports[0].handle));
    return DAQ_SUCCESS;
}

/* From here on a bridge's packets wait for this instance. */
static int start(void *handle)
{
    struct instance *self = handle;

    for (unsigned at = 0; self->is_inline && at < self->ports_count; at++)
        if (ringtap_inline(self->ports[at].handle) < 0)
            return fail(self, DAQ_ERROR, "%s", ringtap_error(self->ports[at].handle));
    return DAQ_SUCCESS;
}

/* The next packet's batch; NULL if there is none now. */
static struct batch *next_batch(struct instance *self, DAQ_RecvStatus *status)
{
    struct batch *batch = self->free_batches;
    unsigned ended = 0;

    for (unsigned tried = 0; !self->current && batch && tried < self->ports_count; tried++) {
        struct port *port = &self->ports[self->turn++ % self->ports_count];
        int got = port->has_ended ? RINGTAP_END
                                  : ringtap_take_batch(port->handle, &batch->packets, &batch->number, 0);

        if (got > 0) {
            self->free_batches = batch->next;
            *batch = (struct batch){ .port = port, .packets = batch->packets, .number = batch->number,
                                     .count = (unsigned)got };
            self->current = batch;
        } else if (got == RINGTAP_END) {
            port->has_ended = true;
            ended++;
        } else if (got < 0) {
            fail(self, DAQ_ERROR, "%s", ringtap_error(port->handle));
            *status = DAQ_RSTAT_ERROR;
            return NULL;
        }
    }
    if (!self->current)
        *status = ended == self->ports_count ? DAQ_RSTAT_EOF : batch ? DAQ_RSTAT_WOULD_BLOCK : DAQ_RSTAT_NOBUF;
    return self->current;
}

/* Gives the batch back once all its packets are messages that were finalised, or copies. */
static void release_batch(struct instance *self, struct batch *batch)
{
    if (batch->held || batch->at < batch->count)
        return;
    ringtap_release_batch(batch->port->handle, batch->number);
    batch->next = self->free_batches;
    self->free_batches = batch;
}

/* Makes a message of the batch's next packet. */
static const DAQ_Msg_t *make_message(struct instance *self, struct batch *batch)
{
    const struct ringtap_packet *packet = &batch->packets[batch->at++];
    struct message *one = self->free_messages;
    struct port *port = batch->port;
    int source = port->first + (int)packet->source, other = source ^ 1;
    uint32_t bytes = packet->captured_bytes;

    self->free_messages = one->next;
    self->free_count--;
    one->port = port;
    one->lane = packet->lane;
    one->sequence = packet->sequence;
    one->source = source;
    if (self->is_inline) {
        one->bytes = bytes < self->copy_bytes ? bytes : (uint32_t)self->copy_bytes;
        memcpy(one->copy, packet->data, one->bytes);
        complete_checksum(one->copy, one->bytes);
        one->msg.data = one->copy;
    } else {
        one->batch = batch;
        one->packet = packet;
        batch->held++;
        one->msg.data = (uint8_t *)packet->data;
    }
    one->msg.data_len = bytes < (uint32_t)self->snap_length ? bytes : (uint32_t)self->snap_length;
    memset(&one->header, 0, sizeof(one->header));
    one->header.ts.tv_sec = (time_t)(packet->time_ns / 1000000000);
    one->header.ts.tv_usec = (suseconds_t)(packet->time_ns % 1000000000 / 1000);
    one->header.pktlen = packet->wire_bytes;
    one->header.ingress_index = self->interfaces[source].index ? self->interfaces[source].index : DAQ_PKTHDR_UNKNOWN;
    one->header.egress_index = self->is_inline ? self->interfaces[other].index : DAQ_PKTHDR_UNKNOWN;
    one->header.ingress_group = one->header.egress_group = DAQ_PKTHDR_UNKNOWN;
    one->header.flags = self->is_inline ? 0 : DAQ_PKT_FLAG_NOT_FORWARDING;
    self->stats.packets_received++;
    return &one->msg;
}

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static unsigned msg_receive(void *handle, const unsigned most, const DAQ_Msg_t *messages[], DAQ_RecvStatus *status)
{
    struct instance *self = handle;
    struct batch *batch;
    int64_t deadline_ms = 0;
    int left_ms = self->timeout_ms;
    unsigned count = 0;

    *status = DAQ_RSTAT_OK;
    for (unsigned at = 0; self->is_inline && at < self->ports_count; at++)
        ringtap_send_verdicts(self->ports[at].handle);
    while (count < most) {
        if (atomic_exchange(&self->interrupted, false)) {
            eventfd_t ignored;

            eventfd_read(self->interrupt, &ignored);
            *status = DAQ_RSTAT_INTERRUPTED;
            break;
        }
        if (!self->free_messages) {
            *status = DAQ_RSTAT_NOBUF;
            break;
        }
        if ((batch = next_batch(self, status))) {
            messages[count++] = make_message(self, batch);
            if (batch->at == batch->count) {
                self->current = NULL;
                release_batch(self, batch);
            }
            *status = DAQ_RSTAT_OK;
            continue;
        }
        if (count || *status != DAQ_RSTAT_WOULD_BLOCK)
            break;
        if (self->timeout_ms >= 0) {
            if (!deadline_ms)
                deadline_ms = now_ms() + self->timeout_ms;
            left_ms = (int)(deadline_ms - now_ms());
            if (left_ms <= 0) {
                *status = DAQ_RSTAT_TIMEOUT;
                break;
            }
        }
        poll(self->polled, self->ports_count + 1, left_ms);
    }
    /* What ends the capture is reported when no packet is left. */
    if (count && (*status == DAQ_RSTAT_EOF || *status == DAQ_RSTAT_ERROR))
        *status = DAQ_RSTAT_OK;
    return count;
}

static int inject_at(struct instance *self, int at, const uint8_t *data, uint32_t bytes)
{
    if (at < 0 || at >= self->interfaces_count || self->interfaces[at].sender < 0)
        return fail(self, DAQ_ERROR, "there is no interface to send the packet to, or no right to do so");
    while (send(self->interfaces[at].sender, data, bytes, MSG_DONTWAIT) < 0)
        if (errno != EINTR)
            return fail(self, DAQ_ERROR, "%s: %s", self->interfaces[at].name, strerror(errno));
    self->stats.packets_injected++;
    return DAQ_SUCCESS;
}

static int inject(void *handle, DAQ_MsgType type, const void *header, const uint8_t *data, uint32_t bytes)
{
    struct instance *self = handle;
    int at = 0;

    if (type != DAQ_MSG_TYPE_PACKET)
        return DAQ_ERROR_NOTSUP;
    while (at < self->interfaces_count && self->interfaces[at].index != ((const DAQ_PktHdr_t *)header)->ingress_index)
        at++;
    return inject_at(self, at, data, bytes);
}

static int inject_relative(void *handle, DAQ_Msg_h msg, const uint8_t *data, uint32_t bytes, int reverse)
{
    struct instance *self = handle;
    const struct message *one = msg->priv;

    /* A passive instance knows only where the packet came from. */
    return inject_at(self, reverse ? one->source : self->is_inline ? one->source ^ 1 : -1, data, bytes);
}

/* Whether a verdict is about all further packets of its packet's flow, too. */
static bool is_for_flow(DAQ_Verdict verdict)
{
    return verdict == DAQ_VERDICT_WHITELIST || verdict == DAQ_VERDICT_BLACKLIST || verdict == DAQ_VERDICT_IGNORE;
}

/*
 * Sets a rule by which a passive instance gets no further packets of a flow. Those that wait already get the same
 * verdict, and no rule again. Without room for a rule the packets come as before.
 */
static void ignore_flow(struct instance *self, const struct message *one)
{
    const struct ringtap_packet *packet = one->packet;
    struct ignored *place = &self->ignored[packet->hash % IGNORED_FLOWS];
    int64_t now = now_ms();

    if ((packet->flags & RINGTAP_PACKET_HASHED) && place->hash == packet->hash && now - place->time_ms < IGNORED_MS)
        return;
    *place = (struct ignored){ .hash = packet->hash, .time_ms = now };
    ringtap_ignore_flow(one->port->handle, packet);
}

/* What a verdict does to its packet, or to its flow, whose further packets the kernel then forwards or drops. */
static int decide(struct instance *self, const struct message *one, DAQ_Verdict verdict)
{
    bool drops = verdict == DAQ_VERDICT_BLOCK || verdict == DAQ_VERDICT_BLACKLIST;

    if (!self->is_inline) {
        if (is_for_flow(verdict))
            ignore_flow(self, one);
        return RINGTAP_OK;
    }
    if (is_for_flow(verdict))
        return ringtap_flow_verdict(one->port->handle, one->lane, one->sequence, drops ? RINGTAP_DROP : RINGTAP_PASS,
                                    RINGTAP_UNTIL_IDLE, FLOW_IDLE_MS);
    /* The bridge has the unchanged packet: send the changed one in its place. */
    if (verdict == DAQ_VERDICT_REPLACE) {
        drops = true;
        if (inject_at(self, one->source ^ 1, one->copy, one->bytes) == DAQ_SUCCESS)
            self->stats.packets_injected--;
    }
    return ringtap_verdict(one->port->handle, one->lane, one->sequence, drops ? RINGTAP_DROP : RINGTAP_PASS);
}

static int msg_finalize(void *handle, const DAQ_Msg_t *msg, DAQ_Verdict verdict)
{
    struct instance *self = handle;
    struct message *one = msg->priv;
    int code;

    if ((unsigned)verdict >= MAX_DAQ_VERDICT)
        verdict = DAQ_VERDICT_PASS;
    self->stats.verdicts[verdict]++;
    code = decide(self, one, verdict);
    if (!self->is_inline) {
        one->batch->held--;
        release_batch(self, one->batch);
    }
    one->next = self->free_messages;
    self->free_messages = one;
    if (++self->free_count == self->messages_count && self->is_inline)
        ringtap_send_verdicts(one->port->handle);
    return code < 0 ? fail(self, DAQ_ERROR, "%s", ringtap_error(one->port->handle)) : DAQ_SUCCESS;
}

static int get_msg_pool_info(void *handle, DAQ_MsgPoolInfo_t *info)
{
    struct instance *self = handle;

    info->size = self->messages_count;
    info->available = self->free_count;
    info->mem_size = self->messages_count * (sizeof(struct message) + (self->is_inline ? self->copy_bytes : 0));
    return DAQ_SUCCESS;
}

static int interrupt(void *handle)
{
    struct instance *self = handle;

    atomic_store(&self->interrupted, true);
    eventfd_write(self->interrupt, 1);
    return DAQ_SUCCESS;
}

/* The subscription ends with the instance, so that messages may be finalised until then. */
static int stop(void *handle)
{
    (void)handle;
    return DAQ_SUCCESS;
}

static int control(void *handle, DAQ_IoctlCmd command, void *argument, size_t length)
{
    struct instance *self = handle;
    DIOCTL_QueryDeviceIndex *query = argument;

    if (command != DIOCTL_GET_DEVICE_INDEX || length != sizeof(*query))
        return DAQ_ERROR_NOTSUP;
    if (!query->device)
        return fail(self, DAQ_ERROR_INVAL, "no device to look for");
    for (int at = 0; at < self->interfaces_count; at++)
        if (self->interfaces[at].index && strcmp(query->device, self->interfaces[at].name) == 0) {
            query->index = self->interfaces[at].index;
            return DAQ_SUCCESS;
        }
    return DAQ_ERROR_NODEV;
}

/* Adds the counters of the hubs since the instance began; of a hub that has left, the last known ones. */
static void add_counters(struct instance *self, DAQ_Stats_t *stats)
{
    stats->hw_packets_received = stats->hw_packets_dropped = stats->packets_filtered = 0;
    for (unsigned at = 0; at < self->ports_count; at++) {
        struct ringtap_statistics now = { .size = sizeof(now) }, *last = &self->ports[at].last;

        if (ringtap_statistics(self->ports[at].handle, &now) == RINGTAP_OK)
            *last = now;
        stats->hw_packets_received += last->offered - last->other_members;
        stats->hw_packets_dropped += last->dropped_nic + last->dropped_kernel + last->dropped_pool_full
                                     + last->dropped_overrun + last->dropped_no_verdict;
        stats->packets_filtered += last->filtered;
    }
}

static int get_stats(void *handle, DAQ_Stats_t *stats)
{
    struct instance *self = handle;

    *stats = self->stats;
    add_counters(self, stats);
    stats->hw_packets_received -= self->before.hw_packets_received;
    stats->hw_packets_dropped -= self->before.hw_packets_dropped;
    stats->packets_filtered -= self->before.packets_filtered;
    /* The last packets of a hub that has left are not in its last known counters. */
    if (stats->hw_packets_received < stats->packets_received)
        stats->hw_packets_received = stats->packets_received;
#ifdef HAS_OUTSTANDING
    stats->packets_outstanding = self->messages_count - self->free_count;
#endif
    return DAQ_SUCCESS;
}

static void reset_stats(void *handle)
{
    struct instance *self = handle;

    memset(&self->stats, 0, sizeof(self->stats));
    add_counters(self, &self->before);
}

static int get_snaplen(void *handle)
{
    return ((struct instance *)handle)->snap_length;
}

static uint32_t capabilities(void *handle)
{
    struct instance *self = handle;
    uint32_t all = DAQ_CAPA_UNPRIV_START | DAQ_CAPA_INTERRUPT | DAQ_CAPA_DEVICE_INDEX;

    if (self->can_inject)
        all |= DAQ_CAPA_INJECT;
    if (!self->is_inline)
        return all | DAQ_CAPA_BPF | DAQ_CAPA_WHITELIST;
    return all | DAQ_CAPA_BLOCK | DAQ_CAPA_WHITELIST | DAQ_CAPA_BLACKLIST | (self->can_inject ? DAQ_CAPA_REPLACE : 0);
}

static int get_datalink_type(void *handle)
{
    return ((struct instance *)handle)->link_type;
}

static const DAQ_VariableDesc_t variables[] = {
    { "socket", "Socket of the hub for hub:GROUP (default: $RINGTAP_SOCKET, /run/ringtap/hub.sock)",
      DAQ_VAR_DESC_REQUIRES_ARGUMENT },
    { "private", "Read from a pool that holds only this reader's packets", DAQ_VAR_DESC_FORBIDS_ARGUMENT },
    { "program", "The ringtap program, which is started for interfaces (default: ringtap)",
      DAQ_VAR_DESC_REQUIRES_ARGUMENT },
    { "no_verdict", "Interfaces inline: packets without a verdict drop (default) or pass",
      DAQ_VAR_DESC_REQUIRES_ARGUMENT },
    { "verdict_timeout", "Interfaces inline: longest wait for a verdict in milliseconds (default: 100)",
      DAQ_VAR_DESC_REQUIRES_ARGUMENT },
};

static int get_variable_descs(const DAQ_VariableDesc_t **all)
{
    *all = variables;
    return sizeof(variables) / sizeof(*variables);
}

static int load(const DAQ_BaseAPI_t *api)
{
    if (api->api_version != DAQ_BASE_API_VERSION || api->api_size != sizeof(*api))
        return DAQ_ERROR;
    base = *api;
    return DAQ_SUCCESS;
}

static int unload(void)
{
    memset(&base, 0, sizeof(base));
    return DAQ_SUCCESS;
}

__attribute__((visibility("default"))) const DAQ_ModuleAPI_t DAQ_MODULE_DATA = {
    .api_version = DAQ_MODULE_API_VERSION,
    .api_size = sizeof(DAQ_ModuleAPI_t),
    .module_version = MODULE_VERSION,
    .name = "ringtap",
    .type = DAQ_TYPE_INTF_CAPABLE | DAQ_TYPE_INLINE_CAPABLE | DAQ_TYPE_MULTI_INSTANCE,
    .load = load,
    .unload = unload,
    .get_variable_descs = get_variable_descs,
    .instantiate = instantiate,
    .destroy = destroy,
    .set_filter = set_filter,
    .start = start,
    .inject = inject,
    .inject_relative = inject_relative,
    .interrupt = interrupt,
    .stop = stop,
    .ioctl = control,
    .get_stats = get_stats,
    .reset_stats = reset_stats,
    .get_snaplen = get_snaplen,
    .get_capabilities = capabilities,
    .get_datalink_type = get_datalink_type,
    .msg_receive = msg_receive,
    .msg_finalize = msg_finalize,
    .get_msg_pool_info = get_msg_pool_info,
};
