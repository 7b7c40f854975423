// What the plugin's tests share: checks, two processes, and CUDA's memory as shared memory of this machine.
#ifndef BACKENDS_NCCLGIN_GIN_TEST_H
#define BACKENDS_NCCLGIN_GIN_TEST_H

#include "backends/ncclgin/gin.h"
#include "backends/ncclgin/net.h"

#include <map>

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern "C" const nccl_abi::NetTable ncclNetPlugin_v11;
extern "C" const nccl_abi::GinTable ncclGinPlugin_v11;
extern "C" const struct gic_ncclgin_net gic_ncclgin_net_v1;

inline int failures;
#define CHECK(cond, ...)                                                                                     \
    do {                                                                                                     \
        if (!(cond)) {                                                                                       \
            printf("%s:%d: %s: ", __FILE__, __LINE__, #cond);                                                \
            printf(__VA_ARGS__);                                                                             \
            printf("\n");                                                                                    \
            failures++;                                                                                      \
        }                                                                                                    \
    } while (0)
#define MUST(call)                                                                                           \
    do {                                                                                                     \
        if (int rc_ = (int)(call)) {                                                                         \
            printf("%s:%d: %s = %d: %s\n", __FILE__, __LINE__, #call, rc_, gic::error_text().c_str());       \
            fflush(stdout);                                                                                  \
            _exit(2);                                                                                        \
        }                                                                                                    \
    } while (0)
// The call fails, and its line has the text.
#define REFUSES(call, text)                                                                                  \
    CHECK((call) != 0 && strstr(gic::error_text().c_str(), text), "said \"%s\"", gic::error_text().c_str())

namespace ncclgin_test {

constexpr uint64_t deadline_ns = 60000000000u;

// ---- two processes ----

struct Shared {
    uint32_t arrived, generation;
    char exchange[2][4096];
};
inline Shared *shared;

inline int barrier(void *) {
    const uint32_t gen = __atomic_load_n(&shared->generation, __ATOMIC_ACQUIRE);
    if (__atomic_add_fetch(&shared->arrived, 1, __ATOMIC_ACQ_REL) == 2) {
        __atomic_store_n(&shared->arrived, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&shared->generation, gen + 1, __ATOMIC_RELEASE);
        return 0;
    }
    for (uint64_t until = gic::globaltimer() + deadline_ns;
         __atomic_load_n(&shared->generation, __ATOMIC_ACQUIRE) == gen; sched_yield())
        if (gic::globaltimer() > until)
            _exit(3);
    return 0;
}
inline int allgather(void *arg, const void *mine, void *all, size_t bytes) {
    memcpy(shared->exchange[*(int *)arg], mine, bytes);
    barrier(arg);
    for (int r = 0; r < 2; r++)
        memcpy((char *)all + r * bytes, shared->exchange[r], bytes);
    return barrier(arg);
}

// Runs body(rank, job name) in two processes; how many failed.
template <class F> int in_pair(const char *what, F body) {
    static int pairs;
    char name[64];
    snprintf(name, sizeof name, "gic-test-ncclgin-%d-%d", (int)getpid(), pairs++);
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        failures = 0;
        body(1, name);
        fflush(stdout);
        _exit(failures != 0);
    }
    const int before = failures;
    body(0, name);
    int status = 0;
    waitpid(child, &status, 0);
    if (status)
        printf("%s: rank 1 failed\n", what);
    return failures - before + (status != 0);
}

// ---- memory ----

// What adopt() is to find at an address.
struct Known {
    int fd; // -1: no other process can map it
    size_t bytes;
    ncclgin::Place place;
};
inline std::map<void *, Known> known;

class HostMemory final : public ncclgin::Memory {
  public:
    int enter() override { return 0; }
    int create(size_t bytes, ncclgin::Place place, ncclgin::Region *r) override {
        const int fd = memfd_create("gic-test", MFD_CLOEXEC);
        const size_t whole = (bytes + 4095) / 4096 * 4096;
        if (fd < 0 || ftruncate(fd, (off_t)whole) != 0)
            return gic::fail(-errno, "memfd");
        ncclgin::Region like;
        like.bytes = bytes;
        like.place = place;
        like.mapping_bytes = whole;
        const int rc = import(fd, like, r);
        known[r->addr] = {dup(fd), bytes, place};
        close(fd);
        return rc;
    }
    int adopt(void *addr, size_t bytes, ncclgin::Region *r) override {
        *r = ncclgin::Region();
        r->addr = addr;
        r->bytes = bytes;
        const auto at = known.find(addr);
        if (at == known.end())
            return 0;
        r->place = at->second.place;
        r->handle = at->second.fd < 0 ? 0 : (uint64_t)dup(at->second.fd) + 1;
        r->mapping_bytes = (at->second.bytes + 4095) / 4096 * 4096;
        return 0;
    }
    int export_fd(const ncclgin::Region &r, int *fd_p) override {
        *fd_p = r.handle ? dup((int)r.handle - 1) : -1;
        return 0;
    }
    int import(int fd, const ncclgin::Region &like, ncclgin::Region *r) override {
        *r = like;
        r->mapping = mmap(nullptr, like.mapping_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (r->mapping == MAP_FAILED)
            return gic::fail(-errno, "mmap");
        r->addr = (uint8_t *)r->mapping + like.offset;
        r->handle = (uint64_t)dup(fd) + 1;
        return 0;
    }
    int drop(ncclgin::Region *r) override {
        const auto at = known.find(r->addr);
        if (at != known.end() && r->mapping) {
            close(at->second.fd);
            known.erase(at);
        }
        if (r->mapping)
            munmap(r->mapping, r->mapping_bytes);
        if (r->handle)
            close((int)r->handle - 1);
        *r = ncclgin::Region();
        return 0;
    }
    int store(uint64_t *word, uint64_t value) override {
        __atomic_store_n(word, value, __ATOMIC_RELEASE);
        return 0;
    }
};

class HostRelay final : public ncclgin::Relay {
  public:
    int add(const Words &w) override {
        for (uint32_t i = 0; i < w.count; i++)
            __atomic_fetch_add(w.addr[i], w.delta[i], __ATOMIC_RELEASE);
        return 0;
    }
};

// ---- one rank ----

class Rank {
  public:
    Rank(int rank_, const char *job_name) : rank(rank_), comm{&rank, allgather, barrier} {
        open.struct_size = sizeof open;
        open.rank = rank;
        open.nranks = 2;
        open.job = job_name;
        open.device = "host";
        open.nic = "soft";
        open.comm = &comm;
        nic.push_back({"watch", "dbr"});
    }
    int prepare(const char *type, uint32_t depth = 64) {
        open.nic_config = nic.data();
        open.nic_config_count = (uint32_t)nic.size();
        const struct gic_ncclgin_attr attr = {sizeof attr, type, depth};
        return gic_ncclgin_net_v1.prepare(&open, &attr);
    }
    // As NCCL makes one context's communicator.
    void *connect() {
        const nccl_abi::GinTable &gin = ncclGinPlugin_v11;
        char handle[nccl_abi::HANDLE_BYTES] = {}, all[2][nccl_abi::HANDLE_BYTES];
        void *ctx = nullptr, *listen = nullptr, *coll = nullptr;
        MUST(gin.init(&ctx, 1, nullptr));
        MUST(gin.listen(ctx, 0, handle, &listen));
        allgather(&rank, handle, all, sizeof handle);
        void *handles[] = {all[0], all[1]};
        MUST(gin.connect(nullptr, handles, 2, rank, listen, &coll));
        MUST(gin.close_listen(listen));
        return coll;
    }
    int rank;
    struct gic_comm comm;
    struct gic_open open {};
    std::vector<struct gic_kv> nic;
};

inline std::string fact(const char *name) {
    const struct gic_kv *list;
    uint32_t n;
    MUST(gic_ncclgin_net_v1.facts(&list, &n));
    const char *value = gic::kv_find(list, n, name);
    return value ? value : "";
}
inline uint64_t counter(const char *name) {
    const struct gic_counter *list;
    uint32_t n;
    MUST(gic_ncclgin_net_v1.counters(&list, &n));
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(list[i].name, name) == 0)
            return list[i].value;
    CHECK(false, "no counter %s", name);
    return 0;
}

inline void make_shared() {
    shared =
        (Shared *)mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        _exit(2);
}

} // namespace ncclgin_test

#endif
