// The structs of table_abi.h against those that NCCL's installed headers carry: a newer NCCL that moves one fails here.
// The two tables themselves are in no installed header; table_abi.h asserts their offsets.
#include "backends/ncclgin/table_abi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if __has_include(<nccl_device/net_device.h>) && __has_include(<cuda_runtime_api.h>)

#include <nccl.h>
#include <nccl_device/gin/gdaki/doca_gpunetio/common/doca_gpunetio_verbs_dev.h>
#include <nccl_device/gin/gdaki/gin_gdaki_device_host_common.h>
#include <nccl_device/net_device.h>

namespace {

#define SAME(ours, our_member, theirs, their_member)                                                         \
    static_assert(offsetof(ours, our_member) == offsetof(theirs, their_member) &&                            \
                      sizeof(ours::our_member) == sizeof(theirs::their_member),                              \
                  #ours "." #our_member " and " #theirs "." #their_member)
#define AS_BIG(ours, theirs) static_assert(sizeof(ours) == sizeof(theirs), #ours " and " #theirs)

using namespace nccl_abi;

using HandleOfNccl = ncclNetDeviceHandle_v11_t;
AS_BIG(DeviceHandle, HandleOfNccl);
SAME(DeviceHandle, type, HandleOfNccl, netDeviceType);
SAME(DeviceHandle, version, HandleOfNccl, netDeviceVersion);
SAME(DeviceHandle, handle, HandleOfNccl, handle);
SAME(DeviceHandle, bytes, HandleOfNccl, size);
SAME(DeviceHandle, needs_progress, HandleOfNccl, needsProxyProgress);

using CqOfNccl = doca_gpu_dev_verbs_cq;
AS_BIG(Cq, CqOfNccl);
SAME(Cq, cqe, CqOfNccl, cqe_daddr);
SAME(Cq, cqn, CqOfNccl, cq_num);
SAME(Cq, depth, CqOfNccl, cqe_num);
SAME(Cq, dbrec, CqOfNccl, dbrec);
SAME(Cq, cons_idx, CqOfNccl, cqe_ci);
SAME(Cq, mask, CqOfNccl, cqe_mask);
SAME(Cq, cqe_bytes, CqOfNccl, cqe_size);
SAME(Cq, reserved, CqOfNccl, cqe_rsvd);
SAME(Cq, memory, CqOfNccl, mem_type);

using QpOfNccl = doca_gpu_dev_verbs_qp;
AS_BIG(Qp, QpOfNccl);
SAME(Qp, reserved_idx, QpOfNccl, sq_rsvd_index);
SAME(Qp, ready_idx, QpOfNccl, sq_ready_index);
SAME(Qp, prod_idx, QpOfNccl, sq_wqe_pi);
SAME(Qp, qpn, QpOfNccl, sq_num);
SAME(Qp, qpn_word, QpOfNccl, sq_num_shift8);
SAME(Qp, qpn_be, QpOfNccl, sq_num_shift8_be);
SAME(Qp, qpn_ds_be[0], QpOfNccl, sq_num_shift8_be_1ds);
SAME(Qp, qpn_ds_be[1], QpOfNccl, sq_num_shift8_be_2ds);
SAME(Qp, qpn_ds_be[2], QpOfNccl, sq_num_shift8_be_3ds);
SAME(Qp, qpn_ds_be[3], QpOfNccl, sq_num_shift8_be_4ds);
SAME(Qp, lock, QpOfNccl, sq_lock);
SAME(Qp, depth, QpOfNccl, sq_wqe_num);
SAME(Qp, mask, QpOfNccl, sq_wqe_mask);
SAME(Qp, sq, QpOfNccl, sq_wqe_daddr);
SAME(Qp, dbrec, QpOfNccl, sq_dbrec);
SAME(Qp, doorbell, QpOfNccl, sq_db);
SAME(Qp, rq_num, QpOfNccl, rq_num);
SAME(Qp, rq_lock, QpOfNccl, rq_lock);
SAME(Qp, cq, QpOfNccl, cq_sq);
SAME(Qp, rq_cq, QpOfNccl, cq_rq);
SAME(Qp, nic_handler, QpOfNccl, nic_handler);
SAME(Qp, memory, QpOfNccl, mem_type);

AS_BIG(MemHandle, ncclGinGdakiMemHandle);
SAME(MemHandle, rkeys, ncclGinGdakiMemHandle, rkeys);
SAME(MemHandle, lkey, ncclGinGdakiMemHandle, lkey);

using TableOfNccl = ncclGinGdakiGlobalGPUBufferTable<uint64_t>;
AS_BIG(Table, TableOfNccl);
SAME(Table, words, TableOfNccl, buffer);
SAME(Table, rkeys, TableOfNccl, rkeys);
SAME(Table, lkey, TableOfNccl, lkey);

AS_BIG(GdakiContext, ncclGinGdakiGPUContext);
SAME(GdakiContext, qps, ncclGinGdakiGPUContext, gdqp);
SAME(GdakiContext, companions, ncclGinGdakiGPUContext, companion_gdqp);
SAME(GdakiContext, counters, ncclGinGdakiGPUContext, counters_table);
SAME(GdakiContext, signals, ncclGinGdakiGPUContext, signals_table);
SAME(GdakiContext, sink_lkey, ncclGinGdakiGPUContext, sink_buffer_lkey);

static_assert((int)DEVICE_HOST == NCCL_NET_DEVICE_HOST &&
                  (int)DEVICE_GIN_PROXY == NCCL_NET_DEVICE_GIN_PROXY &&
                  (int)DEVICE_GIN_GDAKI == NCCL_NET_DEVICE_GIN_GDAKI,
              "types of a device");
static_assert((int)GDAKI_VERSION == NCCL_GIN_GDAKI_VERSION, "of a GDAKI context");
static_assert((int)NIC_HANDLER_GPU_DOORBELL == DOCA_GPUNETIO_VERBS_NIC_HANDLER_GPU_SM_DB, "who rings");
static_assert((int)MEMORY_GPU == DOCA_GPUNETIO_VERBS_MEM_TYPE_GPU &&
                  (int)MEMORY_HOST == DOCA_GPUNETIO_VERBS_MEM_TYPE_HOST,
              "where a queue is");
static_assert((int)SUCCESS == ncclSuccess && (int)SYSTEM_ERROR == ncclSystemError &&
                  (int)INTERNAL_ERROR == ncclInternalError && (int)INVALID_USAGE == ncclInvalidUsage &&
                  (int)REMOTE_ERROR == ncclRemoteError,
              "answers");

} // namespace

int main() {
    // Everything above was checked by the compiler; the version says against what.
    if (NCCL_VERSION_CODE < NCCL_VERSION(2, 28, 7) || NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 0)) {
        printf("table_test: built against NCCL %d; the plugin knows 2.28.7 to 2.28.9\n", NCCL_VERSION_CODE);
        return 1;
    }
    printf("table_test: ok\n");
    return 0;
}

#else

int main() {
    printf("table_test: built without NCCL's or CUDA's headers: make cuda-deps\n");
    const char *ci = getenv("CI");
    return ci && strcmp(ci, "true") == 0; // there they are installed
}

#endif
