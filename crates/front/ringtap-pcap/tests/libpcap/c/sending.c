/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Packets that a handle sends: what arrives at the other end of the link, and what this handle and
 * others see. The test sends 200 frames each time that "# ready" was printed. */
#include "common.h"
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sys/socket.h>

#define SENT 200

/* A packet socket at an interface, without libpcap. */
static int socket_at(const char *name, int protocol) {
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, htons(protocol));
    struct sockaddr_ll at = {.sll_family = AF_PACKET,
                             .sll_protocol = htons(protocol),
                             .sll_ifindex = (int)if_nametoindex(name)};
    /* Large, because packets wait unread while they leave and come back. */
    int room_bytes = 16 << 20;
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room_bytes, sizeof(room_bytes)) != 0)
        fail("SO_RCVBUFFORCE", strerror(errno));
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof(at)) != 0)
        fail(name, strerror(errno));
    return fd;
}

/* Packets that arrive in this time, in any order, up to a limit. */
static void arrives_within(int fd, const char *what, long packets, long ms) {
    struct seen seen = {NULL, 0, 0, 0};
    u_char bytes[2048];
    struct sockaddr_ll from;
    for (long begun = milliseconds(); seen.packets < packets && milliseconds() - begun < ms;) {
        socklen_t length = sizeof(from);
        ssize_t got = recvfrom(fd, bytes, sizeof(bytes), 0, (struct sockaddr *)&from, &length);
        if (got < 0) {
            nap();
        } else if (from.sll_pkttype != PACKET_OUTGOING) {
            struct pcap_pkthdr header = {{0, 0}, (bpf_u_int32)got, (bpf_u_int32)got};
            mix(&seen, &header, bytes);
        }
    }
    summary(what, &seen);
}

static void arrives(int fd, const char *what, long packets) {
    arrives_within(fd, what, packets, LONG_MS);
}

/* A frame of a length that nothing else sends. */
static const u_char *frame(u_char mark, int number, int length) {
    static u_char bytes[2048];
    memset(bytes, mark, sizeof(bytes));
    memcpy(bytes, "\x02\0\0\0\0\x01\x02\0\0\0\0\x02\x88\xb5", 14);
    bytes[14] = (u_char)number;
    bytes[15] = (u_char)(length & 255);
    return bytes;
}

static void inject(void) {
    pcap_t *p = open_with(65535, 100, 1);
    int other = socket_at("tx0", 0x0003);
    long sum = 0;
    for (int number = 0; number < 20; number++)
        sum += pcap_inject(p, frame('i', number, 60 + number * 75), 60 + (size_t)number * 75);
    say("injected bytes", sum);
    sum = 0;
    for (int number = 0; number < 20; number++)
        sum += pcap_sendpacket(p, frame('s', number, 60 + number * 75), 60 + number * 75);
    say("sendpacket", sum);
    arrives(other, "the other end", 40);
    static u_char large[20000];
    memcpy(large, frame('l', 0, 60), 60);
    told(p, "too large", pcap_inject(p, large, sizeof(large)));
    told(p, "too large", pcap_sendpacket(p, large, sizeof(large)));
    told(p, "no header", pcap_inject(p, large, 5));
    told(p, "nothing", pcap_inject(p, large, 0));
    told(p, "nothing", pcap_sendpacket(p, large, 0));
    told(p, "less", pcap_sendpacket(p, large, -5));
    told(p, "impossible", pcap_inject(p, large, (size_t)1 << 40));
    say("NULL", pcap_inject(p, NULL, 60));
    say("once more", pcap_inject(p, frame('o', 0, 60), 60));
    arrives(other, "the other end", 1);
    pcap_close(p);
}

/* Reads a number of packets, and then for some time longer, to find additional ones. */
static void all(pcap_t *p, const char *what, long packets) {
    struct pcap_pkthdr *header;
    const u_char *bytes;
    struct seen seen = {p, 0, 0, 0};
    for (int idle = 0; idle < (seen.packets < packets ? LONG_MS / NAP_MS : 25);) {
        int status = pcap_next_ex(p, &header, &bytes);
        if (status < 0)
            fail("pcap_next_ex", pcap_geterr(p));
        if (status == 1)
            mix(&seen, header, bytes);
        else {
            nap();
            idle++;
        }
    }
    summary(what, &seen);
}

