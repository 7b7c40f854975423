// What mini-gda writes into a send queue, byte by byte, against a table written from the published layouts.
#include "minigda/gda_test.h"

using namespace gda_test;

namespace {

struct Field {
    uint32_t at, width; // big-endian, at byte `at` of the WQE
    uint64_t value;
};

// The `blocks` * 64 bytes of the queue from block `index` on: the fields, zeroes in between, up to `bytes`.
void expect(gda *g, uint32_t peer, uint32_t index, uint32_t bytes, const std::vector<Field> &fields,
            const char *what) {
    std::vector<uint8_t> want(bytes, 0), got(bytes);
    for (const Field &f : fields)
        for (uint32_t i = 0; i < f.width; i++)
            want[f.at + i] = (uint8_t)(f.value >> (8 * (f.width - 1 - i)));
    const gda_qp &qp = g->fabric->qps[peer * g->attr.qps];
    for (uint32_t i = 0; i < bytes; i++)
        got[i] = qp.sq[((size_t)index * 64 + i) % ((size_t)qp.depth * 64)];
    for (uint32_t i = 0; i < bytes; i++)
        CHECK(got[i] == want[i], "%s: byte %u is 0x%02x, want 0x%02x", what, i, got[i], want[i]);
}

constexpr uint32_t write_op = 0x08, read_op = 0x10, fetch_add_op = 0x12;
constexpr uint64_t signaled = 0x08, fenced = 0x80;
constexpr uint64_t window_bytes = 1 << 16;

struct Setup {
    Rig rig;
    gda *g;
    gda_handle<gda_order::gpu_fence, gda_sharing::exclusive> h;
    uint64_t remote, rkey, lkey, qpn, local;

