#include "minigda/gda_host.h"

#include "backends/abi/probe.h"
#include "backends/abi/ranks.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

namespace {

// The keys of --nic soft. Values are checked here too: a fabric may be opened without the harness.
const struct gic_key nic_keys[] = {
    {"engine", "cpu", "cpu|gpu", "who processes the queues"},
    {"profile", "none", "", "NIC model"},
    {"threads", "1", "1..64", "engine threads per rank"},
    {"watch", "auto", "auto|bell|dbr", "what the engine polls; auto: bell, of CUDA threads dbr"},
    {"doorbell", "host", "host|gpu", "where the doorbell word lives"},
    {"sms", "1", "1..8", "multiprocessors of engine=gpu"},
    {"writes", "runs", "runs|strict", "order between small writes of a QP with engine=gpu"},
    {"queues", "auto", "auto|host|gpu", "where send queues and CQEs live; auto: with the engine"},
    {"window", "auto", "auto|host|gpu", "where the window lives; auto: with the engine"},
    {"presence", "window", "window|demand",
     "when engine=gpu is on the device: around launches, or whenever a doorbell calls it"},
    {"trace", "off", "off|on", "keep every doorbell, WQE and CQE"},
};
constexpr size_t trace_capacity = 1u << 20;
constexpr size_t page = 4096;
constexpr uint32_t local_rights = SOFTNIC_LOCAL_WRITE;
constexpr uint32_t window_rights =
    SOFTNIC_LOCAL_WRITE | SOFTNIC_REMOTE_WRITE | SOFTNIC_REMOTE_READ | SOFTNIC_REMOTE_ATOMIC;

struct gic_open nic_view(const struct gic_open *open) {
    struct gic_open view = *open;
    view.config = open->nic_config;
    view.config_count = open->nic_config_count;
    return view;
}

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

gic::Ranks ranks(const gda_fabric *f) { return {f->rank, f->nranks, f->comm}; }

int comm_barrier(const gda_fabric *f, const char *what) {
    int rc = f->comm->barrier(f->comm->arg);
    return rc ? gic::fail(rc, "rank %u: wait for all ranks to %s: %s", f->rank, what, strerror(-rc)) : 0;
}

bool power_of_two(uint32_t n) { return n && (n & (n - 1)) == 0; }

} // namespace

const char *gda_fabric_watch(const struct gic_open *open) {
    const char *given = gic::kv_find(open->nic_config, open->nic_config_count, "watch");
    if (given && strcmp(given, "auto") != 0)
        return given;
    return strncmp(open->device, "cuda", 4) == 0 ? "dbr" : "bell";
}

struct gda_places gda_fabric_places(const struct gic_open *open) {
    struct gic_open view = nic_view(open);
    gic::Config nic(nic_keys, sizeof nic_keys / sizeof *nic_keys, &view);
    auto on_gpu = [&](const char *key, bool by_default) {
        return strcmp(nic.text(key), "auto") == 0 ? by_default : strcmp(nic.text(key), "gpu") == 0;
    };
    struct gda_places p {};
    p.gpu_engine = on_gpu("engine", false);
    p.sms = nic.u32("sms");
    p.queues_on_gpu = on_gpu("queues", p.gpu_engine);
    p.window_on_gpu = on_gpu("window", p.gpu_engine);
    p.doorbells_on_gpu = on_gpu("doorbell", false);
    p.strict = strcmp(nic.text("writes"), "strict") == 0;
    p.on_demand = strcmp(nic.text("presence"), "demand") == 0;
    return p;
}

