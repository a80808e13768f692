/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The steps of libpcap's manual and tutorial: find a device, open it, read its link type, filter, take
 * one packet, take and parse many, write them to a file, read the file. */
#include "common.h"
#include <arpa/inet.h>
#include <netinet/if_ether.h>
#include <netinet/ip.h>
#include <netinet/udp.h>

/* The device is in the list, unless it has a name of Ringtap's. */
static void find(void) {
    pcap_if_t *list, *one;
    if (pcap_findalldevs(&list, errbuf) != 0)
        fail("pcap_findalldevs", errbuf);
    for (one = list; one != NULL && strcmp(one->name, interface()) != 0; one = one->next)
        ;
    say("found", one != NULL);
    say("is up", one != NULL && (one->flags & PCAP_IF_UP) != 0);
    say("is a loopback", one != NULL && (one->flags & PCAP_IF_LOOPBACK) != 0);
    pcap_freealldevs(list);
    bpf_u_int32 net = 0, mask = 0;
    say("lookupnet", pcap_lookupnet(device, &net, &mask, errbuf));
    struct in_addr address = {net};
    printf("net %s ", inet_ntoa(address));
    address.s_addr = mask;
    printf("mask %s\n", inet_ntoa(address));
}

static pcap_t *open_filtered(const char *text) {
    pcap_t *p = pcap_open_live(device, BUFSIZ, 1, 1000, errbuf);
    if (p == NULL)
        fail("pcap_open_live", errbuf);
    if (pcap_datalink(p) != DLT_EN10MB)
        fail(device, "no Ethernet headers");
    printf("%s: %s\n", pcap_datalink_val_to_name(DLT_EN10MB),
           pcap_datalink_val_to_description(DLT_EN10MB));
    filter(p, text);
    return p;
}

static void one_packet(void) {
    pcap_t *p = open_filtered("udp and dst port 1005");
    ready();
    struct pcap_pkthdr header;
    const u_char *bytes;
    do
        bytes = pcap_next(p, &header);
    while (bytes == NULL);
    printf("a packet of %u bytes, type %02x%02x\n", header.len, bytes[12], bytes[13]);
    pcap_close(p);
}

static void print_packet(u_char *user, const struct pcap_pkthdr *h, const u_char *bytes) {
    long *number = (long *)user;
    const struct ether_header *ethernet = (const struct ether_header *)bytes;
    struct ip ip;
    struct udphdr udp;
    memcpy(&ip, bytes + sizeof(*ethernet), sizeof(ip));
    memcpy(&udp, bytes + sizeof(*ethernet) + ip.ip_hl * 4, sizeof(udp));
    printf("%ld: %u bytes, ", ++*number, h->len);
    printf("%s:%d > ", inet_ntoa(ip.ip_src), ntohs(udp.source));
    printf("%s:%d, payload %d\n", inet_ntoa(ip.ip_dst), ntohs(udp.dest), ntohs(udp.len) - 8);
}

static void sniff(void) {
    pcap_t *p = open_filtered("udp and greater 200");
    ready();
    long number = 0;
    say("loop", pcap_loop(p, 25, print_packet, (u_char *)&number));
    struct pcap_stat statistics;
    say("stats", pcap_stats(p, &statistics));
    say("dropped", statistics.ps_drop);
    pcap_close(p);
}

static void keep(void) {
    char name[] = "/tmp/rt-pcap-keep-XXXXXX";
    close(mkstemp(name));
    pcap_t *p = open_filtered("udp and dst port 1002");
    pcap_dumper_t *dumper = pcap_dump_open(p, name);
    if (dumper == NULL)
        fail("pcap_dump_open", pcap_geterr(p));
    ready();
    say("loop", pcap_loop(p, 20, pcap_dump, (u_char *)dumper));
    pcap_dump_close(dumper);
    pcap_close(p);
    pcap_t *file = pcap_open_offline(name, errbuf);
    if (file == NULL)
        fail("pcap_open_offline", errbuf);
    long number = 0;
    say("read again", pcap_loop(file, -1, print_packet, (u_char *)&number));
    pcap_close(file);
    unlink(name);
}

int main(int argc, char **argv) {
    static const struct a_case cases[] = {
        {"find", find}, {"one_packet", one_packet}, {"sniff", sniff}, {"keep", keep}, {NULL, NULL},
    };
    return run_case(argc, argv, cases);
}
