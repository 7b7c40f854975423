/* Speed of the engine as ratios within one run. The engine is stepped from here (virtual time, no profile), so
 * that neither threads nor the scheduler take part. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 32, TARGET_BYTES = 4096 };

struct queue {
    uint8_t *sq;
    struct mlx5_dbr *dbr;
    uint32_t qpn;
    uint32_t posted; /* blocks announced so far */
    uint32_t built;  /* blocks written so far */
};

struct bench {
    struct softnic *nic;
    uint8_t *target;
    uint32_t key, queues, depth;
    struct queue *q;
    uint8_t *sq, *cqe, *dbr;
};

static double now(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static void must(int status) {
    if (status) {
        fprintf(stderr, "softnic_bench: %s\n", softnic_error());
        exit(1);
    }
}

static void *zeroed(size_t bytes) {
    void *p = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);
    if (!p) {
        fprintf(stderr, "softnic_bench: out of memory for %zu bytes\n", bytes);
        exit(1);
    }
    memset(p, 0, bytes);
    return p;
}

static void bench_make(struct bench *b, uint32_t queues, uint32_t depth) {
    char job[64];
    snprintf(job, sizeof job, "gic-bench-%d-%u", (int)getpid(), queues);
    struct softnic_attr attr = {
        .job = job, .nodes = 1, .clock = SOFTNIC_VIRTUAL, .watch = SOFTNIC_WATCH_DBR, .max_qps = queues};
    memset(b, 0, sizeof *b);
    b->queues = queues;
    b->depth = depth;
    must(softnic_create(&attr, &b->nic));
    must(softnic_mem_alloc(b->nic, TARGET_BYTES, (void **)&b->target));
    must(softnic_mr_register(b->nic, b->target, TARGET_BYTES, SOFTNIC_LOCAL_WRITE | SOFTNIC_REMOTE_WRITE,
                             &b->key));
    b->q = zeroed(queues * sizeof *b->q);
    b->sq = zeroed((size_t)queues * depth * MLX5_BB);
    b->cqe = zeroed((size_t)queues * MLX5_CQE);
    b->dbr = zeroed((size_t)queues * 64);
    for (uint32_t i = 0; i < queues; i++) {
        uint32_t cqn;
        struct queue *q = &b->q[i];
        q->sq = b->sq + (size_t)i * depth * MLX5_BB;
        q->dbr = (struct mlx5_dbr *)(void *)(b->dbr + (size_t)i * 64);
        struct softnic_cq_attr cq = {b->cqe + (size_t)i * MLX5_CQE, 1, 1, NULL};
        must(softnic_cq_create(b->nic, &cq, &cqn));
        struct softnic_qp_attr qp = {q->sq, depth, &q->dbr->snd, NULL, cqn};
        must(softnic_qp_create(b->nic, &qp, &q->qpn));
        must(softnic_qp_connect(b->nic, q->qpn, 0, 0));
    }
    softnic_advance(b->nic, 0);
}

static void bench_free(struct bench *b) {
    struct softnic_counters n;
    must(softnic_counters_get(b->nic, SOFTNIC_ALL_QPS, &n));
    uint64_t built = 0;
    for (uint32_t i = 0; i < b->queues; i++)
        built += b->q[i].posted;
    if (n.wqe_write_inline != built || n.error_cqes != 0) {
        fprintf(stderr, "softnic_bench: %llu WQEs served of %llu, %llu error CQEs\n",
                (unsigned long long)n.wqe_write_inline, (unsigned long long)built,
                (unsigned long long)n.error_cqes);
        exit(1);
    }
    softnic_destroy(b->nic);
    free(b->q);
    free(b->sq);
    free(b->cqe);
    free(b->dbr);
}

/* 8 B inline WRITEs, the last of every BATCH signaled. */
static void build(struct bench *b, struct queue *q, uint32_t blocks) {
    for (uint32_t i = 0; i < blocks; i++, q->built++) {
        uint8_t *block = q->sq + (size_t)(q->built % b->depth) * MLX5_BB;
        uint64_t value = q->built, to = (uintptr_t)b->target + q->built * 8 % TARGET_BYTES;
        mlx5_ctrl_set((void *)block, (uint16_t)q->built, MLX5_OP_RDMA_WRITE, 0, q->qpn, 3,
                      q->built % BATCH == BATCH - 1 ? MLX5_CTRL_CQ_UPDATE : 0);
        mlx5_raddr_set((void *)(block + 16), to, b->key);
        mlx5_inline_set((void *)(block + 32), 8);
        memcpy(block + 36, &value, 8);
    }
}

