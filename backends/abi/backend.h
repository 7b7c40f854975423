/* The C ABI between the gic harness and one communication stack.
 *
 * A backend is a shared object that exports one symbol, `gic_backend_v1`, of type `const struct gic_backend`.
 * The harness loads it in a fresh process per rank, so a backend may keep global state (one that keeps none can say
 * so: GIC_CAP_RANKS_IN_PROCESS) and may crash without taking anything along. Nothing but the types below crosses the
 * boundary: no C++, no CUDA, no exceptions.
 *
 * Status: 0, or a negative errno. After a negative status `last_error` holds one line with the value that was
 * wrong. -ENOTSUP (from probe, open or run) means "cannot run here": the harness records a skipped row with
 * that line as the reason; every other negative status is a failure.
 *
 * Threads: the harness calls one session from one OS thread at a time, always the same one.
 * Ownership: the caller owns what it passes in, for the duration of the call only, except gic_open.comm and
 * gic_open.stop, which live until close. Pointers handed out by the backend stay valid until the next call of
 * the same function on that session, or close.
 */
#ifndef GIC_ABI_BACKEND_H
#define GIC_ABI_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version has two halves, and gic loads no plugin that has another one of either. GIC_ABI_STRUCTS is that of the
 * types and rules of this file. GIC_ABI_TABLES is that of what a workload's Go half and its kernel tell each other
 * through them: the names and the meaning of gic_run.args, the layout of gic_run.blobs, the names of gic_series. A
 * plugin carries the kernels of the day it was built; over the tables of another day they would move the wrong bytes.
 * TestTablesHaveAVersion (harness/cli) fails when tables change and GIC_ABI_TABLES does not. */
#define GIC_ABI_STRUCTS 2u
#define GIC_ABI_TABLES 1u
#define GIC_ABI_VERSION (GIC_ABI_STRUCTS << 16 | GIC_ABI_TABLES)
#define GIC_BACKEND_SYMBOL "gic_backend_v1"

/* What a backend can do. A capability that is declared must work: the conformance suite skips a case only for
 * a capability that is not declared. The words are those of device.cuh. */
enum gic_cap {
    GIC_CAP_PUT = 1u << 0,
    GIC_CAP_PUT_VALUE = 1u << 1,
    GIC_CAP_PUT_SIGNAL = 1u << 2,
    GIC_CAP_SIGNAL = 1u << 3,
    GIC_CAP_WAIT = 1u << 4,
    GIC_CAP_GET = 1u << 5,
    GIC_CAP_FETCH_ADD = 1u << 6,
    GIC_CAP_FENCE = 1u << 7,
    GIC_CAP_FLUSH = 1u << 8,
    GIC_CAP_QUIET = 1u << 9,
    GIC_CAP_GPU_VISIBLE = 1u << 10,
    GIC_CAP_NOTIFY = 1u << 11,
    /* Dispatch and combine of the workload moe as whole operations of the library's own, in place of the words above:
     * gic_run is then that of workloads/moe/operation.go. */
    GIC_CAP_MOE = 1u << 12,
    GIC_CAP_HOST_DEVICE = 1u << 16, /* device threads may be threads of this machine (device=host) */
    GIC_CAP_CUDA_DEVICE = 1u << 17, /* device threads may be CUDA threads (device=cuda) */
    GIC_CAP_NIC_SOFT = 1u << 18,    /* runs over softnic (nic=soft) */
    GIC_CAP_NIC_MLX5 = 1u << 19,    /* runs over a real ConnectX (nic=mlx5) */
    GIC_CAP_NIC_NONE = 1u << 20,    /* runs without a NIC, over NVLink or shared memory (nic=none) */
    /* Sessions of several ranks of a case may be open in one process, each called from a thread of its own. */
    GIC_CAP_RANKS_IN_PROCESS = 1u << 21,
};

/* The operations a workload's message list is written in; index of gic_backend.lowering. */
enum gic_op {
    GIC_OP_PUT,         /* a put of any size */
    GIC_OP_PUT_VALUE,   /* a put of a value of at most 8 bytes */
    GIC_OP_SIGNAL,      /* a signal without payload */
    GIC_OP_PUT_SIGNAL,  /* a put with a signal behind it */
    GIC_OP_GET,         /* a read */
    GIC_OP_FETCH_ADD,   /* an atomic whose old value comes back */
    GIC_OP_NOTIFY_WORD, /* notify of exactly 8 bytes */
    GIC_OP_NOTIFY,      /* notify of more than 8 bytes */
    GIC_OP_COUNT
};

/* NIC work that one operation becomes. Path proof: after a run, the NIC's counted writes, reads and atomics
 * must equal the workload's list times this table. */
struct gic_lowering {
    uint32_t writes, reads, atomics;
};

struct gic_kv {
    const char *key;
    const char *value;
};

