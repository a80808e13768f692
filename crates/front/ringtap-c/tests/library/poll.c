/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Reads a group with poll() only, with an optional watermark: prints the packets, the reason of the end, and the wake-ups. */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include <ringtap.h>

int main(int argc, char **argv)
{
    struct ringtap_statistics counters = { .size = sizeof(counters) };
    struct ringtap_options options = RINGTAP_OPTIONS_INIT;
    const struct ringtap_packet *packet;
    uint64_t packets = 0, out_of_order = 0, next[64] = { 0 };
    struct pollfd ready = { .events = POLLIN };
    ringtap_handle *handle;
    long wakeups = 0;
    int got;

    if (argc == 3) {
        options.watermark_packets = (uint32_t)atoi(argv[2]);
        options.time_limit_ms = 50;
    }
    if (argc < 2 || ringtap_open(&handle, NULL, argv[1], &options) < 0) {
        fprintf(stderr, "%s\n", ringtap_error(NULL));
        return 1;
    }
    ready.fd = ringtap_fd(handle);
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        while ((got = ringtap_next(handle, &packet, 0)) == 1) {
            uint64_t *wanted = &next[packet->lane % 64];

            out_of_order += *wanted > packet->sequence;
            *wanted = packet->sequence + 1;
            packets++;
        }
        if (got < 0)
            break;
        printf("%" PRIu64 " packets\n", packets);
        fflush(stdout);
        poll(&ready, 1, -1);
        wakeups++;
    }
    printf("ended with %d after %" PRIu64 " packets, %" PRIu64 " out of order, %ld wake-ups\n", got,
           packets, out_of_order, wakeups);
    if (ringtap_statistics(handle, &counters) == RINGTAP_OK)
        printf("balanced %u\n", (unsigned)counters.balanced);
    ringtap_close(handle);
    return 0;
}
