/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Misuses every call, and checks the error of each. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ringtap.h>

#include "want.h"

static void *wait_for_packets(void *handle)
{
    const struct ringtap_packet *packets;
    int got;

    do
        got = ringtap_next_batch(handle, &packets, -1);
    while (got >= 0 || got == RINGTAP_ERROR_BUSY);
    return got == RINGTAP_END ? handle : NULL;
}

static void open_wrongly(void)
{
    struct ringtap_options options = RINGTAP_OPTIONS_INIT;
    ringtap_handle *handle = (ringtap_handle *)&options;

    WANT(ringtap_open(NULL, NULL, "all", NULL), RINGTAP_ERROR_ARGUMENT);
    WANT(ringtap_open(&handle, NULL, NULL, NULL), RINGTAP_ERROR_ARGUMENT);
    WANT(handle == NULL, 1);
    WANT(ringtap_open(&handle, NULL, "\xff\xfe", NULL), RINGTAP_ERROR_ARGUMENT);
    WANT(ringtap_open(&handle, "/nowhere", "all", NULL), RINGTAP_ERROR_NO_HUB);
    SAID(NULL, "no hub is running there");
    WANT(ringtap_open(&handle, "/etc/passwd", "all", NULL) < 0, 1);
    WANT(ringtap_open(&handle, NULL, "nobody", NULL), RINGTAP_ERROR_REFUSED);
    SAID(NULL, "no group \"nobody\"");
    options.filter = "tcp prt 80";
    WANT(ringtap_open(&handle, NULL, "all", &options), RINGTAP_ERROR_FILTER);
    options.filter = NULL;
    options.watermark_packets = 4000000000u;
    WANT(ringtap_open(&handle, NULL, "all", &options), RINGTAP_ERROR_REFUSED);
    options.watermark_packets = 0;
    options.flags = 0x80;
    WANT(ringtap_open(&handle, NULL, "all", &options), RINGTAP_ERROR_ARGUMENT);
    options.flags = 0;
    options.size = 0;
    WANT(ringtap_open(&handle, NULL, "all", &options), RINGTAP_ERROR_ARGUMENT);
    SAID(NULL, "sizeof");
    options.size = (size_t)-1;
    WANT(ringtap_open(&handle, NULL, "all", &options), RINGTAP_ERROR_ARGUMENT);
}

static void open_from_the_future(void)
{
    struct {
        struct ringtap_options known;
        uint64_t unknown;
    } options = { RINGTAP_OPTIONS_INIT, 0 };
    ringtap_handle *handle;

    options.known.size = sizeof(options);
    WANT(ringtap_open(&handle, NULL, "all", &options.known), RINGTAP_OK);
    WANT(ringtap_close(handle), RINGTAP_OK);
    options.unknown = 1;
    WANT(ringtap_open(&handle, NULL, "all", &options.known), RINGTAP_ERROR_ARGUMENT);
    SAID(NULL, "newer");
}

static void use_what_is_no_handle(ringtap_handle *handle)
{
    struct ringtap_statistics statistics = { .size = sizeof(statistics) };
    struct ringtap_source source = { .size = sizeof(source) };
    const struct ringtap_packet *packet;

    WANT(ringtap_next(handle, &packet, 0), RINGTAP_ERROR_HANDLE);
    WANT(ringtap_next_batch(handle, &packet, 0), RINGTAP_ERROR_HANDLE);
    WANT(ringtap_take_batch(handle, &packet, &(uint64_t){ 0 }, 0), RINGTAP_ERROR_HANDLE);
    WANT(ringtap_release_batch(handle, 1), RINGTAP_ERROR_HANDLE);
    WANT(ringtap_fd(handle), RINGTAP_ERROR_HANDLE);
    WANT(ringtap_set_filter(handle, "udp"), RINGTAP_ERROR_HANDLE);
    WANT(ringtap_statistics(handle, &statistics), RINGTAP_ERROR_HANDLE);
    WANT(ringtap_source(handle, 0, &source), RINGTAP_ERROR_HANDLE);
    WANT(ringtap_inline(handle), RINGTAP_ERROR_HANDLE);
    WANT(ringtap_verdict(handle, 0, 0, RINGTAP_PASS), RINGTAP_ERROR_HANDLE);
    WANT(ringtap_send_verdicts(handle), RINGTAP_ERROR_HANDLE);
    WANT(ringtap_stop(handle), RINGTAP_ERROR_HANDLE);
    WANT(ringtap_error(handle) != NULL, 1);
}

