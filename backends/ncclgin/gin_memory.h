// CUDA's virtual memory, as the plugin needs it: NCCL's allocations, its own, and those of other ranks.
//
// gin_memory_cuda.cc implements both classes on CUDA; the tests bring their own, on host memory. Functions return 0 or a
// negative errno and leave one line in gic::error_text(). Any thread, one at a time.
#ifndef BACKENDS_NCCLGIN_GIN_MEMORY_H
#define BACKENDS_NCCLGIN_GIN_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include <memory>

namespace ncclgin {

enum class Place : uint32_t { GPU, HOST };

// A part of one physical allocation, where the engine of this process reaches it. HOST: processor and device, under one
// address.
struct Region {
    void *addr = nullptr;
    size_t bytes = 0;
    Place place = Place::HOST;
    uint64_t handle = 0;      // physical allocation, referenced
    void *mapping = nullptr;  // made by this class, else nullptr
    size_t mapping_bytes = 0; // from the allocation's start: what a peer is to map
    size_t offset = 0;        // of addr in it
    bool borrowed = false;    // handle and mapping are those of create()
};

class Memory {
  public:
    // "cuda:N".
    static int open(const char *device, std::unique_ptr<Memory> *memory_p);
    virtual ~Memory() = default;
    Memory(const Memory &) = delete;
    Memory &operator=(const Memory &) = delete;

    // The device is the calling thread's current one from here on: NCCL's threads have none.
    virtual int enter() = 0;
    // Zeroed, and to be mapped by other processes.
    virtual int create(size_t bytes, Place place, Region *region_p) = 0;
    // Memory that has been allocated before: by create(), which must not be dropped meanwhile; by somebody else's
    // cuMemCreate; or any other, which has no handle then.
    virtual int adopt(void *addr, size_t bytes, Region *region_p) = 0;
    // *fd_p: for the caller to close; -1 for memory that no other process can map.
    virtual int export_fd(const Region &region, int *fd_p) = 0;
    // The same part of a peer's allocation. `like`: as it is there. Leaves fd open.
    virtual int import(int fd, const Region &like, Region *region_p) = 0;
    virtual int drop(Region *region) = 0;
    // A word of memory that kernels are reading meanwhile.
    virtual int store(uint64_t *word, uint64_t value) = 0;

  protected:
    Memory() = default;
};

// Adds to words in GPU memory, for which a processor needs a kernel. From one thread.
class Relay {
  public:
    enum { MAX_WORDS = 32 };
    struct Words {
        uint64_t *addr[MAX_WORDS];
        uint64_t delta[MAX_WORDS];
        uint32_t count;
    };
    static int open(std::unique_ptr<Relay> *relay_p);
    virtual ~Relay() = default;
    Relay(const Relay &) = delete;
    Relay &operator=(const Relay &) = delete;
    // Returns before they are added; adds in the calls' order.
    virtual int add(const Words &words) = 0;

  protected:
    Relay() = default;
};

} // namespace ncclgin

#endif
