/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* An analysis of your own for `ringtap probe`: a shared library that defines `ringtap_analysis`.
 *
 * The probe runs it in processes of their own, each with its share of the flows: one that crashes, or does
 * not return for a configured time, ends only its process. All functions run on one thread. From its first
 * instruction on, a library can write no file, start no process, and open no socket. docs/probe.md has the
 * configuration, examples/analysis/ an analysis in C and one in Rust. */
#ifndef RINGTAP_ANALYSIS_H
#define RINGTAP_ANALYSIS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RINGTAP_ANALYSIS_VERSION 1

/* What a process starts with. */
struct ringtap_analysis_start {
    const char *settings; /* `settings` of the configuration */
    uint32_t worker;      /* number of this process, from 0 */
    uint32_t starts;      /* how often this process was started before */
    uint32_t link_type;   /* of the packets, as in pcap files: 1 is Ethernet */
    char why[256];        /* `init` may write here why it refuses */
};

struct ringtap_analysis_packet {
    uint64_t time_ns;    /* since 1970 */
    const uint8_t *data; /* from the link layer on; valid until `packets` returns */
    uint32_t length;     /* captured bytes */
    uint32_t wire_length;
};

/* Takes the values of `results`. */
struct ringtap_analysis_output {
    void *to;
    /* `key` may be NULL. Values of all processes with the same name and key are added. Names and keys of one
     * call of `results` may have about 100,000 bytes; further values are counted and left out. */
    void (*value)(void *to, const char *name, const char *key, double value);
};

struct ringtap_analysis {
    uint32_t version; /* RINGTAP_ANALYSIS_VERSION */
    /* Returns the analysis' own state; NULL refuses to start. */
    void *(*init)(struct ringtap_analysis_start *start);
    /* Analyses packets, in order. */
    void (*packets)(void *state, const struct ringtap_analysis_packet *packets, size_t count);
    /* Runs many times a second, with or without packets; may be NULL. */
    void (*periodic)(void *state, uint64_t now_ns);
    /* Gives the values of the interval that is over; the next one begins. */
    void (*results)(void *state, const struct ringtap_analysis_output *output);
    /* Frees the state; may be NULL. */
    void (*end)(void *state);
};

/* Defined by the library. */
extern const struct ringtap_analysis ringtap_analysis;

#ifdef __cplusplus
}
#endif

#endif
