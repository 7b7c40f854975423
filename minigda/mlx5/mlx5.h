/* Memory layouts of a ConnectX send queue: WQE segments, doorbell record, doorbell, CQE. Layouts only.
 *
 * A driver (device code, a proxy, a test) writes these into memory and the NIC, real or softnic, reads them.
 * Everything the NIC sees is big-endian; the `_set` and getter functions below are the only place that packs,
 * unpacks or swaps. The same header serves C11, C++17 and CUDA.
 *
 * Sources: the Linux kernel's include/linux/mlx5/{qp,device}.h and rdma-core's mlx5dv.h for names, offsets
 * and values (struct names here differ, so both headers can be included together); masked atomics and WAIT as
 * NVSHMEM's IBGDA and DOCA GPUNetIO device code write them. layout_test.c checks the numbers
 * against an independent table and, where libibverbs' headers are installed, against mlx5dv.h.
 */
#ifndef MINIGDA_MLX5_H
#define MINIGDA_MLX5_H

#include <assert.h>
#include <linux/types.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__CUDACC__)
#define MLX5_FN __host__ __device__ static __forceinline__
#else
#define MLX5_FN static inline
#endif

enum {
    MLX5_BB = 64, /* basic block: the unit of a send queue's indices */
    MLX5_BB_SHIFT = 6,
    MLX5_DS = 16, /* the unit of mlx5_ctrl_ds() */
    MLX5_DS_MAX = 63,
    MLX5_CQE = 64,
    MLX5_QPN_MASK = 0xffffff,
    MLX5_MESSAGE_MAX = 1u << 30, /* bytes one RDMA request can move */
};

enum mlx5_opcode {
    MLX5_OP_NOP = 0x00,
    MLX5_OP_RDMA_WRITE = 0x08,
    MLX5_OP_WAIT = 0x0f,
    MLX5_OP_RDMA_READ = 0x10,
    MLX5_OP_ATOMIC_CS = 0x11,
    MLX5_OP_ATOMIC_FA = 0x12,
    MLX5_OP_MASKED_CS = 0x14,
    MLX5_OP_MASKED_FA = 0x15,
    MLX5_OP_DUMP = 0x23,
};

/* opmod of the masked atomics: 8 | log2(operand bytes) - 2. */
enum { MLX5_OPMOD_MASKED_4 = 0x08, MLX5_OPMOD_MASKED_8 = 0x09 };

/* fm_ce_se: fence mode (bits 7:5), completion (3:2), solicited event (1). */
enum {
    MLX5_CTRL_CQ_UPDATE = 0x08,
    MLX5_CTRL_CE_MASK = 0x0c, /* 0: a CQE on error only */
    MLX5_CTRL_SOLICITED = 0x02,
    MLX5_CTRL_FENCE_MASK = 0xe0,
    MLX5_CTRL_INITIATOR_SMALL_FENCE = 0x20,
    MLX5_CTRL_FENCE = 0x80,
};

enum mlx5_cqe_opcode {
    MLX5_CQE_OP_REQ = 0x0,
    MLX5_CQE_OP_REQ_ERR = 0xd,
    MLX5_CQE_OP_INVALID = 0xf,
};
enum { MLX5_CQE_OWNER = 0x01 };

enum mlx5_syndrome {
    MLX5_SYND_LOCAL_LENGTH = 0x01,
    MLX5_SYND_LOCAL_QP_OP = 0x02,
    MLX5_SYND_LOCAL_PROT = 0x04,
    MLX5_SYND_WR_FLUSH = 0x05,
    MLX5_SYND_BAD_RESP = 0x10,
    MLX5_SYND_LOCAL_ACCESS = 0x11,
    MLX5_SYND_REMOTE_INVAL_REQ = 0x12,
    MLX5_SYND_REMOTE_ACCESS = 0x13,
    MLX5_SYND_REMOTE_OP = 0x14,
    MLX5_SYND_TRANSPORT_RETRY = 0x15,
    MLX5_SYND_RNR_RETRY = 0x16,
    MLX5_SYND_REMOTE_ABORTED = 0x22,
};

#define MLX5_INLINE 0x80000000u     /* in the byte count: the data follows */
#define MLX5_BYTE_COUNT 0x7fffffffu /* the rest of it; 0 in a data pointer means 2^31 */
#define MLX5_EXT_AV 0x80000000u     /* in mlx5_av.dqp_dct: the AV has all 48 bytes */

