/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * An inline IPS on one page, in a process of its own: blocks a flow once one of its packets contains a text, and lets
 * the kernel forward a flow of which the first packets did not.
 *
 *     cc -o inline_ips inline_ips.c $(pkg-config --cflags --libs ringtap)
 *     ringtap bridge eth0 eth1 --inline ips --no-verdict pass &
 *     ./inline_ips ips 'cmd.exe' 100
 *
 * Without the number, it looks at all packets. Ctrl-C ends it; the bridge then does as its --no-verdict says.
 */
#define _GNU_SOURCE /* memmem() */
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ringtap.h>

/* A blocked or passed flow is asked for again after so long without a packet. */
#define IDLE_MS (60 * 1000)
#define COUNTED 65536 /* a power of two */

static volatile sig_atomic_t interrupted;

struct ips {
    ringtap_handle *handle;
    const char *text;
    unsigned long pass_after; /* 0: look at all packets */
    uint64_t decided, blocked, passed_flows;
    uint32_t counts[COUNTED]; /* packets looked at, by flow hash: flows that share a hash share a count */
};

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

/* A number that is the same for both directions of an IPv4 flow; 0 for other packets. */
static uint32_t hash_of(const struct ringtap_packet *packet)
{
    const uint8_t *bytes = packet->data;
    uint32_t hash = 0;

    if (packet->flags & RINGTAP_PACKET_HASHED)
        return packet->hash;
    if (packet->captured_bytes < 38 || bytes[12] != 8 || bytes[13] != 0 || bytes[14] != 0x45)
        return 0;
    for (int at = 0; at < 4; at++)
        hash = hash * 31 + (uint32_t)(bytes[26 + at] + bytes[30 + at]);
    for (int at = 0; at < 2; at++)
        hash = hash * 31 + (uint32_t)(bytes[34 + at] + bytes[36 + at]);
    return hash ? hash : 1;
}

/* Whether enough packets of the flow were looked at. */
static bool is_harmless(struct ips *ips, const struct ringtap_packet *packet)
{
    uint32_t hash = hash_of(packet), *count = &ips->counts[hash & (COUNTED - 1)];

    if (!ips->pass_after || !hash || ++*count < ips->pass_after)
        return false;
    *count = 0;
    return true;
}

/* Gives the verdict on a packet, or on its flow. */
static int decide(struct ips *ips, const struct ringtap_packet *packet)
{
    bool is_bad = memmem(packet->data, packet->captured_bytes, ips->text, strlen(ips->text)) != NULL;

    ips->decided++;
    if (is_bad) {
        ips->blocked++;
        return ringtap_flow_verdict(ips->handle, packet->lane, packet->sequence, RINGTAP_DROP, RINGTAP_UNTIL_IDLE,
                                    IDLE_MS);
    }
    if (is_harmless(ips, packet)) {
        ips->passed_flows++;
        return ringtap_flow_verdict(ips->handle, packet->lane, packet->sequence, RINGTAP_PASS, RINGTAP_UNTIL_IDLE,
                                    IDLE_MS);
    }
    return ringtap_verdict(ips->handle, packet->lane, packet->sequence, RINGTAP_PASS);
}

static int run(struct ips *ips)
{
    const struct ringtap_packet *packets;
    int got = 0;

    while (!interrupted && got >= 0) {
        /* This also sends the verdicts. The short wait lets Ctrl-C end the loop soon. */
        got = ringtap_next_batch(ips->handle, &packets, 200);
        for (int i = 0; i < got; i++) {
            if (decide(ips, &packets[i]) < 0) {
                got = RINGTAP_ERROR_HUB_LEFT;
                break;
            }
        }
    }
    if (got < 0 && got != RINGTAP_END)
        fprintf(stderr, "inline_ips: %s\n", ringtap_error(ips->handle));
    /* Before it leaves, the program sends a verdict on every packet that it read. */
    ringtap_send_verdicts(ips->handle);
    return got < 0 && got != RINGTAP_END;
}

int main(int argc, char **argv)
{
    struct ringtap_options options = RINGTAP_OPTIONS_INIT;
    static struct ips ips;
    int code;

    if (argc < 3 || argc > 4 || !argv[2][0]) {
        fprintf(stderr, "usage: %s GROUP TEXT [PACKETS] (the text that no packet may contain)\n", argv[0]);
        return 2;
    }
    ips.text = argv[2];
    ips.pass_after = argc == 4 ? strtoul(argv[3], NULL, 10) : 0;
    options.name = "inline_ips.c";
    /* A subscription like any reader's: packets are read in place. */
    if (ringtap_open(&ips.handle, NULL, argv[1], &options) < 0) {
        fprintf(stderr, "inline_ips: %s\n", ringtap_error(NULL));
        return 1;
    }
    /* From here on packets of flows without a verdict wait for this program. */
    if (ringtap_inline(ips.handle) < 0) {
        fprintf(stderr, "inline_ips: %s\n", ringtap_error(ips.handle));
        ringtap_close(ips.handle);
        return 1;
    }
    signal(SIGINT, on_interrupt);
    signal(SIGTERM, on_interrupt);
    fprintf(stderr, "inline_ips: deciding %s\n", argv[1]);
    code = run(&ips);
    printf("%" PRIu64 " packets decided, %" PRIu64 " flows blocked, %" PRIu64 " flows passed\n", ips.decided,
           ips.blocked, ips.passed_flows);
    ringtap_close(ips.handle);
    return code;
}
