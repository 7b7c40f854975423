/* What the parts of softnic share. softnic.h is the public face.
 *
 * Who touches what: a QP, its watch and its counters belong to one worker; control calls change them only
 * while the workers are paused. CQs are written by the workers of their QPs, under a lock once they have more
 * than one QP. The shared segment of a node is written by its owner alone and read by everybody.
 *
 * Deregistration: a key is made invalid first; then the owner waits until every worker of every node has left
 * the pass it was in (shm_worker.epoch is odd inside a pass). A worker looks a key up again in every pass, so
 * after that no one holds an address it got through the dead key.
 */
#ifndef SOFTNIC_INTERNAL_H
#define SOFTNIC_INTERNAL_H

#include "softnic.h"
#include "wqe.h"

#include <pthread.h>
#include <stdint.h>

enum {
    MAX_WORKERS = 64,
    MAX_MEMS = 1024,
    MAX_NODES = 4096,
    MAX_DEPTH = 32768,
    QPN_BASE = 0x100,
    CQN_BASE = 0x80,
    MR_CACHE = 256,     /* power of two */
    VISIT_BLOCKS = 256, /* basic blocks of one QP served before the next QP has its turn */
    NO_MEM = UINT32_MAX,
    ACCESS_DCT = 1 << 16, /* an entry that is a DCT: va is its key, and there is no memory */
};

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define PS_PER_NS 1000u

/* ---- shared between processes: fixed layout, checked when mapped ---- */

struct shm_worker {
    uint64_t epoch; /* odd: inside a pass */
    uint8_t rsvd[56];
};

enum shm_kind { SHM_HOST, SHM_GPU_IPC, SHM_GPU_FD };

struct shm_mem {
    uint64_t bytes;
    uint32_t id;        /* 0: free; never used twice */
    uint32_t kind;      /* enum shm_kind: a file of its own name, or device memory behind handle */
    uint64_t offset;    /* GPU: behind what the handle opens */
    uint8_t handle[64]; /* GPU: as enum gpu_share has it */
};

/* `tag` is serial << 32 | key, 0 while the entry is unused; the rest does not change under one tag. */
struct shm_mr {
    uint64_t tag;
    uint64_t va, len;
    uint64_t mem_offset;
    uint32_t mem_slot; /* NO_MEM: private memory of the owner's process */
    uint32_t mem_id;
    uint32_t access;
    uint32_t rsvd;
    uint64_t addr; /* the owner's address; va is what WQEs say */
    uint64_t rsvd2;
};

enum shm_state { SHM_READY = 0x59444552, SHM_GONE = 0x454e4f47 };
#define SHM_MAGIC 0x33434e54464f53ull /* "SOFTNC3" */

struct shm_node {
    uint64_t magic;
    uint64_t token; /* random per process: same token and pid = same address space */
    uint32_t state;
    uint32_t node;
    uint32_t max_mrs;
    uint32_t workers;
    int32_t pid;
    uint32_t rsvd;
    uint64_t generation; /* grows with every change of mems and mrs */
    uint64_t built_ns;   /* GPU engine: CLOCK_MONOTONIC before it read the keys it has; 0: CPU engine */
    uint64_t device;     /* GPU engine: which one it is, for everybody; 0: CPU engine */
    struct shm_worker worker[MAX_WORKERS];
    struct shm_mem mems[MAX_MEMS];
    struct shm_mr mrs[];
};
static_assert(sizeof(struct shm_mr) == 64, "one MR per cache line");
static_assert(sizeof(struct shm_worker) == 64, "one epoch per cache line");
static_assert(offsetof(struct shm_node, worker) == 64, "epochs do not share the header's line");

/* ---- private to the process ---- */

struct mapping { /* of a peer's memory */
    struct mapping *next;
    uint32_t mem_slot, mem_id;
    uint64_t bytes;
    uint8_t *base;
    uint8_t *opened; /* GPU: what the handle gave; NULL: host memory */
    uint32_t kind;   /* enum shm_kind */
};

struct attached { /* where a peer's SOFTNIC_PEER_MAPPED region is in this process */
    struct attached *next;
    uint64_t tag; /* of the entry when it was attached: a later user of the slot has another one */
    uint8_t *base;
};

