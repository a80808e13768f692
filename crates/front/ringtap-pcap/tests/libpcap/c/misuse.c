/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Misuse, over Ringtap only: libpcap crashes at some of it. */
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
    expect("sendpacket", pcap_sendpacket(p, (const u_char *)"x", 1), -1);
    expect("setdirection", pcap_setdirection(p, PCAP_D_IN), -1);
    expect("getnonblock", pcap_getnonblock(p, errbuf), -1);
    expect("set_promisc", pcap_set_promisc(p, 1), -1);
    expect("set_buffer_size", pcap_set_buffer_size(p, 1), -1);
    expect("set_timeout", pcap_set_timeout(p, 1), -1);
    expect("set_tstamp_type", pcap_set_tstamp_type(p, 0), -1);
    expect("list_tstamp_types", pcap_list_tstamp_types(p, &list), -1);
    expect("set_datalink", pcap_set_datalink(p, 1), -1);
    expect("snapshot", pcap_snapshot(p), -1);
    expect("can_set_rfmon", pcap_can_set_rfmon(p), -1);
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

static volatile int is_in_loop;

/* Waits until the process's first thread sleeps in its loop. */
static void wait_for_the_first(void) {
    char path[64], state = 'R';
    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", getpid());
    while (!is_in_loop || state != 'S') {
        nap();
        FILE *file = fopen(path, "r");
        if (file == NULL || fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
            fail(path, strerror(errno));
        fclose(file);
    }
}

static void *second(void *p) {
    struct pcap_pkthdr *header;
    const u_char *bytes;
    wait_for_the_first();
    expect("a second thread", pcap_next_ex(p, &header, &bytes), -1);
    struct pcap_stat statistics;
    expect("may ask", pcap_stats(p, &statistics), 0);
    filter(p, "udp");
    pcap_breakloop(p);
    return NULL;
}

static void *closer(void *p) {
    usleep(200000);
    pcap_close(p);
    return NULL;
}

/* A second thread closes a handle while the first one waits or reads in its loop. */
static void closed_by_another(int timeout_ms, int one_by_one) {
    pcap_t *p = open_with(65535, timeout_ms, 1);
    struct seen seen = {p, 0, 0, 0};
    struct pcap_pkthdr *header;
    const u_char *bytes;
    pthread_t thread;
    pthread_create(&thread, NULL, closer, p);
    int status = 0;
    if (one_by_one)
        while (status >= 0)
            status = pcap_next_ex(p, &header, &bytes);
    else
        status = pcap_loop(p, -1, each, (u_char *)&seen);
    /* The handle is found closed within the read, or before the next read. */
    expect("closed by another", status == -2 || status == -1, 1);
    pthread_join(thread, NULL);
    of_no_handle(p);
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
    is_in_loop = 1;
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
    closed_by_another(0, 0);
    closed_by_another(20, 0);
    closed_by_another(20, 1);
    /* Impossible sizes are refused or corrected. */
    static const int sizes[] = {INT_MAX, INT_MIN, -1, 0, 1};
    for (unsigned at = 0; at < sizeof(sizes) / sizeof(sizes[0]); at++) {
        p = pcap_create(device, errbuf);
        pcap_set_buffer_size(p, sizes[at]);
        pcap_set_snaplen(p, sizes[at]);
        pcap_set_timeout(p, sizes[at]);
        int status = pcap_activate(p);
        if (status != 0)
            printf("# size %d: %d %s\n", sizes[at], status, pcap_geterr(p));
        /* A pool of 2 GiB may exceed the memory; the other sizes work. */
        expect("an impossible size", status == 0 || (sizes[at] == INT_MAX && pcap_geterr(p)[0] != '\0'), 1);
        pcap_close(p);
    }
    /* Many handles at once, and many closed ones. */
    static pcap_t *many[1200];
    int made = 0;
    while (made < 1200 && (many[made] = pcap_create(device, errbuf)) != NULL)
        made++;
    expect("handles", made, 1200);
    while (made > 0)
        pcap_close(many[--made]);
    for (int at = 0; at < 50; at++)
        of_no_handle(many[at]);
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
