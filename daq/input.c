/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Opens an instance's input: a group of a hub, interfaces, or bridges of interfaces. */
#define _GNU_SOURCE
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/if_packet.h>

#include "instance.h"

/* Longest wait until a started process serves, and until it has ended, in calls of helper_wait(). */
#define START_WAITS 750
#define END_WAITS 50
/* Longest wait of a packet for earlier ones of other queues. */
#define ORDER_MS 100

/* Subscribes; waits for the process that serves the group, if this module started it. */
static int subscribe(struct instance *self, const char *socket, const char *group, struct helper *helper,
                     const struct ringtap_options *options)
{
    struct port *port = &self->ports[self->ports_count];
    int code = RINGTAP_ERROR_NO_HUB;

    port->helper = helper;
    port->is_inline = self->is_inline;
    self->ports_count++;
    for (int step = 0; step < START_WAITS; step++) {
        code = ringtap_open(&port->handle, helper ? helper_socket(helper) : socket, group, options);
        if (code != RINGTAP_ERROR_NO_HUB || !helper || !helper_runs(helper))
            break;
        helper_wait();
    }
    if (code == RINGTAP_OK)
        return DAQ_SUCCESS;
    /* A process that ends has said why. */
    for (int step = 0; helper && step < END_WAITS && helper_runs(helper); step++)
        helper_wait();
    if (helper && *helper_said(helper) && !helper_runs(helper)) {
        const char *said = helper_said(helper);

        /* fail() names the program, too. */
        return fail(self, DAQ_ERROR, "%s", strncmp(said, "ringtap: ", 9) == 0 ? said + 9 : said);
    }
    if (code == RINGTAP_ERROR_REFUSED && self->is_inline)
        return fail(self, DAQ_ERROR, "%s (one instance decides for a bridge)", ringtap_error(NULL));
    return fail(self, code == RINGTAP_ERROR_NO_HUB ? DAQ_ERROR_NODEV : DAQ_ERROR, "%s", ringtap_error(NULL));
}

/* Notes the interfaces of a subscription's sources, and whether packets can be sent there. */
static int note_interfaces(struct instance *self, struct port *port, bool is_here)
{
    struct ringtap_source source = { .size = sizeof(source) };
    uint32_t number = 0;

    port->first = self->interfaces_count;
    for (; ringtap_source(port->handle, number, &source) == 1; number++) {
        const char *colon = strchr(source.device, ':');
        const char *name = colon ? colon + 1 : source.device;
        int link = source.link_type == 101 ? 12 : (int)source.link_type; /* LINKTYPE_RAW is DLT_RAW */
        struct interface *one = &self->interfaces[self->interfaces_count];
        struct sockaddr_ll address = { .sll_family = AF_PACKET };

        if (self->interfaces_count == MAX_INTERFACES)
            return fail(self, DAQ_ERROR, "more than %d sources", MAX_INTERFACES);
        if (self->interfaces_count && link != self->link_type)
            return fail(self, DAQ_ERROR_NOTSUP, "the sources' link types differ: start a hub for each");
        self->link_type = link;
        self->interfaces_count++;
        if (source.snap_length_bytes > self->copy_bytes)
            self->copy_bytes = source.snap_length_bytes;
        snprintf(one->name, sizeof(one->name), "%.*s", (int)strcspn(name, "@?"), name);
        one->index = is_here ? (int)if_nametoindex(one->name) : 0;
        one->sender = one->index ? socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0) : -1;
        address.sll_ifindex = one->index;
        if (one->sender >= 0 && bind(one->sender, (struct sockaddr *)&address, sizeof(address)) < 0) {
            close(one->sender);
            one->sender = -1;
        }
        self->can_inject &= one->sender >= 0;
    }
    if (port->is_inline && number != 2)
        return fail(self, DAQ_ERROR, "this is no group of an inline reader: start `ringtap bridge --inline`");
    return DAQ_SUCCESS;
}

static const char *variable(DAQ_ModuleConfig_h config, const char *name, const char *otherwise)
{
    const char *value = base.config_get_variable(config, name);

    return value && *value ? value : otherwise;
}

