/* Host side of the GPU engine: its state, and the tables that the kernel takes along (gpu_tables.c). */
#ifndef SOFTNIC_GPU_HOST_H
#define SOFTNIC_GPU_HOST_H

#include "gpu.h"
#include "internal.h"

/* A table in pinned memory and its twin on the device. */
struct table {
    void *host, *dev;
    size_t bytes;
};

/* What a QP has beside struct qp. */
struct side {
    uint64_t watch_last;
    uint8_t rewatch, asked;
    void *pend, *shadow;
};

struct gpu {
    const struct gpu_ops *ops;
    struct gpu_dev *dev;
    uint32_t sms, warps, strict;
    pthread_mutex_t lock; /* all below; also held while the kernel comes and goes */
    pthread_cond_t changed;
    pthread_t keeper;
    int keeping, stop_keeper;
    uint32_t holds;
    int started, resident;
    int broken; /* negative errno: the kernel failed, or never left and the device must not be touched */
    char broken_text[200];
    struct table qps, cold, cqs, keys, gone, board, pace;
    struct gpu_mail *mail;
    uint16_t *status;
    struct side *side;
    uint32_t key_slots, key_count;
    uint64_t first_ns;
    uint64_t *generation; /* by node, as of the key table */
    int stale;            /* the key table must be built anew whatever the generations say */
};

int gpu_table_make(struct gpu *g, struct table *t, size_t bytes);
void gpu_table_free(struct gpu *g, struct table *t);
/* On the engine's stream. */
int gpu_table_up(struct gpu *g, const struct table *t, size_t bytes);
int gpu_table_down(struct gpu *g, const struct table *t, size_t bytes);

/* Between the host's structs and the tables' host side. */
void gpu_queues_out(struct softnic *nic);
void gpu_queues_in(struct softnic *nic);

int gpu_keys_stale(const struct softnic *nic); /* has a node's table changed since the last build? */
int gpu_keys_build(struct softnic *nic);       /* and upload */

#endif
