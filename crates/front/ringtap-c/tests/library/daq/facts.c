/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Prints the size and order of LibDAQ's structures, and its numbers. */
#include <stddef.h>
#include <stdio.h>

#include <daq_module_api.h>

#define NUMBER(expression) printf("%s %ld\n", #expression, (long)(expression))
#define FIELD(type, field) printf("%s.%s %zu\n", #type, #field, offsetof(type, field))

int main(void)
{
    NUMBER(sizeof(DAQ_Msg_t));
    FIELD(DAQ_Msg_t, data);
    FIELD(DAQ_Msg_t, owner);
    FIELD(DAQ_Msg_t, priv);
    FIELD(DAQ_Msg_t, hdr_len);
    FIELD(DAQ_Msg_t, type);
    FIELD(DAQ_Msg_t, data_len);
    NUMBER(sizeof(DAQ_PktHdr_t));
    FIELD(DAQ_PktHdr_t, pktlen);
    FIELD(DAQ_PktHdr_t, ingress_index);
    FIELD(DAQ_PktHdr_t, egress_group);
    FIELD(DAQ_PktHdr_t, flags);
    NUMBER(sizeof(DAQ_Stats_t));
    FIELD(DAQ_Stats_t, packets_filtered);
    FIELD(DAQ_Stats_t, packets_outstanding);
    FIELD(DAQ_Stats_t, verdicts);
    NUMBER(sizeof(DAQ_MsgPoolInfo_t));
    NUMBER(sizeof(DAQ_VariableDesc_t));
    NUMBER(sizeof(DIOCTL_QueryDeviceIndex));
    NUMBER(sizeof(DAQ_BaseAPI_t));
    FIELD(DAQ_BaseAPI_t, config_get_mode);
    FIELD(DAQ_BaseAPI_t, config_get_variable);
    FIELD(DAQ_BaseAPI_t, set_errbuf);
    NUMBER(sizeof(DAQ_ModuleAPI_t));
    FIELD(DAQ_ModuleAPI_t, instantiate);
    FIELD(DAQ_ModuleAPI_t, ioctl);
    FIELD(DAQ_ModuleAPI_t, get_capabilities);
    FIELD(DAQ_ModuleAPI_t, msg_receive);
    FIELD(DAQ_ModuleAPI_t, get_msg_pool_info);
    NUMBER(DAQ_BASE_API_VERSION);
    NUMBER(DAQ_MODULE_API_VERSION);
    NUMBER(DAQ_RSTAT_ERROR);
    NUMBER(MAX_DAQ_VERDICT);
    NUMBER(DAQ_VERDICT_BLACKLIST);
    NUMBER(DAQ_MODE_READ_FILE);
    NUMBER(DAQ_ERROR_INVAL);
    NUMBER(DAQ_CAPA_DEVICE_INDEX);
    NUMBER(DAQ_CAPA_BPF);
    NUMBER(DAQ_CAPA_BLACKLIST);
    NUMBER(DAQ_TYPE_MULTI_INSTANCE);
    NUMBER(DAQ_PKT_FLAG_NOT_FORWARDING);
    NUMBER(DIOCTL_SET_FLOW_OPAQUE);
    return 0;
}
