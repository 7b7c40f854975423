#include "backends/nvshmem/created.h"

#include <nvshmem.h>

#include <device_host_transport/nvshmem_common_ibgda.h>

#include "backends/abi/cuda_check.h"

int nvshmem_read_created(bool ibgda, uint32_t peer, nvshmem_created *created_p) {
    nvshmemi_device_host_state_t common;
    GIC_CUDA(cudaMemcpyFromSymbol(&common, nvshmemi_device_state_d, sizeof common));
    nvshmem_created c = {};
    c.heap_in_host = common.symmetric_heap_kind == 1;
    c.connectivity = (uint32_t)common.job_connectivity;
    c.map = c.dci_map = "none";
    if (!c.heap_in_host) {
        cudaIpcMemHandle_t handle; // there is one of what cudaMalloc gave alone
        c.heap_in_pieces = cudaIpcGetMemHandle(&handle, common.heap_base) != cudaSuccess;
        cudaGetLastError();
    }
    *created_p = c;
    if (!ibgda)
        return 0;
    if (!common.ibgda_is_initialized)
        return gic::fail(-EIO, "NVSHMEM did not initialise its IBGDA transport");
    nvshmemi_ibgda_device_state_t state;
    GIC_CUDA(cudaMemcpyFromSymbol(&state, nvshmemi_ibgda_device_state_d, sizeof state));
    c.rc_per_pe = state.num_rc_per_pe;
    c.batch = state.num_requests_in_batch;
    c.shared_dcis = state.num_shared_dcis;
    c.dcis = state.num_shared_dcis + state.num_exclusive_dcis;
    c.dcts = state.ndcts_per_pe;
    c.queues_in_gpu = state.nic_buf_on_gpumem;
    c.host_rings = state.use_async_postsend;
    static const char *const maps[] = {"cta", "sm", "warp", "dct"};
    c.map = (uint32_t)state.rc_map_type < 3 ? maps[state.rc_map_type] : "unknown";
    c.dci_map = (uint32_t)state.dci_map_type < 4 ? maps[state.dci_map_type] : "unknown";
    const nvshmemi_ibgda_device_qp_t *one =
        c.rc_per_pe > 0 ? state.globalmem.rcs + (size_t)peer * c.rc_per_pe : state.globalmem.dcis;
    if (c.rc_per_pe + c.dcis > 0) {
        nvshmemi_ibgda_device_qp_t qp;
        GIC_CUDA(cudaMemcpy(&qp, one, sizeof qp, cudaMemcpyDeviceToHost));
        c.depth = qp.tx_wq.nwqes;
    }
    *created_p = c;
    return 0;
}
