// The plugin without NCCL and without a GPU, type GDAKI: two processes drive it as libnccl does, and post as its device
// code does, by what the context says alone. Also what both types have in common: tables, versions, refusals.
#include "backends/ncclgin/gin_test.h"
#include "backends/ncclgin/watch.h"
#include "minigda/gda_trace.h"

#include <filesystem>

int ncclgin::Memory::open(const char *, std::unique_ptr<Memory> *memory_p) {
    *memory_p = std::make_unique<ncclgin_test::HostMemory>();
    return 0;
}
int ncclgin::Relay::open(std::unique_ptr<Relay> *relay_p) {
    *relay_p = std::make_unique<ncclgin_test::HostRelay>();
    return 0;
}

namespace {

using namespace nccl_abi;
using namespace ncclgin_test;

const GinTable &gin = ncclGinPlugin_v11;
const NetTable &net = ncclNetPlugin_v11;
const struct gic_ncclgin_net &plugin = gic_ncclgin_net_v1;

constexpr uint32_t depth = 64;

// ---- device code ----

struct Queue {
    const Qp *qp;
    uint64_t next;
};

// What a put, a signal and so on write into one slot. Keys come as the context has them, big-endian.
struct Wqe {
    alignas(64) uint8_t bytes[64] = {};
    Wqe(const Queue &q, uint8_t opcode, uint32_t ds) {
        auto *c = (struct mlx5_ctrl_seg *)bytes;
        c->opmod_idx_opcode = mlx5_ctrl_word0((uint16_t)q.next, opcode, 0);
        c->qpn_ds = q.qp->qpn_ds_be[ds - 1];
        c->fm_ce_se = MLX5_CTRL_CQ_UPDATE;
    }
    void remote(uint64_t offset, uint32_t rkey_be) {
        auto *r = (struct mlx5_raddr_seg *)(bytes + 16);
        r->raddr = mlx5_be64(offset);
        r->rkey = rkey_be;
    }
    void local(uint32_t at, uint32_t size, uint32_t lkey_be, uint64_t offset) {
        auto *d = (struct mlx5_data_seg *)(bytes + at);
        d->byte_count = mlx5_be32(size);
        d->lkey = lkey_be;
        d->addr = mlx5_be64(offset);
    }
};

// Into the slot; ring, record, ring, as the library does. Returns the WQE's index.
uint64_t post(Queue *q, const Wqe &w) {
    memcpy((uint8_t *)q->qp->sq + (q->next & q->qp->mask) * 64, w.bytes, sizeof w.bytes);
    const uint64_t index = q->next++;
    auto *bell = (uint64_t *)q->qp->doorbell;
    __atomic_store_n(bell, mlx5_doorbell_value(q->next, q->qp->qpn), __ATOMIC_RELEASE);
    __atomic_store_n((uint32_t *)q->qp->dbrec, mlx5_dbr_value(q->next), __ATOMIC_RELEASE);
    __atomic_store_n(bell, mlx5_doorbell_value(q->next, q->qp->qpn), __ATOMIC_RELEASE);
    return index;
}

// The library's rule on sm_90: byte 63 of CQE index & mask has the lap's owner bit. -1: an error CQE.
int await(const Queue &q, uint64_t index) {
    const auto *cqe = (const uint8_t *)q.qp->cq.cqe + (index & q.qp->cq.mask) * q.qp->cq.cqe_bytes;
    const uint8_t lap = (index & q.qp->cq.depth) != 0;
    for (uint64_t until = gic::globaltimer() + deadline_ns; gic::globaltimer() < until; sched_yield()) {
        const uint8_t op_own = __atomic_load_n(cqe + 63, __ATOMIC_ACQUIRE);
        if ((op_own & 1) == lap && op_own >> 4 != MLX5_CQE_OP_INVALID)
            return op_own >> 4 == MLX5_CQE_OP_REQ_ERR ? -1 : 0;
    }
    return 1;
}

// Whether device code that waits for WQE `index` goes on waiting, by one look. It keeps the consumer index itself, and good
// CQEs alone move it.
bool waits(const Queue &q, uint64_t index) {
    const Cq &cq = q.qp->cq;
    const uint64_t consumer = __atomic_load_n(&cq.cons_idx, __ATOMIC_ACQUIRE);
    const auto *cqe = (const uint8_t *)cq.cqe + (index & cq.mask) * cq.cqe_bytes;
    const uint8_t lap = (index & cq.depth) != 0;
    return index >= consumer &&
           (index >= consumer + cq.depth || (__atomic_load_n(cqe + 63, __ATOMIC_ACQUIRE) & 1) != lap);
}

struct Device {
    const GdakiContext *context;
    uint32_t rank;
    std::vector<Queue> main, companion;

