/* Trace: what the NIC did, in one order for all workers.
 *
 * A trace file, all numbers little-endian:
 *
 *     "SNTRACE2"
 *     u32 node, nodes, clock (enum softnic_clock), watch (enum softnic_watch)
 *     u64 start_ns: CLOCK_MONOTONIC at the records' time 0, in virtual time 0
 *     u64 records, lost
 *     char profile[32]
 *     u32 qps, regions
 *     per QP     u32 qpn, cqn, node, remote_qpn, depth, cq_depth (0: collapsed)
 *     per region u64 va, bytes; u32 key, access: the registered memory of this node
 *     the records
 *     u32 CRC-32 (IEEE) of all before
 *
 * Records are packed against what came before; "v" is a LEB128 number, "z" a zigzag one. The first byte has the
 * kind in bits 0-2, SAME_QP in bit 3 and USUAL in bit 4.
 *
 *     all        [not SAME_QP and not MARK: v index of the QP in the table]
 *                z time - time of the record before
 *     DOORBELL   v (index - index of the QP's last doorbell) mod 2^16
 *     WQE        v (index - index behind the QP's last WQE) mod 2^16
 *                [not USUAL: u8 opcode, fm_ce_se, ds, flags; v bytes]; USUAL: those of the QP's last WQE
 *                z raddr - raddr of the QP's last WQE
 *     CQE        v (index - index of the QP's last CQE) mod 2^16
 *                [not USUAL: u8 opcode, syndrome]; USUAL: 0 and 0
 *     MARK       v index
 *
 * All that "last" refers to is 0 at first.
 */
#include "internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Takes the next place of the order. The kind is stored last: a reader knows by it that the rest is there. */
static void push(struct softnic *nic, struct softnic_trace record) {
    uint64_t i = __atomic_fetch_add(&nic->trace.next, 1, __ATOMIC_RELAXED);
    if (i >= nic->trace.capacity)
        return;
    uint8_t kind = record.kind;
    record.kind = 0;
    nic->trace.records[i] = record;
    __atomic_store_n(&nic->trace.records[i].kind, kind, __ATOMIC_RELEASE);
}

static struct softnic_trace start(const struct worker *w, const struct qp *qp, uint16_t index, uint8_t kind) {
    return (struct softnic_trace){
        .time_ns = nic_clock_ps(w->nic) / PS_PER_NS, .qpn = qp->qpn, .index = index, .kind = kind};
}

void trace_doorbell(struct worker *w, const struct qp *qp) {
    push(w->nic, start(w, qp, qp->seen, SOFTNIC_TRACE_DOORBELL));
}

void trace_wqe(struct worker *w, const struct qp *qp, uint16_t index, const struct wqe *wqe) {
    struct softnic_trace record = start(w, qp, index, SOFTNIC_TRACE_WQE);
    record.opcode = wqe->opcode;
    record.bytes = wqe->bytes;
    record.ds = (uint8_t)(wqe->ds + qp->av);
    record.fm_ce_se = wqe->fm_ce_se;
    record.raddr = wqe->raddr;
    record.flags = wqe->is_inline ? SOFTNIC_TRACE_INLINE : 0;
    push(w->nic, record);
}

void trace_cqe(struct worker *w, const struct qp *qp, uint16_t index, uint8_t cqe_opcode, int syndrome) {
    struct softnic_trace record = start(w, qp, index, SOFTNIC_TRACE_CQE);
    record.opcode = cqe_opcode;
    record.syndrome = (uint8_t)syndrome;
    push(w->nic, record);
}

void trace_mark(struct softnic *nic) {
    if (nic->trace.records)
        push(nic, (struct softnic_trace){.time_ns = nic_clock_ps(nic) / PS_PER_NS,
                                         .kind = SOFTNIC_TRACE_MARK,
                                         .index = nic->trace.marks++});
}

static uint64_t recorded(struct softnic *nic, uint64_t *lost_p) {
    uint64_t next = __atomic_load_n(&nic->trace.next, __ATOMIC_ACQUIRE), capacity = nic->trace.capacity;
    *lost_p = next > capacity ? next - capacity : 0;
    return next < capacity ? next : capacity;
}

