/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Counts packets as pfcount does: `count DEVICE recv|copy|burst|loop PACKETS [FILTER]`, or does another thing. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pfring.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static pfring *ring;
static unsigned long counted, wanted;

static void look_at(const struct pfring_pkthdr *header, const u_char *packet, const u_char *user)
{
    CHECK(user == (const u_char *)"user" || strcmp((const char *)user, "user") == 0);
    CHECK(header->caplen >= 34 && header->caplen <= 128 && header->len >= header->caplen);
    CHECK(header->ts.tv_sec > 1000000000);
    CHECK(header->extended_hdr.timestamp_ns / 1000000000 == (unsigned long)header->ts.tv_sec);
    /* IPv4 over Ethernet. */
    CHECK(packet[12] == 8 && packet[13] == 0 && packet[14] >> 4 == 4);
    if (++counted == wanted)
        pfring_breakloop(ring);
}

/* The simulated NIC sends UDP over IPv4. */
static void check_parsed(const struct pfring_pkthdr *header, u_int8_t last)
{
    const struct pkt_parsing_info *parsed = &header->extended_hdr.parsed_pkt;

    CHECK(parsed->eth_type == 0x0800 && parsed->offset.l3_offset == 14);
    CHECK(parsed->tunnel.tunnel_id == NO_TUNNEL_ID);
    if (last < 3)
        return;
    CHECK(parsed->ip_version == 4 && parsed->offset.l4_offset == 34 && parsed->ip_src.v4 != 0);
    if (last == 4)
        CHECK(parsed->l3_proto == IPPROTO_UDP && parsed->offset.payload_offset == 42);
}

/* Every layer, by the ring and by the program. */
static void parsing(void)
{
    struct pfring_pkthdr header;
    char text[256];
    u_char *packet;

    for (int level = 2; level <= 4; level++) {
        CHECK(pfring_recv_parsed(ring, &packet, 0, &header, 1, level, 1, 1) == 1);
        look_at(&header, packet, (const u_char *)"user");
        check_parsed(&header, level);
        memset(&header.extended_hdr.parsed_pkt, 0, sizeof(struct pkt_parsing_info));
        CHECK(pfring_parse_pkt(packet, &header, level, 0, 0) == level);
        check_parsed(&header, level);
    }
    CHECK(pfring_recv(ring, &packet, 0, &header, 1) == 1);
    look_at(&header, packet, (const u_char *)"user");
    check_parsed(&header, 4);
    CHECK(pfring_print_parsed_pkt(text, sizeof(text), packet, &header) == (int)strlen(text));
    CHECK(strstr(text, "[l3_proto=UDP]"));
    CHECK(pfring_print_parsed_pkt(text, 4, packet, &header) == 3 && strlen(text) == 3);
    CHECK(strcmp(pfring_format_numbers(1234567, text, sizeof(text), 0), "1'234'567") == 0);
    CHECK(pfring_format_numbers(1234567, text, 0, 0) == text);
}

/* `count send FROM TO`: packets that arrive at one interface are sent through another one. */
static int sending(const char *from, const char *to)
{
    struct pfring_pkthdr header;
    char frame[60] = "\x02\0\0\0\0\1\x02\0\0\0\0\2\x88\xb5ringtap";
    u_char address[6], *packet;
    pfring *sender, *receiver;
    pfring_stat stats;
    int index;

    receiver = pfring_open(to, 1500, PF_RING_PROMISC);
    sender = pfring_open(from, 1500, 0);
    CHECK(receiver && sender);
    CHECK(pfring_set_direction(receiver, rx_only_direction) == 0);
    CHECK(pfring_enable_ring(receiver) == 0);
    CHECK(pfring_get_mtu_size(sender) == 1500 && pfring_get_num_rx_channels(sender) >= 1);
    CHECK(pfring_get_bound_device_address(sender, address) == 0 && (address[0] & 1) == 0);
    CHECK(pfring_get_bound_device_ifindex(sender, &index) == 0 && index > 1);
    CHECK(pfring_send_last_rx_packet(receiver, index) == PF_RING_ERROR_NO_PKT_AVAILABLE);
    CHECK(pfring_set_socket_mode(sender, send_only_mode) == 0 && pfring_enable_ring(sender) == 0);
    CHECK(pfring_recv(sender, &packet, 0, &header, 0) == PF_RING_ERROR_RING_NOT_ENABLED);
    CHECK(pfring_stats(sender, &stats) == 0 && stats.recv == 0 && stats.drop == 0);
    CHECK(pfring_send(sender, frame, sizeof(frame), 1) == sizeof(frame));
    CHECK(pfring_flush_tx_packets(sender) == 0);
    CHECK(pfring_recv(receiver, &packet, 0, &header, 1) == 1);
    CHECK(header.len == sizeof(frame) && memcmp(packet, frame, sizeof(frame)) == 0);
    /* It comes back through the other end. */
    CHECK(pfring_send_last_rx_packet(receiver, index) == 0);
    CHECK(pfring_recv(receiver, &packet, 0, &header, 1) == 1);
    CHECK(memcmp(packet, frame, sizeof(frame)) == 0);
    pfring_close(sender);
    pfring_close(receiver);
    return 0;
}

