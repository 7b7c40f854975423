// For tests of a transport without NVSHMEM and without a GPU: two processes, one for each PE, that meet in shared memory, and
// a "GPU" whose memory is the host's. Included once by a test that has included the transport's sources.
#ifndef BACKENDS_NVSHMEM_PAIR_H
#define BACKENDS_NVSHMEM_PAIR_H

#include "backends/nvshmem/job.h"

#include <cuda_runtime_api.h>

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

// What the transport asks of CUDA: all memory is the host's.
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *a, const void *) {
    *a = {};
    a->type = cudaMemoryTypeHost;
    return cudaSuccess;
}
const char *cudaGetErrorString(cudaError_t) { return ""; }

namespace {

int failures;
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
        if (int rc_ = (call)) {                                                                              \
            printf("%s:%d: %s = %d: %s\n", __FILE__, __LINE__, #call, rc_, gic::error_text().c_str());       \
            fflush(stdout);                                                                                  \
            _exit(2);                                                                                        \
        }                                                                                                    \
    } while (0)

struct Shared { // of both
    uint32_t arrived, generation;
    char exchange[2][4096];
};
constexpr size_t heap_bytes = 1u << 20;
Shared *shared;
uint8_t *heaps; // PE 0's, then PE 1's, as NVSHMEM's SYSMEM heap lies

int barrier(void *) {
    const uint32_t gen = __atomic_load_n(&shared->generation, __ATOMIC_ACQUIRE);
    if (__atomic_add_fetch(&shared->arrived, 1, __ATOMIC_ACQ_REL) == 2) {
        __atomic_store_n(&shared->arrived, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&shared->generation, gen + 1, __ATOMIC_RELEASE);
        return 0;
    }
    for (uint64_t until = gic::globaltimer() + 60000000000u;
         __atomic_load_n(&shared->generation, __ATOMIC_ACQUIRE) == gen; sched_yield())
        if (gic::globaltimer() > until)
            _exit(3);
    return 0;
}
int allgather(void *arg, const void *mine, void *all, size_t bytes) {
    memcpy(shared->exchange[*(int *)arg], mine, bytes);
    barrier(arg);
    for (int r = 0; r < 2; r++)
        memcpy((char *)all + r * bytes, shared->exchange[r], bytes);
    return barrier(arg);
}

class HostGpu final : public gic::Gpu { // "GPU memory" is malloc'ed
  public:
    ~HostGpu() override {
        for (void *p : blocks_)
            ::free(p);
    }
    int map(void *, size_t) override { return 0; }
    int unmap(void *) override { return 0; }
    int alloc(size_t bytes, void **p) override {
        blocks_.push_back(*p = calloc(1, bytes));
        return 0;
    }
    int free(void *) override { return 0; }
    int upload(void *to, const void *from, size_t bytes) override { return memcpy(to, from, bytes), 0; }
    int download(void *to, const void *from, size_t bytes) override { return memcpy(to, from, bytes), 0; }
    int wait(const volatile uint32_t *, uint64_t) override { return 0; }

  private:
    std::vector<void *> blocks_;
};

// What a test gives the transport; `comm` and the list stay the caller's.
gic_open open_of(int pe, const char *job_name, const gic_comm *comm, const std::vector<gic_kv> &nic) {
    gic_open open = {};
    open.struct_size = sizeof open;
    open.rank = pe;
    open.nranks = 2;
    open.job = job_name;
    open.device = "host";
    open.nic = "soft";
    open.nic_config = nic.data();
    open.nic_config_count = (uint32_t)nic.size();
    open.comm = comm;
    open.timeout_ns = 20000000000u;
    return open;
}

// The counters of this PE that a test names, in its order.
struct Count {
    const char *name;
    uint64_t value;
};
void check_counters(const std::vector<Count> &want) {
    const gic_counter *list;
    uint32_t n, seen = 0;
    MUST(nvshmem_job::counters(&list, &n));
    for (uint32_t i = 0; i < n; i++)
        for (const Count &w : want)
            if (strcmp(list[i].name, w.name) == 0) {
                CHECK(list[i].value == w.value, "%s is %llu, want %llu", w.name,
                      (unsigned long long)list[i].value, (unsigned long long)w.value);
                seen++;
            }
    CHECK(seen == want.size(), "%u counters", seen);
}

// Does what `fails` posts make the transport set the word of on_error()?
template <class F> void check_error_word(F fails) {
    volatile uint32_t word = 0;
    nvshmem_job::on_error(&word);
    MUST(nvshmem_job::begin());
    fails();
    for (uint64_t until = gic::globaltimer() + 60000000000u; !word && gic::globaltimer() < until;)
        sched_yield();
    CHECK(word == 1, "nobody is told of an error CQE");
    MUST(nvshmem_job::end(0));
    nvshmem_job::on_error(nullptr);
}

// Runs `pe` as two processes; what it returns is how much was wrong.
int check_pair(int (*run_pe)(int pe, const char *job_name)) {
    static uint32_t pairs;
    void *mapped = mmap(nullptr, sizeof(Shared) + 2 * heap_bytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED)
        return 1;
    heaps = static_cast<uint8_t *>(mapped);
    shared = reinterpret_cast<Shared *>(heaps + 2 * heap_bytes);
    char name[64];
    snprintf(name, sizeof name, "gic-test-nvshmem-%d-%u", (int)getpid(), pairs++);
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        const int bad = run_pe(1, name);
        fflush(stdout);
        _exit(bad != 0);
    }
    int bad = run_pe(0, name), status = 0;
    waitpid(child, &status, 0);
    return bad + (status != 0);
}

} // namespace

#endif
