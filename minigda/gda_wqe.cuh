// Builders of the WQEs that the floor posts, as 16-byte stores straight into the send queue.
#ifndef MINIGDA_GDA_WQE_CUH
#define MINIGDA_GDA_WQE_CUH

#include "minigda/gda_queue.cuh"

// One WQE segment. Composed in registers and stored whole: a GPU writes it with one 16-byte store, and no
// part of it is read back from a store buffer.
struct alignas(16) gda_segment {
    uint64_t lo, hi;
};

// Two 32-bit fields in memory order.
GIC_HD uint64_t gda_pair(uint32_t first, uint32_t second) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    return first | ((uint64_t)second << 32);
#else
    return ((uint64_t)first << 32) | second;
#endif
}

GIC_HD uint32_t gda_first(uint64_t two) { return (uint32_t)(gda_pair(1, 0) == 1 ? two : two >> 32); }
GIC_HD uint32_t gda_second(uint64_t two) { return (uint32_t)(gda_pair(1, 0) == 1 ? two >> 32 : two); }

// Host to big-endian, folded where the value is a constant (mlx5_be32 is an instruction also then).
GIC_HD constexpr uint32_t gda_be32(uint32_t v) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    return v << 24 | (v & 0xff00) << 8 | (v >> 8 & 0xff00) | v >> 24;
#else
    return v;
#endif
}

// Where a post's WQEs go and what they aim at, swapped once.
struct gda_place {
    uint8_t *blocks;
    uint32_t mask;      // depth - 1
    uint32_t qpn_word;  // mlx5_ctrl_word1 without its segment count
    uint32_t rkey_word; // mlx5_raddr_seg.rkey
    uint64_t remote;    // the peer's window

    GIC_DEVICE gda_segment *at(uint32_t index) const {
        return (gda_segment *)(blocks + (size_t)(index & mask) * MLX5_BB);
    }
    // Segment `i` of a WQE that may run over the end of the queue.
    GIC_DEVICE gda_segment *at(uint32_t index, uint32_t i) const { return at(index + i / 4) + i % 4; }
};

// mlx5_ctrl_word0, mlx5_dbr_value and mlx5_doorbell_value; on a GPU one instruction each (and the last one's two
// words are a pair of registers).
GIC_HD uint32_t gda_word0(uint32_t index, uint8_t opcode) {
#if defined(__CUDA_ARCH__)
    return __byte_perm(index, opcode, 0x4015);
#else
    return mlx5_ctrl_word0((uint16_t)index, opcode, 0);
#endif
}
GIC_HD uint32_t gda_record(uint32_t next) {
#if defined(__CUDA_ARCH__)
    return __byte_perm(next, 0, 0x0144);
#else
    return mlx5_dbr_value(next);
#endif
}
GIC_HD uint64_t gda_door(uint32_t next, uint32_t qpn_word) {
#if defined(__CUDA_ARCH__)
    return gda_pair(__byte_perm(next, 0, 0x4014), qpn_word);
#else
    return gda_pair(mlx5_be32((next & 0xffff) << 8), qpn_word);
#endif
}

// Bits of fm_ce_se where the control segment's third word has them.
GIC_HD constexpr uint32_t gda_flags(uint8_t fm_ce_se) { return gda_be32(fm_ce_se); }

// Fields of mlx5_ctrl_seg, mlx5_raddr_seg, mlx5_data_seg, mlx5_inline_seg and mlx5_atomic_seg, in that order.
GIC_HD gda_segment gda_ctrl(const gda_place &q, uint32_t index, uint8_t opcode, uint32_t ds, uint32_t flags) {
    return {gda_pair(gda_word0(index, opcode), q.qpn_word | gda_be32(ds)), gda_pair(flags, 0)};
}
GIC_HD gda_segment gda_raddr(const gda_place &q, uint64_t offset) {
    return {mlx5_be64(q.remote + offset), gda_pair(q.rkey_word, 0)};
}
// `lkey_word`: mlx5_data_seg.lkey.
GIC_HD gda_segment gda_data(uint32_t bytes, uint32_t lkey_word, uint64_t addr) {
    return {gda_pair(mlx5_be32(bytes), lkey_word), mlx5_be64(addr)};
}
// Inline header and the first 12 bytes behind it, given as three words in memory order.
GIC_HD gda_segment gda_inline(uint32_t bytes, uint32_t a, uint32_t b, uint32_t c) {
    return {gda_pair(gda_be32(bytes | MLX5_INLINE), a), gda_pair(b, c)};
}
GIC_HD gda_segment gda_value(uint64_t v) { return gda_inline(8, (uint32_t)v, (uint32_t)(v >> 32), 0); }
GIC_HD gda_segment gda_atomic(uint64_t add) { return {mlx5_be64(add), 0}; }

