/* Memory that softnic did not allocate and peers map themselves: two views of one memfd stand for two processes. */
#define _GNU_SOURCE
#include "test.h"

#include <errno.h>
#include <sys/mman.h>

enum { BYTES = 4096, CALLER_MAPPED = ALL_RIGHTS | SOFTNIC_PEER_MAPPED };

struct views {
    uint8_t *owner, *peer; /* of the same pages */
};

static struct views views_make(void) {
    int fd = memfd_create("views", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, BYTES) != 0)
        exit(1);
    struct views v;
    v.owner = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    v.peer = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (v.owner == MAP_FAILED || v.peer == MAP_FAILED)
        exit(1);
    close(fd);
    return v;
}

static void views_free(struct views *v) {
    munmap(v->owner, BYTES);
    munmap(v->peer, BYTES);
}

/* The initiator goes through its own view alone: the owner's is made unreadable meanwhile. */
static void test_every_operation(void) {
    struct rig r = rig_virtual();
    struct views v = views_make();
    uint32_t key;
    MUST(softnic_mr_register(r.nic[1], v.owner, BYTES, CALLER_MAPPED, &key));
    MUST(softnic_mr_attach(r.nic[0], 1, key, v.peer));
    CHECK(mprotect(v.owner, BYTES, PROT_NONE) == 0);
    uint64_t value = 0x1122334455667788, old = 0;
    memcpy(r.mem[0], "from the initiator", 19);
    rig_write(r.qp, v.owner + 100, key, r.mem[0], r.key[0], 19, 0);
    rig_write_inline(r.qp, v.owner + 8, key, &value, 8, 0);
    rig_fetch_add(r.qp, v.owner + 8, key, 1, r.mem[0] + 64, r.key[0], 0);
    rig_read(r.qp, v.owner + 8, key, r.mem[0] + 128, r.key[0], 8, 8);
    rig_ring(r.qp);
    softnic_advance(r.nic[0], 1000);
    CHECK_OK(r.qp, 0, 0x10, 3);
    CHECK(memcmp(v.peer + 100, "from the initiator", 19) == 0);
    memcpy(&old, r.mem[0] + 64, 8);
    CHECK_EQ(old, value);
    memcpy(&old, r.mem[0] + 128, 8);
    CHECK_EQ(old, value + 1);
    rig_free(&r);
    views_free(&v);
}

/* One write of 8 bytes: the syndrome, 0 when it landed. The QP is ready again afterwards. */
static unsigned write_status(struct rig *r, void *to, uint32_t key) {
    rig_write(r->qp, to, key, r->mem[0], r->key[0], 8, 8);
    rig_ring(r->qp);
    softnic_advance(r->nic[0], 1000);
    unsigned syndrome = softnic_qp_syndrome(r->nic[0], r->qp->qpn);
    memset(r->qp->dbr, 0, sizeof r->qp->dbr);
    r->qp->posted = 0;
    MUST(softnic_qp_reset(r->nic[0], r->qp->qpn));
    return syndrome;
}

/* Nothing is reached before it is attached, beyond its bounds, against its rights, or after it is gone. */
static void test_what_fails(void) {
    enum { REMOTE_ACCESS = 0x13, REMOTE_OP = 0x14 };
    struct rig r = rig_virtual();
    struct views v = views_make();
    uint32_t key, readable, again;
    MUST(softnic_mr_register(r.nic[1], v.owner, BYTES, CALLER_MAPPED, &key));
    CHECK_EQ(write_status(&r, v.owner, key), REMOTE_OP);
    MUST(softnic_mr_attach(r.nic[0], 1, key, v.peer));
    CHECK_EQ(write_status(&r, v.owner, key), 0);
    CHECK_EQ(write_status(&r, v.owner + BYTES - 8, key), 0);
    CHECK_EQ(write_status(&r, v.owner + BYTES - 7, key), REMOTE_ACCESS);
    CHECK_EQ(write_status(&r, v.owner - 1, key), REMOTE_ACCESS);
    CHECK_EQ(write_status(&r, v.peer, key), REMOTE_ACCESS); /* the owner's addresses count */
    MUST(softnic_mr_register(r.nic[1], v.owner, BYTES, SOFTNIC_REMOTE_READ | SOFTNIC_PEER_MAPPED, &readable));
    MUST(softnic_mr_attach(r.nic[0], 1, readable, v.peer));
    CHECK_EQ(write_status(&r, v.owner, readable), REMOTE_ACCESS);
    MUST(softnic_mr_deregister(r.nic[1], key));
    CHECK_EQ(write_status(&r, v.owner, key), REMOTE_ACCESS);
    /* Every slot is used in turn, so that this key's slot has had another owner: the old attachment is not its. */
    do
        MUST(softnic_mr_register(r.nic[1], v.owner, BYTES, CALLER_MAPPED, &again));
    while (again >> 8 != key >> 8 && softnic_mr_deregister(r.nic[1], again) == 0);
    CHECK(again != key);
    CHECK_EQ(write_status(&r, v.owner, again), REMOTE_OP);
    rig_free(&r);
    views_free(&v);
}

static void test_refusals(void) {
    struct rig r = rig_virtual();
    struct views v = views_make();
    uint32_t key;
    MUST(softnic_mr_register(r.nic[1], v.owner, BYTES, CALLER_MAPPED, &key));
    CHECK(softnic_mr_attach(r.nic[0], 1, key + 1, v.peer) == -ENOENT);
    CHECK(softnic_mr_attach(r.nic[0], 1, 0xffffff00, v.peer) == -ENOENT);
    CHECK(softnic_mr_attach(r.nic[0], 1, r.key[1], v.peer) == -EINVAL); /* softnic finds that one itself */
    CHECK(softnic_mr_attach(r.nic[0], 0, r.key[0], v.peer) == -EINVAL); /* its own */
    CHECK(softnic_mr_attach(r.nic[0], 2, key, v.peer) == -EINVAL);
    CHECK(softnic_mr_attach(r.nic[0], 1, key, NULL) == -EINVAL);
    CHECK(strstr(softnic_error(), "attach: key 0x") != NULL);
    CHECK(softnic_mr_register(r.nic[1], v.owner, BYTES, 64, &key) == -EINVAL);
    rig_free(&r);
    views_free(&v);
    struct softnic *alone;
    struct softnic_attr attr = {.job = rig_job(), .nodes = 2, .clock = SOFTNIC_VIRTUAL};
    MUST(softnic_create(&attr, &alone));
    CHECK(softnic_mr_attach(alone, 1, 0x100, r.mem) == -ENXIO);
    softnic_destroy(alone);
}

int main(void) {
    test_every_operation();
    test_what_fails();
    test_refusals();
    return test_end("attach_test");
}
