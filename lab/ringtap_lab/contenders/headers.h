/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What readers do with each packet, as in `ringtap count --work headers`: type, IPv4 addresses and ports. */
#include <stddef.h>
#include <stdint.h>

#define HEADERS 38

static uint64_t field(const uint8_t *bytes, size_t count)
{
	uint64_t value = 0;

	while (count--)
		value = value << 8 | *bytes++;
	return value;
}

/* The sum of these fields; 0 of a packet that is too short for them. */
static uint64_t headers_of(const uint8_t *data, size_t length)
{
	return length < HEADERS ? 0 : field(data + 12, 2) + field(data + 26, 8) + field(data + 34, 4);
}
