// The posting threads of gpu_engine_bench.cu. Each kernel is one queue a block and says in `times` when it began and ended.
#ifndef SOFTNIC_GPU_BENCH_KERNELS_CUH
#define SOFTNIC_GPU_BENCH_KERNELS_CUH

#include "gpu_rig.cuh"

namespace {

struct Times {
    uint64_t start, end, status;
};

__device__ uint64_t timer() {
    uint64_t t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}

// What write `i` of QP `qp` carries.
__host__ __device__ uint64_t value_of(uint32_t qp, uint32_t i) {
    return (uint64_t)(qp + 1) << 32 | (i * 2654435761u);
}

// One QP a block: `count` writes of 8 bytes inline, announced `batch` at a time, each batch with one CQE or each write
// with its own. Write i goes to word i % slots of the QP's slice.
__global__ void post_words(const rig::Queue *queues, uint32_t first, uint32_t count, uint32_t batch,
                           uint32_t signal_every, uint32_t slots, Times *times) {
    const rig::Queue q = queues[blockIdx.x];
    if (threadIdx.x)
        return;
    uint32_t cons = first, end = first + count;
    bool fine = true;
    times[blockIdx.x].start = timer();
    for (uint32_t i = first; i != end && fine; i++) {
        if (i - cons >= q.depth)
            fine = rig::wait(q, i - q.depth / 2, &cons);
        const uint32_t done = i + 1 - first;
        const bool last = done % batch == 0 || i + 1 == end;
        rig::write(q, i, q.remote + i % slots * 8, true, value_of(blockIdx.x, i), 8,
                   last || done % signal_every == 0);
        if (last)
            rig::ring(q, i + 1);
    }
    fine = fine && rig::wait(q, end, &cons);
    times[blockIdx.x].end = timer();
    times[blockIdx.x].status = fine ? 0 : 1;
}

// One QP a block: a write, its completion, again. The cycles of each in `took`.
__global__ void put_and_wait(const rig::Queue *queues, uint32_t first, uint32_t count, bool inline_,
                             uint32_t bytes, uint32_t *took, Times *times) {
    const rig::Queue q = queues[blockIdx.x];
    if (threadIdx.x)
        return;
    uint32_t cons = first;
    bool fine = true;
    times[blockIdx.x].start = timer();
    for (uint32_t i = first; i != first + count && fine; i++) {
        const uint64_t before = clock64();
        rig::write(q, i, q.remote, inline_, inline_ ? value_of(blockIdx.x, i) : q.local, bytes, true);
        rig::ring(q, i + 1);
        fine = rig::wait(q, i + 1, &cons);
        took[blockIdx.x * count + i - first] = (uint32_t)(clock64() - before);
    }
    times[blockIdx.x].end = timer();
    times[blockIdx.x].status = fine ? 0 : 1;
}

// What is not a small write, one at a time with its completion. READ and the fetching atomics leave what they fetched in
// `local`; every lap's result is looked at.
enum Op { READ8, READ4K, FETCH_ADD, SWAP, INLINE32, INLINE200, PUT_ADD, PUT4K_ADD, COUNTER, OPS };
const char *const op_names[OPS] = {"READ 8 B",
                                   "READ 4 KiB",
                                   "FETCH_ADD",
                                   "masked swap, 2 blocks",
                                   "inline 32 B, 2 blocks",
                                   "inline 200 B, 4 blocks",
                                   "64 B and FETCH_ADD",
                                   "4 KiB and FETCH_ADD",
                                   "8 B, WAIT and FETCH_ADD"};
__global__ void op_and_wait(const rig::Queue *queues, Op op, uint32_t count, uint32_t *took,
                            uint64_t *wrong) {
    const rig::Queue q = queues[0], companion = queues[1];
    const uint64_t counter = q.remote + 32768, mine = companion.local + 32768;
    uint64_t *old = (uint64_t *)q.local, *word = (uint64_t *)q.remote;
    uint32_t at = 0, cons = 0, at2 = 0, cons2 = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t expected = 0;
        const uint32_t first = at;
        const uint64_t before = clock64();
        switch (op) {
        case READ8:
        case READ4K:
            *(volatile uint64_t *)word = expected = i + 1;
            rig::read(q, at++, q.remote, q.local, op == READ8 ? 8 : 4096);
            break;
        case FETCH_ADD:
            rig::fetch_add(q, at++, counter, q.rkey, 3, q.local);
            expected = 3ull * i;
            break;
        case SWAP:
            rig::masked_swap(q, at, counter, i + 1, q.local);
            at += 2;
            expected = i;
            break;
        case INLINE32:
        case INLINE200:
            at += rig::write_inline(q, at, q.remote, i + 1, op == INLINE32 ? 32 : 200);
            old = (uint64_t *)(q.remote + (op == INLINE32 ? 24 : 192));
            expected = (uint64_t)(i + 1) << 32 | (i + 1);
            break;
        case PUT_ADD:
        case PUT4K_ADD:
            rig::write(q, at++, q.remote, false, q.local + 4096, op == PUT_ADD ? 64 : 4096, false);
            rig::fetch_add(q, at++, counter, q.rkey, 1, q.local);
            expected = i;
            break;
        default:
            rig::write(q, at++, q.remote, true, i, 8, true);
            rig::wait_for(companion, at2++, at - 1, q.cqn);
            rig::fetch_add(companion, at2++, mine, companion.lkey, 1, q.local);
            expected = i;
        }
        rig::ring(q, at);
        if (op == COUNTER)
            rig::ring(companion, at2);
        // A CQE names its WQE's first block.
        const uint32_t last = op == SWAP || op == INLINE32 || op == INLINE200 ? first : at - 1;
        if (!rig::wait(q, last + 1, &cons) || (op == COUNTER && !rig::wait(companion, at2, &cons2))) {
            *wrong = ~0ull;
            return;
        }
        took[i] = (uint32_t)(clock64() - before);
        *wrong += *(volatile uint64_t *)old != expected;
    }
}

