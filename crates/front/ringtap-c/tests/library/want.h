/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Ends the program unless a call had the expected result or error text. */
#ifndef WANT_H
#define WANT_H

#define WANT(expression, wanted)                                                                   \
    do {                                                                                           \
        int got_ = (expression);                                                                   \
        if (got_ != (wanted)) {                                                                    \
            fprintf(stderr, "line %d: %s gave %d, not %d (%s)\n", __LINE__, #expression, got_,     \
                    (wanted), ringtap_error(NULL));                                                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define SAID(handle, text) WANT(strstr(ringtap_error(handle), text) != NULL, 1)

#endif
