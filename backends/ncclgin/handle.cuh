// The device handle over NCCL's device API (nccl_device.h). What each word of backends/abi/device.cuh becomes:
//
// GIN (ncclGin, which chooses between GDAKI and Proxy at run time):
//   put            gin.put. An agent of several lanes gives them as the Coop: one lane posts, between two syncs.
//   put_each       gin.put by each lane; with syncwarp=on a sync of the lanes behind it, as the paper's faster rows have it
//   put, put_each  inline=on: 8 bytes are loaded and go by gin.putValue
//   put_value      gin.putValue. path=proxy: a put from a word of this rank's scratch, since putValue of 2.28.9 makes the
//                  proxy write through a wild pointer
//   signal         gin.signal(SignalAdd), put_signal gin.put(SignalAdd). Strong: a signal is behind the payload of all
//                  earlier puts of this context to this peer, NCCL says; an agent stays on one context.
//   notify         gin.put(SignalInc); 8 bytes: gin.putValue(SignalInc) (path=proxy: as put_value)
//   wait           gin.readSignal until it is there: gin.waitSignal has no deadline
//   flush, quiet   gin.flush: completes everything of the agent's context, at all peers, whoever posted it. NCCL promises a
//                  source that may be overwritten; behind it stand the CQEs of RC queue pairs. It has no deadline.
//                  completion=counter: puts carry CounterInc, and flush waits for the count (gin.readCounter)
//   gpu_visible    a fence at system scope; NCCL has it inside of its waits
//   ring           nothing: every post rings
//   get, fetch_add, fence: 2.28.9 has none
//
// A signal word of the contract is a word of the window, NCCL's signals are numbers: word n (offset 8 * n) is signal n of
// every context, and its value their sum. The host half shows them where the window's words are (session.cc).
//
// LSA: loads and stores through ncclGetLsaPointer; signals are atomics on the window's own words.
#ifndef BACKENDS_NCCLGIN_HANDLE_CUH
#define BACKENDS_NCCLGIN_HANDLE_CUH

#include "backends/abi/device.cuh"

#include <nccl.h>
#include <nccl_device.h>

// Which code a kernel holds. GIN puts by pointer alone, INLINE knows 8-byte values too.
enum class ncclgin_code { GIN, INLINE, LSA };

constexpr uint32_t ncclgin_comms = 4; // communicators of a session: a communicator has at most 4 contexts
constexpr uint32_t ncclgin_per_comm = 4;
constexpr uint32_t ncclgin_scratch = 32; // words of scratch per agent

// What a session decides; the same for every kernel.
struct ncclgin_shared {
    uint32_t rank, nranks;
    uint8_t *window;
    gic::Env env;
    uint32_t lanes;
    ncclDevComm comms[ncclgin_comms]; // context c is number c % 4 of communicator c / 4
    ncclWindow_t windows[ncclgin_comms];
    uint32_t contexts;
    uint32_t signals; // of each context; the window's first words
    bool proxy, sync, counted;
    uint64_t scratch; // offset behind the window's bytes: ncclgin_scratch words of each agent (path=proxy)
    uint64_t *issued; // completion=counter: puts that each agent has made since its counter was 0
};

#if defined(__CUDACC__)

// The lanes of one agent as NCCL's Coop.
struct ncclgin_lanes {
    uint32_t lane, lanes;
    GIC_DEVICE int thread_rank() const { return (int)lane; }
    GIC_DEVICE int size() const { return (int)lanes; }
    GIC_DEVICE int num_threads() const { return (int)lanes; }
    GIC_DEVICE void sync() const { gic::sync_lanes(gic::Self{0, 1, lane, lanes}); }
};

// Puts are inlined at their calls, for their issue is timed; the rest is called: NCCL's two GIN types in every call would
// take ptxas minutes.
#define NCCLGIN_OUTLINED __device__ __noinline__

#endif

#if defined(__CUDACC__)

