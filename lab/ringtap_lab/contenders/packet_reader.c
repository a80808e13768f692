/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Reads an interface through AF_PACKET's fastest ring, TPACKET_V3, in place, touches the headers
 * of every packet and counts: the least that such a reader can do.
 *
 * usage: packet_reader INTERFACE RING_MIB [FILTER], ended by SIGINT
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <pcap/pcap.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "headers.h"

#define BLOCK_BYTES (1u << 20)
#define BLOCK_TIMEOUT_MS 60

static volatile sig_atomic_t stopped;
static uint64_t packets, sum;

static void stop(int number)
{
	(void)number;
	stopped = 1;
}

static void fail(const char *what)
{
	fprintf(stderr, "packet_reader: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void read_block(const struct tpacket_block_desc *block)
{
	const struct tpacket3_hdr *header =
		(const void *)((const uint8_t *)block + block->hdr.bh1.offset_to_first_pkt);

	for (uint32_t left = block->hdr.bh1.num_pkts; left; left--) {
		const uint8_t *data = (const uint8_t *)header + header->tp_mac;

		sum += headers_of(data, header->tp_snaplen);
		packets++;
		header = (const void *)((const uint8_t *)header + header->tp_next_offset);
	}
}

static void set_filter(int ring, const char *text)
{
	pcap_t *none = pcap_open_dead(DLT_EN10MB, 65535);
	struct bpf_program program;
	struct sock_fprog filter;

	if (!none || pcap_compile(none, &program, text, 1, PCAP_NETMASK_UNKNOWN)) {
		fprintf(stderr, "packet_reader: filter: %s\n", none ? pcap_geterr(none) : "memory");
		exit(2);
	}
	filter.len = program.bf_len;
	filter.filter = (struct sock_filter *)program.bf_insns; /* the same by design */
	if (setsockopt(ring, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter)))
		fail("SO_ATTACH_FILTER");
	pcap_freecode(&program);
	pcap_close(none);
}

/* Before the socket is bound: no packet that the filter refuses gets in. */
static uint8_t *open_ring(int ring, unsigned int blocks)
{
	int version = TPACKET_V3;
	struct tpacket_req3 wanted = {
		.tp_block_size = BLOCK_BYTES,
		.tp_block_nr = blocks,
		.tp_frame_size = 2048,
		.tp_frame_nr = blocks * (BLOCK_BYTES / 2048),
		.tp_retire_blk_tov = BLOCK_TIMEOUT_MS,
	};
	uint8_t *memory;

	if (setsockopt(ring, SOL_PACKET, PACKET_VERSION, &version, sizeof(version)))
		fail("PACKET_VERSION");
	if (setsockopt(ring, SOL_PACKET, PACKET_RX_RING, &wanted, sizeof(wanted)))
		fail("PACKET_RX_RING");
	memory = mmap(NULL, (size_t)blocks * BLOCK_BYTES, PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_POPULATE, ring, 0);
	if (memory == MAP_FAILED)
		fail("mmap");
	return memory;
}

static void read_all(int ring, uint8_t *memory, unsigned int blocks)
{
	struct pollfd polled = { .fd = ring, .events = POLLIN | POLLERR };

	for (unsigned int at = 0; !stopped; at = (at + 1) % blocks) {
		struct tpacket_block_desc *block = (void *)(memory + (size_t)at * BLOCK_BYTES);
		uint32_t *status = &block->hdr.bh1.block_status;

		while (!(__atomic_load_n(status, __ATOMIC_ACQUIRE) & TP_STATUS_USER)) {
			if (stopped)
				return;
			poll(&polled, 1, -1);
		}
		read_block(block);
		__atomic_store_n(status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
	}
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = stop };
	struct sockaddr_ll address = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL) };
	struct tpacket_stats_v3 stats;
	socklen_t length = sizeof(stats);
	unsigned int blocks;
	uint8_t *memory;
	int ring;

	if (argc < 3 || argc > 4 || atoi(argv[2]) < 1) {
		fprintf(stderr, "usage: packet_reader INTERFACE RING_MIB [FILTER]\n");
		return 2;
	}
	blocks = (unsigned int)atoi(argv[2]);
	sigaction(SIGINT, &action, NULL);
	ring = socket(AF_PACKET, SOCK_RAW, 0);
	if (ring < 0)
		fail("socket");
	memory = open_ring(ring, blocks);
	if (argc == 4 && *argv[3])
		set_filter(ring, argv[3]);
	address.sll_ifindex = (int)if_nametoindex(argv[1]);
	if (!address.sll_ifindex || bind(ring, (struct sockaddr *)&address, sizeof(address)))
		fail(argv[1]);
	fprintf(stderr, "ready\n");
	read_all(ring, memory, blocks);
	if (getsockopt(ring, SOL_PACKET, PACKET_STATISTICS, &stats, &length))
		fail("PACKET_STATISTICS");
	printf("received %llu dropped %u\nheaders sum %llu\n", (unsigned long long)packets,
	       stats.tp_drops, (unsigned long long)sum);
	return 0;
}
