/* mlx5.h a second time, from a table of numbers (Linux include/linux/mlx5/{qp,device}.h, the ConnectX manual's
 * WQE formats), and the setters' bytes. Where libibverbs' headers are installed, a third time from mlx5dv.h.
 */
#include "minigda/mlx5/mlx5.h"
#include "minigda/softnic/test.h"

struct field {
    const char *name;
    size_t offset, size, want_offset, want_size;
};
#define FIELD(type, name, at, bytes)                                                                         \
    { #type "." #name, offsetof(struct type, name), sizeof(((struct type *)0)->name), at, bytes }
#define SIZE(type, bytes)                                                                                    \
    { #type, 0, sizeof(struct type), 0, bytes }

static const struct field fields[] = {
    SIZE(mlx5_ctrl_seg, 16),
    FIELD(mlx5_ctrl_seg, opmod_idx_opcode, 0, 4),
    FIELD(mlx5_ctrl_seg, qpn_ds, 4, 4),
    FIELD(mlx5_ctrl_seg, signature, 8, 1),
    FIELD(mlx5_ctrl_seg, fm_ce_se, 11, 1),
    FIELD(mlx5_ctrl_seg, imm, 12, 4),
    SIZE(mlx5_raddr_seg, 16),
    FIELD(mlx5_raddr_seg, raddr, 0, 8),
    FIELD(mlx5_raddr_seg, rkey, 8, 4),
    SIZE(mlx5_data_seg, 16),
    FIELD(mlx5_data_seg, byte_count, 0, 4),
    FIELD(mlx5_data_seg, lkey, 4, 4),
    FIELD(mlx5_data_seg, addr, 8, 8),
    SIZE(mlx5_inline_seg, 4),
    FIELD(mlx5_inline_seg, byte_count, 0, 4),
    SIZE(mlx5_atomic_seg, 16),
    FIELD(mlx5_atomic_seg, swap_add, 0, 8),
    FIELD(mlx5_atomic_seg, compare, 8, 8),
    SIZE(mlx5_masked_cs8_mask_seg, 16),
    FIELD(mlx5_masked_cs8_mask_seg, swap_mask, 0, 8),
    FIELD(mlx5_masked_cs8_mask_seg, compare_mask, 8, 8),
    SIZE(mlx5_masked_cs4_seg, 16),
    FIELD(mlx5_masked_cs4_seg, swap, 0, 4),
    FIELD(mlx5_masked_cs4_seg, compare, 4, 4),
    FIELD(mlx5_masked_cs4_seg, swap_mask, 8, 4),
    FIELD(mlx5_masked_cs4_seg, compare_mask, 12, 4),
    SIZE(mlx5_masked_fa8_seg, 16),
    FIELD(mlx5_masked_fa8_seg, add, 0, 8),
    FIELD(mlx5_masked_fa8_seg, boundary, 8, 8),
    SIZE(mlx5_masked_fa4_seg, 16),
    FIELD(mlx5_masked_fa4_seg, add, 0, 4),
    FIELD(mlx5_masked_fa4_seg, boundary, 4, 4),
    SIZE(mlx5_wait_seg, 16),
    FIELD(mlx5_wait_seg, index, 8, 4),
    FIELD(mlx5_wait_seg, cqn, 12, 4),
    SIZE(mlx5_av_seg, 16),
    FIELD(mlx5_av_seg, dc_key, 0, 8),
    FIELD(mlx5_av_seg, dqp_dct, 8, 4),
    FIELD(mlx5_av_seg, stat_rate_sl, 12, 1),
    FIELD(mlx5_av_seg, fl_mlid, 13, 1),
    FIELD(mlx5_av_seg, rlid, 14, 2),
    SIZE(mlx5_av_ext_seg, 48),
    FIELD(mlx5_av_ext_seg, rmac, 20, 6),
    FIELD(mlx5_av_ext_seg, tclass, 26, 1),
    FIELD(mlx5_av_ext_seg, hop_limit, 27, 1),
    FIELD(mlx5_av_ext_seg, grh_gid_fl, 28, 4),
    FIELD(mlx5_av_ext_seg, rgid, 32, 16),
    SIZE(mlx5_dbr, 8),
    FIELD(mlx5_dbr, rcv, 0, 4),
    FIELD(mlx5_dbr, snd, 4, 4),
    SIZE(mlx5_cqe, 64),
    FIELD(mlx5_cqe, srqn_uidx, 32, 4),
    FIELD(mlx5_cqe, imm_inval_pkey, 36, 4),
    FIELD(mlx5_cqe, byte_cnt, 44, 4),
    FIELD(mlx5_cqe, timestamp, 48, 8),
    FIELD(mlx5_cqe, sop_drop_qpn, 56, 4),
    FIELD(mlx5_cqe, wqe_counter, 60, 2),
    FIELD(mlx5_cqe, signature, 62, 1),
    FIELD(mlx5_cqe, op_own, 63, 1),
    SIZE(mlx5_cqe_err, 64),
    FIELD(mlx5_cqe_err, srqn, 32, 4),
    FIELD(mlx5_cqe_err, vendor_syndrome, 54, 1),
    FIELD(mlx5_cqe_err, syndrome, 55, 1),
    FIELD(mlx5_cqe_err, opcode_qpn, 56, 4),
    FIELD(mlx5_cqe_err, wqe_counter, 60, 2),
    FIELD(mlx5_cqe_err, op_own, 63, 1),
};

static const struct {
    const char *name;
    uint64_t got, want;
} values[] = {
    {"NOP", MLX5_OP_NOP, 0x00},
    {"RDMA_WRITE", MLX5_OP_RDMA_WRITE, 0x08},
    {"WAIT", MLX5_OP_WAIT, 0x0f},
    {"RDMA_READ", MLX5_OP_RDMA_READ, 0x10},
    {"ATOMIC_CS", MLX5_OP_ATOMIC_CS, 0x11},
    {"ATOMIC_FA", MLX5_OP_ATOMIC_FA, 0x12},
    {"MASKED_CS", MLX5_OP_MASKED_CS, 0x14},
    {"MASKED_FA", MLX5_OP_MASKED_FA, 0x15},
    {"DUMP", MLX5_OP_DUMP, 0x23},
    {"opmod 4", MLX5_OPMOD_MASKED_4, 8},
    {"opmod 8", MLX5_OPMOD_MASKED_8, 9},
    {"CQ_UPDATE", MLX5_CTRL_CQ_UPDATE, 8},
    {"SOLICITED", MLX5_CTRL_SOLICITED, 2},
    {"FENCE", MLX5_CTRL_FENCE, 0x80},
    {"SMALL_FENCE", MLX5_CTRL_INITIATOR_SMALL_FENCE, 0x20},
    {"INLINE", MLX5_INLINE, 0x80000000},
    {"EXT_AV", MLX5_EXT_AV, 0x80000000},
    {"CQE REQ", MLX5_CQE_OP_REQ, 0},
    {"CQE REQ_ERR", MLX5_CQE_OP_REQ_ERR, 13},
    {"CQE INVALID", MLX5_CQE_OP_INVALID, 15},
    {"local length", MLX5_SYND_LOCAL_LENGTH, 0x01},
    {"local QP op", MLX5_SYND_LOCAL_QP_OP, 0x02},
    {"local protection", MLX5_SYND_LOCAL_PROT, 0x04},
    {"flush", MLX5_SYND_WR_FLUSH, 0x05},
    {"bad response", MLX5_SYND_BAD_RESP, 0x10},
    {"local access", MLX5_SYND_LOCAL_ACCESS, 0x11},
    {"remote invalid request", MLX5_SYND_REMOTE_INVAL_REQ, 0x12},
    {"remote access", MLX5_SYND_REMOTE_ACCESS, 0x13},
    {"remote op", MLX5_SYND_REMOTE_OP, 0x14},
    {"transport retry", MLX5_SYND_TRANSPORT_RETRY, 0x15},
    {"RNR retry", MLX5_SYND_RNR_RETRY, 0x16},
    {"remote aborted", MLX5_SYND_REMOTE_ABORTED, 0x22},
};

static void test_tables(void) {
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const struct field *f = &fields[i];
        if (f->offset != f->want_offset || f->size != f->want_size) {
            fprintf(stderr, "%s: at %zu, %zu bytes; want at %zu, %zu bytes\n", f->name, f->offset, f->size,
                    f->want_offset, f->want_size);
            test_failures++;
        }
    }
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (values[i].got != values[i].want) {
            fprintf(stderr, "%s: %#llx, want %#llx\n", values[i].name, (unsigned long long)values[i].got,
                    (unsigned long long)values[i].want);
            test_failures++;
        }
}

/* The setters' bytes, spelt out. */
#define CHECK_BYTES(object, ...)                                                                             \
    do {                                                                                                     \
        static const uint8_t bytes_[] = {__VA_ARGS__};                                                       \
        CHECK_EQ(sizeof(object), sizeof bytes_);                                                             \
        CHECK(memcmp(&(object), bytes_, sizeof bytes_) == 0);                                                \
    } while (0)

static void test_bytes(void) {
    struct mlx5_ctrl_seg ctrl;
    memset(&ctrl, 0xff, sizeof ctrl);
    mlx5_ctrl_set(&ctrl, 0xabcd, 0x14, 0x09, 0x123456, 5, 0x88);
    CHECK_BYTES(ctrl, 0x09, 0xab, 0xcd, 0x14, 0x12, 0x34, 0x56, 0x05, 0, 0, 0, 0x88, 0, 0, 0, 0);
    CHECK_EQ(mlx5_ctrl_opcode(&ctrl), 0x14);
    CHECK_EQ(mlx5_ctrl_opmod(&ctrl), 0x09);
    CHECK_EQ(mlx5_ctrl_index(&ctrl), 0xabcd);
    CHECK_EQ(mlx5_ctrl_qpn(&ctrl), 0x123456);
    CHECK_EQ(mlx5_ctrl_ds(&ctrl), 5);
    struct mlx5_raddr_seg raddr;
    mlx5_raddr_set(&raddr, 0x0102030405060708, 0x11121314);
    CHECK_BYTES(raddr, 1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0x12, 0x13, 0x14, 0, 0, 0, 0);
    struct mlx5_data_seg data;
    mlx5_data_set(&data, 0x01020304, 0x11121314, 0x2122232425262728);
    CHECK_BYTES(data, 1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28);
    struct mlx5_inline_seg inl;
    mlx5_inline_set(&inl, 0x0c);
    CHECK_BYTES(inl, 0x80, 0, 0, 0x0c);
    struct mlx5_atomic_seg atomic;
    mlx5_atomic_set(&atomic, 1, 0x0200000000000003);
    CHECK_BYTES(atomic, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 3);
    struct mlx5_masked_cs8_mask_seg mask;
    mlx5_masked_cs8_mask_set(&mask, 0x0f, 0xf0);
    CHECK_BYTES(mask, 0, 0, 0, 0, 0, 0, 0, 0x0f, 0, 0, 0, 0, 0, 0, 0, 0xf0);
    struct mlx5_masked_cs4_seg cs4;
    mlx5_masked_cs4_set(&cs4, 1, 2, 3, 4);
    CHECK_BYTES(cs4, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4);
    struct mlx5_masked_fa8_seg fa8;
    mlx5_masked_fa8_set(&fa8, 1, 2);
    CHECK_BYTES(fa8, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2);
    struct mlx5_masked_fa4_seg fa4;
    mlx5_masked_fa4_set(&fa4, 1, 2);
    CHECK_BYTES(fa4, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0);
    struct mlx5_wait_seg wait;
    mlx5_wait_set(&wait, 0x01020304, 0x0a0b0c);
    CHECK_BYTES(wait, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 0, 0x0a, 0x0b, 0x0c);
    uint32_t record = mlx5_dbr_value(0x12345);
    CHECK_BYTES(record, 0, 0, 0x23, 0x45);
    uint64_t bell = mlx5_doorbell_value(0x12345, 0xabcdef);
    CHECK_BYTES(bell, 0, 0x23, 0x45, 0, 0xab, 0xcd, 0xef, 0);
    CHECK_EQ(mlx5_doorbell_index(bell), 0x2345);
    CHECK_EQ(mlx5_doorbell_qpn(bell), 0xabcdef);
}

/* Owner bits of a ring of 4, three laps on: the driver's view of each byte the NIC can have written. */
static void test_owner(void) {
    for (uint32_t cons = 0; cons < 12; cons++) {
        uint32_t lap = cons / 4;
        CHECK_EQ(mlx5_op_own(0, lap), lap & 1);
        CHECK(mlx5_op_own_ready((uint8_t)(lap & 1), cons, 4));
        CHECK(mlx5_op_own_ready((uint8_t)(0xd0 | (lap & 1)), cons, 4));
        CHECK(!mlx5_op_own_ready((uint8_t)(~lap & 1), cons, 4));
        CHECK(!mlx5_op_own_ready(MLX5_OP_OWN_INITIAL, cons, 4));
    }
    CHECK_EQ(MLX5_OP_OWN_INITIAL, 0xf1);
    CHECK_EQ(mlx5_inline_ds(2, 12), 3);
    CHECK_EQ(mlx5_inline_ds(2, 13), 4);
    CHECK_EQ(mlx5_inline_ds(2, 128), 11);
    CHECK_EQ(mlx5_ds_blocks(4), 1);
    CHECK_EQ(mlx5_ds_blocks(5), 2);
    CHECK_EQ(mlx5_ds_blocks(63), 16);
}

#if defined(__has_include)
#if __has_include(<infiniband/mlx5dv.h>)
#define HAVE_MLX5DV
/* Its own warnings are not ours. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#include <infiniband/mlx5dv.h>
#pragma GCC diagnostic pop

#define SAME(ours, a, theirs, b)                                                                             \
    CHECK_EQ(offsetof(struct ours, a), offsetof(struct theirs, b));                                          \
    CHECK_EQ(sizeof(((struct ours *)0)->a), sizeof(((struct theirs *)0)->b))
#define SAME_SIZE(ours, theirs) CHECK_EQ(sizeof(struct ours), sizeof(struct theirs))

static void test_mlx5dv_layouts(void) {
    SAME_SIZE(mlx5_ctrl_seg, mlx5_wqe_ctrl_seg);
    SAME(mlx5_ctrl_seg, opmod_idx_opcode, mlx5_wqe_ctrl_seg, opmod_idx_opcode);
    SAME(mlx5_ctrl_seg, qpn_ds, mlx5_wqe_ctrl_seg, qpn_ds);
    SAME(mlx5_ctrl_seg, signature, mlx5_wqe_ctrl_seg, signature);
    SAME(mlx5_ctrl_seg, fm_ce_se, mlx5_wqe_ctrl_seg, fm_ce_se);
    SAME(mlx5_ctrl_seg, imm, mlx5_wqe_ctrl_seg, imm);
    SAME_SIZE(mlx5_raddr_seg, mlx5_wqe_raddr_seg);
    SAME(mlx5_raddr_seg, raddr, mlx5_wqe_raddr_seg, raddr);
    SAME(mlx5_raddr_seg, rkey, mlx5_wqe_raddr_seg, rkey);
    SAME_SIZE(mlx5_data_seg, mlx5_wqe_data_seg);
    SAME(mlx5_data_seg, byte_count, mlx5_wqe_data_seg, byte_count);
    SAME(mlx5_data_seg, lkey, mlx5_wqe_data_seg, lkey);
    SAME(mlx5_data_seg, addr, mlx5_wqe_data_seg, addr);
    SAME_SIZE(mlx5_inline_seg, mlx5_wqe_inl_data_seg);
    SAME_SIZE(mlx5_atomic_seg, mlx5_wqe_atomic_seg);
    SAME(mlx5_atomic_seg, swap_add, mlx5_wqe_atomic_seg, swap_add);
    SAME(mlx5_atomic_seg, compare, mlx5_wqe_atomic_seg, compare);
    SAME_SIZE(mlx5_av_ext_seg, mlx5_wqe_av);
    SAME(mlx5_av_ext_seg, base.dqp_dct, mlx5_wqe_av, dqp_dct);
    SAME(mlx5_av_ext_seg, base.rlid, mlx5_wqe_av, rlid);
    SAME(mlx5_av_ext_seg, rmac, mlx5_wqe_av, rmac);
    SAME(mlx5_av_ext_seg, tclass, mlx5_wqe_av, tclass);
    SAME(mlx5_av_ext_seg, hop_limit, mlx5_wqe_av, hop_limit);
    SAME(mlx5_av_ext_seg, grh_gid_fl, mlx5_wqe_av, grh_gid_fl);
    SAME(mlx5_av_ext_seg, rgid, mlx5_wqe_av, rgid);
    SAME_SIZE(mlx5_cqe, mlx5_cqe64);
    SAME(mlx5_cqe, srqn_uidx, mlx5_cqe64, srqn_uidx);
    SAME(mlx5_cqe, imm_inval_pkey, mlx5_cqe64, imm_inval_pkey);
    SAME(mlx5_cqe, byte_cnt, mlx5_cqe64, byte_cnt);
    SAME(mlx5_cqe, timestamp, mlx5_cqe64, timestamp);
    SAME(mlx5_cqe, sop_drop_qpn, mlx5_cqe64, sop_drop_qpn);
    SAME(mlx5_cqe, wqe_counter, mlx5_cqe64, wqe_counter);
    SAME(mlx5_cqe, op_own, mlx5_cqe64, op_own);
    SAME_SIZE(mlx5_cqe_err, mlx5_err_cqe);
    SAME(mlx5_cqe_err, vendor_syndrome, mlx5_err_cqe, vendor_err_synd);
    SAME(mlx5_cqe_err, syndrome, mlx5_err_cqe, syndrome);
    SAME(mlx5_cqe_err, opcode_qpn, mlx5_err_cqe, s_wqe_opcode_qpn);
    SAME(mlx5_cqe_err, wqe_counter, mlx5_err_cqe, wqe_counter);
    SAME(mlx5_cqe_err, op_own, mlx5_err_cqe, op_own);
}

static void test_mlx5dv_values(void) {
    /* The numbers of `values` that mlx5dv.h has as well, in its words. */
    CHECK_EQ(MLX5_BB, MLX5_SEND_WQE_BB);
    CHECK_EQ(MLX5_BB_SHIFT, MLX5_SEND_WQE_SHIFT);
    CHECK_EQ(MLX5_OP_NOP, MLX5_OPCODE_NOP);
    CHECK_EQ(MLX5_OP_RDMA_WRITE, MLX5_OPCODE_RDMA_WRITE);
    CHECK_EQ(MLX5_OP_RDMA_READ, MLX5_OPCODE_RDMA_READ);
    CHECK_EQ(MLX5_OP_ATOMIC_CS, MLX5_OPCODE_ATOMIC_CS);
    CHECK_EQ(MLX5_OP_ATOMIC_FA, MLX5_OPCODE_ATOMIC_FA);
    CHECK_EQ(MLX5_OP_MASKED_CS, MLX5_OPCODE_ATOMIC_MASKED_CS);
    CHECK_EQ(MLX5_OP_MASKED_FA, MLX5_OPCODE_ATOMIC_MASKED_FA);
    CHECK_EQ(MLX5_CTRL_CQ_UPDATE, MLX5_WQE_CTRL_CQ_UPDATE);
    CHECK_EQ(MLX5_CTRL_SOLICITED, MLX5_WQE_CTRL_SOLICITED);
    CHECK_EQ(MLX5_CTRL_FENCE, MLX5_WQE_CTRL_FENCE);
    CHECK_EQ(MLX5_CTRL_INITIATOR_SMALL_FENCE, MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE);
    CHECK_EQ(MLX5_INLINE, MLX5_INLINE_SEG);
    CHECK_EQ(MLX5_EXT_AV, (uint32_t)MLX5_EXTENDED_UD_AV);
    CHECK_EQ(MLX5_CQE_OWNER, MLX5_CQE_OWNER_MASK);
    CHECK_EQ(MLX5_CQE_OP_REQ, MLX5_CQE_REQ);
    CHECK_EQ(MLX5_CQE_OP_REQ_ERR, MLX5_CQE_REQ_ERR);
    CHECK_EQ(MLX5_CQE_OP_INVALID, MLX5_CQE_INVALID);
    CHECK_EQ(MLX5_SYND_LOCAL_LENGTH, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR);
    CHECK_EQ(MLX5_SYND_LOCAL_QP_OP, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
    CHECK_EQ(MLX5_SYND_LOCAL_PROT, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
    CHECK_EQ(MLX5_SYND_WR_FLUSH, MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
    CHECK_EQ(MLX5_SYND_BAD_RESP, MLX5_CQE_SYNDROME_BAD_RESP_ERR);
    CHECK_EQ(MLX5_SYND_LOCAL_ACCESS, MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR);
    CHECK_EQ(MLX5_SYND_REMOTE_INVAL_REQ, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR);
    CHECK_EQ(MLX5_SYND_REMOTE_ACCESS, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
    CHECK_EQ(MLX5_SYND_REMOTE_OP, MLX5_CQE_SYNDROME_REMOTE_OP_ERR);
    CHECK_EQ(MLX5_SYND_TRANSPORT_RETRY, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
    CHECK_EQ(MLX5_SYND_RNR_RETRY, MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR);
    CHECK_EQ(MLX5_SYND_REMOTE_ABORTED, MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR);
    /* Its encoder and ours give the same bytes. */
    struct mlx5_wqe_ctrl_seg theirs;
    struct mlx5_ctrl_seg ours;
    memset(&theirs, 0, sizeof theirs);
    mlx5dv_set_ctrl_seg(&theirs, 0xabcd, 0x15, 9, 0x123456, 0x88, 4, 0, 0);
    mlx5_ctrl_set(&ours, 0xabcd, 0x15, 9, 0x123456, 4, 0x88);
    CHECK(memcmp(&theirs, &ours, sizeof ours) == 0);
}
#endif
#endif

int main(void) {
    test_tables();
    test_bytes();
    test_owner();
#ifdef HAVE_MLX5DV
    test_mlx5dv_layouts();
    test_mlx5dv_values();
#else
    printf("layout_test: mlx5dv.h is not installed, its comparison is left out\n");
#endif
    return test_end("layout_test");
}
