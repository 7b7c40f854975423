// Host side of replay: from a trace and from what a kernel does to the program that gda_replay.cuh posts.
//
// How a WQE of the trace is tied to an operation, and what a post has to wait for:
//
//   - Waits for words (a peer's signal) and for completions (flush, quiet, fetch_add) are the kernel's own: the same
//     kernel runs, so they need not be guessed from when things happened. A completion waited for is that of the last
//     WQE which the agent posted to the peer: its own CQE, or on a shared queue the next one behind it.
//   - An operation is tied to WQEs by peer, kind, offset and size: the base of the peer's window is the one under which
//     most WQEs lie where an operation aims. A put may be several writes one behind the other. A signal may be an
//     atomic elsewhere (a library keeps its signals in its own memory), then it is the agent's next one on its queue.
//   - Equal operations are tied in the order of the trace, an agent staying on the queue that it uses.
//   - WQEs that no operation explains (a NOP that asks for a CQE, a read that flushes) belong to the next flush or quiet
//     of the agent before them, else to its next operation.
//   - The order on a queue, among all its agents, is that of the trace. A slot is reused behind the CQE that frees it.
//   - Doorbells: rings coalesce before a NIC looks, so that it may have seen fewer than were rung. Where the number rung
//     is known (`doorbells`), they are those of the row's own batch (`batch`), else of the smallest, by operation or by
//     WQE, that gives this number and has one wherever the NIC saw one; a batch that is not full is rung by ring,
//     flush, quiet and fetch_add. If no batch does, and the NIC saw fewer, it is an error. Where the number is not
//     known they are those that the NIC saw.
//   - Within a quiet, a WQE beside the operations is posted behind the CQEs of other queues if that is how it was in
//     every quiet of the trace, serial_evidence times at least; else at once. One counterexample refutes it.
//   - Completion scope: `peer` or `all` if every flush before which other queues had signaled WQEs outstanding was
//     followed by this agent's next WQE only behind all their CQEs, at least scope_evidence times; else `qp`. One
//     counterexample refutes a scope; without any case it makes no difference.
//
// Functions return 0 or a negative errno and leave one line in gic::error_text(). -ENOTSUP: this trace cannot be
// replayed with this kernel, and why.
#ifndef MINIGDA_GDA_REPLAY_H
#define MINIGDA_GDA_REPLAY_H

#include "minigda/gda.h"
#include "minigda/gda_replay.cuh"
#include "minigda/gda_trace.h"

#include <map>

struct gda_replay_options {
    int scope = -1;         // enum gda_scope; -1: from the trace
    uint64_t doorbells = 0; // rung by all ranks together; 0: not known, those that the NICs saw
    bool timed = false;     // that number depends on timing: a tenth more or less will do
    uint32_t batch = 0;     // the traced row's own, 1..256, if it says one
};

// Queue pairs and depth that a trace needs. -ENOTSUP for a trace without WQEs, with lost records or with errors.
int gda_replay_needs(const gda_trace &trace, uint32_t *qps_per_peer_p, uint32_t *depth_p);

class gda_replay {
  public:
    static constexpr uint32_t scope_evidence = 8, serial_evidence = 8;

    // `g`: opened with sharing=handoff, batch=1, signal_every=1, inline_max=0, with the queues that gda_replay_needs()
    // asks for. `comm`: of gic_open.
    gda_replay(gda *g, const gda_trace &trace, const gda_replay_options &options, const gic_comm *comm);

    // In this order: learn(), a launch, build(), replay(), a launch, done(). Launches stand between gda_begin() and
    // gda_end(), which are the caller's. The plan is good for one launch.
    int learn(uint32_t agents, gda_replay_plan *plan_p);
    int build(); // collective, also after a launch that failed (status)
    int replay(uint32_t agents, gda_replay_plan *plan_p);
    void done();

    gda_scope scope() const { return scope_; }
    void facts(gic::Facts *facts) const;

  private:
    struct Wqe {
        struct softnic_trace record;
        uint64_t pos, order, done_ns;   // done: time of the CQE that completes it, UINT64_MAX: none
        uint64_t bell_ns;               // when the NIC saw it announced
        bool seen, used;                // seen: a doorbell that the NIC saw ends here
        enum { NONE, POST, LATE } ring; // at once, or in a later entry of the agent
        uint32_t agent, entry, delta, ring_entry;
        gda_replay_part part;
    };
    struct Queue {
        std::vector<Wqe> wqes;
        bool shared;
    };

    int agree(int rc) const;
    int read_trace();
    int find_bases();
    int tie();
    int tie_operation(uint32_t agent, uint32_t entry);
    int tie_payload(uint32_t agent, uint32_t entry, gda_replay_part part, uint8_t opcode, uint64_t at,
                    uint32_t bytes, bool whole);
    int tie_add(uint32_t agent, uint32_t entry, uint64_t at, gda_replay_part part);
    Wqe *take(uint32_t agent, uint32_t peer, uint8_t opcode, uint64_t at, uint32_t bytes, bool whole);
    Wqe *take_foreign(uint32_t agent, uint32_t peer);
    int tie_extras();
    int check_order();
    int rings();
    // How doorbells came about: by `batch` and calls, as the NIC saw them, or either.
    struct Bells {
        enum { MODEL, SEEN, EITHER } by;
        bool by_wqe;
        uint32_t batch;
    };
    static constexpr uint64_t refuted = UINT64_MAX;
    uint64_t place_rings(const Bells &bells); // how many, or refuted
    uint32_t ringing_entry(uint32_t queue, const Wqe &wqe, uint32_t before) const;
    void find_serial();
    struct Placed {
        const Wqe *wqe;
        uint32_t queue;
    };
    struct Step {
        gda_replay_item item;
        gda_replay_more more;
    };
    Step step_of(const Placed &placed) const;
    const Wqe *completed_by(const Placed &placed) const;
    void put_await(Placed *placed);
    bool short_way(const gda_replay_entry &e, const gda_replay_item &i) const;
    int lay_out_entry(uint32_t agent, uint32_t entry, std::vector<Placed> list, std::vector<Placed> *last);
    void find_scope();
    bool scope_holds(bool all, uint32_t *cases_p) const;
    int lay_out();
    int fail_entry(uint32_t agent, uint32_t entry, const char *what) const;
    const gda_replay_entry &entry_of(uint32_t agent, uint32_t entry) const { return journal_[agent][entry]; }
    uint32_t peer_of(uint32_t queue) const { return queue / g_->attr.qps; }

    gda *g_;
    gda_trace trace_;
    gda_replay_options options_;
    const gic_comm *comm_;
    gda_scope scope_ = gda_scope::qp;
    std::string scope_how_ = "not asked", bells_how_ = "as the NIC saw them";

    uint32_t agents_ = 0, capacity_ = 0;
    std::unique_ptr<gic::Arena> mem_;
    gda_replay_plan plan_{};
    std::vector<std::vector<gda_replay_entry>> journal_; // per agent
    std::vector<Queue> queues_;                          // as gda.queues
    std::vector<uint64_t> base_;                         // per peer: its window, as the trace knows it
    // Of an agent at a queue: position of its last tied WQE + 1. Of an agent at a peer: the queue it uses, + 1.
    std::vector<uint64_t> last_;
    std::vector<uint32_t> affinity_;
    std::vector<uint32_t> starts_; // by agent: its first item
    std::vector<Step> steps_;
    std::map<std::pair<uint32_t, uint32_t>, std::vector<Placed>>
        late_; // by agent and entry: doorbells rung there
    uint32_t extras_ = 0;
    bool learned_ = false, serial_ = false;
};

#endif
