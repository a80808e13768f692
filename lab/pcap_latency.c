/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Reads an interface with libpcap in immediate mode, as `tcpdump --immediate-mode` does, and
 * tells how long packets took from the kernel's time stamp to here: median, p99, longest.
 *
 * usage: pcap_latency INTERFACE, ended by SIGINT
 */
#include <pcap/pcap.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define MOST (1 << 20) /* packets that are remembered; more end the program */

static pcap_t *capture;
static uint64_t took_ns[MOST];
static size_t count;

static void stop(int number)
{
	(void)number;
	pcap_breakloop(capture);
}

static void packet(u_char *user, const struct pcap_pkthdr *header, const u_char *data)
{
	struct timespec now;

	(void)user;
	(void)data;
	clock_gettime(CLOCK_REALTIME, &now);
	/* In nanosecond precision tv_usec holds nanoseconds. */
	took_ns[count++] = (uint64_t)(now.tv_sec - header->ts.tv_sec) * 1000000000ull +
			   (uint64_t)now.tv_nsec - (uint64_t)header->ts.tv_usec;
	if (count == MOST)
		pcap_breakloop(capture);
}

static int by_size(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return a < b ? -1 : a > b;
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
	printf("received %zu dropped %u\n", count, stats.ps_drop);
	if (count > 0) {
		qsort(took_ns, count, sizeof(took_ns[0]), by_size);
		printf("latency_ns median %llu p99 %llu max %llu\n",
		       (unsigned long long)took_ns[count / 2],
		       (unsigned long long)took_ns[count * 99 / 100],
		       (unsigned long long)took_ns[count - 1]);
	}
	pcap_close(capture);
	return 0;
}
