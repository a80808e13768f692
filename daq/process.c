/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Starts, shares and ends the `ringtap` processes of the module.
 *
 * A thread starts each process and waits for it. The kernel ends the process when the thread ends, and
 * so with this process, however it ends.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "process.h"

/* Longest wait until a process has ended, in steps of 20 ms. */
#define END_STEPS 250
#define STEP_NS 20000000

struct helper {
    struct helper *next;
    char *key; /* its arguments */
    char folder[40], socket[60];
    unsigned users;
    pthread_t thread;
    char **arguments;
    atomic_int started; /* 0: not yet, 1: yes, -1: it cannot be started */
    pthread_mutex_t lock; /* of `process` and `said` */
    pid_t process;        /* 0: it has ended */
    char said[256];       /* its last line */
};

static pthread_mutex_t helpers_lock = PTHREAD_MUTEX_INITIALIZER;
static struct helper *helpers;

void helper_wait(void)
{
    struct timespec step = { 0, STEP_NS };

    nanosleep(&step, NULL);
}

/* Becomes the program; makes only calls that are allowed after a fork of a process with threads. */
static _Noreturn void become(char **arguments, int output, pid_t parent)
{
    sigset_t none;
    int nothing = open("/dev/null", O_RDWR);

    /* Ctrl-C of the terminal is for the application, which then ends this process. */
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(1);
    dup2(nothing, 0);
    dup2(nothing, 1);
    dup2(output, 2);
    syscall(SYS_close_range, 3, ~0u, 0);
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, NULL);
    execvp(arguments[0], arguments);
    dprintf(2, "%s: %s: install it, or name it by the variable `program`\n", arguments[0], strerror(errno));
    _exit(127);
}

/* Passes on what the process prints, and keeps the last line. */
static void listen_to(struct helper *helper, int output)
{
    char text[256];
    size_t used = 0;
    ssize_t got;

    while ((got = read(output, text + used, sizeof(text) - 1 - used)) > 0 || (got < 0 && errno == EINTR)) {
        if (got < 0)
            continue;
        if (write(2, text + used, (size_t)got) < 0 && errno == EBADF)
            return;
        used += (size_t)got;
        text[used] = '\0';
        for (char *end; (end = strchr(text, '\n'));) {
            pthread_mutex_lock(&helper->lock);
            snprintf(helper->said, sizeof(helper->said), "%.*s", (int)(end - text), text);
            pthread_mutex_unlock(&helper->lock);
            used -= (size_t)(end + 1 - text);
            memmove(text, end + 1, used + 1);
        }
        if (used == sizeof(text) - 1)
            used = 0;
    }
}

/* Starts the process and waits for its end: the process ends when this thread does. */
static void *keep(void *argument)
{
    struct helper *helper = argument;
    pid_t parent = getpid(), process = -1;
    int pipes[2];
    siginfo_t ended;

    if (pipe2(pipes, O_CLOEXEC) == 0) {
        process = fork();
        if (process == 0)
            become(helper->arguments, pipes[1], parent);
        close(pipes[1]);
    }
    helper->process = process < 0 ? 0 : process;
    atomic_store(&helper->started, process < 0 ? -1 : 1);
    if (process < 0)
        return NULL;
    listen_to(helper, pipes[0]);
    close(pipes[0]);
    while (waitid(P_PID, (id_t)process, &ended, WEXITED | WNOWAIT) < 0 && errno == EINTR)
        ;
    /* From here on the number may be another process's. */
    pthread_mutex_lock(&helper->lock);
    helper->process = 0;
    waitpid(process, NULL, WNOHANG);
    pthread_mutex_unlock(&helper->lock);
    return NULL;
}

/* Sends a signal, or 0; returns whether the process is there. */
static bool signal_helper(struct helper *helper, int number)
{
    bool is_there;

    pthread_mutex_lock(&helper->lock);
    is_there = helper->process > 0 && kill(helper->process, number) == 0;
    pthread_mutex_unlock(&helper->lock);
    return is_there;
}

static void free_helper(struct helper *helper)
{
    if (helper->socket[0])
        unlink(helper->socket);
    if (helper->folder[0])
        rmdir(helper->folder);
    for (char **argument = helper->arguments; argument && *argument; argument++)
        free(*argument);
    free(helper->arguments);
    free(helper->key);
    free(helper);
}

void helper_release(struct helper *helper)
{
    struct helper **at = &helpers;

    if (!helper)
        return;
    pthread_mutex_lock(&helpers_lock);
    if (--helper->users == 0) {
        while (*at != helper)
            at = &(*at)->next;
        *at = helper->next;
        signal_helper(helper, SIGTERM);
        for (int step = 0; step < END_STEPS && signal_helper(helper, 0); step++)
            helper_wait();
        signal_helper(helper, SIGKILL);
        pthread_join(helper->thread, NULL);
        free_helper(helper);
    }
    pthread_mutex_unlock(&helpers_lock);
}

/* Root's socket lies in /run, where nothing of it stays if both processes are killed. */
static void name_socket(struct helper *helper)
{
    static unsigned number;

    if (geteuid() == 0 && access("/run", W_OK) == 0) {
        snprintf(helper->socket, sizeof(helper->socket), "/run/ringtap-daq-%d-%u.sock", (int)getpid(), number++);
        return;
    }
    strcpy(helper->folder, "/tmp/ringtap-daq-XXXXXX");
    if (!mkdtemp(helper->folder))
        helper->folder[0] = '\0';
    else
        snprintf(helper->socket, sizeof(helper->socket), "%s/hub.sock", helper->folder);
}

struct helper *helper_start(char *const *arguments, size_t count)
{
    struct helper *helper;
    size_t length = 1;
    char *key;

    for (size_t at = 0; at < count; at++)
        length += strlen(arguments[at]) + 1;
    if (!(key = calloc(1, length)))
        return NULL;
    for (size_t at = 0; at < count; at++)
        strcat(strcat(key, arguments[at]), "\n");
    pthread_mutex_lock(&helpers_lock);
    for (helper = helpers; helper && strcmp(helper->key, key) != 0; helper = helper->next)
        ;
    if (helper) {
        free(key);
        helper->users++;
        goto done;
    }
    if (!(helper = calloc(1, sizeof(*helper)))) {
        free(key);
        goto done;
    }
    helper->key = key;
    helper->users = 1;
    pthread_mutex_init(&helper->lock, NULL);
    name_socket(helper);
    helper->arguments = calloc(count + 3, sizeof(char *));
    for (size_t at = 0; helper->arguments && at < count; at++)
        helper->arguments[at] = strdup(arguments[at]);
    if (helper->arguments) {
        helper->arguments[count] = strdup("--socket");
        helper->arguments[count + 1] = strdup(helper->socket);
    }
    if (!helper->socket[0] || !helper->arguments || pthread_create(&helper->thread, NULL, keep, helper) != 0) {
        free_helper(helper);
        helper = NULL;
        goto done;
    }
    while (atomic_load(&helper->started) == 0)
        helper_wait();
    helper->next = helpers;
    helpers = helper;
done:
    pthread_mutex_unlock(&helpers_lock);
    return helper;
}

bool helper_runs(struct helper *helper)
{
    return signal_helper(helper, 0);
}

const char *helper_socket(const struct helper *helper)
{
    return helper->socket;
}

const char *helper_said(const struct helper *helper)
{
    return helper->said;
}
