/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Counts packets; the first start of process 0 ends as its settings say, at its 20th packet. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ringtap_analysis.h"

static const char *fault = "";
static uint64_t seen, counted;

static void *init(struct ringtap_analysis_start *start)
{
    if (strcmp(start->settings, "refuse") == 0) {
        strcpy(start->why, "no settings of this kind");
        return NULL;
    }
    if (start->worker == 0 && start->starts == 0)
        fault = strdup(start->settings);
    return &seen;
}

static void packets(void *state, const struct ringtap_analysis_packet *packets, size_t count)
{
    (void)state, (void)packets;
    seen += count;
    counted += count;
    if (seen < 20)
        return;
    if (strcmp(fault, "crash") == 0)
        abort();
    while (strcmp(fault, "hang") == 0)
        pause();
    if (strcmp(fault, "flood") == 0) {
        static const char forged[] = "{\"Refused\":\"forged\"}";

        /* Messages of a process go through its standard input; the probe prints them. */
        for (int message = 0; message < 20000; message++)
            if (send(0, forged, sizeof(forged) - 1, 0) < 0)
                break;
        fault = "";
    }
}

static void results(void *state, const struct ringtap_analysis_output *output)
{
    (void)state;
    output->value(output->to, "packets", NULL, (double)counted);
    counted = 0;
}

const struct ringtap_analysis ringtap_analysis = {
    .version = RINGTAP_ANALYSIS_VERSION,
    .init = init,
    .packets = packets,
    .results = results,
};