    Device(const DeviceHandle *h, uint32_t rank_, uint32_t nranks)
        : context((const GdakiContext *)h->handle), rank(rank_) {
        for (uint32_t r = 0; r < nranks; r++) {
            main.push_back({&context->qps[r], 0});
            companion.push_back({&context->companions[r], 0});
        }
    }
    uint64_t put(uint32_t peer, const MemHandle *dst, uint64_t dst_at, const MemHandle *src, uint64_t src_at,
                 uint32_t bytes) {
        Wqe w(main[peer], MLX5_OP_RDMA_WRITE, 3);
        w.remote(dst_at, dst->rkeys[peer]);
        w.local(32, bytes, src->lkey, src_at);
        return post(&main[peer], w);
    }
    static void add(Wqe *w, uint64_t value, uint32_t sink) {
        mlx5_atomic_set((struct mlx5_atomic_seg *)(w->bytes + 32), value, 0);
        w->local(48, 8, sink, 0);
    }
    uint64_t signal(uint32_t peer, uint32_t id, uint64_t value) {
        Wqe w(main[peer], MLX5_OP_ATOMIC_FA, 4);
        w.remote(8 * id, context->signals.rkeys[peer]);
        add(&w, value, context->sink_lkey);
        return post(&main[peer], w);
    }
    uint64_t nop(uint32_t peer) { return post(&main[peer], Wqe(main[peer], MLX5_OP_NOP, 1)); }
    // Counts once the main queue has completed what was posted last.
    uint64_t count(uint32_t peer, uint32_t id) {
        Queue &q = companion[peer];
        Wqe hold(q, MLX5_OP_WAIT, 2);
        mlx5_wait_set((struct mlx5_wait_seg *)(hold.bytes + 16), (uint32_t)(main[peer].next - 1),
                      main[peer].qp->cq.cqn);
        post(&q, hold);
        Wqe w(q, MLX5_OP_ATOMIC_FA, 4);
        w.remote(8 * id, context->counters.rkeys[rank]);
        add(&w, 1, context->sink_lkey);
        return post(&q, w);
    }
};

// ---- tables and versions ----

void check_tables() {
    CHECK(strcmp(net.name, gin.name) == 0, "%s and %s", net.name, gin.name);
    CHECK(!net.get_device_mr && !net.irecv_consumed && !net.make_virtual, "members that are to be null");
    CHECK(gin.reg_mr_sym_dmabuf && gin.query_last_error && gin.create_context && gin.progress,
          "and others not");
    CHECK(plugin.struct_size == sizeof plugin, "%u", plugin.struct_size);
}

void check_versions() {
    unsetenv("GIC_NCCL_FORCE");
    for (int good : {22807, 22808, 22809})
        CHECK(ncclgin::check_nccl(good, "x") == 0, "%d is refused", good);
    for (int bad : {0, 22707, 22806, 22810, 22907, 23007})
        REFUSES(ncclgin::check_nccl(bad, "libnccl.so.2"), "2.28.7 to 2.28.9");
    REFUSES(ncclgin::check_nccl(23007, "libnccl.so.2"), "2.30.7");
    setenv("GIC_NCCL_FORCE", "1", 1);
    CHECK(ncclgin::check_nccl(23007, "x") == 0, "forced");
    unsetenv("GIC_NCCL_FORCE");
    Properties p;
    MUST(net.get_properties(0, &p));
    CHECK(p.device_type == DEVICE_HOST && p.virtual_of.count == 1 && !p.pci_path && p.name,
          "NET's properties");
}

void check_unprepared() {
    void *out = nullptr;
    char handle[HANDLE_BYTES];
    REFUSES(gin.init(&out, 1, nullptr), "prepare() was not called");
    REFUSES(gin.listen(nullptr, 0, handle, &out), "prepare() was not called");
    REFUSES(plugin.begin(), "not prepared");
    REFUSES(plugin.error(), "not prepared");
    REFUSES(plugin.window_alloc(1, &out), "not prepared");
    plugin.release(); // of nothing
}

// Every call that it does not serve says which it is.
void check_refused() {
    char *said = nullptr;
    size_t bytes = 0;
    FILE *was = stderr;
    stderr = open_memstream(&said, &bytes);
    void *p = nullptr;
    int n = 0;
    const struct {
        const char *name;
        Result result;
    } calls[] = {
        {"NET listen", net.listen(nullptr, 0, nullptr, &p)},
        {"NET connect", net.connect(nullptr, 0, nullptr, &p, nullptr)},
        {"NET accept", net.accept(nullptr, &p, nullptr)},
        {"NET regMr", net.reg_mr(nullptr, nullptr, 0, 1, &p)},
        {"NET regMrDmaBuf", net.reg_mr_dmabuf(nullptr, nullptr, 0, 1, 0, -1, &p)},
        {"NET deregMr", net.dereg_mr(nullptr, nullptr)},
        {"NET isend", net.isend(nullptr, nullptr, 0, 0, nullptr, nullptr, &p)},
        {"NET irecv", net.irecv(nullptr, 0, nullptr, nullptr, nullptr, nullptr, nullptr, &p)},
        {"NET iflush", net.iflush(nullptr, 0, nullptr, nullptr, nullptr, &p)},
        {"NET test", net.test(nullptr, &n, &n)},
        {"NET closeSend", net.close_send(nullptr)},
        {"NET closeRecv", net.close_recv(nullptr)},
        {"NET closeListen", net.close_listen(nullptr)},
        {"regMrSymDmaBuf", gin.reg_mr_sym_dmabuf(nullptr, nullptr, 0, 4, 0, -1, 0, &p, &p)},
    };
    fclose(stderr);
    stderr = was;
    const char *at = said;
    for (const auto &c : calls) {
        CHECK(c.result != SUCCESS, "%s is served", c.name);
        const char *found = at ? strstr(at, c.name) : nullptr;
        CHECK(found, "nothing said of %s", c.name);
        at = found ? found : at;
    }
    free(said);
}

// ---- two ranks ----

void check_prepare(int rank, const char *job) {
    Rank r(rank, job);
    REFUSES(r.prepare("nvlink"), "gdaki|proxy");
    REFUSES(r.prepare("gdaki", 100), "depth=100");
    REFUSES(r.prepare("gdaki", 65536), "depth=65536");
    r.nic.push_back({"profile", "cx9"});
    REFUSES(r.prepare("gdaki"), "cx9");
    r.nic.pop_back();
    MUST(r.prepare("gdaki"));
    CHECK(r.prepare("gdaki") == -EALREADY, "prepare() twice");
    Properties p;
    MUST(gin.get_properties(0, &p));
    CHECK(p.device_type == DEVICE_GIN_GDAKI && p.device_version == GDAKI_VERSION, "%d.%d", p.device_type,
          p.device_version);
    REFUSES(gin.get_properties(1, &p), "device 1");
    CHECK(fact("gin_type") == "none", "%s", fact("gin_type").c_str());
    // Handles of somebody else.
    void *listen = nullptr, *coll = nullptr;
    char mine[HANDLE_BYTES], other[HANDLE_BYTES] = "another plugin's";
    MUST(gin.listen(nullptr, 0, mine, &listen));
    void *strange[] = {mine, other}, *twice[] = {mine, mine};
    REFUSES(gin.connect(nullptr, strange, 2, 0, listen, &coll), "another NCCL plugin");
    REFUSES(gin.connect(nullptr, twice, 2, 0, listen, &coll), "in one process");
    REFUSES(gin.connect(nullptr, twice, 2, 2, listen, &coll), "rank 2 of 2");
    void *alone[] = {mine};
    MUST(gin.connect(nullptr, alone, 1, 0, listen, &coll)); // a communicator of this rank alone
    void *context = nullptr;
    DeviceHandle *h = nullptr;
    REFUSES(gin.create_context(coll, 0, 4, &context, &h), "0 signals");
    MUST(gin.close_coll(coll));
    MUST(gin.close_listen(listen));
    barrier(nullptr);
    plugin.release();
}

// What NCCL holds of a context.
struct Opened {
    void *coll = nullptr, *context = nullptr, *mr = nullptr, *device_mr = nullptr;
    DeviceHandle *handle = nullptr;
};

Opened open_context(Rank &r, void *window, size_t bytes) {
    Opened o;
    o.coll = r.connect();
    MUST(gin.create_context(o.coll, 8, 4, &o.context, &o.handle));
    CHECK(o.handle->type == DEVICE_GIN_GDAKI && o.handle->version == GDAKI_VERSION &&
              !o.handle->needs_progress && o.handle->bytes == sizeof(GdakiContext),
          "the handle");
    MUST(gin.reg_mr_sym(o.coll, window, bytes, POINTER_CUDA, 0, &o.mr, &o.device_mr));
    return o;
}

void close_context(const Opened &o) {
    MUST(gin.dereg_mr_sym(o.coll, o.mr));
    MUST(gin.destroy_context(o.context));
    MUST(gin.close_coll(o.coll));
    MUST(gin.finalize(nullptr));
}

void check_described(const Opened &o) {
    const auto *c = (const GdakiContext *)o.handle->handle;
    for (uint32_t i = 0; i < 4; i++) {
        const Qp &q = c->qps[i];
        CHECK(q.qpn && q.qpn_be == mlx5_be32(q.qpn << 8) && q.qpn_ds_be[2] == mlx5_be32(q.qpn << 8 | 3),
              "QP %u", i);
        CHECK(q.depth == depth && q.mask == depth - 1 && q.cq.depth == depth && q.cq.mask == depth - 1 &&
                  q.cq.cqe_bytes == 64 && q.nic_handler == NIC_HANDLER_GPU_DOORBELL,
              "QP %u", i);
        CHECK(((const uint8_t *)q.cq.cqe)[63] == 0xf1, "CQEs are not as new");
        for (uint32_t j = 0; j < i; j++)
            CHECK(c->qps[j].qpn != q.qpn && c->qps[j].doorbell != q.doorbell && c->qps[j].cq.cqn != q.cq.cqn,
                  "QPs %u and %u share", i, j);
    }
    CHECK(c->companions == c->qps + 2, "companions");
}

constexpr size_t window_bytes = 8192;

// Rank 0 posts, rank 1 looks. Two contexts, as of two communicators.
void check_traffic(int rank, const char *job) {
    Rank r(rank, job);
    MUST(r.prepare("gdaki"));
    void *memory = nullptr;
    MUST(plugin.window_alloc(window_bytes, &memory));
    auto *window = (uint8_t *)memory;
    const Opened a = open_context(r, memory, window_bytes), b = open_context(r, memory, window_bytes);
    check_described(a);
    CHECK(fact("gin_type") == "gdaki" && fact("contexts") == "2" && fact("qps") == "8", "%s, %s, %s",
          fact("gin_type").c_str(), fact("contexts").c_str(), fact("qps").c_str());
    Device da(a.handle, (uint32_t)rank, 2), db(b.handle, (uint32_t)rank, 2);
    const auto *mr = (const MemHandle *)a.device_mr;
    const uint32_t peer = 1 - (uint32_t)rank;
    barrier(nullptr);
    MUST(plugin.begin());
    if (rank == 0) {
        for (int i = 0; i < 100; i++)
            window[i] = (uint8_t)(i + 1);
        // More than a lap of the queue, so that owner bits and slots come round.
        for (uint64_t lap = 0; lap < 2 * depth; lap++)
            CHECK(await(da.main[1], da.put(peer, mr, 4096 + 3, mr, 0, 100)) == 0, "put %llu",
                  (unsigned long long)lap);
        CHECK(await(da.main[1], da.signal(peer, 2, 5)) == 0, "signal");
        CHECK(await(db.main[1], db.signal(peer, 2, 7)) == 0, "the other context's");
        CHECK(await(da.main[1], da.nop(peer)) == 0, "an empty put");
        CHECK(await(da.companion[1], da.count(peer, 3)) == 0, "counter");
        CHECK(da.context->counters.words[3] == 1 && da.context->counters.words[2] == 0, "the counters");
        CHECK(await(da.main[0], da.put(0, mr, 2048, mr, 0, 8)) == 0 && window[2048] == 1, "to itself");
    }
    MUST(plugin.end(1));
    barrier(nullptr);
    if (rank == 1) {
        for (int i = 0; i < 100; i++)
            CHECK(window[4096 + 3 + i] == (uint8_t)(i + 1), "byte %d is 0x%02x", i, window[4099 + i]);
        CHECK(window[4096 + 2] == 0 && window[4096 + 103] == 0, "the bytes around");
        CHECK(da.context->signals.words[2] == 5 && da.context->signals.words[1] == 0, "signal %llu",
              (unsigned long long)da.context->signals.words[2]);
        CHECK(db.context->signals.words[2] == 7, "signals of the other context");
        CHECK(counter("wqes") == 0, "rank 1 posted");
    } else {
        CHECK(counter("wqe_write") == 2 * depth + 1 && counter("wqe_atomic") == 3 &&
                  counter("wqe_wait") == 1 && counter("wqe_nop") == 1,
              "%llu writes, %llu atomics", (unsigned long long)counter("wqe_write"),
              (unsigned long long)counter("wqe_atomic"));
        CHECK(counter("cqes") == counter("wqes") && counter("error_cqes") == 0, "a CQE for each WQE");
        auto *bell = (uint64_t *)da.main[1].qp->doorbell;
        const uint64_t rung = *bell;
        *bell = mlx5_doorbell_value(da.main[1].next - 1, da.main[1].qp->qpn);
        REFUSES(plugin.end(1), "was not rung");
        *bell = rung;
        MUST(plugin.end(1));
    }
    barrier(nullptr);
    close_context(a);
    close_context(b);
    MUST(plugin.window_free(memory));
    REFUSES(plugin.window_free(memory), "no window");
    MUST(plugin.error());
    barrier(nullptr);
    plugin.release();
}

// A window that NCCL does not register, shown to all contexts at once.
void check_shown(int rank, const char *job) {
    Rank r(rank, job);
    MUST(r.prepare("gdaki"));
    void *memory = nullptr, *context = nullptr, *handles[2] = {};
    MUST(plugin.window_alloc(window_bytes, &memory));
    DeviceHandle *h = nullptr;
    void *first = r.connect(), *second = r.connect();
    MUST(gin.create_context(first, 8, 4, &context, &h));
    REFUSES(plugin.window_register(memory, window_bytes, handles, 1), "there are 2");
    REFUSES(plugin.window_register((char *)memory + 8, 8, handles, 2), "no window of window_alloc");
    REFUSES(plugin.window_register(memory, window_bytes + 1, handles, 2), "no window of window_alloc");
    MUST(plugin.window_register(memory, window_bytes, handles, 2));
    CHECK(handles[0] && handles[1] && handles[0] != handles[1], "a handle for each");
    Device d(h, (uint32_t)rank, 2);
    const auto *mr = (const MemHandle *)handles[0];
    *(uint64_t *)memory = 7 + (uint64_t)rank;
    barrier(nullptr);
    CHECK(await(d.main[1 - rank], d.put(1 - (uint32_t)rank, mr, 64, mr, 0, 8)) == 0, "put");
    barrier(nullptr);
    CHECK(((uint64_t *)memory)[8] == 8 - (uint64_t)rank, "%llu", (unsigned long long)((uint64_t *)memory)[8]);
    MUST(plugin.window_deregister(memory));
    MUST(plugin.window_register(memory, 4096, handles, 2)); // and anew
    // The communicators' end is the window's.
    MUST(gin.destroy_context(context));
    MUST(gin.close_coll(first));
    MUST(gin.close_coll(second));
    MUST(plugin.window_deregister(memory));
    MUST(plugin.window_free(memory));
    barrier(nullptr);
    plugin.release();
}

// A rank that posts: a window, and one context over it.
struct Posting {
    Rank rank;
    Opened o;
    Device d;
    const MemHandle *mr;