int softnic_trace_read(struct softnic *nic, struct softnic_trace *records, size_t *count_p,
                       uint64_t *lost_p) {
    if (!nic->trace.records)
        return softnic_fail(-ENODATA, "read trace: tracing is off");
    nic_pause(nic);
    uint64_t there = recorded(nic, lost_p);
    uint64_t count = there < *count_p ? there : *count_p;
    if (count)
        memcpy(records, nic->trace.records, count * sizeof *records);
    nic_unpause(nic);
    *count_p = there;
    return 0;
}

int softnic_trace_clear(struct softnic *nic) {
    if (!nic->trace.records)
        return softnic_fail(-ENODATA, "clear trace: tracing is off");
    nic_pause(nic);
    uint64_t lost, count = recorded(nic, &lost);
    memset(nic->trace.records, 0, count * sizeof *nic->trace.records);
    nic->trace.next = 0;
    nic_unpause(nic);
    return 0;
}

/* ---- the file ---- */

struct out {
    FILE *file;
    uint32_t crc;
    int bad;
};

static void put(struct out *o, const void *data, size_t bytes) {
    const uint8_t *p = data;
    for (size_t i = 0; i < bytes; i++) {
        o->crc ^= p[i];
        for (int bit = 0; bit < 8; bit++)
            o->crc = o->crc >> 1 ^ (o->crc & 1 ? 0xedb88320u : 0);
    }
    o->bad |= bytes && fwrite(data, bytes, 1, o->file) != 1;
}

static void put_le(struct out *o, uint64_t value, int bytes) {
    uint8_t b[8];
    for (int i = 0; i < bytes; i++)
        b[i] = (uint8_t)(value >> 8 * i);
    put(o, b, (size_t)bytes);
}

static size_t pack(uint8_t *to, uint64_t value) {
    size_t n = 0;
    for (; value >= 0x80; value >>= 7)
        to[n++] = (uint8_t)(value | 0x80);
    to[n++] = (uint8_t)value;
    return n;
}

static size_t pack_signed(uint8_t *to, uint64_t difference) {
    return pack(to, difference << 1 ^ (uint64_t)((int64_t)difference >> 63));
}

enum { SAME_QP = 8, USUAL = 16 };

/* What a QP's records are packed against. */
struct packing {
    uint16_t doorbell, wqe, cqe;
    struct softnic_trace last;
};

static int same_shape(const struct softnic_trace *a, const struct softnic_trace *b) {
    return a->opcode == b->opcode && a->fm_ce_se == b->fm_ce_se && a->ds == b->ds && a->flags == b->flags &&
           a->bytes == b->bytes;
}

static size_t pack_wqe(uint8_t *to, const struct softnic_trace *t, struct packing *p) {
    size_t n = pack(to, (uint16_t)(t->index - p->wqe));
    p->wqe = (uint16_t)(t->index + mlx5_ds_blocks(t->ds));
    if (!same_shape(t, &p->last)) {
        const uint8_t shape[] = {t->opcode, t->fm_ce_se, t->ds, t->flags};
        memcpy(to + n, shape, sizeof shape);
        n += sizeof shape;
        n += pack(to + n, t->bytes);
    }
    n += pack_signed(to + n, t->raddr - p->last.raddr);
    p->last = *t;
    return n;
}

static size_t pack_cqe(uint8_t *to, const struct softnic_trace *t, struct packing *p) {
    size_t n = pack(to, (uint16_t)(t->index - p->cqe));
    p->cqe = t->index;
    if (t->opcode || t->syndrome) {
        to[n++] = t->opcode;
        to[n++] = t->syndrome;
    }
    return n;
}

