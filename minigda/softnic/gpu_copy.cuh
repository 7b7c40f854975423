// GPU engine: big copies, which all warps of the engine share.
//
// Who has some puts them on the board as one job, takes chunks as everybody else does, and waits for those that others
// took. A ticket has the number of chunks beside the next one, so that a warp that comes late, when the job is done or
// its place has another, takes nothing or a chunk of that one, never what it does not know.
#ifndef SOFTNIC_GPU_COPY_CUH
#define SOFTNIC_GPU_COPY_CUH

#include "gpu_device.cuh"

#ifndef GPU_COPY_UNROLL
#define GPU_COPY_UNROLL 8
#endif

namespace softnic_gpu {

// A lane has UNROLL units of 16 bytes on their way at once; chunks are whole rounds of a warp.
constexpr int UNROLL = GPU_COPY_UNROLL;
constexpr uint32_t ROUND = UNROLL * 512;
constexpr uint32_t SHARE_FROM = 32768, CHUNK_MIN = 8192 / ROUND * ROUND, CHUNK_MAX = 65536 / ROUND * ROUND,
                   COPIES = GPU_JOB_COPIES;

GPU_FN uint64_t take_chunk(gpu_job *job, uint32_t lane) {
    uint64_t ticket = 0;
    if (lane == 0)
        ticket = atomicAdd((unsigned long long *)&job->ticket, 1ull);
    return __shfl_sync(ALL, ticket, 0);
}

// Takes chunks of job `slot` until there are no more. All that was copied is visible before `done` says so, and until then
// the job stays what it is, so its description is looked at once.
GPU_FN bool job_work(gpu_board *board, uint32_t slot) {
    gpu_job *job = &board->jobs[slot];
    const uint32_t lane = lane_id();
    uint64_t ticket = take_chunk(job, lane);
    if ((uint32_t)ticket >= ticket >> 32)
        return false;
    fence_gpu(); // the owner's description
    const gpu_copy *mine = &job->copies[lane < COPIES ? lane : COPIES - 1];
    const uint32_t size = load32(&job->chunk), far = load32(&job->far);
    const uint32_t end = lane < COPIES ? load32(&mine->end) : ~0u;
    const uint64_t to = load64(&mine->to), from = load64(&mine->from), bytes = load64(&mine->bytes);
    uint32_t taken = 0;
    do {
        const uint32_t chunk = (uint32_t)ticket;
        const uint32_t which = __ffs(__ballot_sync(ALL, chunk < end)) - 1;
        const uint32_t before = __shfl_sync(ALL, end, which - 1), first = which ? before : 0;
        const uint64_t at = (uint64_t)(chunk - first) * size, left = __shfl_sync(ALL, bytes, which) - at;
        copy_apart<UNROLL>(__shfl_sync(ALL, to, which) + at, __shfl_sync(ALL, from, which) + at,
                           left < size ? left : size, lane);
        taken++;
        ticket = take_chunk(job, lane);
    } while ((uint32_t)ticket < ticket >> 32);
    fence_warp(far);
    if (lane == 0)
        atomicAdd(&job->done, taken);
    return true;
}

// Between two looks at its own queues: chunks of one of the open jobs. `open`: the board's word that lane 0 to 3 has just
// looked at. Which job depends on who asks, so that the warps do not all go to the same one first.
GPU_CALL void help(gpu_board *board, uint32_t index, uint32_t open) {
    const uint32_t mine = __popc(lane_id() < 4 ? open : 0), all = __reduce_add_sync(ALL, mine);
    if (all == 0)
        return;
    uint32_t skip = index % all;
    for (uint32_t w = 0; w < 4; w++) {
        uint32_t bits = __shfl_sync(ALL, open, w);
        const uint32_t count = __popc(bits);
        if (skip >= count) {
            skip -= count;
            continue;
        }
        for (; skip > 0; skip--)
            bits &= bits - 1;
        job_work(board, w * 32 + __ffs(bits) - 1);
        return;
    }
}

// The copies of the first `count` lanes, which do not touch each other, by the warp with this number in the engine and
// all others.
GPU_CALL void copy_shared(const gpu_args &a, uint32_t index, uint32_t count, uint64_t to, uint64_t from,
                          uint64_t bytes, bool far) {
    const uint32_t lane = lane_id(), warps = a.warps * gridDim.x;
    gpu_job *job = &a.board->jobs[index];
    uint64_t all = lane < count ? bytes : 0;
    for (int d = 1; d < (int)COPIES; d *= 2)
        all += __shfl_xor_sync(ALL, all, d);
    all = __shfl_sync(ALL, all, 0);
    uint64_t size = (all / (warps * 4) + ROUND - 1) / ROUND * ROUND;
    size = size < CHUNK_MIN ? CHUNK_MIN : size > CHUNK_MAX ? CHUNK_MAX : size;
    uint32_t end = lane < count ? (uint32_t)((bytes + size - 1) / size) : 0;
    for (int d = 1; d < (int)COPIES; d *= 2) {
        const uint32_t before = __shfl_up_sync(ALL, end, d);
        end += lane >= (uint32_t)d ? before : 0;
    }
    const uint32_t chunks = __shfl_sync(ALL, end, COPIES - 1);
    if (lane < COPIES) {
        gpu_copy *copy = &job->copies[lane];
        store64(&copy->to, to);
        store64(&copy->from, from);
        store64(&copy->bytes, bytes);
        store32(&copy->end, end);
    }
    if (lane == 0) {
        store32(&job->chunk, (uint32_t)size);
        store32(&job->far, far);
        store32(&job->done, 0);
    }
    fence_warp(false);
    if (lane == 0) {
        atomicExch((unsigned long long *)&job->ticket, (unsigned long long)chunks << 32);
        atomicOr(&a.board->open[index / 32], 1u << index % 32);
    }
    __syncwarp();
    job_work(a.board, index);
    if (lane == 0) {
        atomicAnd(&a.board->open[index / 32], ~(1u << index % 32));
        while (load32_acquire(&job->done) != chunks)
            ;
    }
    __syncwarp();
}

// One copy, of any size and kind.
GPU_CALL void copy_big(const gpu_args &a, uint32_t index, uint64_t to, uint64_t from, uint64_t bytes,
                       bool far) {
    if (bytes < SHARE_FROM || a.warps * gridDim.x == 1 || !apart(to, from, bytes))
        copy_warp(to, from, bytes);
    else
        copy_shared(a, index, 1, to, from, bytes, far);
}

} // namespace softnic_gpu

#endif