struct peer {
    struct shm_node *shm;
    size_t shm_bytes;
    uint32_t max_mrs; /* as its file's size allows, not as it says */
    struct mapping *maps;
    struct attached *attached;
};

/* A looked-up key. Valid while *src still holds tag. */
struct mr_entry {
    const uint64_t *src;
    uint64_t tag;
    uint64_t va, len;
    uint8_t *base;
    uint32_t node, key, access;
    uint32_t rsvd;
};

struct cq {
    uint8_t *cqe;
    const uint32_t *dbrec;
    uint32_t depth, cqn;
    uint32_t collapsed, users;
    uint32_t lock, overrun;
    uint64_t prod; /* CQEs written so far */
    uint32_t far;  /* GPU engine: not in its device's memory */
};

/* One accepted WQE of a timed profile, kept at the slot of its first block. */
struct pend {
    uint64_t land_ps, done_ps;
    uint8_t blocks, syndrome;
    uint8_t opcode, fm_ce_se, ds;
    uint32_t bytes;
};

/* Nothing more is fetched until what is pending is complete and the QP goes to the error state. */
enum qp_stopped { STOPPED_NOT, STOPPED_BAD_WQE, STOPPED_OVERRUN };

struct qp {
    const uint8_t *sq;
    uint32_t mask, qpn;
    const uint32_t *dbrec;
    const uint64_t *bell;
    struct cq *cq;
    uint32_t node;
    uint32_t cons;    /* next block to fetch, free-running */
    uint16_t seen;    /* producer index of the doorbell record when last looked at */
    uint8_t state;    /* enum softnic_qp_state */
    uint8_t active;   /* is in its worker's active list */
    uint8_t stopped;  /* timed: enum qp_stopped */
    uint8_t syndrome; /* of the first error since reset; 0: none */
    uint8_t connected;
    uint8_t dc;       /* each request says where it goes; node is that of the last one */
    uint8_t av;       /* segments of the address vector of the WQE under way */
    uint16_t fetched; /* timed: `seen` that fetch_ps belongs to */
    /* timed: blocks [done, land) wait for their CQE, [land, cons) for their landing */
    uint32_t land, done;
    struct pend *pend;
    uint8_t *shadow;                                            /* the fetched blocks, at their slots */
    uint64_t last_land_ps, last_done_ps, fetch_ps, response_ps; /* response: of reads and atomics */
    uint32_t remote_qpn;
    uint32_t index;
    struct softnic_counters n __attribute__((aligned(64)));
} __attribute__((aligned(64)));

struct qp_status {
    uint32_t state, syndrome;
};

struct watch {
    const void *word;
    uint64_t last;
};

struct worker {
    struct softnic *nic;
    uint32_t index;
    int started;
    pthread_t thread;
    uint32_t held;  /* hold_seq of the last hold it answered */
    uint32_t count; /* of watch and qps */
    struct watch *watch;
    struct qp **qps;
    struct qp **active;
    uint32_t active_count;
    uint64_t now_ps; /* of this pass */
    uint64_t work;   /* things done, to tell an idle pass */
    struct mr_entry cache[MR_CACHE];
    struct wqe_av av; /* of the WQE under way, of a DC QP; and its words without it */
    uint64_t words[WQE_MAX_WORDS];
} __attribute__((aligned(64)));

struct mem {
    uint8_t *addr;
    size_t bytes;
    uint32_t id;
    uint32_t kind; /* enum shm_kind */
    int borrowed;  /* the caller's own */
};

struct trace {
    struct softnic_trace *records;
    uint64_t capacity;
    uint64_t next;  /* counts on past capacity: the rest is lost */
    uint16_t marks; /* so far */
};

struct pace {
    uint32_t lock;
    uint64_t rate_free_ps, link_free_ps;
};

