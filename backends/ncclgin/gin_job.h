// What the plugin holds: one NIC per process, the communicators of NCCL on it, their queues and memory.
//
// NCCL calls from several threads, of several communicators at a time. Job::lock guards the NIC's control calls and what
// is listed here; it is never held while a rank waits for others. A communicator's own members belong to the thread that
// NCCL uses for it. Functions return 0 or a negative errno and leave one line in gic::error_text().
#ifndef BACKENDS_NCCLGIN_GIN_JOB_H
#define BACKENDS_NCCLGIN_GIN_JOB_H

#include "backends/ncclgin/gin_group.h"
#include "backends/ncclgin/gin_memory.h"
#include "backends/ncclgin/table_abi.h"
#include "minigda/gda_host.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace ncclgin {

constexpr uint64_t exchange_timeout_ns = 60000000000u; // other ranks may load modules meanwhile

// Memory of this process alone, zeroed, that device threads and the NIC reach.
struct Block {
    void *addr = nullptr;
    size_t bytes = 0;
    bool on_gpu = false;
};
int block_make(gda_fabric *f, bool on_gpu, size_t bytes, Block *block_p);
int block_write(gda_fabric *f, const Block &block, size_t offset, const void *from, size_t bytes);
int block_read(const gda_fabric *f, const Block &block, size_t offset, void *to, size_t bytes);
void block_free(gda_fabric *f, Block *block);

// `count` send queues with a ring of CQEs each; nodes[i] is where queue i's requests go. Every queue has a record and a
// doorbell of its own. Made and freed under Job::lock.
struct Queues {
    std::vector<gda_qp> qps;
    Block sq, cqe, records, bells;
};
int queues_make(gda_fabric *f, uint32_t depth, const std::vector<uint32_t> &nodes, Queues *queues_p);
int queues_connect(gda_fabric *f, const Queues &queues, const std::vector<uint32_t> &remote_qpns);
int queues_check_doorbells(const gda_fabric *f, const Queues &queues);
void queues_free(gda_fabric *f, Queues *queues);

// Where ranks leave signals for words that only their owner reaches. At the start of the region that peers map; the words
// follow, one for each of the table's.
struct Mailbox {
    // Words that may be in use: below `high`, and of the last `deep`. A peer raises both before its first request to one, so
    // that the owner has few to look at.
    std::atomic<uint64_t> high, deep;
    uint8_t rsvd[4096 - 16];
};
static_assert(sizeof(Mailbox) == 4096, "the words are page aligned");

// One registered region of all ranks of a communicator.
struct Mr {
    Region own; // as the engine reaches it
    size_t bytes = 0;
    bool reached = false; // by the engine; else requests that name it are to fail
    bool relayed = false;
    uint32_t key = 0;           // 0: none, and a request with key 0 fails
    std::vector<uint32_t> keys; // by rank, 0: none
    std::vector<Region> theirs; // by rank, mapped here
    Region box;                 // relayed: own mailbox; theirs are then those of the others
    Block device, device_keys;  // GDAKI: nccl_abi::MemHandle and its rkeys
};

struct Coll;

// A GDAKI context: what device code works on.
struct Context {
    Coll *coll;
    Queues queues; // by rank: main, companion
    Mr signals;
    Block counters, sink;
    uint32_t counters_key = 0, sink_key = 0;
    Block device_qps, device_keys, device_context;
    std::vector<bool> unblocked; // by queue
    nccl_abi::DeviceHandle handle{};
};

// PROXY: what was posted on a queue and what is known of it. NCCL's one thread for the communicator.
struct Posted {
    uint64_t prod_idx = 0; // last posted block + 1
    uint64_t done_idx = 0; // last completed block + 1
    uint64_t cons_idx = 0; // CQEs taken
};

// One GIN communicator: one of the up to four of each communicator of NCCL's.
struct Coll {
    uint32_t rank, nranks;
    std::vector<uint32_t> nodes; // the NIC's number of each rank
    std::unique_ptr<Group> group;
    std::mutex mrs_lock;        // of the list, after Job::lock
    std::vector<Mr *> mrs;      // registered and not deregistered, own of this
    std::vector<Region> old;    // peers' memory that was deregistered here; their owners may not have yet
    Context *context = nullptr; // GDAKI
    // PROXY:
    Queues queues; // by rank
    std::vector<Posted> posted;
    Block sink;
    uint32_t sink_key = 0;
    uint64_t relayed = 0; // signals added to NCCL's table
};

struct Job {
    std::mutex lock;
    gda_fabric *fabric = nullptr;
    std::string name;
    std::unique_ptr<Memory> memory;
    std::unique_ptr<Relay> relay;
    nccl_abi::DeviceType type = nccl_abi::DEVICE_HOST;
    uint32_t depth = 0;
    nccl_abi::Logger logger = nullptr;
    std::vector<Coll *> colls;
    std::vector<Region> windows; // of window_alloc
    struct Shown {
        void *addr;
        Coll *coll;
        Mr *mr;
    };
    std::vector<Shown> shown; // of window_register
    std::vector<Region> old;  // of communicators that are closed
    uint32_t contexts_made = 0;
    std::atomic<nccl_abi::DeviceType> served{nccl_abi::DEVICE_HOST}; // what NCCL has used
    std::string failure;               // first failure of a call that NCCL does not report
    std::atomic<bool> running{false};  // between begin() and end()
    std::atomic<bool> given_up{false}; // unblock() was called in the run
    gic::Facts facts;
    gic::Counters counters;
};
extern Job job;

// ---- gin_mr.cc: memory that ranks share ----

// Collective. Registers what NCCL hands over and learns of everybody's.
// `signals`: it is NCCL's table of them.
int mr_register(Coll *coll, void *data, size_t bytes, bool signals, Mr *mr_p);
// Collective. The same for a table of the plugin's own, zeroed.
int mr_make(Coll *coll, size_t bytes, Mr *mr_p);
// What mr_register and mr_make made. Not collective: what peers have shown is kept in coll->old.
int mr_release(Coll *coll, Mr *mr);
// Takes the key away.
int mr_withdraw(Mr *mr);

// ---- gin_gdaki.cc ----

int context_make(Coll *coll, int signals, int counters, Context **context_p); // collective
void context_free(Context *context);
// Under Job::lock. Ends what device code waits for on queues that have failed, or on all of them.
int context_unblock(Context *context, bool all);
// Fills mr->device with the region's keys.
int context_publish_mr(Mr *mr);

// ---- gin_proxy.cc ----

int proxy_start(Coll *coll); // collective
void proxy_stop(Coll *coll);
struct Put {
    uint32_t rank;
    Mr *src, *dst;
    uint64_t src_offset, dst_offset;
    size_t bytes;
    Mr *signal; // nullptr: none
    uint64_t signal_offset, value;
};
int proxy_post(Coll *coll, const Put &put, void **request_p);
int proxy_test(Coll *coll, void *request, int *done_p);
// A request that was not posted and is done once the run is given up.
void *proxy_lost();
// Hands signals on that have arrived in the mailboxes.
int proxy_relay(Coll *coll);

} // namespace ncclgin

#endif