    Posting(int number, const char *job, const char *trace = "off")
        : rank(number, job), o(open(trace)), d(o.handle, (uint32_t)number, 2),
          mr((const MemHandle *)o.device_mr) {}

    // As ncclCommAbort: nothing is deregistered before.
    void abort() {
        MUST(gin.close_coll(o.coll));
        barrier(nullptr);
        plugin.release();
    }

  private:
    Opened open(const char *trace) {
        rank.nic.push_back({"trace", trace});
        MUST(rank.prepare("gdaki"));
        void *memory = nullptr;
        MUST(plugin.window_alloc(window_bytes, &memory));
        return open_context(rank, memory, window_bytes);
    }
};

// Rank 1 takes its memory away under rank 0's hands.
void check_error(int rank, const char *job) {
    Posting p(rank, job);
    Device &d = p.d;
    const MemHandle *mr = p.mr;
    bool failed = true;
    MUST(gin.query_last_error(p.o.context, &failed));
    CHECK(!failed, "an error of nothing");
    barrier(nullptr);
    if (rank == 1)
        MUST(plugin.withdraw());
    barrier(nullptr);
    if (rank == 0) {
        CHECK(await(d.main[1], d.put(1, mr, 0, mr, 0, 8)) == -1, "a put to memory that is gone");
        MUST(gin.query_last_error(p.o.context, &failed));
        CHECK(failed, "no error after an error CQE");
        REFUSES(plugin.error(), "syndrome 0x13");
        CHECK(await(d.main[1], d.signal(1, 0, 1)) == -1, "the queue goes on after its error");
    } else {
        CHECK(await(d.main[0], d.put(0, mr, 0, mr, 0, 8)) == -1, "from memory that is gone");
    }
    barrier(nullptr);
    CHECK(((const GdakiContext *)p.o.handle->handle)->signals.words[0] == 0, "a signal behind an error");
    p.abort();
}

// Device code that waits a queue's depth behind an error CQE waits for ever, and for what no NIC will do: its launch ends
// all the same, and the error is what is left of it.
void check_launch_ends(int rank, const char *job) {
    Posting p(rank, job);
    Device &d = p.d;
    const MemHandle *mr = p.mr;
    if (rank == 1)
        MUST(plugin.withdraw());
    barrier(nullptr);
    if (rank == 0) {
        const Queue &bad = d.main[1], &good = d.main[0], &beside = d.companion[1];
        uint32_t stop = 0;
        MUST(plugin.begin());
        CHECK(await(good, d.nop(0)) == 0, "a queue without errors");
        CHECK(await(bad, d.put(1, mr, 0, mr, 0, 8)) == -1, "a put to memory that is gone");
        CHECK(waits(bad, depth) && waits(beside, 0) && waits(good, 1), "nobody has to wait");
        MUST(plugin.unblock(0));
        CHECK(!waits(bad, depth) && !waits(beside, 0), "still waiting behind an error");
        CHECK(waits(good, 1), "a queue without errors is given up");
        {
            ncclgin_backend::Watch watch(&plugin, &stop);
            for (uint64_t until = gic::globaltimer() + deadline_ns;
                 (waits(good, 1) || !__atomic_load_n(&stop, __ATOMIC_RELAXED)) && gic::globaltimer() < until;)
                sched_yield();
            CHECK(!waits(good, 1) && stop == 1, "the watch ends nothing");
        }
        REFUSES(plugin.end(0) || plugin.error(), "syndrome 0x13");
    }
    barrier(nullptr);
    p.abort();
}

// A region that one rank cannot show fails on both, and nobody waits for its time-out.
void check_one_fails(int rank, const char *job) {
    Rank r(rank, job);
    MUST(r.prepare("gdaki"));
    void *coll = r.connect(), *mr = nullptr, *device = nullptr, *memory = nullptr;
    MUST(plugin.window_alloc(window_bytes, &memory));
    const uint64_t before = gic::globaltimer();
    if (rank == 0)
        REFUSES(gin.reg_mr_sym(coll, memory, 0, POINTER_CUDA, 0, &mr, &device), "0 bytes");
    else
        REFUSES(gin.reg_mr_sym(coll, memory, window_bytes, POINTER_CUDA, 0, &mr, &device),
                "rank 0 cannot register");
    REFUSES(gin.reg_mr_sym(coll, memory, window_bytes, POINTER_CUDA, 0, &mr, &device), "is gone");
    CHECK(gic::globaltimer() - before < ncclgin::exchange_timeout_ns, "somebody has waited");
    MUST(gin.close_coll(coll));
    barrier(nullptr);
    plugin.release();
}

// Between two readings of the counters lies one run of the trace, with what was posted in it and nothing else.
void check_trace(int rank, const char *job) {
    Posting p(rank, job, "on");
    Device &d = p.d;
    const MemHandle *mr = p.mr;
    barrier(nullptr);
    if (rank == 0) {
        CHECK(await(d.main[1], d.nop(1)) == 0, "before");
        counter("wqes");
        CHECK(await(d.main[1], d.put(1, mr, 0, mr, 0, 8)) == 0, "put");
        CHECK(await(d.companion[1], d.count(1, 0)) == 0, "counter");
        counter("wqes");
        gda_trace trace;
        MUST(gda_trace_read(fact("trace").c_str(), &trace));
        std::string opcodes;
        for (const struct softnic_trace &t : gda_trace_last_run(trace))
            if (t.kind == SOFTNIC_TRACE_WQE)
                opcodes += std::to_string(t.opcode) + " ";
        const std::string want = std::to_string(MLX5_OP_RDMA_WRITE) + " " + std::to_string(MLX5_OP_WAIT) +
                                 " " + std::to_string(MLX5_OP_ATOMIC_FA) + " ";
        CHECK(opcodes == want, "opcodes %s, want %s", opcodes.c_str(), want.c_str());
    }
    barrier(nullptr);
    p.abort();
}

} // namespace

int main() {
    make_shared();
    check_tables();
    check_refused();
    // What the plugin tells of calls that it refuses; a sanitizer's report does not go through it.
    stderr = fopen("/dev/null", "w");
    check_versions();
    check_unprepared();
    int bad = failures;
    bad += in_pair("prepare", check_prepare);
    bad += in_pair("traffic", check_traffic);
    bad += in_pair("shown", check_shown);
    bad += in_pair("error", check_error);
    bad += in_pair("launch ends", check_launch_ends);
    bad += in_pair("one fails", check_one_fails);
    char folder[] = "/tmp/gic-test-ncclgin-XXXXXX";
    if (!mkdtemp(folder))
        return 2;
    setenv("GIC_TRACE_DIR", folder, 1);
    bad += in_pair("trace", check_trace);
    std::filesystem::remove_all(folder);
    printf(bad ? "gin_gdaki_test: %d failed\n" : "gin_gdaki_test: ok\n", bad);
    fclose(stderr);
    return bad != 0;
}
