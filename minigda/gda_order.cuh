// The announcement of posted WQEs, by rung of the paper's Table 4: order, doorbell record, order, doorbell.
//
// Two parties: this thread, which wrote WQEs (and payload), and the NIC, which takes the new index from the
// doorbell or from the doorbell record and then reads the WQEs. Without the first order the NIC may read a
// WQE that is still the previous lap's; without the second it may see a doorbell before the record.
//
//   rung           between WQE and DBR       DBR       between DBR and doorbell   doorbell
//   none           -                         relaxed   -                          relaxed
//   gpu-fence      acq_rel fence, device     relaxed   -                          relaxed
//   gpu-fence+dbr  acq_rel fence, device     relaxed   acq_rel fence, device      relaxed
//   gpu-release    -                         release, device   -                  release, device
//   threadfence    __threadfence()           relaxed   __threadfence()            relaxed
//   sys-release    -                         release, system   -                  release, system
//   sys-fence      seq_cst fence, system     relaxed   seq_cst fence, system      relaxed
//
// On the host (device=host) the nearest C++11 order is used. There is one scope, and:
//
//   rung           C++11                               x86-64
//   none           relaxed stores                      free; the engine must be held (gda_gate)
//   gpu-fence      fence(acq_rel), release doorbell    free: TSO keeps stores in order
//   gpu-fence+dbr  two fence(acq_rel)                  free
//   gpu-release    two release stores                  free
//   threadfence    two fence(seq_cst)                  two full fences (locked instruction, drains the store
//   buffer) sys-release    two release stores                  free sys-fence      two fence(seq_cst) two
//   full fences
//
// gpu-fence leaves record and doorbell unordered: hardware takes the index from the doorbell, so that is
// enough there. softnic with watch=bell takes it from the record; on the host the doorbell is therefore a
// release store (free on x86, stlr on Arm), and device code over softnic uses watch=dbr.
#ifndef MINIGDA_GDA_ORDER_CUH
#define MINIGDA_GDA_ORDER_CUH

#include "minigda/gda_wqe.cuh"

// Announces that blocks below `next` are posted.
template <gda_order O>
GIC_DEVICE void gda_announce(uint32_t *dbr, uint64_t *bell, uint32_t next, uint32_t qpn_word) {
    using gic::Scope;
    const uint32_t record = gda_record(next);
    const uint64_t door = gda_door(next, qpn_word);
    if constexpr (O == gda_order::none) {
        gic::store_relaxed(dbr, record);
        gic::store_relaxed(bell, door);
    } else if constexpr (O == gda_order::gpu_fence) {
        gic::fence_acq_rel<Scope::device>();
        gic::store_relaxed(dbr, record);
#if defined(__CUDACC__)
        gic::store_relaxed(bell, door);
#else
        gic::store_release(bell, door);
#endif
    } else if constexpr (O == gda_order::gpu_fence_dbr) {
        gic::fence_acq_rel<Scope::device>();
        gic::store_relaxed(dbr, record);
        gic::fence_acq_rel<Scope::device>();
        gic::store_relaxed(bell, door);
    } else if constexpr (O == gda_order::gpu_release) {
        gic::store_release<Scope::device>(dbr, record);
        gic::store_release<Scope::device>(bell, door);
    } else if constexpr (O == gda_order::threadfence) {
        gic::fence_seq_cst<Scope::device>();
        gic::store_relaxed(dbr, record);
        gic::fence_seq_cst<Scope::device>();
        gic::store_relaxed(bell, door);
    } else if constexpr (O == gda_order::sys_release) {
        gic::store_release<Scope::system>(dbr, record);
        gic::store_release<Scope::system>(bell, door);
    } else {
        static_assert(O == gda_order::sys_fence, "every rung is above");
        gic::fence_seq_cst<Scope::system>();
        gic::store_relaxed(dbr, record);
        gic::fence_seq_cst<Scope::system>();
        gic::store_relaxed(bell, door);
    }
}

// The rung looked at when announcing, where a branch and a call are nothing beside what else an announcement takes.
struct gda_cold_order {
    GIC_COLD static void announce(gda_order order, uint32_t *dbr, uint64_t *bell, uint32_t next,
                                  uint32_t qpn_word) {
        switch (order) {
        case gda_order::none:
            return gda_announce<gda_order::none>(dbr, bell, next, qpn_word);
        case gda_order::gpu_fence:
            return gda_announce<gda_order::gpu_fence>(dbr, bell, next, qpn_word);
        case gda_order::gpu_fence_dbr:
            return gda_announce<gda_order::gpu_fence_dbr>(dbr, bell, next, qpn_word);
        case gda_order::gpu_release:
            return gda_announce<gda_order::gpu_release>(dbr, bell, next, qpn_word);
        case gda_order::threadfence:
            return gda_announce<gda_order::threadfence>(dbr, bell, next, qpn_word);
        case gda_order::sys_release:
            return gda_announce<gda_order::sys_release>(dbr, bell, next, qpn_word);
        default:
            return gda_announce<gda_order::sys_fence>(dbr, bell, next, qpn_word);
        }
    }
};

// While an instance lives, the NIC serves this rank's queues although it is held otherwise (`gate` not nullptr).
class gda_gate_pass {
  public:
    GIC_DEVICE gda_gate_pass(gda_gate *gate, const gic::Env &env) : gate_(gate), env_(env) {
        if (gate_) {
            gic::fence_seq_cst<gic::Scope::system>(); // all that was posted so far, in order or not
            gic::fetch_add<gic::Scope::system>(&gate_->want, 1u);
        }
    }
    gda_gate_pass(const gda_gate_pass &) = delete;
    // The next post must find the NIC held, unless another agent keeps it running.
    GIC_DEVICE ~gda_gate_pass() {
        if (!gate_)
            return;
        gic::fetch_add<gic::Scope::system>(&gate_->want, (uint32_t)-1);
        gic::fence_seq_cst<gic::Scope::system>(); // the host stores held, then looks at want: one of us sees
                                                  // it
        for (gic::Spin spin(env_); !gic::load_acquire(&gate_->held) && gic::load_acquire(&gate_->want) == 0;)
            if (spin.failed() != gic::OK)
                return;
    }

  private:
    gda_gate *gate_;
    gic::Env env_;
};

#endif