// What is called, on one context of a handle.
namespace ncclgin_call {

GIC_DEVICE ncclGin context(const ncclgin_shared &h, uint32_t c) {
    return ncclGin(h.comms[c / ncclgin_per_comm], (int)(c % ncclgin_per_comm));
}

template <class Coop, class Action>
NCCLGIN_OUTLINED void put(const ncclgin_shared &h, uint32_t c, uint32_t peer, uint64_t dst, uint64_t src,
                          uint32_t bytes, Action action, Coop coop) {
    const ncclGin gin = context(h, c);
    const ncclWindow_t w = h.windows[c / ncclgin_per_comm];
    gin.put(ncclTeamWorld(gin.comm), (int)peer, w, dst, w, src, bytes, action, ncclGin_None{}, coop);
}

template <class Coop>
NCCLGIN_OUTLINED void signal(const ncclgin_shared &h, uint32_t c, uint32_t peer, uint32_t id, uint64_t add,
                             Coop coop) {
    const ncclGin gin = context(h, c);
    gin.signal(ncclTeamWorld(gin.comm), (int)peer, ncclGin_SignalAdd{id, add}, coop);
}

template <class T, class Coop>
GIC_DEVICE void value(const ncclgin_shared &h, uint32_t c, uint32_t peer, uint64_t dst, uint64_t v,
                      Coop coop) {
    const ncclGin gin = context(h, c);
    gin.putValue(ncclTeamWorld(gin.comm), (int)peer, h.windows[c / ncclgin_per_comm], dst, (T)v,
                 ncclGin_None{}, coop);
}
template <class Coop>
NCCLGIN_OUTLINED int put_value(const ncclgin_shared &h, uint32_t c, uint32_t peer, uint64_t dst, uint64_t v,
                               uint32_t bytes, Coop coop) {
    switch (bytes) {
    case 1:
        value<uint8_t>(h, c, peer, dst, v, coop);
        return gic::OK;
    case 2:
        value<uint16_t>(h, c, peer, dst, v, coop);
        return gic::OK;
    case 4:
        value<uint32_t>(h, c, peer, dst, v, coop);
        return gic::OK;
    case 8:
        value<uint64_t>(h, c, peer, dst, v, coop);
        return gic::OK;
    default:
        return gic::ERR_INVAL;
    }
}
template <class Coop>
NCCLGIN_OUTLINED void notify_word(const ncclgin_shared &h, uint32_t c, uint32_t peer, uint64_t dst,
                                  uint64_t v, Coop coop) {
    const ncclGin gin = context(h, c);
    gin.putValue(ncclTeamWorld(gin.comm), (int)peer, h.windows[c / ncclgin_per_comm], dst, v,
                 ncclGin_SignalInc{(uint32_t)(dst / 8)}, coop);
}

// The value of a signal word.
GIC_DEVICE uint64_t signal_sum(const ncclgin_shared &h, uint32_t id) {
    uint64_t sum = context(h, 0).readSignal(id);
    for (uint32_t c = 1; c < h.contexts; c++)
        sum += context(h, c).readSignal(id);
    return sum;
}
template <int = 0> NCCLGIN_OUTLINED int wait(const ncclgin_shared &h, uint32_t id, uint64_t at_least) {
    for (gic::Spin spin(h.env); signal_sum(h, id) < at_least;)
        if (int status = spin.failed())
            return status;
    return gic::OK;
}

template <class Coop> NCCLGIN_OUTLINED void flush(const ncclgin_shared &h, uint32_t c, Coop coop) {
    context(h, c).flush(coop);
}
template <int = 0>
NCCLGIN_OUTLINED int wait_counter(const ncclgin_shared &h, uint32_t c, uint32_t id, uint64_t least) {
    const ncclGin gin = context(h, c);
    for (gic::Spin spin(h.env); gin.readCounter(id) < least;)
        if (int status = spin.failed())
            return status;
    return gic::OK;
}

} // namespace ncclgin_call

