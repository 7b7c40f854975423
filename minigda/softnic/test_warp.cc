// The GPU engine without a GPU, for softnic's tests: its host side over plain memory, its device code as the coroutines of
// gpu_warp.h, and the bed of the tests. In virtual time a kernel runs within its launch; in real time on a thread, and
// what the stream is given meanwhile comes after it.
#include <errno.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

// C allows struct wqe_head and its maker to share a name.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#include "gpu_kernel.cuh"
#pragma GCC diagnostic pop

// For tests in virtual time: called whenever the lanes meet, with how often they have met in this kernel before. What a driver
// does here it does while the engine is at work, and always at the same places.
void (*softnic_warp_met)(uint32_t meetings);

namespace softnic_warp {

thread_local Warp *warp;
bool downwards;

namespace {

uint32_t first_lane() { return downwards ? LANES - 1 : 0; }
uint32_t last_lane() { return downwards ? 0 : LANES - 1; }

// Saves the running lane's registers and goes on with another's.
#if defined(__x86_64__)
extern "C" void softnic_warp_switch(void **save, void *load);
asm(R"(
    .text
    .type softnic_warp_switch, @function
softnic_warp_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size softnic_warp_switch, .-softnic_warp_switch
)");
constexpr bool supported = true;
#else
void softnic_warp_switch(void **, void *) {}
constexpr bool supported = false;
#endif

void next() {
    Warp *w = warp;
    const uint32_t from = w->lane;
    w->lane = (downwards ? from + LANES - 1 : from + 1) % LANES;
    softnic_warp_switch(&w->sp[from], w->sp[w->lane]);
}

void lane_main() {
    Warp *w = warp;
    w->body(w->arg);
    const uint32_t me = w->lane;
    if (w->round[me] != w->round[first_lane()]) {
        fprintf(stderr, "gpu_warp: lane %u ends after %u meetings, the first after %u\n", me, w->round[me],
                w->round[first_lane()]);
        abort();
    }
    void *ignored;
    if (me == last_lane())
        softnic_warp_switch(&ignored, w->home);
    next();
    abort(); // nobody comes back to a lane that has ended
}

} // namespace

const uint64_t *meet(uint32_t place, uint64_t brought) {
    Warp *w = warp;
    const uint32_t me = w->lane, round = w->round[me]++, half = round & 1;
    if (softnic_warp_met && me == first_lane())
        softnic_warp_met(round);
    w->left[half][me] = brought;
    w->place[half][me] = place;
    next();
    if (w->place[half][first_lane()] != place || w->round[last_lane()] < round + 1) {
        const uint32_t first = w->place[half][first_lane()];
        fprintf(stderr, "gpu_warp: lane %u meets at line %u (%u), the first lane at line %u (%u)\n", me,
                place >> 8, place & 255, first >> 8, first & 255);
        abort();
    }
    return w->left[half];
}

struct Barrier {
    explicit Barrier(uint32_t n) : count(n) {}
    std::mutex lock;
    std::condition_variable all;
    const uint32_t count;
    uint32_t here = 0, round = 0;
};
void block_barrier(Barrier *b) {
    std::unique_lock<std::mutex> hold(b->lock);
    const uint32_t mine = b->round;
    if (++b->here == b->count) {
        b->here = 0;
        b->round++;
        b->all.notify_all();
    }
    b->all.wait(hold, [=] { return b->round != mine; });
}

void run(void (*body)(void *), void *arg, uint32_t number, uint32_t warps, Barrier *block) {
    static thread_local struct Stacks {
        uint8_t *base = (uint8_t *)aligned_alloc(64, (size_t)LANES *STACK);
        ~Stacks() { free(base); }
    } stacks;
    static thread_local Warp w;
    w = Warp{};
    w.body = body;
    w.arg = arg;
    w.number = number;
    w.warps = warps;
    w.block = block;
#ifdef __SANITIZE_ADDRESS__ // the lanes of the kernel before never returned, and left their frames' red zones
    __asan_unpoison_memory_region(stacks.base, (size_t)LANES * STACK);
#endif
    for (uint32_t i = 0; i < LANES; i++) {
        // As softnic_warp_switch leaves a stack: six registers, where to go, and the alignment of a call.
        void **top = (void **)(stacks.base + (size_t)(i + 1) * STACK - 64);
        *--top = nullptr;
        *--top = (void *)lane_main;
        for (int r = 0; r < 6; r++)
            *--top = nullptr;
        w.sp[i] = top;
    }
    w.lane = first_lane();
    warp = &w;
    softnic_warp_switch(&w.home, w.sp[w.lane]);
    warp = nullptr;
}

} // namespace softnic_warp

