/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Packets: one by one, in loops, with time-outs, with descriptors, filtered, cut. The test sends
 * 200 frames when "# ready" was printed. */
#include "common.h"

#define SENT 200

static void next_ex(void) {
    pcap_t *p = open_with(65535, 100, 1);
    say("setnonblock", pcap_setnonblock(p, 1, errbuf));
    struct pcap_pkthdr *header;
    const u_char *bytes;
    say("nothing yet", pcap_next_ex(p, &header, &bytes));
    say("next", pcap_next(p, &(struct pcap_pkthdr){0}) != NULL);
    ready();
    struct seen seen = {p, 0, 0, 0};
    take(p, &seen, SENT);
    summary("next_ex", &seen);
    pcap_close(p);
}

static void snap(void) {
    pcap_t *p = open_with(40, 100, 1);
    ready();
    struct seen seen = {p, 0, 0, 0};
    take(p, &seen, SENT);
    summary("snap", &seen);
    pcap_close(p);
}

/* Each call gives at most the requested number; all calls together give all packets. */
static void dispatch(void) {
    pcap_t *p = open_with(65535, 100, 1);
    ready();
    struct seen seen = {p, 0, 0, 0};
    long most = 0;
    while (seen.packets < 99) {
        int got = pcap_dispatch(p, 3, each, (u_char *)&seen);
        if (got < 0)
            fail("pcap_dispatch", pcap_geterr(p));
        most = got > most ? got : most;
    }
    say("at most three", most <= 3);
    while (seen.packets < SENT)
        if (pcap_dispatch(p, -1, each, (u_char *)&seen) < 0)
            fail("pcap_dispatch", pcap_geterr(p));
    summary("the rest", &seen);
    pcap_close(p);
}

/* A loop broken in its callback continues with the next packet. */
static void loop(void) {
    pcap_t *p = open_with(65535, 100, 1);
    ready();
    struct seen seen = {p, 0, 0, 50};
    say("loop 30", pcap_loop(p, 30, each, (u_char *)&seen));
    summary("30", &seen);
    say("broken", pcap_loop(p, -1, each, (u_char *)&seen));
    summary("broken at 50", &seen);
    pcap_breakloop(p);
    say("broken before", pcap_dispatch(p, 1, each, (u_char *)&seen));
    pcap_breakloop(p);
    struct pcap_pkthdr *header;
    const u_char *bytes;
    say("next_ex broken", pcap_next_ex(p, &header, &bytes));
    /* libpcap loses a packet with each broken read of one packet. */
    say("the rest", pcap_loop(p, SENT - 50 - 2, each, (u_char *)&seen));
    pcap_close(p);
}

static void break_by_signal(void) {
    to_break = open_with(65535, 0, 1);
    break_in(200);
    struct seen seen = {to_break, 0, 0, 0};
    say("loop", pcap_loop(to_break, -1, each, (u_char *)&seen));
    break_in(200);
    say("dispatch", pcap_dispatch(to_break, -1, each, (u_char *)&seen));
    ready();
    take(to_break, &seen, SENT);
    summary("afterwards", &seen);
    pcap_close(to_break);
}

static void *breaker(void *unused) {
    usleep(200000);
    pcap_breakloop(to_break);
    return unused;
}

static void break_by_thread(void) {
    to_break = open_with(65535, 0, 1);
    pthread_t thread;
    struct seen seen = {to_break, 0, 0, 0};
    for (int round = 0; round < 3; round++) {
        pthread_create(&thread, NULL, breaker, NULL);
        say("loop", pcap_loop(to_break, -1, each, (u_char *)&seen));
        pthread_join(thread, NULL);
    }
    pcap_close(to_break);
}

/* With a time-out no packet is lost. */
static void timeout(void) {
    pcap_t *p = open_with(65535, 150, 0);
    ready();
    struct seen seen = {p, 0, 0, 0};
    while (seen.packets < SENT)
        if (pcap_dispatch(p, -1, each, (u_char *)&seen) < 0)
            fail("pcap_dispatch", pcap_geterr(p));
    summary("all", &seen);
    pcap_close(p);
}

