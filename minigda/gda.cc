#include "minigda/gda.h"

#include <errno.h>
#include <string.h>
#include <time.h>

namespace {

uint32_t wqe_blocks(const gda_attr &a) { // of the largest WQE
    return a.inline_max > GDA_INLINE_ONE_BLOCK ? mlx5_ds_blocks(mlx5_inline_ds(2, a.inline_max)) : 1;
}

uint32_t lanes_of(const gda_attr &a) {
    return !gda_lanes(a.sharing) ? 1 : a.lanes ? a.lanes : (uint32_t)GDA_LANES;
}

// Kernels post while the NIC is held, and it serves the queues only while one waits for it.
bool holds(const gda_attr &a) { return a.order == gda_order::none || a.hold || gda_bare(a.sharing); }

// Blocks a queue needs so that a full one always holds an announced, signaled WQE, for make_room() never rings:
// the batch being filled, what each sharer may post without asking for a CQE, the post that waits (a WQE and a
// signal behind it, or a group), and the last completed WQE's blocks behind its first.
uint64_t depth_needed(const gda_attr &a, uint32_t sharers) {
    const uint64_t blocks = wqe_blocks(a);
    const uint64_t post = gda_lanes(a.sharing) ? lanes_of(a) : blocks + 1;
    return (a.batch + (uint64_t)sharers * (a.signal_every - 1)) * blocks + post + blocks;
}

const char *syndrome_name(uint32_t syndrome) {
    switch (syndrome) {
    case MLX5_SYND_LOCAL_LENGTH:
        return "local length error";
    case MLX5_SYND_LOCAL_QP_OP:
        return "local QP operation error";
    case MLX5_SYND_LOCAL_PROT:
        return "local protection error";
    case MLX5_SYND_WR_FLUSH:
        return "flushed behind an earlier error";
    case MLX5_SYND_REMOTE_INVAL_REQ:
        return "remote invalid request";
    case MLX5_SYND_REMOTE_ACCESS:
        return "remote access error";
    case MLX5_SYND_REMOTE_OP:
        return "remote operation error";
    case MLX5_SYND_TRANSPORT_RETRY:
        return "transport retry exceeded";
    default:
        return "unexpected";
    }
}

int error_of_queues(const gda *g) {
    for (const gda_qp &qp : g->fabric->qps) {
        const gda_queue &q = g->queues[&qp - g->fabric->qps.data()];
        if (uint32_t seen = gic::load_relaxed(&q.syndrome)) {
            // The device thread may have come late and seen a flush.
            const uint32_t first = softnic_qp_syndrome(g->fabric->nic, qp.qpn);
            const uint32_t syndrome = first ? first : seen;
            return gic::fail(-EIO, "error CQE on QP %u to rank %u: syndrome 0x%02x (%s)", qp.qpn, qp.peer,
                             syndrome, syndrome_name(syndrome));
        }
    }
    return gda_fabric_error(g->fabric);
}

// Serves gda_gate: lets the NIC run while a device thread waits for it.
void *monitor_main(void *arg) {
    gda *g = (gda *)arg;
    gda_gate *gate = g->gate;
    const struct timespec nap = {0, 20000};
    while (!__atomic_load_n(&g->stop_monitor, __ATOMIC_ACQUIRE)) {
        const bool held = __atomic_load_n(&gate->held, __ATOMIC_RELAXED);
        if (held && __atomic_load_n(&gate->want, __ATOMIC_SEQ_CST)) {
            // Agents look at held after they have withdrawn: looking again at want after the store means that
            // one of the two sees the other.
            __atomic_store_n(&gate->held, 0u, __ATOMIC_SEQ_CST);
            if (__atomic_load_n(&gate->want, __ATOMIC_SEQ_CST))
                softnic_resume(g->fabric->nic);
            else
                __atomic_store_n(&gate->held, 1u, __ATOMIC_SEQ_CST);
        } else if (!held && !__atomic_load_n(&gate->want, __ATOMIC_SEQ_CST)) {
            softnic_hold(g->fabric->nic);
            __atomic_store_n(&gate->held, 1u, __ATOMIC_SEQ_CST);
        }
        nanosleep(&nap, nullptr);
    }
    if (!__atomic_load_n(&gate->held, __ATOMIC_RELAXED))
        return nullptr;
    __atomic_store_n(&gate->held, 0u, __ATOMIC_SEQ_CST);
    softnic_resume(g->fabric->nic);
    return nullptr;
}

int start_monitor(gda *g) {
    if (!holds(g->attr) || g->fabric->clock != SOFTNIC_REAL)
        return 0;
    softnic_hold(g->fabric->nic);
    g->gate->want = 0;
    g->gate->held = 1;
    g->stop_monitor = 0;
    if (int err = pthread_create(&g->monitor, nullptr, monitor_main, g)) {
        if (!g->fabric->places.gpu_engine) // which is held between launches
            softnic_resume(g->fabric->nic);
        return gic::fail(-err, "start the thread that holds the NIC: %s", strerror(err));
    }
    g->monitoring = true;
    return 0;
}

void stop_monitor(gda *g) {
    if (!g->monitoring)
        return;
    __atomic_store_n(&g->stop_monitor, 1u, __ATOMIC_RELEASE);
    pthread_join(g->monitor, nullptr);
    g->monitoring = false;
}

// Hands on what kernels have left in place of a doorbell: GPUs that cannot store to the NIC's page have a thread do it.
void *ringer_main(void *arg) {
    gda *g = (gda *)arg;
    const size_t n = g->fabric->qps.size();
    std::vector<uint64_t> seen(n);
    for (size_t i = 0; i < n; i++) // what the last launch left has been rung
        seen[i] = *g->fabric->qps[i].bell;
    for (uint32_t idle = 0;; gic::pause(idle++)) {
        // Looked at before the sweep: what was there when the kernel ended is rung.
        const bool last = __atomic_load_n(&g->stop_ringer, __ATOMIC_ACQUIRE);
        for (size_t i = 0; i < n; i++) {
            // Acquire and release: whoever sees the doorbell finds the record and the WQEs.
            const uint64_t bell = __atomic_load_n(&g->bells[8 * i], __ATOMIC_ACQUIRE);
            if (bell == seen[i])
                continue;
            __atomic_store_n(g->fabric->qps[i].bell, seen[i] = bell, __ATOMIC_RELEASE);
            idle = 0;
        }
        if (last)
            return nullptr;
    }
}

int start_ringer(gda *g) {
    if (!g->attr.host_rings)
        return 0;
    g->stop_ringer = 0;
    if (int err = pthread_create(&g->ringer, nullptr, ringer_main, g))
        return gic::fail(-err, "start the thread that rings: %s", strerror(err));
    g->ringing = true;
    return 0;
}

void stop_ringer(gda *g) {
    if (!g->ringing)
        return;
    __atomic_store_n(&g->stop_ringer, 1u, __ATOMIC_RELEASE);
    pthread_join(g->ringer, nullptr);
    g->ringing = false;
}

int make_cursors(gda *g, uint32_t agents) {
    if (agents <= g->agents_max)
        return 0;
    // Nothing is outstanding between launches, so new places may start from nothing.
    void *cursors, *landings, *device = nullptr;
    const size_t n = (size_t)agents * g->fabric->nranks;
    if (int rc = gda_fabric_alloc(g->fabric, n * sizeof(gda_cursor), &cursors, nullptr))
        return rc;
    if (int rc = gda_fabric_alloc_data(g->fabric, n * sizeof(gda_landing), &landings, &g->landing_key))
        return rc;
    if (gic::Gpu *gpu = g->fabric->gpu.get()) {
        if (int rc = gpu->alloc(n * sizeof(gda_cursor), &device))
            return rc;
        if (int rc = g->device_cursors ? gpu->free(g->device_cursors) : 0)
            return rc;
    }
    for (size_t i = 0; i < (size_t)g->agents_max * g->fabric->nranks; i++) {
        g->slot_waits += g->cursors[i].slot_waits;
        g->doorbells += g->cursors[i].doorbells;
    }
    g->cursors = (gda_cursor *)cursors;
    g->landings = (gda_landing *)landings;
    g->device_cursors = device ? (gda_cursor *)device : g->cursors;
    g->agents_max = agents;
    return 0;
}

size_t queue_bytes(const gda *g) { return g->fabric->qps.size() * sizeof(gda_queue); }
size_t cursor_bytes(const gda *g) { return (size_t)g->agents_max * g->fabric->nranks * sizeof(gda_cursor); }

// What a launch works on. Where agents of one block share queues a kernel loads and stores the words itself.
int upload(gda *g) {
    gic::Gpu *gpu = g->fabric->gpu.get();
    for (size_t i = 0; i < g->block.size(); i++)
        gda_words_copy(&g->block[i], &g->queues[i]);
    if (!gpu)
        return 0;
    if (int rc = gpu->upload(g->device_queues, g->queues, queue_bytes(g)))
        return rc;
    return gpu->upload(g->device_cursors, g->cursors, cursor_bytes(g));
}

int download(gda *g) {
    gic::Gpu *gpu = g->fabric->gpu.get();
    for (size_t i = 0; i < g->block.size(); i++)
        gda_words_copy(&g->queues[i], &g->block[i]);
    if (!gpu)
        return 0;
    if (int rc = gpu->download(g->queues, g->device_queues, queue_bytes(g)))
        return rc;
    return gpu->download(g->cursors, g->device_cursors, cursor_bytes(g));
}

// Every queue pair and everything that counts its blocks back to the start; counters stay.
int reset(gda *g) {
    for (size_t i = 0; i < g->fabric->qps.size(); i++) {
        gda_queue &q = g->queues[i];
        q.reserved = q.rung = q.cons = q.signaled = 0;
        q.turn = 0;
        q.pending = q.lock = q.syndrome = 0;
    }
    for (size_t i = 0; i < (size_t)g->agents_max * g->fabric->nranks; i++) {
        gda_cursor fresh{};
        fresh.doorbells = g->cursors[i].doorbells;
        fresh.slot_waits = g->cursors[i].slot_waits;
        g->cursors[i] = fresh;
    }
    if (g->bells)
        memset(g->bells, 0, g->fabric->qps.size() * 64);
    const int rc = gda_fabric_reset(g->fabric);
    g->broken = rc != 0;
    return rc;
}

int lay_out(gda *g) {
    const std::vector<gda_qp> &qps = g->fabric->qps;
    void *queues, *gate, *values = nullptr;
    uint32_t values_key = 0;
    if (int rc = gda_fabric_alloc(g->fabric, qps.size() * sizeof(gda_queue), &queues, nullptr))
        return rc;
    if (int rc = gda_fabric_alloc(g->fabric, sizeof(gda_gate), &gate, nullptr))
        return rc;
    if (g->attr.inline_max < 8)
        if (int rc = gda_fabric_alloc_data(g->fabric, qps.size() * g->attr.depth * 8, &values, &values_key))
            return rc;
    void *bells = nullptr;
    if (g->attr.host_rings)
        if (int rc = gda_fabric_alloc(g->fabric, qps.size() * 64, &bells, nullptr))
            return rc;
    g->bells = (uint64_t *)bells;
    g->queues = (gda_queue *)queues;
    g->gate = (gda_gate *)gate;
    void *device = queues;
    if (gic::Gpu *gpu = g->fabric->gpu.get())
        if (int rc = gpu->alloc(qps.size() * sizeof(gda_queue), &device))
            return rc;
    g->device_queues = (gda_queue *)device;
    for (size_t i = 0; i < qps.size(); i++) {
        gda_queue &q = g->queues[i];
        q.blocks = qps[i].sq;
        q.dbr = &qps[i].dbr->snd;
        q.bell = g->bells ? g->bells + 8 * i : qps[i].bell;
        q.cqe = qps[i].cqe;
        q.values = values ? (uint64_t *)values + i * g->attr.depth : nullptr;
        q.values_key = values_key;
        q.qpn = qps[i].qpn;
        q.qpn_word = mlx5_ctrl_word1(qps[i].qpn, 0);
        q.depth = qps[i].depth;
        q.mask = qps[i].depth - 1;
        q.by_value = g->attr.inline_max >= 8;
    }
    if (gda_in_block(g->attr.sharing) && !g->fabric->gpu)
        g->block.resize(qps.size());
    return gda_exclusive(g->attr.sharing) ? make_cursors(g, g->attr.qps) : 0;
}

} // namespace

