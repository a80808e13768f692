/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A file: every read gives the same. And the end of a hub that reads a file. */
#include "common.h"

static pcap_t *open_file(int precision) {
    pcap_t *p = pcap_open_offline_with_tstamp_precision(device, precision, errbuf);
    if (p == NULL)
        fail("open_offline", errbuf);
    return p;
}

static void show(u_char *user, const struct pcap_pkthdr *h, const u_char *bytes) {
    struct seen one = {NULL, 0, 0, 0};
    look(&one, h, bytes);
    printf("%ld.%ld %u of %u: %lx\n", h->ts.tv_sec, (long)h->ts.tv_usec, h->caplen, h->len, one.sum);
    (void)user;
}

static void read_to_the_end(pcap_t *p) {
    struct pcap_pkthdr *header, copy;
    const u_char *bytes;
    int status;
    while ((status = pcap_next_ex(p, &header, &bytes)) == 1)
        show(NULL, header, bytes);
    say("next_ex at the end", status);
    say("and again", pcap_next_ex(p, &header, &bytes));
    say("next at the end", pcap_next(p, &copy) != NULL);
    say("dispatch at the end", pcap_dispatch(p, -1, show, NULL));
    say("loop at the end", pcap_loop(p, -1, show, NULL));
    pcap_close(p);
}

static void one_by_one(int precision) {
    read_to_the_end(open_file(precision));
}

static void microseconds(void) {
    one_by_one(PCAP_TSTAMP_PRECISION_MICRO);
}

static void nanoseconds(void) {
    one_by_one(PCAP_TSTAMP_PRECISION_NANO);
}

static void loops(void) {
    pcap_t *p = open_file(PCAP_TSTAMP_PRECISION_NANO);
    struct pcap_pkthdr header;
    const u_char *bytes = pcap_next(p, &header);
    show(NULL, &header, bytes);
    say("dispatch 2", pcap_dispatch(p, 2, show, NULL));
    say("loop 3", pcap_loop(p, 3, show, NULL));
    say("loop to the end", pcap_loop(p, -1, show, NULL));
    say("loop at the end", pcap_loop(p, 5, show, NULL));
    pcap_close(p);
}

static void broken(void) {
    pcap_t *p = open_file(PCAP_TSTAMP_PRECISION_NANO);
    struct seen seen = {p, 0, 0, 4};
    say("broken", pcap_loop(p, -1, each, (u_char *)&seen));
    summary("four", &seen);
    pcap_breakloop(p);
    say("broken before", pcap_loop(p, 1, each, (u_char *)&seen));
    say("dispatch 1", pcap_dispatch(p, 1, each, (u_char *)&seen));
    seen.stop_at = 7;
    say("broken at its last", pcap_loop(p, 2, each, (u_char *)&seen));
    say("then", pcap_loop(p, -1, each, (u_char *)&seen));
    say("to the end", pcap_loop(p, -1, each, (u_char *)&seen));
    summary("all", &seen);
    pcap_close(p);
}

static void filtered(void) {
    pcap_t *p = open_file(PCAP_TSTAMP_PRECISION_NANO);
    filter(p, "udp dst port 1003 or arp");
    say("loop", pcap_loop(p, -1, show, NULL));
    pcap_close(p);
}

static void written(void) {
    char name[] = "/tmp/rt-pcap-files-XXXXXX";
    close(mkstemp(name));
    pcap_t *p = open_file(PCAP_TSTAMP_PRECISION_NANO);
    pcap_dumper_t *dumper = pcap_dump_open(p, name);
    say("loop", pcap_loop(p, -1, pcap_dump, (u_char *)dumper));
    say("length", pcap_dump_ftell(dumper));
    pcap_dump_close(dumper);
    pcap_close(p);
    p = pcap_open_offline_with_tstamp_precision(name, PCAP_TSTAMP_PRECISION_NANO, errbuf);
    say("loop", pcap_loop(p, -1, show, NULL));
    pcap_close(p);
    unlink(name);
}

/* A group of a hub that reads the file, from its second packet on. */
static void group(int precision) {
    pcap_t *p = pcap_create(device, errbuf);
    if (p == NULL || pcap_set_tstamp_precision(p, precision) != 0 || pcap_activate(p) != 0)
        fail("activate", p == NULL ? errbuf : pcap_geterr(p));
    ready();
    read_to_the_end(p);
}

static void group_microseconds(void) {
    group(PCAP_TSTAMP_PRECISION_MICRO);
}

static void group_nanoseconds(void) {
    group(PCAP_TSTAMP_PRECISION_NANO);
}

int main(int argc, char **argv) {
    static const struct a_case cases[] = {
        {"microseconds", microseconds}, {"nanoseconds", nanoseconds}, {"loops", loops},
        {"broken", broken},             {"filtered", filtered},       {"written", written},
        {"group_microseconds", group_microseconds},
        {"group_nanoseconds", group_nanoseconds},
        {NULL, NULL},
    };
    return run_case(argc, argv, cases);
}
