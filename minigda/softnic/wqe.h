/* The WQE interpreter: from the bytes of a send queue to what an engine has to do.
 *
 * Shared by every engine (CPU threads now, a CUDA kernel later), so it uses no library calls and knows
 * nothing of keys, peers or time. An engine fetches a WQE once into words of its own (the driver may be
 * changing the queue meanwhile), lets wqe_decode() check and take it apart, and then acts on `action`. The
 * only opcode switch is the one in wqe_decode().
 */
#ifndef SOFTNIC_WQE_H
#define SOFTNIC_WQE_H

#include "minigda/mlx5/mlx5.h"

/* What every WQE goes through is inlined into the engine's loop: a third of its cost otherwise. */
#if defined(__CUDACC__)
#define WQE_HOT MLX5_FN
#else
#define WQE_HOT static inline __attribute__((always_inline))
#endif
#if defined(__CUDA_ARCH__)
#define WQE_UNROLL _Pragma("unroll")
#elif defined(__CUDACC__) /* the host's pass of nvcc, which knows neither */
#define WQE_UNROLL
#else
#define WQE_UNROLL _Pragma("GCC unroll 8")
#endif

enum {
    WQE_BLOCK_WORDS = MLX5_BB / 8,
    WQE_MAX_BLOCKS = (MLX5_DS_MAX + 3) / 4,
    WQE_MAX_WORDS = WQE_MAX_BLOCKS * WQE_BLOCK_WORDS,
    WQE_MAX_PIECES = MLX5_DS_MAX - 2,
};

enum wqe_action {
    WQE_NOTHING,
    WQE_WAIT,   /* until CQ wait_cqn has more than wait_index CQEs */
    WQE_TOUCH,  /* read the local pieces, move nothing */
    WQE_WRITE,  /* local pieces -> raddr */
    WQE_READ,   /* raddr -> local pieces */
    WQE_ATOMIC, /* on raddr, old value -> the one local piece */
};

/* A run of local bytes: in memory (data == NULL) or in the WQE itself. */
struct wqe_piece {
    const uint8_t *data;
    uint32_t bytes;
    uint32_t lkey;
    uint64_t addr;
};

struct wqe {
    uint8_t opcode;
    uint8_t ds;
    uint8_t blocks;
    uint8_t fm_ce_se;
    uint8_t action;    /* enum wqe_action */
    uint8_t operand;   /* ATOMIC: bytes of the operand, 4 or 8 */
    uint8_t compare;   /* ATOMIC: compare and swap, else fetch and add */
    uint8_t is_inline; /* WRITE: some of the payload is in the WQE */
    uint8_t pieces;
    uint8_t segment; /* first piece's segment; wqe_piece_next() starts there */
    uint32_t bytes;  /* WRITE, READ: payload; ATOMIC: operand; TOUCH: 0 */
    uint32_t rkey;
    uint64_t raddr;
    struct wqe_piece first;
    /* ATOMIC compare: swap, compare and their masks; add: value and carry boundary. Host order. */
    uint64_t swap_add, compare_value, swap_mask, compare_mask, boundary;
    uint32_t wait_index, wait_cqn;
};

MLX5_FN uint64_t wqe_load(const uint64_t *p) {
#if defined(__CUDA_ARCH__)
    return *(const volatile uint64_t *)p;
#else
    return __atomic_load_n(p, __ATOMIC_RELAXED);
#endif
}

/* Words are fetched in memory order; halves are looked at as big-endian 32-bit fields. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
MLX5_FN uint32_t wqe_be_lo(uint64_t w) { return mlx5_be32((uint32_t)w); }
MLX5_FN uint32_t wqe_be_hi(uint64_t w) { return mlx5_be32((uint32_t)(w >> 32)); }
#else
MLX5_FN uint32_t wqe_be_lo(uint64_t w) { return (uint32_t)(w >> 32); }
MLX5_FN uint32_t wqe_be_hi(uint64_t w) { return (uint32_t)w; }
#endif
MLX5_FN uint64_t wqe_be64(uint64_t w) { return mlx5_be64(w); }

/* Each block is loaded once, whatever the driver does to it. `slot` is masked already. */
MLX5_FN void wqe_fetch_block(const uint8_t *sq, uint32_t slot, uint64_t *words) {
    const uint64_t *from = (const uint64_t *)(const void *)(sq + (size_t)slot * MLX5_BB);
    WQE_UNROLL
    for (int i = 0; i < WQE_BLOCK_WORDS; i++)
        words[i] = wqe_load(from + i);
}