int gda_check(const gda_attr *a, uint32_t nranks) {
    if (gda_in_block(a->sharing) && (uint64_t)nranks * a->qps > GDA_BLOCK_QUEUES)
        return gic::fail(-EINVAL,
                         "lock=block: %u queue pairs to each of %u ranks, the memory of a block is given %d",
                         a->qps, nranks, GDA_BLOCK_QUEUES);
    if (a->depth < 64 || a->depth > 32768 || (a->depth & (a->depth - 1)))
        return gic::fail(-EINVAL, "depth=%u: want a power of two in 64..32768", a->depth);
    if (a->inline_max > GDA_INLINE_MAX)
        return gic::fail(-EINVAL, "inline limit %u: a WQE holds at most %d bytes", a->inline_max,
                         GDA_INLINE_MAX);
    if (gda_bare(a->sharing) && ((a->batch & (a->batch - 1)) || a->signal_every != 1))
        return gic::fail(-EINVAL, "bare posting with batch=%u, signal_every=%u: want a power of two, and 1",
                         a->batch, a->signal_every);
    if ((gda_bare(a->sharing) || a->sharing == gda_sharing::spare) && a->scope != gda_scope::qp)
        return gic::fail(-EINVAL,
                         "an agent that posts bare, or keeps its state in memory, completes its own queue: "
                         "want scope=qp");
    const uint64_t needed = depth_needed(*a, 1);
    if (needed > a->depth)
        return gic::fail(
            -EINVAL, "depth=%u: batch=%u and signal_every=%u with WQEs of up to %u blocks need at least %llu",
            a->depth, a->batch, a->signal_every, wqe_blocks(*a), (unsigned long long)needed);
    return 0;
}

