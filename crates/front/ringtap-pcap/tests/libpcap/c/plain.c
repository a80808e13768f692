/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Opens an interface by its plain name, twice; the test checks which library reads it. The case
 * "protocol" uses a setting that only libpcap supports. */
#include "common.h"

static void read_twice(int protocol) {
    struct seen seen[2];
    for (int time = 0; time < 2; time++) {
        pcap_t *p = pcap_create(device, errbuf);
        pcap_set_timeout(p, 50);
        /* With this snap length libpcap's buffer holds all packets. */
        pcap_set_snaplen(p, 2000);
        pcap_setnonblock(p, 1, errbuf);
        pcap_set_immediate_mode(p, 1);
        if (protocol != 0)
            say("set_protocol", pcap_set_protocol_linux(p, protocol));
        int status = pcap_activate(p);
        if (status != 0) {
            told(p, "activate", status);
            exit(0);
        }
        filter(p, "udp");
        printf("# ready\n");
        fflush(stdout);
        seen[time] = (struct seen){p, 0, 0, 0};
        take(p, &seen[time], 182);
        summary("udp", &seen[time]);
        pcap_close(p);
    }
}

static void usual(void) {
    read_twice(0);
}

static void protocol(void) {
    read_twice(0x0003);
}

int main(int argc, char **argv) {
    static const struct a_case cases[] = {{"usual", usual}, {"protocol", protocol}, {NULL, NULL}};
    return run_case(argc, argv, cases);
}
