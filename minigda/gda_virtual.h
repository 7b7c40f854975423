// Virtual time for device code, for tests: device threads are coroutines of one thread, over NICs in virtual time.
//
// Code takes no time; what a NIC takes is its profile's, and take() lets a device thread spend some. A device thread
// that waits yields (gic::pause, after some polls, calls sched_yield, which the test's own definition below replaces);
// when all of them wait, the clock goes to the next thing that is due. Every time is therefore a function of the
// posts alone: two runs that ask the same of the NICs at the same times end at the same nanosecond.
//
// To be included by one source of a test, since it defines sched_yield().
#ifndef MINIGDA_GDA_VIRTUAL_H
#define MINIGDA_GDA_VIRTUAL_H

#include "minigda/gda_test.h"

#include <ucontext.h>

namespace gda_test {

class Virtual {
  public:
    explicit Virtual(std::vector<struct softnic *> nics) : nics_(std::move(nics)) {}

    // All to their ends.
    void run(std::vector<std::function<void()>> threads) {
        current() = this;
        std::vector<std::unique_ptr<Fiber>> fibers;
        for (auto &t : threads)
            fibers.push_back(std::make_unique<Fiber>(std::move(t)));
        fibers_ = &fibers;
        while (step())
            ;
        fibers_ = nullptr;
        current() = nullptr;
    }
    uint64_t now() const { return softnic_now(nics_[0]); }

    // The calling device thread spends some time.
    static void take(uint64_t ns) {
        Virtual *v = current();
        if (!v || !v->running_ || ns == 0)
            return;
        v->running_->wake = v->now() + ns;
        while (v->now() < v->running_->wake)
            v->yield();
        v->running_->wake = 0;
    }
    static Virtual *&current() {
        static thread_local Virtual *v;
        return v;
    }
    bool inside() const { return running_ != nullptr; }
    void yield() { swapcontext(&running_->context, &scheduler_); }

  private:
    struct Fiber {
        explicit Fiber(std::function<void()> f) : body(std::move(f)), stack(1 << 18) {
            getcontext(&context);
            context.uc_stack.ss_sp = stack.data();
            context.uc_stack.ss_size = stack.size();
            makecontext(&context, (void (*)())enter, 0);
        }
        static void enter() {
            Virtual *v = current();
            v->running_->body();
            v->running_->done = true;
            for (;;)
                v->yield();
        }
        std::function<void()> body;
        std::vector<char> stack;
        ucontext_t context;
        uint64_t wake = 0; // 0: looks whenever it is asked
        bool done = false;
    };

    size_t traced() const { // what the NICs have done so far
        size_t sum = 0;
        for (struct softnic *nic : nics_) {
            size_t count = 0;
            uint64_t lost = 0;
            if (softnic_trace_read(nic, nullptr, &count, &lost) != 0) {
                fprintf(stderr, "virtual time needs NICs with trace=on\n");
                exit(1);
            }
            sum += count + lost;
        }
        return sum;
    }

    // All that happens at this moment, then on to the next one. False: all are done.
    bool step() {
        size_t quiet = 0; // rounds in which no NIC did anything; a thread may still wait for another one
        for (size_t before = traced(); quiet <= fibers_->size() + 1; quiet++) {
            for (auto &f : *fibers_) {
                if (f->done || f->wake > now())
                    continue;
                running_ = f.get();
                swapcontext(&scheduler_, &f->context);
                running_ = nullptr;
            }
            for (struct softnic *nic : nics_)
                softnic_advance(nic, 0);
            const size_t after = traced();
            if (after != before)
                quiet = 0;
            before = after;
        }
        uint64_t ahead = UINT64_MAX;
        bool done = true;
        for (auto &f : *fibers_) {
            done &= f->done;
            if (!f->done && f->wake > now())
                ahead = std::min(ahead, f->wake - now());
        }
        if (done)
            return false;
        for (struct softnic *nic : nics_)
            ahead = std::min(ahead, softnic_due(nic));
        if (ahead == UINT64_MAX || ahead == 0) {
            fprintf(stderr, "virtual time stands still at %llu ns: a device thread waits for nothing\n",
                    (unsigned long long)now());
            exit(1);
        }
        for (struct softnic *nic : nics_)
            softnic_advance(nic, ahead);
        return true;
    }

    std::vector<struct softnic *> nics_;
    std::vector<std::unique_ptr<Fiber>> *fibers_ = nullptr;
    Fiber *running_ = nullptr;
    ucontext_t scheduler_;
};

} // namespace gda_test

extern "C" int sched_yield() noexcept {
    gda_test::Virtual *v = gda_test::Virtual::current();
    if (v && v->inside())
        v->yield();
    return 0;
}

#endif