int gda_open(gda_fabric *fabric, const gic_open *open, const gda_attr *attr, gda **gda_p) {
    gda *g = new gda();
    g->attr = *attr;
    g->fabric = fabric;
    g->stop = open->stop;
    g->timeout_ns = open->timeout_ns;
    int rc = gda_check(attr, fabric->nranks);
    if (rc == 0)
        rc = gda_fabric_connect(fabric, attr->qps, attr->depth, 0);
    if (rc == 0)
        rc = lay_out(g);
    if (rc) {
        gda_close(g);
        return rc;
    }
    *gda_p = g;
    return 0;
}

void gda_close(gda *g) {
    if (!g)
        return;
    stop_monitor(g);
    stop_ringer(g);
    gda_fabric_close(g->fabric);
    delete g;
}

int gda_window(gda *g, uint64_t bytes) {
    if (int rc = gda_fabric_window(g->fabric, bytes))
        return rc;
    for (size_t i = 0; i < g->fabric->qps.size(); i++) {
        const gda_peer &peer = g->fabric->peers[g->fabric->qps[i].peer];
        g->queues[i].remote = peer.window;
        g->queues[i].rkey_word = mlx5_be32(peer.rkey);
        g->queues[i].window = g->fabric->window;
        g->queues[i].lkey_word = mlx5_be32(g->fabric->window_key);
    }
    return 0;
}

