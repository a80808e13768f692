/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* An inline reader that misuses every call, and checks the error of each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ringtap.h>

#include "want.h"

static void refused(const struct ringtap_options *options, const char *text)
{
    ringtap_handle *handle;

    WANT(ringtap_open(&handle, NULL, "ips", options), RINGTAP_OK);
    WANT(ringtap_inline(handle), RINGTAP_ERROR_REFUSED);
    SAID(handle, text);
    WANT(ringtap_close(handle), RINGTAP_OK);
}

int main(void)
{
    struct ringtap_options filter = RINGTAP_OPTIONS_INIT, private_pool = RINGTAP_OPTIONS_INIT;
    const struct ringtap_packet *packet;
    ringtap_handle *handle;
    int verdicts = 0, got;

    filter.filter = "udp";
    refused(&filter, "no filter");
    private_pool.flags = RINGTAP_OPEN_PRIVATE;
    refused(&private_pool, "not private");

    WANT(ringtap_open(&handle, NULL, "ips", NULL), RINGTAP_OK);
    WANT(ringtap_inline(handle), RINGTAP_OK);
    WANT(ringtap_inline(handle), RINGTAP_ERROR_REFUSED);
    SAID(handle, "an inline reader already");
    WANT(ringtap_set_filter(handle, "udp"), RINGTAP_ERROR_REFUSED);
    WANT(ringtap_set_filter(handle, NULL), RINGTAP_OK);
    WANT(ringtap_verdict(handle, 0, 0, -1), RINGTAP_ERROR_ARGUMENT);
    WANT(ringtap_verdict(handle, 32768, 0, RINGTAP_DROP), RINGTAP_ERROR_ARGUMENT);
    SAID(handle, "lane 32768");
    /* The bridge ignores verdicts on packets that do not exist. */
    WANT(ringtap_verdict(handle, 0, UINT64_MAX, RINGTAP_DROP), RINGTAP_OK);
    WANT(ringtap_send_verdicts(handle), RINGTAP_OK);
    fprintf(stderr, "bad_verdict: deciding\n");

    /* Two opposite verdicts on each packet, one packet at a time: the first one counts. */
    while ((got = ringtap_next(handle, &packet, -1)) == 1) {
        WANT(ringtap_verdict(handle, packet->lane, packet->sequence, RINGTAP_PASS), RINGTAP_OK);
        WANT(ringtap_verdict(handle, packet->lane, packet->sequence, RINGTAP_DROP), RINGTAP_OK);
        WANT(ringtap_send_verdicts(handle), RINGTAP_OK);
        verdicts++;
    }
    WANT(got, RINGTAP_END);
    printf("%d packets decided twice\n", verdicts);
    WANT(ringtap_close(handle), RINGTAP_OK);
    return 0;
}
