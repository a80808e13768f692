/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Counts the packets of a hub's group: prints a line per second, and the counters at the end.
 *
 *     cc -o count count.c $(pkg-config --cflags --libs ringtap)
 *     ringtap hub -i eth0 -g ids &
 *     ./count ids 'tcp port 443'
 *
 * Ctrl-C ends it.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <ringtap.h>

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

static void print_counters(ringtap_handle *handle)
{
    struct ringtap_statistics counters = { .size = sizeof(counters) };

    if (ringtap_statistics(handle, &counters) < 0) {
        /* A hub that has died returns no counters. */
        fprintf(stderr, "count: no counters: %s\n", ringtap_error(handle));
        return;
    }
    printf("offered %" PRIu64 " = delivered %" PRIu64 " + filtered %" PRIu64
           " + shunted %" PRIu64 " + other_members %" PRIu64 " + dropped (nic %" PRIu64 " + kernel %" PRIu64 " + pool_full %" PRIu64 " + overrun %" PRIu64 "), %s\n",
           counters.offered, counters.delivered, counters.filtered, counters.shunted, counters.other_members,
           counters.dropped_nic, counters.dropped_kernel, counters.dropped_pool_full, counters.dropped_overrun,
           counters.balanced ? "balanced" : "NOT balanced");
}

int main(int argc, char **argv)
{
    struct ringtap_options options = RINGTAP_OPTIONS_INIT;
    const struct ringtap_packet *packets;
    ringtap_handle *handle;
    uint64_t count = 0, bytes = 0, lost = 0;
    time_t told = time(NULL);
    int got = 0;

    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: %s GROUP [FILTER]\n", argv[0]);
        return 2;
    }
    options.name = "count.c";
    options.filter = argc == 3 ? argv[2] : NULL;
    if (ringtap_open(&handle, NULL, argv[1], &options) < 0) {
        fprintf(stderr, "count: %s\n", ringtap_error(NULL));
        return 1;
    }
    signal(SIGINT, on_interrupt);
    signal(SIGTERM, on_interrupt);
    fprintf(stderr, "count: reading %s\n", argv[1]);

    while (!interrupted) {
        /* A short wait, so that Ctrl-C and the line per second are not late. */
        got = ringtap_next_batch(handle, &packets, 200);
        if (got < 0)
            break;
        for (int i = 0; i < got; i++) {
            count++;
            bytes += packets[i].wire_bytes;
            lost += packets[i].lost_before;
        }
        if (time(NULL) != told) {
            told = time(NULL);
            printf("%" PRIu64 " packets, %" PRIu64 " bytes, %" PRIu64 " lost by us\n", count, bytes,
                   lost);
            fflush(stdout);
        }
    }
    if (got < 0 && got != RINGTAP_END)
        fprintf(stderr, "count: %s\n", ringtap_error(handle));
    printf("%" PRIu64 " packets, %" PRIu64 " bytes, %" PRIu64 " lost by us\n", count, bytes, lost);
    print_counters(handle);
    ringtap_close(handle);
    return got < 0 && got != RINGTAP_END;
}
