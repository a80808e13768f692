/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Takes three packets of a group, and closes the handle within a batch. */
#include <stdio.h>
#include <stdlib.h>

#include <ringtap.h>

#include "want.h"

int main(void)
{
    const struct ringtap_packet *packet;
    ringtap_handle *handle;

    WANT(ringtap_open(&handle, NULL, "all", NULL), RINGTAP_OK);
    fprintf(stderr, "stops: reading\n");
    for (int packets = 0; packets < 3; packets++)
        WANT(ringtap_next(handle, &packet, -1), 1);
    WANT(ringtap_close(handle), RINGTAP_OK);
    return 0;
}
