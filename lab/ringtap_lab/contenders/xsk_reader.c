/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Reads queue 0 of an interface through an AF_XDP socket, by libxdp, in place, touches the headers of every packet and
 * counts: the least that such a reader can do.
 *
 * usage: xsk_reader INTERFACE RING_MIB, ended by SIGINT
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <linux/if_xdp.h>
#include <xdp/xsk.h>

#include "headers.h"

#define FRAME_BYTES 2048u
#define BATCH 64u

static volatile sig_atomic_t stopped;
static uint64_t packets, sum;

static void stop(int number)
{
	(void)number;
	stopped = 1;
}

static void fail(const char *what, int error)
{
	fprintf(stderr, "xsk_reader: %s: %s\n", what, strerror(error));
	exit(1);
}

/* Reads what is there and gives the frames back; returns how many. */
static uint32_t read_batch(struct xsk_ring_cons *full, struct xsk_ring_prod *empty, uint8_t *memory)
{
	uint32_t from, to, count = xsk_ring_cons__peek(full, BATCH, &from);

	if (!count)
		return 0;
	/* The ring has a place for every frame. */
	if (xsk_ring_prod__reserve(empty, count, &to) != count)
		fail("fill ring", ENOSPC);
	for (uint32_t at = 0; at < count; at++) {
		const struct xdp_desc *packet = xsk_ring_cons__rx_desc(full, from + at);
		const uint8_t *data = xsk_umem__get_data(memory, packet->addr);

		sum += headers_of(data, packet->len);
		*xsk_ring_prod__fill_addr(empty, to + at) = packet->addr & ~(uint64_t)(FRAME_BYTES - 1);
	}
	packets += count;
	xsk_ring_prod__submit(empty, count);
	xsk_ring_cons__release(full, count);
	return count;
}

static void read_all(struct xsk_socket *reader, struct xsk_ring_cons *full, struct xsk_ring_prod *empty,
		     uint8_t *memory)
{
	struct pollfd polled = { .fd = xsk_socket__fd(reader), .events = POLLIN };

	while (!stopped) {
		if (!read_batch(full, empty, memory))
			poll(&polled, 1, -1);
		else if (xsk_ring_prod__needs_wakeup(empty))
			recvfrom(polled.fd, NULL, 0, MSG_DONTWAIT, NULL, NULL);
	}
}

int main(int argc, char **argv)
{
	const struct rlimit all = { RLIM_INFINITY, RLIM_INFINITY };
	struct sigaction action = { .sa_handler = stop };
	struct xsk_umem_config memory_config = { .comp_size = 64, .frame_size = FRAME_BYTES };
	struct xsk_socket_config config = { .bind_flags = XDP_USE_NEED_WAKEUP | XDP_COPY };
	struct xdp_statistics lost;
	socklen_t length = sizeof(lost);
	struct xsk_ring_prod empty;
	struct xsk_ring_cons full, unused;
	struct xsk_umem *umem;
	struct xsk_socket *reader;
	uint32_t frames, first;
	uint8_t *memory;
	int error;

	if (argc != 3 || atoi(argv[2]) < 1) {
		fprintf(stderr, "usage: xsk_reader INTERFACE RING_MIB; RING_MIB a power of two\n");
		return 2;
	}
	frames = (uint32_t)atoi(argv[2]) * ((1u << 20) / FRAME_BYTES);
	memory_config.fill_size = config.rx_size = frames;
	sigaction(SIGINT, &action, NULL);
	setrlimit(RLIMIT_MEMLOCK, &all);
	memory = mmap(NULL, (size_t)frames * FRAME_BYTES, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (memory == MAP_FAILED)
		fail("mmap", errno);
	error = xsk_umem__create(&umem, memory, (uint64_t)frames * FRAME_BYTES, &empty, &unused, &memory_config);
	if (error)
		fail("xsk_umem__create", -error);
	error = xsk_socket__create(&reader, argv[1], 0, umem, &full, NULL, &config);
	if (error)
		fail(argv[1], -error);
	if (xsk_ring_prod__reserve(&empty, frames, &first) != frames)
		fail("fill ring", ENOSPC);
	for (uint32_t at = 0; at < frames; at++)
		*xsk_ring_prod__fill_addr(&empty, first + at) = (uint64_t)at * FRAME_BYTES;
	xsk_ring_prod__submit(&empty, frames);
	fprintf(stderr, "ready\n");
	read_all(reader, &full, &empty, memory);
	if (getsockopt(xsk_socket__fd(reader), SOL_XDP, XDP_STATISTICS, &lost, &length))
		fail("XDP_STATISTICS", errno);
	printf("received %llu dropped %llu\nheaders sum %llu\n", (unsigned long long)packets,
	       (unsigned long long)(lost.rx_dropped + lost.rx_ring_full),
	       (unsigned long long)sum);
	xsk_socket__delete(reader);
	return xsk_umem__delete(umem) ? 1 : 0;
}
