// The windows of all ranks as one rank reaches them: the raw-store floor has nothing else.
//
// C++, host side. Functions return 0 or a negative errno and leave one line in gic::error_text(). Not safe for several
// threads. A window's pages belong to the memory until the next window() or its end.
#ifndef BACKENDS_RAWSTORE_MEMORY_H
#define BACKENDS_RAWSTORE_MEMORY_H

#include "backends/abi/adapter.cuh"
#include "backends/abi/ranks.h"

// What plain copies reach between two windows, to hold puts against: the processor's memcpy, or the copy engine.
struct rawstore_ceiling {
    double sized_ns, whole_ns; // of all copies of the size asked for, one behind the other; of large ones
    uint64_t sized_bytes, whole_bytes; // moved in that time
};

class rawstore_memory {
  public:
    virtual ~rawstore_memory() = default;
    // Collective: this rank's window of `bytes`, zeroed, and the mappings of the others'. Replaces an earlier one.
    virtual int window(uint64_t bytes) = 0;
    // Window of a rank, as this rank's device threads address it.
    uint8_t *at(uint32_t rank) const { return windows_[rank]; }
    uint64_t bytes() const { return bytes_; }
    // Own window, in range.
    virtual int write(uint64_t offset, const void *src, size_t bytes) = 0;
    virtual int read(uint64_t offset, void *dst, size_t bytes) = 0;
    // Beside the windows, so that nothing of theirs is touched.
    virtual int ceiling(uint32_t peer, uint64_t bytes, rawstore_ceiling *ceiling_p) = 0;
    // Have its device threads bulk copies (TMA)?
    virtual bool bulk() const = 0;
    // What the windows are and what lies between them.
    virtual void facts(gic::Facts &facts) const = 0;

  protected:
    // Copies of one size that are worth timing: enough for the clock, not more than a moment.
    static uint64_t copies_of(uint64_t bytes, uint64_t room) {
        const uint64_t n = room / bytes;
        return n < 16 ? 16 : n > 1024 ? 1024 : n;
    }
    std::vector<uint8_t *> windows_; // by rank, none before window()
    uint64_t bytes_ = 0;
};

// Shared memory of this host, for device threads that are threads of it. `job` heads the names, none of which is left.
std::unique_ptr<rawstore_memory> rawstore_host_memory(const gic::Ranks &ranks, const char *job);

// Memory of the ranks' GPUs, opened by CUDA IPC. Collective: -ENOTSUP on every rank where one GPU cannot store to
// another, or has no atomics there. The Gpu outlives it.
int rawstore_device_memory(const gic::Ranks &ranks, gic::Gpu &gpu,
                           std::unique_ptr<rawstore_memory> *memory_p);

#endif
