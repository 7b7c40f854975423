// The descriptor's bytes, and that no reader ever sees half of one.
#include "miniproxy/check.h"
#include "miniproxy/descriptor.cuh"

#include <string.h>

#include <set>
#include <thread>
#include <vector>

using namespace proxy;

namespace {

// Little-endian bytes, worked out by hand from the picture at the top of descriptor.cuh.
struct Row {
    const char *name;
    Fields fields;
    uint64_t phase;
    uint8_t bytes[16];
};
const Row kTable[] = {
    {"put",
     {Op::put, 3, 0x123456789a, 0xfedcba9876, 0x2345678, 0},
     1,
     {0x63, 0x00, 0x02, 0x9a, 0x78, 0x56, 0x34, 0x12, 0xf1, 0xac, 0x68, 0x76, 0x98, 0xba, 0xdc, 0xfe}},
    {"largest get",
     {Op::get, 1, 0xffffffffff, 0, 1u << 30, 0},
     0,
     {0x24, 0x00, 0x40, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0}},
    {"value with bit 63",
     {Op::value, 1023, 0, 0, 8, 0x8000000000000001},
     0,
     {0xe6, 0x7f, 0x84, 0, 0, 0, 0, 0, 0x02, 0, 0, 0, 0, 0, 0, 0}},
    {"signal",
     {Op::signal, 0, 8, 0, 8, 1},
     1,
     {0x09, 0x00, 0x04, 0x08, 0, 0, 0, 0, 0x03, 0, 0, 0, 0, 0, 0, 0}},
    {"fetch_add",
     {Op::fetch_add, 2, 16, 5, 8, 0},
     1,
     {0x4b, 0x00, 0x00, 0x10, 0, 0, 0, 0, 0x11, 0, 0, 0x05, 0, 0, 0, 0}},
    {"operand",
     {Op::operand, 0, 0, 0, 8, ~(uint64_t)0},
     1,
     {0x0d, 0x00, 0x84, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}},
    {"fence", {Op::fence, 4, 0, 0, 0, 0}, 0, {0x8e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
};

bool same(const Fields &a, const Fields &b) {
    return a.op == b.op && a.peer == b.peer && a.dst == b.dst && a.src == b.src && a.bytes == b.bytes &&
           a.value == b.value;
}

void test_bytes() {
    for (const Row &row : kTable) {
        for (int tuned = 0; tuned < 2; tuned++) {
            Descriptor d{}, seen{};
            tuned ? publish<Handoff::tuned>(&d, pack(row.fields), row.phase)
                  : publish<Handoff::baseline>(&d, pack(row.fields), row.phase);
            CHECK(memcmp(&d, row.bytes, 16) == 0, "%s: head %016llx tail %016llx", row.name,
                  (unsigned long long)d.head, (unsigned long long)d.tail);
            CHECK(take(&d, row.phase, &seen), "%s: not seen as valid", row.name);
            CHECK(!take(&d, row.phase ^ 1, &seen), "%s: valid in the other lap", row.name);
            CHECK(same(unpack(seen), row.fields), "%s: does not come back", row.name);
        }
    }
}

// Every single bit of every field survives, and no two fields share one.
void test_bits() {
    for (unsigned op = 1; op <= (unsigned)Op::fence; op++) {
        for (unsigned bit = 0; bit < 64; bit++) {
            bool imm = is_immediate((Op)op);
            Fields f[] = {
                {(Op)op, bit < PEER_BITS ? 1u << bit : 0, 0, 0, 0, 0},
                {(Op)op, 0, bit < OFFSET_BITS ? (uint64_t)1 << bit : 0, 0, 0, 0},
                {(Op)op, 0, 0, !imm && bit < OFFSET_BITS ? (uint64_t)1 << bit : 0, 0, 0},
                {(Op)op, 0, 0, 0, bit < (imm ? LEN_BITS : LEN_BITS + LENGTH_BITS) ? 1u << bit : 0, 0},
                {(Op)op, 0, 0, 0, 0, imm ? (uint64_t)1 << bit : 0},
            };
            for (const Fields &one : f) {
                Descriptor d = pack(one);
                CHECK((d.head & 1) == 0 && (d.tail & 1) == 0, "op %u bit %u: reaches the phase", op, bit);
                CHECK(same(unpack(d), one), "op %u bit %u: does not come back", op, bit);
            }
        }
    }
}

void test_phase() {
    // Zeroed memory is never valid in the first lap, and the parity turns exactly once per lap.
    Descriptor zero{}, d;
    CHECK(!take(&zero, phase_of(0, 6), &d), "zeroed memory is a descriptor");
    for (uint64_t i = 0; i < 1024; i++)
        CHECK(phase_of(i, 6) == ((i / 64) % 2 == 0 ? 1u : 0u), "index %llu", (unsigned long long)i);
    CHECK(phase_of((uint64_t)1 << 40, 6) == 1, "a high even lap");
}

// Explores every order in which a writer's half-stores can reach a reader that loads the halves one by one:
// the two stores of a descriptor in either order, those of different descriptors in any order, the reader's
// two loads with anything in between, over a ring of two slots and three laps. `accept` judges what was
// loaded. Returns how many different states were seen with a torn or stale descriptor accepted.
class Model {
  public:
    using Accept = bool (*)(const Descriptor &loaded, uint64_t phase);
    explicit Model(Accept accept) : accept_(accept) {}

    int run() {
        explore(State{});
        return torn_;
    }
    size_t states() const { return seen_.size(); }
    bool finished() const { return finished_; }

  private:
    static constexpr unsigned SHIFT = 1, SLOTS = 2, TOTAL = 6;
    struct State {
        uint8_t memory[SLOTS][2] = {}; // which descriptor each half is from, + 1
        uint8_t in_flight = 0;         // halves stored, not yet visible: bit 2 * slot + half
        uint8_t next = 0;              // descriptors the writer has stored
        uint8_t index = 0;             // descriptors the reader has taken
        uint8_t head = 0;              // what the reader loaded first, + 1 ...
        bool loaded = false;           // ... and whether it has
        bool operator<(const State &o) const { return memcmp(this, &o, sizeof *this) < 0; }
    };
    static_assert(sizeof(State) == 9, "compared bytewise");

    static uint64_t half(uint8_t version, int which) {
        if (version == 0)
            return 0;
        uint64_t n = version - 1;
        Descriptor d = pack(Fields{Op::value, (uint32_t)n, n, 0, 8, n});
        return (which == 0 ? d.head : d.tail) | phase_of(n, SHIFT);
    }

    void explore(State s) {
        if (!seen_.insert(s).second)
            return;
        finished_ |= s.index == TOTAL;
        // The writer stores the next descriptor when its slot has been consumed.
        unsigned slot = s.next % SLOTS;
        if (s.next < TOTAL && s.next < s.index + SLOTS) {
            State t = s;
            t.next++;
            t.in_flight |= (uint8_t)(3u << (2 * slot));
            // A half still in flight is overtaken by the newer store to the same place, as on any machine.
            explore(t);
        }
        // One half becomes visible.
        for (unsigned b = 0; b < 2 * SLOTS; b++) {
            if (!(s.in_flight >> b & 1))
                continue;
            State t = s;
            t.in_flight &= (uint8_t) ~(1u << b);
            unsigned newest = s.next - 1; // last descriptor stored to that slot
            if (newest % SLOTS != b / 2)
                newest--;
            t.memory[b / 2][b % 2] = (uint8_t)(newest + 1);
            explore(t);
        }
        read(s);
    }

    void read(State s) {
        unsigned slot = s.index % SLOTS;
        if (!s.loaded) {
            s.loaded = true;
            s.head = s.memory[slot][0];
            explore(s);
            return;
        }
        uint8_t tail = s.memory[slot][1];
        Descriptor d{half(s.head, 0), half(tail, 1)};
        if (accept_(d, phase_of(s.index, SHIFT))) {
            if (s.head != s.index + 1 || tail != s.index + 1)
                torn_++;
            else
                s.index++;
        }
        s.loaded = false;
        s.head = 0;
        explore(s);
    }

    Accept accept_;
    std::set<State> seen_;
    int torn_ = 0;
    bool finished_ = false;
};

void test_model() {
    Model both([](const Descriptor &d, uint64_t phase) {
        Descriptor seen;
        return take(&d, phase, &seen);
    });
    CHECK(both.run() == 0, "a torn or stale descriptor was taken");
    CHECK(both.finished() && both.states() > 100, "only %zu states", both.states());
    // The model can tell: a phase in one half alone is not enough, whichever half.
    Model head([](const Descriptor &d, uint64_t phase) { return (d.head & 1) == phase; });
    Model tail([](const Descriptor &d, uint64_t phase) { return (d.tail & 1) == phase; });
    CHECK(head.run() > 0 && tail.run() > 0, "the model does not see a torn descriptor");
}

// The same on this machine's memory: one writer, one reader, a ring of 64 slots.
template <Handoff F> void stress(uint64_t total) {
    constexpr unsigned SHIFT = 6;
    std::vector<Descriptor> ring((size_t)1 << SHIFT);
    alignas(64) uint64_t consumed = 0;
    auto fields = [](uint64_t n) {
        uint64_t v = n * 0x9e3779b97f4a7c15;
        return Fields{Op::value, (uint32_t)n % MAX_PEERS, v % MAX_OFFSET, 0, 8, v};
    };
    std::thread writer([&] {
        for (uint64_t n = 0; n < total; n++) {
            for (uint32_t polls = 0; gic::load_acquire(&consumed) + ring.size() <= n;)
                gic::pause(polls++);
            publish<F>(&ring[n % ring.size()], pack(fields(n)), phase_of(n, SHIFT));
        }
    });
    for (uint64_t n = 0; n < total; n++) {
        Descriptor d;
        for (uint32_t polls = 0; !take(&ring[n % ring.size()], phase_of(n, SHIFT), &d);)
            gic::pause(polls++);
        CHECK(same(unpack(d), fields(n)), "descriptor %llu is mixed", (unsigned long long)n);
        gic::store_release(&consumed, n + 1);
    }
    writer.join();
}

} // namespace

int main() {
    test_bytes();
    test_bits();
    test_phase();
    test_model();
    stress<Handoff::tuned>(200000);
    stress<Handoff::baseline>(200000);
    printf("ok\n");
    return 0;
}
