/* What softnic's host side (gpu.c, plain C) and its CUDA half (gpu_engine.cu) share: the tables that the kernel works
 * on, and the calls by which the host side reaches the device.
 *
 * The host's structs (internal.h) are the state while the kernel is away. A launch writes them into these tables in
 * pinned memory and uploads those; when the kernel has left, the tables come back. Queue state that the kernel looks at
 * all the time is in struct gpu_qp, which lives in shared memory meanwhile.
 *
 * Addresses are uint64_t: the same virtual address in this process and on its device (unified addressing).
 */
#ifndef SOFTNIC_GPU_H
#define SOFTNIC_GPU_H

#include "softnic.h"
#include "wqe.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    GPU_MAX_SMS = 8,
    GPU_MAX_WARPS = 16,
    GPU_KEYS_SHARED = 512, /* slots of the key table that still go to shared memory */
    GPU_SHARED_MAX = 225 * 1024,
    GPU_HANDLE = 64, /* bytes of a CUDA IPC handle */
};

/* How memory of a device is handed to another process. FD: a process and a file descriptor that it keeps open. */
enum gpu_share { GPU_SHARE_IPC, GPU_SHARE_FD };

/* One slot of the key table, open addressing, linear; key 0: empty. Loaded by 16 bytes. */
struct gpu_key {
    uint32_t key, node;
    uint32_t access;
    uint32_t far; /* not in this device's memory: its order needs system scope */
    uint64_t va, len;
    uint64_t base; /* of va here; 0: this process cannot reach it */
    uint64_t rsvd;
} __attribute__((aligned(16)));
enum { GPU_BASE_DCT = 1 }; /* of a DCT, which has no bytes: it is there */

static inline
#if defined(__CUDACC__)
    __host__ __device__
#endif
        uint32_t
        gpu_key_slot(uint32_t node, uint32_t key) {
    return (key >> 8) * 5 + (key & 0xff) + node * 37;
}

/* Completion queue. prod is stored when the CQEs before it are visible. */
struct gpu_cq {
    uint64_t cqe, dbrec; /* dbrec 0: no overrun check */
    uint32_t depth, collapsed;
    uint32_t shared; /* more than one QP: prod is taken under the lock */
    uint32_t exists;
    uint32_t lock, overrun;
    uint32_t far, rsvd[3];
    uint64_t prod;
};

enum { GPU_ASK_NO, GPU_ASKED, GPU_ANSWERED };
enum gpu_next {
    GPU_NEXT_ANY,
    GPU_NEXT_LONG, /* likely, as one of the last visit was: no use in looking for words first */
    GPU_NEXT_ALONE, /* known or likely: it goes by itself, not beside others; up to ALONE_LAST: after visits of nothing
                     * but writes of one block */
    GPU_NEXT_ALONE_LAST = GPU_NEXT_ALONE + 3,
};
enum { GPU_WQES, GPU_SEGMENTS, GPU_WRITES, GPU_INLINES, GPU_CQES, GPU_DOORBELLS, GPU_COUNTS };

/* A QP while it is served. Counts are since the launch; gpu_cold has the rest. */
struct gpu_qp {
    uint64_t sq, dbrec;
    uint64_t watch, watch_last; /* the word that is polled, and what it was when last looked at */
    uint64_t cqe;
    uint64_t prod; /* of its CQ, where simple_cq or ring_cq */
    uint64_t payload;
    uint32_t mask, qpn;
    uint32_t cq, node;
    uint32_t cons;
    uint16_t seen;
    uint8_t state, syndrome;
    uint8_t again;     /* to be looked at without a new doorbell */
    uint8_t asked;     /* the host looks whether a key has come: GPU_ASK_NO... */
    uint8_t simple_cq; /* collapsed and its own */
    uint8_t far;       /* CQ or queue is not in this device's memory */
    uint8_t rewatch;   /* take the watched word as it is at the launch */
    uint8_t stopped;   /* timed: enum qp_stopped */
    uint8_t next;      /* enum gpu_next: what the next request is known or likely to be */
    uint8_t ring_cq;   /* a ring, its own, whose overrun nobody checks */
    uint32_t cq_mask;
    uint32_t dc; /* each request says where it goes; node is that of the last one */
    uint32_t count[GPU_COUNTS];
} __attribute__((aligned(16))); /* the keys lie behind the last one */

struct gpu_pend { /* as struct pend */
    uint64_t land_ps, done_ps;
    uint8_t blocks, syndrome;
    uint8_t opcode, fm_ce_se, ds;
    uint8_t rsvd[3];
    uint32_t bytes, rsvd2;
};

struct gpu_cold {
    struct softnic_counters n;
    uint64_t last_land_ps, last_done_ps, fetch_ps, response_ps;
    uint64_t pend, shadow; /* depth entries of struct gpu_pend, depth blocks; 0 untimed */
    uint32_t land, done;
    uint16_t fetched, rsvd[3];
};

struct gpu_pace {
    uint32_t lock, rsvd;
    uint64_t rate_free_ps, link_free_ps;
};

