/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The `ringtap` processes that the module starts. */
#ifndef RINGTAP_DAQ_PROCESS_H
#define RINGTAP_DAQ_PROCESS_H

#include <stdbool.h>
#include <stddef.h>

/* A process with one or more users. It ends with its last user, or with this process. */
struct helper;

/* The process with these arguments and `--socket PATH`; starts it for its first user. NULL: see errno. */
struct helper *helper_start(char *const *arguments, size_t count);

/* Ends the process with its last user. Does nothing with NULL. */
void helper_release(struct helper *helper);

/* Returns whether the process runs. */
bool helper_runs(struct helper *helper);

/* The socket at which the process serves, once it does. */
const char *helper_socket(const struct helper *helper);

/* The last line that the process printed; "" if it printed none. Only after the end of the process. */
const char *helper_said(const struct helper *helper);

/* Waits a moment, for the loops that wait for a process. */
void helper_wait(void);

#endif
