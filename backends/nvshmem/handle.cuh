// The device handle over NVSHMEM's device API. What each word of backends/abi/device.cuh becomes:
//
//   put            nvshmem_putmem_nbi; a warp or block agent: nvshmemx_putmem_nbi_warp, _block
//   put_each       nvshmem_putmem_nbi by each lane, which the library's IBGDA code posts as a group. On path=p2p a lane copies
//                  what it is asked for by itself, so that more than 64 bytes go by nvshmemx_putmem_nbi_warp, _block, one
//                  after the other
//   put_value      nvshmem_uint{8,16,32,64}_p
//   signal         nvshmemx_signal_op(ADD). NVSHMEM orders it behind earlier puts only across an nvshmem_fence, which
//                  signals=fenced puts in front when there were puts since the last one; it waits for the completion of
//                  all queue pairs. signals=queue leaves it out: an agent's puts and signals to one PE go through one
//                  queue pair, which works in order. Nothing promises that, NVSHMEM's own put_signal relies on it.
//   put_signal     nvshmem_putmem_signal_nbi(ADD): weak, the signal is behind its own payload
//   notify         8 bytes: nvshmem_uint64_p; more: put_signal adding 1, since ADD takes one block and SET three
//   wait           nvshmem_uint64_test(GE) until it is true: nvshmem_signal_wait_until has no deadline
//   get, fetch_add nvshmem_getmem_nbi, nvshmem_uint64_atomic_fetch_add (blocking)
//   fence          nvshmem_fence: waits for the completion of all queue pairs to all PEs
//   flush, quiet   nvshmem_quiet, where the agent has issued anything since its last one: the library has nothing for one PE
//                  or one queue pair. completion=queue (level=internal alone) waits for the agent's own queue pair to that PE,
//                  as the library's own ibgda_quiet(qp) does. quiet=warp (scope=warp alone): nvshmemi_transfer_quiet by all
//                  lanes, which share the queue pairs between them. nvshmem_quiet is the same function called by one
//   gpu_visible    a fence at system scope; NVSHMEM has it inside of its waits
//   ring           nothing: a lone thread's post is announced at once, a group's by whoever reserved last
//
// Levels: PUBLIC calls the API, whose IBGDA half is compiled into libnvshmem_device.a; INLINED compiles all of it into
// the kernel; INTERNAL leaves out the API and its choice of a transport and posts by nvshmemi_ibgda_rma_nbi.
#ifndef BACKENDS_NVSHMEM_HANDLE_CUH
#define BACKENDS_NVSHMEM_HANDLE_CUH

#include "backends/abi/device.cuh"

enum class nvshmem_level { PUBLIC, INLINED, INTERNAL };

// What a session decides; the same for every level.
struct nvshmem_shared {
    uint32_t rank, nranks;
    uint8_t *window; // at the same offset of every PE's symmetric heap
    gic::Env env;
    bool fenced_signals;
    bool own_queue; // completion=queue
    bool by_lanes;  // quiet=warp
    bool mapped;    // path=p2p
};

#if defined(__CUDA_ARCH__)

#include <nvshmem.h>
#include <nvshmemx.h>

// Where the library's code is compiled into the kernel, puts alone are inlined at their calls (issue times are theirs):
// some hundred lines at each call of everything would take ptxas half an hour.
#if defined(NVSHMEM_ENABLE_ALL_DEVICE_INLINING)
#define NVSHMEM_OUTLINED __device__ __noinline__
#else
#define NVSHMEM_OUTLINED GIC_DEVICE
#endif
#ifndef NVSHMEM_PUT // nvshmem_cuda.cu: for a workload that times nothing
#define NVSHMEM_PUT GIC_DEVICE
#endif

template <nvshmem_level L, uint32_t LANES> struct nvshmem_handle : nvshmem_shared {
    uint32_t lanes;
    class Agent;
};

