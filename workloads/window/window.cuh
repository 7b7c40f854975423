// Local moves of window bytes by the threads of a launch, and how its agents share rows of bytes.
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

// What a lane loads and stores at once, aligned to its size.
struct alignas(16) Unit {
    uint32_t w[4];
};

GIC_DEVICE Unit load_unit(const uint8_t *at) {
    Unit u;
    copy(&u, __builtin_assume_aligned(at, sizeof u), sizeof u);
    return u;
}
GIC_DEVICE void store_unit(uint8_t *at, const Unit &u) {
    copy(__builtin_assume_aligned(at, sizeof u), &u, sizeof u);
}

// Rows shared among `step` workers, each row in `per_row` pieces: worker `first` takes the pieces first, first + step,
// ... of all, counted row by row. However few rows there are, neighbouring pieces are different workers'.
struct Pieces {
    uint32_t row, part;

    GIC_HD Pieces(uint32_t rows, uint32_t per_row, uint32_t first, uint32_t step)
        : row(first / per_row), part(first % per_row), rows_(rows), per_row_(per_row),
          step_rows_(step / per_row), step_parts_(step % per_row) {}
    GIC_HD bool more() const { return row < rows_; }
    GIC_HD void next() { // without a division
        row += step_rows_;
        part += step_parts_;
        if (part >= per_row_) {
            part -= per_row_;
            row++;
        }
    }

  private:
    uint32_t rows_, per_row_, step_rows_, step_parts_;
};

// Units of a piece for an agent of so many lanes: `deep` for each lane, but for few lanes enough that what a piece costs
// by itself is spread over something.
GIC_HD constexpr uint32_t piece_units(uint32_t lanes, uint32_t deep) {
    return lanes * deep > 256 ? lanes * deep : 256;
}

// One lane's share of units [begin, end) of a move; all loads of a round are under way before its first store.
template <uint32_t DEEP = 8>
GIC_DEVICE void copy_units(uint8_t *to, const uint8_t *from, uint64_t begin, uint64_t end, uint32_t lane,
                           uint32_t lanes) {
    GIC_ROLLED
    for (uint64_t i = begin + lane; i < end; i += (uint64_t)lanes * DEEP) {
        Unit u[DEEP];
        GIC_UNROLLED
        for (uint32_t k = 0; k < DEEP; k++)
            if (i + (uint64_t)k * lanes < end)
                u[k] = load_unit(from + sizeof(Unit) * (i + (uint64_t)k * lanes));
        GIC_UNROLLED
        for (uint32_t k = 0; k < DEEP; k++)
            if (i + (uint64_t)k * lanes < end)
                store_unit(to + sizeof(Unit) * (i + (uint64_t)k * lanes), u[k]);
    }
}

// The agents of a launch copy within their own window, a piece each in turn; both offsets are multiples of 8.
template <class H>
GIC_DEVICE void copy_shared(const H &h, const Self &self, uint64_t dst, uint64_t src, uint64_t bytes) {
    uint8_t *to = h.window + dst;
    const uint8_t *from = h.window + src;
    uint64_t done = 0;
    if ((((uintptr_t)to | (uintptr_t)from) & (sizeof(Unit) - 1)) == 0) {
        const uint64_t units = bytes / sizeof(Unit);
        const uint32_t piece = piece_units(self.lanes, 8);
        GIC_ROLLED
        for (uint64_t at = (uint64_t)self.agent * piece; at < units; at += (uint64_t)self.agents * piece)
            copy_units(to, from, at, at + piece < units ? at + piece : units, lane_first(self),
                       lane_step(self));
        done = units * sizeof(Unit);
    }
    if (self.agent != 0)
        return;
    GIC_ROLLED
    for (uint64_t i = done / 8 + lane_first(self); i < bytes / 8; i += lane_step(self))
        *(uint64_t *)(to + 8 * i) = *(const uint64_t *)(from + 8 * i);
    if (lane_first(self) == 0)
        copy(to + bytes / 8 * 8, from + bytes / 8 * 8, bytes % 8);
}

} // namespace gic

#endif