struct mlx5_ctrl_seg {
    __be32 opmod_idx_opcode;
    __be32 qpn_ds;
    uint8_t signature;
    uint8_t rsvd[2];
    uint8_t fm_ce_se;
    __be32 imm;
};

struct mlx5_raddr_seg {
    __be64 raddr;
    __be32 rkey;
    __be32 rsvd;
};

struct mlx5_data_seg {
    __be32 byte_count;
    __be32 lkey;
    __be64 addr;
};

/* The payload follows at once and is padded to the next 16-byte segment. */
struct mlx5_inline_seg {
    __be32 byte_count; /* | MLX5_INLINE */
};

/* ATOMIC_CS, ATOMIC_FA (compare unused) and the first half of an 8-byte MASKED_CS. */
struct mlx5_atomic_seg {
    __be64 swap_add;
    __be64 compare;
};

/* Second half of an 8-byte MASKED_CS. compare_mask 0 matches always; only swap_mask's bits are replaced. */
struct mlx5_masked_cs8_mask_seg {
    __be64 swap_mask;
    __be64 compare_mask;
};

struct mlx5_masked_cs4_seg {
    __be32 swap;
    __be32 compare;
    __be32 swap_mask;
    __be32 compare_mask;
};

/* A set bit i of the boundary cuts the carry from bit i to i+1: 0 adds, all ones is XOR. */
struct mlx5_masked_fa8_seg {
    __be64 add;
    __be64 boundary;
};

struct mlx5_masked_fa4_seg {
    __be32 add;
    __be32 boundary;
    uint8_t rsvd[8];
};

/* Holds the queue until CQ `cqn` has completed the WQE counted `index`. */
struct mlx5_wait_seg {
    uint8_t rsvd[8];
    __be32 index;
    __be32 cqn; /* low 24 bits */
};

/* DC only: 16 bytes (compact) or 48 behind the control segment. */
struct mlx5_av_seg {
    __be64 dc_key;
    __be32 dqp_dct; /* | MLX5_EXT_AV when the rest of mlx5_av_ext_seg follows */
    uint8_t stat_rate_sl;
    uint8_t fl_mlid;
    __be16 rlid;
};
struct mlx5_av_ext_seg {
    struct mlx5_av_seg base;
    uint8_t rsvd[4];
    uint8_t rmac[6];
    uint8_t tclass;
    uint8_t hop_limit;
    __be32 grh_gid_fl;
    uint8_t rgid[16];
};

/* Doorbell record. The send counter is the index of the next free basic block, modulo 2^16. */
struct mlx5_dbr {
    __be32 rcv;
    __be32 snd;
};

struct mlx5_cqe {
    uint8_t rsvd0[32];
    __be32 srqn_uidx;
    __be32 imm_inval_pkey;
    uint8_t rsvd40[4];
    __be32 byte_cnt;
    __be64 timestamp;
    __be32 sop_drop_qpn; /* WQE opcode (31:24), QPN */
    __be16 wqe_counter;  /* index of the WQE's first basic block */
    uint8_t signature;
    uint8_t op_own; /* CQE opcode (7:4), format (3:2), SE (1), owner (0) */
};

/* The same 64 bytes when the CQE opcode is MLX5_CQE_OP_REQ_ERR. */
struct mlx5_cqe_err {
    uint8_t rsvd0[32];
    __be32 srqn;
    uint8_t rsvd36[18];
    uint8_t vendor_syndrome;
    uint8_t syndrome;
    __be32 opcode_qpn;
    __be16 wqe_counter;
    uint8_t signature;
    uint8_t op_own;
};