template <nvshmem_level L, uint32_t LANES> class nvshmem_handle<L, LANES>::Agent {
    static constexpr bool warp = LANES == 32, block = LANES > 32;

  public:
    GIC_DEVICE Agent(const nvshmem_handle &h, const gic::Self &self) : h_(h), lane_(self.lane) {}

    NVSHMEM_PUT int put(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes) {
        issued();
        if constexpr (L == nvshmem_level::INTERNAL)
            rma<NVSHMEMI_OP_PUT>(at(dst), at(src), bytes, peer);
        else if constexpr (block)
            nvshmemx_putmem_nbi_block(at(dst), at(src), bytes, (int)peer);
        else if constexpr (warp)
            nvshmemx_putmem_nbi_warp(at(dst), at(src), bytes, (int)peer);
        else
            nvshmem_putmem_nbi(at(dst), at(src), bytes, (int)peer);
        return gic::OK;
    }
    template <class F> NVSHMEM_PUT int put_each(uint32_t peer, uint32_t n, F message) {
        issued();
        bool large = false;
        if (lane_ < n) {
            const gic::Message m = message(lane_);
            large = LANES > 1 && h_.mapped && m.bytes > 64;
            if (!large)
                put_one(peer, m);
        }
        if constexpr (LANES > 1)
            if (h_.mapped && any(large))
                copy_large(peer, n, message);
        sync();
        return gic::OK;
    }
    NVSHMEM_OUTLINED int put_value(uint32_t peer, uint64_t dst, uint64_t value, uint32_t bytes) {
        issued();
        int status = gic::OK;
        if (lane_ == 0)
            status = put_word(peer, dst, value, bytes);
        sync();
        return gic::broadcast(self(), status);
    }
    NVSHMEM_OUTLINED int signal(uint32_t peer, uint64_t sig, uint64_t add) {
        order_signal();
        issued_ = true;
        if (lane_ == 0)
            nvshmemx_signal_op(word(sig), add, NVSHMEM_SIGNAL_ADD, (int)peer);
        sync();
        return gic::OK;
    }
    NVSHMEM_OUTLINED int put_signal(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes, uint64_t sig,
                                    uint64_t add) {
        put_signal_add(peer, dst, src, bytes, sig, add);
        return gic::OK;
    }
    GIC_DEVICE int notify(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes, uint64_t sig,
                          uint64_t value) {
        if (bytes == 8)
            return put_value(peer, sig, value, 8);
        put_signal_add(peer, dst, src, bytes, sig, 1);
        return gic::OK;
    }
    NVSHMEM_OUTLINED int wait(uint64_t sig, uint64_t at_least) {
        int status = gic::OK;
        if (lane_ == 0)
            for (gic::Spin spin(h_.env); !nvshmem_uint64_test(word(sig), NVSHMEM_CMP_GE, at_least);)
                if ((status = spin.failed()) != gic::OK)
                    break;
        sync();
        return gic::broadcast(self(), status);
    }
    NVSHMEM_OUTLINED int get(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes) {
        issued(); // a fence orders it too
        if constexpr (L == nvshmem_level::INTERNAL)
            rma<NVSHMEMI_OP_GET>(at(src), at(dst), bytes, peer);
        else if constexpr (block)
            nvshmemx_getmem_nbi_block(at(dst), at(src), bytes, (int)peer);
        else if constexpr (warp)
            nvshmemx_getmem_nbi_warp(at(dst), at(src), bytes, (int)peer);
        else
            nvshmem_getmem_nbi(at(dst), at(src), bytes, (int)peer);
        return gic::OK;
    }
    NVSHMEM_OUTLINED int fetch_add(uint32_t peer, uint64_t off, uint64_t add, uint64_t *old_p) {
        uint64_t old = 0;
        if (lane_ == 0) {
            old = nvshmem_uint64_atomic_fetch_add(word(off), add, (int)peer);
            gic::arrived(old); // on path=p2p it is one atomic instruction
        }
        sync();
        *old_p = gic::broadcast(self(), old);
        return gic::OK;
    }
    NVSHMEM_OUTLINED int fence(uint32_t) {
        sync();
        if (lane_ == 0)
            nvshmem_fence();
        sync();
        puts_ = false;
        return gic::OK;
    }
    NVSHMEM_OUTLINED int flush(uint32_t peer) {
        if (L != nvshmem_level::INTERNAL || !h_.own_queue || peer == h_.rank)
            return quiet();
        sync();
        if (lane_ == 0)
            quiet_queue(peer);
        sync();
        return gic::OK;
    }
    NVSHMEM_OUTLINED int quiet() {
        sync();
        if (!issued_)
            return gic::OK;
        if (warp && h_.by_lanes)
            quiet_together();
        else if (lane_ == 0)
            quiet_all();
        sync();
        puts_ = issued_ = false;
        return gic::OK;
    }
    GIC_DEVICE int ring() { return gic::OK; }
    GIC_DEVICE void gpu_visible() { gic::fence_acq_rel<gic::Scope::system>(); }

  private:
    GIC_DEVICE gic::Self self() const { return gic::Self{0, 1, lane_, LANES}; }
    GIC_DEVICE void sync() const { gic::sync_lanes(self()); }
    GIC_DEVICE void *at(uint64_t offset) const { return h_.window + offset; }
    GIC_DEVICE uint64_t *word(uint64_t offset) const {
        return reinterpret_cast<uint64_t *>(h_.window + offset);
    }

    GIC_DEVICE void issued() { puts_ = issued_ = true; }
    // Of all lanes; each says the same of itself.
    static GIC_DEVICE bool any(bool mine) {
        return block ? __syncthreads_or(mine) != 0 : __any_sync(0xffffffffu, mine) != 0;
    }
    GIC_DEVICE void put_one(uint32_t peer, const gic::Message &m) const { // by this lane alone
        if constexpr (L == nvshmem_level::INTERNAL)
            rma_thread<NVSHMEMI_OP_PUT>(at(m.dst), at(m.src), m.bytes, peer);
        else
            nvshmem_putmem_nbi(at(m.dst), at(m.src), m.bytes, (int)peer);
    }
    template <class F> NVSHMEM_PUT void copy_large(uint32_t peer, uint32_t n, F message) {
        GIC_ROLLED
        for (uint32_t i = 0; i < n; i++) {
            const gic::Message m = message(i);
            if (m.bytes > 64)
                put(peer, m.dst, m.src, m.bytes);
        }
    }
    GIC_DEVICE void order_signal() {
        if (h_.fenced_signals && puts_)
            fence(0);
    }
    NVSHMEM_OUTLINED void put_signal_add(uint32_t peer, uint64_t dst, uint64_t src, uint32_t bytes,
                                         uint64_t sig, uint64_t add) {
        if constexpr (block)
            nvshmemx_putmem_signal_nbi_block(at(dst), at(src), bytes, word(sig), add, NVSHMEM_SIGNAL_ADD,
                                             (int)peer);
        else if constexpr (warp)
            nvshmemx_putmem_signal_nbi_warp(at(dst), at(src), bytes, word(sig), add, NVSHMEM_SIGNAL_ADD,
                                            (int)peer);
        else
            nvshmem_putmem_signal_nbi(at(dst), at(src), bytes, word(sig), add, NVSHMEM_SIGNAL_ADD, (int)peer);
        issued();
    }
    GIC_DEVICE int put_word(uint32_t peer, uint64_t dst, uint64_t value, uint32_t bytes) const {
        switch (bytes) {
        case 1:
            nvshmem_uint8_p((uint8_t *)at(dst), (uint8_t)value, (int)peer);
            return gic::OK;
        case 2:
            nvshmem_uint16_p((uint16_t *)at(dst), (uint16_t)value, (int)peer);
            return gic::OK;
        case 4:
            nvshmem_uint32_p((uint32_t *)at(dst), (uint32_t)value, (int)peer);
            return gic::OK;
        case 8:
            nvshmem_uint64_p(word(dst), value, (int)peer);
            return gic::OK;
        default:
            return gic::ERR_INVAL;
        }
    }
    static constexpr threadgroup_t GROUP = block  ? NVSHMEMI_THREADGROUP_BLOCK
                                           : warp ? NVSHMEMI_THREADGROUP_WARP
                                                  : NVSHMEMI_THREADGROUP_THREAD;
    // `remote` is the symmetric address of what lies at the peer.
    template <nvshmemi_op_t OP>
    GIC_DEVICE void rma(void *remote, void *local, uint32_t bytes, uint32_t peer) const {
        if (peer != h_.rank) {
            internal_rma<GROUP, OP>(remote, local, bytes, peer);
            return;
        }
        sync();
        if (lane_ == 0)
            own_copy<OP>(remote, local, bytes);
        sync();
    }
    template <nvshmemi_op_t OP>
    GIC_DEVICE void rma_thread(void *remote, void *local, uint32_t bytes, uint32_t peer) const {
        if (peer != h_.rank)
            internal_rma<NVSHMEMI_THREADGROUP_THREAD, OP>(remote, local, bytes, peer);
        else
            own_copy<OP>(remote, local, bytes);
    }
    template <nvshmemi_op_t OP> GIC_DEVICE static void own_copy(void *remote, void *local, uint32_t bytes) {
        gic::copy(OP == NVSHMEMI_OP_PUT ? remote : local, OP == NVSHMEMI_OP_PUT ? local : remote, bytes);
    }

    // All lanes. Lane 0's fence inside covers what it has seen; what the others have seen their own must.
    GIC_DEVICE static void quiet_together() {
        if constexpr (warp) {
            nvshmemi_transfer_quiet<NVSHMEMI_THREADGROUP_WARP>(true);
            gic::fence_acq_rel<gic::Scope::system>();
        }
    }

    // Below the API there is something only where the library's code is compiled into the kernel.
#if defined(NVSHMEM_ENABLE_ALL_DEVICE_INLINING)
    template <threadgroup_t SCOPE, nvshmemi_op_t OP>
    GIC_DEVICE static void internal_rma(void *remote, void *local, uint32_t bytes, uint32_t peer) {
        nvshmemi_ibgda_rma_nbi<SCOPE, OP>(remote, local, bytes, (int)peer);
    }
    GIC_DEVICE static void quiet_queue(uint32_t peer) {
        bool shared;
        ibgda_quiet(ibgda_get_qp((int)peer, &shared));
    }
    GIC_DEVICE static void quiet_all() {
        if constexpr (L == nvshmem_level::INTERNAL)
            nvshmemi_ibgda_quiet<NVSHMEMI_THREADGROUP_THREAD>();
        else
            nvshmem_quiet();
    }
#else
    static_assert(L == nvshmem_level::PUBLIC, "the other levels need the library's device code inlined");
    template <threadgroup_t SCOPE, nvshmemi_op_t OP>
    GIC_DEVICE static void internal_rma(void *, void *, uint32_t, uint32_t) {}
    GIC_DEVICE static void quiet_queue(uint32_t) {}
    GIC_DEVICE static void quiet_all() { nvshmem_quiet(); }
#endif

    const nvshmem_handle &h_;
    uint32_t lane_;
    bool puts_ = false;   // since the last fence or quiet
    bool issued_ = false; // since the last quiet
};