namespace {

// What of these places does not go together.
int check_places(const struct gic_open *open, const gic::Config &nic, bool cpu_posts) {
    const struct gda_places p = gda_fabric_places(open);
    const bool cuda = strncmp(open->device, "cuda", 4) == 0;
    for (const char *key : {"engine", "queues", "window", "doorbell"})
        if (!cuda && strcmp(nic.text(key), "gpu") == 0)
            return gic::fail(-ENOTSUP, "%s=gpu: needs a CUDA device", key);
    if (!p.gpu_engine) {
        for (const char *key : {"queues", "window", "doorbell"})
            if (strcmp(nic.text(key), "gpu") == 0)
                return gic::fail(-ENOTSUP, "%s=gpu: the processor cannot load GPU memory; want engine=gpu",
                                 key);
        if (p.sms != 1 || p.strict || p.on_demand)
            return gic::fail(-EINVAL, "%s: of engine=gpu",
                             p.on_demand ? "presence=demand"
                             : p.strict  ? "writes=strict"
                                         : "sms");
        return 0;
    }
    if (cpu_posts)
        return gic::fail(-ENOTSUP,
                         "engine=gpu: a processor that posts cannot store into queues and records in GPU "
                         "memory; want engine=cpu");
    if (!softnic_gpu_built())
        return gic::fail(-ENOTSUP, "engine=gpu: built without CUDA");
    if (nic.u32("threads") != 1)
        return gic::fail(-EINVAL, "threads=%s: of engine=cpu; engine=gpu has sms", nic.text("threads"));
    if (strcmp(nic.text("trace"), "on") == 0)
        return gic::fail(-ENOTSUP, "trace=on: the GPU engine keeps no trace; want engine=cpu");
    if (strcmp(gda_fabric_watch(open), "bell") == 0 && !p.doorbells_on_gpu)
        return gic::fail(
            -ENOTSUP, "watch=bell: the GPU engine does not poll host memory; want doorbell=gpu or watch=dbr");
    return 0;
}

} // namespace

int gda_fabric_probe(const struct gic_open *open, bool cpu_posts) {
    const bool cuda = strncmp(open->device, "cuda", 4) == 0;
    if (cuda && !gic::Gpu::built())
        return gic::fail(-ENOTSUP, "device=%s: built without CUDA", open->device);
    if (!cuda && strcmp(open->device, "host") != 0)
        return gic::fail(-EINVAL, "device=%s: want host or cuda:N", open->device);
    if (cuda)
        if (int rc = gic::probe_cuda("device=cuda", open->device))
            return rc;
    if (strcmp(open->nic, "none") == 0)
        return gic::fail(-ENOTSUP, "nic=none: a floor posts to a NIC; use --nic soft");
    if (strcmp(open->nic, "soft") != 0)
        return gic::fail(-ENOTSUP, "nic=%s: the floors have no path to a real ConnectX yet", open->nic);
    struct gic_open view = nic_view(open);
    gic::Config nic(nic_keys, sizeof nic_keys / sizeof *nic_keys, &view);
    if (int rc = nic.check())
        return rc;
    if (int rc = check_places(open, nic, cpu_posts))
        return rc;
    struct softnic_profile profile;
    if (softnic_profile_find(nic.text("profile"), &profile) != 0) {
        std::string known;
        for (const char *const *p = softnic_profile_names(); *p; p++)
            known += (known.empty() ? "" : ", ") + std::string(*p);
        return gic::fail(-EINVAL, "profile=%s: known: %s", nic.text("profile"), known.c_str());
    }
    return 0;
}

int gda_fabric_open(const struct gic_open *open, enum softnic_clock clock, uint32_t max_qps,
                    struct gda_fabric **fabric_p) {
    if (int rc = gda_fabric_probe(open))
        return rc;
    struct gic_open view = nic_view(open);
    gic::Config nic(nic_keys, sizeof nic_keys / sizeof *nic_keys, &view);
    gda_fabric *f = new gda_fabric();
    f->rank = (uint32_t)open->rank;
    f->nranks = (uint32_t)open->nranks;
    f->comm = open->comm;
    f->clock = clock;
    f->places = gda_fabric_places(open);
    f->workers = f->places.gpu_engine ? 0 : nic.u32("threads");
    f->profile = nic.text("profile");
    f->watch = gda_fabric_watch(open);
    f->doorbell = nic.text("doorbell");
    f->trace = "off";
    if (strcmp(nic.text("trace"), "on") == 0) {
        const char *dir = getenv("GIC_TRACE_DIR");
        f->trace =
            std::string(dir ? dir : ".") + "/" + open->job + "-nic" + std::to_string(f->rank) + ".trace";
    }

    if (strncmp(open->device, "cuda", 4) == 0) {
        if (int rc = ranks(f).open_gpu(open->device, &f->gpu, true)) {
            gda_fabric_close(f);
            return rc;
        }
        f->gpu->set_engine(f->places.gpu_engine ? f->places.sms : 0);
    }

    struct softnic_attr attr = {};
    attr.job = open->job;
    attr.node = f->rank;
    attr.nodes = f->nranks;
    attr.clock = clock;
    attr.watch = f->watch == "dbr" ? SOFTNIC_WATCH_DBR : SOFTNIC_WATCH_BELL;
    attr.workers = f->workers;
    attr.max_qps = max_qps;
    attr.trace_records = f->trace != "off" ? trace_capacity : 0;
    if (f->places.gpu_engine) {
        attr.engine = SOFTNIC_ENGINE_GPU;
        attr.device = atoi(open->device + strlen("cuda:"));
        attr.sms = f->places.sms;
        attr.writes = f->places.strict ? SOFTNIC_WRITES_STRICT : SOFTNIC_WRITES_RUNS;
        attr.presence = f->places.on_demand ? SOFTNIC_DEMAND : SOFTNIC_WINDOW;
    }
    softnic_profile_find(f->profile.c_str(), &attr.profile);
    int rc = softnic_create(&attr, &f->nic);
    if (rc == 0 && f->places.gpu_engine && !f->places.on_demand)
        softnic_hold(f->nic); // until gda_fabric_begin
    if (rc)
        rc = gic::fail(rc, "create NIC: %s", softnic_error());
    else if (clock == SOFTNIC_REAL && (rc = softnic_start(f->nic)) != 0)
        rc = gic::fail(rc, "start NIC: %s", softnic_error());
    if (rc) {
        gda_fabric_close(f);
        return rc;
    }
    *fabric_p = f;
    return 0;
}