#define MLX5_AT(type, field, at)                                                                             \
    static_assert(offsetof(struct type, field) == (at), #type "." #field " is read by hardware at " #at)
#define MLX5_SIZE(type, bytes) static_assert(sizeof(struct type) == (bytes), #type " is " #bytes " bytes")
MLX5_SIZE(mlx5_ctrl_seg, 16);
MLX5_AT(mlx5_ctrl_seg, opmod_idx_opcode, 0);
MLX5_AT(mlx5_ctrl_seg, qpn_ds, 4);
MLX5_AT(mlx5_ctrl_seg, signature, 8);
MLX5_AT(mlx5_ctrl_seg, fm_ce_se, 11);
MLX5_AT(mlx5_ctrl_seg, imm, 12);
MLX5_SIZE(mlx5_raddr_seg, 16);
MLX5_AT(mlx5_raddr_seg, raddr, 0);
MLX5_AT(mlx5_raddr_seg, rkey, 8);
MLX5_SIZE(mlx5_data_seg, 16);
MLX5_AT(mlx5_data_seg, byte_count, 0);
MLX5_AT(mlx5_data_seg, lkey, 4);
MLX5_AT(mlx5_data_seg, addr, 8);
MLX5_SIZE(mlx5_inline_seg, 4);
MLX5_SIZE(mlx5_atomic_seg, 16);
MLX5_AT(mlx5_atomic_seg, swap_add, 0);
MLX5_AT(mlx5_atomic_seg, compare, 8);
MLX5_SIZE(mlx5_masked_cs8_mask_seg, 16);
MLX5_AT(mlx5_masked_cs8_mask_seg, swap_mask, 0);
MLX5_AT(mlx5_masked_cs8_mask_seg, compare_mask, 8);
MLX5_SIZE(mlx5_masked_cs4_seg, 16);
MLX5_AT(mlx5_masked_cs4_seg, swap, 0);
MLX5_AT(mlx5_masked_cs4_seg, compare, 4);
MLX5_AT(mlx5_masked_cs4_seg, swap_mask, 8);
MLX5_AT(mlx5_masked_cs4_seg, compare_mask, 12);
MLX5_SIZE(mlx5_masked_fa8_seg, 16);
MLX5_AT(mlx5_masked_fa8_seg, add, 0);
MLX5_AT(mlx5_masked_fa8_seg, boundary, 8);
MLX5_SIZE(mlx5_masked_fa4_seg, 16);
MLX5_AT(mlx5_masked_fa4_seg, add, 0);
MLX5_AT(mlx5_masked_fa4_seg, boundary, 4);
MLX5_SIZE(mlx5_wait_seg, 16);
MLX5_AT(mlx5_wait_seg, index, 8);
MLX5_AT(mlx5_wait_seg, cqn, 12);
MLX5_SIZE(mlx5_av_seg, 16);
MLX5_AT(mlx5_av_seg, dqp_dct, 8);
MLX5_AT(mlx5_av_seg, stat_rate_sl, 12);
MLX5_AT(mlx5_av_seg, fl_mlid, 13);
MLX5_AT(mlx5_av_seg, rlid, 14);
MLX5_SIZE(mlx5_av_ext_seg, 48);
MLX5_AT(mlx5_av_ext_seg, rmac, 20);
MLX5_AT(mlx5_av_ext_seg, tclass, 26);
MLX5_AT(mlx5_av_ext_seg, hop_limit, 27);
MLX5_AT(mlx5_av_ext_seg, grh_gid_fl, 28);
MLX5_AT(mlx5_av_ext_seg, rgid, 32);
MLX5_SIZE(mlx5_dbr, 8);
MLX5_AT(mlx5_dbr, rcv, 0);
MLX5_AT(mlx5_dbr, snd, 4);
MLX5_SIZE(mlx5_cqe, 64);
MLX5_AT(mlx5_cqe, srqn_uidx, 32);
MLX5_AT(mlx5_cqe, imm_inval_pkey, 36);
MLX5_AT(mlx5_cqe, byte_cnt, 44);
MLX5_AT(mlx5_cqe, timestamp, 48);
MLX5_AT(mlx5_cqe, sop_drop_qpn, 56);
MLX5_AT(mlx5_cqe, wqe_counter, 60);
MLX5_AT(mlx5_cqe, signature, 62);
MLX5_AT(mlx5_cqe, op_own, 63);
MLX5_SIZE(mlx5_cqe_err, 64);
MLX5_AT(mlx5_cqe_err, srqn, 32);
MLX5_AT(mlx5_cqe_err, vendor_syndrome, 54);
MLX5_AT(mlx5_cqe_err, syndrome, 55);
MLX5_AT(mlx5_cqe_err, opcode_qpn, 56);
MLX5_AT(mlx5_cqe_err, wqe_counter, 60);
MLX5_AT(mlx5_cqe_err, signature, 62);
MLX5_AT(mlx5_cqe_err, op_own, 63);
#undef MLX5_AT
#undef MLX5_SIZE

/* Host to big-endian and back: a swap is its own inverse. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
MLX5_FN uint16_t mlx5_be16(uint16_t v) { return (uint16_t)((v << 8) | (v >> 8)); }
MLX5_FN uint32_t mlx5_be32(uint32_t v) {
#if defined(__CUDA_ARCH__)
    return __byte_perm(v, 0, 0x0123);
#else
    return __builtin_bswap32(v);
#endif
}
MLX5_FN uint64_t mlx5_be64(uint64_t v) {
#if defined(__CUDA_ARCH__)
    return ((uint64_t)mlx5_be32((uint32_t)v) << 32) | mlx5_be32((uint32_t)(v >> 32));
#else
    return __builtin_bswap64(v);
#endif
}
#else
MLX5_FN uint16_t mlx5_be16(uint16_t v) { return v; }
MLX5_FN uint32_t mlx5_be32(uint32_t v) { return v; }
MLX5_FN uint64_t mlx5_be64(uint64_t v) { return v; }
#endif

/* Control segment. `index`: of this WQE's first basic block; `ds`: 16-byte segments of the whole WQE. */
MLX5_FN uint32_t mlx5_ctrl_word0(uint16_t index, uint8_t opcode, uint8_t opmod) {
    return mlx5_be32(((uint32_t)opmod << 24) | ((uint32_t)index << 8) | opcode);
}
MLX5_FN uint32_t mlx5_ctrl_word1(uint32_t qpn, uint8_t ds) { return mlx5_be32((qpn << 8) | ds); }
MLX5_FN void mlx5_ctrl_set(struct mlx5_ctrl_seg *seg, uint16_t index, uint8_t opcode, uint8_t opmod,
                           uint32_t qpn, uint8_t ds, uint8_t fm_ce_se) {
    seg->opmod_idx_opcode = mlx5_ctrl_word0(index, opcode, opmod);
    seg->qpn_ds = mlx5_ctrl_word1(qpn, ds);
    seg->signature = 0;
    seg->rsvd[0] = seg->rsvd[1] = 0;
    seg->fm_ce_se = fm_ce_se;
    seg->imm = 0;
}
MLX5_FN uint8_t mlx5_ctrl_opcode(const struct mlx5_ctrl_seg *seg) {
    return (uint8_t)mlx5_be32(seg->opmod_idx_opcode);
}
MLX5_FN uint16_t mlx5_ctrl_index(const struct mlx5_ctrl_seg *seg) {
    return (uint16_t)(mlx5_be32(seg->opmod_idx_opcode) >> 8);
}
MLX5_FN uint8_t mlx5_ctrl_opmod(const struct mlx5_ctrl_seg *seg) {
    return (uint8_t)(mlx5_be32(seg->opmod_idx_opcode) >> 24);
}
MLX5_FN uint32_t mlx5_ctrl_qpn(const struct mlx5_ctrl_seg *seg) { return mlx5_be32(seg->qpn_ds) >> 8; }
MLX5_FN uint32_t mlx5_ctrl_ds(const struct mlx5_ctrl_seg *seg) { return mlx5_be32(seg->qpn_ds) & 0x3f; }
/* Basic blocks a WQE of `ds` segments takes. */
MLX5_FN uint32_t mlx5_ds_blocks(uint32_t ds) { return (ds + 3) / 4; }
/* Segments a WQE takes that carries `bytes` inline behind `before` segments. */
MLX5_FN uint32_t mlx5_inline_ds(uint32_t before, uint32_t bytes) { return before + (4 + bytes + 15) / 16; }

MLX5_FN void mlx5_raddr_set(struct mlx5_raddr_seg *seg, uint64_t raddr, uint32_t rkey) {
    seg->raddr = mlx5_be64(raddr);
    seg->rkey = mlx5_be32(rkey);
    seg->rsvd = 0;
}
MLX5_FN void mlx5_data_set(struct mlx5_data_seg *seg, uint32_t bytes, uint32_t lkey, uint64_t addr) {
    seg->byte_count = mlx5_be32(bytes);
    seg->lkey = mlx5_be32(lkey);
    seg->addr = mlx5_be64(addr);
}
MLX5_FN void mlx5_inline_set(struct mlx5_inline_seg *seg, uint32_t bytes) {
    seg->byte_count = mlx5_be32(bytes | MLX5_INLINE);
}
MLX5_FN void mlx5_atomic_set(struct mlx5_atomic_seg *seg, uint64_t swap_add, uint64_t compare) {
    seg->swap_add = mlx5_be64(swap_add);
    seg->compare = mlx5_be64(compare);
}
MLX5_FN void mlx5_masked_cs8_mask_set(struct mlx5_masked_cs8_mask_seg *seg, uint64_t swap_mask,
                                      uint64_t compare_mask) {
    seg->swap_mask = mlx5_be64(swap_mask);
    seg->compare_mask = mlx5_be64(compare_mask);
}
MLX5_FN void mlx5_masked_cs4_set(struct mlx5_masked_cs4_seg *seg, uint32_t swap, uint32_t compare,
                                 uint32_t swap_mask, uint32_t compare_mask) {
    seg->swap = mlx5_be32(swap);
    seg->compare = mlx5_be32(compare);
    seg->swap_mask = mlx5_be32(swap_mask);
    seg->compare_mask = mlx5_be32(compare_mask);
}
MLX5_FN void mlx5_masked_fa8_set(struct mlx5_masked_fa8_seg *seg, uint64_t add, uint64_t boundary) {
    seg->add = mlx5_be64(add);
    seg->boundary = mlx5_be64(boundary);
}
MLX5_FN void mlx5_masked_fa4_set(struct mlx5_masked_fa4_seg *seg, uint32_t add, uint32_t boundary) {
    seg->add = mlx5_be32(add);
    seg->boundary = mlx5_be32(boundary);
    for (int i = 0; i < 8; i++)
        seg->rsvd[i] = 0;
}
MLX5_FN void mlx5_wait_set(struct mlx5_wait_seg *seg, uint32_t index, uint32_t cqn) {
    for (int i = 0; i < 8; i++)
        seg->rsvd[i] = 0;
    seg->index = mlx5_be32(index);
    seg->cqn = mlx5_be32(cqn);
}

/* What to store to mlx5_dbr.snd. prod_idx: last posted basic block + 1; wider counters are cut to 16 bits. */
MLX5_FN __be32 mlx5_dbr_value(uint64_t prod_idx) { return mlx5_be32((uint32_t)(prod_idx & 0xffff)); }
/* What to store, in one 64-bit store, to the doorbell register. */
MLX5_FN uint64_t mlx5_doorbell_value(uint64_t prod_idx, uint32_t qpn) {
    uint64_t first = mlx5_be32((uint32_t)(prod_idx & 0xffff) << 8), second = mlx5_be32(qpn << 8);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    return first | (second << 32);
#else
    return (first << 32) | second;
#endif
}
MLX5_FN uint16_t mlx5_doorbell_index(uint64_t doorbell) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    return (uint16_t)(mlx5_be32((uint32_t)doorbell) >> 8);
#else
    return (uint16_t)(doorbell >> 40);
#endif
}
MLX5_FN uint32_t mlx5_doorbell_qpn(uint64_t doorbell) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    return mlx5_be32((uint32_t)(doorbell >> 32)) >> 8;
#else
    return (uint32_t)doorbell >> 8;