static void on_interrupt(int number)
{
    (void)number;
    pfring_breakloop(ring);
}

static void bursts(void)
{
    pfring_packet_info packets[32];
    struct pfring_pkthdr header;

    while (counted < wanted) {
        int got = pfring_recv_burst(ring, packets, 32, 1);
        CHECK(got > 0 && got <= 32);
        for (int at = 0; at < got; at++) {
            memset(&header, 0, sizeof(header));
            header.ts = packets[at].ts;
            header.caplen = packets[at].caplen;
            header.len = packets[at].len;
            header.extended_hdr.timestamp_ns = (unsigned long)packets[at].ts.tv_sec * 1000000000;
            look_at(&header, packets[at].data, (const u_char *)"user");
        }
    }
}

static void one_by_one(u_int bytes)
{
    u_char copy[128], *packet = copy;
    struct pfring_pkthdr header;
    struct pollfd readable = { .fd = pfring_get_selectable_fd(ring), .events = POLLIN };

    CHECK(readable.fd >= 0);
    while (counted < wanted) {
        int got = pfring_recv(ring, &packet, bytes, &header, 0);
        CHECK(got >= 0 && (bytes == 0 || packet == copy));
        if (got)
            look_at(&header, packet, (const u_char *)"user");
        else
            CHECK(poll(&readable, 1, 10000) > 0);
    }
}

/* Receives until `packets` packets of other flows came; fails if one is of this flow. */
static void receive_others(int packets, u_int16_t port_a, u_int16_t port_b)
{
    struct pfring_pkthdr header;
    u_char *packet;

    for (int seen = 0; seen < packets; seen++) {
        CHECK(pfring_recv(ring, &packet, 0, &header, 1) == 1);
        CHECK(header.extended_hdr.parsed_pkt.l4_src_port != port_a ||
              header.extended_hdr.parsed_pkt.l4_dst_port != port_b);
    }
}

/* Takes what came before a rule was in force. */
static void skip_waiting(void)
{
    struct pfring_pkthdr header;
    u_char *packet;

    /* The rule is in force when its call returns; what came before is in the pool. */
    while (pfring_recv(ring, &packet, 0, &header, 0) > 0)
        continue;
}

static void rules(void)
{
    struct pkt_parsing_info *parsed;
    struct pfring_pkthdr header;
    hash_filtering_rule rule = { .rule_action = dont_forward_packet_and_stop_rule_evaluation };
    hw_filtering_rule offload = { .rule_family_type = generic_flow_id_rule, .rule_id = 7 };
    pfring_stat stats;
    u_char *packet;

    CHECK(pfring_recv(ring, &packet, 0, &header, 1) == 1);
    parsed = &header.extended_hdr.parsed_pkt;
    rule.ip_version = 4;
    rule.proto = parsed->l3_proto;
    rule.host_peer_a = parsed->ip_src;
    rule.host_peer_b = parsed->ip_dst;
    rule.port_peer_a = parsed->l4_src_port;
    rule.port_peer_b = parsed->l4_dst_port;
    CHECK(pfring_handle_hash_filtering_rule(ring, &rule, 0) < 0);
    CHECK(pfring_handle_hash_filtering_rule(ring, &rule, 1) == 0);
    skip_waiting();
    receive_others(2000, rule.port_peer_a, rule.port_peer_b);
    CHECK(pfring_stats(ring, &stats) == 0 && stats.shunt > 0);
    CHECK(pfring_handle_hash_filtering_rule(ring, &rule, 0) == 0);
    /* The flow comes back, with a number by which it can be named. */
    do
        CHECK(pfring_recv(ring, &packet, 0, &header, 1) == 1);
    while (parsed->l4_src_port != rule.port_peer_a || parsed->l4_dst_port != rule.port_peer_b);
    offload.rule_family.flow_id_rule.flow_id = header.extended_hdr.pkt_hash;
    CHECK(pfring_add_hw_rule(ring, &offload) == 0);
    skip_waiting();
    receive_others(2000, rule.port_peer_a, rule.port_peer_b);
    offload.rule_family.flow_id_rule.flow_id ^= 1;
    CHECK(pfring_remove_hw_rule(ring, 7) == 0 && pfring_remove_hw_rule(ring, 7) < 0);
    CHECK(pfring_toggle_filtering_policy(ring, 0) == PF_RING_ERROR_NOT_SUPPORTED);
}

