#include "backends/abi/cuda_check.h"
#include "backends/rawstore/memory.h"

#include <dlfcn.h>

namespace {

// Behind each window, for ceiling(): beyond what the L2 cache of one GPU holds.
constexpr uint64_t spare = 256u << 20;
constexpr uint64_t page = 2u << 20;

// How this rank's GPU reaches another rank's.
struct Link {
    bool same = false, visible = false, access = false, atomics = false;
    int rank = 0,
        lanes = -1;      // performance rank as the driver says it; active NVLinks of this GPU, -1 unknown
    bool nvlink = false; // NVML says that the pair has it
    const char *name() const {
        return same ? "same GPU" : nvlink ? "NVLink" : visible ? "PCIe peer" : "GPU that is not visible here";
    }
};

// NVML answers what the runtime does not: is it NVLink? Opened at run time; where it is not there, nobody says NVLink.
class Nvml {
  public:
    Nvml() {
        lib_ = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
        get("nvmlInit_v2", &init_), get("nvmlShutdown", &shutdown_);
        get("nvmlDeviceGetHandleByUUID", &by_uuid_), get("nvmlDeviceGetP2PStatus", &p2p_);
        get("nvmlDeviceGetNvLinkState", &state_);
        ready_ = init_ && shutdown_ && by_uuid_ && p2p_ && state_ && init_() == 0;
    }
    ~Nvml() {
        if (ready_)
            shutdown_();
        if (lib_)
            dlclose(lib_);
    }
    Nvml(const Nvml &) = delete;
    Nvml &operator=(const Nvml &) = delete;

    bool nvlink(const std::string &a, const std::string &b) const {
        void *one = device(a), *other = device(b);
        int status = -1;
        return one && other && p2p_(one, other, p2p_nvlink, &status) == 0 && status == 0;
    }
    int active_links(const std::string &uuid) const {
        void *one = device(uuid);
        int n = 0;
        if (!one)
            return -1;
        for (unsigned link = 0; link < 18; link++) {
            int active = 0;
            n += state_(one, link, &active) == 0 && active == 1;
        }
        return n;
    }

  private:
    static constexpr int p2p_nvlink = 2; // NVML_P2P_CAPS_INDEX_NVLINK
    template <class F> void get(const char *name, F *f) {
        *f = lib_ ? reinterpret_cast<F>(dlsym(lib_, name)) : nullptr;
    }
    void *device(const std::string &uuid) const {
        char text[48] = "GPU-";
        size_t at = 4;
        for (size_t i = 0; i < uuid.size() && at + 3 < sizeof text; i++) {
            if (i == 4 || i == 6 || i == 8 || i == 10)
                text[at++] = '-';
            at += (size_t)snprintf(text + at, sizeof text - at, "%02x", (unsigned char)uuid[i]);
        }
        void *handle = nullptr;
        return ready_ && by_uuid_(text, &handle) == 0 ? handle : nullptr;
    }

    void *lib_;
    bool ready_ = false;
    int (*init_)();
    int (*shutdown_)();
    int (*by_uuid_)(const char *, void **);
    int (*p2p_)(void *, void *, int, int *);
    int (*state_)(void *, unsigned, int *);
};

class DeviceMemory final : public rawstore_memory {
  public:
    DeviceMemory(const gic::Ranks &ranks, gic::Gpu &gpu) : ranks_(ranks), gpu_(gpu) {}
    ~DeviceMemory() override {
        drop_peers();
        if (!windows_.empty())
            ranks_.agree(0, "close the windows"); // an exported window is freed when nobody has it any more
        drop();
        for (cudaEvent_t e : events_)
            if (e)
                cudaEventDestroy(e);
    }
    int start();
    int window(uint64_t bytes) override;
    int write(uint64_t offset, const void *src, size_t bytes) override {
        return gpu_.upload(at(ranks_.rank) + offset, src, bytes);
    }
    int read(uint64_t offset, void *dst, size_t bytes) override {
        return gpu_.download(dst, at(ranks_.rank) + offset, bytes);
    }
    int ceiling(uint32_t peer, uint64_t bytes, rawstore_ceiling *c) override;
    bool bulk() const override { return major_ >= 9; }
    void facts(gic::Facts &f) const override;

