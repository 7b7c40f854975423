// The device handle of the raw-store floor: loads, stores and atomics straight at the peer's memory, and nothing else.
// What each word of backends/abi/device.cuh becomes (on the host the same with the compiler's atomics and memcpy):
//
//   put            16-byte loads here, 16-byte stores there, by all lanes of the agent in turn (8 bytes, or one, where
//                  the alignment allows no more); from bulk_from bytes on by bulk copies (bulk.cuh). Eight aligned
//                  bytes are one st.relaxed.sys. On return the source is read
//   put_each       the lanes of a warp take the messages' 16-byte units in turn; words go by one lane each
//   put_value      st.relaxed.sys of 1, 2, 4 or 8 bytes
//   signal         order=release: red.release.sys.add; order=fence: fence.acq_rel.sys, then red.relaxed.sys.add
//   put_signal     put, then signal
//   notify         8 bytes: st.relaxed.sys of the polled word. More: put, then st.release.sys of the value (order=fence:
//                  the fence, then st.relaxed.sys)
//   wait           wait=acquire: ld.acquire.sys until the word is large enough; wait=fence: ld.relaxed.sys until it is,
//                  then fence.acq_rel.sys
//   get            16-byte ld.relaxed.sys there (never out of the own L1), stores here
//   fetch_add      atom.relaxed.sys.add at the peer
//   fence          fence.acq_rel.sys by every lane, behind the completion of its bulk copies
//   flush, quiet   the same fence. It orders, and the hardware lets it pass when the stores before it are performed at
//                  the peer's memory; nothing at the peer acknowledges anything
//   gpu_visible    fence.acq_rel.sys
//   ring           nothing is ever pending
#ifndef BACKENDS_RAWSTORE_HANDLE_CUH
#define BACKENDS_RAWSTORE_HANDLE_CUH

#include "backends/abi/device.cuh"

constexpr uint32_t rawstore_max_ranks = 64;
constexpr uint32_t rawstore_no_bulk = UINT32_MAX;

// What a session decides; the same for every scope.
struct rawstore_shared {
    uint32_t rank, nranks;
    uint8_t *window;
    gic::Env env;
    uint32_t lanes;
    uint32_t bulk_from; // payloads of so many bytes go by bulk copies; rawstore_no_bulk: none
    bool fenced;        // order=fence
    bool fenced_wait;   // wait=fence
    uint8_t *peers[rawstore_max_ranks];
};

#include "backends/rawstore/copy.cuh"

// LANES of an agent: a thread, a warp, a block.
template <uint32_t LANES> struct rawstore_handle : rawstore_shared { class Agent; };

