/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Takes three packets of a batch and ends. The test sends 200 frames when "# ready" was printed. */
#include "common.h"

/* Not immediate: all frames are in one batch. */
static pcap_t *begin(void) {
    pcap_t *p = open_with(65535, 500, 0);
    ready();
    return p;
}

/* Many programs end without pcap_close. */
static void loop(void) {
    pcap_t *p = begin();
    struct seen seen = {p, 0, 0, 0};
    say("loop", pcap_loop(p, 3, each, (u_char *)&seen));
    printf("end\n");
    fflush(stdout);
    _exit(0);
}

static void next(void) {
    pcap_t *p = begin();
    struct seen seen = {p, 0, 0, 0};
    take(p, &seen, 3);
    pcap_close(p);
}

int main(int argc, char **argv) {
    static const struct a_case cases[] = {{"loop", loop}, {"next", next}, {NULL, NULL}};
    return run_case(argc, argv, cases);
}