/* What the control segment says, before it is trusted. */
struct wqe_head {
    uint16_t index;
    uint8_t opcode, opmod, ds, fm_ce_se;
    uint32_t qpn;
};
MLX5_FN struct wqe_head wqe_head(const uint64_t *words) {
    uint32_t w0 = wqe_be_lo(words[0]), w1 = wqe_be_hi(words[0]);
    struct wqe_head h;
    h.index = (uint16_t)(w0 >> 8);
    h.opcode = (uint8_t)w0;
    h.opmod = (uint8_t)(w0 >> 24);
    h.ds = (uint8_t)(w1 & 0x3f);
    h.qpn = w1 >> 8;
    h.fm_ce_se = (uint8_t)wqe_be_lo(words[1]);
    return h;
}

/* 0, or the syndrome when the WQE at block `index` of QP `qpn` cannot begin so. */
WQE_HOT int wqe_check_head(const struct wqe_head *head, uint32_t index, uint32_t qpn, uint32_t available) {
    if (head->index != (uint16_t)index || head->qpn != qpn || head->ds == 0 ||
        mlx5_ds_blocks(head->ds) > available)
        return MLX5_SYND_LOCAL_QP_OP;
    return 0;
}

/* Fetches the WQE at block `index` into words[WQE_MAX_WORDS]: 0, or the syndrome when the head cannot be
 * right. available: blocks that the doorbell record has announced from here on. */
WQE_HOT int wqe_fetch(const uint8_t *sq, uint32_t mask, uint32_t index, uint32_t qpn, uint32_t available,
                      uint64_t *words, struct wqe_head *head_p) {
    wqe_fetch_block(sq, index & mask, words);
    *head_p = wqe_head(words);
    int syndrome = wqe_check_head(head_p, index, qpn, available);
    if (syndrome)
        return syndrome;
    uint32_t blocks = mlx5_ds_blocks(head_p->ds);
    for (uint32_t b = 1; b < blocks; b++)
        wqe_fetch_block(sq, (index + b) & mask, words + b * WQE_BLOCK_WORDS);
    return 0;
}

/* The first 8 bytes of inline data, which begins in the middle of a word, as they are in memory. Words that
 * were stored just now are loaded as words: a load across two of them would have to wait for both. */
MLX5_FN uint64_t wqe_inline_first8(const uint8_t *data) {
    const uint64_t *w = (const uint64_t *)(const void *)(data - 4);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    return w[0] >> 32 | w[1] << 32;
#else
    return w[0] << 32 | w[1] >> 32;
#endif
}

/* The piece at segment *segment_p, which moves on: 0, or a syndrome when it does not fit the WQE. */
WQE_HOT int wqe_piece_next(const uint64_t *words, uint32_t ds, uint32_t *segment_p,
                           struct wqe_piece *piece_p) {
    const uint64_t *seg = words + *segment_p * 2;
    uint32_t count = wqe_be_lo(seg[0]);
    piece_p->bytes = count & MLX5_BYTE_COUNT;
    if (count & MLX5_INLINE) {
        uint32_t room = (ds - *segment_p) * MLX5_DS - 4;
        piece_p->data = (const uint8_t *)seg + 4;
        piece_p->lkey = 0;
        piece_p->addr = 0;
        if (piece_p->bytes > room)
            return MLX5_SYND_LOCAL_LENGTH;
        *segment_p += (4 + piece_p->bytes + MLX5_DS - 1) / MLX5_DS;
        return 0;
    }
    piece_p->data = NULL;
    piece_p->lkey = wqe_be_hi(seg[0]);
    piece_p->addr = wqe_be64(seg[1]);
    *segment_p += 1;
    /* A byte count of 0 is 2^31, more than one message can carry. */
    return piece_p->bytes == 0 || piece_p->bytes > MLX5_MESSAGE_MAX ? MLX5_SYND_LOCAL_LENGTH : 0;
}

/* Counts and checks the pieces from `segment` to the end. */
WQE_HOT int wqe_pieces(const uint64_t *words, uint32_t segment, struct wqe *wqe) {
    uint64_t bytes = 0;
    wqe->segment = (uint8_t)segment;
    wqe->pieces = 0;
    wqe->is_inline = 0;
    while (segment < wqe->ds) {
        struct wqe_piece piece;
        int syndrome = wqe_piece_next(words, wqe->ds, &segment, &piece);
        if (syndrome)
            return syndrome;
        if (wqe->pieces == 0)
            wqe->first = piece;
        wqe->is_inline |= piece.data != NULL;
        wqe->pieces++;
        bytes += piece.bytes;
    }
    if (bytes > MLX5_MESSAGE_MAX)
        return MLX5_SYND_LOCAL_LENGTH;
    wqe->bytes = (uint32_t)bytes;
    return 0;
}