template <uint32_t LANES> class rawstore_handle<LANES>::Agent {
  public:
    GIC_DEVICE Agent(const rawstore_handle &h, const gic::Self &self)
        : h_(h), lane_(self.lane), bulk_(h.bulk_from, self.lane) {}
    Agent(const Agent &) = delete;
    Agent &operator=(const Agent &) = delete;

    GIC_DEVICE int put(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes) {
        return move<false>(h_.peers[peer] + dst, h_.window + src, bytes);
    }
    template <class F> GIC_DEVICE int put_each(uint32_t peer, uint32_t n, F message) {
        if constexpr (LANES == 1) {
            const gic::Message m = message(0);
            return put(peer, m.dst, m.src, m.bytes);
        } else {
            return put_group(peer, n, message);
        }
    }
    GIC_DEVICE int put_value(uint32_t peer, uint64_t dst, uint64_t value, uint32_t bytes) {
        return lane_ == 0 ? rawstore_store(h_.peers[peer] + dst, value, bytes) : (int)gic::OK;
    }
    GIC_DEVICE int signal(uint32_t peer, uint64_t sig, uint64_t add) {
        GIC_RAWSTORE_TRY(settle());
        if (lane_ == 0)
            rawstore_add(word(peer, sig), add, h_.fenced);
        return gic::OK;
    }
    GIC_DEVICE int put_signal(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes, uint64_t sig,
                              uint64_t add) {
        GIC_RAWSTORE_TRY(put(peer, dst, src, bytes));
        return signal(peer, sig, add);
    }
    GIC_DEVICE int notify(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes, uint64_t sig,
                          uint64_t value) {
        if (bytes == 8) {
            if (lane_ == 0)
                gic::store_relaxed(word(peer, sig), value);
            return gic::OK;
        }
        GIC_RAWSTORE_TRY(put(peer, dst, src, bytes));
        GIC_RAWSTORE_TRY(settle());
        if (lane_ == 0)
            raise(word(peer, sig), value);
        return gic::OK;
    }
    GIC_DEVICE int wait(uint64_t sig, uint64_t at_least) {
        int status = gic::OK;
        if (lane_ == 0) {
            const uint64_t *at = word(h_.rank, sig);
            for (gic::Spin spin(h_.env);
                 (h_.fenced_wait ? gic::load_relaxed(at) : gic::load_acquire(at)) < at_least;)
                if ((status = spin.failed()) != gic::OK)
                    break;
            if (h_.fenced_wait)
                gic::fence_acq_rel<gic::Scope::system>();
        }
        sync();
        return gic::broadcast(self(), status);
    }
    GIC_DEVICE int get(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes) {
        return move<true>(h_.window + dst, h_.peers[peer] + src, bytes);
    }
    GIC_DEVICE int fetch_add(uint32_t peer, uint64_t off, uint64_t add, uint64_t *old_p) {
        uint64_t old = 0;
        if (lane_ == 0) {
            old = gic::fetch_add<gic::Scope::system>(word(peer, off), add);
            gic::arrived(old);
        }
        sync();
        *old_p = gic::broadcast(self(), old);
        return gic::OK;
    }
    // Lanes behind the fence may store what lanes before it have read or stored: all fence, after all have come.
    GIC_DEVICE int fence(uint32_t) {
        GIC_RAWSTORE_TRY(settle());
        gic::fence_acq_rel<gic::Scope::system>();
        sync();
        return gic::OK;
    }
    GIC_DEVICE int flush(uint32_t peer) { return fence(peer); }
    GIC_DEVICE int quiet() { return fence(0); }
    GIC_DEVICE int ring() { return gic::OK; }
    GIC_DEVICE void gpu_visible() { gic::fence_acq_rel<gic::Scope::system>(); }

  private:
    GIC_DEVICE gic::Self self() const { return gic::Self{0, 1, lane_, LANES}; }
    GIC_DEVICE void sync() const { gic::sync_lanes(self()); }
    GIC_DEVICE uint64_t *word(uint32_t rank, uint64_t off) const {
        return reinterpret_cast<uint64_t *>(h_.peers[rank] + off);
    }
    // All that this agent's lanes have stored is ordered before what lane 0 releases next.
    GIC_DEVICE int settle() {
        const int status = bulk_.complete();
        sync();
        return status;
    }
    GIC_DEVICE void raise(uint64_t *at, uint64_t value) const {
        if (h_.fenced) {
            gic::fence_acq_rel<gic::Scope::system>();
            gic::store_relaxed(at, value);
        } else {
            gic::store_release(at, value);
        }
    }

    // One payload, by all lanes.
    template <bool REMOTE> GIC_DEVICE int move(uint8_t *to, const uint8_t *from, uint32_t bytes) {
        if (bytes >= h_.bulk_from && rawstore_bulk::fits(to, from))
            return move_bulk<REMOTE>(to, from, bytes);
        if (!REMOTE && bytes == 8 && rawstore_aligned(to, from, 8)) {
            if (lane_ == 0)
                gic::store_relaxed((uint64_t *)to, *(const uint64_t *)from);
            return gic::OK;
        }
        rawstore_copy<REMOTE, LANES == 1 ? rawstore_deep_alone : rawstore_deep, LANES>(to, from, bytes,
                                                                                       lane_);
        return gic::OK;
    }
    // The warps of a block take a part each; what is no multiple of 16 bytes, one lane stores.
    template <bool REMOTE> GIC_DEVICE int move_bulk(uint8_t *to, const uint8_t *from, uint32_t bytes) {
        constexpr uint32_t warps = LANES > 32 ? LANES / 32 : 1;
        const uint32_t whole = bytes / 16 * 16, part = (whole / 16 + warps - 1) / warps * 16,
                       begin = lane_ / 32 * part, end = begin + part < whole ? begin + part : whole;
        int status = gic::OK;
        if (begin < end)
            status = bulk_.copy(to + begin, from + begin, end - begin);
        if (whole < bytes && lane_ == 0)
            rawstore_copy<REMOTE, rawstore_deep_alone, 1>(to + whole, from + whole, bytes - whole, 0);
        return status;
    }
    template <class F> GIC_DEVICE int put_group(uint32_t peer, uint32_t n, F message);

    const rawstore_handle &h_;
    uint32_t lane_;
    rawstore_bulk bulk_;
};

#if defined(__CUDACC__)

// A warp takes 32 of the messages. They are mostly of one size and aligned; if not, each goes by itself.
template <uint32_t LANES>
template <class F>
GIC_DEVICE int rawstore_handle<LANES>::Agent::put_group(uint32_t peer, uint32_t n, F message) {
    const uint32_t first = lane_ / 32 * 32, left = n > first ? n - first : 0, count = left < 32 ? left : 32;
    gic::Message m{0, 0, 0};
    const bool mine = lane_ - first < count;
    if (mine)
        m = message(lane_);
    uint8_t *to = h_.peers[peer] + m.dst;
    const uint8_t *from = h_.window + m.src;
    const uint32_t bytes = __shfl_sync(~0u, m.bytes, 0);
    const bool alike = __all_sync(~0u, !mine || m.bytes == bytes),
               words = __all_sync(~0u, !mine || rawstore_aligned(to, from, 8)),
               units = __all_sync(~0u, !mine || rawstore_aligned(to, from, 16)) && bytes % 16 == 0;
    int status = gic::OK;
    if (alike && words && bytes == 8) {
        if (mine)
            gic::store_relaxed((uint64_t *)to, *(const uint64_t *)from);
    } else if (alike && units && bytes >= h_.bulk_from) {
        status = bulk_.copy_each(to, from, bytes, count);
    } else if (alike && units) {
        rawstore_group::copy(to, from, bytes / 16, count, lane_ - first);
    } else if (mine) {
        rawstore_copy<false, rawstore_deep_alone, 1>(to, from, m.bytes, 0);
    }
    __syncwarp();
    return status;
}

#else

template <uint32_t LANES>
template <class F>
int rawstore_handle<LANES>::Agent::put_group(uint32_t peer, uint32_t n, F message) {
    for (uint32_t i = 0; i < n; i++) {
        const gic::Message m = message(i);
        GIC_RAWSTORE_TRY(put(peer, m.dst, m.src, m.bytes));
    }
    return gic::OK;
}

#endif

#endif
