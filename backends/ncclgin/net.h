/* gic_ncclgin_net.so: a NET and GIN plugin for NCCL whose NIC is softnic.
 *
 * NCCL's own GIN device code (the nccl_device headers, untouched) and its own proxy thread work on it: with type GDAKI
 * device code fills mlx5 send queues, writes doorbell records and rings; with type PROXY it hands descriptors to NCCL's
 * thread, which calls the plugin, which posts. Only queues, keys, handles and the exchange of memory are ours.
 *
 * To use it: dlopen it by path, fetch `gic_ncclgin_net_v1`, call prepare() on every rank, set
 *
 *     NCCL_NET_PLUGIN=<the same path> NCCL_NVLS_ENABLE=0 CUDA_MODULE_LOADING=EAGER
 *
 * and initialise NCCL (2.28.7 to 2.28.9, which ask for version 11 of both tables; any other is refused in one line).
 * Ranks that share a GPU also need a NCCL_HOSTID each. A call of NCCL that the plugin cannot serve is answered with an
 * error and one line on stderr that names it; NCCL's own message transport (isend and the like) is among those, so the
 * ranks of a communicator are to reach each other by P2P or by GIN alone.
 *
 * What is registered must be memory that the engine reaches: with engine=gpu GPU memory (ncclMemAlloc's, or that of
 * window_alloc), with engine=cpu host memory of window_alloc, by window_register. NCCL also registers memory of its own,
 * so other memory is no error, but a request that names it is: it gets an error CQE, or ends NCCL's proxy.
 *
 * Type PROXY: NCCL keeps the table of signals in GPU memory that no other process can map. A signal is therefore added
 * to a mailbox in host memory, and its owner adds it to NCCL's table by a kernel of one warp, so one multiprocessor must
 * have room for that.
 *
 * Functions return 0 or a negative errno; last_error() then has one line. One process per rank.
 */
#ifndef BACKENDS_NCCLGIN_NET_H
#define BACKENDS_NCCLGIN_NET_H

#include "backends/abi/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GIC_NCCLGIN_NET_FILE "gic_ncclgin_net.so"
#define GIC_NCCLGIN_NET_SYMBOL "gic_ncclgin_net_v1"

struct gic_ncclgin_attr {
    uint32_t struct_size;
    const char *type; /* "gdaki" or "proxy" */
    uint32_t depth;   /* blocks per send queue, and CQEs: a power of two, 64..32768; 0: as NCCL's own, 128 */
};

struct gic_ncclgin_net {
    uint32_t struct_size;
    /* Collective: makes this rank's NIC from open->device and open->nic_config. Once until release(); open->comm must
     * last as long. With engine=gpu the engine is on the device on demand, since NCCL waits for the device. */
    int (*prepare)(const struct gic_open *open, const struct gic_ncclgin_attr *attr);
    /* Around a measured launch: in between the GPU engine stays on the device. `fine`: the launch was; then -EIO where a
     * queue's doorbell and its record differ. */
    int (*begin)(void);
    int (*end)(int fine);
    /* While a launch runs that has failed (error() says so) or is to be stopped: NCCL's device code knows neither errors
     * nor a stop, and waits for ever for a CQE behind an error one. Ends such waits, on queues that have failed or, with
     * `all`, on every one; with type PROXY what NCCL's thread asks for counts as done. May be called again and again, by
     * a thread of its own. The run is lost, and nothing more is to be launched on these communicators. */
    int (*unblock)(int all);
    /* Zeroed memory for ncclCommWindowRegister that the engine and peers reach; freed by window_free, or release(). Host
     * memory has the same address for host and device. */
    int (*window_alloc)(uint64_t bytes, void **addr_p);
    int (*window_free)(void *addr);
    /* In the place of ncclCommWindowRegister, which takes no host memory. Collective: shows [addr, addr + bytes), which
     * window_alloc gave, to every GIN communicator there is, in the order in which NCCL connected them (by communicator,
     * then by context). handles_p[i] is what NCCL would put into ncclWindow_vidmem.ginWins; `count` must be their number. */
    int (*window_register)(void *addr, uint64_t bytes, void **handles_p, uint32_t count);
    int (*window_deregister)(void *addr); /* before window_free and before the communicators' end */
    /* 0, or -EIO: an error CQE (with queue pair, peer and syndrome), a call of NCCL that failed, or the engine ended. */
    int (*error)(void);
    /* As gic_backend.counters and .facts, over the queue pairs of all communicators. */
    int (*counters)(const struct gic_counter **counters_p, uint32_t *count_p);
    int (*facts)(const struct gic_kv **facts_p, uint32_t *count_p);
    /* From here on no peer reaches what this rank has registered: its next request is answered with an error CQE. */
    int (*withdraw)(void);
    /* After the last ncclCommDestroy or ncclCommAbort: stops and frees the NIC. */
    void (*release)(void);
    const char *(*last_error)(void);
};

#ifdef __cplusplus
}
#endif
#endif