// MANY: an agent has several lanes. INLINE: it knows inline=on.
template <bool INLINE, bool MANY> class ncclgin_agent {
  public:
    GIC_DEVICE ncclgin_agent(const ncclgin_shared &h, const gic::Self &self)
        : h_(h), id_(self.agent), lane_(self.lane), context_(self.agent % h.contexts),
          gin_(ncclgin_call::context(h, context_)) {
        if (h.counted)
            issued_ = h.issued[id_];
    }

    GIC_DEVICE int put(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes) {
        post(peer, dst, src, bytes, coop());
        return gic::OK;
    }
    template <class F> GIC_DEVICE int put_each(uint32_t peer, uint32_t n, F message) {
        if (!MANY || lane_ < n) {
            const gic::Message m = message(lane_);
            post(peer, m.dst, m.src, m.bytes, ncclCoopThread());
        }
        if (MANY && h_.sync)
            coop().sync();
        return gic::OK;
    }
    GIC_DEVICE int put_value(uint32_t peer, uint64_t dst, uint64_t value, uint32_t bytes) {
        plain_ = true;
        if (!h_.proxy)
            return ncclgin_call::put_value(h_, context_, peer, dst, value, bytes, coop());
        if (bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8)
            return gic::ERR_INVAL;
        ncclgin_call::put(h_, context_, peer, dst, keep(value), bytes, ncclGin_None{}, coop());
        return gic::OK;
    }
    GIC_DEVICE int signal(uint32_t peer, uint64_t sig, uint64_t add) {
        plain_ = true;
        if (!is_signal(sig))
            return gic::ERR_INVAL;
        ncclgin_call::signal(h_, context_, peer, (uint32_t)(sig / 8), add, coop());
        return gic::OK;
    }
    GIC_DEVICE int put_signal(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes, uint64_t sig,
                              uint64_t add) {
        plain_ = true;
        if (!is_signal(sig))
            return gic::ERR_INVAL;
        ncclgin_call::put(h_, context_, peer, dst, src, bytes, ncclGin_SignalAdd{(uint32_t)(sig / 8), add},
                          coop());
        return gic::OK;
    }
    GIC_DEVICE int notify(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes, uint64_t sig,
                          uint64_t value) {
        plain_ = true;
        if (!is_signal(sig))
            return gic::ERR_INVAL;
        if (bytes == 8 && !h_.proxy) {
            ncclgin_call::notify_word(h_, context_, peer, sig, value, coop());
            return gic::OK;
        }
        if (bytes == 8) {
            dst = sig;
            src = keep(value);
        }
        ncclgin_call::put(h_, context_, peer, dst, src, bytes, ncclGin_SignalInc{(uint32_t)(sig / 8)},
                          coop());
        return gic::OK;
    }
    GIC_DEVICE int wait(uint64_t sig, uint64_t at_least) {
        if (!is_signal(sig))
            return gic::ERR_INVAL;
        int status = gic::OK;
        coop().sync();
        if (lane_ == 0)
            status = ncclgin_call::wait(h_, (uint32_t)(sig / 8), at_least);
        return broadcast(status);
    }
    GIC_DEVICE int get(uint32_t, uint64_t, uint64_t, uint32_t) { return gic::ERR_NOTSUP; }
    GIC_DEVICE int fetch_add(uint32_t, uint64_t, uint64_t, uint64_t *) { return gic::ERR_NOTSUP; }
    GIC_DEVICE int fence(uint32_t) { return gic::ERR_NOTSUP; }
    GIC_DEVICE int flush(uint32_t) { return quiet(); }
    GIC_DEVICE int quiet() {
        if (!MANY && h_.counted && !plain_)
            return ncclgin_call::wait_counter(h_, context_, id_, issued_);
        ncclgin_call::flush(h_, context_, coop());
        plain_ = false;
        return gic::OK;
    }
    GIC_DEVICE int ring() { return gic::OK; }
    GIC_DEVICE void gpu_visible() { gic::fence_acq_rel<gic::Scope::system>(); }

  private:
    GIC_DEVICE auto coop() const {
        if constexpr (MANY)
            return ncclgin_lanes{lane_, h_.lanes};
        else
            return ncclCoopThread();
    }
    GIC_DEVICE int broadcast(int status) const {
        return MANY ? gic::broadcast(gic::Self{0, 1, lane_, h_.lanes}, status) : status;
    }
    GIC_DEVICE bool is_signal(uint64_t sig) const { return sig % 8 == 0 && sig / 8 < h_.signals; }

    template <class Coop>
    GIC_DEVICE void post(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes, Coop who) {
        const ncclWindow_t w = h_.windows[context_ / ncclgin_per_comm];
        const ncclTeam team = ncclTeamWorld(gin_.comm);
        if constexpr (INLINE) {
            if (bytes == 8) {
                plain_ = true;
                uint64_t value;
                gic::copy(&value, h_.window + src, 8);
                gin_.putValue(team, (int)peer, w, dst, value, ncclGin_None{}, who);
                return;
            }
        }
        if (!MANY && h_.counted) {
            h_.issued[id_] = ++issued_;
            gin_.put(team, (int)peer, w, dst, w, src, bytes, ncclGin_None{}, ncclGin_CounterInc{id_}, who);
            return;
        }
        gin_.put(team, (int)peer, w, dst, w, src, bytes, ncclGin_None{}, ncclGin_None{}, who);
    }
    // Where the value lies in this agent's scratch. Its word is free again behind a flush.
    GIC_DEVICE uint64_t keep(uint64_t value) {
        if (kept_ % ncclgin_scratch == 0)
            ncclgin_call::flush(h_, context_, coop());
        const uint64_t at = h_.scratch + 8 * ((uint64_t)id_ * ncclgin_scratch + kept_++ % ncclgin_scratch);
        if (lane_ == 0)
            *(volatile uint64_t *)(h_.window + at) = value;
        return at;
    }

    const ncclgin_shared &h_;
    uint32_t id_, lane_, context_;
    ncclGin gin_;
    uint32_t kept_ = 0;
    uint64_t issued_ = 0;
    bool plain_ =
        true; // something that no counter counts may be under way, from another agent of this number too
};

