/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Results of calls before a handle is activated, and after. */
#include "common.h"

static void before(void) {
    pcap_t *p = pcap_create(device, errbuf);
    if (p == NULL)
        fail("pcap_create", errbuf);
    struct pcap_pkthdr *header;
    const u_char *bytes;
    struct pcap_stat statistics;
    struct bpf_program nothing = {0, NULL};
    struct seen seen = {p, 0, 0, 0};
    int *list = NULL;
    say("snapshot", pcap_snapshot(p));
    say("datalink", pcap_datalink(p));
    say("datalink_ext", pcap_datalink_ext(p));
    say("list_datalinks", pcap_list_datalinks(p, &list));
    say("is_swapped", pcap_is_swapped(p));
    say("major_version", pcap_major_version(p));
    say("minor_version", pcap_minor_version(p));
    say("bufsize", pcap_bufsize(p));
    say("file", pcap_file(p) != NULL);
    say("fileno", pcap_fileno(p));
    say("selectable_fd", pcap_get_selectable_fd(p));
    say("select_timeout", pcap_get_required_select_timeout(p) != NULL);
    say("precision", pcap_get_tstamp_precision(p));
    told(p, "next_ex", pcap_next_ex(p, &header, &bytes));
    told(p, "dispatch", pcap_dispatch(p, 1, each, (u_char *)&seen));
    told(p, "loop", pcap_loop(p, 1, each, (u_char *)&seen));
    told(p, "stats", pcap_stats(p, &statistics));
    told(p, "setfilter", pcap_setfilter(p, &nothing));
    told(p, "setdirection", pcap_setdirection(p, PCAP_D_IN));
    told(p, "inject", pcap_inject(p, "x", 1));
    /* libpcap reports success here. */
    printf("# sendpacket %d\n", pcap_sendpacket(p, (const u_char *)"x", 1));
    told(p, "compile", pcap_compile(p, &nothing, "udp", 1, 0));
    say("dump_open", pcap_dump_open(p, "/dev/null") != NULL);
    told(p, "after dump_open", 0);
    say("getnonblock", pcap_getnonblock(p, errbuf));
    say("can_set_rfmon", pcap_can_set_rfmon(p));
    say("set_tstamp_type -1", pcap_set_tstamp_type(p, -1));
    say("set_tstamp_type host", pcap_set_tstamp_type(p, PCAP_TSTAMP_HOST));
    say("set_precision -1", pcap_set_tstamp_precision(p, -1));
    say("set_precision 7", pcap_set_tstamp_precision(p, 7));
    say("set_precision nano", pcap_set_tstamp_precision(p, PCAP_TSTAMP_PRECISION_NANO));
    say("precision", pcap_get_tstamp_precision(p));
    say("set_buffer_size -1", pcap_set_buffer_size(p, -1));
    say("set_buffer_size 0", pcap_set_buffer_size(p, 0));
    say("set_rfmon", pcap_set_rfmon(p, 0));
    say("set_timeout", pcap_set_timeout(p, 10));
    say("setnonblock", pcap_setnonblock(p, 1, errbuf));
    say("activate", pcap_activate(p));
    say("getnonblock", pcap_getnonblock(p, errbuf));
    say("next_ex", pcap_next_ex(p, &header, &bytes));
    pcap_close(p);
}

