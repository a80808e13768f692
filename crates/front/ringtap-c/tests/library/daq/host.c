/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Loads the DAQ module as LibDAQ does, and uses it as Snort does.
 *
 *     host MODULE keep INPUT INSTANCES COUNT [VARIABLE=VALUE]...    passive: keeps all messages
 *     host MODULE outlive INPUT 1 0 [VARIABLE=VALUE]...             passive: reads until the hub is gone
 *     host MODULE ignore INPUT 1 COUNT [VARIABLE=VALUE]...          passive: whitelists flows to port 7
 *     host MODULE decide INPUT 1 COUNT [VARIABLE=VALUE]...          inline: verdicts by content; COUNT is 0
 *     host MODULE refuse MODE INPUT [VARIABLE=VALUE]...             prints why there is no instance
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <daq_module_api.h>

#define POOL 256
#define BATCH 16
#define TIMEOUT_MS 200

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "host: line %d: %s (%s)\n", __LINE__, #condition, error_text);         \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static char error_text[512];
static const char *input;
static DAQ_Mode mode;
static unsigned instances = 1, instance_id;
static char **variables;

static const char *get_input(DAQ_ModuleConfig_h config) { (void)config; return input; }
static int get_snaplen(DAQ_ModuleConfig_h config) { (void)config; return 1518; }
static unsigned get_timeout(DAQ_ModuleConfig_h config) { (void)config; return TIMEOUT_MS; }
static unsigned get_pool(DAQ_ModuleConfig_h config) { (void)config; return POOL; }
static unsigned get_instances(DAQ_ModuleConfig_h config) { (void)config; return instances; }
static unsigned get_instance(DAQ_ModuleConfig_h config) { (void)config; return instance_id; }
static DAQ_Mode get_mode(DAQ_ModuleConfig_h config) { (void)config; return mode; }

static const char *get_variable(DAQ_ModuleConfig_h config, const char *key)
{
    (void)config;
    for (char **one = variables; *one; one++)
        if (strncmp(*one, key, strlen(key)) == 0 && (*one)[strlen(key)] == '=')
            return *one + strlen(key) + 1;
    return NULL;
}

static void set_errbuf(DAQ_ModuleInstance_h owner, const char *format, ...)
{
    va_list arguments;

    (void)owner;
    va_start(arguments, format);
    vsnprintf(error_text, sizeof(error_text), format, arguments);
    va_end(arguments);
}

static const DAQ_BaseAPI_t base = {
    .api_version = DAQ_BASE_API_VERSION,
    .api_size = sizeof(DAQ_BaseAPI_t),
    .config_get_input = get_input,
    .config_get_snaplen = get_snaplen,
    .config_get_timeout = get_timeout,
    .config_get_msg_pool_size = get_pool,
    .config_get_total_instances = get_instances,
    .config_get_instance_id = get_instance,
    .config_get_mode = get_mode,
    .config_get_variable = get_variable,
    .set_errbuf = set_errbuf,
};

static const DAQ_ModuleAPI_t *module;

static uint64_t sum_of(const DAQ_Msg_t *msg)
{
    uint64_t sum = 0;

    for (uint32_t at = 0; at < msg->data_len; at++)
        sum = sum * 31 + msg->data[at];
    return sum;
}

/* Receives until the pool is used up, then finalises every third message from the end, and so on. */
static unsigned keep_a_pool(void *handle)
{
    const DAQ_Msg_t *kept[POOL], *more[1];
    uint64_t sums[POOL];
    DAQ_MsgPoolInfo_t info;
    DAQ_RecvStatus status = DAQ_RSTAT_OK;
    DAQ_Stats_t stats;
    unsigned count = 0;

    while (status != DAQ_RSTAT_NOBUF) {
        unsigned got = module->msg_receive(handle, POOL - count < BATCH ? POOL - count : BATCH, kept + count, &status);
        CHECK(status != DAQ_RSTAT_ERROR && status != DAQ_RSTAT_EOF);
        for (unsigned at = count; at < count + got; at++) {
            const DAQ_PktHdr_t *header = kept[at]->hdr;
            CHECK(kept[at]->type == DAQ_MSG_TYPE_PACKET && kept[at]->hdr_len == sizeof(*header));
            CHECK(header->flags & DAQ_PKT_FLAG_NOT_FORWARDING);
            CHECK(header->pktlen >= kept[at]->data_len && header->ts.tv_sec > 1000000000);
            sums[at] = sum_of(kept[at]);
        }
        if ((count += got) == POOL) {
            CHECK(module->msg_receive(handle, 1, more, &status) == 0);
            CHECK(status == DAQ_RSTAT_NOBUF);
        }
    }
    CHECK(module->get_stats(handle, &stats) == DAQ_SUCCESS && stats.packets_outstanding == POOL);
    for (int turn = 0; turn < 3; turn++)
        for (int at = (int)count - 1 - turn; at >= 0; at -= 3) {
            CHECK(sum_of(kept[at]) == sums[at]);
            CHECK(module->msg_finalize(handle, kept[at], DAQ_VERDICT_PASS) == DAQ_SUCCESS);
        }
    CHECK(module->get_msg_pool_info(handle, &info) == DAQ_SUCCESS);
    CHECK(info.size == POOL && info.available == POOL);
    return count;
}

