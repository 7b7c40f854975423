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

/* DEMAND: a QP's doorbell and what it was when the kernel was about to look at all records. */
struct bell {
    const uint64_t *word;
    uint64_t last;
};

struct gpu {
    const struct gpu_ops *ops;
    struct gpu_dev *dev;
    uint32_t sms, warps, strict;
    int demand;
    uint64_t idle_ns; /* DEMAND */
    uint64_t patience_ns;
    uint32_t wanting;     /* control calls that want the lock: the keeper lets them */
    pthread_mutex_t lock; /* all below; also held while the kernel comes and goes */
    pthread_cond_t changed;
    pthread_t keeper;
    int keeping, stop_keeper;
    uint32_t holds;
    int started, resident;
    int stay;           /* DEMAND: softnic_stay */
    int called;         /* DEMAND: something may be waiting that no doorbell tells of */
    int progress;       /* the residence that ended last has done something */
    struct bell *bells; /* DEMAND: by QP */
    uint64_t launches;
    int broken; /* negative errno: the kernel failed, or never left and the device must not be touched */
    char broken_text[200];
    struct table qps, cold, cqs, keys, gone, board, pace;
    struct gpu_mail *mail;
    uint16_t *status;
    struct side *side;
    uint32_t key_slots, key_count;
    uint32_t
        unmapped; /* a key of the last build whose memory is shared and could not be opened here; 0: none */
    uint64_t first_ns;
    uint64_t *generation; /* by node, as of the key table */
    int stale;            /* the key table must be built anew whatever the generations say */
};

/* gpu.c; the lock is held */
int gpu_launch(struct softnic *nic, uint64_t end_ps);
int gpu_leave(struct softnic *nic);   /* 0 also when the kernel is away */
int gpu_collect(struct softnic *nic); /* waits until it has left by itself */
int gpu_arrive(const struct gpu *g);

/* gpu_keeper.c */
int gpu_keeper_start(struct softnic *nic);
void gpu_keeper_stop(struct softnic *nic);
void demand_look(
    struct softnic *nic); /* before the kernel looks at all records, for the first or last time */
int demand_rung(const struct softnic *nic);   /* since then */
int demand_called(const struct softnic *nic); /* has it to come? */
int demand_qp_check(const struct softnic *nic, const struct softnic_qp_attr *attr);
int demand_left(const struct softnic *nic); /* after it left: must it come back without a doorbell? */

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
