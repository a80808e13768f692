// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * adviser INTERFACE LOOPS CORES RING-MIB: an analysis framework on libpcap, as Adviser is: one process captures
 * and puts the headers of each packet into the queues of analysis processes, which run LOOPS loops for
 * each packet. A packet for a full queue is captured in vain.
 *
 * Prints "ready"; at SIGINT one JSON object.
 */
#define _GNU_SOURCE
#include <pcap/pcap.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#define HEADERS 54  /* bytes of a packet that are analysed */
#define SLOTS 2048  /* of a queue: little waits when the sender ends */
#define MAX_PROCESSES 8
#define MIN_PAUSE 100 /* microseconds */
#define MAX_PAUSE 3200

struct queue {
	_Alignas(64) _Atomic uint64_t head; /* packets analysed */
	_Alignas(64) _Atomic uint64_t tail;
	uint8_t slots[SLOTS][HEADERS];
};

static struct queue *queues;
static long processes;
static uint64_t captured, full;
static pcap_t *source;

static void end(int number)
{
	(void)number;
	pcap_breakloop(source);
}

static void analyse(struct queue *queue, uint32_t loops)
{
	volatile uint32_t result;
	useconds_t pause = 0;

	for (;;) {
		uint64_t head = atomic_load_explicit(&queue->head, memory_order_relaxed);

		if (atomic_load_explicit(&queue->tail, memory_order_acquire) == head) {
			/* Short while packets come; long enough to be seen as idle afterwards. */
			pause = pause < MIN_PAUSE ? MIN_PAUSE : pause < MAX_PAUSE ? 2 * pause : pause;
			usleep(pause);
			continue;
		}
		pause = 0;
		uint32_t sum = queue->slots[head % SLOTS][0];

		for (uint32_t loop = 0; loop < loops; loop++) {
			sum = sum * 1664525 + loop; /* as the loops of the probe */
			__asm__ volatile("" : "+m"(sum));
		}
		result = sum;
		atomic_store_explicit(&queue->head, head + 1, memory_order_release);
	}
	(void)result;
}

static void capture(uint8_t *user, const struct pcap_pkthdr *header, const uint8_t *data)
{
	struct queue *queue = &queues[captured++ % processes];
	uint64_t tail = atomic_load_explicit(&queue->tail, memory_order_relaxed);

	(void)user;
	if (tail - atomic_load_explicit(&queue->head, memory_order_acquire) >= SLOTS) {
		full++;
		return;
	}
	memcpy(queue->slots[tail % SLOTS], data, header->caplen < HEADERS ? header->caplen : HEADERS);
	atomic_store_explicit(&queue->tail, tail + 1, memory_order_release);
}

int main(int count, char **words)
{
	char error[PCAP_ERRBUF_SIZE];
	struct pcap_stat statistics;
	uint64_t analysed = 0;

	if (count != 5) {
		fprintf(stderr, "usage: adviser INTERFACE LOOPS CORES RING-MIB\n");
		return 2;
	}
	processes = atol(words[3]);
	if (processes < 1 || processes > MAX_PROCESSES)
		return 2;
	queues = mmap(NULL, processes * sizeof(*queues), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (queues == MAP_FAILED)
		return 1;
	for (long one = 0; one < processes; one++) {
		if (fork() == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			signal(SIGINT, SIG_IGN);
			analyse(&queues[one], (uint32_t)atol(words[2]));
		}
	}
	source = pcap_create(words[1], error);
	if (!source || pcap_set_snaplen(source, 96) || pcap_set_promisc(source, 1) ||
	    pcap_set_timeout(source, 10) || pcap_set_buffer_size(source, atoi(words[4]) << 20) ||
	    pcap_activate(source) < 0) {
		fprintf(stderr, "adviser: %s\n", source ? pcap_geterr(source) : error);
		return 1;
	}
	pcap_setdirection(source, PCAP_D_IN);
	signal(SIGINT, end);
	fprintf(stderr, "ready\n");
	pcap_loop(source, -1, capture, NULL);
	for (long one = 0; one < processes; one++)
		analysed += atomic_load(&queues[one].head);
	pcap_stats(source, &statistics);
	printf("{\"captured\":%llu,\"analysed\":%llu,\"queue_full\":%llu,\"dropped\":%u}\n",
	       (unsigned long long)captured, (unsigned long long)analysed, (unsigned long long)full, statistics.ps_drop);
	return 0;
}