/* A WRITE of one piece in one block: what nearly every small put is. */
struct wqe_small {
    uint64_t raddr;
    uint32_t rkey, bytes;
    uint64_t addr; /* pointer: local address */
    uint32_t lkey;
    uint8_t is_inline; /* the payload begins in the middle of word 4 */
};
/* 1 when the block is such a WRITE (what wqe_decode() makes of it is then the same), 0: let wqe_decode() look.
 * Words by constant index alone, so that an engine that has one in each of many lanes can keep them in registers.
 */
WQE_HOT int wqe_decode_small(const uint64_t *words, const struct wqe_head *head, struct wqe_small *small) {
    if (head->opcode != MLX5_OP_RDMA_WRITE || head->opmod != 0 || head->ds < 3 || head->ds > 4)
        return 0;
    uint32_t count = wqe_be_lo(words[4]);
    small->raddr = wqe_be64(words[2]);
    small->rkey = wqe_be_lo(words[3]);
    small->bytes = count & MLX5_BYTE_COUNT;
    small->is_inline = (count & MLX5_INLINE) != 0;
    small->lkey = small->is_inline ? 0 : wqe_be_hi(words[4]);
    small->addr = small->is_inline ? 0 : wqe_be64(words[5]);
    if (small->bytes == 0)
        return 0;
    if (small->is_inline)
        return small->bytes <= (head->ds - 2u) * MLX5_DS - 4 && (head->ds == 3 || small->bytes > MLX5_DS - 4);
    return head->ds == 3 && small->bytes <= MLX5_MESSAGE_MAX;
}

MLX5_FN void wqe_raddr(const uint64_t *words, struct wqe *wqe) {
    wqe->raddr = wqe_be64(words[2]);
    wqe->rkey = wqe_be_lo(words[3]);
}

/* An atomic ends in one data pointer for the old value, which must hold the operand. */
MLX5_FN int wqe_atomic_result(const uint64_t *words, uint32_t segment, struct wqe *wqe) {
    if (wqe->ds != segment + 1)
        return MLX5_SYND_LOCAL_QP_OP;
    int syndrome = wqe_pieces(words, segment, wqe);
    if (syndrome)
        return syndrome;
    if (wqe->is_inline)
        return MLX5_SYND_LOCAL_QP_OP;
    if (wqe->bytes < wqe->operand)
        return MLX5_SYND_LOCAL_LENGTH;
    wqe->action = WQE_ATOMIC;
    wqe->bytes = wqe->operand;
    wqe->first.bytes = wqe->operand;
    wqe_raddr(words, wqe);
    return 0;
}

MLX5_FN int wqe_decode_masked(const uint64_t *words, uint8_t opmod, struct wqe *wqe) {
    const uint64_t *seg = words + 4;
    wqe->compare = wqe->opcode == MLX5_OP_MASKED_CS;
    wqe->boundary = 0;
    if (opmod == MLX5_OPMOD_MASKED_4 && wqe->ds == 4) {
        wqe->operand = 4;
        wqe->swap_add = wqe_be_lo(seg[0]);
        if (wqe->compare) {
            wqe->compare_value = wqe_be_hi(seg[0]);
            wqe->swap_mask = wqe_be_lo(seg[1]);
            wqe->compare_mask = wqe_be_hi(seg[1]);
        } else {
            wqe->boundary = wqe_be_hi(seg[0]);
        }
        return wqe_atomic_result(words, 3, wqe);
    }
    if (opmod != MLX5_OPMOD_MASKED_8 || wqe->ds != (wqe->compare ? 5 : 4))
        return MLX5_SYND_LOCAL_QP_OP;
    wqe->operand = 8;
    wqe->swap_add = wqe_be64(seg[0]);
    if (!wqe->compare) {
        wqe->boundary = wqe_be64(seg[1]);
        return wqe_atomic_result(words, 3, wqe);
    }
    wqe->compare_value = wqe_be64(seg[1]);
    wqe->swap_mask = wqe_be64(seg[2]);
    wqe->compare_mask = wqe_be64(seg[3]);
    return wqe_atomic_result(words, 4, wqe);
}

/* Where a request of a DC queue pair goes. */
struct wqe_av {
    uint64_t key;
    uint32_t dct, lid;
    uint8_t segments; /* of 16 bytes; 0: the opcode has no address vector */
};
/* Reads it, behind the control segment: 0, or the syndrome when the WQE ends before it does. Without those segments, and with
 * a `ds` less by them, the WQE is one of an RC queue pair. */
