/* nvshmem_transport_ibgda.so.3 and nvshmem_transport_ibrc.so.3: transports for NVSHMEM whose NIC is softnic.
 *
 * ibgda: NVSHMEM's own device code (libnvshmem_device.a, untouched) fills mlx5 send queues, writes doorbell records and
 * rings; the transport gives it queues that softnic serves, in the place of the vendor's transport, which makes them on a
 * ConnectX. Only the host part is ours: queues, keys, handles, the device state.
 *
 * ibrc: NVSHMEM's own proxy channel, untouched too: device code enqueues requests, the library's proxy thread takes them and
 * calls the transport, which posts one work request for each to softnic.
 *
 * To use one: dlopen it by path before NVSHMEM's init (its SONAME is that of the vendor's file, so the library's own
 * dlopen then finds this one; LD_LIBRARY_PATH does not work, the library carries an RPATH), fetch
 * `gic_nvshmem_transport_v1`, call prepare() on every rank, and run NVSHMEM with NVSHMEM_DISABLE_P2P=1 and
 *
 *     NVSHMEM_REMOTE_TRANSPORT=none NVSHMEM_IB_ENABLE_IBGDA=1       (ibgda)
 *     NVSHMEM_REMOTE_TRANSPORT=ibrc NVSHMEM_IB_ENABLE_IBGDA=0       (ibrc)
 *
 * They read what the vendor's read: NVSHMEM_QP_DEPTH, NVSHMEM_IB_NUM_RC_PER_DEVICE, and of NVSHMEM_IBGDA_...: NUM_RC_PER_PE,
 * RC_MAP_BY, NUM_DCI, NUM_SHARED_DCI, NUM_DCT, DCI_MAP_BY, NUM_REQUESTS_IN_BATCH, NUM_FETCH_SLOTS_PER_RC and _PER_DCI,
 * NIC_HANDLER. Without RC queue pairs (0) DC ones carry everything; beside them there is one DCI, which nothing uses. A call of the library that they cannot
 * serve is answered with an error and one line on stderr that names it.
 *
 * With engine=cpu queues and payload are in host memory: the symmetric heap must be the POSIX shared memory of
 * NVSHMEM_HEAP_KIND=SYSMEM. There is one such heap per host at a time, since NVSHMEM gives it one fixed name. With
 * engine=gpu (ibgda only) queues and heap are in GPU memory, the heap as the library makes it or with
 * NVSHMEM_DISABLE_CUDA_VMM=1 as one allocation; softnic's kernel comes when something is posted and goes when nothing is, so
 * that the library can wait for the device.
 *
 * Functions return 0 or a negative errno; last_error() then has one line. All but the queues: one thread at a time.
 */
#ifndef BACKENDS_NVSHMEM_TRANSPORT_H
#define BACKENDS_NVSHMEM_TRANSPORT_H

#include "backends/abi/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GIC_NVSHMEM_TRANSPORT_IBGDA "nvshmem_transport_ibgda.so.3"
#define GIC_NVSHMEM_TRANSPORT_IBRC "nvshmem_transport_ibrc.so.3"
#define GIC_NVSHMEM_TRANSPORT_SYMBOL "gic_nvshmem_transport_v1"

struct gic_nvshmem_transport {
    uint32_t struct_size;
    /* Collective: makes this rank's NIC from open->device and open->nic_config. Once; open->comm must last until
     * release(). */
    int (*prepare)(const struct gic_open *open);
    /* 0, or -EIO: a queue pair has seen an error CQE; the text has its number, peer and syndrome. Ask before end(): an
     * engine whose device context has gone keeps nothing. */
    int (*error)(void);
    /* As gic_backend.counters and .facts. NVSHMEM's own traffic in init, barriers and finalize is counted too. */
    int (*counters)(const struct gic_counter **counters_p, uint32_t *count_p);
    int (*facts)(const struct gic_kv **facts_p, uint32_t *count_p);
    /* From here on no peer reaches this rank's heap any more: its next request is answered with an error CQE. */
    int (*withdraw_heap)(void);
    /* After nvshmem_finalize, or in its place when NVSHMEM was not initialised: stops and frees the NIC. */
    void (*release)(void);
    const char *(*last_error)(void);
    /* Around a measured launch, once NVSHMEM is initialised: the NIC is there at once (see gda_fabric_begin). What is posted
     * outside is served too, some time later. end(): whether the launch was fine; -EIO when a doorbell is missing. */
    int (*begin)(void);
    int (*end)(int fine);
    /* *word becomes 1 soon after an error CQE between begin() and end(), since the library's device code may wait on behind
     * one. It must last until end(), or until another word is given. NULL: none. */
    void (*on_error)(volatile uint32_t *word);
};

#ifdef __cplusplus
}
#endif
#endif
