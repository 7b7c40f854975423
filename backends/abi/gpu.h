// One CUDA device as the host side of a plugin needs it: memory, one stream, and the wait for a kernel.
//
// C++, host side, compiled by g++ in every build. gpu_cuda.cc implements it over the CUDA runtime; gpu_none.cc,
// for plugins without CUDA, refuses to open one. Which of the two a plugin has been linked with is its
// build's matter: the code that uses a Gpu is the same, and a plugin that never opens one needs neither.
//
// Functions return 0 or a negative errno and leave one line in gic::error_text(). All calls come from the thread
// that opened it (CUDA's current device belongs to a thread). Destruction frees all memory and maps.
#ifndef GIC_ABI_GPU_H
#define GIC_ABI_GPU_H

#include <stddef.h>
#include <stdint.h>

#include <initializer_list>
#include <memory>
#include <string>

namespace gic {

// One kernel launch: how its agents lie on the device, and what the kernel needs of it.
struct GpuShape {
    uint32_t blocks, threads;        // threads per block, a multiple of 32
    uint32_t registers, local_bytes; // per thread, as compiled; local_bytes counts spills and arrays
    uint32_t multiprocessor;         // where agent 0 ran, of the last launch
};

class Gpu {
  public:
    // Does this plugin hold CUDA code at all?
    static bool built();
    // "cuda:N". -ENOTSUP without a driver or such a device.
    static int open(const char *device, std::unique_ptr<Gpu> *gpu_p);
    virtual ~Gpu() = default;
    Gpu(const Gpu &) = delete;
    Gpu &operator=(const Gpu &) = delete;

    // Host memory of this process (private, shared or memfd pages) that kernels then reach under the same
    // address. The range must not overlap another one; unmap before the pages go.
    virtual int map(void *addr, size_t bytes) = 0;
    virtual int unmap(void *addr) = 0;

    // Memory of the device, zeroed.
    virtual int alloc(size_t bytes, void **addr_p) = 0;
    virtual int free(void *addr) = 0;
    virtual int upload(void *to, const void *from, size_t bytes) = 0;
    virtual int download(void *to, const void *from, size_t bytes) = 0;

    // Waits for what is on the stream, and meanwhile hands `stop` on to stop_word(). A kernel that does not end
    // within grace_ns after that is given up: -ETIMEDOUT, and the device context is of no more use.
    virtual int wait(const volatile uint32_t *stop, uint64_t grace_ns) = 0;

    // What device spins look at (gic::Env.stop): a word in mapped memory. A kernel may set it too. arm() clears it for
    // the next launch; a stop that the harness has asked for comes back in wait().
    const volatile uint32_t *stop_word() const { return stop_; }
    volatile uint32_t *arm() { return *(volatile uint32_t *)stop_ = 0, stop_; }
    void *stream() const { return stream_; } // cudaStream_t, non-blocking
    uint32_t multiprocessors() const { return multiprocessors_; }
    const std::string &name() const { return name_; }
    const std::string &uuid() const { return uuid_; }
    bool mps() const { return mps_; } // the context belongs to a Multi-Process Service
    uint32_t sharers() const { return sharers_; }
    void set_sharers(uint32_t ranks) { sharers_ = ranks; } // ranks of this case on this device, at least 1
    // Multiprocessors that this rank's NIC fills with its engine while a kernel of the case runs; and those of all ranks on
    // this device.
    void set_engine(uint32_t multiprocessors) { engine_ = multiprocessors; }
    uint32_t engines() const { return engine_ * sharers_; }
    uint32_t engines_leave() const { return multiprocessors_ > engines() ? multiprocessors_ - engines() : 0; }
    // Ranks of this case in this process, this one included. Where there are others, no call that waits for the device
    // may come while one of them may have a kernel there: they prepare, wait for one another, and launch.
    uint32_t neighbours() const { return neighbours_; }
    // `all`: every rank on this device is one of them.
    void set_neighbours(uint32_t ranks, bool all) { neighbours_ = ranks, together_ = all; }
    // How the ranks on this device come to run beside each other, as a record says it.
    const char *sharing() const {
        return sharers_ == 1 ? "one_gpu_per_rank" : together_ ? "ranks_in_process" : "mps";
    }

    GpuShape shape{}; // of the last launch
    // Where the next launches put agent 0: 0 leaves it to the device, n is multiprocessor n - 1.
    uint32_t placement = 0;
    // Another one will do where that has no room: shape.multiprocessor says which it was.
    bool placement_near = false;
    // All agents in one block, and so on one multiprocessor: 1, a warp each; 2, as the lanes of full warps.
    uint32_t together = 0;

  protected:
    Gpu() = default;
    void *stream_ = nullptr;
    uint32_t *stop_ = nullptr;
    uint32_t multiprocessors_ = 0, sharers_ = 1, neighbours_ = 1, engine_ = 0;
    std::string name_, uuid_;
    bool mps_ = false, together_ = true;
};

// The blocks of a launch whose agents, up to 32 lanes each, are warps.
struct GpuGrid {
    uint32_t blocks, threads;
    bool resident; // all blocks at once, those of the other ranks here too: agents wait for one another
};

// A block on each multiprocessor until every one has one. per_sm(threads): how many blocks of so many threads one holds;
// what an engine fills is taken to hold none, so a kernel that fits but once gets no more blocks than are left: its last
// block would wait for the engine to go, and the others for that block.
template <class F> GpuGrid gpu_grid(const Gpu &gpu, uint32_t agents, F per_sm) {
    const uint32_t all = gpu.multiprocessors(), left = gpu.engines_leave();
    GpuGrid g{};
    for (uint32_t most : {all, left}) {
        g.blocks = agents < most ? agents : most;
        g.threads = g.blocks ? 32 * ((agents + g.blocks - 1) / g.blocks) : 0;
        g.resident = g.blocks && (uint64_t)per_sm(g.threads) * left >= (uint64_t)g.blocks * gpu.sharers();
        if (g.resident)
            break;
    }
    return g;
}

} // namespace gic

#endif