/* Waits with select, poll or epoll. */
static int wait_for(int fd, int how, int epoll) {
    if (how == 0) {
        fd_set set;
        FD_ZERO(&set);
        FD_SET(fd, &set);
        struct timeval limit = {LONG_MS / 1000, 0};
        return select(fd + 1, &set, NULL, NULL, &limit);
    }
    if (how == 1) {
        struct pollfd one = {fd, POLLIN, 0};
        return poll(&one, 1, LONG_MS);
    }
    struct epoll_event event;
    return epoll_wait(epoll, &event, 1, LONG_MS);
}

static void descriptor(void) {
    static const char *const names[] = {"select", "poll", "epoll"};
    pcap_t *p = open_with(65535, 10, 1);
    say("setnonblock", pcap_setnonblock(p, 1, errbuf));
    int fd = pcap_get_selectable_fd(p);
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
    ready();
    struct seen seen = {p, 0, 0, 0};
    for (int how = 0; how < 3; how++) {
        /* Not a divisor of a batch: some packets are left over. */
        long until = how == 2 ? SENT : 61 * (how + 1);
        long begun = milliseconds();
        while (seen.packets < until && milliseconds() - begun < LONG_MS) {
            if (wait_for(fd, how, epoll) < 0)
                fail(names[how], strerror(errno));
            while (seen.packets < until && pcap_dispatch(p, 1, each, (u_char *)&seen) > 0)
                ;
        }
        summary(names[how], &seen);
    }
    pcap_close(p);
}

static void filter_before(void) {
    pcap_t *p = open_with(65535, 100, 1);
    filter(p, "udp dst port 1003");
    ready();
    struct seen seen = {p, 0, 0, 0};
    /* Every eighth packet, except ARP. */
    take(p, &seen, 23);
    summary("port 1003", &seen);
    pcap_close(p);
}

/* The test sends twice: packets read after setfilter returned pass the filter. */
static void filter_during(void) {
    pcap_t *p = open_with(65535, 100, 1);
    filter(p, "udp dst port 1001");
    ready();
    struct seen seen = {p, 0, 0, 0};
    take(p, &seen, 10);
    summary("ten of port 1001", &seen);
    filter(p, "arp");
    again();
    struct seen later = {p, 0, 0, 0};
    struct pcap_pkthdr *header;
    const u_char *bytes;
    while (later.packets < 18) {
        int status = pcap_next_ex(p, &header, &bytes);
        if (status < 0)
            fail("pcap_next_ex", pcap_geterr(p));
        if (status == 1 && (bytes[12] != 8 || bytes[13] != 6))
            fail("the filter", "a packet that it does not take");
        if (status == 1)
            look(&later, header, bytes);
    }
    say("only ARP", later.packets);
    pcap_close(p);
}

/* A program that returns fewer bytes than the snap length cuts packets. */
static void filter_cuts(void) {
    pcap_t *p = open_with(65535, 100, 1);
    struct bpf_insn cut[] = {{0x06, 0, 0, 33}};
    struct bpf_program program = {1, cut};
    say("setfilter", pcap_setfilter(p, &program));
    ready();
    struct seen seen = {p, 0, 0, 0};
    take(p, &seen, SENT);
    summary("33 bytes", &seen);
    struct bpf_insn bad[] = {{0x05, 0, 0, 7}};
    struct bpf_program wrong = {1, bad};
    say("a jump to nowhere", pcap_setfilter(p, &wrong));
    pcap_close(p);
}

static void direction(void) {
    pcap_t *p = open_with(65535, 100, 1);
    say("setdirection", pcap_setdirection(p, PCAP_D_IN));
    ready();
    struct seen seen = {p, 0, 0, 0};
    take(p, &seen, SENT);
    summary("in", &seen);
    pcap_close(p);
}