  private:
    uint64_t spare_at() const { return (bytes_ + page - 1) / page * page; }
    cudaStream_t stream() const { return (cudaStream_t)gpu_.stream(); }
    int prepare();
    int look(uint32_t peer, const std::string &uuid, const Nvml &nvml);
    int alloc(cudaIpcMemHandle_t *handle_p);
    int open_peers(const std::vector<cudaIpcMemHandle_t> &handles);
    int copies(uint32_t peer, uint64_t bytes, uint64_t n, double *ns_p);
    void drop_peers();
    void drop();

    const gic::Ranks ranks_;
    gic::Gpu &gpu_;
    std::vector<Link> links_; // by rank
    cudaEvent_t events_[2] = {};
    int major_ = 0; // compute capability
};

// What the driver says of the way to a peer's GPU.
int DeviceMemory::look(uint32_t peer, const std::string &uuid, const Nvml &nvml) {
    Link &l = links_[peer];
    l.same = uuid == gpu_.uuid();
    l.lanes = nvml.active_links(gpu_.uuid());
    if (l.same) {
        l.visible = l.access = l.atomics = true;
        return 0;
    }
    int own = 0, count = 0;
    GIC_CUDA(cudaGetDevice(&own));
    GIC_CUDA(cudaGetDeviceCount(&count));
    for (int d = 0; d < count; d++) {
        cudaDeviceProp prop;
        GIC_CUDA(cudaGetDeviceProperties(&prop, d));
        if (memcmp(prop.uuid.bytes, uuid.data(), sizeof prop.uuid.bytes) != 0)
            continue;
        int access = 0, atomics = 0;
        GIC_CUDA(cudaDeviceGetP2PAttribute(&access, cudaDevP2PAttrAccessSupported, own, d));
        GIC_CUDA(cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, own, d));
        GIC_CUDA(cudaDeviceGetP2PAttribute(&l.rank, cudaDevP2PAttrPerformanceRank, own, d));
        l.visible = true, l.access = access != 0, l.atomics = atomics != 0;
        l.nvlink = nvml.nvlink(gpu_.uuid(), uuid);
    }
    if (!l.visible)
        return gic::fail(
            -ENOTSUP,
            "the GPU of rank %u is not visible to rank %u: whether it can be stored to is not known; "
            "give both ranks both GPUs (CUDA_VISIBLE_DEVICES)",
            peer, ranks_.rank);
    if (!l.access || !l.atomics)
        return gic::fail(-ENOTSUP, "the GPU of rank %u (%s) %s that of rank %u", ranks_.rank,
                         gpu_.name().c_str(), l.access ? "has no atomics at" : "cannot load and store at",
                         peer);
    return 0;
}

// This GPU alone.
int DeviceMemory::prepare() {
    int own = 0;
    GIC_CUDA(cudaGetDevice(&own));
    GIC_CUDA(cudaDeviceGetAttribute(&major_, cudaDevAttrComputeCapabilityMajor, own));
    for (cudaEvent_t &e : events_)
        GIC_CUDA(cudaEventCreate(&e));
    return 0;
}

int DeviceMemory::start() {
    char mine[16] = {};
    memcpy(mine, gpu_.uuid().data(), sizeof mine);
    std::vector<char> all(sizeof mine * ranks_.nranks);
    if (int rc = ranks_.gather(mine, all.data(), sizeof mine, "GPU identities"))
        return rc;
    links_.resize(ranks_.nranks);
    const Nvml nvml;
    int rc = prepare();
    for (uint32_t r = 0; r < ranks_.nranks && rc == 0; r++)
        if (r != ranks_.rank)
            rc = look(r, std::string(&all[sizeof mine * r], sizeof mine), nvml);
    return ranks_.agree(rc, "look at the GPUs' links");
}

int DeviceMemory::alloc(cudaIpcMemHandle_t *handle_p) {
    void *p = nullptr;
    GIC_CUDA(cudaMalloc(&p, spare_at() + spare)); // not the stream's: only this kind has a handle
    windows_[ranks_.rank] = static_cast<uint8_t *>(p);
    GIC_CUDA(cudaMemsetAsync(p, 0, spare_at() + spare, stream()));
    GIC_CUDA(cudaStreamSynchronize(stream()));
    GIC_CUDA(cudaIpcGetMemHandle(handle_p, p));
    return 0;
}

int DeviceMemory::open_peers(const std::vector<cudaIpcMemHandle_t> &handles) {
    for (uint32_t r = 0; r < ranks_.nranks; r++) {
        void *p = nullptr;
        if (r == ranks_.rank)
            continue;
        GIC_CUDA(cudaIpcOpenMemHandle(&p, handles[r], cudaIpcMemLazyEnablePeerAccess));
        windows_[r] = static_cast<uint8_t *>(p);
    }
    return 0;
}

