// What the plugin asks of CUDA's virtual memory, on a GPU and without NCCL: two processes show each other GPU and host
// memory, kernels and processors write it, and a relay adds to words beside a kernel that waits for them.
#include "backends/abi/cuda_check.h"
#include "backends/ncclgin/gin_group.h"
#include "backends/ncclgin/gin_memory.h"

#include <cuda.h>

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using ncclgin::Memory;
using ncclgin::Place;
using ncclgin::Region;
using ncclgin::Relay;

constexpr size_t bytes = 3u << 20, words = bytes / 8; // no whole number of granules
constexpr uint64_t patience_ns = 20000000000u;

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
#define CUDA(call)                                                                                           \
    MUST((call) == cudaSuccess ? 0 : gic::cuda_failed(cudaGetLastError(), #call, __FILE__, __LINE__))

__global__ void fill(uint64_t *at, size_t n, uint64_t seed) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        at[i] = seed + i;
    __threadfence_system();
}
__global__ void compare(const uint64_t *at, size_t n, uint64_t seed, unsigned long long *wrong) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        if (at[i] != seed + i)
            atomicAdd_system(wrong, 1ull);
}
// Ends when the word has come to `value`, or when it gives up: *out 1 or 2.
__global__ void await_word(const volatile uint64_t *word, uint64_t value, uint64_t patience, uint32_t *out) {
    uint64_t from, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(from));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (*word != value && now - from < patience);
    *out = *word == value ? 1 : 2;
}

struct Rank {
    uint32_t rank;
    std::unique_ptr<ncclgin::Group> group;
    std::unique_ptr<Memory> memory;
    cudaStream_t stream = nullptr;
    unsigned long long *wrong = nullptr; // mapped

    void barrier() {
        uint8_t mine = 0, all[2];
        MUST(group->gather(&mine, all, 1));
    }
    void finish() { CUDA(cudaStreamSynchronize(stream)); }
    uint64_t differing(const void *at, uint64_t seed) {
        *wrong = 0;
        compare<<<64, 256, 0, stream>>>((const uint64_t *)at, words, seed, wrong);
        finish();
        return *wrong;
    }
};

// The peer's region, mapped here.
Region show(Rank &r, const Region &own) {
    int fd = -1;
    MUST(r.memory->export_fd(own, &fd));
    CHECK(fd >= 0, "memory of create() has no descriptor");
    Region all[2], theirs;
    std::vector<int> fds;
    MUST(r.group->gather(&own, all, sizeof own, fd, &fds));
    close(fd);
    const uint32_t peer = 1 - r.rank;
    MUST(r.memory->import(fds[peer], all[peer], &theirs));
    close(fds[peer]);
    return theirs;
}

void check_shared(Rank &r, Place place) {
    const bool host = place == Place::HOST;
    Region own, part;
    MUST(r.memory->create(bytes, place, &own));
    CHECK(r.differing(own.addr, 0) == words - 1, "new memory is not zero"); // word i has i only where i is 0
    Region theirs = show(r, own);
    const uint64_t mine = 1000000 * (uint64_t)(r.rank + 1), of_peer = 1000000 * (uint64_t)(2 - r.rank);
    fill<<<64, 256, 0, r.stream>>>((uint64_t *)theirs.addr, words, mine);
    r.finish();
    r.barrier();
    CHECK(r.differing(own.addr, of_peer) == 0, "%s memory, written by the peer's kernel",
          host ? "host" : "GPU");
    if (host) {
        const auto *at = (const uint64_t *)own.addr;
        CHECK(at[0] == of_peer && at[words - 1] == of_peer + words - 1, "seen by the processor");
        r.barrier();
        for (size_t i = 0; i < words; i++)
            ((uint64_t *)theirs.addr)[i] = mine + 7 + i;
        r.barrier();
        CHECK(r.differing(own.addr, of_peer + 7) == 0, "host memory, written by the peer's processor");
    }
    MUST(r.memory->adopt((uint8_t *)own.addr + 4096, 4096, &part));
    CHECK(part.borrowed && part.offset == 4096 && part.place == place, "a part of it");
    MUST(r.memory->drop(&part));
    r.barrier();
    MUST(r.memory->drop(&theirs));
    MUST(r.memory->drop(&own));
}

template <class F> F *driver(const char *name) {
    void *found = nullptr;
    cudaDriverEntryPointQueryResult result;
    CUDA(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result));
    return reinterpret_cast<F *>(found);
}
#define DRIVER(name) driver<decltype(name)>(#name)

