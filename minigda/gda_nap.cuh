// How long an agent that waits for others does not look, in ns: a wait takes few looks, and who has to write the word that
// is looked at is not held up by them. (Looking all the time, 64 agents on multiprocessors of an H200 took 0.8 us a turn
// and 128 took 75: once in 256 looks each read the stop word, in host memory, of which a device reads three a microsecond.
// With these naps 128 take 0.9; gic::Spin has since learned to look at the stop word less.)
#ifndef MINIGDA_GDA_NAP_CUH
#define MINIGDA_GDA_NAP_CUH

#include "backends/abi/device.cuh"

// So many turns before its own: less than they take (0.4 to 1.2 us each). A nap may last twice as long as asked for.
GIC_HD constexpr uint32_t gda_turn_nap(uint32_t turns) {
    return turns < 2 ? 0 : turns < 256 ? 150 * turns : 38400;
}
// After so many looks at a lock: not at first, when few are before it.
GIC_HD constexpr uint32_t gda_lock_nap(uint32_t looks) {
    return looks < 64 ? 0 : looks < 256 ? 200u << (looks / 64 - 1) : 1600;
}
// Within a block a look is at the multiprocessor's own memory and holds nobody up: a turn is waited for without naps (with
// 20 ns a turn, 16 warps took 254 cycles a turn and not 281, but the lanes of a warp 926 and not 575: who naps keeps the
// others of its warp), and who waits for a lock naps soon, and briefly (lanes 770 cycles a post and not 880, 32 warps 826
// and not 785).
GIC_HD constexpr uint32_t gda_block_lock_nap(uint32_t looks) { return looks < 8 ? 0 : 100; }
// So many looks before a wait within a block pauses and asks whether to give up.
GIC_HD constexpr uint32_t gda_block_looks() {
#if defined(__CUDACC__)
    return 64;
#else
    return 1; // threads of this machine have to let others run
#endif
}
// The NIC has so many blocks to take before the one that is waited for: less than half of what that lasts.
GIC_HD constexpr uint32_t gda_room_nap(uint32_t blocks) {
    return blocks < 8 ? 0 : blocks < 64 ? 15 * blocks : 960;
}

GIC_DEVICE void gda_nap(uint32_t ns) {
#if defined(__CUDACC__)
    if (ns)
        __nanosleep(ns);
#else
    (void)ns; // gic::pause yields
#endif
}

#endif