// Loads and stores at the peers' memory. Every rank is in this one's LSA team (session.cc).
template <bool MANY> class ncclgin_lsa_agent {
  public:
    GIC_DEVICE ncclgin_lsa_agent(const ncclgin_shared &h, const gic::Self &self) : h_(h), lane_(self.lane) {}

    GIC_DEVICE int put(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes) {
        sync();
        copy(peer, dst, src, bytes, lane_, MANY ? h_.lanes : 1);
        sync();
        return gic::OK;
    }
    // A warp takes 32 of the messages: words a lane each, rows one after the other by all lanes.
    template <class F> GIC_DEVICE int put_each(uint32_t peer, uint32_t n, F message) {
        const uint32_t width = !MANY           ? 1
                               : h_.lanes < 32 ? h_.lanes
                                               : 32,
                       lane = lane_ % width, first = lane_ - lane;
        const uint32_t left = n > first ? n - first : 0, count = left < width ? left : width;
        gic::Message m{0, 0, 0};
        if (lane < count)
            m = message(lane_);
        const unsigned warp = width == 32 ? ~0u : (1u << width) - 1;
        if (!MANY || __all_sync(warp, m.bytes <= 64)) {
            if (lane < count)
                copy(peer, m.dst, m.src, m.bytes, 0, 1);
        } else {
            __syncwarp(warp); // what other lanes have written, and until all have read
            for (uint32_t i = 0; i < count; i++)
                copy(peer, __shfl_sync(warp, m.dst, (int)i), __shfl_sync(warp, m.src, (int)i),
                     __shfl_sync(warp, m.bytes, (int)i), lane, width);
            __syncwarp(warp);
        }
        if (MANY && h_.sync)
            sync();
        return gic::OK;
    }
    GIC_DEVICE int put_value(uint32_t peer, uint64_t dst, uint64_t value, uint32_t bytes) {
        if (bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8)
            return gic::ERR_INVAL;
        sync();
        if (lane_ == 0)
            gic::copy(at(peer, dst), &value, bytes);
        sync();
        return gic::OK;
    }
    GIC_DEVICE int signal(uint32_t peer, uint64_t sig, uint64_t add) {
        sync(); // the lanes' puts, then the fence of the one that signals
        if (lane_ == 0) {
            gic::fence_acq_rel<gic::Scope::system>();
            gic::fetch_add<gic::Scope::system>((uint64_t *)at(peer, sig), add);
        }
        sync();
        return gic::OK;
    }
    GIC_DEVICE int put_signal(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes, uint64_t sig,
                              uint64_t add) {
        put(peer, dst, src, bytes);
        return signal(peer, sig, add);
    }
    GIC_DEVICE int notify(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes, uint64_t sig,
                          uint64_t value) {
        if (bytes != 8)
            put(peer, dst, src, bytes);
        sync();
        if (lane_ == 0)
            gic::store_release<gic::Scope::system>((uint64_t *)at(peer, sig), value);
        sync();
        return gic::OK;
    }
    GIC_DEVICE int wait(uint64_t sig, uint64_t at_least) {
        int status = gic::OK;
        sync();
        if (lane_ == 0) {
            const auto *word = (const uint64_t *)(h_.window + sig);
            for (gic::Spin spin(h_.env); gic::load_acquire<gic::Scope::system>(word) < at_least;)
                if ((status = spin.failed()) != gic::OK)
                    break;
        }
        return MANY ? gic::broadcast(gic::Self{0, 1, lane_, h_.lanes}, status) : status;
    }
    GIC_DEVICE int get(uint32_t, uint64_t, uint64_t, uint32_t) { return gic::ERR_NOTSUP; }
    GIC_DEVICE int fetch_add(uint32_t, uint64_t, uint64_t, uint64_t *) { return gic::ERR_NOTSUP; }
    GIC_DEVICE int fence(uint32_t) { return gic::ERR_NOTSUP; }
    GIC_DEVICE int flush(uint32_t) { return quiet(); }
    GIC_DEVICE int quiet() {
        gic::fence_acq_rel<gic::Scope::system>();
        sync();
        return gic::OK;
    }
    GIC_DEVICE int ring() { return gic::OK; }
    GIC_DEVICE void gpu_visible() { gic::fence_acq_rel<gic::Scope::system>(); }

  private:
    GIC_DEVICE void sync() const {
        if (MANY)
            gic::sync_lanes(gic::Self{0, 1, lane_, h_.lanes});
    }
    GIC_DEVICE uint8_t *at(uint32_t peer, uint64_t offset) const {
        return (uint8_t *)ncclGetPeerPointer(h_.windows[0], offset, (int)peer);
    }
    // Lane `lane` of `lanes` copies its share: 16 bytes at a time where both ends allow it, else 8, else 1.
    GIC_DEVICE void copy(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes, uint32_t lane,
                         uint32_t lanes) const {
        uint8_t *to = at(peer, dst);
        const uint8_t *from = h_.window + src;
        const uint64_t together = (uint64_t)to | (uint64_t)from;
        uint32_t done = 0;
        if (together % 16 == 0)
            done = copy_as<uint4>(to, from, bytes, lane, lanes);
        if (together % 8 == 0)
            done += copy_as<uint64_t>(to + done, from + done, bytes - done, lane, lanes);
        for (uint32_t i = done + lane; i < bytes; i += lanes)
            ((volatile uint8_t *)to)[i] = from[i];
    }
    // All loads of a round are under way before its first store.
    template <class T>
    static GIC_DEVICE uint32_t copy_as(uint8_t *to, const uint8_t *from, uint32_t bytes, uint32_t lane,
                                       uint32_t lanes) {
        constexpr uint32_t deep = sizeof(T) == 16 ? 8 : 1;
        const uint32_t n = bytes / (uint32_t)sizeof(T);
        for (uint32_t i = lane; i < n; i += lanes * deep) {
            T unit[deep];
#pragma unroll
            for (uint32_t k = 0; k < deep; k++)
                if (i + k * lanes < n)
                    unit[k] = ((const T *)from)[i + k * lanes];
#pragma unroll
            for (uint32_t k = 0; k < deep; k++)
                if (i + k * lanes < n)
                    ((T *)to)[i + k * lanes] = unit[k];
        }
        return n * (uint32_t)sizeof(T);
    }

    const ncclgin_shared &h_;
    uint32_t lane_;
};

