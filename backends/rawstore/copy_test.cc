// The order of bulk copies on an engine that is as lazy as the hardware may be: a load fills its stage when it is waited
// for, a store reads its stage when it must, and whoever writes to a stage that is still to be read is found out.
#include "backends/abi/check.h"
#include "backends/rawstore/copy.cuh"

#include <stdio.h>

#include <deque>
#include <vector>

namespace {

struct Move {
    uint8_t *to;
    const uint8_t *from;
    uint32_t stage, bytes;
};

struct State {
    std::vector<std::vector<uint8_t>> stage;
    std::vector<uint32_t> phases; // ended, by stage
    std::deque<Move> loads, stores;
    uint32_t most_loads = 0;
    bool broken = false; // no load ever ends

    void read_one() {
        const Move m = stores.front();
        stores.pop_front();
        memcpy(m.to, stage[m.stage].data(), m.bytes);
    }
    bool busy(const std::deque<Move> &q, uint32_t s) const {
        for (const Move &m : q)
            if (m.stage == s)
                return true;
        return false;
    }
};

struct LazyEngine {
    State *s;
    uint32_t size;

    void wait_read() const {
        while (s->stores.size() > rawstore_stages - rawstore_ahead - 1)
            s->read_one();
    }
    void load(uint32_t stage, const uint8_t *from, uint32_t bytes) const {
        CHECK(stage < rawstore_stages && bytes > 0 && bytes <= size && bytes % 16 == 0,
              "a load of %u bytes into stage %u", bytes, stage);
        CHECK(!s->busy(s->stores, stage), "stage %u is loaded before its store has read it", stage);
        CHECK(!s->busy(s->loads, stage), "stage %u is loaded twice", stage);
        s->loads.push_back(Move{nullptr, from, stage, bytes});
        s->most_loads = std::max(s->most_loads, (uint32_t)s->loads.size());
    }
    bool loaded(uint32_t stage, uint32_t phase) const {
        if (s->broken)
            return false;
        CHECK(s->busy(s->loads, stage), "nothing is on its way to stage %u", stage);
        while (s->busy(s->loads, stage)) {
            const Move m = s->loads.front();
            s->loads.pop_front();
            memcpy(s->stage[m.stage].data(), m.from, m.bytes);
            s->phases[m.stage]++;
        }
        CHECK((s->phases[stage] - 1) % 2 == phase, "stage %u: phase %u ended, the wait is for parity %u",
              stage, s->phases[stage] - 1, phase);
        return true;
    }
    void store(uint8_t *to, uint32_t stage, uint32_t bytes) const {
        CHECK(!s->busy(s->loads, stage), "stage %u is stored before it is loaded", stage);
        s->stores.push_back(Move{to, nullptr, stage, bytes});
    }
};

State fresh(uint32_t size) {
    State s;
    s.stage.assign(rawstore_stages, std::vector<uint8_t>(size));
    s.phases.assign(rawstore_stages, 0);
    return s;
}

// Payloads one behind the other, without a completion in between.
void test_payloads(uint32_t size) {
    State s = fresh(size);
    const LazyEngine engine{&s, size};
    const std::vector<uint32_t> sizes = {16,       size,     size - 16, size + 16,     3 * size,
                                         6 * size, 7 * size, 32,        13 * size + 48};
    std::vector<std::vector<uint8_t>> from, to;
    uint32_t chunks = 0, want = 0;
    for (uint32_t round = 0; round < 3; round++)
        for (uint32_t bytes : sizes) {
            from.emplace_back(bytes);
            for (uint32_t i = 0; i < bytes; i++)
                from.back()[i] = (uint8_t)(i * 7 + i / 251 + from.size());
            to.emplace_back(bytes);
        }
    for (size_t i = 0; i < from.size(); i++) {
        const uint32_t bytes = (uint32_t)from[i].size();
        chunks = rawstore_pipeline(engine, to[i].data(), from[i].data(), bytes, chunks);
        want += (bytes + size - 1) / size;
        CHECK(chunks == want, "%u chunks after payload %zu, want %u", chunks, i, want);
        CHECK(s.loads.empty(), "%zu loads are left under way", s.loads.size());
    }
    while (!s.stores.empty())
        s.read_one();
    for (size_t i = 0; i < from.size(); i++)
        CHECK(from[i] == to[i], "payload %zu of %zu bytes, %u to a stage, came out wrong", i, from[i].size(),
              size);
    CHECK(s.most_loads == rawstore_ahead || s.most_loads == rawstore_ahead + 1, "at most %u loads at once",
          s.most_loads);
}

void test_load_that_never_ends() {
    State s = fresh(128);
    s.broken = true;
    std::vector<uint8_t> from(512), to(512);
    const uint32_t got = rawstore_pipeline(LazyEngine{&s, 128}, to.data(), from.data(), 512, 3);
    CHECK(got == rawstore_failed, "%u", got);
    CHECK(s.stores.empty(), "%zu stores of what was never loaded", s.stores.size());
}

} // namespace

int main() {
    for (uint32_t size : {32u, 128u, 7424u})
        test_payloads(size);
    test_load_that_never_ends();
    if (failures)
        return 1;
    printf("ok\n");
    return 0;
}
