// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * adviser INTERFACE LOOPS CORES: an analysis framework on libpcap, as Adviser is: one process captures
 * and puts the headers of each packet into the queues of analysis processes, which run LOOPS loops for
 * each packet. A packet for a full queue is captured in vain.
 *
 * Capture and analysis run on the last CORES processors. Prints "ready"; at SIGINT one JSON object.
 */
#define _GNU_SOURCE
#include <pcap/pcap.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define HEADERS 54  /* bytes of a packet that are analysed */
#define SLOTS 2048  /* of a queue: little waits when the sender ends */
#define MAX_PROCESSES 8

struct queue {
	_Alignas(64) _Atomic uint64_t head; /* packets analysed */
	_Atomic uint64_t idle_since; /* nanoseconds; valid while the queue is empty */
	_Alignas(64) _Atomic uint64_t tail;
	uint8_t slots[SLOTS][HEADERS];
};

static struct queue *queues;
static long processes;
static uint64_t captured, full, first_ns;
static pcap_t *source;

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ULL + now.tv_nsec;
}

static void end(int number)
{
	(void)number;
	pcap_breakloop(source);
}

static void analyse(struct queue *queue, uint32_t loops)
{
	volatile uint32_t result;
	int is_idle = 0;

	for (;;) {
		uint64_t head = atomic_load_explicit(&queue->head, memory_order_relaxed);

		if (atomic_load_explicit(&queue->tail, memory_order_acquire) == head) {
			if (!is_idle)
				queue->idle_since = now_ns();
			is_idle = 1;
			usleep(100);
			continue;
		}
		is_idle = 0;
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
	if (!first_ns)
		first_ns = now_ns();
	if (tail - atomic_load_explicit(&queue->head, memory_order_acquire) >= SLOTS) {
		full++;
		return;
	}
	memcpy(queue->slots[tail % SLOTS], data, header->caplen < HEADERS ? header->caplen : HEADERS);
	atomic_store_explicit(&queue->tail, tail + 1, memory_order_release);
}

static void use_cores(long cores)
{
	long all = sysconf(_SC_NPROCESSORS_ONLN);
	cpu_set_t set;

	CPU_ZERO(&set);
	for (long cpu = all > cores ? all - cores : 0; cpu < all; cpu++)
		CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

int main(int count, char **words)
{
	char error[PCAP_ERRBUF_SIZE];
	struct pcap_stat statistics;
	uint64_t analysed = 0, last_ns = 0;

	if (count != 4) {
		fprintf(stderr, "usage: adviser INTERFACE LOOPS CORES\n");
		return 2;
	}
	processes = atol(words[3]);
	if (processes < 1 || processes > MAX_PROCESSES)
		return 2;
	use_cores(processes);
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
	    pcap_set_timeout(source, 10) || pcap_set_buffer_size(source, 64 << 20) ||
	    pcap_activate(source) < 0) {
		fprintf(stderr, "adviser: %s\n", source ? pcap_geterr(source) : error);
		return 1;
	}
	pcap_setdirection(source, PCAP_D_IN);
	signal(SIGINT, end);
	fprintf(stderr, "ready\n");
	pcap_loop(source, -1, capture, NULL);
	for (long one = 0; one < processes; one++) {
		struct queue *queue = &queues[one];
		uint64_t head = atomic_load(&queue->head);
		uint64_t until = head == atomic_load(&queue->tail) ? queue->idle_since : now_ns();

		analysed += head;
		last_ns = until > last_ns ? until : last_ns;
	}
	pcap_stats(source, &statistics);
	printf("{\"captured\":%llu,\"analysed\":%llu,\"queue_full\":%llu,\"dropped\":%u,"
	       "\"busy_ns\":%llu}\n",
	       (unsigned long long)captured, (unsigned long long)analysed, (unsigned long long)full,
	       statistics.ps_drop, (unsigned long long)(first_ns ? last_ns - first_ns : 0));
	return 0;
}