struct softnic {
    char *job;
    uint32_t node, nodes;
    enum softnic_clock clock;
    enum softnic_watch watch;
    struct softnic_profile profile;
    int timed;
    uint64_t message_ps; /* between two messages */
    uint64_t start_ns, now_ps;
    uint32_t max_qps, max_cqs, max_mrs;
    uint32_t qp_count, cq_count;
    struct qp **qps;
    struct cq **cqs;
    struct worker *workers;
    uint32_t worker_count;
    uint32_t stop, hold, hold_seq;
    int held_by_user, running;
    struct shm_node *shm;
    size_t shm_bytes;
    struct mem mems[MAX_MEMS];
    uint32_t next_mem_id, next_mr;
    struct shm_mr *mrs; /* what was published, in memory that no peer can write */
    uint32_t mr_serial;
    uint8_t *mr_variant;
    uint8_t *mr_busy;         /* slot is taken, or its grace period never ended */
    pthread_mutex_t map_lock; /* peers[].maps, peers[].attached */
    struct peer *peers;
    struct pace pace;
    struct trace trace;
    struct gpu *gpu;               /* NULL: the CPU engine */
    struct softnic_counters ended; /* of QPs that were destroyed */
    struct softnic *next;          /* registry of this process */
};

/* nic.c */
__attribute__((format(printf, 2, 3))) int softnic_fail(int status, const char *fmt, ...);
uint64_t nic_clock_ps(const struct softnic *nic);
uint64_t nic_monotonic_ns(void);
int nic_all_here(const struct softnic *nic); /* do all nodes of the job live in this process? */
/* Address of private memory of another NIC of this process, NULL when that MR is gone. */
/* Holds the kernels of all NICs of this process: what allocates or frees on a device waits for them. The process'
 * NICs are made, used and ended by calls that do not overlap. */
enum { GPU_NICS = 64 };
struct gpu_nics {
    struct softnic *nic[GPU_NICS];
    uint32_t count;
};
void nic_pause_gpus(struct gpu_nics *held);
void nic_unpause_gpus(const struct gpu_nics *held);
uint8_t *nic_private_memory(const struct softnic *nic, uint32_t node, uint32_t mr, uint64_t tag);
void nic_pause(struct softnic *nic);
void nic_unpause(struct softnic *nic);
void spin_pause(uint32_t polls);
void lock_take(uint32_t *lock);
void lock_drop(uint32_t *lock);

/* shm.c */
int shm_node_create(struct softnic *nic);
void shm_node_destroy(struct softnic *nic);
int peer_open(struct softnic *nic, uint32_t node); /* 0, -ENXIO */
void peer_close(struct softnic *nic, struct peer *peer);
void peer_map_all(struct softnic *nic, uint32_t node); /* what it has registered so far */
int shm_grace(struct softnic *nic, uint64_t timeout_ns);
int shm_memory_create(struct softnic *nic, uint32_t id, size_t bytes, uint8_t **addr_p);
void shm_memory_destroy(struct softnic *nic, struct mem *mem);
void shm_changed(struct softnic *nic); /* for those who keep copies of the tables */
uint8_t *peer_memory(struct softnic *nic, uint32_t node, uint32_t mem_slot, uint32_t mem_id, uint64_t offset,
                     uint64_t bytes);

/* mr.c */
/* The memory behind `bytes` at `va` under `key` of `node`, or NULL and the syndrome for a remote request. */
uint8_t *mr_resolve(struct worker *w, uint32_t node, uint32_t key, uint64_t va, uint64_t bytes,
                    uint32_t access, int *syndrome_p);

/* 0 when `node` has the DCT and it has this key, else the syndrome. */
int dct_check(const struct softnic *nic, uint32_t node, uint32_t dctn, uint64_t dc_key);

/* The entry of `key`, as one: 0 when the slot holds another key. */
int mr_entry_read(const struct shm_mr *table, uint32_t limit, uint32_t key, struct shm_mr *mr);
/* This process' address of a region of any node, NULL when it has none. */
uint8_t *mr_base(struct softnic *nic, uint32_t node, uint32_t key, const struct shm_mr *mr);

/* uar.c */
int uar_scan(struct worker *w);
void uar_watch(struct worker *w, struct qp *qp);
void uar_rewatch(struct worker *w, const struct qp *qp);
void uar_unwatch(struct worker *w, struct qp *qp);

/* requester.c */
/* Serves a QP: 1 when it must be looked at again without a new doorbell. next: whose WQEs come after. */
int requester_serve(struct worker *w, struct qp *qp, const struct qp *next);