int DeviceMemory::window(uint64_t bytes) {
    drop_peers();
    if (int rc = ranks_.agree(0, "drop the window")) // nobody has mine any more
        return rc;
    drop();
    bytes_ = bytes;
    windows_.assign(ranks_.nranks, nullptr);
    cudaIpcMemHandle_t mine = {};
    int rc = ranks_.agree(alloc(&mine), "allocate the window");
    std::vector<cudaIpcMemHandle_t> all(ranks_.nranks);
    if (rc == 0)
        rc = ranks_.gather(&mine, all.data(), sizeof mine, "the windows' handles");
    if (rc == 0)
        rc = ranks_.agree(open_peers(all), "open the windows");
    return rc;
}

void DeviceMemory::drop_peers() {
    for (uint32_t r = 0; r < windows_.size(); r++)
        if (r != ranks_.rank && windows_[r]) {
            cudaIpcCloseMemHandle(windows_[r]);
            windows_[r] = nullptr;
        }
}

// Failures have nobody to tell: what follows is a new window, or the end.
void DeviceMemory::drop() {
    drop_peers();
    if (!windows_.empty() && windows_[ranks_.rank])
        cudaFree(windows_[ranks_.rank]);
    windows_.clear();
    bytes_ = 0;
}

// UVA tells the copy engine which two GPUs these are.
int DeviceMemory::copies(uint32_t peer, uint64_t bytes, uint64_t n, double *ns_p) {
    uint8_t *to = at(peer) + spare_at(), *from = at(ranks_.rank) + spare_at();
    const uint64_t places = spare / bytes;
    GIC_CUDA(cudaEventRecord(events_[0], stream()));
    for (uint64_t i = 0; i < n; i++)
        GIC_CUDA(cudaMemcpyAsync(to + i % places * bytes, from + i % places * bytes, bytes, cudaMemcpyDefault,
                                 stream()));
    GIC_CUDA(cudaEventRecord(events_[1], stream()));
    GIC_CUDA(cudaStreamSynchronize(stream()));
    float ms = 0;
    GIC_CUDA(cudaEventElapsedTime(&ms, events_[0], events_[1]));
    *ns_p = 1e6 * (double)ms;
    return 0;
}

int DeviceMemory::ceiling(uint32_t peer, uint64_t bytes, rawstore_ceiling *c) {
    if (bytes > spare)
        return gic::fail(-ENOTSUP, "copies of %llu bytes: at most %llu", (unsigned long long)bytes,
                         (unsigned long long)spare);
    const uint64_t n = copies_of(bytes, 2 * spare), wholes = 8;
    double ns = 0;
    *c = {0, 0, n * bytes, wholes * spare};
    if (int rc = copies(peer, bytes, 16, &ns)) // not timed: the first ones set the way up
        return rc;
    if (int rc = copies(peer, bytes, n, &c->sized_ns))
        return rc;
    return copies(peer, spare, wholes, &c->whole_ns);
}

// By the next rank's link; where the others are of another kind the word says so.
void DeviceMemory::facts(gic::Facts &f) const {
    f.set("window", "CUDA IPC");
    f.set("copy_engine", "cudaMemcpyAsync");
    if (ranks_.nranks < 2)
        return;
    const Link &l = links_[(ranks_.rank + 1) % ranks_.nranks];
    bool mixed = false;
    for (uint32_t r = 0; r < ranks_.nranks; r++)
        mixed |= r != ranks_.rank && strcmp(links_[r].name(), l.name()) != 0;
    f.set("link", std::string(mixed ? "mixed, next rank: " : "") + l.name());
    f.set("link.atomics", std::string(l.atomics ? "native" : "none"));
    if (!l.same)
        f.set("link.performance_rank", (uint64_t)l.rank);
    if (!l.same && l.lanes >= 0)
        f.set("link.nvlinks", (uint64_t)l.lanes);
}

} // namespace

int rawstore_device_memory(const gic::Ranks &ranks, gic::Gpu &gpu,
                           std::unique_ptr<rawstore_memory> *memory_p) {
    auto memory = std::make_unique<DeviceMemory>(ranks, gpu);
    if (int rc = memory->start())
        return rc;
    *memory_p = std::move(memory);
    return 0;
}