void gda_fabric_close(struct gda_fabric *f) {
    if (!f)
        return;
    if (!f->places.gpu_engine)
        f->gpu.reset(); // while what it has mapped is still there
    if (f->nic && f->trace != "off" && (f->trace_cuts == 0 || gda_fabric_traced(f)) &&
        softnic_trace_save(f->nic, f->trace.c_str()) != 0)
        fprintf(stderr, "gic: rank %u: %s\n", f->rank, softnic_error());
    softnic_destroy(f->nic); // next: the engine must not look at queues that are gone
    f->gpu.reset();
    for (const gda_mapping &b : f->blocks)
        munmap(b.addr, b.bytes);
    delete f;
}

int gda_fabric_alloc(struct gda_fabric *f, size_t bytes, void **addr_p, uint32_t *key_p) {
    size_t size = round_up(bytes ? bytes : 1, page);
    void *addr = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (addr == MAP_FAILED)
        return gic::fail(-ENOMEM, "map %zu bytes: %s", size, strerror(errno));
    gda_mapping block{addr, size, 0};
    if (key_p) {
        if (int rc = softnic_mr_register(f->nic, addr, size, local_rights, &block.key)) {
            munmap(addr, size);
            return gic::fail(rc, "register %zu bytes: %s", size, softnic_error());
        }
        *key_p = block.key;
    }
    f->blocks.push_back(block);
    *addr_p = addr;
    return f->gpu ? f->gpu->map(addr, size) : 0;
}

namespace {

int set_at(const gda_fabric *f, bool on_gpu, void *to, const void *from, size_t bytes) {
    if (on_gpu)
        return f->gpu->upload(to, from, bytes);
    memcpy(to, from, bytes);
    return 0;
}
int get_at(const gda_fabric *f, bool on_gpu, void *to, const void *from, size_t bytes) {
    if (on_gpu)
        return f->gpu->download(to, from, bytes);
    memcpy(to, from, bytes);
    return 0;
}

int alloc_at(gda_fabric *f, bool on_gpu, size_t bytes, void **addr_p) {
    return on_gpu ? f->gpu->alloc(round_up(bytes ? bytes : 1, page), addr_p)
                  : gda_fabric_alloc(f, bytes, addr_p, nullptr);
}

} // namespace

int gda_fabric_alloc_data(struct gda_fabric *f, size_t bytes, void **addr_p, uint32_t *key_p) {
    if (!f->places.window_on_gpu)
        return gda_fabric_alloc(f, bytes, addr_p, key_p);
    if (int rc = alloc_at(f, true, bytes, addr_p))
        return rc;
    if (key_p)
        if (int rc = softnic_mr_register(f->nic, *addr_p, bytes, local_rights, key_p))
            return gic::fail(rc, "register %zu bytes: %s", bytes, softnic_error());
    return 0;
}