/* Big copies that any warp may take chunks of. ticket: chunks << 32 | next chunk. */
enum { GPU_JOB_COPIES = 32 }; /* as many as a visit has requests */
struct gpu_copy {
    uint64_t to, from, bytes;
    uint32_t end; /* chunks up to and with this copy */
    uint32_t rsvd;
};
struct gpu_job {
    uint64_t ticket;
    uint32_t chunk, far; /* bytes of a chunk */
    uint32_t done, rsvd[3];
    struct gpu_copy copies[GPU_JOB_COPIES]; /* an unused one has the end of the last */
};
struct gpu_board {
    uint32_t open[4]; /* bit i: jobs[i] has chunks left */
    uint32_t leave;   /* to all warps: go */
    uint32_t stirred; /* by any warp: it had something to do */
    uint32_t rsvd[10];
    struct gpu_job jobs[GPU_MAX_SMS * GPU_MAX_WARPS];
};

/* Between the host and the kernel; pinned host memory. One lane reads it every few microseconds. */
struct gpu_mail {
    uint32_t stop;      /* host: leave */
    uint32_t heartbeat; /* host: changes as long as it lives */
    uint32_t rsvd[14];
    uint32_t idle; /* kernel: nothing to do for args.idle_ns */
    uint32_t rsvd2[15];
    uint32_t here[GPU_MAX_SMS]; /* kernel: block i is on its multiprocessor */
    uint32_t ask;               /* kernel: a key is not in the table, look again */
    uint32_t reason;            /* kernel: why it left, GPU_LEFT_... */
    uint64_t now_ps;            /* kernel, virtual time: where it stopped */
    uint64_t first_ns;          /* kernel: globaltimer at its end */
};
enum { GPU_LEFT_ASKED = 1, GPU_LEFT_SILENCE, GPU_LEFT_DONE };

struct gpu_args {
    struct gpu_qp *qps;
    struct gpu_cold *cold;
    struct gpu_cq *cqs;
    const struct gpu_key *keys;
    const uint8_t *gone; /* by node: its NIC is no more */
    struct gpu_pace *pace;
    struct gpu_board *board;
    struct gpu_mail *mail;
    uint16_t *status; /* pinned, by QP: state | syndrome << 8, written when it changes */
    uint32_t qp_count, cq_count, key_mask, keys_shared;
    uint32_t self, warps;
    uint32_t bell; /* watch is the doorbell */
    uint32_t timed, strict;
    uint32_t is_virtual;
    uint32_t fresh; /* the key table needs no asking */
    uint32_t header_bytes;
    uint64_t now_ps, end_ps; /* virtual time */
    uint64_t first_ns;       /* real time: globaltimer at the NIC's time 0 */
    uint64_t silence_ns;     /* leave when the host has been quiet for so long */
    uint64_t idle_ns;        /* tell the host when there was nothing to do for so long; 0: do not */
    uint64_t message_ps, latency_ps, fetch_ps;
    double bandwidth;           /* bytes per second; 0: no limit */
} __attribute__((aligned(16))); /* the first thing in the shared memory of each block */

enum gpu_kind { GPU_MEM_NONE, GPU_MEM_HOST, GPU_MEM_OWN, GPU_MEM_OTHER };

/* The device as gpu.c sees it. 0 or a negative errno with softnic_fail's text. All may be called from any thread. */
struct gpu_dev;
struct gpu_ops {
    int (*open)(int device, struct gpu_dev **dev_p);
    void (*close)(struct gpu_dev *dev);
    int (*alloc)(struct gpu_dev *dev, size_t bytes, void **addr_p); /* zeroed; alone in its allocation */
    int (*free)(struct gpu_dev *dev, void *addr);
    int (*pinned)(struct gpu_dev *dev, size_t bytes, void **addr_p); /* zeroed */
    int (*pinned_free)(struct gpu_dev *dev, void *addr);
    int (*host_map)(struct gpu_dev *dev, void *addr, size_t bytes);
    int (*host_unmap)(struct gpu_dev *dev, void *addr);
    enum gpu_kind (*where)(struct gpu_dev *dev, const void *addr);
    uint64_t (*identity)(
        struct gpu_dev *dev); /* the same number in every process that uses this device; never 0 */
    /* What another process opens to reach [addr, addr + bytes): handle, and addr's offset behind what it gets. */
    int (*share)(struct gpu_dev *dev, void *addr, size_t bytes, enum gpu_share *how_p,
                 uint8_t handle[GPU_HANDLE], uint64_t *offset_p);
    int (*unshare)(struct gpu_dev *dev, enum gpu_share how, const uint8_t handle[GPU_HANDLE]);
    int (*open_shared)(struct gpu_dev *dev, enum gpu_share how, const uint8_t handle[GPU_HANDLE],
                       void **base_p);
    int (*close_shared)(struct gpu_dev *dev, enum gpu_share how, void *base);
    int (*reach)(struct gpu_dev *dev, const void *addr); /* memory of another device of this process */
    /* On the engine's stream, in order. */
    int (*upload)(struct gpu_dev *dev, void *to, const void *from, size_t bytes);
    int (*download)(struct gpu_dev *dev, void *to, const void *from, size_t bytes);
    int (*fill)(struct gpu_dev *dev, void *to, size_t pitch, int value, size_t width, size_t rows);
    int (*launch)(struct gpu_dev *dev, const struct gpu_args *args, uint32_t blocks, uint32_t shared_bytes);
    int (*done)(struct gpu_dev *dev); /* 1: the stream is empty, 0: not yet */
    uint32_t warp_bytes;              /* shared memory of each warp */
};

/* gpu_engine.cu where it is linked, else NULL. */
const struct gpu_ops *gpu_ops_linked(void);

__attribute__((format(printf, 2, 3))) int softnic_fail(int status, const char *fmt, ...);

#ifdef __cplusplus
}
#endif

#endif
