/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Handles after a fork, and what closed handles leave open. The test sends 200 frames when "# ready" or
 * "# again" was printed. */
#include "common.h"
#include <sys/resource.h>

#define SENT 200

/* Runs this in a child, waits for its end. */
static void in_child(void (*work)(pcap_t *), pcap_t *p) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        work(p);
        fflush(stdout);
        _exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    say("child", status);
}

static void wait_in_vain(pcap_t *p) {
    struct pcap_pkthdr *header;
    const u_char *bytes;
    /* A file would be at its end. */
    for (int times = 0; times < 3; times++)
        say("nothing comes", pcap_next_ex(p, &header, &bytes));
}

static void take_all(pcap_t *p) {
    struct seen seen = {p, 0, 0, 0};
    ready();
    take(p, &seen, SENT);
    summary("all", &seen);
}

static pcap_t *open_quietly(void) {
    pcap_t *p = open_with(65535, 100, 1);
    /* With the time-out of a read that does not block, libpcap returns, too. */
    say("setnonblock", pcap_setnonblock(p, 1, errbuf));
    return p;
}

static void parent_waits_first(void) {
    pcap_t *p = open_quietly();
    wait_in_vain(p);
    in_child(take_all, p);
    pcap_close(p);
}

static void child_waits_first(void) {
    pcap_t *p = open_quietly();
    in_child(wait_in_vain, p);
    wait_in_vain(p);
    take_all(p);
    pcap_close(p);
}

/* The same with reads that block until packets come. */
static void take_all_blocking(pcap_t *p) {
    struct seen seen = {p, 0, 0, 0};
    say("setnonblock", pcap_setnonblock(p, 0, errbuf));
    ready();
    say("loop", pcap_loop(p, SENT, each, (u_char *)&seen));
    summary("all", &seen);
}

static void second_child(void) {
    pcap_t *p = open_quietly();
    in_child(wait_in_vain, p);
    in_child(wait_in_vain, p);
    in_child(take_all_blocking, p);
    pcap_close(p);
}

static long processor_ms(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000 +
           (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1000;
}

/* A break in one process neither ends another's wait nor keeps it awake. */
static void break_beside_child(void) {
    pcap_t *p = open_quietly();
    say("setnonblock", pcap_setnonblock(p, 0, errbuf));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        struct seen seen = {p, 0, 0, 0};
        say("loop", pcap_loop(p, SENT, each, (u_char *)&seen));
        summary("all", &seen);
        say("busy", processor_ms() > 700);
        _exit(0);
    }
    usleep(150000);
    pcap_breakloop(p);
    usleep(2000000);
    ready();
    int status = -1;
    waitpid(child, &status, 0);
    say("child", status);
    pcap_close(p);
}

static void *break_soon(void *handle) {
    usleep(150000);
    pcap_breakloop(handle);
    return NULL;
}

static void break_by_thread(pcap_t *p) {
    struct seen seen = {p, 0, 0, 0};
    /* A break that is lost ends the child. */
    alarm(30);
    for (int round = 0; round < 2; round++) {
        pthread_t thread;
        pthread_create(&thread, NULL, break_soon, p);
        say("loop", pcap_loop(p, -1, each, (u_char *)&seen));
        pthread_join(thread, NULL);
    }
}

/* A child's reads have no time-out that would end a wait. */
static void break_within_child(void) {
    pcap_t *p = open_with(65535, 0, 1);
    in_child(break_by_thread, p);
    pcap_close(p);
}

static void take_half(pcap_t *p) {
    struct seen seen = {p, 0, 0, 0};
    take(p, &seen, SENT / 2);
    summary("half", &seen);
}

static void child_reads_on(void) {
    pcap_t *p = open_quietly();
    ready();
    take_half(p);
    in_child(take_half, p);
    pcap_close(p);
}

static void poll_in_child(pcap_t *p) {
    struct seen seen = {p, 0, 0, 0};
    struct pollfd one = {pcap_get_selectable_fd(p), POLLIN, 0};
    ready();
    while (seen.packets < SENT && poll(&one, 1, LONG_MS) > 0)
        if (pcap_dispatch(p, -1, each, (u_char *)&seen) < 0)
            fail("pcap_dispatch", pcap_geterr(p));
    summary("polled", &seen);
}

static void child_polls(void) {
    pcap_t *p = open_quietly();
    say("descriptor", pcap_get_selectable_fd(p) >= 0);
    wait_in_vain(p);
    in_child(poll_in_child, p);
    pcap_close(p);
}

static long open_descriptors(void) {
    long count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) != -1;
    return count;
}

/* Few descriptors: those that a closed handle leaves open would soon be missing. */
static void many(long opens) {
    struct rlimit few = {64, 64};
    setrlimit(RLIMIT_NOFILE, &few);
    long before = open_descriptors(), most = 0;
    for (long count = 0; count < opens; count++) {
        pcap_t *p = open_with(65535, 1, 1);
        pcap_setnonblock(p, 1, errbuf);
        struct pcap_pkthdr *header;
        const u_char *bytes;
        if (pcap_get_selectable_fd(p) < 0 || pcap_next_ex(p, &header, &bytes) < 0)
            fail("a handle", pcap_geterr(p));
        pcap_breakloop(p);
        pcap_close(p);
        long left = open_descriptors() - before;
        most = left > most ? left : most;
    }
    say("left open", most);
}

static void thousand(void) {
    many(1000);
}

static void ten(void) {
    many(10);
}

int main(int argc, char **argv) {
    static const struct a_case cases[] = {
        {"parent_waits_first", parent_waits_first},
        {"child_waits_first", child_waits_first},
        {"second_child", second_child},
        {"break_beside_child", break_beside_child},
        {"break_within_child", break_within_child},
        {"child_reads_on", child_reads_on},
        {"child_polls", child_polls},
        {"thousand", thousand},
        {"ten", ten},
        {NULL, NULL},
    };
    return run_case(argc, argv, cases);
}
