// Local moves of window bytes by the threads of a launch.
#ifndef GIC_WORKLOADS_WINDOW_CUH
#define GIC_WORKLOADS_WINDOW_CUH

#include "../../backends/abi/device.cuh"

namespace gic {

// What unwritten target bytes hold; Filler of window.go.
constexpr uint64_t kFiller = 0xA5A5A5A5A5A5A5A5u;

// Puts filler back into [offset, offset + bytes), both multiples of 8; the agents share the work.
template <class H> GIC_DEVICE void refill(const H &h, const Self &self, uint64_t offset, uint64_t bytes) {
    const uint64_t step = (uint64_t)lane_step(self) * self.agents;
    for (uint64_t i = (uint64_t)self.agent * lane_step(self) + lane_first(self); i < bytes / 8; i += step)
        *(volatile uint64_t *)(h.window + offset + 8 * i) = kFiller;
}

// One agent copies within its own window; both offsets are multiples of 8.
template <class H>
GIC_DEVICE void copy_local(const H &h, const Self &self, uint64_t dst, uint64_t src, uint64_t bytes) {
    if (lane_step(self) == 1) {
        copy(h.window + dst, h.window + src, bytes);
        return;
    }
    for (uint64_t i = lane_first(self); i < bytes / 8; i += lane_step(self))
        *(uint64_t *)(h.window + dst + 8 * i) = *(const uint64_t *)(h.window + src + 8 * i);
    if (lane_first(self) == 0)
        copy(h.window + dst + bytes / 8 * 8, h.window + src + bytes / 8 * 8, bytes % 8);
}

} // namespace gic

#endif