namespace {

// All QPs of a rank live in these: send queues, CQEs, and the words the driver stores (one cache line each, so
// that two QPs' ringers and the engine do not share one).
int lay_out(gda_fabric *f, uint32_t sq_depth, uint32_t cq_depth) {
    const size_t n = f->qps.size(), line = 64;
    const uint32_t cqes = cq_depth ? cq_depth : 1;
    const struct gda_places &p = f->places;
    void *sq, *cq, *records, *bells, *indices = nullptr;
    if (int rc = alloc_at(f, p.queues_on_gpu, n * sq_depth * MLX5_BB, &sq))
        return rc;
    if (int rc = alloc_at(f, p.queues_on_gpu, n * cqes * MLX5_CQE, &cq))
        return rc;
    if (int rc = alloc_at(f, p.gpu_engine, n * line, &records))
        return rc;
    if (int rc = alloc_at(f, p.doorbells_on_gpu, n * line, &bells))
        return rc;
    if (cq_depth)
        if (int rc = alloc_at(f, p.queues_on_gpu, n * line, &indices))
            return rc;
    for (size_t i = 0; i < n; i++) {
        gda_qp &qp = f->qps[i];
        qp.sq = (uint8_t *)sq + i * sq_depth * MLX5_BB;
        qp.cqe = (struct mlx5_cqe *)cq + i * cqes;
        qp.dbr = (struct mlx5_dbr *)((uint8_t *)records + i * line);
        qp.bell = (uint64_t *)((uint8_t *)bells + i * line);
        qp.cq_dbrec = cq_depth ? (__be32 *)((uint8_t *)indices + i * line) : nullptr;
        qp.depth = sq_depth;
        qp.cq_depth = cqes;
        qp.collapsed = cq_depth == 0;
        qp.peer = f->qps_per_peer ? (uint32_t)(i / f->qps_per_peer) : gda_any_peer;
    }
    return 0;
}

int create_qp(gda_fabric *f, gda_qp *qp) {
    struct softnic_cq_attr cq = {};
    cq.cqe = qp->cqe;
    cq.depth = qp->cq_depth;
    cq.collapsed = qp->collapsed;
    cq.dbrec = qp->cq_dbrec;
    if (int rc = softnic_cq_create(f->nic, &cq, &qp->cqn))
        return gic::fail(rc, "create CQ: %s", softnic_error());
    struct softnic_qp_attr attr = {};
    attr.sq = qp->sq;
    attr.depth = qp->depth;
    attr.dbrec = &qp->dbr->snd;
    attr.doorbell = qp->bell;
    attr.cqn = qp->cqn;
    if (int rc = softnic_qp_create(f->nic, &attr, &qp->qpn))
        return gic::fail(rc, "create QP: %s", softnic_error());
    return 0;
}

// `per_peer` 0: `n` that go to no one rank.
int create_qps(gda_fabric *f, size_t n, uint32_t per_peer, uint32_t sq_depth, uint32_t cq_depth) {
    if (!power_of_two(sq_depth) || sq_depth < 64 || sq_depth > 32768)
        return gic::fail(-EINVAL, "send queue depth %u: want a power of two in 64..32768", sq_depth);
    if (cq_depth && !power_of_two(cq_depth))
        return gic::fail(-EINVAL, "CQ depth %u: want a power of two", cq_depth);
    if (n == 0 || !f->qps.empty())
        return gic::fail(-EINVAL, "%zu QPs: want at least 1, once", n);
    f->qps_per_peer = per_peer;
    f->qps.resize(n);
    if (int rc = lay_out(f, sq_depth, cq_depth))
        return rc;
    for (gda_qp &qp : f->qps)
        if (int rc = create_qp(f, &qp))
            return rc;
    return 0;
}

} // namespace

int gda_fabric_connect_dc(struct gda_fabric *f, uint32_t count, uint32_t sq_depth, uint32_t cq_depth) {
    if (int rc = create_qps(f, count, 0, sq_depth, cq_depth))
        return rc;
    if (int rc = comm_barrier(f, "make their NICs"))
        return rc;
    for (const gda_qp &qp : f->qps)
        if (int rc = softnic_qp_connect_dc(f->nic, qp.qpn))
            return gic::fail(rc, "make QP %u a DC initiator: %s", qp.qpn, softnic_error());
    return comm_barrier(f, "connect");
}

int gda_fabric_connect(struct gda_fabric *f, uint32_t per_peer, uint32_t sq_depth, uint32_t cq_depth) {
    const size_t n = (size_t)f->nranks * per_peer;
    if (int rc = create_qps(f, n, per_peer, sq_depth, cq_depth))
        return rc;
    std::vector<uint32_t> mine(n), all(n * f->nranks);
    for (size_t i = 0; i < n; i++)
        mine[i] = f->qps[i].qpn;
    if (int rc = ranks(f).gather(mine.data(), all.data(), n * sizeof(uint32_t), "QP numbers"))
        return rc;
    for (size_t i = 0; i < n; i++) {
        const uint32_t peer = f->qps[i].peer, k = (uint32_t)(i % per_peer);
        const uint32_t remote = all[(size_t)peer * n + (size_t)f->rank * per_peer + k];
        if (int rc = softnic_qp_connect(f->nic, f->qps[i].qpn, peer, remote))
            return gic::fail(rc, "connect QP %u to rank %u: %s", f->qps[i].qpn, peer, softnic_error());
    }
    return comm_barrier(f, "connect");
}