#else

// For the host compiler, which only passes handles on to the launches.
template <nvshmem_level L, uint32_t LANES> struct nvshmem_handle : nvshmem_shared {
    uint32_t lanes;

    class Agent {
      public:
        GIC_DEVICE Agent(const nvshmem_handle &, const gic::Self &) {}
        GIC_DEVICE int put(uint32_t, uint64_t, uint64_t, uint32_t) { return gic::ERR_NOTSUP; }
        template <class F> GIC_DEVICE int put_each(uint32_t, uint32_t, F) { return gic::ERR_NOTSUP; }
        GIC_DEVICE int put_value(uint32_t, uint64_t, uint64_t, uint32_t) { return gic::ERR_NOTSUP; }
        GIC_DEVICE int signal(uint32_t, uint64_t, uint64_t) { return gic::ERR_NOTSUP; }
        GIC_DEVICE int put_signal(uint32_t, uint64_t, uint64_t, uint32_t, uint64_t, uint64_t) {
            return gic::ERR_NOTSUP;
        }
        GIC_DEVICE int notify(uint32_t, uint64_t, uint64_t, uint32_t, uint64_t, uint64_t) {
            return gic::ERR_NOTSUP;
        }
        GIC_DEVICE int wait(uint64_t, uint64_t) { return gic::ERR_NOTSUP; }
        GIC_DEVICE int get(uint32_t, uint64_t, uint64_t, uint32_t) { return gic::ERR_NOTSUP; }
        GIC_DEVICE int fetch_add(uint32_t, uint64_t, uint64_t, uint64_t *) { return gic::ERR_NOTSUP; }
        GIC_DEVICE int fence(uint32_t) { return gic::ERR_NOTSUP; }
        GIC_DEVICE int flush(uint32_t) { return gic::ERR_NOTSUP; }
        GIC_DEVICE int quiet() { return gic::ERR_NOTSUP; }
        GIC_DEVICE int ring() { return gic::ERR_NOTSUP; }
        GIC_DEVICE void gpu_visible() {}
    };
};

#endif

#endif