int gda_begin(gda *g, uint32_t agents) {
    const gda_attr &a = g->attr;
    if (!g->fabric->window)
        return gic::fail(-EINVAL, "run before window");
    if (gda_exclusive(a.sharing) && agents > a.qps)
        return gic::fail(
            -ENOTSUP,
            "sharing=exclusive: %u device threads but qps=%u per peer; give each its own or share "
            "(lock, handoff, warp)",
            agents, a.qps);
    if (gda_in_block(a.sharing) && g->fabric->gpu && agents > 1 && !g->fabric->gpu->together)
        return gic::fail(
            -ENOTSUP,
            "lock=block: %u agents are on several multiprocessors, and the lock is in the memory of "
            "one block; want placement=warps or lanes, or lock=gpu",
            agents);
    const uint32_t sharers = (agents + a.qps - 1) / a.qps;
    const uint64_t needed = depth_needed(a, sharers);
    if (needed > a.depth)
        return gic::fail(-ENOTSUP,
                         "depth=%u: %u agents on a QP with batch=%u and signal_every=%u need at least %llu",
                         a.depth, sharers, a.batch, a.signal_every, (unsigned long long)needed);
    if (g->broken)
        if (int rc = reset(g))
            return rc;
    if (int rc = make_cursors(g, agents))
        return rc;
    if (int rc = upload(g))
        return rc;
    if (int rc = gda_fabric_ready(g->fabric))
        return rc;
    g->agents = agents;
    int rc = start_ringer(g);
    if (rc == 0) // held: the monitor lets the NIC go on
        rc = holds(a) ? start_monitor(g) : gda_fabric_begin(g->fabric);
    if (rc)
        stop_ringer(g);
    return rc;
}