/* Seconds per WQE: every queue is given BATCH more, `visits` times. */
static double serve(struct bench *b, uint32_t visits) {
    for (uint32_t i = 0; i < b->queues; i++)
        build(b, &b->q[i], BATCH * visits);
    double start = now();
    for (uint32_t v = 0; v < visits; v++) {
        for (uint32_t i = 0; i < b->queues; i++) {
            b->q[i].posted += BATCH;
            __atomic_store_n(&b->q[i].dbr->snd, mlx5_dbr_value(b->q[i].posted), __ATOMIC_RELEASE);
        }
        softnic_advance(b->nic, 0);
    }
    return (now() - start) / ((double)b->queues * visits * BATCH);
}

/* The floor: read all of each block, store 8 bytes of it to where it points. */
static double bare(struct bench *b, uint32_t blocks) {
    struct queue *q = &b->q[0];
    build(b, q, blocks);
    uint32_t first = q->built - blocks;
    uint64_t sum = 0;
    double start = now();
    for (uint32_t i = 0; i < blocks; i++) {
        const uint64_t *w = (const void *)(q->sq + (size_t)((first + i) % b->depth) * MLX5_BB);
        uint64_t words[8];
        for (int k = 0; k < 8; k++) {
            words[k] = wqe_load(w + k);
            sum += words[k];
        }
        uint64_t value = words[4] >> 32 | words[5] << 32;
        __atomic_store_n((uint64_t *)(uintptr_t)mlx5_be64(words[2]), value, __ATOMIC_RELEASE);
    }
    double each = (now() - start) / blocks;
    volatile uint64_t sink = sum;
    (void)sink;
    q->built = first; /* not the NIC's */
    return each;
}

/* The quietest round: whatever else the machine does can only add time. */
static double best(const double *v, int n) {
    double low = v[0];
    for (int i = 1; i < n; i++)
        low = v[i] < low ? v[i] : low;
    return low;
}

static void verdict(const char *what, double ratio, const char *relation, double target, int ok) {
    printf("ratio %-44s %.2f target %s %.2f %s\n", what, ratio, relation, target, ok ? "ok" : "MISSED");
}

static void bench_bare(void) {
    enum { ROUNDS = 201, BLOCKS = 256 }; /* 16 KiB of WQEs: in the first-level cache */
    static double nic[ROUNDS], loop[ROUNDS];
    struct bench b;
    bench_make(&b, 1, BLOCKS);
    for (int i = 0; i < ROUNDS; i++) {
        loop[i] = bare(&b, BLOCKS);
        build(&b, &b.q[0], BLOCKS);
        double start = now();
        b.q[0].posted += BLOCKS;
        __atomic_store_n(&b.q[0].dbr->snd, mlx5_dbr_value(b.q[0].posted), __ATOMIC_RELEASE);
        softnic_advance(b.nic, 0);
        nic[i] = (now() - start) / BLOCKS;
    }
    double n = best(nic, ROUNDS), l = best(loop, ROUNDS);
    printf("8 B inline WRITE: softnic %.2f ns/WQE, bare loop %.2f ns/WQE\n", n * 1e9, l * 1e9);
    verdict("softnic rate / bare loop rate", l / n, ">=", 0.25, l / n >= 0.25);
    bench_free(&b);
}

static void bench_queues(void) {
    enum { ROUNDS = 15, SIZES = 4 };
    static const uint32_t queues[SIZES] = {1, 16, 256, 4096};
    double cost[SIZES][ROUNDS], mid[SIZES], low = 1e9, high = 0;
    struct bench b[SIZES];
    for (int s = 0; s < SIZES; s++)
        bench_make(&b[s], queues[s], queues[s] >= 32 ? BATCH : BATCH * 32);
    for (int i = 0; i < ROUNDS; i++)
        for (int s = 0; s < SIZES; s++)
            cost[s][i] = serve(&b[s], queues[s] >= 32 ? 1 : 32);
    for (int s = 0; s < SIZES; s++) {
        mid[s] = best(cost[s], ROUNDS);
        low = mid[s] < low ? mid[s] : low;
        high = mid[s] > high ? mid[s] : high;
        printf("%4u QPs, %d WQEs per visit: %.2f ns/WQE\n", queues[s], BATCH, mid[s] * 1e9);
        bench_free(&b[s]);
    }
    verdict("cost per WQE, dearest / cheapest QP count", high / low, "<=", 1.5, high / low <= 1.5);
}

int main(void) {
    bench_bare();
    bench_queues();
    return 0;
}
