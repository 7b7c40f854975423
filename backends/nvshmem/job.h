// What the two transports have in common: the rank's NIC, and the memory that the library has registered with it.
//
// ibgda.cc and ibrc.cc each bring nvshmemt_init and the calls that move data; everything here is in transport.cc.
// Functions return 0 or a negative errno and leave one line in gic::error_text().
#ifndef BACKENDS_NVSHMEM_JOB_H
#define BACKENDS_NVSHMEM_JOB_H

#include "backends/nvshmem/transport.h"
#include "backends/nvshmem/transport_abi.h"
#include "minigda/gda_host.h"

#include <pthread.h>

#include <atomic>

namespace nvshmem_job {

using nvshmem_abi::Handle;
using nvshmem_abi::Transport;

// What a PE tells the others of a region of its memory, in a Handle.
struct Region {
    char magic[8];
    uint32_t pe, key;
    uint64_t addr, bytes;
    uint32_t host;   // host memory; else the device's
    uint32_t shared; // device memory that peers open by softnic, not at a place that we tell
};
static_assert(sizeof(Region) <= sizeof(Handle), "travels in a handle");

// One NVSHMEM job per process. The library's proxy thread calls in beside the program's own: those calls hold `lock`,
// and give up when `leaving` is set, so that release() never frees what they use.
struct Job {
    gda_fabric *fabric = nullptr;
    uint64_t timeout_ns = 0; // of a wait for the NIC
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    std::atomic<bool> leaving{false};
    std::vector<Region> heap;                // of this rank
    volatile uint32_t *error_word = nullptr; // see gic_nvshmem_transport.on_error
    gic::Facts facts;
    gic::Counters counters;
};
extern Job job;

class Locked { // a call of the proxy thread
  public:
    Locked() { pthread_mutex_lock(&job.lock); }
    ~Locked() { pthread_mutex_unlock(&job.lock); }
    Locked(const Locked &) = delete;
    Locked &operator=(const Locked &) = delete;
};

// What a call answers the library. Its own messages do not have the reason, so it goes to stderr.
int report(const char *call);
template <class F> int answer(const char *call, F f) { return gic::guarded(f) ? report(call) : 0; }

// A transport with the calls that both serve alike. `interface`: what the library offers.
int make_transport(int interface, Transport **transport_p);
// As connect_endpoints must find it, before anything is made.
int check_job(const Transport *t);
// Registers memory of this rank, tells it in a handle, and keeps what of it is heap.
int register_region(const Transport *t, void *addr, size_t bytes, bool local_only, Handle *handle,
                    Region *region_p);
int region_of(const Handle *handle, Region *region_p);
// Makes [offset, offset + bytes) of the peers' heaps reachable for this rank's NIC.
int attach_heaps(const Transport *t, int stride, const Handle *handles, uint64_t offset, size_t bytes);

// Of the linked transport (ibgda.cc, ibrc.cc): does a thread of this process write the queues?
extern const bool cpu_posts;

} // namespace nvshmem_job

#endif