static void *receive_one(void *got)
{
    struct pfring_pkthdr header;
    u_char *packet;

    *(int *)got = pfring_recv(ring, &packet, 0, &header, 1);
    return NULL;
}

/* While a thread waits for packets, others use the ring. The filter passes none. */
static void threads(void)
{
    hash_filtering_rule rule = { .rule_action = dont_forward_packet_and_stop_rule_evaluation };
    pthread_t receivers[2];
    pfring_stat stats;
    int got[2] = { 7, 7 };

    rule.ip_version = 4;
    rule.proto = IPPROTO_UDP;
    rule.host_peer_a.v4 = 0x0a000001;
    rule.host_peer_b.v4 = 0x0a000002;
    for (int at = 0; at < 2; at++)
        CHECK(pthread_create(&receivers[at], NULL, receive_one, &got[at]) == 0);
    poll(NULL, 0, 300);
    CHECK(pfring_handle_hash_filtering_rule(ring, &rule, 1) == 0);
    CHECK(pfring_stats(ring, &stats) == 0 && stats.recv == 0);
    CHECK(pfring_handle_hash_filtering_rule(ring, &rule, 0) == 0);
    CHECK(pfring_set_bpf_filter(ring, "tcp port 10") == 0);
    pfring_breakloop(ring);
    for (int at = 0; at < 2; at++)
        CHECK(pthread_join(receivers[at], NULL) == 0 && got[at] == 0);
}

static volatile unsigned long handled;

static void on_alarm(int number)
{
    pfring_stat stats;

    (void)number;
    if (pfring_stats(ring, &stats) != 0)
        abort();
    handled++;
}

/* A signal handler asks for the counters while the program does. */
static void handlers(void)
{
    struct itimerval often = { { 0, 500 }, { 0, 500 } }, never = { { 0, 0 }, { 0, 0 } };
    pfring_stat stats = { 0, 0, 0 };
    struct pfring_pkthdr header;
    u_char *packet;

    signal(SIGALRM, on_alarm);
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    while (handled < 500 || stats.recv < 100) {
        CHECK(pfring_stats(ring, &stats) == 0);
        CHECK(pfring_recv(ring, &packet, 0, &header, 0) >= 0);
    }
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
}

/* A group that does not divide its packets has one ring in a cluster; other groups have as many as they admit. */
static int clusters(const char *undivided, const char *divided)
{
    pfring_if_t *list = pfring_findalldevs();
    pfring *rings[4];
    int found = 0;

    for (pfring_if_t *one = list; one; one = one->next)
        found += strcmp(one->name, undivided) == 0 || strcmp(one->name, "lo") == 0;
    CHECK(found == 2);
    pfring_freealldevs(list);
    CHECK(gmt_to_local(0) == 0);
    for (int at = 0; at < 4; at++)
        CHECK(rings[at] = pfring_open(at < 2 ? undivided : divided, 128, 0));
    CHECK(pfring_set_cluster(rings[0], 5, cluster_per_flow) == 0);
    CHECK(pfring_set_cluster(rings[1], 5, cluster_per_flow) == PF_RING_ERROR_NOT_SUPPORTED);
    CHECK(pfring_set_cluster_consumer(rings[2], 5, MAX_CLUSTER_QUEUES, cluster_per_flow_5_tuple, 1) == 0);
    CHECK(pfring_set_cluster(rings[3], 5, cluster_per_flow) == 0);
    CHECK(pfring_set_cluster_consumer(rings[3], 5, 1, cluster_per_flow, 0) == PF_RING_ERROR_NOT_SUPPORTED);
    CHECK(pfring_remove_from_cluster(rings[0]) == 0);
    CHECK(pfring_set_cluster(rings[1], 5, cluster_per_flow) == 0);
    for (int at = 0; at < 4; at++)
        pfring_close(rings[at]);
    return 0;
}