    explicit Setup(const gda_attr &a) : rig(2, a, SOFTNIC_VIRTUAL, window_bytes, {}, 20000000) {
        g = rig.g[0];
        MUST(gda_begin(g, 1));
        h = gda_handle_of<gda_order::gpu_fence, gda_sharing::exclusive>(g);
        remote = g->fabric->peers[1].window;
        rkey = g->fabric->peers[1].rkey;
        lkey = g->fabric->window_key;
        qpn = g->fabric->qps[1].qpn;
        local = (uint64_t)(uintptr_t)g->fabric->window;
        for (uint32_t i = 0; i < window_bytes; i++)
            g->fabric->window[i] = (uint8_t)(i * 7 + 3);
    }
    uint64_t bytes_at(uint64_t off, uint32_t n) { // as a big-endian number, so that fields keep memory order
        uint64_t v = 0;
        for (uint32_t i = 0; i < n; i++)
            v = v << 8 | g->fabric->window[off + i];
        return v;
    }
    std::vector<Field> head(uint32_t index, uint32_t op, uint32_t ds, uint64_t flags, uint64_t raddr) {
        return {{0, 4, (uint64_t)index << 8 | op},
                {4, 4, qpn << 8 | ds},
                {11, 1, flags},
                {16, 8, raddr},
                {24, 4, rkey}};
    }
};
using Agent = gda_agent<gda_order::gpu_fence, gda_sharing::exclusive>;

void check_inline() {
    Setup s(defaults());
    Agent agent(s.h, gic::Self{0, 1, 0, 1});
    // 8 bytes: length with the inline bit, payload behind it.
    MUST(agent.put(1, 0x1230, 0x40, 8));
    auto f = s.head(0, write_op, 3, signaled, s.remote + 0x1230);
    f.push_back({32, 4, 0x80000008});
    f.push_back({36, 8, s.bytes_at(0x40, 8)});
    expect(s.g, 1, 0, 48, f, "put inline 8");
    // 8 bytes from an odd address; 1 byte; 28 bytes fill the block.
    MUST(agent.put(1, 0x11, 0x43, 8));
    f = s.head(1, write_op, 3, signaled, s.remote + 0x11);
    f.push_back({32, 4, 0x80000008});
    f.push_back({36, 8, s.bytes_at(0x43, 8)});
    expect(s.g, 1, 1, 48, f, "put inline 8, unaligned");
    MUST(agent.put(1, 0x99, 0x77, 1));
    f = s.head(2, write_op, 3, signaled, s.remote + 0x99);
    f.push_back({32, 4, 0x80000001});
    f.push_back({36, 1, s.bytes_at(0x77, 1)});
    expect(s.g, 1, 2, 48, f, "put inline 1");
    MUST(agent.put(1, 0x500, 0x600, 28));
    f = s.head(3, write_op, 4, signaled, s.remote + 0x500);
    f.push_back({32, 4, 0x8000001c});
    for (uint32_t i = 0; i < 28; i += 4)
        f.push_back({36 + i, 4, s.bytes_at(0x600 + i, 4)});
    expect(s.g, 1, 3, 64, f, "put inline 28");
    // 29 bytes no longer fit a block: by pointer under inline=auto.
    MUST(agent.put(1, 0x700, 0x800, 29));
    f = s.head(4, write_op, 3, signaled, s.remote + 0x700);
    f.push_back({32, 4, 29});
    f.push_back({36, 4, s.lkey});
    f.push_back({40, 8, s.local + 0x800});
    expect(s.g, 1, 4, 48, f, "put pointer 29");
    // Nothing to move: no data segment.
    MUST(agent.put(1, 0x900, 0xa00, 0));
    expect(s.g, 1, 5, 32, s.head(5, write_op, 2, signaled, s.remote + 0x900), "put 0");
    CHECK(agent.put(1, 0, 0, (1u << 30) + 1) == gic::ERR_INVAL, "a put above 1 GiB");
    CHECK(agent.put(2, 0, 0, 8) == gic::ERR_INVAL, "a put to a rank that is not there");
}

// Every size behind every other one: what an agent has seen of a size must not carry over to the next. Each twice, by
// one agent, and from the batch before into the next.
void check_sizes_in_turn(uint32_t inline_max, uint32_t batch) {
    gda_attr a = defaults();
    a.inline_max = inline_max;
    a.batch = batch;
    a.depth = 128;
    Setup s(a);
    Agent agent(s.h, gic::Self{0, 1, 0, 1});
    const uint32_t sizes[] = {0, 1, 4, 8, 13, 16, 28, 29, 64, 200};
    uint32_t index = 0, last = 0;
    auto put = [&](uint32_t bytes, uint64_t src) {
        const bool carried = bytes && bytes <= inline_max;
        const uint32_t ds = carried ? 2 + (4 + bytes + 15) / 16 : bytes ? 3 : 2;
        MUST(agent.put(1, 0x1000 + src, src, bytes));
        auto f = s.head(index, write_op, ds, signaled, s.remote + 0x1000 + src);
        if (carried) {
            f.push_back({32, 4, 0x80000000 | bytes});
            for (uint32_t i = 0; i < bytes; i++)
                f.push_back({36 + i, 1, s.bytes_at(src + i, 1)});
        } else if (bytes) {
            f.push_back({32, 4, bytes});
            f.push_back({36, 4, s.lkey});
            f.push_back({40, 8, s.local + src});
        }
        const std::string what = "put " + std::to_string(bytes) + " of inline_max " +
                                 std::to_string(inline_max) + ", batch " + std::to_string(batch);
        expect(s.g, 1, index, ds * 16, f, what.c_str());
        last = index;
        index += (ds + 3) / 4;
        s.rig.step();
    };
    for (uint32_t first : sizes)
        for (uint32_t then : sizes)
            for (uint64_t shift : {0, 4, 3}) {
                put(first, 0x100 + shift);
                put(then, 0x100 + shift);
                put(then, 0x200);
            }
    MUST(agent.ring());
    s.rig.step();
    const gda_qp &qp = s.g->fabric->qps[s.g->attr.qps];
    CHECK(mlx5_cqe_wqe_counter(qp.cqe) == (uint16_t)last,
          "inline_max %u, batch %u: the last CQE is of WQE %u, not %u", inline_max, batch,
          mlx5_cqe_wqe_counter(qp.cqe), last);
}

// The same of a group, whose messages of one call may differ, also beyond what a WQE can carry.
void check_group_sizes(uint32_t inline_max) {
    gda_attr a = defaults();
    a.sharing = gda_sharing::group;
    a.lanes = 32;
    a.inline_max = inline_max;
    a.batch = 3;
    a.depth = 128;
    Setup s(a);
    const auto h = gda_handle_of<gda_order::gpu_fence, gda_sharing::group>(s.g);
    gda_agent<gda_order::gpu_fence, gda_sharing::group> agent(h, gic::Self{0, 1, 0, 32});
    const uint32_t sizes[] = {0, 1, 8, 28, 29, 200, (1u << 30) + 1};
    uint32_t index = 0;
    for (uint32_t first : sizes)
        for (uint32_t then : sizes)
            for (uint64_t shift : {0, 3}) {
                const uint32_t of[] = {first, then, then};
                const int status = agent.put_each(1, 3, [&](uint32_t i) {
                    return gic::Message{0x1000 + 0x100 * i, 0x100 * i + shift, of[i]};
                });
                const bool fine = first <= 1u << 30 && then <= 1u << 30;
                CHECK(status == (fine ? (int)gic::OK : (int)gic::ERR_INVAL), "sizes %u, %u: status %d", first,
                      then, status);
                for (uint32_t i = 0; i < 3; i++, index++) {
                    const uint32_t bytes = of[i];
                    const uint64_t src = 0x100 * i + shift;
                    const bool nop = bytes > 1u << 30, carried = bytes && bytes <= inline_max;
                    const uint32_t ds = nop ? 1 : carried ? 2 + (4 + bytes + 15) / 16 : bytes ? 3 : 2;
                    auto f = s.head(index, nop ? 0 : write_op, ds, signaled, s.remote + 0x1000 + 0x100 * i);
                    if (nop)
                        f.resize(3);
                    if (carried) {
                        f.push_back({32, 4, 0x80000000 | bytes});
                        for (uint32_t k = 0; k < bytes; k++)
                            f.push_back({36 + k, 1, s.bytes_at(src + k, 1)});
                    } else if (bytes && !nop) {
                        f.push_back({32, 4, bytes});
                        f.push_back({36, 4, s.lkey});
                        f.push_back({40, 8, s.local + src});
                    }
                    const std::string what = "group: " + std::to_string(bytes) + " of inline_max " +
                                             std::to_string(inline_max) + ", message " + std::to_string(i);
                    expect(s.g, 1, index, ds * 16, f, what.c_str());
                }
                s.rig.step();
            }
}

void check_multi_block() {
    gda_attr a = defaults();
    a.inline_max = GDA_INLINE_MAX;
    a.inline_only = true;
    Setup s(a);
    Agent agent(s.h, gic::Self{0, 1, 0, 1});
    // 29 bytes: 5 segments, 2 blocks. 972: 63 segments, 16 blocks; from block 2 on they end in block 17.
    MUST(agent.put(1, 0x10, 0x100, 29));
    auto f = s.head(0, write_op, 5, signaled, s.remote + 0x10);
    f.push_back({32, 4, 0x8000001d});
    for (uint32_t i = 0; i < 29; i++)
        f.push_back({36 + i, 1, s.bytes_at(0x100 + i, 1)});
    expect(s.g, 1, 0, 80, f, "put inline 29");
    for (uint32_t index = 2; index < 70; index += 16) { // the fifth runs over the end of the 64 blocks
        MUST(agent.put(1, 0x20, 0x200, 972));
        f = s.head(index, write_op, 63, signaled, s.remote + 0x20);
        f.push_back({32, 4, 0x800003cc});
        for (uint32_t i = 0; i < 972; i++)
            f.push_back({36 + i, 1, s.bytes_at(0x200 + i, 1)});
        expect(s.g, 1, index, 63 * 16, f, "put inline 972");
        s.rig.step();
    }
    CHECK(agent.put(1, 0, 0, 973) == gic::ERR_INVAL, "inline=on above what a WQE holds");
}

void check_values_and_atomics() {
    gda_attr a = defaults();
    a.signal_every = 4;
    Setup s(a);
    const uint64_t landing = (uint64_t)(uintptr_t)&s.g->landings[1].old;
    Agent agent(s.h, gic::Self{0, 1, 0, 1});
    MUST(agent.put_value(1, 0x40, 0x1122334455667788, 8));
    auto f = s.head(0, write_op, 3, 0, s.remote + 0x40);
    f.push_back({32, 4, 0x80000008});
    f.push_back({36, 8, 0x8877665544332211}); // memory order of a little-endian value
    expect(s.g, 1, 0, 48, f, "put_value 8");
    MUST(agent.put_value(1, 0x48, 0x1122334455667788, 2));
    f = s.head(1, write_op, 3, 0, s.remote + 0x48);
    f.push_back({32, 4, 0x80000002});
    f.push_back({36, 2, 0x8877});
    expect(s.g, 1, 1, 48, f, "put_value 2");
    CHECK(agent.put_value(1, 0, 0, 3) == gic::ERR_INVAL, "put_value of 3 bytes");

    MUST(agent.signal(1, 0x80, 5));
    f = s.head(2, fetch_add_op, 4, 0, s.remote + 0x80);
    f.push_back({32, 8, 5});
    f.push_back({48, 4, 8});
    f.push_back({52, 4, s.g->landing_key});
    f.push_back({56, 8, landing});
    expect(s.g, 1, 2, 64, f, "signal");
    MUST(agent.get(1, 0x3000, 0x4000, 256)); // the fourth: signaled
    f = s.head(3, read_op, 3, signaled, s.remote + 0x4000);
    f.push_back({32, 4, 256});
    f.push_back({36, 4, s.lkey});
    f.push_back({40, 8, s.local + 0x3000});
    expect(s.g, 1, 3, 48, f, "get");
    MUST(agent.fence(1)); // behind a read: the next WQE waits for it, only that one
    MUST(agent.put_value(1, 0x40, 1, 1));
    f = s.head(4, write_op, 3, fenced, s.remote + 0x40);
    f.push_back({32, 4, 0x80000001});
    f.push_back({36, 1, 1});
    expect(s.g, 1, 4, 48, f, "put_value behind a fence");
    // Blocking: times out, nobody serves; but it is in the queue, signaled out of turn.
    uint64_t old;
    CHECK(agent.fetch_add(1, 0x88, 9, &old) == gic::ERR_TIMEOUT, "fetch_add with nobody to serve it");
    f = s.head(5, fetch_add_op, 4, signaled, s.remote + 0x88);
    f.push_back({32, 8, 9});
    f.push_back({48, 4, 8});
    f.push_back({52, 4, s.g->landing_key});
    f.push_back({56, 8, landing});
    expect(s.g, 1, 5, 64, f, "fetch_add");
    MUST(agent.put_value(1, 0x40, 1, 1));
    CHECK(agent.flush(1) == gic::ERR_TIMEOUT, "flush with nobody to serve it");
    expect(s.g, 1, 7, 16, {{0, 4, 7 << 8}, {4, 4, s.qpn << 8 | 1}, {11, 1, signaled}}, "NOP of a flush");
}

void check_never_inline() {
    gda_attr a = defaults();
    a.inline_max = 0;
    Setup s(a);
    Agent agent(s.h, gic::Self{0, 1, 0, 1});
    MUST(agent.put(1, 0x40, 0x50, 8));
    auto f = s.head(0, write_op, 3, signaled, s.remote + 0x40);
    f.push_back({32, 4, 8});
    f.push_back({36, 4, s.lkey});
    f.push_back({40, 8, s.local + 0x50});
    expect(s.g, 1, 0, 48, f, "put pointer 8");
    MUST(agent.put_value(1, 0x60, 42, 8));
    const gda_queue &q = s.g->queues[1];
    f = s.head(1, write_op, 3, signaled, s.remote + 0x60);
    f.push_back({32, 4, 8});
    f.push_back({36, 4, q.values_key});
    f.push_back({40, 8, (uint64_t)(uintptr_t)(q.values + 1)});
    expect(s.g, 1, 1, 48, f, "put_value by pointer");
    CHECK(q.values[1] == 42, "its word holds %llu", (unsigned long long)q.values[1]);
    s.rig.step();
    MUST(agent.flush(1));
    CHECK(*(uint64_t *)(s.rig.window(1) + 0x60) == 42, "the value did not arrive");
    CHECK(s.rig.count(0, "wqe_write") == 2 && s.rig.count(0, "wqe_write_inline") == 0,
          "something went inline");
}

// Doorbell record and doorbell: next free block, 16 bits; index << 8 and QPN << 8 in the doorbell's halves.
void check_doorbell() {
    Setup s(defaults());
    Agent agent(s.h, gic::Self{0, 1, 0, 1});
    const gda_qp &qp = s.g->fabric->qps[1];
    for (uint32_t i = 1; i <= 65600; i++) {
        MUST(agent.put(1, 0, 0, 8));
        const uint8_t *d = (const uint8_t *)qp.dbr, *b = (const uint8_t *)qp.bell;
        const uint32_t low = i & 0xffff;
        const bool record = d[4] == 0 && d[5] == 0 && d[6] == low >> 8 && d[7] == (low & 0xff);
        const bool bell = b[0] == 0 && b[1] == low >> 8 && b[2] == (low & 0xff) && b[3] == 0 &&
                          b[4] == (s.qpn >> 16 & 0xff) && b[5] == (s.qpn >> 8 & 0xff) &&
                          b[6] == (s.qpn & 0xff) && b[7] == 0;
        if (!record || !bell) {
            CHECK(record, "doorbell record after %u posts", i);
            CHECK(bell, "doorbell after %u posts", i);
            return;
        }
        s.rig.step();
    }
    MUST(agent.flush(1));
    CHECK(s.rig.count(0, "doorbells_seen") == 65600, "NIC saw %llu doorbells",
          (unsigned long long)s.rig.count(0, "doorbells_seen"));
}

} // namespace

int main() {
    check_inline();
    for (uint32_t inline_max : {0, 8, 28, 300})
        for (uint32_t batch : {1, 5, 16})
            check_sizes_in_turn(inline_max, batch);
    for (uint32_t inline_max : {0, 28})
        check_group_sizes(inline_max);
    check_multi_block();
    check_values_and_atomics();
    check_never_inline();
    check_doorbell();
    return failures() != 0;
}
