// How long an agent that waits for others does not look, in ns. The looks of all that wait delay whoever has to write
// the word they look at, out of proportion: on an H200 64 agents on multiprocessors of their own, who looked all the time,
// took 0.8 us a turn and 1.4 us a lock, 128 took 75 and 45.
#ifndef MINIGDA_GDA_NAP_CUH
#define MINIGDA_GDA_NAP_CUH

#include "backends/abi/device.cuh"

// So many turns before its own: less than they take (0.4 to 1.2 us each). A nap may last twice as long as asked for.
GIC_HD constexpr uint32_t gda_turn_nap(uint32_t turns) {
    return turns < 2 ? 0 : turns < 32 ? 150 * turns : turns < 256 ? 300 * turns - 4800 : 72000;
}
// After so many looks at a lock: not at first, when few are before it.
GIC_HD constexpr uint32_t gda_lock_nap(uint32_t looks) {
    return looks < 16 ? 0 : looks < 80 ? 200u << (looks / 16 - 1) : 3200;
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