/* Starts a hub of the devices in `input`: one, or interfaces between colons. */
static int open_devices(struct instance *self, DAQ_ModuleConfig_h config, char *input,
                        const struct ringtap_options *options)
{
    static const char *const kinds[] = { "tap:", "xdp:", "packet:", "sim:", "pcap:" };
    char *arguments[5 + 2 * MAX_INTERFACES], group[32], *rest = NULL;
    unsigned total = base.config_get_total_instances(config);
    struct helper *helper;
    size_t count = 0;
    bool is_one = false;

    for (size_t at = 0; at < sizeof(kinds) / sizeof(*kinds); at++)
        is_one |= strncmp(input, kinds[at], strlen(kinds[at])) == 0;
    snprintf(group, sizeof(group), total > 1 ? "daq:%u:flow" : "daq", total);
    arguments[count++] = (char *)variable(config, "program", "ringtap");
    arguments[count++] = "hub";
    arguments[count++] = "-q";
    arguments[count++] = "-g";
    arguments[count++] = group;
    for (char *one = is_one ? input : strtok_r(input, ":", &rest); one; one = is_one ? NULL : strtok_r(NULL, ":", &rest)) {
        if (count + 2 > sizeof(arguments) / sizeof(*arguments))
            return fail(self, DAQ_ERROR_INVAL, "more than %d interfaces", MAX_INTERFACES);
        arguments[count++] = "-i";
        arguments[count++] = one;
    }
    if (!(helper = helper_start(arguments, count)))
        return fail(self, DAQ_ERROR_NOMEM, "the hub cannot be started: %s", strerror(errno));
    return subscribe(self, NULL, "daq", helper, options);
}

/* Starts a bridge for each pair of interfaces. */
static int open_bridges(struct instance *self, DAQ_ModuleConfig_h config, char *input,
                        const struct ringtap_options *options)
{
    char *rest = NULL, *one, *other;
    struct helper *helper;
    int code = DAQ_SUCCESS;

    for (one = strtok_r(input, ":", &rest); one && code == DAQ_SUCCESS; one = strtok_r(NULL, ":", &rest)) {
        other = strtok_r(NULL, ":", &rest);
        if (!other)
            return fail(self, DAQ_ERROR_INVAL, "inline needs pairs: eth0:eth1, or eth0:eth1::eth2:eth3");
        if (self->ports_count == MAX_BRIDGES)
            return fail(self, DAQ_ERROR_INVAL, "more than %d bridges", MAX_BRIDGES);
        char *arguments[] = { (char *)variable(config, "program", "ringtap"), "bridge", one, other, "--quiet",
                              "--inline", "daq", "--no-verdict", (char *)variable(config, "no_verdict", "drop"),
                              "--verdict-timeout", (char *)variable(config, "verdict_timeout", "100") };
        if (!(helper = helper_start(arguments, sizeof(arguments) / sizeof(*arguments))))
            return fail(self, DAQ_ERROR_NOMEM, "the bridge cannot be started: %s", strerror(errno));
        code = subscribe(self, NULL, "daq", helper, options);
    }
    return code;
}

int open_input(struct instance *self, DAQ_ModuleConfig_h config)
{
    struct ringtap_options options = RINGTAP_OPTIONS_INIT;
    const char *given = base.config_get_input(config), *at;
    DAQ_Mode mode = base.config_get_mode(config);
    bool is_here = true;
    char *input;
    int code;

    if (!given || !*given)
        return fail(self, DAQ_ERROR_INVAL, "no input: hub:GROUP, or an interface");
    if (mode == DAQ_MODE_READ_FILE)
        return fail(self, DAQ_ERROR_NOTSUP, "files are for LibDAQ's own module: --daq pcap");
    if (base.config_get_variable(config, "private"))
        options.flags |= RINGTAP_OPEN_PRIVATE;
    self->is_inline = mode == DAQ_MODE_INLINE;
    /* Programs follow connections, whose directions may come on different queues. Inline, a packet that waits for its
       verdict has no answer yet. */
    if (!self->is_inline)
        options.order_ms = ORDER_MS;
    at = strncmp(given, "hub:", 4) == 0 ? given + 4 : given;
    if (at != given || strncmp(given, "host:", 5) == 0) {
        is_here = at != given;
        code = subscribe(self, base.config_get_variable(config, "socket"), at, NULL, &options);
    } else {
        if (!(input = strdup(given)))
            return DAQ_ERROR_NOMEM;
        code = self->is_inline ? open_bridges(self, config, input, &options)
                               : open_devices(self, config, input, &options);
        free(input);
    }
    for (unsigned port = 0; code == DAQ_SUCCESS && port < self->ports_count; port++)
        code = note_interfaces(self, &self->ports[port], is_here);
    return code;
}
