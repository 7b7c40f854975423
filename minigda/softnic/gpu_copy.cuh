// GPU engine: big copies, which all warps of the engine share.
//
// Who has some puts them on the board as one job, takes chunks as everybody else does, and waits for those that others
// took. A ticket has the number of chunks beside the next one, so that a warp that comes late, when the job is done or
// its place has another, takes nothing or a chunk of that one, never what it does not know.
#ifndef SOFTNIC_GPU_COPY_CUH
#define SOFTNIC_GPU_COPY_CUH

#include "gpu_device.cuh"

namespace softnic_gpu {

constexpr uint32_t SHARE_FROM = 32768, CHUNK_MIN = 8192, CHUNK_MAX = 65536, COPIES = GPU_JOB_COPIES;

// Takes chunks of job `slot` until there are no more. All that was copied is visible before `done` says so.
GPU_FN bool job_work(gpu_board *board, uint32_t slot) {
    gpu_job *job = &board->jobs[slot];
    const uint32_t lane = lane_id();
    for (bool any = false;; any = true) {
        uint64_t ticket = 0;
        if (lane == 0)
            ticket = atomicAdd((unsigned long long *)&job->ticket, 1ull);
        ticket = __shfl_sync(ALL, ticket, 0);
        const uint32_t chunk = (uint32_t)ticket;
        if (chunk >= ticket >> 32)
            return any;
        fence_gpu(); // the owner's description of the job
        const uint32_t size = load32(&job->chunk);
        const uint32_t end = lane < COPIES ? load32(&job->copies[lane].end) : ~0u;
        const uint32_t which = __ffs(__ballot_sync(ALL, chunk < end)) - 1;
        const uint32_t first = which ? __shfl_sync(ALL, end, which - 1) : 0;
        const gpu_copy *copy = &job->copies[which];
        const uint64_t at = (uint64_t)(chunk - first) * size, left = load64(&copy->bytes) - at;
        copy_apart<8>(load64(&copy->to) + at, load64(&copy->from) + at, left < size ? left : size, lane);
        fence_warp(load32(&job->far));
        if (lane == 0)
            atomicAdd(&job->done, 1u);
    }
}

// Between two looks at its own queues: did others have something to do?
GPU_CALL bool help(gpu_board *board) {
    bool any = false;
    for (uint32_t w = 0; w < 4; w++)
        for (uint32_t bits = load32(&board->open[w]); bits; bits &= bits - 1)
            any |= job_work(board, w * 32 + __ffs(bits) - 1);
    return any;
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
    uint64_t size = (all / (warps * 4) + 2047) & ~(uint64_t)2047;
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