static void after(void) {
    pcap_t *p = open_with(96, 100, 1);
    struct bpf_program program;
    told(p, "activate again", pcap_activate(p));
    told(p, "set_snaplen", pcap_set_snaplen(p, 60));
    told(p, "set_promisc", pcap_set_promisc(p, 1));
    told(p, "set_rfmon", pcap_set_rfmon(p, 1));
    told(p, "set_timeout", pcap_set_timeout(p, 1));
    told(p, "set_immediate_mode", pcap_set_immediate_mode(p, 1));
    told(p, "set_buffer_size", pcap_set_buffer_size(p, 1));
    told(p, "set_tstamp_type", pcap_set_tstamp_type(p, PCAP_TSTAMP_HOST));
    told(p, "set_tstamp_precision", pcap_set_tstamp_precision(p, 0));
    say("snapshot", pcap_snapshot(p));
    say("datalink", pcap_datalink(p));
    say("datalink_ext", pcap_datalink_ext(p));
    say("is_swapped", pcap_is_swapped(p));
    say("major_version", pcap_major_version(p));
    say("minor_version", pcap_minor_version(p));
    say("precision", pcap_get_tstamp_precision(p));
    say("file", pcap_file(p) != NULL);
    say("fileno", pcap_fileno(p) >= 0);
    say("selectable_fd", pcap_get_selectable_fd(p) >= 0);
    say("select_timeout", pcap_get_required_select_timeout(p) != NULL);
    say("can_set_rfmon", pcap_can_set_rfmon(p));
    say("getnonblock", pcap_getnonblock(p, errbuf));
    say("setnonblock", pcap_setnonblock(p, 7, errbuf));
    say("getnonblock", pcap_getnonblock(p, errbuf));
    say("set_datalink same", pcap_set_datalink(p, DLT_EN10MB));
    told(p, "set_datalink other", pcap_set_datalink(p, DLT_PPP));
    told(p, "set_datalink none", pcap_set_datalink(p, 29999));
    told(p, "setdirection", pcap_setdirection(p, (pcap_direction_t)7) == -1);
    told(p, "setfilter NULL", pcap_setfilter(p, NULL));
    told(p, "compile nonsense", pcap_compile(p, &program, "udp and and", 1, 0));
    told(p, "compile wrong", pcap_compile(p, &program, "portrange 5", 1, 0));
    say("compile", pcap_compile(p, &program, "udp port 53", 1, 0));
    say("instructions", program.bf_len);
    pcap_freecode(&program);
    int *list = NULL;
    int count = pcap_list_tstamp_types(p, &list);
    say("has tstamp types", count >= 0);
    if (count > 0)
        pcap_free_tstamp_types(list);
    count = pcap_list_datalinks(p, &list);
    say("first datalink", count > 0 ? list[0] : -1);
    pcap_free_datalinks(list);
    pcap_close(p);
}

/* Devices that cannot be opened, by both ways of opening. */
static void refused(void) {
    pcap_t *p = pcap_create(device, errbuf);
    if (p == NULL)
        fail("pcap_create", errbuf);
    say("activate", pcap_activate(p));
    say("has a text", pcap_geterr(p)[0] != '\0');
    say("datalink", pcap_datalink(p));
    pcap_close(p);
    errbuf[0] = '\0';
    say("open_live", pcap_open_live(device, 96, 1, 10, errbuf) != NULL);
    say("names it", strncmp(errbuf, device, strlen(device)) == 0);
    printf("# %s\n", errbuf);
}

/* Calls without a device. */
static void offline(void) {
    pcap_t *p = pcap_open_dead(DLT_EN10MB, 65535);
    struct bpf_program program;
    say("compile", pcap_compile(p, &program, "tcp port 80", 1, 0));
    say("instructions", program.bf_len);
    told(p, "setfilter", pcap_setfilter(p, &program));
    told(p, "stats", pcap_stats(p, &(struct pcap_stat){0, 0, 0}));
    say("datalink", pcap_datalink(p));
    say("snapshot", pcap_snapshot(p));
    struct pcap_pkthdr header = {{1, 2}, 20, 20};
    u_char packet[20] = {0};
    say("offline_filter", pcap_offline_filter(&program, &header, packet));
    pcap_freecode(&program);
    pcap_dumper_t *dumper = pcap_dump_open(p, "/dev/null");
    say("dump_open", dumper != NULL);
    pcap_dump((u_char *)dumper, &header, packet);
    say("dump_ftell", pcap_dump_ftell(dumper));
    pcap_dump_close(dumper);
    pcap_close(p);
    say("open_offline", pcap_open_offline("/nonexistent", errbuf) != NULL);
    printf("%s\n", errbuf);
    printf("%s %s %s\n", pcap_statustostr(-5), pcap_datalink_val_to_name(1),
           pcap_tstamp_type_val_to_name(0));
    say("version", strncmp(pcap_lib_version(), "libpcap version 1.", 18) == 0);
    pcap_if_t *list;
    say("findalldevs", pcap_findalldevs(&list, errbuf));
    for (pcap_if_t *one = list; one != NULL; one = one->next)
        printf("%s %x %s\n", one->name, one->flags, one->description ? one->description : "-");
    pcap_freealldevs(list);
    bpf_u_int32 net, mask;
    say("lookupnet any", pcap_lookupnet("any", &net, &mask, errbuf));
    say("lookupnet lo", pcap_lookupnet("lo", &net, &mask, errbuf));
    say("mask", mask);
}

