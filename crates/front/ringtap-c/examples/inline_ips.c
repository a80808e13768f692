/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * An inline IPS on one page: decides about each packet of a bridge, in a process of its own.
 *
 *     cc -o inline_ips inline_ips.c $(pkg-config --cflags --libs ringtap)
 *     ringtap bridge eth0 eth1 --inline ips --no-verdict pass &
 *     ./inline_ips ips 'cmd.exe'
 *
 * Ctrl-C ends it; the bridge then does as its --no-verdict says.
 */
#define _GNU_SOURCE /* memmem() */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include <ringtap.h>

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

static int verdict_on(const struct ringtap_packet *packet, const char *text)
{
    return memmem(packet->data, packet->captured_bytes, text, strlen(text)) ? RINGTAP_DROP
                                                                             : RINGTAP_PASS;
}

int main(int argc, char **argv)
{
    struct ringtap_options options = RINGTAP_OPTIONS_INIT;
    const struct ringtap_packet *packets;
    ringtap_handle *handle;
    uint64_t decided = 0, dropped = 0;
    int got = 0, verdict;

    if (argc != 3 || !argv[2][0]) {
        fprintf(stderr, "usage: %s GROUP TEXT (that no packet may contain)\n", argv[0]);
        return 2;
    }
    options.name = "inline_ips.c";
    /* A subscription like any reader's: packets are read in place. */
    if (ringtap_open(&handle, NULL, argv[1], &options) < 0) {
        fprintf(stderr, "inline_ips: %s\n", ringtap_error(NULL));
        return 1;
    }
    /* From here on packets wait for this program's verdicts. */
    if (ringtap_inline(handle) < 0) {
        fprintf(stderr, "inline_ips: %s\n", ringtap_error(handle));
        ringtap_close(handle);
        return 1;
    }
    signal(SIGINT, on_interrupt);
    signal(SIGTERM, on_interrupt);
    fprintf(stderr, "inline_ips: deciding %s\n", argv[1]);

    while (!interrupted && got >= 0) {
        /* This also sends the verdicts. The short wait lets Ctrl-C end the loop soon. */
        got = ringtap_next_batch(handle, &packets, 200);
        for (int i = 0; i < got; i++) {
            verdict = verdict_on(&packets[i], argv[2]);
            if (ringtap_verdict(handle, packets[i].lane, packets[i].sequence, verdict) < 0) {
                got = RINGTAP_ERROR_HUB_LEFT;
                break;
            }
            decided++;
            dropped += verdict == RINGTAP_DROP;
        }
    }
    if (got < 0 && got != RINGTAP_END)
        fprintf(stderr, "inline_ips: %s\n", ringtap_error(handle));
    /* Before it leaves, the program sends a verdict on every packet that it read. */
    ringtap_send_verdicts(handle);
    printf("%" PRIu64 " packets decided, %" PRIu64 " dropped\n", decided, dropped);
    ringtap_close(handle);
    return got < 0 && got != RINGTAP_END;
}
