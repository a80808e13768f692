/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Opens a group of a hub, and prints the error; for a program with a set-user-id bit. */
#include <pcap/pcap.h>
#include <stdio.h>

int main(void) {
    char errbuf[PCAP_ERRBUF_SIZE] = "";
    pcap_t *p = pcap_create("hub:all", errbuf);
    if (p == NULL) {
        printf("%s\n", errbuf);
        return 1;
    }
    int status = pcap_activate(p);
    printf("activate %d\n%s\n", status, pcap_geterr(p));
    pcap_close(p);
    return 0;
}