// The three segments of a WQE, if `go`. On a GPU the stores carry the condition themselves, so that nothing waits for a
// branch, and the compiler keeps the segments in registers of their own: with one set of four it would wait until each
// store has read it.
GIC_DEVICE void gda_store_if(bool go, gda_segment *to, gda_segment a, gda_segment b, gda_segment c) {
#if defined(__CUDA_ARCH__)
    asm volatile("{\n\t.reg .pred go;\n\tsetp.ne.u32 go, %0, 0;\n\t"
                 "@go st.global.v2.b64 [%1], {%2, %3};\n\t"
                 "@go st.global.v2.b64 [%1+16], {%4, %5};\n\t"
                 "@go st.global.v2.b64 [%1+32], {%6, %7};\n\t}"
                 :
                 : "r"((uint32_t)go), "l"(to), "l"(a.lo), "l"(a.hi), "l"(b.lo), "l"(b.hi), "l"(c.lo),
                   "l"(c.hi)
                 : "memory");
#else
    if (go) {
        to[0] = a;
        to[1] = b;
        to[2] = c;
    }
#endif
}

// The 8-byte word at `from`, if `go`; otherwise nothing is read.
GIC_DEVICE uint64_t gda_load_if(bool go, uint64_t from) {
#if defined(__CUDA_ARCH__)
    uint64_t word = 0;
    asm volatile("{\n\t.reg .pred go;\n\tsetp.ne.u32 go, %1, 0;\n\t@go ld.global.b64 %0, [%2];\n\t}"
                 : "+l"(word)
                 : "r"((uint32_t)go), "l"(from)
                 : "memory");
    return word;
#else
    return go ? *(const uint64_t *)(uintptr_t)from : 0;
#endif
}

// `flags` of all: gda_flags() of fm_ce_se. `at`: offset in the peer's window.
GIC_DEVICE void gda_write_nop(const gda_place &q, uint32_t index, uint32_t flags) {
    q.at(index)[0] = gda_ctrl(q, index, MLX5_OP_NOP, 1, flags);
}

// RDMA_WRITE or RDMA_READ of local memory by pointer; no bytes is a request without a data segment (a byte
// count of 0 would mean 2 GiB).
GIC_DEVICE void gda_write_pointer(const gda_place &q, uint32_t index, uint32_t flags, uint8_t opcode,
                                  uint64_t at, uint32_t bytes, uint32_t lkey, uint64_t laddr) {
    gda_segment *seg = q.at(index);
    seg[0] = gda_ctrl(q, index, opcode, bytes ? 3 : 2, flags);
    seg[1] = gda_raddr(q, at);
    if (bytes)
        seg[2] = gda_data(bytes, mlx5_be32(lkey), laddr);
}

// RDMA_WRITE of a value of 1 to 8 bytes, in memory order in the low end of `value`.
GIC_DEVICE void gda_write_value(const gda_place &q, uint32_t index, uint32_t flags, uint64_t at,
                                uint64_t value, uint32_t bytes) {
    gda_segment *seg = q.at(index);
    seg[0] = gda_ctrl(q, index, MLX5_OP_RDMA_WRITE, 3, flags);
    seg[1] = gda_raddr(q, at);
    seg[2] = gda_inline(bytes, (uint32_t)value, (uint32_t)(value >> 32), 0);
}

// The four payload bytes at `at`, in memory order; 0 from `bytes` on.
GIC_DEVICE uint32_t gda_payload(const uint8_t *src, uint32_t bytes, uint32_t at) {
    uint32_t word = 0;
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t byte = at + i < bytes ? src[at + i] : 0;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        word |= byte << (8 * i);
#else
        word |= byte << (24 - 8 * i);
#endif
    }
    return word;
}

// 16 bytes of payload at a multiple of 16, of which `left` are the payload's. A GPU loads them whole: what lies behind the
// payload comes along, behind the length that the WQE says.
GIC_DEVICE gda_segment gda_chunk(const uint8_t *src, uint32_t left) {
#if defined(__CUDA_ARCH__)
    (void)left;
    return *(const gda_segment *)src;
#else
    gda_segment s{};
    memcpy(&s, src, left < sizeof s ? left : sizeof s);
    return s;
#endif
}

