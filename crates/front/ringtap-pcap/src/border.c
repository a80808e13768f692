// SPDX-License-Identifier: MIT OR Apache-2.0
/* The functions of libpcap that wait, call the program's callback, or pass a call on.
 *
 * A program may leave them in the middle: by cancellation, pthread_exit, a C++ exception, or a jump out
 * of a callback or a signal handler. Only frames of C may be left so.
 *
 * Invariants
 * - No frame of Rust is on the stack while a callback runs, during a wait, or below the real library in a
 *   function that is passed on.
 * - A step in Rust is short, and is neither cancelled nor interrupted by a signal handler.
 * - Between two steps nothing is locked. A call that was left by a jump leaves its mark on the handle
 *   (thread and frame): other threads are refused until that thread reads again, or closes the handle.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#define ERROR (-1)
/* Marks the handles of this library; see handles.rs. */
#define MARK "Ringtap\xff"

struct header {
    struct timeval time;
    uint32_t captured_bytes;
    uint32_t wire_bytes;
};

/* `CursorPacket` of ringtap-client. */
struct packet {
    uint64_t time_ns;
    uint64_t sequence;
    uint64_t lost_before;
    const uint8_t *data;
    uint32_t captured_bytes;
    uint32_t wire_bytes;
    uint32_t lane;
    uint32_t hash;
    uint32_t source;
    uint16_t queue;
    uint16_t flags;
};

/* Packets that a step found and that were not yet read; see shared.rs. */
struct window {
    const struct packet *packets;
    uint8_t *copy;
    _Atomic uint64_t delivered;
    _Atomic uint32_t interrupted;
    uint32_t at;
    uint32_t end;
    uint32_t snap_bytes;
    uint32_t nanoseconds;
    uint32_t must_finish;
    struct header header;
};

/* The part of a handle that both languages use; see shared.rs. */
struct shared {
    char mark[8];
    _Atomic(void *) real;
    _Atomic uintptr_t thread;
    _Atomic uintptr_t frame;
    _Atomic uint32_t active;
    _Atomic uint32_t closed;
    _Atomic uint64_t serial;
    struct window window;
};

/* A call that reads; see shared.rs. */
struct call {
    struct shared *shared;
    void *real;
    uint64_t serial;
    uint64_t count;
    uint64_t most;
    uint64_t has_limits;
    uint64_t limits[3];
    struct timespec at_most;
    int32_t kind;
    int32_t status;
    int32_t fd;
    int32_t has_limit;
};

_Static_assert(sizeof(struct packet) == 56, "CursorPacket");
_Static_assert(offsetof(struct packet, flags) == 54, "CursorPacket");
_Static_assert(sizeof(struct window) == 72, "PacketWindow");
_Static_assert(sizeof(struct shared) == 120, "SharedState");
_Static_assert(sizeof(struct call) == 104, "Call");

enum kind { LOOP, DISPATCH, NEXT };
enum begun { OURS, REAL, REFUSED };
enum step { PACKETS, WAIT, DONE };

typedef void callback(uint8_t *user, const struct header *header, const uint8_t *data);

/* Steps in Rust; none of them waits for packets. */
__attribute__((visibility("hidden"))) extern int ringtap_pcap_step(struct call *call);
__attribute__((visibility("hidden"))) extern int ringtap_pcap_refuse(struct call *call);
__attribute__((visibility("hidden"))) extern int ringtap_pcap_release(struct call *call);
__attribute__((visibility("hidden"))) extern void *ringtap_pcap_real(const char *name, char *errbuf);

/* Runs a step without cancellation and signal handlers. */
static int quietly(int (*step)(struct call *), struct call *call)
{
    int error = errno, state, found;
    sigset_t quiet, before;

    sigfillset(&quiet);
    /* Blocked signals of faults would end the process without the program's handler. */
    sigdelset(&quiet, SIGSEGV);
    sigdelset(&quiet, SIGBUS);
    sigdelset(&quiet, SIGILL);
    sigdelset(&quiet, SIGFPE);
    pthread_sigmask(SIG_BLOCK, &quiet, &before);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    found = step(call);
    pthread_setcancelstate(state, NULL);
    errno = error;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return found;
}

