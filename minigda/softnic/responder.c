/* Responder: checks a request against the keys of both sides and moves the bytes.
 *
 * Order owed to the driver: what one QP did becomes visible in order, at the latest by its CQE. Small writes
 * land as one store with release order, atomics are one read-modify-write for all NICs of the host.
 */
#include "responder.h"

#include <string.h>

/* Where the local pieces are. */
struct place {
    uint8_t *at;
    uint32_t bytes;
};

static int local_places(struct worker *w, const struct wqe *wqe, const uint64_t *words, uint32_t access,
                        struct place *places) {
    uint32_t segment = wqe->segment;
    for (uint32_t i = 0; i < wqe->pieces; i++) {
        struct wqe_piece piece;
        int syndrome = wqe_piece_next(words, wqe->ds, &segment, &piece);
        if (syndrome)
            return syndrome;
        places[i].bytes = piece.bytes;
        if (piece.data) {
            places[i].at = (uint8_t *)(uintptr_t)piece.data;
            continue;
        }
        places[i].at = mr_get(w, w->nic->node, piece.lkey, piece.addr, piece.bytes, access, &syndrome);
        if (!places[i].at)
            return MLX5_SYND_LOCAL_PROT;
    }
    return 0;
}

/* Both sides are checked before the first byte moves, the local one first. */
static int move_pieces(struct worker *w, const struct qp *qp, const struct wqe *wqe, const uint64_t *words) {
    struct place places[WQE_MAX_PIECES];
    int read = wqe->action == WQE_READ, syndrome;
    syndrome = local_places(w, wqe, words, read ? SOFTNIC_LOCAL_WRITE : 0, places);
    if (syndrome || wqe->bytes == 0)
        return syndrome;
    uint8_t *remote = mr_get(w, qp->node, wqe->rkey, wqe->raddr, wqe->bytes,
                             read ? SOFTNIC_REMOTE_READ : SOFTNIC_REMOTE_WRITE, &syndrome);
    if (!remote)
        return syndrome;
    for (uint32_t i = 0; i < wqe->pieces; i++) {
        if (read)
            load_store(places[i].at, remote, places[i].bytes);
        else
            load_store(remote, places[i].at, places[i].bytes);
        remote += places[i].bytes;
    }
    return 0;
}

static uint64_t atomic_8(const struct wqe *wqe, uint64_t *word) {
    uint64_t old = __atomic_load_n(word, __ATOMIC_ACQUIRE), next;
    while (wqe_atomic_apply(wqe, old, &next) &&
           !__atomic_compare_exchange_n(word, &old, next, 0, __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE))
        ;
    return old;
}

static uint32_t atomic_4(const struct wqe *wqe, uint32_t *word) {
    uint32_t old = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    uint64_t next;
    while (wqe_atomic_apply(wqe, old, &next) &&
           !__atomic_compare_exchange_n(word, &old, (uint32_t)next, 0, __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE))
        ;
    return old;
}

/* The old value comes back in host order for 8 bytes and big-endian for 4: so the hardware does, and the
 * device code of NVSHMEM swaps accordingly. */
static int atomic_one(struct worker *w, const struct qp *qp, const struct wqe *wqe) {
    int syndrome = 0;
    uint8_t *result = mr_get(w, w->nic->node, wqe->first.lkey, wqe->first.addr, wqe->operand,
                             SOFTNIC_LOCAL_WRITE, &syndrome);
    if (!result)
        return MLX5_SYND_LOCAL_PROT;
    uint8_t *word =
        mr_get(w, qp->node, wqe->rkey, wqe->raddr, wqe->operand, SOFTNIC_REMOTE_ATOMIC, &syndrome);
    if (!word)
        return syndrome;
    if (wqe->raddr % wqe->operand != 0 || !aligned(word, wqe->operand))
        return MLX5_SYND_REMOTE_INVAL_REQ;
    if (wqe->operand == 8) {
        uint64_t old = atomic_8(wqe, (uint64_t *)(void *)word);
        store_bytes(result, (const uint8_t *)&old, 8);
    } else {
        uint32_t old = mlx5_be32(atomic_4(wqe, (uint32_t *)(void *)word));
        store_bytes(result, (const uint8_t *)&old, 4);
    }
    return 0;
}

int responder_execute(struct worker *w, struct qp *qp, const struct wqe *wqe, const uint64_t *words) {
    switch (wqe->action) {
    case WQE_WRITE:
        return move_pieces(w, qp, wqe, words);
    case WQE_READ:
        return move_pieces(w, qp, wqe, words);
    case WQE_ATOMIC:
        return atomic_one(w, qp, wqe);
    case WQE_TOUCH: {
        struct place places[WQE_MAX_PIECES];
        int syndrome = local_places(w, wqe, words, 0, places);
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        return syndrome;
    }
    default:
        return 0;
    }
}