struct gda_cold_wqe {
    // An RDMA_WRITE that carries its payload, whole; the offset in the peer's window is in q.remote already.
    GIC_COLD static void carry(uint8_t *blocks, uint32_t mask, uint32_t qpn_word, uint32_t rkey_word,
                               uint64_t remote, uint32_t index, uint32_t flags, const uint8_t *src,
                               uint32_t bytes) {
        const gda_place q{blocks, mask, qpn_word, rkey_word, remote};
        const bool aligned = ((uintptr_t)src & 15) == 0;
        if (aligned && bytes <= GDA_INLINE_ONE_BLOCK)
            return carry_chunks<2>(q, index, flags, src, bytes);
        if (aligned && bytes <= 128)
            return carry_chunks<8>(q, index, flags, src, bytes);
        carry_head(q, index, flags, bytes);
        payload(blocks, mask, index, src, bytes);
    }
    GIC_DEVICE static void carry_head(const gda_place &q, uint32_t index, uint32_t flags, uint32_t bytes) {
        gda_segment *seg = q.at(index);
        seg[0] = gda_ctrl(q, index, MLX5_OP_RDMA_WRITE, mlx5_inline_ds(2, bytes), flags);
        seg[1] = gda_raddr(q, 0);
    }
    // All loads are under way before one is waited for, and the head is stored meanwhile. The payload begins behind its
    // length: each segment has the last word of the chunk before and the first three of its own.
    template <uint32_t N>
    GIC_DEVICE static void carry_chunks(const gda_place &q, uint32_t index, uint32_t flags,
                                        const uint8_t *src, uint32_t bytes) {
        gda_segment chunk[N + 1];
        GIC_UNROLLED
        for (uint32_t k = 0; k <= N; k++) {
            chunk[k] = gda_segment{0, 0};
            if (k < N && 16 * k < bytes)
                chunk[k] = gda_chunk(src + 16 * k, bytes - 16 * k);
        }
        carry_head(q, index, flags, bytes);
        const uint32_t ds = mlx5_inline_ds(2, bytes);
        uint32_t before = gda_be32(bytes | MLX5_INLINE);
        GIC_UNROLLED
        for (uint32_t k = 0; k <= N; k++) {
            const gda_segment c = chunk[k];
            if (2 + k < ds)
                *q.at(index, 2 + k) = gda_segment{gda_pair(before, gda_first(c.lo)),
                                                  gda_pair(gda_second(c.lo), gda_first(c.hi))};
            before = gda_second(c.hi);
        }
    }

    // The segments from the third on of an RDMA_WRITE that carries `bytes` of payload: length, then payload. By four
    // segments, whose loads are all under way before one is waited for: on a GPU they come from behind the
    // multiprocessor, where the fence of the post before has emptied the near cache.
    GIC_COLD static void payload(uint8_t *blocks, uint32_t mask, uint32_t index, const uint8_t *src,
                                 uint32_t bytes) {
        const gda_place q{blocks, mask, 0, 0, 0};
        const uint32_t ds = mlx5_inline_ds(2, bytes);
#if !defined(__CUDACC__)
        for (uint32_t seg = 2, at = 0; seg < ds; seg++) {
            gda_segment s{};
            uint32_t used = 0;
            if (seg == 2) {
                const uint32_t length = gda_be32(bytes | MLX5_INLINE);
                memcpy(&s, &length, used = sizeof length);
            }
            const uint32_t room = (uint32_t)sizeof s - used, n = bytes - at < room ? bytes - at : room;
            memcpy((uint8_t *)&s + used, src + at, n);
            at += n;
            *q.at(index, seg) = s;
        }
#else
        const uint32_t whole =
            ((uintptr_t)src & 3) == 0 ? bytes & ~3u : 0; // of which the words can be loaded
        GIC_ROLLED
        for (uint32_t seg = 2, at = (uint32_t)-4; seg < ds; seg += 4, at += 64) {
            uint32_t w[16];
            GIC_UNROLLED
            for (uint32_t k = 0; k < 16; k++)
                w[k] = at + 4 * k < whole ? *(const uint32_t *)(src + (at + 4 * k)) : 0;
            if (seg == 2)
                w[0] = gda_be32(bytes | MLX5_INLINE);
            GIC_UNROLLED
            for (uint32_t i = 0; i < 4; i++)
                if (seg + i < ds)
                    *q.at(index, seg + i) =
                        gda_segment{gda_pair(w[4 * i], w[4 * i + 1]), gda_pair(w[4 * i + 2], w[4 * i + 3])};
        }
        GIC_ROLLED
        for (uint32_t k = whole; k < bytes; k += 4) {
            const uint32_t word = gda_payload(src, bytes, k), at = 1 + k / 4; // the length is the first
            memcpy((uint32_t *)q.at(index, 2 + at / 4) + at % 4, &word, sizeof word);
        }
#endif
    }
};

// RDMA_WRITE of `bytes` (1..GDA_INLINE_MAX) copied into the WQE; takes mlx5_ds_blocks(mlx5_inline_ds(2,
// bytes)).
GIC_DEVICE void gda_write_inline(const gda_place &q, uint32_t index, uint32_t flags, uint64_t at,
                                 const uint8_t *src, uint32_t bytes) {
    gda_cold_wqe::carry(q.blocks, q.mask, q.qpn_word, q.rkey_word, q.remote + at, index, flags, src, bytes);
}

// ATOMIC_FA of 8 bytes; the old value lands at laddr.
GIC_DEVICE void gda_write_fetch_add(const gda_place &q, uint32_t index, uint32_t flags, uint64_t at,
                                    uint64_t add, uint32_t lkey, uint64_t laddr) {
    gda_segment *seg = q.at(index);
    seg[0] = gda_ctrl(q, index, MLX5_OP_ATOMIC_FA, 4, flags);
    seg[1] = gda_raddr(q, at);
    seg[2] = gda_atomic(add);
    seg[3] = gda_data(8, mlx5_be32(lkey), laddr);
}

#endif