static void keep(void **handles, unsigned long wanted)
{
    DAQ_RecvStatus status;
    const DAQ_Msg_t *none[1];
    DAQ_Stats_t stats;

    for (unsigned long received = 0; received < wanted;)
        for (unsigned at = 0; at < instances; at++)
            received += keep_a_pool(handles[at]);
    for (unsigned at = 0; at < instances; at++) {
        CHECK(module->get_stats(handles[at], &stats) == DAQ_SUCCESS);
        CHECK(stats.packets_received == stats.verdicts[DAQ_VERDICT_PASS] && !stats.packets_outstanding);
        CHECK(stats.hw_packets_received >= stats.packets_received);
        printf("instance %u: %lu packets\n", at, (unsigned long)stats.packets_received);
        module->reset_stats(handles[at]);
        CHECK(module->get_stats(handles[at], &stats) == DAQ_SUCCESS && stats.packets_received == 0);
        CHECK(module->interrupt(handles[at]) == DAQ_SUCCESS);
        CHECK(module->msg_receive(handles[at], 1, none, &status) == 0 && status == DAQ_RSTAT_INTERRUPTED);
        CHECK(module->set_filter(handles[at], "tcp prt 1") == DAQ_ERROR);
        CHECK(module->set_filter(handles[at], "udp port 1") == DAQ_SUCCESS);
        while (module->msg_receive(handles[at], 1, none, &status))
            CHECK(module->msg_finalize(handles[at], none[0], DAQ_VERDICT_PASS) == DAQ_SUCCESS);
        CHECK(status == DAQ_RSTAT_TIMEOUT);
    }
}

static void outlive(void *handle)
{
    const DAQ_Msg_t *messages[BATCH];
    DAQ_RecvStatus status = DAQ_RSTAT_OK;
    DAQ_Stats_t stats;

    for (unsigned long received = 0; status != DAQ_RSTAT_ERROR && status != DAQ_RSTAT_EOF;) {
        unsigned got = module->msg_receive(handle, BATCH, messages, &status);
        if (!received && got)
            fprintf(stderr, "host: reading\n");
        received += got;
        for (unsigned at = 0; at < got; at++)
            CHECK(module->msg_finalize(handle, messages[at], DAQ_VERDICT_IGNORE) == DAQ_SUCCESS);
        if (received == got)
            module->reset_stats(handle);
    }
    CHECK(module->get_stats(handle, &stats) == DAQ_SUCCESS);
    CHECK(stats.packets_received == stats.verdicts[DAQ_VERDICT_IGNORE]);
    CHECK(stats.hw_packets_received >= stats.packets_received && stats.hw_packets_received < 1000000);
    CHECK(stats.hw_packets_dropped < 1000000 && stats.packets_filtered == 0);
    printf("%s: %s\n", status == DAQ_RSTAT_EOF ? "ended" : "failed", error_text);
}

/* Receives until there were `wanted` packets to other ports than 7. */
static void ignore(void *handle, unsigned long wanted)
{
    const DAQ_Msg_t *messages[BATCH];
    unsigned long whitelisted = 0, others = 0;
    DAQ_RecvStatus status;

    CHECK(module->get_capabilities(handle) & DAQ_CAPA_WHITELIST);
    fprintf(stderr, "host: reading\n");
    while (others < wanted) {
        unsigned got = module->msg_receive(handle, BATCH, messages, &status);
        CHECK(status != DAQ_RSTAT_ERROR && status != DAQ_RSTAT_EOF);
        for (unsigned at = 0; at < got; at++) {
            bool is_for_7 = messages[at]->data[37] == 7;
            CHECK(module->msg_finalize(handle, messages[at], is_for_7 ? DAQ_VERDICT_WHITELIST : DAQ_VERDICT_PASS)
                  == DAQ_SUCCESS);
            others += !is_for_7;
            whitelisted += is_for_7;
            if (is_for_7)
                fprintf(stderr, "host: whitelisted\n");
        }
    }
    printf("whitelisted %lu, others %lu\n", whitelisted, others);
}

static DAQ_Verdict verdict_on(const DAQ_Msg_t *msg)
{
    uint8_t *found = memmem(msg->data, msg->data_len, "change", 6);

    if (memmem(msg->data, msg->data_len, "forbidden", 9))
        return DAQ_VERDICT_BLOCK;
    if (memmem(msg->data, msg->data_len, "blacklisted", 11))
        return DAQ_VERDICT_BLACKLIST;
    if (memmem(msg->data, msg->data_len, "whitelisted", 11))
        return DAQ_VERDICT_WHITELIST;
    if (!found)
        return DAQ_VERDICT_PASS;
    /* A checksum of UDP is the same if 16-bit words change places: "change" and "angech" only. */
    memcpy(found, "angech", 6);
    return DAQ_VERDICT_REPLACE;
}

