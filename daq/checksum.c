/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Completes TCP and UDP checksums that the sender left to a NIC: in packets of veth pairs and virtual machines. */
#include <stddef.h>

#include "instance.h"

static uint32_t word(const uint8_t *at)
{
    return (uint32_t)at[0] << 8 | at[1];
}

static uint32_t sum(const uint8_t *at, size_t bytes, uint32_t sum)
{
    for (; bytes > 1; at += 2, bytes -= 2)
        sum += word(at);
    return bytes ? sum + ((uint32_t)at[0] << 8) : sum;
}

static uint16_t fold(uint32_t sum)
{
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)sum;
}

/* A checksum is missing if its field has the sum of the pseudo header. One that has this value by chance stays. */
static void complete(uint8_t *segment, size_t bytes, uint8_t protocol, uint32_t pseudo)
{
    size_t field = protocol == 6 ? 16 : 6;
    uint16_t value;

    if ((protocol != 6 && protocol != 17) || bytes < field + 2)
        return;
    if (word(segment + field) != fold(pseudo + protocol + (uint32_t)bytes))
        return;
    value = (uint16_t)~fold(sum(segment, bytes, 0));
    if (!value)
        value = 0xffff; /* in UDP, 0 means "no checksum" */
    segment[field] = (uint8_t)(value >> 8);
    segment[field + 1] = (uint8_t)value;
}

void complete_checksum(uint8_t *frame, size_t bytes)
{
    size_t at = 12, header, total;

    while (at + 4 <= bytes && (word(frame + at) == 0x8100 || word(frame + at) == 0x88a8))
        at += 4;
    if (at + 2 > bytes)
        return;
    at += 2;
    if (word(frame + at - 2) == 0x0800 && at + 20 <= bytes) {
        header = (size_t)(frame[at] & 15) * 4;
        total = word(frame + at + 2);
        /* A fragment's checksum is complete. */
        if (header < 20 || total < header || at + total > bytes || word(frame + at + 6) & 0x3fff)
            return;
        complete(frame + at + header, total - header, frame[at + 9], sum(frame + at + 12, 8, 0));
    } else if (word(frame + at - 2) == 0x86dd && at + 40 <= bytes) {
        total = word(frame + at + 4);
        if (at + 40 + total <= bytes)
            complete(frame + at + 40, total, frame[at + 6], sum(frame + at + 8, 32, 0));
    }
}
