// The device side of the CPU proxy: rings of descriptors and the handle that workloads use.
//
//   device thread --16-byte descriptors--> ring --> worker (CPU) --WQEs, doorbell--> NIC
//                 <-- consumed, completed, status (host memory, one set per ring) --
//
// A ring belongs to one worker, and a worker has one QP per peer, so all that one agent does to one peer goes
// through one ring and one QP and keeps its order. The words of device.cuh mean here:
//
//   put, get, ...  handed to the worker; the source must stay as it is until flush
//   signal         strong: an atomic on the same QP behind the agent's earlier puts
//   notify         8 bytes: one inline write of the polled word. More: a put, then a write of the word
//   fence          writes keep their order on a QP anyway; behind a get the worker is told to set the fence
//   bit flush, quiet   the ring's completion counter has passed the agent's last descriptor. The counter
//   moves in
//                  ring order, so both complete everything of this ring, at all peers: the scope is the ring
//   fetch_add      the old value comes back through a slot in host memory; blocks
//   ring           nothing: a worker looks for descriptors by itself
//
// Hand-off `baseline`: reserve with a device atomic in a ring that may have many producers, read the worker's
// progress from host memory every time, publish behind a system-scope fence. Hand-off `tuned`: one producer
// per ring, its index in a register, progress read only when the ring looks full, validity in the descriptor.
//
// An agent is a thread, or (MANY) the lanes of a warp: lane 0 acts for all of them, but each lane hands over its own message
// of a put_each, behind one reservation. What any lane wrote before is ordered as if lane 0 had written it.
//
// ERR_IO from flush, quiet, fetch_add or a full ring: the worker has given this ring up (a malformed
// descriptor, an error CQE); proxy_error() on the host says why.
#ifndef MINIPROXY_PROXY_CUH
#define MINIPROXY_PROXY_CUH

#include "miniproxy/descriptor.cuh"

