/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Declarations of LibDAQ 3's module interface, as far as the module and its test need them: order and
 * width of fields, and values, of version 3.0.25. For machines without LibDAQ; a test compares them with
 * an installed one.
 */
#ifndef TEST_DAQ_MODULE_API_H
#define TEST_DAQ_MODULE_API_H

#include <stddef.h>
#include <stdint.h>
#include <sys/time.h>
#include <unistd.h>

#define DAQ_COMMON_API_VERSION 0x00030010
#define DAQ_BASE_API_VERSION 0x00030002
#define DAQ_MODULE_API_VERSION 0x00030001

enum {
    DAQ_SUCCESS = 0,
    DAQ_ERROR = -1,
    DAQ_ERROR_NOMEM = -2,
    DAQ_ERROR_NODEV = -3,
    DAQ_ERROR_NOTSUP = -4,
    DAQ_ERROR_INVAL = -7,
    DAQ_PKTHDR_UNKNOWN = -1,
    DAQ_PKT_FLAG_NOT_FORWARDING = 2,
    DAQ_VAR_DESC_REQUIRES_ARGUMENT = 1,
    DAQ_VAR_DESC_FORBIDS_ARGUMENT = 2,
    DAQ_TYPE_INTF_CAPABLE = 2,
    DAQ_TYPE_INLINE_CAPABLE = 4,
    DAQ_TYPE_MULTI_INSTANCE = 8,
    DAQ_CAPA_BLOCK = 1,
    DAQ_CAPA_REPLACE = 2,
    DAQ_CAPA_INJECT = 4,
    DAQ_CAPA_WHITELIST = 8,
    DAQ_CAPA_BLACKLIST = 16,
    DAQ_CAPA_UNPRIV_START = 32,
    DAQ_CAPA_INTERRUPT = 64,
    DAQ_CAPA_BPF = 128,
    DAQ_CAPA_DEVICE_INDEX = 256
};

typedef enum {
    DAQ_RSTAT_OK,
    DAQ_RSTAT_WOULD_BLOCK,
    DAQ_RSTAT_TIMEOUT,
    DAQ_RSTAT_EOF,
    DAQ_RSTAT_INTERRUPTED,
    DAQ_RSTAT_NOBUF,
    DAQ_RSTAT_ERROR
} DAQ_RecvStatus;

typedef enum { DAQ_MSG_TYPE_PACKET = 1 } DAQ_MsgType;
typedef enum { DIOCTL_GET_DEVICE_INDEX = 1, DIOCTL_SET_FLOW_OPAQUE } DAQ_IoctlCmd;
typedef enum { DAQ_MODE_NONE, DAQ_MODE_PASSIVE, DAQ_MODE_INLINE, DAQ_MODE_READ_FILE } DAQ_Mode;

typedef enum {
    DAQ_VERDICT_PASS,
    DAQ_VERDICT_BLOCK,
    DAQ_VERDICT_REPLACE,
    DAQ_VERDICT_WHITELIST,
    DAQ_VERDICT_BLACKLIST,
    DAQ_VERDICT_IGNORE,
    MAX_DAQ_VERDICT
} DAQ_Verdict;

typedef struct _daq_module_config *DAQ_ModuleConfig_h;
typedef struct _daq_module_instance *DAQ_ModuleInstance_h;

typedef struct _daq_msg {
    void *hdr;
    uint8_t *data;
    void *meta[8];
    DAQ_ModuleInstance_h owner;
    void *priv;
    size_t hdr_len;
    DAQ_MsgType type;
    uint32_t data_len;
} DAQ_Msg_t;

typedef const struct _daq_msg *DAQ_Msg_h;

typedef struct {
    struct timeval ts;
    uint32_t pktlen;
    int32_t ingress_index, egress_index;
    int16_t ingress_group, egress_group;
    uint32_t opaque, flow_id, flags, address_space_id, tenant_id;
} DAQ_PktHdr_t;

typedef struct {
    uint64_t hw_packets_received, hw_packets_dropped, packets_received, packets_filtered;
    uint64_t packets_injected, packets_outstanding, verdicts[MAX_DAQ_VERDICT];
} DAQ_Stats_t;

typedef struct {
    uint32_t size, available;
    size_t mem_size;
} DAQ_MsgPoolInfo_t;

typedef struct {
    const char *name, *description;
    uint32_t flags;
} DAQ_VariableDesc_t;

typedef struct {
    const char *device;
    int index;
} DIOCTL_QueryDeviceIndex;

typedef struct {
    uint32_t api_version, api_size;
    const char *(*config_get_input)(DAQ_ModuleConfig_h);
    int (*config_get_snaplen)(DAQ_ModuleConfig_h);
    unsigned (*config_get_timeout)(DAQ_ModuleConfig_h);
    unsigned (*config_get_msg_pool_size)(DAQ_ModuleConfig_h);
    unsigned (*config_get_total_instances)(DAQ_ModuleConfig_h);
    unsigned (*config_get_instance_id)(DAQ_ModuleConfig_h);
    DAQ_Mode (*config_get_mode)(DAQ_ModuleConfig_h);
    const char *(*config_get_variable)(DAQ_ModuleConfig_h, const char *);
    int (*config_first_variable)(DAQ_ModuleConfig_h, const char **, const char **);
    int (*config_next_variable)(DAQ_ModuleConfig_h, const char **, const char **);
    int (*resolve_subapi)(DAQ_ModuleInstance_h, void *);
    void (*set_errbuf)(DAQ_ModuleInstance_h, const char *, ...) __attribute__((format(printf, 2, 3)));
} DAQ_BaseAPI_t;

typedef struct {
    const uint32_t api_version, api_size, module_version;
    const char *name;
    const uint32_t type;
    int (*load)(const DAQ_BaseAPI_t *);
    int (*unload)(void);
    int (*get_variable_descs)(const DAQ_VariableDesc_t **);
    int (*instantiate)(const DAQ_ModuleConfig_h, DAQ_ModuleInstance_h, void **);
    void (*destroy)(void *);
    int (*set_filter)(void *, const char *);
    int (*start)(void *);
    int (*inject)(void *, DAQ_MsgType, const void *, const uint8_t *, uint32_t);
    int (*inject_relative)(void *, DAQ_Msg_h, const uint8_t *, uint32_t, int);
    int (*interrupt)(void *);
    int (*stop)(void *);
    int (*ioctl)(void *, DAQ_IoctlCmd, void *, size_t);
    int (*get_stats)(void *, DAQ_Stats_t *);
    void (*reset_stats)(void *);
    int (*get_snaplen)(void *);
    uint32_t (*get_capabilities)(void *);
    int (*get_datalink_type)(void *);
    int (*config_load)(void *, void **);
    int (*config_swap)(void *, void *, void **);
    int (*config_free)(void *, void *);
    unsigned (*msg_receive)(void *, const unsigned, const DAQ_Msg_t *[], DAQ_RecvStatus *);
    int (*msg_finalize)(void *, const DAQ_Msg_t *, DAQ_Verdict);
    int (*get_msg_pool_info)(void *, DAQ_MsgPoolInfo_t *);
} DAQ_ModuleAPI_t;

#endif
