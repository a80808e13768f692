// SPDX-License-Identifier: MIT OR Apache-2.0
/* The functions that go to the real library unchanged; the same list as in list.rs.
 *
 * Part of border.c: the frame of a call that is passed on must be one of C, because the real library's
 * function may be cancelled. */

/* Type, name, parameters, arguments, result without a real library, error buffer. */
#define FORWARD(type, name, parameters, arguments, absent, errbuf)                                  \
    type ringtap_c_##name parameters                                                                \
    {                                                                                               \
        type (*real) parameters = (type (*) parameters)KNOWN(#name, errbuf);                        \
        if (real == NULL)                                                                           \
            return absent;                                                                          \
        return real arguments;                                                                      \
    }

FORWARD(void, bpf_dump, (const void *program, int option), (program, option), , NULL)
FORWARD(unsigned, bpf_filter, (const void *program, const uint8_t *packet, unsigned wire, unsigned captured), (program, packet, wire, captured), 0, NULL)
FORWARD(char *, bpf_image, (const void *instruction, int number), (instruction, number), NULL, NULL)
FORWARD(int, bpf_validate, (const void *program, int length), (program, length), ERROR, NULL)
FORWARD(int, pcap_compile_nopcap, (int snap, int dlt, void *program, const char *text, int optimize, uint32_t mask), (snap, dlt, program, text, optimize, mask), ERROR, NULL)
FORWARD(int, pcap_datalink_name_to_val, (const char *name), (name), ERROR, NULL)
FORWARD(const char *, pcap_datalink_val_to_description, (int dlt), (dlt), NULL, NULL)
FORWARD(const char *, pcap_datalink_val_to_description_or_dlt, (int dlt), (dlt), NULL, NULL)
FORWARD(const char *, pcap_datalink_val_to_name, (int dlt), (dlt), NULL, NULL)
FORWARD(void, pcap_dump, (uint8_t *user, const struct header *header, const uint8_t *packet), (user, header, packet), , NULL)
FORWARD(void, pcap_dump_close, (void *dumper), (dumper), , NULL)
FORWARD(FILE *, pcap_dump_file, (void *dumper), (dumper), NULL, NULL)
FORWARD(int, pcap_dump_flush, (void *dumper), (dumper), ERROR, NULL)
FORWARD(long, pcap_dump_ftell, (void *dumper), (dumper), ERROR, NULL)
FORWARD(int64_t, pcap_dump_ftell64, (void *dumper), (dumper), ERROR, NULL)
FORWARD(uint8_t *, pcap_ether_aton, (const char *text), (text), NULL, NULL)
FORWARD(uint8_t *, pcap_ether_hostton, (const char *name), (name), NULL, NULL)
FORWARD(void *, pcap_fopen_offline, (FILE *file, char *errbuf), (file, errbuf), NULL, errbuf)
FORWARD(void *, pcap_fopen_offline_with_tstamp_precision, (FILE *file, unsigned precision, char *errbuf), (file, precision, errbuf), NULL, errbuf)
FORWARD(void, pcap_free_datalinks, (int *list), (list), , NULL)
FORWARD(void, pcap_free_tstamp_types, (int *list), (list), , NULL)
FORWARD(void, pcap_freecode, (void *program), (program), , NULL)
FORWARD(int, pcap_init, (unsigned options, char *errbuf), (options, errbuf), ERROR, errbuf)
FORWARD(char *, pcap_lookupdev, (char *errbuf), (errbuf), NULL, errbuf)
FORWARD(void *, pcap_nametoaddr, (const char *name), (name), NULL, NULL)
FORWARD(void *, pcap_nametoaddrinfo, (const char *name), (name), NULL, NULL)
FORWARD(int, pcap_nametoeproto, (const char *name), (name), ERROR, NULL)
FORWARD(int, pcap_nametollc, (const char *name), (name), ERROR, NULL)
FORWARD(uint32_t, pcap_nametonetaddr, (const char *name), (name), 0, NULL)
FORWARD(int, pcap_nametoport, (const char *name, int *port, int *protocol), (name, port, protocol), ERROR, NULL)
FORWARD(int, pcap_nametoportrange, (const char *name, int *first, int *last, int *protocol), (name, first, last, protocol), ERROR, NULL)
FORWARD(int, pcap_nametoproto, (const char *name), (name), ERROR, NULL)
FORWARD(void *, pcap_next_etherent, (FILE *file), (file), NULL, NULL)
FORWARD(int, pcap_offline_filter, (const void *program, const struct header *header, const uint8_t *packet), (program, header, packet), ERROR, NULL)
FORWARD(void *, pcap_open_dead, (int dlt, int snap), (dlt, snap), NULL, NULL)
FORWARD(void *, pcap_open_dead_with_tstamp_precision, (int dlt, int snap, unsigned precision), (dlt, snap, precision), NULL, NULL)
FORWARD(void *, pcap_open_offline, (const char *name, char *errbuf), (name, errbuf), NULL, errbuf)
FORWARD(void *, pcap_open_offline_with_tstamp_precision, (const char *name, unsigned precision, char *errbuf), (name, precision, errbuf), NULL, errbuf)
FORWARD(const char *, pcap_statustostr, (int status), (status), NULL, NULL)
FORWARD(const char *, pcap_strerror, (int error), (error), NULL, NULL)
FORWARD(int, pcap_tstamp_type_name_to_val, (const char *name), (name), ERROR, NULL)
FORWARD(const char *, pcap_tstamp_type_val_to_description, (int value), (value), NULL, NULL)
FORWARD(const char *, pcap_tstamp_type_val_to_name, (int value), (value), NULL, NULL)
