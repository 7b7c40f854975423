/* Every opcode: bytes of a WQE in, bytes at the target and of the CQE out. */
#include "test.h"

static void test_nop(void) {
    struct rig r = rig_virtual();
    struct rig_qp *q = r.qp;
    CHECK_EQ(q->cqe[63], 0xf1);
    rig_nop(q, 8);
    rig_ring(q);
    CHECK(!rig_cqe_there(q, 0)); /* virtual time stands still */
    softnic_advance(r.nic[0], 0);
    CHECK_OK(q, 0, 0x00, 0);
    /* A NOP may be of any size; only its control segment is written. */
    rig_ctrl(q, 0x00, 0, 7, 8);
    rig_advance_index(q, 2);
    rig_nop(q, 8);
    rig_ring(q);
    softnic_advance(r.nic[0], 0);
    CHECK_OK(q, 1, 0x00, 1);
    CHECK_OK(q, 2, 0x00, 3);
    rig_free(&r);
}

static void test_write_pointer(void) {
    struct rig r = rig_virtual();
    struct rig_qp *q = r.qp;
    for (int i = 0; i < 4096; i++)
        r.mem[0][i] = (uint8_t)(i * 7 + 1);
    rig_write(q, r.mem[1] + 100, r.key[1], r.mem[0] + 3, r.key[0], 1001, 8);
    rig_ring(q);
    softnic_advance(r.nic[0], 0);
    CHECK_OK(q, 0, 0x08, 0);
    CHECK_EQ(get32(q->cqe + 44), 0); /* byte_cnt is for responses */
    CHECK(memcmp(r.mem[1] + 100, r.mem[0] + 3, 1001) == 0);
    CHECK_EQ(r.mem[1][99], 0);
    CHECK_EQ(r.mem[1][1101], 0);
    rig_free(&r);
}

int main(void) {
    test_nop();
    test_write_pointer();
    return test_end("wqe_test");
}