/* The real library's function of this name; NULL, with a message, without a real library. */
static void *real_function(const char *name, char *errbuf)
{
    int state;
    void *found;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    found = ringtap_pcap_real(name, errbuf);
    pthread_setcancelstate(state, NULL);
    return found;
}

/* The same, found once for each place in this file. */
#define KNOWN(name, errbuf)                                                                         \
    ({                                                                                              \
        static _Atomic(void *) known;                                                               \
        void *found = atomic_load(&known);                                                          \
        if (found == NULL) {                                                                        \
            found = real_function(name, errbuf);                                                    \
            atomic_store(&known, found);                                                            \
        }                                                                                           \
        found;                                                                                      \
    })

/* Whether the outermost call of this thread is still below this one on the stack. */
static bool is_nested(const struct shared *shared, const struct call *call)
{
    return atomic_load(&shared->frame) > (uintptr_t)call;
}

static enum begun begin(void *p, struct call *call)
{
    struct shared *shared = p;
    uintptr_t none = 0, self = (uintptr_t)pthread_self();

    if (shared == NULL || (uintptr_t)shared % _Alignof(struct shared) != 0)
        return REFUSED;
    if (memcmp(shared->mark, MARK, sizeof(shared->mark)) != 0) {
        call->real = p;
        return REAL;
    }
    call->real = atomic_load(&shared->real);
    if (call->real != NULL)
        return REAL;
    call->shared = shared;
    call->serial = atomic_load(&shared->serial);
    if (!atomic_load(&shared->active))
        return REFUSED;
    if (atomic_compare_exchange_strong(&shared->thread, &none, self)) {
        atomic_store(&shared->frame, (uintptr_t)call);
        /* Closed meanwhile: `end` releases what the closing thread left. */
        return OURS;
    }
    if (none != self)
        return REFUSED;
    if (!is_nested(shared, call))
        atomic_store(&shared->frame, (uintptr_t)call);
    return OURS;
}

/* Ends a call, also one that is unwound. */
static void end(struct call *call)
{
    struct shared *shared = call->shared;
    uintptr_t none = 0;

    if (shared == NULL || atomic_load(&shared->frame) != (uintptr_t)call)
        return;
    atomic_store(&shared->frame, 0);
    atomic_store(&shared->thread, 0);
    /* Pairs with `HandleToken::release`: the thread that closes the handle sets `closed`, then looks for
     * a reader. */
    if (atomic_load(&shared->closed) &&
        atomic_compare_exchange_strong(&shared->thread, &none, (uintptr_t)pthread_self())) {
        quietly(ringtap_pcap_release, call);
        atomic_store(&shared->thread, 0);
    }
}