int gda_fabric_window(struct gda_fabric *f, uint64_t bytes) {
    if (bytes == 0)
        return gic::fail(-EINVAL, "window of 0 bytes");
    if (f->window) {
        if (int rc = comm_barrier(f, "leave the old window"))
            return rc;
        if (int rc = softnic_mr_deregister(f->nic, f->window_key))
            return gic::fail(rc, "deregister window: %s", softnic_error());
        void *old = f->window;
        f->window = nullptr;
        if (int rc = f->gpu && !f->places.gpu_engine ? f->gpu->unmap(old) : 0)
            return rc;
        if (int rc = softnic_mem_free(f->nic, old))
            return gic::fail(rc, "free window: %s", softnic_error());
    }
    void *addr;
    if (int rc = f->places.window_on_gpu ? softnic_mem_alloc_gpu(f->nic, bytes, &addr)
                                         : softnic_mem_alloc(f->nic, bytes, &addr))
        return gic::fail(rc, "allocate window of %llu bytes: %s", (unsigned long long)bytes, softnic_error());
    if (int rc = softnic_mr_register(f->nic, addr, bytes, window_rights, &f->window_key)) {
        rc = gic::fail(rc, "register window: %s", softnic_error());
        softnic_mem_free(f->nic, addr);
        return rc;
    }
    f->window = (uint8_t *)addr;
    f->window_bytes = bytes;
    if (int rc = f->gpu && !f->places.gpu_engine ? f->gpu->map(addr, round_up(bytes, page)) : 0)
        return rc; // the GPU engine has mapped it
    const gda_peer mine{(uint64_t)(uintptr_t)addr, f->window_key};
    f->peers.resize(f->nranks);
    return ranks(f).gather(&mine, f->peers.data(), sizeof mine, "window");
}

namespace {

int check_range(const gda_fabric *f, uint64_t offset, size_t bytes) {
    if (!f->window)
        return gic::fail(-EINVAL, "no window yet");
    if (offset > f->window_bytes || bytes > f->window_bytes - offset)
        return gic::fail(-ERANGE, "%zu bytes at offset %llu: the window has %llu", bytes,
                         (unsigned long long)offset, (unsigned long long)f->window_bytes);
    return 0;
}

} // namespace

int gda_fabric_write(struct gda_fabric *f, uint64_t offset, const void *src, size_t bytes) {
    if (int rc = check_range(f, offset, bytes))
        return rc;
    return set_at(f, f->places.window_on_gpu, f->window + offset, src, bytes);
}

int gda_fabric_read(struct gda_fabric *f, uint64_t offset, void *dst, size_t bytes) {
    if (int rc = check_range(f, offset, bytes))
        return rc;
    return get_at(f, f->places.window_on_gpu, dst, f->window + offset, bytes);
}

int gda_fabric_ready(struct gda_fabric *f) {
    if (!f->gpu || f->gpu->neighbours() == 1)
        return 0;
    if (int rc = comm_barrier(f, "prepare"))
        return rc;
    if (!f->places.gpu_engine)
        return 0;
    // Once in vain: what the engine learns of the other ranks when it starts may make it allocate.
    if (int rc = gda_fabric_begin(f))
        return rc;
    softnic_hold(f->nic);
    return comm_barrier(f, "start their engines once");
}

int gda_fabric_begin(struct gda_fabric *f) {
    if (!f->places.gpu_engine)
        return 0;
    if (f->places.on_demand) {
        if (int rc = softnic_stay(f->nic, 1))
            return gic::fail(rc, "start the NIC's kernel: %s", softnic_error());
    } else {
        softnic_resume(f->nic);
    }
    if (int rc = softnic_engine_error(f->nic))
        return gic::fail(rc, "start the NIC's kernel: %s", softnic_error());
    return 0;
}

