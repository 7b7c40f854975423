// How a launch's agents and their lanes share rows, channels and columns: every unit is somebody's, and nobody else's,
// for few rows and many agents as for the opposite. The lanes are a GPU's; here one thread is all of them in turn.
#include "backends/abi/check.h"
#include "backends/abi/driver.cuh"
#include "workloads/moe/moe.cuh"
#include "workloads/window/window.cuh"

#include <algorithm>

namespace {

constexpr uint32_t agent_counts[] = {1, 2, 3, 7, 128, 132, 1024, 2048};
constexpr uint32_t lane_counts[] = {1, 5, 32, 64, 128, 1024};
constexpr uint32_t row_counts[] = {0, 1, 2, 8, 64, 129};
// Elements of a row: the smallest, one beyond a piece, those of the published models.
constexpr uint32_t widths[] = {8, 264, 2880, 4096, 7168};

// Each (row, unit) by the same steps as the kernel's loops over a sum or a local copy.
void check_units(uint32_t agents, uint32_t lanes, uint32_t rows, uint32_t units, uint32_t piece,
                 const char *what) {
    std::vector<uint8_t> seen((size_t)rows * units);
    uint32_t most = 0, least = UINT32_MAX;
    for (uint32_t agent = 0; agent < agents; agent++) {
        uint32_t mine = 0;
        for (gic::Pieces p(rows, (units + piece - 1) / piece, agent, agents); p.more(); p.next(), mine++)
            for (uint32_t lane = 0; lane < lanes; lane++)
                for (uint32_t u = p.part * piece + lane; u < std::min((p.part + 1) * piece, units);
                     u += lanes)
                    seen[(size_t)p.row * units + u]++;
        most = std::max(most, mine);
        least = std::min(least, mine);
    }
    const bool once = std::all_of(seen.begin(), seen.end(), [](uint8_t n) { return n == 1; });
    CHECK(once, "%s: %u agents of %u lanes, %u rows of %u units: not each once", what, agents, lanes, rows,
          units);
    CHECK(most - least <= 1, "%s: %u agents, %u rows of %u units: one has %u pieces, another %u", what,
          agents, rows, units, most, least);
}

void check_channels(uint32_t channels, uint32_t agents, uint32_t want, const std::vector<uint32_t> &rows) {
    const moe_workload::Shares shares(channels, agents, want);
    std::vector<std::vector<uint8_t>> seen(channels);
    std::vector<uint32_t> members(channels);
    for (uint32_t c = 0; c < channels; c++)
        seen[c].resize(rows[c]);
    for (uint32_t agent = 0; agent < agents; agent++)
        for (uint32_t s = agent; s < shares.count(); s += agents) {
            const uint32_t c = shares.channel(s);
            const moe_workload::Share mine = shares.of(s, rows[c]);
            if (mine.members == 0)
                continue;
            members[c]++;
            CHECK(mine.members == (rows[c] ? std::min(rows[c], shares.each) : 1),
                  "channel %u of %u rows: %u members", c, rows[c], mine.members);
            CHECK(mine.begin < mine.end || rows[c] == 0, "channel %u of %u rows: a member without one", c,
                  rows[c]);
            for (uint32_t r = mine.begin; r < mine.end; r++)
                seen[c][r]++;
        }
    for (uint32_t c = 0; c < channels; c++) {
        CHECK(members[c] == (rows[c] ? std::min(rows[c], shares.each) : 1),
              "%u channels, %u agents, want %u: channel %u of %u rows has %u members", channels, agents, want,
              c, rows[c], members[c]);
        CHECK(std::all_of(seen[c].begin(), seen[c].end(), [](uint8_t n) { return n == 1; }),
              "%u channels, %u agents, want %u: channel %u: not each row once", channels, agents, want, c);
    }
}

// copy_units as a GPU's lanes would run it, one after the other, over ranges that end within a round of loads.
void check_copies() {
    for (uint32_t lanes : lane_counts)
        for (uint32_t units : {1u, 7u, 255u, 256u, 896u}) {
            alignas(16) static uint8_t from[(896 + 2) * 16], to[sizeof from];
            for (size_t i = 0; i < sizeof from; i++)
                from[i] = (uint8_t)(i * 37 + i / 251);
            std::fill(std::begin(to), std::end(to), (uint8_t)0);
            for (uint32_t lane = 0; lane < lanes; lane++)
                gic::copy_units(to, from, 1, 1 + units, lane, lanes);
            const size_t end = (size_t)(1 + units) * 16;
            CHECK(std::equal(to + 16, to + end, from + 16), "copy of %u units by %u lanes", units, lanes);
            CHECK(std::all_of(to, to + 16, [](uint8_t b) { return b == 0; }) &&
                      std::all_of(to + end, std::end(to), [](uint8_t b) { return b == 0; }),
                  "copy of %u units by %u lanes: bytes beside them", units, lanes);
        }
}

// A copy that all agents share: sizes that end within a unit and a word, and areas that are no multiple of 16 apart.
void check_shared_copies() {
    struct {
        uint8_t *window;
    } h;
    for (uint32_t agents : {1u, 2u, 7u})
        for (uint32_t bytes : {0u, 1u, 8u, 17u, 4096u, 4103u, 9000u})
            for (uint32_t dst : {9216u, 9224u}) {
                alignas(16) uint8_t window[2 * 9216 + 64];
                for (uint32_t i = 0; i < sizeof window; i++)
                    window[i] = i < 9216 ? (uint8_t)(i * 31 + i / 241) : 0;
                h.window = window;
                for (uint32_t agent = 0; agent < agents; agent++)
                    gic::copy_shared(h, gic::Self{agent, agents, 0, 1}, dst, 0, bytes);
                CHECK(std::equal(window, window + bytes, window + dst),
                      "shared copy of %u bytes by %u agents to %u", bytes, agents, dst);
                CHECK(
                    std::all_of(window + 9216, window + dst, [](uint8_t b) { return b == 0; }) &&
                        std::all_of(window + dst + bytes, std::end(window), [](uint8_t b) { return b == 0; }),
                    "shared copy of %u bytes by %u agents to %u: bytes beside them", bytes, agents, dst);
            }
}

} // namespace

int main() {
    for (uint32_t agents : agent_counts)
        for (uint32_t lanes : lane_counts)
            for (uint32_t rows : row_counts)
                for (uint32_t hidden : widths) {
                    const uint32_t units = hidden / moe_workload::COLUMNS;
                    check_units(agents, lanes, rows, units, moe_workload::weigh_units(lanes), "sums");
                    check_units(agents, lanes, rows, units, gic::piece_units(lanes, 8), "copies");
                }
    for (uint32_t channels : {0u, 1u, 2u, 7u, 128u, 224u})
        for (uint32_t agents : agent_counts)
            for (uint32_t want : {0u, 1u, 3u, 64u}) {
                std::vector<uint32_t> rows(channels);
                for (uint32_t most : {0u, 1u, 5u, 200u}) {
                    for (uint32_t c = 0; c < channels; c++)
                        rows[c] = most ? (c * 7 + 3) % (most + 1) : 0;
                    check_channels(channels, agents, want, rows);
                }
            }
    check_copies();
    check_shared_copies();
    if (failures == 0)
        printf("ok\n");
    return failures != 0;
}
