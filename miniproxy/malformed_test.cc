// What a worker makes of descriptors that no correct device thread would write, and of a NIC that says no.
#include "miniproxy/test_bed.h"

using namespace proxy;

namespace {

constexpr Handoff F = Handoff::tuned;
using Agent = Handle<F>::Agent;
const Attr kAttr{4, 64, 2, 16, 220, false, false};
constexpr uint64_t W = Bed::WINDOW;

// Put a raw descriptor where ring `ring` expects its next one.
void hand_over(Handle<F> &h, uint32_t ring, Descriptor d) {
    uint64_t index = h.rings.producer[ring].head++;
    uint64_t slot = ((uint64_t)ring << h.rings.shift) + (index & (((uint64_t)1 << h.rings.shift) - 1));
    h.rings.open[ring] = 1;
    publish<F>(&h.rings.slots[slot], d, phase_of(index, h.rings.shift));
}
void hand_over(Handle<F> &h, uint32_t ring, const Fields &f) { hand_over(h, ring, pack(f)); }

struct Bad {
    Fields fields;
    const char *text;
};
const Bad kBad[] = {
    {{(Op)0, 0, 0, 0, 0, 0}, "operation 0: not one of 1..7, or an operand alone"},
    {{(Op)8, 0, 0, 0, 0, 0}, "operation 8: not one of 1..7, or an operand alone"},
    {{(Op)15, 0, 0, 0, 0, 0}, "operation 15: not one of 1..7, or an operand alone"},
    {{Op::operand, 0, 0, 0, 8, 1}, "operation 6: not one of 1..7, or an operand alone"},
    {{Op::put, 2, 0, 0, 8, 0}, "peer 2: there are 2 ranks"},
    {{Op::fence, 1023, 0, 0, 0, 0}, "peer 1023: there are 2 ranks"},
    {{Op::get, 1, 0, 0, (1u << 30) + 1, 0}, "1073741825 bytes: a get moves at most 1073741824"},
    {{Op::put, 1, W - 7, 0, 8, 0}, "offset 65529, 8 bytes: outside the peer's window of 65536 bytes"},
    {{Op::put, 1, 0, W, 8, 0}, "offset 65536, 8 bytes: outside this rank's window of 65536 bytes"},
    {{Op::put, 1, 0, 0, (uint32_t)W + 1, 0},
     "offset 0, 65537 bytes: outside the peer's window of 65536 bytes"},
    {{Op::get, 1, MAX_OFFSET - 1, 0, 8, 0},
     "offset 1099511627775, 8 bytes: outside this rank's window of 65536 bytes"},
    {{Op::get, 1, 0, W - 1, 2, 0}, "offset 65535, 2 bytes: outside the peer's window of 65536 bytes"},
    {{Op::value, 1, 0, 0, 3, 0}, "a value of 3 bytes: allowed are 1, 2, 4, 8"},
    {{Op::value, 1, 0, 0, 0, 0}, "a value of 0 bytes: allowed are 1, 2, 4, 8"},
    {{Op::value, 1, W - 3, 0, 4, 0}, "offset 65533, 4 bytes: outside the peer's window of 65536 bytes"},
    {{Op::signal, 1, 12, 0, 8, 1}, "an atomic at offset 12: not a multiple of 8"},
    {{Op::signal, 1, W, 0, 8, 1}, "offset 65536, 8 bytes: outside the peer's window of 65536 bytes"},
    {{Op::fetch_add, 1, 0, 4, 8, 0}, "result slot 4: there are 4"},
};

void test_malformed() {
    for (const Bad &bad : kBad) {
        Bed bed(2, kAttr, SOFTNIC_VIRTUAL);
        Handle<F> h = bed.handle<F>(0);
        std::vector<uint8_t> before(bed.window(0), bed.window(0) + W);
        // Ring 1: one good descriptor, the bad one, one more. Ring 3 has the same worker, ring 0 another.
        hand_over(h, 1, Fields{Op::value, 1, 0, 0, 8, 11});
        hand_over(h, 1, bad.fields);
        hand_over(h, 1,
                  bad.fields.op == Op::fetch_add ? Fields{Op::operand, 1, 0, 0, 8, 1}
                                                 : Fields{Op::value, 1, 8, 0, 8, 12});
        bed.pump(2);
        std::string want = std::string("ring 1, descriptor 1: ") + bad.text;
        CHECK(bed.host(0).error() == want, "said: %s\nwant: %s", bed.host(0).error().c_str(), want.c_str());
        CHECK(bed.word(1, 0) == 11 && bed.word(1, 8) == 0, "%s: before and after", bad.text);
        Agent broken(h, gic::Self{1, 4, 0, 1}), same(h, gic::Self{3, 4, 0, 1}),
            other(h, gic::Self{0, 4, 0, 1});
        for (int i = 0; i < 100; i++) { // more than the ring holds: nobody is kept waiting for room
            CHECK(broken.put_value(1, 8, 13, 8) == gic::OK, "a dropped put must not fail by itself");
            if (i % 16 == 0)
                bed.pump(2);
        }
        bed.pump(2);
        CHECK(broken.flush(1) == gic::ERR_IO && broken.quiet() == gic::ERR_IO, "%s: flush", bad.text);
        CHECK(same.put_value(1, 16, 14, 8) == gic::OK && other.put_value(1, 24, 15, 8) == gic::OK, "put");
        bed.pump(2);
        CHECK(same.flush(1) == gic::OK && other.flush(1) == gic::OK, "%s: the other rings", bad.text);
        CHECK(bed.word(1, 8) == 0 && bed.word(1, 16) == 14 && bed.word(1, 24) == 15, "%s", bad.text);
        CHECK(bed.host(0).drain(bed.env) == gic::ERR_IO, "drained");
        CHECK(memcmp(before.data(), bed.window(0), W) == 0, "%s: this rank's window", bad.text);
    }
}

void test_fetch_add_without_operand() {
    Bed bed(2, kAttr, SOFTNIC_VIRTUAL);
    Handle<F> h = bed.handle<F>(0);
    hand_over(h, 0, Fields{Op::fetch_add, 1, 0, 0, 8, 0});
    bed.pump(2);
    CHECK(bed.host(0).error().empty() && bed.host(0).stats().descriptors == 0, "half an operation was taken");
    hand_over(h, 0, Fields{Op::put, 1, 0, 0, 8, 0});
    bed.pump(2);
    CHECK(bed.host(0).error() ==
              "ring 0, descriptor 0: operation 1 behind a fetch_add: must be its operand (6)",
          "said: %s", bed.host(0).error().c_str());
}

// Random descriptors, valid phases: no crash (ASan watches), no byte outside the windows, no ring that hangs.
void test_random() {
    uint64_t x = 88172645463325252;
    auto random = [&] { return x ^= x << 13, x ^= x >> 7, x ^= x << 17; };
    for (uint32_t round = 0; round < 150; round++) {
        Bed bed(2, kAttr, SOFTNIC_VIRTUAL);
        Handle<F> h = bed.handle<F>(0);
        for (uint32_t i = 0; i < 48; i++) {
            Descriptor d{random() & ~(uint64_t)1, random() & ~(uint64_t)1};
            if (i % 4) { // mostly plausible ones, or the first one ends it
                d.head &= ~(uint64_t)0x7fc0 & ~((~(uint64_t)0 << (OFFSET_SHIFT + 15)));
                d.tail &= ((uint64_t)1 << (OFFSET_SHIFT + 15)) - 1;
            }
            if (i % 8 == 5) // at the window's end, of a rank too many
                d = pack(Fields{Op::put, (uint32_t)(random() % 16 / 7),
                                W - 8 - random() % 64 + random() % 33 / 32,
                                W - 8 - random() % 64 + random() % 33 / 32, 8, 0});
            hand_over(h, (uint32_t)(random() % 4), d);
        }
        bed.pump(2);
        for (uint32_t r = 0; r < 4; r++) {
            const Progress &p = h.rings.progress[r];
            uint64_t left = h.rings.producer[r].head - p.completed;
            CHECK(left <= 1, "round %u: ring %u keeps %llu descriptors", round, r, (unsigned long long)left);
        }
    }
}

// The peer has taken its window away: the NIC answers with an error CQE.
void test_error_cqe() {
    Bed bed(2, kAttr, SOFTNIC_VIRTUAL);
    Handle<F> h = bed.handle<F>(0);
    Agent a(h, gic::Self{0, 4, 0, 1}), b(h, gic::Self{1, 4, 0, 1}), self(h, gic::Self{2, 4, 0, 1});
    CHECK(a.put(1, 0, 0, 1024) == gic::OK, "put");
    bed.pump(2);
    CHECK(a.flush(1) == gic::OK, "flush");
    CHECK(softnic_mr_deregister(bed.fabric(1)->nic, bed.fabric(1)->window_key) == 0, "%s", softnic_error());
    for (int i = 0; i < 40; i++)
        CHECK(a.put(1, 0, 0, 1024) == gic::OK, "put");
    CHECK(self.put_value(0, 64, 5, 8) == gic::OK, "put"); // the same worker's QP to this rank is well
    bed.pump(2);
    CHECK(a.flush(1) == gic::ERR_IO, "flush after an error CQE");
    CHECK(bed.host(0).error().find("to rank 1: error CQE for WQE 1, syndrome 0x13") != std::string::npos,
          "said: %s", bed.host(0).error().c_str());
    CHECK(self.flush(0) == gic::OK && bed.word(0, 64) == 5, "another QP of this worker");
    // Who uses the broken QP next learns it too; the other worker has a QP of its own and its own error.
    CHECK(self.put_value(1, 0, 1, 8) == gic::OK && b.put_value(1, 0, 1, 8) == gic::OK, "put");
    bed.pump(2);
    CHECK(self.flush(1) == gic::ERR_IO && b.flush(1) == gic::ERR_IO, "flush");
    uint64_t old;
    CHECK(a.fetch_add(0, 0, 1, &old) == gic::ERR_IO, "fetch_add on a ring that has been given up");
}

} // namespace

int main() {
    test_malformed();
    test_fetch_add_without_operand();
    test_random();
    test_error_cqe();
    printf("ok\n");
    return 0;
}