static void put_records(struct out *o, const struct softnic *nic, uint64_t count, struct packing *packing) {
    uint64_t time = 0;
    uint32_t last_qp = UINT32_MAX;
    for (uint64_t i = 0; i < count; i++) {
        const struct softnic_trace *t = &nic->trace.records[i];
        const int mark = t->kind == SOFTNIC_TRACE_MARK;
        const uint32_t q = t->qpn - QPN_BASE;
        struct packing *p = mark ? NULL : &packing[q];
        uint8_t b[48];
        size_t n = 1;
        const int usual = t->kind == SOFTNIC_TRACE_WQE   ? same_shape(t, &p->last)
                          : t->kind == SOFTNIC_TRACE_CQE ? !t->opcode && !t->syndrome
                                                         : 0;
        b[0] = (uint8_t)(t->kind | (q == last_qp ? SAME_QP : 0) | (usual ? USUAL : 0));
        if (!mark && q != last_qp)
            n += pack(b + n, q);
        n += pack_signed(b + n, t->time_ns - time);
        time = t->time_ns;
        if (mark) {
            n += pack(b + n, t->index);
        } else if (t->kind == SOFTNIC_TRACE_DOORBELL) {
            n += pack(b + n, (uint16_t)(t->index - p->doorbell));
            p->doorbell = t->index;
        } else {
            n += t->kind == SOFTNIC_TRACE_WQE ? pack_wqe(b + n, t, p) : pack_cqe(b + n, t, p);
        }
        if (!mark)
            last_qp = q;
        put(o, b, n);
    }
}

static void put_header(struct out *o, const struct softnic *nic, uint64_t count, uint64_t lost) {
    put(o, "SNTRACE2", 8);
    put_le(o, nic->node, 4);
    put_le(o, nic->nodes, 4);
    put_le(o, nic->clock, 4);
    put_le(o, nic->watch, 4);
    put_le(o, nic->clock == SOFTNIC_VIRTUAL ? 0 : nic->start_ns, 8);
    put_le(o, count, 8);
    put_le(o, lost, 8);
    put(o, nic->profile.name, sizeof nic->profile.name);
    uint32_t regions = 0;
    for (uint32_t i = 1; i < nic->max_mrs; i++)
        regions += nic->mrs[i].tag != 0 && !(nic->mrs[i].access & ACCESS_DCT);
    put_le(o, nic->qp_count, 4);
    put_le(o, regions, 4);
    for (uint32_t i = 0; i < nic->qp_count; i++) {
        const struct qp *qp = nic->qps[i];
        if (!qp) { /* ended */
            put_le(o, QPN_BASE + i, 4);
            for (int field = 0; field < 5; field++)
                put_le(o, 0, 4);
            continue;
        }
        put_le(o, qp->qpn, 4);
        put_le(o, qp->cq->cqn, 4);
        put_le(o, qp->node, 4);
        put_le(o, qp->remote_qpn, 4);
        put_le(o, (uint64_t)qp->mask + 1, 4);
        put_le(o, qp->cq->collapsed ? 0 : qp->cq->depth, 4);
    }
    for (uint32_t i = 1; i < nic->max_mrs; i++) {
        const struct shm_mr *mr = &nic->mrs[i];
        if (mr->tag == 0 || (mr->access & ACCESS_DCT))
            continue;
        put_le(o, mr->va, 8);
        put_le(o, mr->len, 8);
        put_le(o, (uint32_t)mr->tag, 4);
        put_le(o, mr->access, 4);
    }
}

static int known(const struct softnic *nic, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        const struct softnic_trace *t = &nic->trace.records[i];
        if (t->kind != SOFTNIC_TRACE_MARK && t->qpn - QPN_BASE >= nic->qp_count)
            return 0;
    }
    return 1;
}

int softnic_trace_save(struct softnic *nic, const char *path) {
    if (!nic->trace.records)
        return softnic_fail(-ENODATA, "save trace: tracing is off");
    struct packing *packing = calloc(nic->qp_count + 1, sizeof *packing);
    if (!packing)
        return softnic_fail(-ENOMEM, "save trace: out of memory for %u QPs", nic->qp_count);
    struct out o = {.file = fopen(path, "wb"), .crc = ~0u};
    if (!o.file) {
        int error = errno;
        free(packing);
        return softnic_fail(-error, "save trace: open %s: %s", path, strerror(error));
    }
    nic_pause(nic);
    uint64_t lost, count = recorded(nic, &lost);
    const int ours = known(nic, count);
    if (ours) {
        put_header(&o, nic, count, lost);
        put_records(&o, nic, count, packing);
    }
    nic_unpause(nic);
    put_le(&o, ~o.crc, 4);
    const int bad = fclose(o.file) != 0 || o.bad;
    free(packing);
    if (!ours)
        return softnic_fail(-EINVAL, "save trace: a record is of no QP of this NIC");
    return bad ? softnic_fail(-EIO, "save trace: write %s", path) : 0;
}