// One QP a block: `count` writes of `bytes` each by pointer, all announced at once, to `places` places in turn.
__global__ void post_long(const rig::Queue *queues, uint32_t first, uint32_t count, uint32_t bytes,
                          uint32_t places, Times *times) {
    const rig::Queue q = queues[blockIdx.x];
    if (threadIdx.x)
        return;
    uint32_t cons = first;
    times[blockIdx.x].start = timer();
    for (uint32_t i = first; i != first + count; i++)
        rig::write(q, i, q.remote + (uint64_t)(i % places) * bytes, false, q.local, bytes,
                   i + 1 == first + count);
    rig::ring(q, first + count);
    const bool fine = rig::wait(q, first + count, &cons);
    times[blockIdx.x].end = timer();
    times[blockIdx.x].status = fine ? 0 : 1;
}

// One QP a block: `count` groups of `rows` writes of `bytes` each and an atomic, all announced at once.
__global__ void post_groups(const rig::Queue *queues, uint32_t first, uint32_t count, uint32_t rows,
                            uint32_t bytes, uint32_t places, Times *times) {
    const rig::Queue q = queues[blockIdx.x];
    if (threadIdx.x)
        return;
    const uint64_t counter = q.remote + (uint64_t)places * bytes;
    uint32_t cons = first, at = first;
    times[blockIdx.x].start = timer();
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t r = 0; r < rows; r++)
            rig::write(q, at++, q.remote + (uint64_t)((i * rows + r) % places) * bytes, false, q.local, bytes,
                       false);
        rig::fetch_add(q, at++, counter, q.rkey, 1, q.local + (uint64_t)places * bytes);
    }
    rig::ring(q, at);
    const bool fine = rig::wait(q, at, &cons);
    times[blockIdx.x].end = timer();
    times[blockIdx.x].status = fine ? 0 : 1;
}

} // namespace

#endif