/* Whether the interface is promiscuous, once that no longer changes. */
static long promiscuous(long wanted) {
    long on = -1;
    for (long begun = milliseconds(); milliseconds() - begun < LONG_MS && on != wanted; nap())
        on = (told_of(interface(), "flags") & 0x100) != 0;
    return on;
}

static void promisc(void) {
    say("before", promiscuous(0));
    for (int on = 0; on < 2; on++) {
        pcap_t *p = pcap_create(device, errbuf);
        say("set_promisc", pcap_set_promisc(p, on));
        say("not yet", promiscuous(0));
        say("activate", pcap_activate(p));
        say("promiscuous", promiscuous(on));
        pcap_close(p);
        say("closed", promiscuous(0));
    }
    pcap_t *p = pcap_open_live(device, 96, 1, 10, errbuf);
    say("open_live", promiscuous(1));
    pcap_close(p);
    say("closed", promiscuous(0));
}

static void tstamp_types(void) {
    pcap_t *p = pcap_create(device, errbuf);
    int *list = NULL;
    int count = pcap_list_tstamp_types(p, &list);
    say("types", count);
    for (int at = 0; at < count; at++)
        printf("%s\n", pcap_tstamp_type_val_to_name(list[at]));
    if (count > 0)
        pcap_free_tstamp_types(list);
    for (int type = -1; type < 8; type++)
        say("set_tstamp_type", pcap_set_tstamp_type(p, type));
    say("activate", pcap_activate(p));
    told(p, "too late", pcap_set_tstamp_type(p, PCAP_TSTAMP_HOST));
    pcap_close(p);
}

/* Calls that succeed with a warning. */
static void warnings(void) {
    pcap_t *p = pcap_create("any", errbuf);
    pcap_set_promisc(p, 1);
    int status = pcap_activate(p);
    say("promiscuous any", status);
    say("is a warning", status > 0);
    printf("%s: %s\n", pcap_statustostr(status), pcap_geterr(p));
    pcap_close(p);
    p = pcap_create(device, errbuf);
    pcap_set_promisc(p, 1);
    told(p, "no warning", pcap_activate(p));
    pcap_close(p);
}

/* Adapter time stamps on a device of Ringtap's; libpcap refuses them earlier. */
static void adapter(void) {
    pcap_t *p = pcap_create(device, errbuf);
    say("set_tstamp_type", pcap_set_tstamp_type(p, PCAP_TSTAMP_ADAPTER));
    say("activate", pcap_activate(p));
    ready();
    struct seen seen = {p, 0, 0, 0};
    say("loop", pcap_loop(p, 200, each, (u_char *)&seen));
    pcap_close(p);
}

int main(int argc, char **argv) {
    static const struct a_case cases[] = {
        {"before", before},
        {"after", after},
        {"refused", refused},
        {"offline", offline},
        {"promisc", promisc},
        {"tstamp_types", tstamp_types},
        {"warnings", warnings},
        {"adapter", adapter},
        {NULL, NULL},
    };
    return run_case(argc, argv, cases);
}