/* One configuration key that a backend takes, for --help, validation and `gic list`. */
struct gic_key {
    const char *name;    /* "batch" */
    const char *value;   /* default, "1" */
    const char *allowed; /* "a|b|c" for a set, "1..256" for an integer range, "" for free text */
    const char *help;    /* one line */
};

/* Collective exchange among the ranks of this case, provided by the harness. Blocking, with the harness' own
 * deadline; returns 0 or a negative errno (-ECANCELED when the case is being stopped). */
struct gic_comm {
    void *arg;
    int (*allgather)(void *arg, const void *mine, void *all, size_t bytes); /* all: nranks * bytes, by rank */
    int (*barrier)(void *arg);
};

struct gic_open {
    uint32_t struct_size;
    int32_t rank, nranks;
    const char *job;    /* unique per case and process run: prefix of every shared-memory name ("gic-...") */
    const char *device; /* "host", or "cuda:N" */
    const char *nic;    /* "soft", "none", or the name of an RDMA device */
    /* soft: "engine", "profile", "threads", "watch", "doorbell", "trace", "sms", "writes", "queues", "window" */
    const struct gic_kv *nic_config;
    uint32_t nic_config_count;
    const struct gic_kv *config; /* every key of gic_backend.keys, defaults filled in */
    uint32_t config_count;
    const struct gic_comm *comm;
    const volatile uint32_t
        *stop;           /* becomes non-zero when the case must end; every device spin looks at it */
    uint64_t timeout_ns; /* a single device spin longer than this returns -ETIMEDOUT */
};

struct gic_blob {
    const char *name;
    const void *data;
    size_t bytes;
};

/* One call of a workload's kernel: its scalar inputs by name, its tables as blobs (little-endian arrays). */
struct gic_run {
    uint32_t struct_size;
    const char *workload;
    const struct gic_kv *args;
    uint32_t arg_count;
    const struct gic_blob *blobs;
    uint32_t blob_count;
};

/* A named list of numbers. Times are nanoseconds, sizes bytes: the unit says it ("ns", "B", "1"). */
struct gic_series {
    const char *name;
    const char *unit;
    const double *values;
    size_t count;
};

struct gic_result {
    const struct gic_series *series;
    uint32_t series_count;
};

/* Monotonic since open. `exact`: the value after a run is a function of the case alone, so records compare it
 * by equality; otherwise it depends on timing (adaptive batching, say). */
struct gic_counter {
    const char *name;
    const char *unit;
    uint64_t value;
    int32_t exact;
};

struct gic_session;

struct gic_backend {
    const char *name;    /* first, for logs: "minigda" */
    const char *version; /* of the backend */
    uint32_t struct_size;
    uint32_t abi; /* GIC_ABI_VERSION */
    uint32_t caps;
    const struct gic_key *keys;
    uint32_t key_count;
    struct gic_lowering lowering[GIC_OP_COUNT];

    /* Can this backend run with these parameters on this machine? Creates nothing, contacts nobody.
     * 0, -ENOTSUP with the first thing missing, -EINVAL for a configuration that makes no sense. */
    int (*probe)(const struct gic_open *open);

    /* Collective: every rank of the case calls it. Makes queues and connects them. */
    int (*open)(const struct gic_open *open, struct gic_session **session_p);
    void (*close)(struct gic_session *session);

    /* Collective: allocate and register this rank's window of `bytes`, the same on every rank, zeroed, and
     * learn the peers'. A second call replaces the first. All offsets in device.cuh count from its start. */
    int (*window)(struct gic_session *session, uint64_t bytes);

    /* Copy into / out of this rank's own window from the host. Never inside a timed region. -ERANGE outside.
     */
    int (*write)(struct gic_session *session, uint64_t offset, const void *src, size_t bytes);
    int (*read)(struct gic_session *session, uint64_t offset, void *dst, size_t bytes);

    /* Run one kernel to its end on this rank. On return all that this rank posted is complete. -ETIMEDOUT
     * when a device spin passed its deadline, -ECANCELED when stopped, -EIO on an error CQE. */
    int (*run)(struct gic_session *session, const struct gic_run *run, struct gic_result *result_p);

    /* NIC counters of this rank. Names used across backends: wqes, wqe_write, wqe_write_inline, wqe_read,
     * wqe_atomic, wqe_nop, doorbells, cqes, error_cqes, wqe_bytes, payload_bytes, qps_used. */
    int (*counters)(struct gic_session *session, const struct gic_counter **counters_p, uint32_t *count_p);

    /* What was really created and loaded, as key=value: "qps", "sq_depth", "cq", "workers", "engine",
     * "runnable_threads", "library.<name>.version|path", ... */
    int (*facts)(struct gic_session *session, const struct gic_kv **facts_p, uint32_t *count_p);

    /* Text of the last error on the calling thread. Never NULL. */
    const char *(*last_error)(void);
};

#ifdef __cplusplus
}
#endif
#endif
