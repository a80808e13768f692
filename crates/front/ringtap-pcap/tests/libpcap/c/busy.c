/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Filters that change under traffic, programs that write into packets, and addresses of packets.
 * The test sends 200 frames when "# ready" was printed. */
#include "common.h"
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sys/socket.h>

#define SENT 200
#define KINDS 5

static volatile int stop_sending;

/* Sends UDP packets from tx0 to ports 1 to 5 until it is stopped. */
static void *keep_sending(void *unused) {
    struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_ifindex = (int)if_nametoindex("tx0")};
    int fd = socket(AF_PACKET, SOCK_RAW, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof(at)) != 0)
        fail("tx0", strerror(errno));
    static u_char frame[60] = "\x02\0\0\0\0\x02\x02\0\0\0\0\x01\x08\0\x45\0\0\x2e\0\0\0\0\x40\x11";
    frame[39] = 26;
    for (unsigned number = 0; !stop_sending; number++) {
        frame[37] = (u_char)(1 + number % KINDS);
        if (send(fd, frame, sizeof(frame), 0) < 0 && errno != ENOBUFS)
            fail("send", strerror(errno));
        usleep(50);
    }
    close(fd);
    return unused;
}

/* Packets read after a filter is set pass it, even if captured before. */
static void filter_under_traffic(void) {
    pcap_t *p = open_with(65535, 100, 1);
    pthread_t sender;
    pthread_create(&sender, NULL, keep_sending, NULL);
    struct pcap_pkthdr *header;
    const u_char *bytes;
    long wrong = 0;
    for (int round = 0; round < 60; round++) {
        char text[32];
        int port = 1 + round % KINDS;
        snprintf(text, sizeof(text), "udp dst port %d", port);
        filter(p, text);
        printf("# filter %d is set\n", round);
        for (int packets = 0; packets < 20;) {
            int status = pcap_next_ex(p, &header, &bytes);
            if (status < 0)
                fail("pcap_next_ex", pcap_geterr(p));
            packets += status;
            wrong += status == 1 && bytes[37] != port;
        }
    }
    stop_sending = 1;
    pthread_join(sender, NULL);
    say("packets that a filter did not take", wrong);
    pcap_close(p);
}

static void overwrite(const struct pcap_pkthdr *h, const u_char *bytes) {
    u_char *writable = (u_char *)(uintptr_t)bytes;
    for (bpf_u_int32 at = 0; at < h->caplen; at++)
        writable[at] ^= (u_char)(0x55 + at);
}

/* Reads a packet, changes it, and reads the changed bytes. */
static void look_and_change(u_char *user, const struct pcap_pkthdr *h, const u_char *bytes) {
    struct seen *seen = (struct seen *)user;
    look(seen, h, bytes);
    overwrite(h, bytes);
    look(seen, h, bytes);
    seen->packets--;
    errno = 0;
}

/* Reads half of the packets by a loop, half one by one. */
static void written(void) {
    pcap_t *p = open_with(65535, 100, 1);
    ready();
    struct seen seen = {p, 0, 0, 0};
    say("loop", pcap_loop(p, SENT / 2, look_and_change, (u_char *)&seen));
    struct pcap_pkthdr *header;
    const u_char *bytes;
    while (seen.packets < SENT) {
        int status = pcap_next_ex(p, &header, &bytes);
        if (status < 0)
            fail("pcap_next_ex", pcap_geterr(p));
        if (status == 1)
            look_and_change((u_char *)&seen, header, bytes);
    }
    summary("written", &seen);
    pcap_close(p);
}

/* No handle sees changes that the program makes to another handle's packets. */
static void written_beside(void) {
    pcap_t *one = open_with(65535, 100, 1), *other = open_with(65535, 100, 1);
    ready();
    struct seen first = {one, 0, 0, 0}, second = {other, 0, 0, 0};
    for (int round = 0; round < 4; round++) {
        say("loop", pcap_loop(one, SENT / 4, look_and_change, (u_char *)&first));
        say("loop", pcap_loop(other, SENT / 4, each, (u_char *)&second));
    }
    summary("written", &first);
    summary("beside it", &second);
    pcap_close(one);
    pcap_close(other);
}

/* Whether these bytes are in shared memory that this process cannot write. */
static int is_in_the_pool(const u_char *bytes) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    int found = 0;
    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL) {
        unsigned long begin, end, at = (unsigned long)(uintptr_t)bytes;
        char rights[8];
        if (sscanf(line, "%lx-%lx %7s", &begin, &end, rights) == 3 && begin <= at && at < end)
            found = strcmp(rights, "r--s") == 0 &&
                    (strstr(line, "bpf-map") != NULL || strstr(line, "memfd:") != NULL);
    }
    fclose(maps);
    return found;
}

static void count_in_the_pool(u_char *user, const struct pcap_pkthdr *h, const u_char *bytes) {
    struct seen *seen = (struct seen *)user;
    (void)h;
    seen->sum += (unsigned long)is_in_the_pool(bytes);
}

/* Over Ringtap only: how many packets are not copied. */
static void in_place(void) {
    pcap_t *p = open_with(65535, 100, 1);
    ready();
    struct seen seen = {p, 0, 0, 0};
    say("loop", pcap_loop(p, SENT, count_in_the_pool, (u_char *)&seen));
    say("in the pool", (long)seen.sum);
    pcap_close(p);
}

/* Opening a device and reading packets sets no signal handler. */
static void signals(void) {
    static struct sigaction before[NSIG], after[NSIG];
    for (int number = 1; number < NSIG; number++)
        sigaction(number, NULL, &before[number]);
    pcap_t *p = open_with(65535, 100, 1);
    ready();
    struct seen seen = {p, 0, 0, 0};
    say("loop", pcap_loop(p, SENT, look_and_change, (u_char *)&seen));
    long changed = 0;
    for (int number = 1; number < NSIG; number++) {
        sigaction(number, NULL, &after[number]);
        changed += after[number].sa_handler != before[number].sa_handler;
    }
    say("signals with another action", changed);
    pcap_close(p);
}

int main(int argc, char **argv) {
    static const struct a_case cases[] = {
        {"filter_under_traffic", filter_under_traffic},
        {"written", written},
        {"written_beside", written_beside},
        {"in_place", in_place},
        {"signals", signals},
        {NULL, NULL},
    };
    return run_case(argc, argv, cases);
}
