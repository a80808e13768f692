/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Every way in which a program leaves a call without its return: cancellation, pthread_exit, an exception,
 * and jumps. Afterwards the handle still reads. The test sends 200 frames when "# ready" was printed. */
#include "common.h"
#include <atomic>
#include <setjmp.h>
#include <stdexcept>

#define SENT 200

static pcap_t *handle;
static std::atomic<bool> inside;
static sigjmp_buf out;

/* After all of the test's frames, the handle is closed and nothing is left open. */
static void still_reads(const char *what, long packets) {
    struct seen seen = {handle, 0, 0, 0};
    ready();
    take(handle, &seen, packets);
    say(what, seen.packets);
    pcap_close(handle);
}

static void open_handle(void) {
    handle = open_with(65535, 100, 1);
}

static void join(pthread_t thread) {
    void *result;
    pthread_join(thread, &result);
    say("cancelled", result == PTHREAD_CANCELED);
}

static void *loops(void *) {
    struct seen seen = {handle, 0, 0, 0};
    inside = true;
    pcap_loop(handle, -1, each, (u_char *)&seen);
    return NULL;
}

static void *reads_one_by_one(void *) {
    struct pcap_pkthdr *header;
    const u_char *bytes;
    inside = true;
    while (pcap_next_ex(handle, &header, &bytes) >= 0)
        ;
    return NULL;
}

static void *dispatches(void *) {
    inside = true;
    while (pcap_dispatch(handle, -1, each, NULL) >= 0)
        ;
    return NULL;
}

/* pcap_breakloop(3PCAP) recommends this for another thread that waits. */
static void cancelled_while_waiting(void) {
    void *(*const ways[])(void *) = {loops, reads_one_by_one, dispatches};
    open_handle();
    for (auto way : ways) {
        pthread_t thread;
        inside = false;
        pthread_create(&thread, NULL, way, NULL);
        while (!inside)
            nap();
        usleep(150000);
        pthread_cancel(thread);
        join(thread);
    }
    still_reads("afterwards", SENT);
}

static void sleeps(u_char *, const struct pcap_pkthdr *, const u_char *) {
    inside = true;
    for (;;)
        pause();
}

static void *loops_asleep(void *) {
    pcap_loop(handle, -1, sleeps, NULL);
    return NULL;
}

static void cancelled_in_callback(void) {
    open_handle();
    pthread_t thread;
    pthread_create(&thread, NULL, loops_asleep, NULL);
    ready();
    while (!inside)
        nap();
    pthread_cancel(thread);
    join(thread);
    again();
    struct seen seen = {handle, 0, 0, 0};
    take(handle, &seen, SENT);
    say("afterwards", seen.packets);
    pcap_close(handle);
}

static void exits(u_char *user, const struct pcap_pkthdr *h, const u_char *) {
    *(long *)user = h->len;
    pthread_exit(user);
}

static void *loops_until_exit(void *first) {
    pcap_loop(handle, -1, exits, (u_char *)first);
    return NULL;
}

static void exit_in_callback(void) {
    open_handle();
    pthread_t thread;
    long first = 0;
    void *result;
    pthread_create(&thread, NULL, loops_until_exit, &first);
    ready();
    pthread_join(thread, &result);
    say("result", result == &first);
    say("first length", first);
    again();
    struct seen seen = {handle, 0, 0, 0};
    take(handle, &seen, SENT);
    say("afterwards", seen.packets);
    pcap_close(handle);
}

static void throws(u_char *user, const struct pcap_pkthdr *h, const u_char *bytes) {
    each(user, h, bytes);
    throw std::runtime_error("out of the callback");
}

static void exception(void) {
    open_handle();
    ready();
    struct seen seen = {handle, 0, 0, 0};
    int caught = 0;
    for (int round = 0; round < 3; round++)
        try {
            if (round == 1)
                while (pcap_dispatch(handle, -1, throws, (u_char *)&seen) == 0)
                    ;
            else
                pcap_loop(handle, -1, throws, (u_char *)&seen);
        } catch (const std::runtime_error &) {
            caught++;
        }
    say("caught", caught);
    say("seen", seen.packets);
    again();
    take(handle, &seen, SENT);
    say("afterwards", seen.packets);
    pcap_close(handle);
}

static void jumps(u_char *user, const struct pcap_pkthdr *h, const u_char *bytes) {
    each(user, h, bytes);
    siglongjmp(out, 1);
}

static long open_descriptors(void) {
    long count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) != -1;
    return count;
}

static void jump_out_of_callback(void) {
    long before = open_descriptors();
    open_handle();
    ready();
    struct seen seen = {handle, 0, 0, 0};
    volatile int jumped = 0;
    while (jumped < 5) {
        if (sigsetjmp(out, 1) == 0)
            pcap_loop(handle, -1, jumps, (u_char *)&seen);
        jumped = jumped + 1;
    }
    say("seen", seen.packets);
    again();
    take(handle, &seen, SENT);
    say("afterwards", seen.packets);
    if (sigsetjmp(out, 1) == 0)
        pcap_loop(handle, -1, jumps, (u_char *)&seen);
    pcap_close(handle);
    say("left open", open_descriptors() - before);
}

static void on_alarm_jump(int) {
    siglongjmp(out, 1);
}

static void jump_soon(long microseconds) {
    struct sigaction action = {};
    action.sa_handler = on_alarm_jump;
    sigaction(SIGALRM, &action, NULL);
    struct itimerval soon = {{0, 0}, {0, microseconds}};
    setitimer(ITIMER_REAL, &soon, NULL);
}