namespace {

// The record alone tells the engine of new work, so a doorbell that nobody rang would go unnoticed.
int check_doorbells(const struct gda_fabric *f) {
    const size_t n = f->qps.size(), line = 64;
    if (n == 0 || f->watch != "dbr" || f->clock != SOFTNIC_REAL)
        return 0;
    std::vector<uint8_t> records(n * line), bells(n * line);
    if (int rc = get_at(f, f->places.gpu_engine, records.data(), f->qps[0].dbr, n * line))
        return rc;
    if (int rc = get_at(f, f->places.doorbells_on_gpu, bells.data(), f->qps[0].bell, n * line))
        return rc;
    for (size_t i = 0; i < n; i++) {
        struct mlx5_dbr record;
        uint64_t bell;
        memcpy(&record, &records[i * line], sizeof record);
        memcpy(&bell, &bells[i * line], sizeof bell);
        const uint32_t said = mlx5_be32(record.snd) & 0xffff, rung = mlx5_doorbell_index(bell);
        if (bell == 0 ? said != 0 : rung != said || mlx5_doorbell_qpn(bell) != f->qps[i].qpn)
            return gic::fail(
                -EIO, "QP %u: its doorbell record says %u and its doorbell %u of QP %u: one was not rung",
                f->qps[i].qpn, said, rung, mlx5_doorbell_qpn(bell));
    }
    return 0;
}

} // namespace

int gda_fabric_end(struct gda_fabric *f, bool fine) {
    if (f->places.gpu_engine) {
        if (f->places.on_demand)
            softnic_stay(f->nic, 0);
        else
            softnic_hold(f->nic);
        if (int rc = softnic_engine_error(f->nic))
            return gic::fail(rc, "%s", softnic_error());
    }
    return fine ? check_doorbells(f) : 0;
}

int gda_fabric_reset(struct gda_fabric *f) {
    const size_t n = f->qps.size();
    const bool hold = f->clock == SOFTNIC_REAL && !f->places.gpu_engine; // that one is held
    if (n == 0)
        return 0;
    const gda_qp &first = f->qps[0];
    std::vector<uint8_t> zero(n * 64);
    std::vector<struct mlx5_cqe> cqes(n * first.cq_depth);
    for (struct mlx5_cqe &cqe : cqes)
        cqe.op_own = MLX5_OP_OWN_INITIAL;
    if (hold)
        softnic_hold(f->nic);
    int rc = set_at(f, f->places.gpu_engine, first.dbr, zero.data(), zero.size());
    if (rc == 0)
        rc = set_at(f, f->places.doorbells_on_gpu, first.bell, zero.data(), zero.size());
    if (rc == 0)
        rc = set_at(f, f->places.queues_on_gpu, first.cqe, cqes.data(), cqes.size() * sizeof cqes[0]);
    for (size_t i = 0; i < n && rc == 0; i++)
        if ((rc = softnic_qp_reset(f->nic, f->qps[i].qpn)) != 0)
            rc = gic::fail(rc, "reset QP %u: %s", f->qps[i].qpn, softnic_error());
    if (hold)
        softnic_resume(f->nic);
    return rc;
}

std::string gda_qp_name(const struct gda_qp &qp) {
    const std::string number = std::to_string(qp.qpn);
    return qp.peer == gda_any_peer ? "DC QP " + number
                                   : "QP " + number + " to rank " + std::to_string(qp.peer);
}

int gda_fabric_error(const struct gda_fabric *f) {
    if (f->qps.empty())
        return 0;
    const uint32_t depth = f->qps[0].cq_depth;
    std::vector<struct mlx5_cqe> copy;
    const struct mlx5_cqe *cqes = f->qps[0].cqe; // of all QPs, one after the other
    if (f->places.queues_on_gpu) {
        copy.resize(f->qps.size() * depth);
        if (int rc = get_at(f, true, copy.data(), cqes, copy.size() * sizeof copy[0]))
            return rc;
        cqes = copy.data();
    }
    for (size_t i = 0; i < f->qps.size() * depth; i++) {
        const auto *e = (const struct mlx5_cqe_err *)&cqes[i];
        if (mlx5_op_own_opcode(__atomic_load_n(&e->op_own, __ATOMIC_ACQUIRE)) != MLX5_CQE_OP_REQ_ERR)
            continue;
        // A collapsed CQE may already show the flush of what came behind; the cause is gone then.
        const gda_qp &qp = f->qps[i / depth];
        return gic::fail(-EIO, "error CQE on %s: syndrome 0x%02x (vendor 0x%02x), WQE index %u",
                         gda_qp_name(qp).c_str(), e->syndrome, e->vendor_syndrome, mlx5_be16(e->wqe_counter));
    }
    return 0;
}
