/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Duration of a read, life time of a packet, and the count of packets lost because no one reads. The
 * test sends 200 frames each time that "# ready" or "# again" was printed. */
#include "common.h"

#define SENT 200

/* In immediate mode a packet waits neither for others nor for a time-out of one hour. */
static void immediate(void) {
    pcap_t *p = open_with(65535, 3600000, 1);
    ready();
    struct seen seen = {p, 0, 0, 0};
    for (int number = 0; number < 3; number++) {
        struct pcap_pkthdr *header;
        const u_char *bytes;
        say("next_ex", pcap_next_ex(p, &header, &bytes));
        look(&seen, header, bytes);
    }
    say("dispatch", pcap_dispatch(p, 1, each, (u_char *)&seen));
    say("loop", pcap_loop(p, SENT - 4, each, (u_char *)&seen));
    summary("all", &seen);
    pcap_close(p);
}

/* A read without packets ends by its time-out, not before; a loop that does not block can be broken.
 * libpcap goes on in both cases. */
static void nothing_comes(void) {
    pcap_t *p = to_break = open_with(65535, 150, 1);
    struct pcap_pkthdr *header;
    const u_char *bytes;
    struct seen seen = {p, 0, 0, 0};
    long begun = milliseconds();
    say("next_ex", pcap_next_ex(p, &header, &bytes));
    say("dispatch", pcap_dispatch(p, -1, each, (u_char *)&seen));
    say("next", pcap_next(p, &(struct pcap_pkthdr){0}) != NULL);
    say("each waited", milliseconds() - begun >= 3 * 145);
    say("setnonblock", pcap_setnonblock(p, 1, errbuf));
    /* Longer than the time-out. */
    break_in(400);
    say("a loop is broken", pcap_loop(p, -1, each, (u_char *)&seen));
    say("setnonblock", pcap_setnonblock(p, 0, errbuf));
    /* Longer than the time-out. */
    break_in(400);
    say("a loop goes on after its time-out", pcap_loop(p, -1, each, (u_char *)&seen));
    ready();
    take(p, &seen, SENT);
    say("afterwards", seen.packets);
    pcap_close(p);
}

static void nonblock(void) {
    pcap_t *p = open_with(65535, 0, 1);
    struct seen seen = {p, 0, 0, 0};
    say("getnonblock", pcap_getnonblock(p, errbuf));
    say("setnonblock", pcap_setnonblock(p, 1, errbuf));
    say("getnonblock", pcap_getnonblock(p, errbuf));
    say("dispatch", pcap_dispatch(p, -1, each, (u_char *)&seen));
    say("dispatch 5", pcap_dispatch(p, 5, each, (u_char *)&seen));
    ready();
    say("loop", pcap_loop(p, SENT, each, (u_char *)&seen));
    summary("loop", &seen);
    say("setnonblock", pcap_setnonblock(p, 0, errbuf));
    again();
    say("a loop waits", pcap_loop(p, SENT, each, (u_char *)&seen));
    summary("afterwards", &seen);
    pcap_close(p);
}

/* A packet of pcap_next_ex stays unchanged until the next read while more packets arrive. */
static void pointer(void) {
    pcap_t *p = open_with(65535, 50, 1);
    ready();
    struct seen seen = {p, 0, 0, 0};
    for (int round = 0; round < 4; round++) {
        struct pcap_pkthdr *header, copy;
        const u_char *bytes;
        static u_char packet[2048];
        while (pcap_next_ex(p, &header, &bytes) == 0)
            ;
        copy = *header;
        memcpy(packet, bytes, header->caplen);
        long before = told_of("tx0", "statistics/tx_packets");
        again();
        while (told_of("tx0", "statistics/tx_packets") < before + SENT)
            usleep(20000);
        say("header stays", memcmp(&copy, header, sizeof(copy)) == 0);
        say("bytes stay", memcmp(packet, bytes, header->caplen) == 0);
        look(&seen, header, bytes);
    }
    summary("the first four", &seen);
    pcap_close(p);
}

/* Packets read and packets dropped add up to packets received. */
static void dropped(void) {
    pcap_t *p = pcap_create(device, errbuf);
    pcap_set_snaplen(p, 1600);
    pcap_set_timeout(p, 10);
    pcap_set_buffer_size(p, 256 << 10);
    say("activate", pcap_activate(p));
    say("setnonblock", pcap_setnonblock(p, 1, errbuf));
    long sent = told_of("tx0", "statistics/tx_packets");
    for (int round = 0; round < 15; round++) {
        sent += SENT;
        if (round == 0)
            ready();
        else
            again();
        while (told_of("tx0", "statistics/tx_packets") < sent)
            usleep(5000);
    }
    struct seen seen = {p, 0, 0, 0};
    for (int idle = 0; idle < 150; idle++) {
        if (pcap_dispatch(p, -1, each, (u_char *)&seen) > 0)
            idle = -1;
        else
            usleep(20000);
    }
    struct pcap_stat statistics;
    say("stats", pcap_stats(p, &statistics));
    printf("# %ld read, %u received, %u dropped\n", seen.packets, statistics.ps_recv, statistics.ps_drop);
    say("received", statistics.ps_recv);
    say("some were dropped", statistics.ps_drop > 0);
    say("some were read", seen.packets > 0);
    say("read and dropped", seen.packets + (long)statistics.ps_drop);
    say("by the interface", statistics.ps_ifdrop);
    pcap_close(p);
}

/* Over Ringtap only: with the variable RINGTAP_NO_SELECT. */
static void no_descriptor(void) {
    pcap_t *p = open_with(65535, 100, 1);
    ready();
    say("selectable fd", pcap_get_selectable_fd(p));
    struct seen seen = {p, 0, 0, 0};
    say("loop", pcap_loop(p, 200, each, (u_char *)&seen));
    pcap_close(p);
}

int main(int argc, char **argv) {
    static const struct a_case cases[] = {
        {"immediate", immediate}, {"nothing_comes", nothing_comes}, {"nonblock", nonblock},
        {"pointer", pointer},     {"dropped", dropped},             {"no_descriptor", no_descriptor},
        {NULL, NULL},
    };
    return run_case(argc, argv, cases);
}
