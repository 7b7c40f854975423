// A device handle without any stack, for tests: the ranks are threads of one process, their windows plain memory.
//
// It is as lazy as the contract allows: nothing moves before ring, flush, quiet or a blocking call, in the order
// in which it was posted, and sources are read only then. A kernel that forgets to ring, or reuses a source too
// early, fails here. Every operation is counted as the workload's message list counts it.
#ifndef GIC_WORKLOADS_REFERENCE_HANDLE_CUH
#define GIC_WORKLOADS_REFERENCE_HANDLE_CUH

#include "backends/abi/backend.h"
#include "backends/abi/device.cuh"

#include <atomic>
#include <functional>
#include <mutex>
#include <vector>

struct ReferenceFabric {
    struct Rank {
        uint8_t *window;
        std::atomic<uint64_t> count[GIC_OP_COUNT];
        std::atomic<uint64_t> payload;
        std::mutex lock;
        std::vector<uint64_t> fetched; // what its fetch_adds returned
    };
    std::vector<Rank> ranks;
    uint64_t window_bytes;
};

struct ReferenceHandle {
    uint32_t rank, nranks;
    uint8_t *window;
    gic::Env env;
    uint32_t lanes;
    ReferenceFabric *fabric;

    class Agent {
      public:
        Agent(const ReferenceHandle &h, gic::Self) : h_(h) {}

        int put(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes) {
            return post(GIC_OP_PUT, peer, dst, src, bytes, [=] { move(peer, dst, src, bytes); });
        }
        template <class F> int put_each(uint32_t peer, uint32_t n, F message) {
            if (n > h_.lanes)
                return gic::ERR_INVAL;
            for (uint32_t i = 0; i < n; i++) {
                const gic::Message m = message(i);
                if (int status = put(peer, m.dst, m.src, m.bytes))
                    return status;
            }
            return gic::OK;
        }
        int put_value(uint32_t peer, uint64_t dst, uint64_t value, uint32_t bytes) {
            return post(GIC_OP_PUT_VALUE, peer, dst, 0, bytes, [=] { memcpy(at(peer, dst), &value, bytes); });
        }
        int signal(uint32_t peer, uint64_t sig, uint64_t add) {
            return post(GIC_OP_SIGNAL, peer, sig, 0, 8, [=] { raise(peer, sig, add); });
        }
        int put_signal(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes, uint64_t sig,
                       uint64_t add) {
            return post(GIC_OP_PUT_SIGNAL, peer, dst, src, bytes, [=] {
                move(peer, dst, src, bytes);
                raise(peer, sig, add);
            });
        }
        int notify(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes, uint64_t sig, uint64_t value) {
            const gic_op op = bytes == 8 ? GIC_OP_NOTIFY_WORD : GIC_OP_NOTIFY;
            return post(op, peer, dst, src, bytes, [=] {
                if (bytes != 8)
                    move(peer, dst, src, bytes);
                gic::store_release(word(peer, sig), value);
            });
        }
        int wait(uint64_t sig, uint64_t at_least) {
            for (gic::Spin spin(h_.env); gic::load_acquire(word(h_.rank, sig)) < at_least;)
                if (int status = spin.failed())
                    return status;
            return gic::OK;
        }
        int get(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes) {
            return post(GIC_OP_GET, peer, src, dst, bytes,
                        [=] { memcpy(at(h_.rank, dst), at(peer, src), bytes); });
        }
        int fetch_add(uint32_t peer, uint64_t off, uint64_t add, uint64_t *old_p) {
            int status = post(GIC_OP_FETCH_ADD, peer, off, 0, 8,
                              [=] { *old_p = __atomic_fetch_add(word(peer, off), add, __ATOMIC_ACQ_REL); });
            if (status == gic::OK && (status = ring()) == gic::OK) {
                const std::lock_guard<std::mutex> hold(h_.fabric->ranks[h_.rank].lock);
                h_.fabric->ranks[h_.rank].fetched.push_back(*old_p);
            }
            return status;
        }
        int fence(uint32_t) { return gic::OK; }
        int flush(uint32_t) { return ring(); }
        int quiet() { return ring(); }
        void gpu_visible() {}
        int ring() {
            for (auto &move_bytes : pending_)
                move_bytes();
            pending_.clear();
            return gic::OK;
        }

      private:
        uint8_t *at(uint32_t rank, uint64_t offset) { return h_.fabric->ranks[rank].window + offset; }
        uint64_t *word(uint32_t rank, uint64_t offset) { return (uint64_t *)at(rank, offset); }
        void move(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes) {
            memcpy(at(peer, dst), at(h_.rank, src), bytes);
        }
        void raise(uint32_t peer, uint64_t sig, uint64_t add) {
            __atomic_fetch_add(word(peer, sig), add, __ATOMIC_RELEASE);
        }
        // The NIC is for other ranks: a message to oneself is a mistake of the kernel.
        int post(gic_op op, uint32_t peer, uint64_t there, uint64_t here, uint32_t bytes,
                 std::function<void()> act) {
            const uint64_t end = h_.fabric->window_bytes;
            if (peer >= h_.nranks || peer == h_.rank || bytes == 0 || there + bytes > end ||
                here + bytes > end)
                return gic::ERR_INVAL;
            ReferenceFabric::Rank &mine = h_.fabric->ranks[h_.rank];
            mine.count[op]++;
            mine.payload += bytes;
            pending_.push_back(std::move(act));
            return gic::OK;
        }

        const ReferenceHandle &h_; // the kernel's, which outlives its agents
        std::vector<std::function<void()>> pending_;
    };
};

#endif