template <ncclgin_code C, bool MANY> struct ncclgin_agent_of {
    using type = ncclgin_agent<C == ncclgin_code::INLINE, MANY>;
};
template <bool MANY> struct ncclgin_agent_of<ncclgin_code::LSA, MANY> {
    using type = ncclgin_lsa_agent<MANY>;
};

#else

// For the host compiler, which only passes handles on to the launches.
struct ncclgin_no_agent {
    ncclgin_no_agent(const ncclgin_shared &, const gic::Self &) {}
    int put(uint32_t, uint64_t, uint64_t, uint32_t) { return gic::ERR_NOTSUP; }
    template <class F> int put_each(uint32_t, uint32_t, F) { return gic::ERR_NOTSUP; }
    int put_value(uint32_t, uint64_t, uint64_t, uint32_t) { return gic::ERR_NOTSUP; }
    int signal(uint32_t, uint64_t, uint64_t) { return gic::ERR_NOTSUP; }
    int put_signal(uint32_t, uint64_t, uint64_t, uint32_t, uint64_t, uint64_t) { return gic::ERR_NOTSUP; }
    int notify(uint32_t, uint64_t, uint64_t, uint32_t, uint64_t, uint64_t) { return gic::ERR_NOTSUP; }
    int wait(uint64_t, uint64_t) { return gic::ERR_NOTSUP; }
    int get(uint32_t, uint64_t, uint64_t, uint32_t) { return gic::ERR_NOTSUP; }
    int fetch_add(uint32_t, uint64_t, uint64_t, uint64_t *) { return gic::ERR_NOTSUP; }
    int fence(uint32_t) { return gic::ERR_NOTSUP; }
    int flush(uint32_t) { return gic::ERR_NOTSUP; }
    int quiet() { return gic::ERR_NOTSUP; }
    int ring() { return gic::ERR_NOTSUP; }
    void gpu_visible() {}
};
template <ncclgin_code C, bool MANY> struct ncclgin_agent_of { using type = ncclgin_no_agent; };

#endif

template <ncclgin_code C, bool MANY> struct ncclgin_handle : ncclgin_shared {
    using Agent = typename ncclgin_agent_of<C, MANY>::type;
};

#endif
