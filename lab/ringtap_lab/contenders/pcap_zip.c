/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Compresses each packet of an interface with zlib, as packzip of Braun et al. (IMC 2010) does, and counts.
 *
 * usage: pcap_zip INTERFACE LEVEL BUFFER_KIB, ended by SIGINT
 */
#include <pcap/pcap.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <zlib.h>

static pcap_t *capture;
static z_stream stream;
static uint64_t packets, bytes;

static void stop(int number)
{
	(void)number;
	pcap_breakloop(capture);
}

static void packet(u_char *user, const struct pcap_pkthdr *header, const u_char *data)
{
	static uint8_t output[1 << 17];

	(void)user;
	deflateReset(&stream);
	stream.next_in = (uint8_t *)data; /* zlib only reads it */
	stream.avail_in = header->caplen;
	stream.next_out = output;
	stream.avail_out = sizeof(output);
	if (deflate(&stream, Z_FINISH) != Z_STREAM_END) {
		fprintf(stderr, "a packet of %u bytes cannot be compressed\n", header->caplen);
		exit(1);
	}
	bytes += stream.total_out;
	packets++;
}

int main(int argc, char **argv)
{
	char reason[PCAP_ERRBUF_SIZE];
	struct sigaction action = { .sa_handler = stop };
	struct pcap_stat stats;
	struct rusage used;

	if (argc != 4 || deflateInit(&stream, atoi(argv[2])) != Z_OK) {
		fprintf(stderr, "usage: pcap_zip INTERFACE LEVEL BUFFER_KIB; levels are 0 to 9\n");
		return 2;
	}
	capture = pcap_create(argv[1], reason);
	if (!capture) {
		fprintf(stderr, "%s: %s\n", argv[1], reason);
		return 1;
	}
	pcap_set_promisc(capture, 1);
	pcap_set_snaplen(capture, 65535);
	pcap_set_timeout(capture, 100);
	if (pcap_set_buffer_size(capture, atoi(argv[3]) << 10) || pcap_activate(capture) < 0) {
		fprintf(stderr, "%s: %s\n", argv[1], pcap_geterr(capture));
		return 1;
	}
	sigaction(SIGINT, &action, NULL);
	fprintf(stderr, "ready\n");
	if (pcap_loop(capture, -1, packet, NULL) == PCAP_ERROR || pcap_stats(capture, &stats)) {
		fprintf(stderr, "%s: %s\n", argv[1], pcap_geterr(capture));
		return 1;
	}
	getrusage(RUSAGE_SELF, &used);
	printf("received %llu dropped %u\nzlib made %llu bytes\nwaited %ld times\n",
	       (unsigned long long)packets, stats.ps_drop, (unsigned long long)bytes, used.ru_nvcsw);
	pcap_close(capture);
	return 0;
}
