#include "minigda/gda_trace.h"

#include "backends/abi/driver.cuh"
#include "minigda/mlx5/mlx5.h"

#include <errno.h>
#include <stdio.h>

namespace {

class Reader {
  public:
    explicit Reader(const std::vector<uint8_t> &bytes)
        : p_(bytes.data()), end_(bytes.data() + bytes.size()) {}

    bool ok() const { return ok_; }
    size_t left() const { return (size_t)(end_ - p_); }
    uint64_t le(int bytes) {
        uint64_t v = 0;
        if (left() < (size_t)bytes)
            ok_ = false;
        for (int i = 0; ok_ && i < bytes; i++)
            v |= (uint64_t)*p_++ << 8 * i;
        return v;
    }
    uint32_t u32() { return (uint32_t)le(4); }
    uint8_t u8() { return (uint8_t)le(1); }
    std::string text(size_t bytes) {
        if (left() < bytes) {
            ok_ = false;
            return "";
        }
        std::string s((const char *)p_, bytes);
        p_ += bytes;
        return s;
    }
    uint64_t packed() {
        uint64_t v = 0;
        for (int shift = 0; shift < 64; shift += 7) {
            const uint8_t b = u8();
            if (shift == 63 && b > 1)
                break;
            v |= (uint64_t)(b & 0x7f) << shift;
            if (!ok_ || b < 0x80)
                return v;
        }
        ok_ = false;
        return 0;
    }
    uint64_t packed_signed() {
        const uint64_t v = packed();
        return v >> 1 ^ (0 - (v & 1));
    }

  private:
    const uint8_t *p_, *end_;
    bool ok_ = true;
};

uint32_t crc_of(const uint8_t *p, size_t n) {
    uint32_t crc = ~0u;
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

int load(const char *path, std::vector<uint8_t> *bytes_p) {
    FILE *f = fopen(path, "rb");
    if (!f)
        return gic::fail(-errno, "read trace %s: %s", path, strerror(errno));
    uint8_t part[1 << 16];
    for (size_t n; (n = fread(part, 1, sizeof part, f)) > 0;)
        bytes_p->insert(bytes_p->end(), part, part + n);
    const bool bad = ferror(f) != 0;
    fclose(f);
    return bad ? gic::fail(-EIO, "read trace %s: %s", path, strerror(EIO)) : 0;
}

struct packing {
    uint16_t doorbell, wqe, cqe;
    struct softnic_trace last;
};
enum { KIND = 7, SAME_QP = 8, USUAL = 16 };

void read_wqe(Reader &in, bool usual, uint16_t moved, packing *p, struct softnic_trace *r) {
    r->index = (uint16_t)(p->wqe + moved);
    if (usual) {
        r->opcode = p->last.opcode;
        r->fm_ce_se = p->last.fm_ce_se;
        r->ds = p->last.ds;
        r->flags = p->last.flags;
        r->bytes = p->last.bytes;
    } else {
        r->opcode = in.u8();
        r->fm_ce_se = in.u8();
        r->ds = in.u8() & 63;
        r->flags = in.u8();
        r->bytes = (uint32_t)in.packed();
    }
    r->raddr = p->last.raddr + in.packed_signed();
    p->wqe = (uint16_t)(r->index + mlx5_ds_blocks(r->ds));
    p->last = *r;
}

bool read_records(Reader &in, uint64_t count, gda_trace *t) {
    std::vector<packing> packed(t->qps.size());
    uint64_t time = 0, qp = t->qps.size();
    for (uint64_t i = 0; i < count && in.ok(); i++) {
        struct softnic_trace r {};
        const uint8_t head = in.u8();
        r.kind = head & KIND;
        const bool mark = r.kind == SOFTNIC_TRACE_MARK;
        if (!mark && !(head & SAME_QP))
            qp = in.packed();
        if (r.kind == 0 || r.kind > SOFTNIC_TRACE_MARK || (!mark && qp >= t->qps.size()))
            return false;
        r.time_ns = time += in.packed_signed();
        const uint16_t moved = (uint16_t)in.packed();
        packing *p = mark ? nullptr : &packed[qp];
        r.qpn = mark ? 0 : t->qps[qp].qpn;
        if (mark) {
            r.index = moved;
        } else if (r.kind == SOFTNIC_TRACE_DOORBELL) {
            r.index = p->doorbell = (uint16_t)(p->doorbell + moved);
        } else if (r.kind == SOFTNIC_TRACE_WQE) {
            read_wqe(in, head & USUAL, moved, p, &r);
        } else {
            r.index = p->cqe = (uint16_t)(p->cqe + moved);
            if (!(head & USUAL)) {
                r.opcode = in.u8();
                r.syndrome = in.u8();
            }
        }
        t->records.push_back(r);
    }
    return in.ok();
}

bool read_all(Reader &in, gda_trace *t) {
    t->rank = in.u32();
    t->ranks = in.u32();
    t->real_time = in.u32() == SOFTNIC_REAL;
    in.u32(); // watch
    t->start_ns = in.le(8);
    const uint64_t records = in.le(8);
    t->lost = in.le(8);
    t->profile = in.text(32);
    t->profile.resize(strnlen(t->profile.data(), t->profile.size()));
    const uint32_t qps = in.u32(), regions = in.u32();
    for (uint32_t i = 0; i < qps && in.ok(); i++) {
        gda_trace_qp q{};
        for (uint32_t *field : {&q.qpn, &q.cqn, &q.peer, &q.remote_qpn, &q.depth, &q.cq_depth})
            *field = in.u32();
        t->qps.push_back(q);
    }
    for (uint32_t i = 0; i < regions && in.ok(); i++) {
        gda_trace_region r{};
        r.va = in.le(8);
        r.bytes = in.le(8);
        r.key = in.u32();
        r.access = in.u32();
        t->regions.push_back(r);
    }
    return in.ok() && t->ranks && t->rank < t->ranks && read_records(in, records, t);
}

} // namespace

int gda_trace_read(const char *path, gda_trace *t) {
    std::vector<uint8_t> bytes;
    if (int rc = load(path, &bytes))
        return rc;
    const size_t n = bytes.size();
    if (n < 12 || memcmp(bytes.data(), "SNTRACE", 7) != 0)
        return gic::fail(-EBADMSG, "read trace %s: is no trace of the software NIC", path);
    if (bytes[7] != '2')
        return gic::fail(-EBADMSG, "read trace %s: is a trace of version \"%c\"; allowed: \"2\"", path,
                         bytes[7]);
    uint32_t sum = 0;
    for (int i = 0; i < 4; i++)
        sum |= (uint32_t)bytes[n - 4 + (size_t)i] << 8 * i;
    if (crc_of(bytes.data(), n - 4) != sum)
        return gic::fail(-EBADMSG, "read trace %s: its checksum is wrong: cut or damaged", path);
    bytes.erase(bytes.begin(), bytes.begin() + 8);
    bytes.resize(n - 12);
    *t = gda_trace{};
    Reader in(bytes);
    if (!read_all(in, t) || in.left() != 0)
        return gic::fail(-EBADMSG, "read trace %s: its contents make no sense", path);
    return 0;
}

std::vector<struct softnic_trace> gda_trace_last_run(const gda_trace &t) {
    size_t end = t.records.size();
    bool some = false;
    for (size_t i = t.records.size(); i-- > 0;) {
        if (t.records[i].kind != SOFTNIC_TRACE_MARK)
            continue;
        if (some)
            return {t.records.begin() + (ptrdiff_t)i + 1, t.records.begin() + (ptrdiff_t)end};
        some = true;
        end = i;
    }
    return t.records;
}