#endif
}

/* op_own of a CQE that the NIC wrote in lap `lap` of the ring (0 first), and the initial value of all. */
MLX5_FN uint8_t mlx5_op_own(uint8_t cqe_opcode, uint32_t lap) {
    return (uint8_t)((cqe_opcode << 4) | (lap & MLX5_CQE_OWNER));
}
enum { MLX5_OP_OWN_INITIAL = (MLX5_CQE_OP_INVALID << 4) | MLX5_CQE_OWNER };
MLX5_FN uint8_t mlx5_op_own_opcode(uint8_t op_own) { return op_own >> 4; }
/* True when `op_own` of the CQE for consumer index `cons_idx` belongs to the driver: it has been written in
 * this lap of a ring of `depth` CQEs. */
MLX5_FN int mlx5_op_own_ready(uint8_t op_own, uint64_t cons_idx, uint32_t depth) {
    return mlx5_op_own_opcode(op_own) != MLX5_CQE_OP_INVALID &&
           (op_own & MLX5_CQE_OWNER) == ((cons_idx & depth) != 0);
}
MLX5_FN uint16_t mlx5_cqe_wqe_counter(const struct mlx5_cqe *cqe) { return mlx5_be16(cqe->wqe_counter); }
MLX5_FN uint32_t mlx5_cqe_qpn(const struct mlx5_cqe *cqe) {
    return mlx5_be32(cqe->sop_drop_qpn) & MLX5_QPN_MASK;
}
MLX5_FN uint8_t mlx5_cqe_wqe_opcode(const struct mlx5_cqe *cqe) {
    return (uint8_t)(mlx5_be32(cqe->sop_drop_qpn) >> 24);
}
MLX5_FN uint32_t mlx5_opcode_qpn(uint8_t wqe_opcode, uint32_t qpn) {
    return mlx5_be32(((uint32_t)wqe_opcode << 24) | (qpn & MLX5_QPN_MASK));
}

#endif
