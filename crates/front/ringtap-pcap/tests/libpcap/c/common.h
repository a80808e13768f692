/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Common parts of the programs for the comparison: the same program runs over libpcap and over
 * Ringtap, and must print the same. Lines that begin with # are not compared. */
#ifndef COMMON_H
#define COMMON_H

#include <errno.h>
#include <fcntl.h>
#include <pcap/pcap.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *device;
static char errbuf[PCAP_ERRBUF_SIZE];

__attribute__((unused)) static void say(const char *what, long value) {
    printf("%s %ld\n", what, value);
    fflush(stdout);
}

/* A status, and the error's text where both libraries have the same. */
__attribute__((unused)) static void told(pcap_t *p, const char *what, long value) {
    printf("%s %ld \"%s\"\n", what, value, pcap_geterr(p));
    fflush(stdout);
}

__attribute__((unused)) static void ready(void) {
    printf("# ready\n");
    fflush(stdout);
}

/* Makes the test send its frames once more. */
__attribute__((unused)) static void again(void) {
    printf("# again\n");
    fflush(stdout);
}

__attribute__((noreturn)) static void fail(const char *what, const char *why) {
    printf("%s failed: %s\n", what, why);
    exit(1);
}

/* A handle with these settings, activated. */
__attribute__((unused)) static pcap_t *open_with(int snap, int timeout_ms, int immediate) {
    pcap_t *p = pcap_create(device, errbuf);
    if (p == NULL)
        fail("pcap_create", errbuf);
    pcap_set_snaplen(p, snap);
    pcap_set_promisc(p, 1);
    pcap_set_timeout(p, timeout_ms);
    pcap_set_immediate_mode(p, immediate);
    /* libpcap's buffer holds that many packets of the largest size. */
    pcap_set_buffer_size(p, 64 << 20);
    int status = pcap_activate(p);
    if (status < 0)
        fail("pcap_activate", pcap_geterr(p));
    return p;
}

__attribute__((unused)) static void filter(pcap_t *p, const char *text) {
    struct bpf_program program;
    if (pcap_compile(p, &program, text, 1, PCAP_NETMASK_UNKNOWN) != 0)
        fail("pcap_compile", pcap_geterr(p));
    if (pcap_setfilter(p, &program) != 0)
        fail("pcap_setfilter", pcap_geterr(p));
    pcap_freecode(&program);
}

/* Longer than any step takes on a busy machine. */
#define LONG_MS 50000
/* A short sleep between two checks. */
#define NAP_MS 20

__attribute__((unused)) static void nap(void) {
    usleep(NAP_MS * 1000);
}

__attribute__((unused)) static long milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* The handle whose loop an alarm, or another thread, breaks. */
__attribute__((unused)) static pcap_t *to_break;

__attribute__((unused)) static void on_alarm(int signal) {
    (void)signal;
    pcap_breakloop(to_break);
}

__attribute__((unused)) static void break_in(long ms) {
    struct sigaction action;
    memset(&action, 0, sizeof(action));
    action.sa_handler = on_alarm;
    sigaction(SIGALRM, &action, NULL);
    struct itimerval soon = {{0, 0}, {0, ms * 1000}};
    setitimer(ITIMER_REAL, &soon, NULL);
}

/* Packets so far: their number, and a checksum over bytes and lengths in order. */
struct seen {
    pcap_t *p;
    long packets;
    unsigned long sum;
    long stop_at;
};

__attribute__((unused)) static void look(struct seen *seen, const struct pcap_pkthdr *h,
                                         const u_char *bytes) {
    seen->packets++;
    seen->sum = seen->sum * 31 + h->len * 7 + h->caplen;
    for (bpf_u_int32 at = 0; at < h->caplen; at++)
        seen->sum = seen->sum * 131 + bytes[at];
}

__attribute__((unused)) static void each(u_char *user, const struct pcap_pkthdr *h,
                                         const u_char *bytes) {
    struct seen *seen = (struct seen *)user;
    look(seen, h, bytes);
    if (seen->packets == seen->stop_at)
        pcap_breakloop(seen->p);
}

__attribute__((unused)) static void summary(const char *what, const struct seen *seen) {
    printf("%s: %ld packets, %lx\n", what, seen->packets, seen->sum);
    fflush(stdout);
}

/* A checksum that does not depend on the order of packets. */
__attribute__((unused)) static void mix(struct seen *seen, const struct pcap_pkthdr *h,
                                        const u_char *bytes) {
    struct seen one = {NULL, 0, 0, 0};
    look(&one, h, bytes);
    seen->packets++;
    seen->sum += one.sum;
}

/* Reads packets one by one; gives up after a limit. */
__attribute__((unused)) static void take(pcap_t *p, struct seen *seen, long packets) {
    struct pcap_pkthdr *header;
    const u_char *bytes;
    long begun = milliseconds();
    while (seen->packets < packets && milliseconds() - begun < LONG_MS) {
        int status = pcap_next_ex(p, &header, &bytes);
        if (status < 0)
            fail("pcap_next_ex", pcap_geterr(p));
        if (status == 1)
            look(seen, header, bytes);
        else
            nap();
    }
}

/* The interface in a device's name: between ':' and '?'. */
__attribute__((unused)) static const char *interface(void) {
    static char name[64];
    const char *begin = strchr(device, ':') != NULL ? strchr(device, ':') + 1 : device;
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(begin, "?@"), begin);
    return name;
}

/* A number that the kernel reports of an interface. */
__attribute__((unused)) static long told_of(const char *name, const char *what) {
    char path[128];
    snprintf(path, sizeof(path), "/sys/class/net/%s/%s", name, what);
    FILE *file = fopen(path, "r");
    long number = 0;
    if (file == NULL || fscanf(file, "%li", &number) != 1)
        fail(path, strerror(errno));
    fclose(file);
    return number;
}

struct a_case {
    const char *name;
    void (*run)(void);
};

__attribute__((unused)) static int run_case(int argc, char **argv, const struct a_case *cases) {
    if (argc != 3)
        fail("usage", "PROGRAM DEVICE CASE");
    device = argv[1];
    for (; cases->name != NULL; cases++)
        if (strcmp(cases->name, argv[2]) == 0) {
            cases->run();
            printf("end\n");
            return 0;
        }
    fail("case", argv[2]);
}

#endif
