// What device code knows of one send queue, of one agent's place in it, and of the choices that shape a post.
// Filled by gda.h on the host; plain data, also on a GPU.
//
// Indices count 64-byte basic blocks from 0 modulo 2^32 and are compared by their difference (gda_after): what is
// compared lies within one queue, at most 2^15 blocks apart. Slots are masked and the NIC gets the low 16 bits. A
// WQE's index is that of its first block. (Not 64 bits, which would never wrap: an index then takes two of the
// registers that a kernel has for its own work.)
#ifndef MINIGDA_GDA_QUEUE_CUH
#define MINIGDA_GDA_QUEUE_CUH

#include "backends/abi/device.cuh"
#include "minigda/mlx5/mlx5.h"

#define GDA_LIKELY(condition) __builtin_expect(condition, 1)

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
// and, by other choices than that of sharing:
//   group      as exclusive, an agent being a warp or a thread block whose lanes build a group together
//   spare      as exclusive, an agent keeping nothing in registers between its calls (gda_spare.cuh)
//   block_lock, block_handoff, block_warp  as without block_, all agents being in one thread block: what they tell each
//              other lies in its memory, and is ordered for the block alone
//   bare       as exclusive, and bare_group as group, without any bookkeeping: nothing checks for a free slot, every
//              WQE is the first choice's. The yardstick of what posting costs; a launch must not post more than
//              fits the queue between two flushes
enum class gda_sharing : uint32_t {
    exclusive,
    lock,
    handoff,
    warp,
    group,
    spare,
    block_lock,
    block_handoff,
    block_warp,
    bare,
    bare_group
};
GIC_HD constexpr bool gda_in_block(gda_sharing s) {
    return s >= gda_sharing::block_lock && s <= gda_sharing::block_warp;
}
// lock, handoff or warp, also of one in a block.
GIC_HD constexpr gda_sharing gda_form(gda_sharing s) {
    return gda_in_block(s)
               ? (gda_sharing)((uint32_t)s - (uint32_t)gda_sharing::block_lock + (uint32_t)gda_sharing::lock)
               : s;
}
GIC_HD constexpr bool gda_exclusive(gda_sharing s) {
    return s == gda_sharing::exclusive || (s >= gda_sharing::group && !gda_in_block(s));
}
GIC_HD constexpr bool gda_bare(gda_sharing s) { return s >= gda_sharing::bare; }
// An agent has several lanes, which build a group of WQEs together.
GIC_HD constexpr bool gda_lanes(gda_sharing s) {
    return gda_form(s) == gda_sharing::warp || s == gda_sharing::group || s == gda_sharing::bare_group;
}

// What flush waits for beyond the agent's own queue.
enum class gda_scope : uint32_t { qp, peer, all };

enum { GDA_LANES = 32 };                // of a warp agent
enum { GDA_BLOCK_QUEUES = 64 };         // to all peers, whose words a block's memory takes
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
    uint32_t inline_one;   // of those that go into the WQE: up to this many bytes it takes one block
    uint32_t put_max;      // larger puts are refused
    uint32_t first_qp;     // agent a uses QP (a + first_qp) % qps
};

// order=none: the engine is held while a kernel posts, since nothing orders what it would read. Whoever must
// wait for the NIC asks for it here, and stores meanwhile nothing that the NIC could see half done.
struct gda_gate {
    uint32_t want;             // agents that wait for the NIC
    alignas(64) uint32_t held; // 1: no queue is being read (the host's to write)
};

struct alignas(64) gda_queue {
    // Constant during a run; the first line is what a post needs (also what is the same for all queues: the registers
    // it is loaded into stay, where parameters of a kernel would be loaded again for every post).
    uint8_t *blocks;
    uint64_t remote;            // the peer's window, as its NIC knows it
    uint32_t *dbr;              // mlx5_dbr.snd
    uint64_t *bell;             // the 64-bit doorbell
    uint8_t *window;            // this rank's
    uint32_t qpn_word;          // mlx5_ctrl_word1 without its segment count
    uint32_t rkey_word;         // mlx5_raddr_seg.rkey
    uint32_t lkey_word;         // mlx5_data_seg.lkey of the window
    uint32_t mask;              // depth - 1
    uint32_t by_value;          // 8-byte payloads go into the WQE
    const struct mlx5_cqe *cqe; // collapsed: overwritten by every completion
    uint64_t *values;           // one word per slot: payload of put_value where nothing goes inline
    uint32_t values_key;
    uint32_t qpn, depth; // depth: blocks, a power of two up to 32768

    // Shared sharing only; each line has its own writers.
    alignas(64) uint32_t reserved; // last reserved block + 1
    // Published so far: gda_turn_word(last published block + 1, WQEs modulo 2^32; lock and replay: 0). handoff and warp:
    // whose slot begins at that block has the turn.
    alignas(64) uint64_t turn;
    alignas(64) uint32_t lock; // lock: the whole post; handoff and warp: ringing
    uint32_t rung;             // last announced block + 1; lock holder's to write
    uint32_t pending;          // lock: WQEs since the batch began; lock holder's
    uint64_t doorbells;        // rung for others; lock holder's

    alignas(64) uint32_t cons; // last completed WQE's index + 1, or less: a lower bound, never wrong
    uint32_t signaled;         // last announced signaled WQE's index + 1; kept only where scope is not qp
    uint32_t syndrome;         // of the first error CQE a device thread saw; 0: none
};

GIC_HD constexpr uint64_t gda_turn_word(uint32_t ready, uint32_t wqes) {
    return (uint64_t)wqes << 32 | ready;
}

// What of a queue its agents tell each other, where all of them are in one block: gda_queue's words of the same names,
// which are these between launches.
struct gda_block_words {
    uint64_t turn, doorbells;
    uint32_t reserved, lock, rung, pending, cons, signaled;
};
template <class To, class From> GIC_HD void gda_words_copy(To *to, const From *from) {
    to->turn = from->turn;
    to->doorbells = from->doorbells;
    to->reserved = from->reserved;
    to->lock = from->lock;
    to->rung = from->rung;
    to->pending = from->pending;
    to->cons = from->cons;
    to->signaled = from->signaled;
}

// One agent's place at one peer, between two of its turns there: while it is turned to that peer it holds the first
// ones in registers. Under exclusive sharing the place belongs to the queue and lives as long.
struct alignas(64) gda_cursor {
    uint32_t next;       // exclusive: last posted block + 1
    uint32_t cons;       // exclusive: as gda_queue.cons
    uint32_t last;       // index of the last WQE posted here + 1; 0: none yet
    uint32_t since;      // WQEs posted after the last signaled one
    uint32_t pending;    // WQEs posted after the last doorbell that this agent rang or asked for
    uint32_t bits;       // enum gda_bits
    uint32_t signaled;   // as last, of the last signaled one; kept only where scope is not qp
    uint64_t doorbells;  // rung by the agent's own posts
    uint64_t slot_waits; // posts that found the queue full
};
enum gda_bits : uint32_t {
    GDA_UNORDERED = 1, // reads or atomics may be outstanding, which fence() must order
    GDA_FENCE = 2,     // the next WQE waits for them
};

// Index a lies behind index b.
GIC_HD bool gda_after(uint32_t a, uint32_t b) { return (int32_t)(a - b) > 0; }

// Where the NIC puts the old values of one agent's atomics at one peer: registered memory, in a line of its own.
struct alignas(64) gda_landing {
    uint64_t old;
};

#endif
