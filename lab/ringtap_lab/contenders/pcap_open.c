/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Opens an interface with libpcap, sets a filter, sets another one, and closes it, several times; prints the
 * median of each in nanoseconds, as JSON. Each filter is new: a library cannot know it already.
 *
 * usage: pcap_open INTERFACE TIMES
 */
#include <pcap/pcap.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define MOST 1000 /* times */

enum step { OPEN, FILTER, CHANGE, CLOSE, ALL, STEPS };

static const char *const names[STEPS] = { "open_ns", "filter_ns", "change_ns", "close_ns", "all_ns" };
static uint64_t took[STEPS][MOST];

static uint64_t now_ns(void)
{
	struct timespec clock;

	clock_gettime(CLOCK_MONOTONIC, &clock);
	return (uint64_t)clock.tv_sec * 1000000000ull + (uint64_t)clock.tv_nsec;
}

static void set_filter(pcap_t *capture, int port)
{
	struct bpf_program program;
	char text[32];

	snprintf(text, sizeof(text), "udp port %d", port);
	if (pcap_compile(capture, &program, text, 1, PCAP_NETMASK_UNKNOWN) ||
	    pcap_setfilter(capture, &program)) {
		fprintf(stderr, "pcap_open: %s\n", pcap_geterr(capture));
		exit(1);
	}
	pcap_freecode(&program);
}

static int earlier(const void *one, const void *other)
{
	uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;

	return (a > b) - (a < b);
}

int main(int count, char **words)
{
	int times = count == 3 ? atoi(words[2]) : 0;

	if (times < 1 || times > MOST) {
		fprintf(stderr, "usage: pcap_open INTERFACE TIMES\n");
		return 2;
	}
	for (int turn = 0; turn < times; turn++) {
		char error[PCAP_ERRBUF_SIZE];
		uint64_t at[STEPS] = { now_ns() };
		pcap_t *capture = pcap_open_live(words[1], 65535, 1, 100, error);

		if (!capture) {
			fprintf(stderr, "pcap_open: %s\n", error);
			return 1;
		}
		at[1] = now_ns();
		set_filter(capture, 1000 + 2 * turn);
		at[2] = now_ns();
		set_filter(capture, 1001 + 2 * turn);
		at[3] = now_ns();
		pcap_close(capture);
		at[4] = now_ns();
		for (int step = OPEN; step < ALL; step++)
			took[step][turn] = at[step + 1] - at[step];
		took[ALL][turn] = at[4] - at[0] - took[CHANGE][turn];
	}
	for (int step = 0; step < STEPS; step++) {
		qsort(took[step], (size_t)times, sizeof(took[step][0]), earlier);
		printf("%s\"%s\": %llu", step ? ", " : "{", names[step],
		       (unsigned long long)took[step][times / 2]);
	}
	puts("}");
	return 0;
}