struct gpu_dev {
    std::mutex lock;
    bool running = false;
    std::thread kernel;
    std::deque<std::function<void()>> behind; // of the running kernel
};

// Runs at the end of every kernel, when it looks at no queue any more.
void (*softnic_warp_kernel_ended)(void);

namespace {

std::mutex host_lock;
std::map<uintptr_t, size_t> host_memory; // mapped; whatever else is asked for counts as the device's

int dev_open(int, gpu_dev **dev_p) {
    *dev_p = softnic_warp::supported ? new gpu_dev : nullptr;
    return *dev_p ? 0 : softnic_fail(-ENOTSUP, "no coroutines on this processor");
}
void dev_close(gpu_dev *dev) {
    if (dev->kernel.joinable())
        dev->kernel.join();
    delete dev;
}
int dev_alloc(gpu_dev *, size_t bytes, void **addr_p) {
    bytes = (bytes + 63) & ~(size_t)63;
    *addr_p = aligned_alloc(64, bytes);
    memset(*addr_p, 0, bytes);
    return 0;
}
int dev_free(gpu_dev *, void *addr) {
    free(addr);
    return 0;
}
int dev_map(gpu_dev *, void *addr, size_t bytes) {
    std::lock_guard<std::mutex> hold(host_lock);
    host_memory[(uintptr_t)addr] = bytes;
    return 0;
}
int dev_unmap(gpu_dev *, void *addr) {
    std::lock_guard<std::mutex> hold(host_lock);
    host_memory.erase((uintptr_t)addr);
    return 0;
}
gpu_kind dev_where(gpu_dev *, const void *addr) {
    std::lock_guard<std::mutex> hold(host_lock);
    auto above = host_memory.upper_bound((uintptr_t)addr);
    const bool host =
        above != host_memory.begin() && (uintptr_t)addr - std::prev(above)->first < std::prev(above)->second;
    return host ? GPU_MEM_HOST : GPU_MEM_OWN;
}
uint64_t dev_identity(gpu_dev *) { return 1; }
int dev_share(gpu_dev *, void *, size_t, gpu_share *, uint8_t *, uint64_t *) {
    return softnic_fail(-ENOTSUP, "one process only");
}
int dev_unshare(gpu_dev *, gpu_share, const uint8_t *) { return 0; }
int dev_open_shared(gpu_dev *, gpu_share, const uint8_t *, void **) {
    return softnic_fail(-ENOTSUP, "one process only");
}
int dev_close_shared(gpu_dev *, gpu_share, void *) { return 0; }
int dev_reach(gpu_dev *, const void *) { return 0; }
template <class F> int in_order(gpu_dev *dev, F f) {
    std::lock_guard<std::mutex> hold(dev->lock);
    if (dev->running)
        dev->behind.push_back(f);
    else
        f();
    return 0;
}
int dev_copy(gpu_dev *dev, void *to, const void *from, size_t bytes) {
    return in_order(dev, [=] { memcpy(to, from, bytes); });
}
int dev_fill(gpu_dev *dev, void *to, size_t pitch, int value, size_t width, size_t rows) {
    return in_order(dev, [=] {
        for (size_t i = 0; i < rows; i++)
            memset((uint8_t *)to + i * pitch, value, width);
    });
}
struct block {
    const gpu_args *args;
    void *shared;
};
void run_kernel(const gpu_args *args, uint32_t shared_bytes) {
    block b = {args, aligned_alloc(64, (shared_bytes + 63) & ~63u)};
    memset(b.shared, 0xcc, shared_bytes);
    auto body = [](void *arg) {
        const block *mine = (const block *)arg;
        softnic_gpu::engine_block(*mine->args, mine->shared);
    };
    softnic_warp::Barrier all(args->warps);
    std::vector<std::thread> others;
    for (uint32_t w = 1; w < args->warps; w++)
        others.emplace_back([=, &b, &all] { softnic_warp::run(body, &b, w, args->warps, &all); });
    softnic_warp::run(body, &b, 0, args->warps, args->warps > 1 ? &all : nullptr);
    for (std::thread &t : others)
        t.join();
    free(b.shared);
    if (softnic_warp_kernel_ended)
        softnic_warp_kernel_ended();
}
int dev_launch(gpu_dev *dev, const gpu_args *args, uint32_t blocks, uint32_t shared_bytes) {
    if (blocks != 1)
        return softnic_fail(-ENOTSUP, "%u blocks; here there is one", blocks);
    if (args->is_virtual) {
        run_kernel(args, shared_bytes);
        return 0;
    }
    if (dev->kernel.joinable())
        dev->kernel.join();
    dev->running = true;
    dev->kernel = std::thread([=, copy = *args] {
        run_kernel(&copy, shared_bytes);
        std::lock_guard<std::mutex> hold(dev->lock);
        for (const auto &f : dev->behind)
            f();
        dev->behind.clear();
        dev->running = false;
    });
    return 0;
}
int dev_done(gpu_dev *dev) {
    std::lock_guard<std::mutex> hold(dev->lock);
    return !dev->running;
}

const gpu_ops ops = {dev_open,        dev_close,        dev_alloc,
                     dev_free,        dev_alloc,        dev_free,
                     dev_map,         dev_unmap,        dev_where,
                     dev_identity,    dev_share,        dev_unshare,
                     dev_open_shared, dev_close_shared, dev_reach,
                     dev_copy,        dev_copy,         dev_fill,
                     dev_launch,      dev_done,         sizeof(softnic_gpu::gpu_warp)};

softnic_writes writes;
bool cpu;

} // namespace

