// What agents of one thread block tell each other of the queues they share (gda_sharing::block_*): in the block's own
// memory, a lock or a turn is handed on within the multiprocessor and not by way of L2.
//
// gda_queue has the same words, and has them between launches: a launch begins with their load and ends with their store.
// On threads of this machine, which all reach the same memory, the host does that, and gda_shared.block is where they lie.
#ifndef MINIGDA_GDA_BLOCK_CUH
#define MINIGDA_GDA_BLOCK_CUH

#include "minigda/gda_queue.cuh"

#if defined(__CUDACC__)

struct gda_block {
    gda_block_words words[GDA_BLOCK_QUEUES]; // as gda_shared.queues
    uint32_t left;                           // agents that have ended
};

GIC_DEVICE gda_block *gda_this_block() {
    __shared__ gda_block block;
    return &block;
}

// All threads of the block.
GIC_DEVICE void gda_block_enter(const gda_queue *queues, uint32_t n) {
    gda_block *b = gda_this_block();
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
        gda_words_copy(&b->words[i], &queues[i]);
    if (threadIdx.x == 0)
        b->left = 0;
    __syncthreads();
}
// One thread of each of `agents`, not all of which need be there at once: lanes of a warp end when they like.
GIC_DEVICE void gda_block_leave(gda_queue *queues, uint32_t n, uint32_t agents) {
    gda_block *b = gda_this_block();
    gic::fence_acq_rel<gic::Scope::block>();
    if (gic::fetch_add<gic::Scope::block>(&b->left, 1u) != agents - 1)
        return;
    gic::fence_acq_rel<gic::Scope::block>(); // the last one: what the others did is there
    GIC_ROLLED
    for (uint32_t i = 0; i < n; i++)
        gda_words_copy(&queues[i], &b->words[i]);
}

template <class H> GIC_DEVICE gda_block_words *gda_block_memory(const H &) { return gda_this_block()->words; }

#else

template <class H> GIC_DEVICE gda_block_words *gda_block_memory(const H &h) { return h.block; }

#endif

#endif
