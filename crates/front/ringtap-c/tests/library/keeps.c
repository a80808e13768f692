/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Keeps batches, releases them in another order, and checks that their bytes stay as they were. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ringtap.h>

#include "want.h"

#define KEPT 8
#define MANY 4000 /* packets, more than the pool holds */

struct kept {
    uint64_t batch;
    const struct ringtap_packet *packets;
    int count;
    uint64_t sum;
};

static uint64_t sum_of(const struct ringtap_packet *packets, int count)
{
    uint64_t sum = 0;
    for (int i = 0; i < count; i++)
        for (uint32_t at = 0; at < packets[i].captured_bytes; at++)
            sum = sum * 31 + packets[i].data[at];
    return sum;
}

int main(void)
{
    struct ringtap_statistics statistics = { .size = sizeof(statistics) };
    const struct ringtap_packet *packets;
    static struct kept kept[KEPT];
    ringtap_handle *handle;
    uint64_t batch = 0, taken = 0, last = 0;
    int got, i;

    WANT(ringtap_open(&handle, NULL, "all", NULL), RINGTAP_OK);
    WANT(ringtap_take_batch(NULL, &packets, &batch, 0), RINGTAP_ERROR_HANDLE);
    WANT(ringtap_take_batch(handle, &packets, NULL, 0), RINGTAP_ERROR_ARGUMENT);
    WANT(ringtap_take_batch(handle, NULL, &batch, 0), RINGTAP_ERROR_ARGUMENT);
    WANT(ringtap_release_batch(handle, 1), RINGTAP_ERROR_ARGUMENT);
    SAID(handle, "batch 1 is not kept");

    /* The first packet alone: the batch then holds the rest. */
    WANT(ringtap_next(handle, &packets, -1), 1);
    last = packets->sequence;
    taken = 1;
    for (i = 0; i < KEPT; i++) {
        struct kept *one = &kept[i];
        got = ringtap_take_batch(handle, &one->packets, &one->batch, 10000);
        WANT(got > 0, 1);
        one->count = got;
        one->sum = sum_of(one->packets, got);
        WANT(one->packets[0].sequence == last + 1 + one->packets[0].lost_before, 1);
        last = one->packets[got - 1].sequence;
        taken += (uint64_t)got;
    }
    /* Meanwhile the other chunks are written again and again. */
    while (last < MANY) {
        got = ringtap_next_batch(handle, &packets, 10000);
        WANT(got > 0, 1);
        last = packets[got - 1].sequence;
        taken += (uint64_t)got;
    }
    /* Every third one, from the end; then the rest. */
    for (int turn = 0; turn < 3; turn++)
        for (i = KEPT - 1 - turn; i >= 0; i -= 3) {
            WANT(sum_of(kept[i].packets, kept[i].count) == kept[i].sum, 1);
            WANT(ringtap_release_batch(handle, kept[i].batch), RINGTAP_OK);
            WANT(ringtap_release_batch(handle, kept[i].batch), RINGTAP_ERROR_ARGUMENT);
        }
    WANT(ringtap_statistics(handle, &statistics), RINGTAP_OK);
    WANT(statistics.delivered == taken, 1);
    WANT((int)statistics.balanced, 1);

    /* A reader that releases nothing loses packets, and only counts them. */
    for (i = 0; i < 20 || !statistics.dropped_overrun; i++) {
        do
            got = ringtap_take_batch(handle, &packets, &batch, 100);
        while (got > 0 && packets->lost_before == 0);
        WANT(got >= 0 && i < 1000, 1);
        WANT(ringtap_statistics(handle, &statistics), RINGTAP_OK);
        WANT((int)statistics.balanced, 1);
    }
    WANT(ringtap_close(handle), RINGTAP_OK);
    printf("all kept\n");
    return 0;
}
