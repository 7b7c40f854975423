// What NVSHMEM's device code works on: its public device state, filled with softnic's queues. Used by transport.cc.
//
// Functions return 0 or a negative errno and leave one line in gic::error_text().
#ifndef BACKENDS_NVSHMEM_QUEUES_H
#define BACKENDS_NVSHMEM_QUEUES_H

#include "minigda/gda_host.h"

#include <device_host_transport/nvshmem_common_ibgda.h>

namespace nvshmem_queues {

// What the vendor's transport takes from the environment.
struct Knobs {
    uint32_t rc_per_pe; // NVSHMEM_IBGDA_NUM_RC_PER_PE; 0: DC queue pairs carry everything
    uint32_t dcis;      // NVSHMEM_IBGDA_NUM_DCI, all of a PE's
    uint32_t
        shared_dcis; // NVSHMEM_IBGDA_NUM_SHARED_DCI: the last ones; each of the others belongs to one thread block
    uint32_t dcts;        // NVSHMEM_IBGDA_NUM_DCT, per PE
    uint32_t depth;       // NVSHMEM_QP_DEPTH, 64-byte blocks
    uint32_t batch;       // NVSHMEM_IBGDA_NUM_REQUESTS_IN_BATCH, rounded up to a power of two
    uint32_t fetch_slots; // NVSHMEM_IBGDA_NUM_FETCH_SLOTS_PER_RC, with DC ..._PER_DCI
    nvshmemi_ibgda_device_qp_map_type_t map;     // NVSHMEM_IBGDA_RC_MAP_BY
    nvshmemi_ibgda_device_qp_map_type_t dci_map; // NVSHMEM_IBGDA_DCI_MAP_BY
    bool host_rings; // NVSHMEM_IBGDA_NIC_HANDLER=cpu_host_memory: device code announces, a host thread rings
};
int read_knobs(Knobs *knobs_p);

// With host_rings: where device code leaves the index behind its last WQE, a word per queue pair in mapped host memory, and
// what of it has been rung. Memory of the fabric.
struct Announced {
    uint64_t *words = nullptr;
    std::vector<uint64_t> rung;
};
// Rings what has been announced since the last call.
void ring(const gda_fabric *f, Announced *announced);

// Makes and connects the queue pairs (collective) and fills *state but for the keys. The structs that it points to lie in
// GPU memory of the fabric, which must have a Gpu and no queue pairs yet.
int build(gda_fabric *f, const Knobs &knobs, size_t log2_granularity, nvshmemi_ibgda_device_state_t *state,
          Announced *announced_p);

// The key of [addr, addr + bytes) of the own heap, and that of [offset, offset + bytes) of pe's, for every chunk that
// they cover. -ENOTSUP beyond the chunks whose keys the state itself holds.
int set_lkey(nvshmemi_ibgda_device_state_t *state, uint64_t heap, uint64_t addr, size_t bytes, uint32_t key);
int set_rkey(nvshmemi_ibgda_device_state_t *state, uint32_t npes, uint32_t pe, uint64_t offset, size_t bytes,
             uint32_t key);
// A local buffer outside of the heap.
int add_local(gda_fabric *f, nvshmemi_ibgda_device_state_t *state, uint64_t addr, size_t bytes,
              bool system_scope, uint32_t key);

} // namespace nvshmem_queues

#endif