static void precision(int asked, long limit) {
    pcap_t *p = pcap_create(device, errbuf);
    if (asked >= 0)
        say("set", pcap_set_tstamp_precision(p, asked));
    pcap_set_timeout(p, 10);
    pcap_set_snaplen(p, 65535);
    say("activate", pcap_activate(p));
    say("precision", pcap_get_tstamp_precision(p));
    ready();
    long large = 0, good = 0, late = 0, packets = 0, now = time(NULL);
    struct timeval last = {0, 0};
    struct pcap_pkthdr *header;
    const u_char *bytes;
    while (packets < SENT) {
        int status = pcap_next_ex(p, &header, &bytes);
        if (status < 0)
            fail("pcap_next_ex", pcap_geterr(p));
        if (status == 0)
            continue;
        packets++;
        large += header->ts.tv_usec >= 1000000;
        good += header->ts.tv_usec < limit && labs(header->ts.tv_sec - now) < 60;
        late += timercmp(&header->ts, &last, <);
        last = header->ts;
    }
    say("beyond a microsecond's range", large > 0);
    say("good", good);
    say("out of order", late);
    pcap_close(p);
}

static void nanoseconds(void) {
    precision(PCAP_TSTAMP_PRECISION_NANO, 1000000000);
}

static void microseconds(void) {
    precision(PCAP_TSTAMP_PRECISION_MICRO, 1000000);
    precision(-1, 1000000);
}

static void stats(void) {
    pcap_t *p = open_with(65535, 100, 1);
    filter(p, "udp dst port 1003");
    ready();
    struct seen seen = {p, 0, 0, 0};
    take(p, &seen, 23);
    struct pcap_stat statistics;
    say("stats", pcap_stats(p, &statistics));
    say("received", statistics.ps_recv);
    say("dropped", statistics.ps_drop);
    say("by the interface", statistics.ps_ifdrop);
    pcap_close(p);
}

/* Two handles see the same packets. */
static void two_handles(void) {
    pcap_t *one = open_with(65535, 100, 1), *other = open_with(65535, 100, 1);
    filter(other, "udp dst port 1002");
    ready();
    struct seen first = {one, 0, 0, 0}, second = {other, 0, 0, 0};
    take(one, &first, SENT);
    /* Every eighth packet, except ARP. */
    take(other, &second, 22);
    summary("one", &first);
    pcap_close(one);
    summary("other", &second);
    pcap_close(other);
}

/* A daemon: it opens, forks, and its child reads. */
static void forked(void) {
    pcap_t *p = open_with(65535, 100, 1);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        ready();
        struct seen seen = {p, 0, 0, 0};
        take(p, &seen, SENT);
        summary("the child", &seen);
        pcap_close(p);
        exit(0);
    }
    pcap_close(p);
    int status = -1;
    waitpid(child, &status, 0);
    say("child", status);
    say("no other children", wait(NULL) == -1 && errno == ECHILD);
}

static void dumped(void) {
    char name[] = "/tmp/rt-pcap-dump-XXXXXX";
    close(mkstemp(name));
    pcap_t *p = open_with(80, 100, 1);
    pcap_dumper_t *dumper = pcap_dump_open(p, name);
    if (dumper == NULL)
        fail("pcap_dump_open", pcap_geterr(p));
    ready();
    say("loop", pcap_loop(p, SENT, pcap_dump, (u_char *)dumper));
    say("flush", pcap_dump_flush(dumper));
    say("ftell", pcap_dump_ftell(dumper));
    pcap_dump_close(dumper);
    pcap_close(p);
    pcap_t *file = pcap_open_offline(name, errbuf);
    struct seen seen = {file, 0, 0, 0};
    say("snapshot", pcap_snapshot(file));
    say("read again", pcap_loop(file, -1, each, (u_char *)&seen));
    summary("file", &seen);
    pcap_close(file);
    unlink(name);
}

int main(int argc, char **argv) {
    static const struct a_case cases[] = {
        {"next_ex", next_ex},
        {"snap", snap},
        {"dispatch", dispatch},
        {"loop", loop},
        {"break_by_signal", break_by_signal},
        {"break_by_thread", break_by_thread},
        {"timeout", timeout},
        {"descriptor", descriptor},
        {"filter_before", filter_before},
        {"filter_during", filter_during},
        {"filter_cuts", filter_cuts},
        {"direction", direction},
        {"nanoseconds", nanoseconds},
        {"microseconds", microseconds},
        {"stats", stats},
        {"two_handles", two_handles},
        {"forked", forked},
        {"dumped", dumped},
        {NULL, NULL},
    };
    return run_case(argc, argv, cases);
}
