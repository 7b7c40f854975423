// What device code knows of one send queue, of one agent's place in it, and of the choices that shape a post.
// Filled by gda.h on the host; plain data, also on a GPU.
//
// Indices count 64-byte basic blocks from 0, are 64 bits wide and never wrap; slots are masked and the NIC
// gets the low 16 bits. A WQE's index is that of its first block.
#ifndef MINIGDA_GDA_QUEUE_CUH
#define MINIGDA_GDA_QUEUE_CUH

#include "backends/abi/device.cuh"
#include "minigda/mlx5/mlx5.h"

// Off the hot path. On the host a call, which keeps the post path short; a GPU inlines all, since a call spills
// registers of the whole kernel.
#if defined(__CUDACC__)
#define GDA_COLD GIC_DEVICE
#else
#define GDA_COLD __attribute__((noinline))
#endif

// The rungs of the paper's Table 4; what each does is in gda_order.cuh. `runtime`: look at gda_choices.order
// (queue sharing other than exclusive, where an indirect branch is nothing beside the atomics).
enum class gda_order : uint32_t {
    none,
    gpu_fence,
    gpu_fence_dbr,
    gpu_release,
    threadfence,
    sys_release,
    sys_fence,
    runtime
};

// Who may post to one send queue.
//   exclusive  one agent: no atomics at all
//   lock       any: a spin lock around each post
//   handoff    any: slots by an atomic add, built in parallel, published in reservation order; whoever
//   completes
//              a batch rings for all of it
//   warp       as handoff, an agent being a warp whose lanes build a group together
enum class gda_sharing : uint32_t { exclusive, lock, handoff, warp };

// What flush waits for beyond the agent's own queue.
enum class gda_scope : uint32_t { qp, peer, all };

enum { GDA_LANES = 32 };                // of a warp agent
enum { GDA_INLINE_ONE_BLOCK = 28 };     // control 16, remote address 16, length 4, payload 28
enum { GDA_INLINE_MAX = 63 * 16 - 36 }; // the 6-bit segment count is the limit
enum { GDA_PUT_MAX = MLX5_MESSAGE_MAX };

struct gda_choices {
    gda_order order;
    gda_scope scope;
    uint32_t qps;          // per peer; agent a uses QP a % qps at every peer
    uint32_t batch;        // WQEs per doorbell
    uint32_t signal_every; // every Nth WQE of an agent at a peer asks for a CQE
    uint32_t inline_max;   // payloads up to this many bytes go into the WQE
    uint32_t inline_only;  // larger ones are refused instead of pointed to
};

// order=none: the engine is held while a kernel posts, since nothing orders what it would read. Whoever must
// wait for the NIC asks for it here, and stores meanwhile nothing that the NIC could see half done.
struct gda_gate {
    uint32_t want;             // agents that wait for the NIC
    alignas(64) uint32_t held; // 1: no queue is being read (the host's to write)
};

struct alignas(64) gda_queue {
    // Constant during a run.
    uint8_t *blocks;
    uint32_t *dbr;              // mlx5_dbr.snd
    uint64_t *bell;             // the 64-bit doorbell
    const struct mlx5_cqe *cqe; // collapsed: overwritten by every completion
    uint64_t *values;           // one word per slot: payload of put_value where nothing goes inline
    uint64_t remote;            // the peer's window, as its NIC knows it
    uint32_t qpn, depth;        // depth: blocks, a power of two up to 32768
    uint32_t rkey, values_key;

    // Shared sharing only; each line has its own writers.
    alignas(64) uint64_t reserved; // last reserved block + 1
    alignas(64) uint64_t ready;    // last published block + 1; waiting for it to reach your slot is the turn
    uint32_t pending;              // WQEs since the batch began; turn holder's (or lock holder's)
    alignas(64) uint32_t lock;     // lock: the whole post; handoff and warp: ringing
    uint64_t rung;                 // last announced block + 1; lock holder's
    uint64_t doorbells;            // rung; lock holder's

    alignas(64) uint64_t cons; // last completed WQE's index + 1, or less: a lower bound, never wrong
    uint64_t signaled;         // last announced signaled WQE's index + 1; kept only where scope is not qp
    uint32_t syndrome;         // of the first error CQE a device thread saw; 0: none
};

// One agent's place at one peer: its own, written back when it turns to another peer. Under exclusive sharing
// it holds the queue's indices and lives as long as the queue.
struct alignas(64) gda_cursor {
    uint64_t next;       // exclusive: last posted block + 1
    uint64_t cons;       // exclusive: as gda_queue.cons
    uint64_t last;       // index of the last WQE posted here + 1; 0: none yet
    uint64_t signaled;   // same, of the last signaled one
    uint64_t doorbells;  // exclusive: rung
    uint64_t slot_waits; // posts that found the queue full
    uint32_t since;      // WQEs posted after the last signaled one
    uint32_t pending;    // WQEs posted after the last doorbell that this agent rang or asked for
    uint32_t unordered;  // 1: reads or atomics may be outstanding, which fence() must order
    uint32_t fence;      // 1: the next WQE waits for them
};

// Where the NIC puts the old values of one agent's atomics at one peer: registered memory, in a line of its own.
struct alignas(64) gda_landing {
    uint64_t old;
};

#endif
