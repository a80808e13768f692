/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Every function that needs no device. */
#include "common.h"
#include <pcap/namedb.h>
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

static const char *text(const char *found) {
    return found == NULL ? "NULL" : found;
}

static void link_types(void) {
    for (int dlt = 0; dlt < 300; dlt++)
        printf("%d %s, %s, %s\n", dlt, text(pcap_datalink_val_to_name(dlt)),
               text(pcap_datalink_val_to_description(dlt)), pcap_datalink_val_to_description_or_dlt(dlt));
    say("EN10MB", pcap_datalink_name_to_val("EN10MB"));
    say("none", pcap_datalink_name_to_val("nothing"));
}

static void names(void) {
    for (int number = -15; number < 8; number++)
        printf("%d %s\n", number, pcap_statustostr(number));
    for (int number = 0; number < 40; number++)
        printf("%d %s\n", number, pcap_strerror(number));
    for (int type = -1; type < 8; type++)
        printf("%d %s, %s\n", type, text(pcap_tstamp_type_val_to_name(type)),
               text(pcap_tstamp_type_val_to_description(type)));
    say("adapter", pcap_tstamp_type_name_to_val("adapter"));
    say("none", pcap_tstamp_type_name_to_val("nothing"));
    struct addrinfo *found = pcap_nametoaddrinfo("127.0.0.1");
    say("nametoaddrinfo", found != NULL);
    bpf_u_int32 **addresses = pcap_nametoaddr("127.0.0.1");
    say("nametoaddr", addresses != NULL && addresses[0] != NULL ? (long)*addresses[0] : -1);
    say("nametonetaddr", pcap_nametonetaddr("loopback"));
    say("nametoproto", pcap_nametoproto("udp"));
    say("nametoeproto", pcap_nametoeproto("arp"));
    say("nametollc", pcap_nametollc("stp"));
    int port = 0, last = 0, protocol = 0;
    say("nametoport", pcap_nametoport("domain", &port, &protocol));
    printf("%d %d\n", port, protocol);
    say("nametoportrange", pcap_nametoportrange("20-30", &port, &last, &protocol));
    printf("%d %d %d\n", port, last, protocol);
    u_char *address = pcap_ether_aton("01:02:03:0a:0b:0c");
    printf("ether_aton %x %x\n", address[0], address[5]);
    free(address);
    say("ether_hostton", pcap_ether_hostton("no-such-host") != NULL);
    FILE *hosts = tmpfile();
    fputs("1:2:3:4:5:6 one\n", hosts);
    rewind(hosts);
    struct pcap_etherent *entry = pcap_next_etherent(hosts);
    printf("next_etherent %s %x\n", entry == NULL ? "NULL" : entry->name, entry == NULL ? 0 : entry->addr[5]);
    fclose(hosts);
    say("lookupdev", pcap_lookupdev(errbuf) != NULL);
}

static void programs(void) {
    struct bpf_program program;
    say("compile_nopcap", pcap_compile_nopcap(96, DLT_EN10MB, &program, "udp port 53", 1, 0));
    for (int option = 1; option < 4; option++)
        bpf_dump(&program, option);
    fflush(stdout);
    say("validate", bpf_validate(program.bf_insns, program.bf_len));
    printf("%s\n", bpf_image(program.bf_insns, 0));
    u_char packet[60] = {0};
    packet[12] = 8;
    packet[14] = 0x45;
    packet[23] = 17;
    packet[37] = 53;
    say("filter", bpf_filter(program.bf_insns, packet, sizeof(packet), sizeof(packet)));
    struct pcap_pkthdr header = {{1, 2}, sizeof(packet), sizeof(packet)};
    say("offline_filter", pcap_offline_filter(&program, &header, packet));
    pcap_freecode(&program);
    say("freed", program.bf_len);
    say("compile_nopcap", pcap_compile_nopcap(96, DLT_EN10MB, &program, "udp and", 1, 0));
}

