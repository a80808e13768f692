/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Reads an interface with libpcap in immediate mode, as `tcpdump --immediate-mode` does, and
 * tells how long packets took to here, from the time stamp of the capture and from the time that
 * `ringtap send --stamp` writes into UDP packets over IPv4: median, p99, longest.
 *
 * usage: pcap_latency INTERFACE, ended by SIGINT
 */
#include <endian.h>
#include <pcap/pcap.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST (1 << 20) /* packets that are remembered; more end the program */

/* Ethernet, IPv4 without options, UDP: there the letters RT, a number, and the time stand. */
#define STAMP 42
#define STAMP_TIME (STAMP + 10)

/* How long packets took, each in nanoseconds. */
struct took {
	const char *since;
	uint64_t ns[MOST];
	size_t count;
};

/* As `ringtap count --latency` tells them. */
static const struct {
	const char *name;
	double part;
} quantiles[] = {
	{ "p10", 0.1 }, { "p25", 0.25 }, { "median", 0.5 }, { "p75", 0.75 },
	{ "p90", 0.9 }, { "p99", 0.99 }, { "p999", 0.999 }, { "max", 1.0 },
};

static pcap_t *capture;
static struct took captured = { .since = "latency_ns" };
static struct took sent = { .since = "since_sent_ns" };

static void stop(int number)
{
	(void)number;
	pcap_breakloop(capture);
}

static void note(struct took *took, uint64_t ns)
{
	took->ns[took->count++] = ns;
	if (took->count == MOST)
		pcap_breakloop(capture);
}

static void packet(u_char *user, const struct pcap_pkthdr *header, const u_char *data)
{
	struct timespec clock;
	uint64_t now_ns, time_ns;

	(void)user;
	clock_gettime(CLOCK_REALTIME, &clock);
	now_ns = (uint64_t)clock.tv_sec * 1000000000ull + (uint64_t)clock.tv_nsec;
	/* In nanosecond precision tv_usec holds nanoseconds. */
	time_ns = (uint64_t)header->ts.tv_sec * 1000000000ull + (uint64_t)header->ts.tv_usec;
	note(&captured, now_ns - time_ns);
	if (header->caplen < STAMP_TIME + sizeof(time_ns) || memcmp(data + STAMP, "RT", 2) != 0)
		return;
	memcpy(&time_ns, data + STAMP_TIME, sizeof(time_ns));
	note(&sent, now_ns - be64toh(time_ns));
}

static int by_size(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return a < b ? -1 : a > b;
}

static void tell(struct took *took)
{
	if (took->count == 0)
		return;
	qsort(took->ns, took->count, sizeof(took->ns[0]), by_size);
	printf("%s", took->since);
	for (size_t at = 0; at < sizeof(quantiles) / sizeof(quantiles[0]); at++) {
		size_t rank = (size_t)((double)took->count * quantiles[at].part);

		printf(" %s %llu", quantiles[at].name,
		       (unsigned long long)took->ns[rank < took->count ? rank : took->count - 1]);
	}
	printf("\n");
}

int main(int argc, char **argv)
{
	char reason[PCAP_ERRBUF_SIZE];
	struct sigaction action = { .sa_handler = stop };
	struct pcap_stat stats;

	if (argc != 2) {
		fprintf(stderr, "usage: pcap_latency INTERFACE\n");
		return 2;
	}
	capture = pcap_create(argv[1], reason);
	if (!capture) {
		fprintf(stderr, "%s: %s\n", argv[1], reason);
		return 1;
	}
	pcap_set_immediate_mode(capture, 1);
	pcap_set_promisc(capture, 1);
	pcap_set_snaplen(capture, 65535);
	if (pcap_set_tstamp_precision(capture, PCAP_TSTAMP_PRECISION_NANO) ||
	    pcap_activate(capture) < 0) {
		fprintf(stderr, "%s: %s\n", argv[1], pcap_geterr(capture));
		return 1;
	}
	sigaction(SIGINT, &action, NULL);
	fprintf(stderr, "ready\n");
	if (pcap_loop(capture, -1, packet, NULL) == PCAP_ERROR || pcap_stats(capture, &stats)) {
		fprintf(stderr, "%s: %s\n", argv[1], pcap_geterr(capture));
		return 1;
	}
	printf("received %zu dropped %u\n", captured.count, stats.ps_drop);
	tell(&captured);
	tell(&sent);
	pcap_close(capture);
	return 0;
}