MLX5_FN int wqe_address(const uint64_t *words, const struct wqe_head *head, struct wqe_av *av) {
    av->segments = 0;
    switch (head->opcode) {
    case MLX5_OP_RDMA_WRITE:
    case MLX5_OP_RDMA_READ:
    case MLX5_OP_ATOMIC_CS:
    case MLX5_OP_ATOMIC_FA:
    case MLX5_OP_MASKED_CS:
    case MLX5_OP_MASKED_FA:
        break;
    default:
        return 0;
    }
    const uint32_t dct = wqe_be_lo(words[3]);
    const uint8_t segments = dct & MLX5_EXT_AV ? 3 : 1;
    if (head->ds < 1 + segments)
        return MLX5_SYND_LOCAL_QP_OP;
    av->segments = segments;
    av->key = wqe_be64(words[2]);
    av->dct = dct & MLX5_QPN_MASK;
    av->lid = wqe_be_hi(words[3]) & 0xffff;
    return 0;
}

/* Takes a fetched WQE apart: 0, or the syndrome of a malformed one. `words` must outlive the inline pieces.
 */
WQE_HOT int wqe_decode(const uint64_t *words, const struct wqe_head *head, struct wqe *wqe) {
    int syndrome;
    wqe->opcode = head->opcode;
    wqe->ds = head->ds;
    wqe->blocks = (uint8_t)mlx5_ds_blocks(head->ds);
    wqe->fm_ce_se = head->fm_ce_se;
    wqe->action = WQE_NOTHING;
    wqe->pieces = 0;
    wqe->is_inline = 0;
    wqe->bytes = 0;
    wqe->raddr = 0;
    switch (head->opcode) {
    case MLX5_OP_RDMA_WRITE:
    case MLX5_OP_RDMA_READ:
        if (head->opmod != 0 || head->ds < 2)
            return MLX5_SYND_LOCAL_QP_OP;
        wqe->action = head->opcode == MLX5_OP_RDMA_WRITE ? WQE_WRITE : WQE_READ;
        wqe_raddr(words, wqe);
        syndrome = wqe_pieces(words, 2, wqe);
        if (!syndrome && wqe->action == WQE_READ && wqe->is_inline)
            syndrome = MLX5_SYND_LOCAL_QP_OP;
        return syndrome;
    case MLX5_OP_ATOMIC_CS:
    case MLX5_OP_ATOMIC_FA:
        if (head->opmod != 0 || head->ds < 4)
            return MLX5_SYND_LOCAL_QP_OP;
        wqe->operand = 8;
        wqe->compare = head->opcode == MLX5_OP_ATOMIC_CS;
        wqe->swap_add = wqe_be64(words[4]);
        wqe->compare_value = wqe_be64(words[5]);
        wqe->swap_mask = wqe->compare_mask = ~0ull;
        wqe->boundary = 0;
        return wqe_atomic_result(words, 3, wqe);
    case MLX5_OP_MASKED_CS:
    case MLX5_OP_MASKED_FA:
        return wqe_decode_masked(words, head->opmod, wqe);
    case MLX5_OP_NOP:
        return 0;
    case MLX5_OP_WAIT:
        if (head->ds != 2)
            return MLX5_SYND_LOCAL_QP_OP;
        wqe->action = WQE_WAIT;
        wqe->wait_index = wqe_be_lo(words[3]);
        wqe->wait_cqn = wqe_be_hi(words[3]) & MLX5_QPN_MASK;
        return 0;
    case MLX5_OP_DUMP:
        wqe->action = WQE_TOUCH;
        syndrome = wqe_pieces(words, 1, wqe);
        wqe->bytes = 0;
        return syndrome ? syndrome : wqe->pieces == 0 || wqe->is_inline ? MLX5_SYND_LOCAL_QP_OP : 0;
    default:
        return MLX5_SYND_LOCAL_QP_OP;
    }
}

/* The atomic's effect on a word that holds `old`: 1 and the new value, or 0 when it stays. */
MLX5_FN int wqe_atomic_apply(const struct wqe *wqe, uint64_t old, uint64_t *next_p) {
    if (wqe->compare) {
        if ((old ^ wqe->compare_value) & wqe->compare_mask)
            return 0;
        *next_p = (old & ~wqe->swap_mask) | (wqe->swap_add & wqe->swap_mask);
        return 1;
    }
    /* Adding without the fields' top bits cannot carry out of a field; those are added by XOR. */
    uint64_t top = wqe->boundary;
    *next_p = ((old & ~top) + (wqe->swap_add & ~top)) ^ ((old ^ wqe->swap_add) & top);
    return 1;
}

#endif
