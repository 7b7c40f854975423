/* nvshmem_transport_ibgda.so.3: a transport for NVSHMEM whose NIC is softnic.
 *
 * NVSHMEM's own IBGDA device code (libnvshmem_device.a, untouched) fills mlx5 send queues, writes doorbell records and
 * rings; this transport gives it queues that softnic serves, in the place of the vendor's transport, which makes them
 * on a ConnectX. Only the host part is ours: queues, keys, handles, the device state.
 *
 * To use it: dlopen it by path before NVSHMEM's init (its SONAME is that of the vendor's file, so the library's own
 * dlopen then finds this one; LD_LIBRARY_PATH does not work, the library carries an RPATH), fetch
 * `gic_nvshmem_transport_v1`, call prepare() on every rank, and run NVSHMEM with
 *
 *     NVSHMEM_REMOTE_TRANSPORT=none NVSHMEM_IB_ENABLE_IBGDA=1 NVSHMEM_DISABLE_P2P=1 NVSHMEM_HEAP_KIND=SYSMEM
 *
 * It reads what the vendor's transport reads: NVSHMEM_QP_DEPTH, NVSHMEM_IBGDA_NUM_RC_PER_PE,
 * NVSHMEM_IBGDA_NUM_REQUESTS_IN_BATCH, NVSHMEM_IBGDA_RC_MAP_BY. A call of the library that it cannot serve is answered
 * with an error and one line on stderr that names it.
 *
 * With engine=cpu queues and payload are in host memory: the symmetric heap must be the POSIX shared memory of
 * HEAP_KIND=SYSMEM. There is one such heap per host at a time, since NVSHMEM gives it one fixed name.
 *
 * Functions return 0 or a negative errno; last_error() then has one line. All but the queues: one thread at a time.
 */
#ifndef BACKENDS_NVSHMEM_TRANSPORT_H
#define BACKENDS_NVSHMEM_TRANSPORT_H

#include "backends/abi/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GIC_NVSHMEM_TRANSPORT_FILE "nvshmem_transport_ibgda.so.3"
#define GIC_NVSHMEM_TRANSPORT_SYMBOL "gic_nvshmem_transport_v1"

struct gic_nvshmem_transport {
    uint32_t struct_size;
    /* Collective: makes this rank's NIC from open->device and open->nic_config. Once; open->comm must last until
     * release(). */
    int (*prepare)(const struct gic_open *open);
    /* 0, or -EIO: a queue pair has seen an error CQE; the text has its number, peer and syndrome. */
    int (*error)(void);
    /* As gic_backend.counters and .facts. NVSHMEM's own traffic in init, barriers and finalize is counted too. */
    int (*counters)(const struct gic_counter **counters_p, uint32_t *count_p);
    int (*facts)(const struct gic_kv **facts_p, uint32_t *count_p);
    /* From here on no peer reaches this rank's heap any more: its next request is answered with an error CQE. */
    int (*withdraw_heap)(void);
    /* After nvshmem_finalize, or in its place when NVSHMEM was not initialised: stops and frees the NIC. */
    void (*release)(void);
    const char *(*last_error)(void);
};

#ifdef __cplusplus
}
#endif
#endif
