/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Reads an interface with libpcap in immediate mode, and answers each frame of type 0x88b5 with one of
 * type 0x88b6 and the same payload, out of another interface: for round trips by one clock.
 *
 * usage: pcap_echo INTERFACE OUT, ended by SIGINT
 */
#include <arpa/inet.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <pcap/pcap.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define HEADER 14
#define PAYLOAD 46
#define ASKED 0x88b5
#define ANSWER 0x88b6

static int out;
static unsigned long answered;
static pcap_t *capture;
static struct sockaddr_ll to = { .sll_family = AF_PACKET };

static void stop(int number)
{
	(void)number;
	pcap_breakloop(capture);
}

static void packet(u_char *user, const struct pcap_pkthdr *header, const u_char *data)
{
	unsigned char answer[HEADER + PAYLOAD];

	(void)user;
	if (header->caplen < sizeof(answer) || (data[12] << 8 | data[13]) != ASKED)
		return;
	memcpy(answer, data, sizeof(answer));
	memset(answer, 0xff, 6);
	answer[12] = ANSWER >> 8;
	answer[13] = ANSWER & 0xff;
	if (sendto(out, answer, sizeof(answer), 0, (struct sockaddr *)&to, sizeof(to)) < 0)
		perror("pcap_echo: send");
	else
		answered++;
}

int main(int argc, char **argv)
{
	char reason[PCAP_ERRBUF_SIZE];
	struct sigaction action = { .sa_handler = stop };

	if (argc != 3) {
		fprintf(stderr, "usage: pcap_echo INTERFACE OUT\n");
		return 2;
	}
	out = socket(AF_PACKET, SOCK_RAW, 0);
	to.sll_ifindex = (int)if_nametoindex(argv[2]);
	capture = pcap_create(argv[1], reason);
	if (out < 0 || !to.sll_ifindex || !capture) {
		fprintf(stderr, "pcap_echo: %s or %s cannot be opened\n", argv[1], argv[2]);
		return 1;
	}
	pcap_set_immediate_mode(capture, 1);
	pcap_set_promisc(capture, 1);
	pcap_set_snaplen(capture, 256);
	if (pcap_activate(capture) < 0) {
		fprintf(stderr, "%s: %s\n", argv[1], pcap_geterr(capture));
		return 1;
	}
	sigaction(SIGINT, &action, NULL);
	printf("ready\n");
	fflush(stdout);
	if (pcap_loop(capture, -1, packet, NULL) == PCAP_ERROR) {
		fprintf(stderr, "%s: %s\n", argv[1], pcap_geterr(capture));
		return 1;
	}
	printf("answered %lu\n", answered);
	return 0;
}