const gpu_ops *gpu_ops_linked(void) { return &ops; }

extern "C" {

void *bed_alloc(size_t bytes) {
    void *addr;
    dev_alloc(nullptr, bytes, &addr);
    return addr;
}
void bed_free(void *addr) { free(addr); }
void bed_cpu(int on) { cpu = on != 0; }
struct softnic_attr bed_attr(struct softnic_attr attr) {
    attr.engine = cpu ? SOFTNIC_ENGINE_CPU : SOFTNIC_ENGINE_GPU;
    attr.writes = writes;
    if (attr.warps == 0)
        attr.warps = 1;
    if (attr.max_qps == 0)
        attr.max_qps = 64;
    return attr;
}
void *bed_memory(struct softnic *nic, size_t bytes) {
    void *addr;
    if (softnic_mem_alloc(nic, bytes, &addr)) {
        fprintf(stderr, "softnic_mem_alloc: %s\n", softnic_error());
        exit(1);
    }
    return addr;
}
int bed_run(const char *name, int *failures, void (*tests)(void)) {
    if (!softnic_warp::supported) {
        printf("%s: skipped: no coroutines on this processor\n", name);
        return 0;
    }
    const struct {
        const char *name;
        softnic_writes writes;
        bool downwards;
    } modes[] = {{"runs", SOFTNIC_WRITES_RUNS, false},
                 {"runs, last lane first", SOFTNIC_WRITES_RUNS, true},
                 {"strict", SOFTNIC_WRITES_STRICT, false}};
    for (const auto &m : modes) {
        writes = m.writes;
        softnic_warp::downwards = m.downwards;
        tests();
        printf("%s on the GPU engine's code, %s: %s\n", name, m.name, *failures ? "failed" : "ok");
    }
    return *failures != 0;
}
}