int gda_end(gda *g, int status) {
    stop_monitor(g);
    const std::string said = gic::error_text();
    stop_ringer(g);
    int rc = gda_fabric_end(g->fabric, status == 0);
    if (rc == 0)
        rc = download(g);
    if (rc) {
        g->broken = true;
        return status ? gic::fail(status, "%s", said.c_str()) : rc;
    }
    if (status == 0)
        return 0;
    g->broken = true;
    if (status == gic::ERR_IO) {
        const std::string who = said.substr(0, said.find(':'));
        if (error_of_queues(g) != 0) {
            const std::string what = gic::error_text();
            return gic::fail(status, "%s: %s", who.c_str(), what.c_str());
        }
        gic::error_text() = said;
    }
    return status;
}

void gda_fill(const gda *g, gda_shared *h) {
    const gda_attr &a = g->attr;
    h->rank = g->fabric->rank;
    h->nranks = g->fabric->nranks;
    h->window = g->fabric->window;
    const gic::Gpu *gpu = g->fabric->gpu.get();
    h->env = gic::Env{gpu ? gpu->stop_word() : g->stop, g->timeout_ns};
    h->lanes = lanes_of(a);
    h->window_key = g->fabric->window_key;
    h->landing_key = g->landing_key;
    const uint32_t inline_one =
        a.inline_max < GDA_INLINE_ONE_BLOCK ? a.inline_max : (uint32_t)GDA_INLINE_ONE_BLOCK;
    const uint32_t put_max = a.inline_only ? a.inline_max : (uint32_t)GDA_PUT_MAX;
    h->choices = gda_choices{a.order,      a.scope,       a.qps,      a.batch, a.signal_every,
                             a.inline_max, a.inline_only, inline_one, put_max, 0};
    h->queues = g->device_queues;
    h->cursors = g->device_cursors;
    h->landings = g->landings;
    h->gate = holds(a) && g->fabric->clock == SOFTNIC_REAL ? g->gate : nullptr;
    h->block = const_cast<gda_block_words *>(g->block.data());
}

const char *gda_order_host(gda_order order) {
    switch (order) {
    case gda_order::none:
        return "relaxed stores, NIC held";
    case gda_order::gpu_fence:
        return "fence(acq_rel), release doorbell";
    case gda_order::gpu_fence_dbr:
        return "2 x fence(acq_rel)";
    case gda_order::gpu_release:
    case gda_order::sys_release:
        return "2 x release store";
    default:
        return "2 x fence(seq_cst)";
    }
}

