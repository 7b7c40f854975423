// What NVSHMEM's device code really works with, read back from the device symbols of this image.
#ifndef BACKENDS_NVSHMEM_CREATED_H
#define BACKENDS_NVSHMEM_CREATED_H

#include <stdint.h>

struct nvshmem_created {
    uint32_t rc_per_pe, batch,
        depth; // depth: of a queue pair to a peer, or of a DC one; 0 when there is none
    uint32_t dcis, shared_dcis, dcts; // of dcis; dcts: per PE
    const char *map, *dci_map;        // "cta", "sm", "warp", "dct"
    bool queues_in_gpu, heap_in_host, host_rings;
    bool heap_in_pieces; // mapped as it grows, not one allocation
    uint32_t
        connectivity; // NVSHMEM's job_connectivity: 1 loads and stores reach every PE, above: not every one
};

// 0 or a negative errno with a line in gic::error_text(). ibgda false: the queue fields stay 0.
int nvshmem_read_created(bool ibgda, uint32_t peer, nvshmem_created *created_p);

#endif