// cuMem memory of somebody else, as NCCL's signals (no handle type) and windows are.
void check_adopted(Rank &r, bool exportable) {
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.requestedHandleTypes =
        exportable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
    const size_t size = 2u << 20;
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr at = 0;
    CUmemAccessDesc access = {};
    access.location = prop.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    MUST((int)DRIVER(cuMemCreate)(&handle, size, &prop, 0));
    MUST((int)DRIVER(cuMemAddressReserve)(&at, size, size, 0, 0));
    MUST((int)DRIVER(cuMemMap)(at, size, 0, handle, 0));
    MUST((int)DRIVER(cuMemSetAccess)(at, size, &access, 1));
    Region region;
    int fd = -1;
    MUST(r.memory->adopt((void *)at, 512 << 10, &region));
    CHECK(region.place == Place::GPU && region.handle && !region.mapping && region.mapping_bytes == size,
          "adopted GPU memory");
    MUST(r.memory->export_fd(region, &fd));
    CHECK((fd >= 0) == exportable, "a descriptor of %s memory", exportable ? "exportable" : "other");
    if (fd >= 0)
        close(fd);
    CHECK(r.memory->adopt((void *)at, size + 1, &region) != 0, "more than there is");
    MUST(r.memory->drop(&region));
    MUST((int)DRIVER(cuMemUnmap)(at, size));
    MUST((int)DRIVER(cuMemAddressFree)(at, size));
    MUST((int)DRIVER(cuMemRelease)(handle));
}

void check_other(Rank &r) {
    void *gpu = nullptr;
    std::vector<uint8_t> host(4096);
    CUDA(cudaMalloc(&gpu, 4096));
    Region a, b;
    int fd = 0;
    MUST(r.memory->adopt(gpu, 4096, &a));
    MUST(r.memory->adopt(host.data(), 4096, &b));
    CHECK(a.place == Place::GPU && b.place == Place::HOST && !a.handle && !b.handle,
          "memory without a handle");
    MUST(r.memory->export_fd(a, &fd));
    CHECK(fd == -1, "a descriptor of it");
    MUST(r.memory->drop(&a));
    MUST(r.memory->drop(&b));
    CUDA(cudaFree(gpu));
}

void check_relay(Rank &r) {
    std::unique_ptr<Relay> relay;
    MUST(Relay::open(&relay));
    Region table;
    uint32_t *out = nullptr;
    MUST(r.memory->create(Relay::MAX_WORDS * 8, Place::GPU, &table));
    CUDA(cudaHostAlloc((void **)&out, 64, cudaHostAllocMapped));
    *out = 0;
    auto *word = (uint64_t *)table.addr;
    await_word<<<1, 1, 0, r.stream>>>(word + 3, 42, patience_ns, out);
    Relay::Words w = {};
    for (uint32_t i = 0; i < Relay::MAX_WORDS; i++)
        w.addr[w.count] = word + i, w.delta[w.count++] = i == 3 ? 41 : 100 + i;
    MUST(relay->add(w));
    w.count = 1;
    w.addr[0] = word + 3;
    w.delta[0] = 1;
    MUST(relay->add(w));
    r.finish();
    CHECK(*out == 1, "a kernel that waits for a word has not seen it");
    uint64_t all[Relay::MAX_WORDS];
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaMemcpy(all, word, sizeof all, cudaMemcpyDeviceToHost));
    CHECK(all[3] == 42 && all[0] == 100 && all[31] == 131, "%llu %llu %llu", (unsigned long long)all[3],
          (unsigned long long)all[0], (unsigned long long)all[31]);
    CUDA(cudaFreeHost(out));
    MUST(r.memory->drop(&table));
}

int run(uint32_t rank, const ncclgin::Listener &listener) {
    Rank r;
    r.rank = rank;
    MUST(ncclgin::Group::form(listener, listener.address(), rank, 2, patience_ns, &r.group));
    MUST(Memory::open("cuda:0", &r.memory));
    CUDA(cudaStreamCreateWithFlags(&r.stream, cudaStreamNonBlocking));
    CUDA(cudaHostAlloc((void **)&r.wrong, 64, cudaHostAllocMapped));
    check_shared(r, Place::GPU);
    check_shared(r, Place::HOST);
    check_adopted(r, true);
    check_adopted(r, false);
    check_other(r);
    check_relay(r);
    r.barrier();
    return failures;
}

} // namespace

int main() {
    std::unique_ptr<ncclgin::Listener> listener; // both inherit it; rank 0 listens
    MUST(ncclgin::Listener::open(&listener));
    fflush(stdout);
    const pid_t child = fork(); // before CUDA
    if (child == 0) {
        const int bad = run(1, *listener);
        fflush(stdout);
        _exit(bad != 0);
    }
    int bad = run(0, *listener), status = 0;
    waitpid(child, &status, 0);
    bad += status != 0;
    printf(bad ? "ncclgin_memory_test: %d failed\n" : "ncclgin_memory_test: ok\n", bad);
    return bad != 0;
}