/* The classic time-out of programs that have no other: an alarm, and a jump out of its handler. */
static void jump_out_of_handler(void) {
    open_handle();
    volatile int jumped = 0;
    struct seen seen = {handle, 0, 0, 0};
    struct pcap_pkthdr *header;
    const u_char *bytes;
    while (jumped < 40) {
        if (sigsetjmp(out, 1) == 0) {
            jump_soon(1000 + 700 * jumped);
            if (jumped % 2)
                pcap_loop(handle, -1, each, (u_char *)&seen);
            else
                while (pcap_next_ex(handle, &header, &bytes) >= 0)
                    ;
        }
        jumped = jumped + 1;
    }
    say("jumped", jumped);
    still_reads("afterwards", SENT);
}

/* Alarms interrupt every instruction of a reader that always finds packets. */
static void jump_under_traffic(void) {
    open_handle();
    volatile int jumped = 0;
    struct seen seen = {handle, 0, 0, 0};
    ready();
    while (jumped < 600) {
        if (sigsetjmp(out, 1) == 0) {
            jump_soon(100 + jumped % 97);
            pcap_loop(handle, -1, each, (u_char *)&seen);
        }
        jumped = jumped + 1;
        if (jumped % 50 == 0)
            again();
    }
    say("jumped", jumped);
    filter(handle, "udp dst port 1003");
    struct pcap_pkthdr *header;
    const u_char *bytes;
    /* Those of all calls above are read, or were dropped. */
    nap();
    while (pcap_dispatch(handle, -1, each, (u_char *)&seen) > 0)
        ;
    again();
    while (pcap_next_ex(handle, &header, &bytes) == 0)
        ;
    say("reads on", header->len > 0);
    struct pcap_stat statistics;
    say("stats", pcap_stats(handle, &statistics));
    pcap_close(handle);
}

static void on_signal_exit(int) {
    pthread_exit(NULL);
}

/* Where there is no pthread_cancel, programs end a thread so. */
static void exit_in_handler(void) {
    struct sigaction action = {};
    action.sa_handler = on_signal_exit;
    sigaction(SIGUSR1, &action, NULL);
    open_handle();
    pthread_t thread;
    pthread_create(&thread, NULL, loops, NULL);
    while (!inside)
        nap();
    usleep(150000);
    pthread_kill(thread, SIGUSR1);
    say("joined", pthread_join(thread, NULL));
    still_reads("afterwards", SENT);
}

/* The same for calls that Ringtap passes on to libpcap. */
static int ends[2];

static void *reads_file(void *) {
    FILE *file = fdopen(ends[0], "r");
    inside = true;
    pcap_t *p = pcap_fopen_offline(file, errbuf);
    pcap_loop(p, -1, each, NULL);
    return NULL;
}

static void *writes_file(void *) {
    pcap_t *p = pcap_open_dead(DLT_EN10MB, 65535);
    pcap_dumper_t *dumper = pcap_dump_fopen(p, fdopen(ends[1], "w"));
    static u_char packet[4096];
    struct pcap_pkthdr header = {{1, 2}, sizeof(packet), sizeof(packet)};
    for (;;) {
        inside = true;
        pcap_dump((u_char *)dumper, &header, packet);
    }
    return NULL;
}

static void throws_at_end(u_char *, const struct pcap_pkthdr *, const u_char *) {
    throw std::runtime_error("out of the callback");
}

static void passed_on(void) {
    for (auto way : {reads_file, writes_file}) {
        pthread_t thread;
        inside = false;
        say("pipe", pipe(ends));
        pthread_create(&thread, NULL, way, NULL);
        while (!inside)
            nap();
        usleep(150000);
        pthread_cancel(thread);
        join(thread);
    }
    char name[] = "/tmp/rt-pcap-leaves-XXXXXX";
    close(mkstemp(name));
    pcap_t *p = pcap_open_dead(DLT_EN10MB, 65535);
    pcap_dumper_t *dumper = pcap_dump_open(p, name);
    struct pcap_pkthdr header = {{1, 2}, 4, 4};
    for (int count = 0; count < 3; count++)
        pcap_dump((u_char *)dumper, &header, (const u_char *)"abcd");
    pcap_dump_close(dumper);
    pcap_close(p);
    p = pcap_open_offline(name, errbuf);
    try {
        pcap_loop(p, -1, throws_at_end, NULL);
    } catch (const std::runtime_error &) {
        say("caught", 1);
    }
    if (sigsetjmp(out, 1) == 0) {
        struct seen seen = {p, 0, 0, 0};
        pcap_dispatch(p, -1, jumps, (u_char *)&seen);
    }
    struct seen seen = {p, 0, 0, 0};
    say("the rest", pcap_loop(p, -1, each, (u_char *)&seen));
    say("packets", seen.packets);
    pcap_close(p);
    unlink(name);
    printf("end\n");
    fflush(stdout);
    /* The stream of the full pipe cannot be flushed. */
    _exit(0);
}

int main(int argc, char **argv) {
    static const struct a_case cases[] = {
        {"cancelled_while_waiting", cancelled_while_waiting},
        {"cancelled_in_callback", cancelled_in_callback},
        {"exit_in_callback", exit_in_callback},
        {"exception", exception},
        {"jump_out_of_callback", jump_out_of_callback},
        {"jump_out_of_handler", jump_out_of_handler},
        {"jump_under_traffic", jump_under_traffic},
        {"exit_in_handler", exit_in_handler},
        {"passed_on", passed_on},
        {NULL, NULL},
    };
    return run_case(argc, argv, cases);
}
