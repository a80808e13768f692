/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Packets and bytes by IP protocol. Build: cc -shared -fPIC -O2 -I DIR protocols.c -o protocols.so, where DIR has
 * ringtap_analysis.h. `settings = "bytes"` counts bytes, too. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ringtap_analysis.h"

struct counts {
    int with_bytes;
    uint64_t packets[256];
    uint64_t bytes[256];
};

static void *init(struct ringtap_analysis_start *start)
{
    if (start->link_type != 1) {
        snprintf(start->why, sizeof start->why, "needs Ethernet, not link type %u", start->link_type);
        return NULL;
    }
    struct counts *counts = calloc(1, sizeof *counts);
    if (counts)
        counts->with_bytes = strcmp(start->settings, "bytes") == 0;
    return counts;
}

static void packets(void *state, const struct ringtap_analysis_packet *packets, size_t count)
{
    struct counts *counts = state;
    for (size_t at = 0; at < count; at++) {
        const uint8_t *data = packets[at].data;
        if (packets[at].length < 34 || data[12] != 8 || data[13] != 0)
            continue; /* not IPv4 */
        counts->packets[data[23]]++;
        counts->bytes[data[23]] += packets[at].wire_length;
    }
}

static void results(void *state, const struct ringtap_analysis_output *output)
{
    struct counts *counts = state;
    for (int protocol = 0; protocol < 256; protocol++) {
        char key[4];
        if (counts->packets[protocol] == 0)
            continue;
        snprintf(key, sizeof key, "%d", protocol);
        output->value(output->to, "packets", key, (double)counts->packets[protocol]);
        if (counts->with_bytes)
            output->value(output->to, "bytes", key, (double)counts->bytes[protocol]);
    }
    memset(counts->packets, 0, sizeof counts->packets);
    memset(counts->bytes, 0, sizeof counts->bytes);
}

const struct ringtap_analysis ringtap_analysis = {
    .version = RINGTAP_ANALYSIS_VERSION,
    .init = init,
    .packets = packets,
    .results = results,
    .end = free,
};