static void use_wrongly(ringtap_handle *handle)
{
    struct ringtap_statistics statistics = { .size = 8 };
    struct ringtap_source source = { .size = 0 };
    struct ringtap_gap gap = { .size = 8 };
    const struct ringtap_packet *packet;

    WANT(ringtap_next(handle, NULL, 0), RINGTAP_ERROR_ARGUMENT);
    SAID(handle, "NULL");
    WANT(ringtap_next(handle, &packet, -7), RINGTAP_ERROR_ARGUMENT);
    SAID(handle, "timeout_ms -7");
    WANT(ringtap_statistics(handle, NULL), RINGTAP_ERROR_ARGUMENT);
    WANT(ringtap_statistics(handle, &statistics), RINGTAP_ERROR_ARGUMENT);
    WANT(ringtap_source(handle, 0, &source), RINGTAP_ERROR_ARGUMENT);
    source.size = sizeof(source);
    WANT(ringtap_source(handle, 0, &source), 1);
    WANT((int)source.link_type, 1);
    WANT(strncmp(source.device, "pcap:", 5), 0);
    WANT(ringtap_source(handle, 1, &source), 0);
    WANT(ringtap_last_gap(handle, &gap), RINGTAP_ERROR_ARGUMENT);
    gap.size = sizeof(gap);
    WANT(ringtap_last_gap(handle, &gap), 0);
    WANT(ringtap_inline(handle), RINGTAP_ERROR_REFUSED);
    SAID(handle, "nothing waits for verdicts here");
    WANT(ringtap_verdict(handle, 0, 0, RINGTAP_PASS), RINGTAP_ERROR_ARGUMENT);
    SAID(handle, "ringtap_inline() first");
    WANT(ringtap_verdict(handle, 0, 0, 2), RINGTAP_ERROR_ARGUMENT);
    SAID(handle, "verdict 2");
    WANT(ringtap_send_verdicts(handle), RINGTAP_ERROR_ARGUMENT);
    WANT(ringtap_set_filter(handle, "port port"), RINGTAP_ERROR_FILTER);
    SAID(handle, "bad filter");
    WANT(ringtap_set_filter(handle, NULL), RINGTAP_OK);
    WANT((int)strlen(ringtap_error(handle)), 0);
}

static void *use_one(void *handle)
{
    use_what_is_no_handle(handle);
    return handle;
}

int main(void)
{
    const struct ringtap_packet *packet;
    ringtap_handle *handle, *other, *again;
    pthread_t thread;
    void *ended;
    int tries, got;

    open_wrongly();
    open_from_the_future();
    use_what_is_no_handle(NULL);
    use_what_is_no_handle((ringtap_handle *)&thread);
    use_what_is_no_handle((ringtap_handle *)(uintptr_t)-1);
    WANT(ringtap_close(NULL), RINGTAP_OK);
    WANT(ringtap_open(&handle, NULL, "few", NULL), RINGTAP_OK);
    WANT(ringtap_open(&other, NULL, "few", NULL), RINGTAP_ERROR_REFUSED);
    WANT(ringtap_open(&other, NULL, "all", NULL), RINGTAP_OK);
    use_wrongly(handle);

    /* Two threads: one waits in a call; calls of the other fail, until it calls ringtap_stop(). */
    WANT(pthread_create(&thread, NULL, wait_for_packets, handle), 0);
    for (tries = 0, got = 0; got != RINGTAP_ERROR_BUSY && tries < 100000; tries++) {
        got = ringtap_next(handle, &packet, 0);
        usleep(10);
    }
    WANT(got, RINGTAP_ERROR_BUSY);
    WANT(ringtap_stop(handle), RINGTAP_OK);
    WANT(pthread_join(thread, &ended), 0);
    WANT(ended == handle, 1);

    WANT(ringtap_close(handle), RINGTAP_OK);
    WANT(ringtap_close(handle), RINGTAP_ERROR_HANDLE);
    use_what_is_no_handle(handle);
    WANT(pthread_create(&thread, NULL, use_one, handle), 0);
    WANT(pthread_join(thread, NULL), 0);
    /* A new handle reuses the table entry, but not the number of the closed handle. */
    WANT(ringtap_open(&again, NULL, "all", NULL), RINGTAP_OK);
    WANT(again != handle, 1);
    WANT(ringtap_close(handle), RINGTAP_ERROR_HANDLE);
    WANT(ringtap_close(again), RINGTAP_OK);
    WANT(ringtap_close(other), RINGTAP_OK);
    printf("all refused\n");
    return 0;
}
