/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Ignores a flow, counts what is left of the traffic, and tells the flow's end. Arguments: packets to wait for. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <ringtap.h>

#include "want.h"

#define FLOW "udp 10.0.0.1:1000 10.0.0.2:7"

static void refuses(ringtap_handle *handle)
{
    struct ringtap_flow_rule rule = RINGTAP_FLOW_RULE_INIT;

    WANT(ringtap_flow_rule(handle, NULL), RINGTAP_ERROR_ARGUMENT);
    WANT(ringtap_flow_rule(handle, &rule), RINGTAP_ERROR_ARGUMENT);
    rule.flow = "icmp 10.0.0.1:1 10.0.0.2";
    WANT(ringtap_flow_rule(handle, &rule), RINGTAP_ERROR_ARGUMENT);
    rule.flow = FLOW;
    rule.packets = 3;
    WANT(ringtap_flow_rule(handle, &rule), RINGTAP_ERROR_ARGUMENT);
    rule.action = 7;
    WANT(ringtap_flow_rule(handle, &rule), RINGTAP_ERROR_ARGUMENT);
    rule.action = RINGTAP_CUTOFF;
    rule.packets = 0;
    WANT(ringtap_flow_rule(handle, &rule), RINGTAP_ERROR_REFUSED);
    WANT(ringtap_ignore_flow(handle, NULL), RINGTAP_ERROR_ARGUMENT);
    WANT(ringtap_remove_flow_rule(handle, "udp 10.0.0.1"), RINGTAP_ERROR_ARGUMENT);
    WANT(ringtap_remove_flow_rule(handle, FLOW), 0);
}

static void has_patterns(ringtap_handle *handle)
{
    struct ringtap_flow_rule rule = RINGTAP_FLOW_RULE_INIT;

    rule.flow = "udp net 10.0.0.1/8";
    WANT(ringtap_flow_rule(handle, &rule), RINGTAP_ERROR_ARGUMENT);
    rule.flow = "udp net 10.0.0.0/8 port 1-9";
    rule.action = RINGTAP_SAMPLE;
    rule.packets = 1;
    WANT(ringtap_flow_rule(handle, &rule), RINGTAP_ERROR_REFUSED);
    rule.packets = 10;
    WANT(ringtap_flow_rule(handle, &rule), RINGTAP_OK);
    WANT(ringtap_remove_flow_rule(handle, rule.flow), 1);
    WANT(ringtap_remove_flow_rule(handle, rule.flow), 0);
}

int main(int argc, char **argv)
{
    struct ringtap_flow_rule rule = RINGTAP_FLOW_RULE_INIT;
    struct ringtap_flow_event event = { .size = sizeof(event) };
    struct ringtap_statistics statistics = { .size = sizeof(statistics) };
    uint64_t packets = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    const struct ringtap_packet *packet;
    ringtap_handle *handle;

    WANT(ringtap_open(&handle, NULL, "all", NULL), RINGTAP_OK);
    refuses(handle);
    has_patterns(handle);
    rule.flow = FLOW;
    WANT(ringtap_flow_rule(handle, &rule), RINGTAP_OK);
    WANT(ringtap_next_flow_event(handle, &event, 0), 0);
    printf("ready\n");
    fflush(stdout);
    do {
        while (ringtap_next(handle, &packet, 10) == 1)
            ;
        WANT(ringtap_statistics(handle, &statistics), RINGTAP_OK);
    } while (statistics.offered < packets);
    printf("%" PRIu64 " delivered, %" PRIu64 " shunted\n", statistics.delivered, statistics.shunted);
    WANT(ringtap_remove_flow_rule(handle, FLOW), 1);
    WANT(ringtap_next_flow_event(handle, &event, 10000), 1);
    printf("%s: %u, %" PRIu64 " packets, %" PRIu64 " bytes\n", event.flow, event.why,
           event.directions[0].packets + event.directions[1].packets,
           event.directions[0].bytes + event.directions[1].bytes);
    WANT(event.counted == 1 && event.lost_before == 0, 1);
    WANT(ringtap_close(handle), RINGTAP_OK);
    return 0;
}