/* Gives the next packet of the window. */
static const uint8_t *take(struct window *window)
{
    const struct packet *packet = &window->packets[window->at];
    const uint8_t *data = packet->data;
    uint32_t captured = packet->captured_bytes;
    uint64_t fraction = packet->time_ns % 1000000000;

    if (captured > window->snap_bytes)
        captured = window->snap_bytes;
    window->header.time.tv_sec = (time_t)(packet->time_ns / 1000000000);
    window->header.time.tv_usec = (suseconds_t)(window->nanoseconds ? fraction : fraction / 1000);
    window->header.captured_bytes = captured;
    window->header.wire_bytes = packet->wire_bytes;
    if (window->copy != NULL)
        data = memcpy(window->copy, data, captured);
    window->at++;
    atomic_store_explicit(&window->delivered,
                          atomic_load_explicit(&window->delivered, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    return data;
}

/* The next packet's bytes; NULL if the call is done. */
static const uint8_t *next(struct call *call)
{
    struct window *window = &call->shared->window;

    for (;;) {
        if (!atomic_load_explicit(&window->interrupted, memory_order_relaxed) &&
            window->at < window->end && call->count != call->most &&
            atomic_load_explicit(&call->shared->serial, memory_order_relaxed) == call->serial) {
            call->count++;
            return take(window);
        }
        switch (quietly(ringtap_pcap_step, call)) {
        case DONE:
            return NULL;
        case WAIT: {
            /* Here a thread is cancelled, and signal handlers run. */
            struct pollfd one = {call->fd, POLLIN, 0};
            ppoll(&one, call->fd >= 0, call->has_limit ? &call->at_most : NULL, NULL);
            break;
        }
        default:
            break;
        }
    }
}

static int run(struct call *call, callback *each, uint8_t *user)
{
    const uint8_t *data;

    while ((data = next(call)) != NULL)
        each(user, &call->shared->window.header, data);
    return call->status;
}

#define CALL(what, limit)                                                                           \
    struct call call __attribute__((cleanup(end))) = {.kind = (what), .most = (limit)}

typedef int loop_function(void *p, int count, callback *each, uint8_t *user);
typedef int next_ex_function(void *p, struct header **header, const uint8_t **data);
typedef const uint8_t *next_function(void *p, struct header *header);

static int loop(enum kind kind, void *p, int count, callback *each, uint8_t *user)
{
    CALL(kind, count > 0 ? (uint64_t)count : UINT64_MAX);
    loop_function *real;

    switch (begin(p, &call)) {
    case OURS:
        if (each != NULL)
            return run(&call, each, user);
        break;
    case REAL:
        real = (loop_function *)(kind == DISPATCH ? KNOWN("pcap_dispatch", NULL)
                                                   : KNOWN("pcap_loop", NULL));
        return real != NULL ? real(call.real, count, each, user) : ERROR;
    default:
        break;
    }
    return quietly(ringtap_pcap_refuse, &call);
}

int ringtap_c_pcap_loop(void *p, int count, callback *each, uint8_t *user)
{
    return loop(LOOP, p, count, each, user);
}

int ringtap_c_pcap_dispatch(void *p, int count, callback *each, uint8_t *user)
{
    return loop(DISPATCH, p, count, each, user);
}

/* One packet; NULL with the call's status if there is none. */
static const uint8_t *one(struct call *call)
{
    const uint8_t *data = next(call);

    if (data != NULL) {
        call->status = 1;
        if (call->shared->window.must_finish)
            quietly(ringtap_pcap_step, call);
    }
    return data;
}

int ringtap_c_pcap_next_ex(void *p, struct header **header, const uint8_t **data)
{
    CALL(NEXT, 1);
    const uint8_t *found;
    next_ex_function *real;

    switch (begin(p, &call)) {
    case OURS:
        found = one(&call);
        if (found == NULL)
            return call.status;
        if (header != NULL)
            *header = &call.shared->window.header;
        if (data != NULL)
            *data = found;
        return 1;
    case REAL:
        real = (next_ex_function *)KNOWN("pcap_next_ex", NULL);
        return real != NULL ? real(call.real, header, data) : ERROR;
    default:
        return quietly(ringtap_pcap_refuse, &call);
    }
}

const uint8_t *ringtap_c_pcap_next(void *p, struct header *header)
{
    CALL(NEXT, 1);
    const uint8_t *found;
    next_function *real;

    switch (begin(p, &call)) {
    case OURS:
        found = one(&call);
        if (found != NULL && header != NULL)
            *header = call.shared->window.header;
        return found;
    case REAL:
        real = (next_function *)KNOWN("pcap_next", NULL);
        return real != NULL ? real(call.real, header) : NULL;
    default:
        quietly(ringtap_pcap_refuse, &call);
        return NULL;
    }
}

#include "forwards.h"
