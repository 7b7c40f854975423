// For the GPU engine's bench and real-time test: a NIC's queues in device memory, and the threads that post to them.
// WQEs are made here from 16-byte stores as mini-gda's are, without its bookkeeping.
#ifndef SOFTNIC_GPU_RIG_CUH
#define SOFTNIC_GPU_RIG_CUH

#include "minigda/mlx5/mlx5.h"
#include "softnic.h"

#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <vector>

#define CUDA(call)                                                                                           \
    do {                                                                                                     \
        const cudaError_t e_ = (call);                                                                       \
        if (e_ != cudaSuccess) {                                                                             \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(e_));           \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)
#define NIC(call)                                                                                            \
    do {                                                                                                     \
        const int s_ = (call);                                                                               \
        if (s_) {                                                                                            \
            fprintf(stderr, "%s:%d: %s = %d: %s\n", __FILE__, __LINE__, #call, s_, softnic_error());         \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

namespace rig {

// Before the first CUDA call of a program: a kernel that is loaded when it is first launched waits until nothing runs, and
// the NIC's runs already.
inline void load_at_once() { setenv("CUDA_MODULE_LOADING", "EAGER", 1); }

struct Queue { // as a posting thread sees it
    uint8_t *sq;
    uint32_t *dbr;
    uint64_t *bell;
    const mlx5_cqe *cqe; // collapsed
    uint32_t depth, qpn, cqn, lkey, rkey;
    uint64_t local, remote; // its own slice of both
};

__device__ inline void store(void *p, uint64_t lo, uint64_t hi) {
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(p), "l"(lo), "l"(hi) : "memory");
}
__device__ inline uint64_t words(uint32_t first, uint32_t second) { return first | (uint64_t)second << 32; }

// WQE `index`: an RDMA_WRITE of `bytes`, inline of `value` or (inline_ false) by pointer.
__device__ inline void write(const Queue &q, uint32_t index, uint64_t to, bool inline_, uint64_t from,
                             uint32_t bytes, bool signal) {
    uint8_t *at = q.sq + (uint64_t)(index & (q.depth - 1)) * MLX5_BB;
    store(at, words(mlx5_ctrl_word0((uint16_t)index, MLX5_OP_RDMA_WRITE, 0), mlx5_ctrl_word1(q.qpn, 3)),
          mlx5_be32(signal ? MLX5_CTRL_CQ_UPDATE : 0));
    store(at + 16, mlx5_be64(to), mlx5_be32(q.rkey));
    if (inline_)
        store(at + 32, words(mlx5_be32(bytes | MLX5_INLINE), (uint32_t)from), from >> 32);
    else
        store(at + 32, words(mlx5_be32(bytes), mlx5_be32(q.lkey)), mlx5_be64(from));
}
__device__ inline uint8_t *block(const Queue &q, uint32_t index) {
    return q.sq + (uint64_t)(index & (q.depth - 1)) * MLX5_BB;
}
__device__ inline void control(uint8_t *at, const Queue &q, uint32_t index, uint32_t opcode, uint32_t opmod,
                               uint32_t ds, bool signal) {
    store(
        at,
        words(mlx5_ctrl_word0((uint16_t)index, (uint8_t)opcode, (uint8_t)opmod), mlx5_ctrl_word1(q.qpn, ds)),
        mlx5_be32(signal ? MLX5_CTRL_CQ_UPDATE : 0));
}
__device__ inline void pointer(uint8_t *at, uint32_t bytes, uint32_t key, uint64_t addr) {
    store(at, words(mlx5_be32(bytes), mlx5_be32(key)), mlx5_be64(addr));
}
__device__ inline void read(const Queue &q, uint32_t index, uint64_t from, uint64_t to, uint32_t bytes) {
    uint8_t *at = block(q, index);
    control(at, q, index, MLX5_OP_RDMA_READ, 0, 3, true);
    store(at + 16, mlx5_be64(from), mlx5_be32(q.rkey));
    pointer(at + 32, bytes, q.lkey, to);
}
__device__ inline void fetch_add(const Queue &q, uint32_t index, uint64_t word, uint32_t key, uint64_t add,
                                 uint64_t old) {
    uint8_t *at = block(q, index);
    control(at, q, index, MLX5_OP_ATOMIC_FA, 0, 4, true);
    store(at + 16, mlx5_be64(word), mlx5_be32(key));
    store(at + 32, mlx5_be64(add), 0);
    pointer(at + 48, 8, q.lkey, old);
}
// Two blocks: with all masks set, the word becomes `swap`.
__device__ inline void masked_swap(const Queue &q, uint32_t index, uint64_t word, uint64_t swap,
                                   uint64_t old) {
    uint8_t *at = block(q, index);
    control(at, q, index, MLX5_OP_MASKED_CS, MLX5_OPMOD_MASKED_8, 5, true);
    store(at + 16, mlx5_be64(word), mlx5_be32(q.rkey));
    store(at + 32, mlx5_be64(swap), 0);
    store(at + 48, ~0ull, 0);
    pointer(block(q, index + 1), 8, q.lkey, old);
}
// `bytes` (a multiple of 4) of inline data, all words `value`, over as many blocks as it takes: returns those.
__device__ inline uint32_t write_inline(const Queue &q, uint32_t index, uint64_t to, uint32_t value,
                                        uint32_t bytes) {
    const uint32_t segments = (4 + bytes + 15) / 16, ds = 2 + segments;
    control(block(q, index), q, index, MLX5_OP_RDMA_WRITE, 0, ds, true);
    store(block(q, index) + 16, mlx5_be64(to), mlx5_be32(q.rkey));
    const uint64_t pair = words(value, value);
    for (uint32_t s = 0; s < segments; s++)
        store(block(q, index + (2 + s) / 4) + (2 + s) % 4 * 16,
              s ? pair : words(mlx5_be32(bytes | MLX5_INLINE), value), pair);
    return (ds + 3) / 4;
}
__device__ inline void wait_for(const Queue &q, uint32_t index, uint32_t which, uint32_t cqn) {
    uint8_t *at = block(q, index);
    control(at, q, index, MLX5_OP_WAIT, 0, 2, false);
    store(at + 16, 0, words(mlx5_be32(which), mlx5_be32(cqn)));
}
__device__ inline void ring(const Queue &q, uint32_t prod) {
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(q.dbr), "r"(mlx5_dbr_value(prod)) : "memory");
    asm volatile("st.relaxed.sys.u64 [%0], %1;" ::"l"(q.bell), "l"(mlx5_doorbell_value(prod, q.qpn))
                 : "memory");
}
// Index behind the last completed WQE, or ~0 after an error. cons: what it was when last looked at.
__device__ inline uint32_t completed(const Queue &q, uint32_t cons) {
    uint32_t tail;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(tail) : "l"(&q.cqe->wqe_counter) : "memory");
    if (tail >> 28 == MLX5_CQE_OP_INVALID)
        return cons;
    if (tail >> 28 != MLX5_CQE_OP_REQ)
        return ~0u;
    const uint16_t ahead = (uint16_t)((mlx5_be32(tail) >> 16) + 1 - cons);
    return ahead <= q.depth ? cons + ahead : cons; // else of before `cons`
}
// Waits for WQE `end - 1`; false after an error or 10 s.
__device__ inline bool wait(const Queue &q, uint32_t end, uint32_t *cons) {
    uint64_t start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    for (uint32_t polls = 0; (int32_t)(end - *cons) > 0; polls++) {
        *cons = completed(q, *cons);
        if (*cons == ~0u)
            return false;
        if (polls % 256 != 255)
            continue;
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
        if (now - start > 10000000000ull)
            return false;
    }
    return true;
}

struct Setup {
    int device = 0, peer_device = 0;
    uint32_t qps = 1, depth = 1024, sms = 1, warps = 0;
    bool bell_on_host = false;
    size_t slice = 65536; // bytes of each QP, on both sides
    softnic_writes writes = SOFTNIC_WRITES_RUNS;
    softnic_profile profile = {};
    softnic_presence presence = SOFTNIC_WINDOW;
    uint32_t idle_us = 0, patience_ms = 0;
    bool last_to_self = false; // the last QP is connected to its own node
    uint32_t place =
        0; // where queues, records and CQEs lie within their memory, up to PLACES: near or far ones take longer
};

enum { PLACES = 16, SQ_STEP = 8192, LINE_STEP = 5 * 128 };

// Two NICs of one process; node 0 posts to node 1.
class Pair {
  public:
    explicit Pair(const Setup &s) : setup(s) {
        static int n;
        char job[64];
        snprintf(job, sizeof job, "gic-rig-%d-%d", (int)getpid(), n++);
        for (uint32_t i = 0; i < 2; i++) {
            softnic_attr a{};
            a.job = job;
            a.node = i;
            a.nodes = 2;
            a.watch = SOFTNIC_WATCH_DBR;
            a.engine = SOFTNIC_ENGINE_GPU;
            a.device = i ? s.peer_device : s.device;
            a.sms = s.sms;
            a.warps = s.warps;
            a.writes = s.writes;
            a.profile = s.profile;
            a.presence = s.presence;
            a.idle_us = s.idle_us;
            a.patience_ms = s.patience_ms;
            a.max_qps = s.qps + 1;
            NIC(softnic_create(&a, &nic[i]));
            NIC(softnic_mem_alloc_gpu(nic[i], s.slice * s.qps, (void **)&mem[i]));
            NIC(softnic_mr_register(nic[i], mem[i], s.slice * s.qps,
                                    SOFTNIC_LOCAL_WRITE | SOFTNIC_REMOTE_WRITE | SOFTNIC_REMOTE_READ |
                                        SOFTNIC_REMOTE_ATOMIC,
                                    &key[i]));
        }
        CUDA(cudaSetDevice(s.device));
        const size_t n_sq = (size_t)s.qps * s.depth * MLX5_BB + PLACES * SQ_STEP;
        const size_t lines = (size_t)s.qps * 128 + PLACES * LINE_STEP, line = s.place * LINE_STEP;
        CUDA(cudaMalloc(&sq_, n_sq));
        CUDA(cudaMalloc(&cq_, lines));
        CUDA(cudaMalloc(&dbr_, lines));
        CUDA(cudaMemset(sq_, 0xa5, n_sq));
        CUDA(cudaMemset(cq_, 0, lines));
        CUDA(cudaMemset(dbr_, 0, lines));
        if (s.bell_on_host)
            CUDA(cudaHostAlloc((void **)&bell_, lines, cudaHostAllocMapped | cudaHostAllocPortable));
        else
            CUDA(cudaMalloc(&bell_, lines));
        CUDA(cudaMemset(bell_, 0, lines));
        for (uint32_t i = 0; i < s.qps; i++) {
            Queue q{};
            q.sq = sq_ + s.place * SQ_STEP + (size_t)i * s.depth * MLX5_BB;
            q.dbr = (uint32_t *)(dbr_ + line + i * 128);
            q.bell = (uint64_t *)(bell_ + line + i * 128);
            q.cqe = (mlx5_cqe *)(cq_ + line + i * 128);
            q.depth = s.depth;
            q.lkey = key[0];
            q.rkey = key[1];
            q.local = (uint64_t)mem[0] + i * s.slice;
            q.remote = (uint64_t)mem[1] + i * s.slice;
            softnic_cq_attr cq{(void *)q.cqe, 1, 1, nullptr};
            NIC(softnic_cq_create(nic[0], &cq, &q.cqn));
            softnic_qp_attr qp{q.sq, s.depth, q.dbr, q.bell, q.cqn};
            NIC(softnic_qp_create(nic[0], &qp, &q.qpn));
            NIC(softnic_qp_connect(nic[0], q.qpn, s.last_to_self && i + 1 == s.qps ? 0 : 1, 0));
            queues.push_back(q);
        }
        NIC(softnic_peers_map(nic[0]));
        CUDA(cudaMalloc(&device_queues, sizeof(Queue) * s.qps));
        CUDA(cudaMemcpy(device_queues, queues.data(), sizeof(Queue) * s.qps, cudaMemcpyHostToDevice));
        CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        CUDA(cudaDeviceSynchronize());
    }
    ~Pair() {
        softnic_destroy(nic[0]);
        softnic_destroy(nic[1]);
        cudaSetDevice(setup.device);
        cudaStreamDestroy(stream);
        cudaFree(sq_);
        cudaFree(cq_);
        cudaFree(dbr_);
        if (setup.bell_on_host)
            cudaFreeHost(bell_);
        else
            cudaFree(bell_);
        cudaFree(device_queues);
    }
    softnic_counters counters() {
        softnic_counters n;
        NIC(softnic_counters_get(nic[0], SOFTNIC_ALL_QPS, &n));
        return n;
    }
    // Waits for the stream; false after 20 s, since a kernel that hangs must not hang the program.
    bool finish() {
        for (int i = 0; i < 2000000; i++) {
            const cudaError_t e = cudaStreamQuery(stream);
            if (e == cudaSuccess)
                return true;
            if (e != cudaErrorNotReady) {
                fprintf(stderr, "kernel: %s\n", cudaGetErrorString(e));
                return false;
            }
            usleep(10);
        }
        fprintf(stderr, "kernel: does not end\n");
        return false;
    }

    Setup setup;
    softnic *nic[2];
    uint8_t *mem[2];
    uint32_t key[2];
    std::vector<Queue> queues;
    Queue *device_queues;
    cudaStream_t stream;

  private:
    uint8_t *sq_, *cq_, *dbr_, *bell_;
};

} // namespace rig

#endif
