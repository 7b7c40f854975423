// Sees to it that a launch of NCCL's device code ends: that code looks at no error CQE and at no stop.
//
// While it lives a thread of its own looks at the NIC every few milliseconds. After an error CQE it sets the launch's stop
// word, on which the workload's own waits end, and has NCCL's waits on the queues that have failed ended
// (gic_ncclgin_net.unblock). Once the stop word has been set for a while, by whomever, all of NCCL's waits are ended: those
// of an agent whose peer has died, say.
#ifndef BACKENDS_NCCLGIN_WATCH_H
#define BACKENDS_NCCLGIN_WATCH_H

#include "backends/ncclgin/net.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace ncclgin_backend {

class Watch {
  public:
    // Both must outlive it.
    Watch(const struct gic_ncclgin_net *net, volatile uint32_t *stop)
        : net_(net), stop_(stop), thread_([this] { run(); }) {}
    Watch(const Watch &) = delete;
    Watch &operator=(const Watch &) = delete;
    ~Watch() {
        {
            std::lock_guard<std::mutex> hold(lock_);
            done_ = true;
        }
        wake_.notify_one();
        thread_.join();
    }

  private:
    static constexpr std::chrono::milliseconds period{5};
    static constexpr uint32_t patience = 20; // periods in which a launch may end by itself

    void run() {
        std::unique_lock<std::mutex> hold(lock_);
        for (uint32_t stopped = 0; !wake_.wait_for(hold, period, [this] { return done_; });) {
            const bool failed = net_->error() != 0;
            if (failed)
                *stop_ = 1;
            if (*stop_ && stopped < patience)
                stopped++;
            // What it cannot end the harness ends with the process.
            if (failed || stopped == patience)
                net_->unblock(stopped == patience);
        }
    }

    const struct gic_ncclgin_net *net_;
    volatile uint32_t *stop_;
    std::mutex lock_;
    std::condition_variable wake_;
    bool done_ = false;
    std::thread thread_;
};

} // namespace ncclgin_backend

#endif
