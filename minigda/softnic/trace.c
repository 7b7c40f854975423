/* Trace: what the NIC did, in one order for all workers. */
#include "internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static_assert(sizeof(struct softnic_trace) == 32, "a trace record is 32 bytes in the file");

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
    record.ds = wqe->ds;
    record.fm_ce_se = wqe->fm_ce_se;
    record.raddr = wqe->raddr;
    push(w->nic, record);
}

void trace_cqe(struct worker *w, const struct qp *qp, uint16_t index, uint8_t cqe_opcode, int syndrome) {
    struct softnic_trace record = start(w, qp, index, SOFTNIC_TRACE_CQE);
    record.opcode = cqe_opcode;
    record.syndrome = (uint8_t)syndrome;
    push(w->nic, record);
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

int softnic_trace_save(struct softnic *nic, const char *path) {
    if (!nic->trace.records)
        return softnic_fail(-ENODATA, "save trace: tracing is off");
    FILE *f = fopen(path, "wb");
    if (!f) {
        int error = errno;
        return softnic_fail(-error, "save trace: open %s: %s", path, strerror(error));
    }
    nic_pause(nic);
    uint64_t lost, count = recorded(nic, &lost);
    uint32_t sizes[2] = {sizeof(struct softnic_trace), (uint32_t)count};
    int ok = fwrite("SNTRACE1", 8, 1, f) == 1 && fwrite(sizes, sizeof sizes, 1, f) == 1 &&
             fwrite(nic->trace.records, sizeof(struct softnic_trace), count, f) == count;
    nic_unpause(nic);
    ok = fclose(f) == 0 && ok;
    return ok ? 0 : softnic_fail(-EIO, "save trace: write %s", path);
}