namespace proxy {

// What a worker tells the producers of one ring, in host memory. Counts of descriptors since the ring was
// made; they never wrap. On two lines: a producer reads `consumed` when it posts and `completed` when it
// waits.
struct alignas(128) Progress {
    uint64_t consumed; // slots free again
    alignas(64) uint64_t completed;
    // OK, or why the ring has been given up: by the worker, before `completed` moves past the cause, or by a
    // producer that leaves a hole in a shared ring.
    int32_t status;
};
static_assert(offsetof(Progress, completed) == 64, "on a line of its own");

// The producers' side of one ring. Device memory.
struct alignas(64) Producer {
    uint64_t head; // next index to reserve; tuned: kept by the agent, written back when it ends
};

constexpr uint32_t MAX_RINGS = 32;

struct Rings {
    Descriptor *slots; // host memory: ring r at slots + (r << shift)
    Progress *progress;
    Producer *producer;
    uint8_t *open;     // host memory, one byte per ring: set by the first agent that uses it
    uint64_t *results; // host memory, `result_slots` words: where the old value of a fetch_add arrives
    uint32_t count;
    uint32_t result_slots; // agents that can use fetch_add
    uint32_t shift, mask;  // log2 of the slots per ring, and their number - 1
    uint32_t put_max;      // bytes of one put
    uint32_t shared;       // agents may share a ring
    uint32_t posted;       // nothing orders the payload of a put (GPU only)
    uint32_t held;         // the NIC stands still while a worker posts
};

template <Handoff F, bool MANY = false> struct Handle {
    uint32_t rank, nranks;
    uint8_t *window;
    gic::Env env;
    uint32_t lanes; // 1; MANY: 32
    Rings rings;

    class Agent;
};

// Indices of descriptors on this side: the low 32 bits, compared by difference. A ring holds 2^16 at most.
template <Handoff F, bool MANY> class Handle<F, MANY>::Agent {
  public:
    // `h` outlives the agent.
    GIC_DEVICE Agent(const Handle &h, const gic::Self &self) : h_(h), self_(self) {
        // Without sharing an agent beyond the last ring has none; the adapter refuses such a launch, and here
        // every call answers ERR_INVAL rather than break another agent's ring.
        bool has_ring = h.rings.shared || self.agent < h.rings.count;
        peers_ = has_ring ? h.nranks : 0;
        slots_ = h.rings.slots + ((uint64_t)ring_number(h, self) << h.rings.shift);
        if (!has_ring)
            return;
        if constexpr (MANY)
            gic::sync_lanes(self); // lane 0 may just have written the head back
        // What came before is this agent's to complete too: one launch may make an agent more than once.
        next_ = last_ = (uint32_t)gic::load_relaxed<gic::Scope::device>(&producer(h, self)->head);
        if (!MANY || self.lane == 0)
            limit_ = (uint32_t)gic::load_relaxed(&progress(h, self)->consumed) + h.rings.mask + 1;
        if constexpr (MANY) // the same in all lanes, or they would take different ways
            limit_ = gic::broadcast(self, limit_);
        if (self.lane == 0)
            *(volatile uint8_t *)(h.rings.open + ring_number(h, self)) =
                1; // an atomic byte would be a loop over PCIe
    }
    GIC_DEVICE ~Agent() {
        if (F == Handoff::tuned && peers_ && self_.lane == 0)
            keep(h_, self_, next_);
    }
    Agent(const Agent &) = delete;
    Agent &operator=(const Agent &) = delete;

    GIC_DEVICE int put(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes) {
        if constexpr (F == Handoff::tuned)
            if (put_short(peer, dst, src, bytes))
                return gic::OK;
        return post(Fields{Op::put, peer, dst, src, bytes, 0});
    }

    template <class M> GIC_DEVICE int put_each(uint32_t peer, uint32_t n, M message) {
        if (n > h_.lanes)
            return gic::ERR_INVAL;
        if (n == 1) {
            const gic::Message m = message(0);
            return put(peer, m.dst, m.src, m.bytes);
        }
        bool wrong = false;
        for (uint32_t i = MANY ? gic::lane_first(self_) : 0; i < n; i += MANY ? gic::lane_step(self_) : 1) {
            gic::Message m = message(i);
            wrong |= bad(Fields{Op::put, peer, m.dst, m.src, m.bytes, 0});
        }
        if (any_lane(wrong))
            return gic::ERR_INVAL;
        meet();
        uint32_t at;
        if (int s = reserve(n, &at))
            return s;
        for (uint32_t i = gic::lane_first(self_); i < n; i += gic::lane_step(self_)) {
            gic::Message m = message(i);
            write(at + i, Fields{Op::put, peer, m.dst, m.src, m.bytes, 0});
        }
        return gic::OK;
    }

    GIC_DEVICE int put_value(uint32_t peer, uint64_t dst, uint64_t value, uint32_t bytes) {
        if (bytes != 8 && bytes != 4 && bytes != 2 && bytes != 1)
            return gic::ERR_INVAL;
        return post(Fields{Op::value, peer, dst, 0, bytes, value});
    }

    GIC_DEVICE int signal(uint32_t peer, uint64_t sig, uint64_t add) {
        return post(Fields{Op::signal, peer, sig, 0, 8, add});
    }

    GIC_DEVICE int put_signal(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes, uint64_t sig,
                              uint64_t add) {
        return post(Fields{Op::put, peer, dst, src, bytes, 0}, Fields{Op::signal, peer, sig, 0, 8, add});
    }

    GIC_DEVICE int notify(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes, uint64_t sig,
                          uint64_t value) {
        Fields word{Op::value, peer, sig, 0, 8, value};
        if (sig % 8 != 0) // the other side polls it as one word
            return gic::ERR_INVAL;
        if (bytes == 8)
            return post(word);
        return post(Fields{Op::put, peer, dst, src, bytes, 0}, word);
    }

    GIC_DEVICE int wait(uint64_t sig, uint64_t at_least) {
        if (sig % 8 != 0 || sig >= MAX_OFFSET)
            return gic::ERR_INVAL;
        const uint64_t *word = (const uint64_t *)(h_.window + sig);
        if constexpr (MANY) {
            const int status = self_.lane == 0 ? wait_word(h_, word, at_least) : (int)gic::OK;
            meet();
            return gic::broadcast(self_, status);
        }
        return gic::load_acquire(word) >= at_least ? (int)gic::OK : wait_word(h_, word, at_least);
    }

    GIC_DEVICE int get(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes) {
        gets_ = true;
        return post(Fields{Op::get, peer, dst, src, bytes, 0});
    }

    GIC_DEVICE int fetch_add(uint32_t peer, uint64_t off, uint64_t add, uint64_t *old_p) {
        if (self_.agent >= h_.rings.result_slots)
            return gic::ERR_INVAL;
        if (int s = post(Fields{Op::fetch_add, peer, off, self_.agent, 8, 0},
                         Fields{Op::operand, peer, 0, 0, 8, add}))
            return s;
        if (int s = completed())
            return s;
        *old_p = gic::load_acquire(h_.rings.results + self_.agent);
        return gic::OK;
    }

    GIC_DEVICE int fence(uint32_t peer) {
        if (peer >= peers_)
            return gic::ERR_INVAL;
        return gets_ ? post(Fields{Op::fence, peer, 0, 0, 0, 0}) : (int)gic::OK;
    }

    GIC_DEVICE int flush(uint32_t peer) { return peer < peers_ ? quiet() : (int)gic::ERR_INVAL; }

    GIC_DEVICE int quiet() {
        int s = completed();
        if (s == gic::OK)
            gets_ = false;
        return s;
    }

    GIC_DEVICE void gpu_visible() { gic::fence_acq_rel<gic::Scope::system>(); }

    GIC_DEVICE int ring() { return gic::OK; }

    // Where the NIC is held: until the worker has posted all that this agent handed over. Otherwise nothing.
    GIC_DEVICE int submitted() {
        if (!h_.rings.held)
            return gic::OK;
        return gic::broadcast(self_, self_.lane == 0 ? wait_taken(h_, self_, last_) : (int)gic::OK);
    }

  private:
    GIC_DEVICE static uint32_t ring_number(const Handle &h, const gic::Self &self) {
        return self.agent < h.rings.count ? self.agent : self.agent % h.rings.count;
    }
    GIC_DEVICE static Progress *progress(const Handle &h, const gic::Self &self) {
        return h.rings.progress + ring_number(h, self);
    }
    GIC_DEVICE static Producer *producer(const Handle &h, const gic::Self &self) {
        return h.rings.producer + ring_number(h, self);
    }
    // The producer's head, all 64 bits of it, moves on to `next`.
    GIC_DEVICE static void keep(const Handle &h, const gic::Self &self, uint32_t next) {
        Producer *p = producer(h, self);
        p->head += (uint32_t)(next - (uint32_t)p->head);
    }

    // A put into a ring that has room, with all that can be wrong with it in one condition, which the store carries: a
    // branch costs a GPU thread as much as the store. False: nothing has been done.
    GIC_DEVICE bool put_short(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes) {
        meet();
        const bool good = (peer < peers_) & (((dst | src) >> OFFSET_BITS) == 0) &
                          (bytes <= h_.rings.put_max) & (limit_ != next_);
        publish_if<F>(good & (self_.lane == 0), slots_ + (next_ & h_.rings.mask),
                      pack(Fields{Op::put, peer, dst, src, bytes, 0}), phase_of_low(next_, h_.rings.shift),
                      h_.rings.posted);
        next_ += good;
        last_ = good ? next_ : last_;
        return good;
    }

    // Before lane 0 hands over what the others wrote, and after it has waited for all.
    GIC_DEVICE void meet() const {
        if constexpr (MANY)
            gic::sync_lanes(self_);
    }
    GIC_DEVICE static bool any_lane(bool v) {
#if defined(__CUDACC__)
        if constexpr (MANY)
            return __any_sync(0xffffffffu, v);
#endif
        return v;
    }

    // Does it fit a descriptor? Whether it lies in the windows is the worker's to check.
    GIC_DEVICE bool bad(const Fields &f) const {
        if (f.peer >= peers_ || ((f.dst | f.src) >> OFFSET_BITS) != 0)
            return true;
        if (f.op == Op::put)
            return f.bytes > h_.rings.put_max;
        if (f.op == Op::get)
            return f.bytes > MAX_BYTES;
        return (f.op == Op::signal || f.op == Op::fetch_add) && f.dst % 8 != 0;
    }

    GIC_DEVICE void write(uint32_t index, const Fields &f) {
        publish<F>(slots_ + (index & h_.rings.mask), pack(f), phase_of_low(index, h_.rings.shift),
                   h_.rings.posted);
    }

    GIC_DEVICE int post(const Fields &f) {
        uint32_t at;
        if (bad(f))
            return gic::ERR_INVAL;
        if (int s = reserve(1, &at))
            return s;
        meet();
        if (self_.lane == 0)
            write(at, f);
        return gic::OK;
    }

    GIC_DEVICE int post(const Fields &first, const Fields &second) {
        uint32_t at;
        if (bad(first) || bad(second))
            return gic::ERR_INVAL;
        if (int s = reserve(2, &at))
            return s;
        meet();
        if (self_.lane == 0) {
            write(at, first);
            write(at + 1, second);
        }
        return gic::OK;
    }

    // `n` slots in a row that are free to write.
    GIC_DEVICE int reserve(uint32_t n, uint32_t *at_p) {
        if constexpr (F == Handoff::baseline) {
            uint32_t at = 0;
            if (self_.lane == 0)
                at = (uint32_t)gic::fetch_add<gic::Scope::device>(&producer(h_, self_)->head, (uint64_t)n);
            *at_p = at = gic::broadcast(self_, at);
            last_ = at + n;
            // The classical way looks at the worker's progress every time.
            if (self_.lane == 0)
                limit_ = (uint32_t)gic::load_acquire(&progress(h_, self_)->consumed) + h_.rings.mask + 1;
            limit_ = gic::broadcast(self_, limit_);
            return (int32_t)(limit_ - last_) >= 0 ? (int)gic::OK : wait_for_space(last_);
        } else {
            *at_p = next_;
            if (limit_ - next_ < n)
                if (int s = wait_for_space(next_ + n))
                    return s;
            last_ = next_ += n;
            return gic::OK;
        }
    }

    struct Seen {
        uint32_t limit;
        int status;
    };
    GIC_DEVICE int wait_for_space(uint32_t end) {
        Seen seen{limit_, gic::OK};
        if (self_.lane == 0)
            seen = space(h_, self_, end, next_);
        limit_ = gic::broadcast(self_, seen.limit);
        return gic::broadcast(self_, seen.status);
    }
    // Read the worker's progress until slots below `end` are free.
    GIC_COLD static Seen space(const Handle &h, gic::Self self, uint32_t end, uint32_t next) {
        Progress *p = progress(h, self);
        int status = gic::OK;
        uint32_t limit;
        if (F == Handoff::tuned)
            keep(h, self, next); // now and then, so that the head keeps its upper half
        for (gic::Spin spin(h.env);
             (int32_t)((limit = (uint32_t)gic::load_acquire(&p->consumed) + h.rings.mask + 1) - end) < 0;) {
            if ((status = gic::load_relaxed(&p->status)) != gic::OK)
                break;
            if ((status = spin.failed()) == gic::OK)
                continue;
            // Reserved slots that nobody will fill: with more producers the ring ends here for all.
            if (F == Handoff::baseline)
                gic::store_relaxed(&p->status, (int32_t)status);
            break;
        }
        return {limit, status};
    }

    GIC_DEVICE int completed() {
        const int status = self_.lane == 0 ? wait_completed(h_, self_, last_) : (int)gic::OK;
        meet();
        return gic::broadcast(self_, status);
    }
    GIC_COLD static int wait_completed(const Handle &h, gic::Self self, uint32_t end) {
        Progress *p = progress(h, self);
        for (gic::Spin spin(h.env); (int32_t)(end - (uint32_t)gic::load_acquire(&p->completed)) > 0;) {
            if (int s = gic::load_relaxed(&p->status))
                return s;
            if (int s = spin.failed())
                return s;
        }
        return gic::load_relaxed(&p->status);
    }
    GIC_COLD static int wait_taken(const Handle &h, gic::Self self, uint32_t end) {
        Progress *p = progress(h, self);
        for (gic::Spin spin(h.env); (int32_t)(end - (uint32_t)gic::load_acquire(&p->consumed)) > 0;)
            if (int s = spin.failed())
                return s;
        return gic::OK;
    }
    GIC_COLD static int wait_word(const Handle &h, const uint64_t *word, uint64_t at_least) {
        for (gic::Spin spin(h.env); gic::load_acquire(word) < at_least;)
            if (int s = spin.failed())
                return s;
        return gic::OK;
    }

    const Handle &h_;
    const gic::Self self_;
    uint32_t peers_ = 0; // 0: no ring
    bool gets_ = false;  // since the last flush
    Descriptor *slots_;
    uint32_t next_ = 0;  // tuned: next index
    uint32_t limit_ = 0; // first index known not to be free
    uint32_t last_ = 0;  // last index this agent posted + 1
};

} // namespace proxy

#endif
