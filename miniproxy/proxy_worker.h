// One worker of the CPU proxy. Private to proxy_host.cc and proxy_worker.cc.
#ifndef MINIPROXY_PROXY_WORKER_H
#define MINIPROXY_PROXY_WORKER_H

#include "minigda/gda_wqe.cuh"
#include "miniproxy/proxy_host.h"

#include <atomic>
#include <mutex>
#include <thread>

namespace proxy {

struct Host::Error {
    mutable std::mutex lock;
    std::string text;

    void set(const std::string &what) { // the first one stays
        std::lock_guard<std::mutex> hold(lock);
        if (text.empty())
            text = what;
    }
};

// With Attr.hold_ns: the NIC is held unless some worker waits for it and none is posting. Control calls of the NIC are
// one thread's at a time; so they are made behind the lock, and none any more when set(false) has returned.
struct Host::Gate {
    struct softnic *const nic;
    std::mutex lock{};
    bool on = false;
    uint32_t posting = 0, waiting = 0; // workers

    void set(bool hold) {
        std::lock_guard<std::mutex> one(lock);
        on = hold;
        if (on)
            apply();
        else
            softnic_resume(nic);
    }
    void change(int more_posting, int more_waiting) {
        std::lock_guard<std::mutex> one(lock);
        posting += (uint32_t)more_posting;
        waiting += (uint32_t)more_waiting;
        if (on)
            apply();
    }

  private:
    void apply() {
        if (posting || !waiting)
            softnic_hold(nic);
        else
            softnic_resume(nic);
    }
};

class Host::Worker {
  public:
    Worker(const Host &host, uint32_t index);
    ~Worker() { stop(); }

    int start();
    void stop();
    size_t step();
    Stats stats() const;

  private:
    // The driver's side of one QP and its CQ. Indices count basic blocks since creation and never wrap.
    struct Queue {
        const struct gda_qp *qp;
        uint64_t *values;           // by block of the send queue, or nullptr
        uint64_t prod_idx;          // last posted block + 1
        uint64_t done_idx;          // blocks below are complete
        uint64_t rung_idx;          // blocks below have been announced
        uint64_t cons_idx;          // next CQE
        struct mlx5_ctrl_seg *last; // of the last WQE posted
        uint32_t unrung;            // WQEs posted since the last doorbell
        bool fence;                 // the next WQE waits for the answers to those before
        bool failed;
    };
    // Descriptors taken from a ring, in a row: those below `upto` are complete when their queue has done all blocks
    // below `end`. What one doorbell announced is completed by one CQE, so a span never reaches over a doorbell.
    struct Span {
        Queue *queue;
        uint64_t end, upto;
    };
    struct Ring {
        uint32_t index;
        uint32_t queue; // which of this worker's queues at every peer takes what comes from it
        Descriptor *slots;
        uint64_t mask;
        Progress *progress;
        const uint8_t *open;
        uint64_t consumed, completed;
        uint64_t told;        // `consumed` as the producers see it
        uint64_t first, next; // spans [first, next) wait for their CQE
        bool failed;
        std::vector<Span> spans; // as many as slots, so a power of two
    };

    void run();
    size_t sweep();
    void tell(Ring &r);
    void move_gate(size_t taken);
    size_t retire();
    size_t poll(Queue &q);
    void complete(Ring &r);
    size_t take_from(Ring &r);
    uint32_t take_words(Ring &r, uint32_t most);
    uint32_t take_one(Ring &r);
    void note(Ring &r, Queue &q, uint64_t upto);
    gda_place place(const Queue &q, uint32_t peer) const;
    bool plain_put(const Fields &f) const;
    std::string check(const Fields &f, const Fields *operand) const;
    bool build(Queue &q, const Fields &f, uint64_t immediate);
    void posted(Queue &q, uint32_t blocks);
    void announce(Queue &q);
    void give_up(Ring &r, const std::string &why);
    uint8_t *block(const Queue &q, uint64_t index) const {
        return q.qp->sq + ((index & (q.qp->depth - 1)) << MLX5_BB_SHIFT);
    }

    const struct gda_fabric *const fabric_;
    const Attr attr_;
    const uint32_t index_;
    const uint64_t *const results_;
    const uint32_t result_slots_, results_key_, values_key_, put_max_;
    Error *const error_;
    Gate *const gate_;
    const uint32_t shift_;
    std::vector<Queue> queues_; // [peer * attr_.qps + i]
    std::vector<Ring> rings_;
    uint32_t first_ = 0;  // ring a sweep starts with
    size_t unlooked_ = 0; // descriptors taken since the CQs were looked at
    // As the gate knows it, and since when nothing has been taken; 0: something has.
    bool posting_ = false, waiting_ = false;
    uint64_t idle_since_ = 0;
    std::atomic<uint64_t> descriptors_{0}, wqes_{0}, doorbells_{0};
    std::atomic<bool> quit_{false};
    std::thread thread_;
};

} // namespace proxy

#endif