/* completer.c */
/* 0 when the CQ overran: the CQE is lost and the QP in the error state. */
int completer_cqe(struct worker *w, struct qp *qp, uint16_t index, uint8_t opcode, uint32_t bytes,
                  int syndrome);
void completer_fail(struct worker *w, struct qp *qp, uint16_t index, uint8_t opcode, int syndrome);

/* qp.c */
void qp_free(struct qp *qp); /* NULL is fine */

/* worker.c */
int worker_pass(struct worker *w); /* did it do anything? */
uint64_t worker_next_ps(const struct worker *w);
int workers_start(struct softnic *nic);
void workers_stop(struct softnic *nic);

/* gpu.c */
int gpu_create(struct softnic *nic, const struct softnic_attr *attr);
void gpu_destroy(struct softnic *nic);
int gpu_start(struct softnic *nic);
void gpu_stop(struct softnic *nic);
void gpu_pause(struct softnic *nic);
void gpu_unpause(struct softnic *nic);
void gpu_relaunch(struct softnic *nic);     /* ends the residence of now, if there is one */
void gpu_keys_changed(struct softnic *nic); /* otherwise than by a generation */
int gpu_keys_map(struct softnic *nic);      /* as of now; the kernel is away */
void gpu_advance(struct softnic *nic, uint64_t end_ps);
int gpu_qp_check(const struct softnic *nic, const struct softnic_qp_attr *attr);
int gpu_qp_added(struct softnic *nic, struct qp *qp);
void gpu_qp_free(struct softnic *nic, uint32_t index);
void gpu_qp_call(struct softnic *nic, const struct qp *qp); /* it may have been rung before it was ready */
void gpu_qp_rewatch(struct softnic *nic, const struct qp *qp);
/* While the kernel runs; 0: struct qp has it. */
int gpu_qp_status(const struct softnic *nic, const struct qp *qp, uint32_t *state_p, uint32_t *syndrome_p);
int gpu_cq_init(struct softnic *nic, struct cq *cq);
int gpu_mr_check(const struct softnic *nic, const void *addr, size_t bytes);
int gpu_memory_alloc(struct softnic *nic, size_t bytes, void **addr_p);
void gpu_memory_free(struct softnic *nic, void *addr);
int gpu_memory_share(struct softnic *nic, void *addr, size_t bytes, struct shm_mem *area);
void gpu_memory_unshare(struct softnic *nic, const struct shm_mem *area);
uint8_t *gpu_memory_open(struct softnic *nic, const struct shm_mem *area);
void gpu_memory_close(struct softnic *nic, uint32_t kind, uint8_t *base);
int gpu_host_map(struct softnic *nic, void *addr, size_t bytes);
void gpu_host_unmap(struct softnic *nic, void *addr);

/* gpu_keeper.c */
int demand_check(const struct softnic_attr *attr);

/* pace.c */
void pace_message(struct softnic *nic, struct qp *qp, const struct wqe *wqe, uint64_t fetched_ps,
                  struct pend *pend);

/* trace.c */
void trace_doorbell(struct worker *w, const struct qp *qp);
void trace_wqe(struct worker *w, const struct qp *qp, uint16_t index, const struct wqe *wqe);
void trace_cqe(struct worker *w, const struct qp *qp, uint16_t index, uint8_t cqe_opcode, int syndrome);
void trace_mark(struct softnic *nic); /* the workers are paused */

/* The cached answer for a key, or NULL: then mr_resolve() looks it up. */
static inline struct mr_entry *mr_slot(struct worker *w, uint32_t node, uint32_t key) {
    return &w->cache[((key >> 8) + node * 37) & (MR_CACHE - 1)];
}
static inline uint8_t *mr_get(struct worker *w, uint32_t node, uint32_t key, uint64_t va, uint64_t bytes,
                              uint32_t access, int *syndrome_p) {
    const struct mr_entry *e = mr_slot(w, node, key);
    if (LIKELY(e->key == key && e->node == node && e->src &&
               __atomic_load_n(e->src, __ATOMIC_ACQUIRE) == e->tag)) {
        uint64_t offset = va - e->va;
        if (LIKELY((e->access & access) == access && offset <= e->len && bytes <= e->len - offset))
            return e->base + offset;
    }
    return mr_resolve(w, node, key, va, bytes, access, syndrome_p);
}

#endif