const char *gda_order_ptx(gda_order order) {
    switch (order) {
    case gda_order::none:
        return "st.relaxed.sys dbr, st.relaxed.sys bell; NIC held";
    case gda_order::gpu_fence:
        return "fence.acq_rel.gpu, st.relaxed.sys dbr, st.relaxed.sys bell";
    case gda_order::gpu_fence_dbr:
        return "fence.acq_rel.gpu, st.relaxed.sys dbr, fence.acq_rel.gpu, st.relaxed.sys bell";
    case gda_order::gpu_release:
        return "st.release.gpu dbr, st.release.gpu bell";
    case gda_order::threadfence:
        return "__threadfence(), st.relaxed.sys dbr, __threadfence(), st.relaxed.sys bell";
    case gda_order::sys_release:
        return "st.release.sys dbr, st.release.sys bell";
    default:
        return "__threadfence_system(), st.relaxed.sys dbr, __threadfence_system(), st.relaxed.sys bell";
    }
}

static bool beyond_gpu(gda_order order) {
    return order == gda_order::sys_release || order == gda_order::sys_fence;
}

static std::string order_name(gda_order order) {
    const char *names = GDA_ORDERS;
    for (uint32_t i = 0; i < (uint32_t)order; i++)
        names = strchr(names, '|') + 1;
    return std::string(names, strcspn(names, "|"));
}

// What agents that share a queue hand on, and how far its order reaches.
static std::string sharing_ptx(gda_sharing sharing) {
    const std::string scope = gda_in_block(sharing) ? ".cta" : ".gpu",
                      where = gda_in_block(sharing) ? "shared memory" : "GPU memory";
    if (gda_form(sharing) == gda_sharing::lock)
        return "atom.cas.acquire" + scope + ", st.release" + scope + " in " + where;
    return "fence.acq_rel" + scope + ", ld.acquire" + scope + ", atom.add" + scope + " in " + where;
}

void gda_facts(const gda *g, gic::Facts *facts) {
    gda_fabric_facts(g->fabric, facts);
    if (g->fabric->gpu) {
        facts->set("order.ptx", gda_order_ptx(g->attr.order));
        if (!gda_exclusive(g->attr.sharing))
            facts->set("sharing.ptx", sharing_ptx(g->attr.sharing));
        // What orders for the GPU does not order for a processor that reads behind its PCIe: under load the record
        // overtakes the WQE it announces, which the engine finds stale.
        if (!beyond_gpu(g->attr.order) && !g->fabric->places.gpu_engine)
            facts->set("unsafe", "order=" + order_name(g->attr.order) +
                                     ": its scope is the GPU, and a processor (engine=cpu) reads the queues");
    } else {
        facts->set("order.host", gda_order_host(g->attr.order));
    }
    facts->set("order", order_name(g->attr.order));
    if (g->attr.order == gda_order::none)
        facts->set("unsafe", "order=none");
    if (gda_bare(g->attr.sharing))
        facts->set("unsafe", "bare=on: nothing checks that a slot is free");
    facts->set("lanes", lanes_of(g->attr));
    facts->set("ringer", std::string(g->attr.host_rings ? "host" : "gpu"));
    facts->set("hold", std::string(holds(g->attr) ? "on" : "off"));
    facts->set("inline_max", g->attr.inline_max);
    if (g->agents) {
        facts->set("agents", g->agents);
        const uint32_t agents = g->fabric->gpu ? 1 : g->agents; // one thread waits for the kernel
        facts->set("runnable_threads", agents + g->fabric->workers + holds(g->attr) + g->attr.host_rings);
    }
}

void gda_counters(const gda *g, gic::Counters *counters) {
    gda_fabric_counters(g->fabric, counters);
    const bool exclusive = gda_exclusive(g->attr.sharing);
    uint64_t doorbells = g->doorbells, slot_waits = g->slot_waits;
    for (size_t i = 0; i < g->fabric->qps.size(); i++)
        doorbells += g->block.empty() ? g->queues[i].doorbells : g->block[i].doorbells;
    for (size_t i = 0; i < (size_t)g->agents_max * g->fabric->nranks; i++) {
        doorbells += g->cursors[i].doorbells;
        slot_waits += g->cursors[i].slot_waits;
    }
    // Exclusive: who rings and when follows from the posts alone. Shared: whoever finds the batch full.
    counters->add("doorbells", "1", doorbells, exclusive);
    counters->add("slot_waits", "1", slot_waits, false);
}
