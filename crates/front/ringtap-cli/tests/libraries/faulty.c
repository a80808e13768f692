/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Counts packets; the first start of process 0 ends as its settings say, at its 20th packet. */
#include <stdlib.h>
#include <string.h>
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