/* Ten frames of the handle, seven of another sender, 200 that arrive. */
static void from_all_sides(pcap_t *p) {
    int somebody = socket_at(interface(), 0);
    long before = told_of("tx0", "statistics/tx_packets");
    ready();
    for (int number = 0; number < 10; number++)
        if (pcap_inject(p, frame('m', number, 100), 100) != 100)
            fail("pcap_inject", pcap_geterr(p));
    for (int number = 0; number < 7; number++)
        if (send(somebody, frame('n', number, 100), 100, 0) != 100)
            fail("send", strerror(errno));
    close(somebody);
    /* Wait until the test has sent its frames, however late. */
    while (told_of("tx0", "statistics/tx_packets") < before + SENT)
        usleep(5000);
}

/* A handle does not see its own packets, but all packets of others. */
static void own(void) {
    pcap_t *p = open_with(65535, 20, 1);
    say("nonblock", pcap_setnonblock(p, 1, errbuf));
    from_all_sides(p);
    all(p, "both directions", SENT + 7);
    say("out", pcap_setdirection(p, PCAP_D_OUT));
    from_all_sides(p);
    all(p, "out", 7);
    say("in", pcap_setdirection(p, PCAP_D_IN));
    from_all_sides(p);
    all(p, "in", SENT);
    say("both", pcap_setdirection(p, PCAP_D_INOUT));
    from_all_sides(p);
    all(p, "both directions", SENT + 7);
    pcap_close(p);
}

/* The same with a snap length below the remembered prefix. */
static void own_cut(void) {
    pcap_t *p = open_with(20, 20, 1);
    say("nonblock", pcap_setnonblock(p, 1, errbuf));
    filter(p, "ether[14] < 100");
    from_all_sides(p);
    /* At this offset, arriving IP packets have 0x45, ARP requests 0. */
    all(p, "cut to 20 bytes", SENT + 7);
    pcap_close(p);
}

/* Another handle sees the packets. */
static void others(void) {
    pcap_t *p = open_with(65535, 20, 1), *reader = open_with(65535, 20, 1);
    say("nonblock", pcap_setnonblock(reader, 1, errbuf));
    from_all_sides(p);
    all(reader, "the other handle", SENT + 17);
    pcap_close(p);
    pcap_close(reader);
}

static void echo_one(u_char *user, const struct pcap_pkthdr *h, const u_char *bytes) {
    struct seen *seen = (struct seen *)user;
    u_char back[2048];
    memcpy(back, bytes, h->caplen);
    memcpy(back, bytes + 6, 6);
    memcpy(back + 6, bytes, 6);
    mix(seen, h, bytes);
    if (pcap_inject(seen->p, back, h->caplen) != (int)h->caplen)
        fail("pcap_inject", pcap_geterr(seen->p));
}

/* A program that echoes every packet echoes each once. */
static void echo(void) {
    pcap_t *p = open_with(65535, 20, 1);
    int other = socket_at("tx0", 0x0003);
    say("nonblock", pcap_setnonblock(p, 1, errbuf));
    ready();
    struct seen seen = {p, 0, 0, 0};
    for (int idle = 0; idle < (seen.packets < SENT ? LONG_MS / NAP_MS : 25); idle++) {
        int got = pcap_dispatch(p, -1, echo_one, (u_char *)&seen);
        if (got < 0)
            fail("pcap_dispatch", pcap_geterr(p));
        if (got > 0)
            idle = -1;
        else
            nap();
    }
    summary("echoed", &seen);
    arrives(other, "came back", SENT);
    arrives_within(other, "and no more", 1, 1000);
    pcap_close(p);
}

int main(int argc, char **argv) {
    static const struct a_case cases[] = {
        {"inject", inject}, {"own", own}, {"own_cut", own_cut}, {"others", others}, {"echo", echo}, {NULL, NULL},
    };
    return run_case(argc, argv, cases);
}