static void dumps(void) {
    char name[] = "/tmp/rt-pcap-every-XXXXXX";
    close(mkstemp(name));
    say("init", pcap_init(PCAP_CHAR_ENC_LOCAL, errbuf));
    pcap_t *p = pcap_open_dead_with_tstamp_precision(DLT_EN10MB, 1000, PCAP_TSTAMP_PRECISION_NANO);
    struct pcap_pkthdr header = {{1, 123456789}, 4, 9};
    pcap_dumper_t *dumper = pcap_dump_open(p, name);
    pcap_dump((u_char *)dumper, &header, (const u_char *)"abcd");
    say("file", pcap_dump_file(dumper) != NULL);
    say("flush", pcap_dump_flush(dumper));
    say("ftell", pcap_dump_ftell(dumper));
    say("ftell64", pcap_dump_ftell64(dumper));
    pcap_dump_close(dumper);
    dumper = pcap_dump_open_append(p, name);
    pcap_dump((u_char *)dumper, &header, (const u_char *)"efgh");
    pcap_dump_close(dumper);
    dumper = pcap_dump_fopen(p, fopen("/dev/null", "w"));
    say("fopen", dumper != NULL);
    pcap_dump_close(dumper);
    pcap_close(p);
    pcap_t *files[] = {
        pcap_open_offline(name, errbuf),
        pcap_open_offline_with_tstamp_precision(name, PCAP_TSTAMP_PRECISION_NANO, errbuf),
        pcap_fopen_offline(fopen(name, "r"), errbuf),
        pcap_fopen_offline_with_tstamp_precision(fopen(name, "r"), PCAP_TSTAMP_PRECISION_NANO, errbuf),
    };
    for (int at = 0; at < 4; at++) {
        p = files[at];
        struct pcap_pkthdr *found;
        const u_char *bytes;
        while (pcap_next_ex(p, &found, &bytes) == 1)
            printf("%ld.%ld %u of %u %.4s\n", found->ts.tv_sec, (long)found->ts.tv_usec, found->caplen,
                   found->len, bytes);
        say("at the end", pcap_next_ex(p, &found, &bytes));
        printf("%d %d %d %d %d %d %d\n", pcap_snapshot(p), pcap_datalink(p), pcap_datalink_ext(p),
               pcap_is_swapped(p), pcap_major_version(p), pcap_minor_version(p),
               pcap_get_tstamp_precision(p));
        printf("%d %d %d %d\n", pcap_file(p) != NULL, pcap_fileno(p) >= 0, pcap_get_selectable_fd(p) >= 0,
               pcap_get_required_select_timeout(p) != NULL);
        told(p, "inject", pcap_inject(p, "x", 1));
        told(p, "sendpacket", pcap_sendpacket(p, (const u_char *)"x", 1));
        told(p, "setdirection", pcap_setdirection(p, PCAP_D_IN));
        told(p, "stats", pcap_stats(p, &(struct pcap_stat){0, 0, 0}));
        told(p, "set_snaplen", pcap_set_snaplen(p, 5));
        told(p, "set_protocol_linux", pcap_set_protocol_linux(p, 5));
        told(p, "activate", pcap_activate(p));
        int *list = NULL, count = pcap_list_datalinks(p, &list);
        say("datalinks", count);
        pcap_free_datalinks(list);
        say("bufsize", pcap_bufsize(p));
        say("nonblock", pcap_getnonblock(p, errbuf));
        pcap_breakloop(p);
        say("broken", pcap_dispatch(p, -1, NULL, NULL));
        fflush(stdout);
        dup2(1, 2);
        pcap_perror(p, "perror");
        pcap_close(p);
    }
    unlink(name);
}

int main(int argc, char **argv) {
    static const struct a_case cases[] = {
        {"link_types", link_types}, {"names", names}, {"programs", programs}, {"dumps", dumps}, {NULL, NULL},
    };
    return run_case(argc, argv, cases);
}
