/* Responder, the part that is worth inlining: one piece written, and how bytes are stored. */
#ifndef SOFTNIC_RESPONDER_H
#define SOFTNIC_RESPONDER_H

#include "internal.h"

#include <string.h>

static inline int aligned(const void *p, uint32_t bytes) { return ((uintptr_t)p & (bytes - 1)) == 0; }

/* A naturally aligned word that somebody polls must never be seen half written. */
static inline void store_bytes(uint8_t *to, const uint8_t *from, uint32_t bytes) {
    if (LIKELY(bytes == 8 && aligned(to, 8))) {
        uint64_t v;
        memcpy(&v, from, 8);
        __atomic_store_n((uint64_t *)(void *)to, v, __ATOMIC_RELEASE);
    } else if (bytes == 4 && aligned(to, 4)) {
        uint32_t v;
        memcpy(&v, from, 4);
        __atomic_store_n((uint32_t *)(void *)to, v, __ATOMIC_RELEASE);
    } else if (bytes == 2 && aligned(to, 2)) {
        uint16_t v;
        memcpy(&v, from, 2);
        __atomic_store_n((uint16_t *)(void *)to, v, __ATOMIC_RELEASE);
    } else {
        /* Orders this payload behind the QP's earlier ones; its own successors release it. Source and target
         * may overlap when a QP is connected to its own node. */
        __atomic_thread_fence(__ATOMIC_RELEASE);
        memmove(to, from, bytes);
    }
}

/* Reads one word of memory that others change: whole, where alignment allows. */
static inline void load_store(uint8_t *to, const uint8_t *from, uint32_t bytes) {
    if (bytes == 8 && aligned(from, 8)) {
        uint64_t v = __atomic_load_n((const uint64_t *)(const void *)from, __ATOMIC_ACQUIRE);
        store_bytes(to, (const uint8_t *)&v, 8);
    } else {
        store_bytes(to, from, bytes);
    }
}

/* A WRITE of one piece, pointer or inline: the local side is checked first. */
static inline int responder_write_one(struct worker *w, const struct qp *qp, const struct wqe *wqe) {
    int syndrome = 0;
    const uint8_t *from = wqe->first.data;
    if (!from) {
        from = mr_get(w, w->nic->node, wqe->first.lkey, wqe->first.addr, wqe->bytes, 0, &syndrome);
        if (UNLIKELY(!from))
            return MLX5_SYND_LOCAL_PROT;
    }
    if (UNLIKELY(wqe->bytes == 0))
        return 0;
    uint8_t *to = mr_get(w, qp->node, wqe->rkey, wqe->raddr, wqe->bytes, SOFTNIC_REMOTE_WRITE, &syndrome);
    if (UNLIKELY(!to))
        return syndrome;
    if (LIKELY(wqe->is_inline && wqe->bytes == 8 && aligned(to, 8)))
        __atomic_store_n((uint64_t *)(void *)to, wqe_inline_first8(from), __ATOMIC_RELEASE);
    else if (wqe->is_inline)
        store_bytes(to, from, wqe->bytes);
    else
        load_store(to, from, wqe->bytes);
    return 0;
}

/* The same for what wqe_decode_small() took apart. */
static inline int responder_write_small(struct worker *w, const struct qp *qp, const uint64_t *words,
                                        const struct wqe_small *small) {
    int syndrome = 0;
    const uint8_t *from = (const uint8_t *)(words + 4) + 4; /* behind the length */
    if (!small->is_inline) {
        from = mr_get(w, w->nic->node, small->lkey, small->addr, small->bytes, 0, &syndrome);
        if (UNLIKELY(!from))
            return MLX5_SYND_LOCAL_PROT;
    }
    uint8_t *to =
        mr_get(w, qp->node, small->rkey, small->raddr, small->bytes, SOFTNIC_REMOTE_WRITE, &syndrome);
    if (UNLIKELY(!to))
        return syndrome;
    if (!small->is_inline)
        load_store(to, from, small->bytes);
    else if (LIKELY(small->bytes == 8 && aligned(to, 8)))
        __atomic_store_n((uint64_t *)(void *)to, wqe_inline_first8(from), __ATOMIC_RELEASE);
    else
        store_bytes(to, from, small->bytes);
    return 0;
}

/* 0, or the syndrome of the error CQE. */
int responder_execute(struct worker *w, struct qp *qp, const struct wqe *wqe, const uint64_t *words);

static inline int responder_run(struct worker *w, struct qp *qp, const struct wqe *wqe,
                                const uint64_t *words) {
    if (LIKELY(wqe->action == WQE_WRITE && wqe->pieces == 1))
        return responder_write_one(w, qp, wqe);
    return responder_execute(w, qp, wqe, words);
}

#endif