static void *deciding;

static void on_interrupt(int number)
{
    (void)number;
    module->interrupt(deciding);
}

/* Decides until Ctrl-C. */
static void decide(void *handle)
{
    DIOCTL_QueryDeviceIndex query = { "a1", 0 };
    const DAQ_Msg_t *messages[BATCH];
    DAQ_RecvStatus status = DAQ_RSTAT_OK;
    DAQ_Stats_t stats;

    deciding = handle;
    signal(SIGINT, on_interrupt);
    CHECK(module->get_capabilities(handle) & DAQ_CAPA_REPLACE);
    CHECK(module->get_capabilities(handle) & DAQ_CAPA_WHITELIST);
    CHECK(module->get_capabilities(handle) & DAQ_CAPA_BLACKLIST);
    CHECK(module->ioctl(handle, DIOCTL_GET_DEVICE_INDEX, &query, sizeof(query)) == DAQ_SUCCESS && query.index > 0);
    CHECK(module->ioctl(handle, DIOCTL_SET_FLOW_OPAQUE, &query, sizeof(query)) == DAQ_ERROR_NOTSUP);
    query.device = "c1";
    CHECK(module->ioctl(handle, DIOCTL_GET_DEVICE_INDEX, &query, sizeof(query)) == DAQ_ERROR_NODEV);
    CHECK(module->set_filter(handle, "udp") == DAQ_ERROR_NOTSUP);
    fprintf(stderr, "host: deciding\n");
    while (status != DAQ_RSTAT_INTERRUPTED) {
        unsigned got = module->msg_receive(handle, BATCH, messages, &status);
        CHECK(status != DAQ_RSTAT_ERROR && status != DAQ_RSTAT_EOF);
        for (unsigned at = got; at-- > 0;) {
            const DAQ_PktHdr_t *header = messages[at]->hdr;
            CHECK(header->ingress_index > 0 && header->egress_index > 0);
            CHECK(header->ingress_index != header->egress_index && !header->flags);
            if (memmem(messages[at]->data, messages[at]->data_len, "twice", 5))
                CHECK(module->inject_relative(handle, messages[at], messages[at]->data, messages[at]->data_len, 0)
                      == DAQ_SUCCESS);
            CHECK(module->msg_finalize(handle, messages[at], verdict_on(messages[at])) == DAQ_SUCCESS);
        }
    }
    CHECK(module->get_stats(handle, &stats) == DAQ_SUCCESS);
    printf("blocked %lu, replaced %lu, blacklisted %lu, injected %lu\n",
           (unsigned long)stats.verdicts[DAQ_VERDICT_BLOCK], (unsigned long)stats.verdicts[DAQ_VERDICT_REPLACE],
           (unsigned long)stats.verdicts[DAQ_VERDICT_BLACKLIST], (unsigned long)stats.packets_injected);
}

int main(int argc, char **argv)
{
    bool refuse = argc > 4 && strcmp(argv[2], "refuse") == 0;
    void *library, *handles[64] = { NULL };

    CHECK(argc >= (refuse ? 5 : 6));
    library = dlopen(argv[1], RTLD_NOW);
    snprintf(error_text, sizeof(error_text), "%s", library ? "" : dlerror());
    CHECK(library && (module = dlsym(library, "DAQ_MODULE_DATA")));
    CHECK(module->api_version == DAQ_MODULE_API_VERSION && module->api_size == sizeof(*module));
    CHECK(strcmp(module->name, "ringtap") == 0 && module->load(&base) == DAQ_SUCCESS);
    variables = argv + (refuse ? 5 : 6);
    input = argv[refuse ? 4 : 3];
    if (refuse) {
        mode = (DAQ_Mode)atoi(argv[3]);
        instance_id = 1;
        CHECK(module->instantiate(NULL, NULL, handles) < 0);
        printf("%s\n", error_text);
        return 0;
    }
    mode = strcmp(argv[2], "decide") == 0 ? DAQ_MODE_INLINE : DAQ_MODE_PASSIVE;
    instances = (unsigned)atoi(argv[4]);
    for (instance_id = 1; instance_id <= instances; instance_id++)
        CHECK(module->instantiate(NULL, NULL, &handles[instance_id - 1]) == DAQ_SUCCESS);
    for (unsigned at = 0; at < instances; at++)
        CHECK(module->start(handles[at]) == DAQ_SUCCESS);
    if (mode == DAQ_MODE_INLINE)
        decide(handles[0]);
    else if (strcmp(argv[2], "outlive") == 0)
        outlive(handles[0]);
    else if (strcmp(argv[2], "ignore") == 0)
        ignore(handles[0], strtoul(argv[5], NULL, 10));
    else
        keep(handles, strtoul(argv[5], NULL, 10));
    for (unsigned at = 0; at < instances; at++) {
        CHECK(module->stop(handles[at]) == DAQ_SUCCESS);
        module->destroy(handles[at]);
    }
    CHECK(module->unload() == DAQ_SUCCESS);
    return 0;
}
