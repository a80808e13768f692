/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Tries what a library may not do: when it is loaded, when it starts, and at its first packets. Its values say how
 * often each attempt was refused and how often it was not; further, what it may do. Its settings are a file that it
 * may not read, and one that it may, with a colon between them. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ringtap_analysis.h"

#define MOST 64
static struct attempt {
    const char *name;
    int refused, allowed;
} attempts[MOST];
static int count, packets_seen;
static char closed[256] = "/etc/shadow", listed[256];

static void tried(const char *name, long outcome)
{
    int error = errno, at = 0;
    while (at < count && strcmp(attempts[at].name, name) != 0)
        at++;
    if (at == MOST)
        abort();
    if (at == count)
        attempts[count++].name = name;
    if (outcome < 0 && (error == EPERM || error == EACCES || error == ENOSYS))
        attempts[at].refused++;
    else
        attempts[at].allowed++;
}

/* A process that outlives its parent, but not for long. */
static void orphan(void)
{
    setsid();
    prctl(PR_SET_NAME, "rt-orphan");
    sleep(120);
    _exit(0);
}

static void *in_a_thread(void *unused)
{
    (void)unused;
    long child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0)
        orphan();
    tried("fork in a thread", child);
    return NULL;
}

static void start_processes(void)
{
    struct clone_args args = {.exit_signal = SIGCHLD};
    long child = fork();
    if (child == 0)
        orphan();
    tried("fork", child);
    child = syscall(SYS_clone3, &args, sizeof args);
    if (child == 0)
        orphan();
    tried("clone3", child);
    child = vfork();
    if (child == 0)
        _exit(0);
    tried("vfork", child);
    char *none[] = {NULL};
    tried("execve", execve("/no such program", none, none));
    tried("execveat", syscall(SYS_execveat, 2, "", none, none, AT_EMPTY_PATH));
}

static void touch_files(void)
{
    tried("open a file of root", open(closed, O_RDONLY));
    tried("open /etc/shadow", open("/etc/shadow", O_RDONLY));
    tried("open /etc/passwd", open("/etc/passwd", O_RDONLY));
    tried("open a folder", open("/", O_RDONLY | O_DIRECTORY));
    tried("open /proc/self/mem", open("/proc/self/mem", O_RDWR));
    tried("write in /root", open("/root/rt-hostile", O_WRONLY | O_CREAT, 0600));
    tried("write in /tmp", open("/tmp/rt-hostile", O_WRONLY | O_CREAT, 0600));
    tried("a nameless file", open("/tmp", O_RDWR | O_TMPFILE, 0600));
    tried("remove", unlink(listed));
    tried("mkdir", mkdir("/tmp/rt-hostile", 0700));
    tried("chmod", fchmodat(AT_FDCWD, listed, 0777, 0));
    tried("openat2", syscall(SYS_openat2, AT_FDCWD, "/etc/passwd", NULL, 0));
}

static void reach_others(void)
{
    tried("a TCP socket", socket(AF_INET, SOCK_STREAM, 0));
    tried("a UNIX socket", socket(AF_UNIX, SOCK_STREAM, 0));
    /* Signal 0 needs the same right as others, and does nothing. */
    tried("kill the parent", kill(getppid(), 0));
    tried("kill all", kill(-1, 0));
    tried("kill a thread of the parent", syscall(SYS_tgkill, getppid(), getppid(), 0));
    tried("ptrace", ptrace(PTRACE_PEEKDATA, getppid(), NULL, NULL));
    tried("process_vm_readv", syscall(SYS_process_vm_readv, getppid(), NULL, 0, NULL, 0, 0));
    tried("pidfd_open", syscall(SYS_pidfd_open, getppid(), 0));
    tried("type into a terminal", ioctl(2, TIOCSTI, "x"));
    tried("O_NONBLOCK", fcntl(2, F_SETFL, fcntl(2, F_GETFL)));
}

static void gain_rights(void)
{
    tried("setuid", setuid(0));
    tried("setresgid", setresgid(0, 0, 0));
    tried("unshare", unshare(CLONE_NEWUSER));
    tried("a new session", setsid());
    tried("bpf", syscall(SYS_bpf, 0, NULL, 0));
    tried("io_uring", syscall(SYS_io_uring_setup, 1, NULL));
    tried("outlive the parent", prctl(PR_SET_PDEATHSIG, 0));
}

static void try_all(void)
{
    pthread_t thread;
    gain_rights();
    reach_others();
    touch_files();
    start_processes();
    if (pthread_create(&thread, NULL, in_a_thread, NULL) == 0)
        pthread_join(thread, NULL);
}

__attribute__((constructor)) static void loaded(void)
{
    try_all();
}

static void *init(struct ringtap_analysis_start *start)
{
    sscanf(start->settings, "%255[^:]:%255s", closed, listed);
    try_all();
    return &count;
}

static void packets(void *state, const struct ringtap_analysis_packet *packets, size_t number)
{
    (void)state, (void)packets;
    if (packets_seen == 0)
        try_all();
    packets_seen += number;
}

static void results(void *state, const struct ringtap_analysis_output *output)
{
    (void)state;
    for (int at = 0; at < count; at++) {
        output->value(output->to, "refused", attempts[at].name, attempts[at].refused);
        output->value(output->to, "allowed", attempts[at].name, attempts[at].allowed);
        attempts[at].refused = attempts[at].allowed = 0;
    }
    int file = open(listed, O_RDONLY);
    output->value(output->to, "may", "read a listed file", file >= 0);
    if (file >= 0)
        close(file);
    void *memory = mmap(NULL, 1 << 24, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    output->value(output->to, "may", "take memory", memory != MAP_FAILED);
    munmap(memory, 1 << 24);
    output->value(output->to, "user", NULL, getuid());
}

const struct ringtap_analysis ringtap_analysis = {
    .version = RINGTAP_ANALYSIS_VERSION,
    .init = init,
    .packets = packets,
    .results = results,
};
