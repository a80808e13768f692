/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What no program should do, over Ringtap only: libpcap crashes at some of it. */
#include "common.h"
#include <limits.h>
#include <setjmp.h>

static void expect(const char *what, long found, long wanted) {
    if (found != wanted) {
        printf("%s: %ld, not %ld\n", what, found, wanted);
        exit(1);
    }
}

static void of_no_handle(pcap_t *p) {
    struct pcap_pkthdr *header;
    const u_char *bytes;
    struct bpf_program program = {0, NULL};
    int *list = NULL;
    expect("activate", pcap_activate(p), -1);
    expect("next_ex", pcap_next_ex(p, &header, &bytes), -1);
    expect("next", pcap_next(p, NULL) != NULL, 0);
    expect("dispatch", pcap_dispatch(p, 1, NULL, NULL), -1);
    expect("loop", pcap_loop(p, 1, NULL, NULL), -1);
    expect("stats", pcap_stats(p, NULL), -1);
    expect("setfilter", pcap_setfilter(p, &program), -1);
    expect("compile", pcap_compile(p, &program, "udp", 1, 0), -1);
    expect("datalink", pcap_datalink(p), -1);
    expect("list_datalinks", pcap_list_datalinks(p, &list), -1);
    expect("fileno", pcap_fileno(p), -1);
    expect("selectable_fd", pcap_get_selectable_fd(p), -1);
    expect("setnonblock", pcap_setnonblock(p, 1, errbuf), -1);
    expect("inject", pcap_inject(p, "x", 1), -1);
    expect("set_snaplen", pcap_set_snaplen(p, 1), -1);
    expect("dump_open", pcap_dump_open(p, "/dev/null") != NULL, 0);
    expect("geterr", pcap_geterr(p)[0] != '\0', 1);
    pcap_breakloop(p);
    pcap_perror(p, "# perror");
    pcap_close(p);
}

static void closed_in_callback(u_char *user, const struct pcap_pkthdr *h, const u_char *bytes) {
    (void)h;
    (void)bytes;
    pcap_close(*(pcap_t **)user);
}

static pcap_t *inner;
static long nested;

static void read_in_callback(u_char *user, const struct pcap_pkthdr *h, const u_char *bytes) {
    struct pcap_pkthdr *header;
    const u_char *more;
    (void)user;
    (void)h;
    (void)bytes;
    struct pcap_stat statistics;
    expect("stats within", pcap_stats(inner, &statistics), 0);
    if (pcap_next_ex(inner, &header, &more) == 1)
        nested++;
}

static jmp_buf out;

static void jump_out(u_char *user, const struct pcap_pkthdr *h, const u_char *bytes) {
    (void)user;
    (void)h;
    (void)bytes;
    longjmp(out, 1);
}

static void *second(void *p) {
    struct pcap_pkthdr *header;
    const u_char *bytes;
    usleep(200000);
    expect("a second thread", pcap_next_ex(p, &header, &bytes), -1);
    struct pcap_stat statistics;
    expect("may ask", pcap_stats(p, &statistics), 0);
    filter(p, "udp");
    pcap_breakloop(p);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 3)
        fail("usage", "PROGRAM DEVICE HUB-DEVICE");
    device = argv[1];
    of_no_handle(NULL);
    pcap_t *p = pcap_create(device, errbuf);
    pcap_close(p);
    of_no_handle(p);
    p = open_with(INT_MAX, INT_MAX, 1);
    expect("no callback", pcap_loop(p, 1, NULL, NULL), -1);
    expect("no place", pcap_stats(p, NULL), 0);
    expect("no packet", pcap_inject(p, NULL, 5), -1);
    expect("a negative size", pcap_sendpacket(p, (const u_char *)"x", -5), -1);
    expect("no list", pcap_findalldevs(NULL, errbuf), -1);
    pcap_freealldevs(NULL);
    pthread_t thread;
    pthread_create(&thread, NULL, second, p);
    struct seen seen = {p, 0, 0, 0};
    expect("broken by the other", pcap_loop(p, -1, each, (u_char *)&seen), -2);
    pthread_join(thread, NULL);
    ready();
    inner = p;
    expect("nested", pcap_loop(p, 20, read_in_callback, NULL), 0);
    expect("read within", nested, 20);
    if (setjmp(out) == 0)
        pcap_loop(p, 1, jump_out, NULL);
    expect("after a jump", pcap_loop(p, 1, each, (u_char *)&seen), 0);
    struct bpf_program huge = {UINT_MAX, NULL};
    expect("a filter of nothing", pcap_setfilter(p, &huge), -1);
    pcap_t *closing = p;
    expect("closed within", pcap_loop(p, -1, closed_in_callback, (u_char *)&closing), -2);
    of_no_handle(p);
    /* Impossible sizes: refused, or made possible. */
    p = pcap_create(device, errbuf);
    pcap_set_buffer_size(p, INT_MAX);
    pcap_set_snaplen(p, INT_MIN);
    int status = pcap_activate(p);
    expect("an impossible buffer", status == 0 || pcap_geterr(p)[0] != '\0', 1);
    pcap_close(p);
    /* More handles than there are places. */
    static pcap_t *many[1200];
    int made = 0;
    while (made < 1200 && (many[made] = pcap_create(device, errbuf)) != NULL)
        made++;
    /* The place of the one that a callback jumped out of stays taken. */
    expect("handles", made, 1023);
    while (made > 0)
        pcap_close(many[--made]);
    /* A hub that dies. */
    device = argv[2];
    p = open_with(65535, 0, 1);
    printf("# waiting for the hub's death\n");
    fflush(stdout);
    struct pcap_pkthdr *header;
    const u_char *bytes;
    expect("a dead hub", pcap_next_ex(p, &header, &bytes), -1);
    printf("%s\n", pcap_geterr(p));
    expect("and again", pcap_next_ex(p, &header, &bytes), -1);
    expect("stats", pcap_stats(p, &(struct pcap_stat){0, 0, 0}), -1);
    pcap_close(p);
    printf("all refused\n");
    return 0;
}