static void sizes(void)
{
    printf("%zu %zu %zu ", sizeof(hash_filtering_rule), sizeof(filtering_rule),
           sizeof(hw_filtering_rule));
    printf("%zu %zu %zu %zu ", sizeof(struct pfring_pkthdr), offsetof(struct pfring_pkthdr, caplen),
           offsetof(struct pfring_pkthdr, len), offsetof(struct pfring_pkthdr, extended_hdr));
    printf("%zu %zu ", offsetof(struct pfring_pkthdr, extended_hdr.rx_direction),
           offsetof(struct pfring_pkthdr, extended_hdr.if_index));
    printf("%zu ", offsetof(struct pfring_pkthdr, extended_hdr.pkt_hash));
    printf("%zu %zu %zu ", sizeof(pfring_packet_info), offsetof(pfring_packet_info, caplen),
           offsetof(pfring_packet_info, hash));
    printf("%zu %zu\n", sizeof(pfring_stat), offsetof(pfring_stat, shunt));
}

int main(int argc, char **argv)
{
    struct pfring_pkthdr header;
    u_int32_t version;
    pfring_stat stats;
    u_char *packet;

    if (argc == 2) {
        sizes();
        return 0;
    }
    CHECK(argc >= 4);
    if (strcmp(argv[1], "send") == 0)
        return sending(argv[2], argv[3]);
    if (strcmp(argv[1], "clusters") == 0)
        return clusters(argv[2], argv[3]);
    errno = 0;
    CHECK(pfring_open("absent0", 128, 0) == NULL && errno == ENODEV);
    CHECK(pfring_stats(NULL, &stats) == PF_RING_ERROR_INVALID_ARGUMENT);
    ring = pfring_open(argv[1], 128, PF_RING_PROMISC | PF_RING_LONG_HEADER |
                                         (strcmp(argv[2], "rules") ? 0 : PF_RING_FLOW_OFFLOAD));
    CHECK(ring);
    wanted = strtoul(argv[3], NULL, 10);
    signal(SIGINT, on_interrupt);
    CHECK(pfring_stats(ring, &stats) == PF_RING_ERROR_RING_NOT_ENABLED);
    CHECK(pfring_version(ring, &version) == 0 && version >> 16 == 8);
    CHECK(pfring_set_application_name(ring, "count.c") == 0);
    CHECK(pfring_set_poll_watermark(ring, 4) == 0);
    CHECK(pfring_set_cluster(ring, 99, cluster_per_flow) == 0);
    CHECK(pfring_set_socket_mode(ring, (socket_mode)3) == PF_RING_ERROR_NOT_SUPPORTED);
    CHECK(pfring_set_socket_mode(ring, recv_only_mode) == 0);
    CHECK(pfring_set_direction(ring, rx_and_tx_direction) == 0);
    CHECK(pfring_set_bpf_filter(ring, "tcp prt 1") < 0);
    CHECK(argc < 5 || pfring_set_bpf_filter(ring, argv[4]) == 0);
    CHECK(pfring_enable_ring(ring) == 0);
    if (strcmp(argv[2], "threads") == 0 || strcmp(argv[2], "handlers") == 0) {
        strcmp(argv[2], "threads") == 0 ? threads() : handlers();
        pfring_close(ring);
        return 0;
    }
    CHECK(pfring_poll(ring, 20000) == 1);
    /* The simulated NIC only receives. */
    CHECK(pfring_set_direction(ring, (packet_direction)7) == PF_RING_ERROR_INVALID_ARGUMENT);
    CHECK(pfring_set_direction(ring, tx_only_direction) == 0);
    CHECK(pfring_recv(ring, &packet, 0, &header, 0) == 0);
    CHECK(pfring_set_direction(ring, rx_only_direction) == 0);
    CHECK(pfring_stats(ring, &stats) == 0 && stats.recv == 0);
    if (strcmp(argv[2], "recv") == 0)
        parsing();
    if (strcmp(argv[2], "rules") == 0) {
        rules();
        pfring_close(ring);
        return 0;
    }
    if (strcmp(argv[2], "loop") == 0) {
        fprintf(stderr, "loops\n");
        CHECK(pfring_loop(ring, look_at, (const u_char *)"user", 1) == 0);
    } else if (strcmp(argv[2], "burst") == 0)
        bursts();
    else
        one_by_one(strcmp(argv[2], "copy") == 0 ? 128 : 0);
    CHECK(pfring_stats(ring, &stats) == 0);
    CHECK(stats.recv == counted && stats.shunt == 0);
    CHECK(pfring_send(ring, "x", 1, 1) == PF_RING_ERROR_NOT_SUPPORTED);
    CHECK(pfring_get_mtu_size(ring) == PF_RING_ERROR_NOT_SUPPORTED);
    CHECK(pfring_get_num_rx_channels(ring) == 1);
    printf("%lu packets\n", counted);
    pfring_close(ring);
    return 0;
}
