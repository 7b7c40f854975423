// Runs the device half of every workload over the reference handle, on the inputs, and against the operations,
// windows and series, that the Go half wrote into workloads/*/testdata/*.case. Run from the repository's root.

#include <stdint.h>

#include <mutex>
#include <vector>

// What kernels wait for: gic::arrived().
static std::mutex arrivals_lock;
static std::vector<uint64_t> arrivals;
static void note_arrival(uint64_t value) {
    const std::lock_guard<std::mutex> hold(arrivals_lock);
    arrivals.push_back(value);
}
#define GIC_ARRIVED note_arrival

#include "backends/abi/check.h"
#include "reference_handle.cuh"

#include "backends/abi/driver.cuh"
#include "workloads/alltoall/alltoall.cuh"
#include "workloads/caller/caller.cuh"
#include "workloads/conform/conform.cuh"
#include "workloads/goodput/goodput.cuh"
#include "workloads/moe/moe.cuh"
#include "workloads/op/op.cuh"
#include "workloads/rate/rate.cuh"

#include <glob.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

namespace {

using Bytes = std::vector<uint8_t>;

struct RankCase {
    std::map<std::string, std::string> args;
    std::map<std::string, Bytes> blobs;
    std::vector<uint64_t> ops;
    uint64_t payload = 0;
    std::map<std::string, size_t> series;
    Bytes before, after;
};

struct Case {
    std::string path, workload;
    uint64_t window = 0;
    std::vector<RankCase> ranks;
};

Bytes from_hex(const std::string &text) {
    Bytes out(text.size() / 2);
    for (size_t i = 0; i < out.size(); i++)
        out[i] = (uint8_t)std::stoul(text.substr(2 * i, 2), nullptr, 16);
    return out;
}

void read_rank_line(const std::string &word, std::istringstream &in, RankCase *r) {
    std::string name, value;
    size_t offset = 0;
    if (word == "arg") {
        in >> name >> value;
        r->args[name] = value;
    } else if (word == "blob") {
        in >> name >> value;
        r->blobs[name] = from_hex(value);
    } else if (word == "ops") {
        for (uint64_t n; in >> n;)
            r->ops.push_back(n);
    } else if (word == "payload") {
        in >> r->payload;
    } else if (word == "series") {
        in >> name;
        in >> r->series[name];
    } else {
        in >> offset >> value;
        const Bytes piece = from_hex(value);
        if (word == "before") // "after" tells only the differences
            std::copy(piece.begin(), piece.end(), r->before.begin() + offset);
        std::copy(piece.begin(), piece.end(), r->after.begin() + offset);
    }
}

Case read_case(const std::string &path) {
    Case c;
    c.path = path;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        std::istringstream in(line);
        std::string word;
        in >> word;
        if (word == "workload") {
            in >> c.workload;
        } else if (word == "ranks") {
        } else if (word == "window") {
            in >> c.window;
        } else if (word == "rank") {
            c.ranks.emplace_back();
            c.ranks.back().before = c.ranks.back().after = Bytes(c.window);
        } else {
            read_rank_line(word, in, &c.ranks.back());
        }
    }
    return c;
}

struct Outcome {
    int status = 0;
    std::string error;
    std::map<std::string, size_t> series;
};

template <class W> Outcome run_rank(const ReferenceHandle &h, const RankCase &r) {
    std::vector<gic_kv> args;
    for (const auto &[key, value] : r.args)
        args.push_back(gic_kv{key.c_str(), value.c_str()});
    std::vector<gic_blob> blobs;
    for (const auto &[key, data] : r.blobs)
        blobs.push_back(gic_blob{key.c_str(), data.data(), data.size()});
    gic_run run{};
    run.struct_size = sizeof run;
    run.workload = W::name;
    run.args = args.data();
    run.arg_count = (uint32_t)args.size();
    run.blobs = blobs.data();
    run.blob_count = (uint32_t)blobs.size();
    gic::Results results;
    Outcome o;
    if ((o.status = gic::drive<W>(h, &run, results)) != 0) {
        o.error = gic::error_text();
        return o;
    }
    gic_result out{};
    results.publish(&out);
    for (uint32_t i = 0; i < out.series_count; i++)
        o.series[out.series[i].name] = out.series[i].count;
    return o;
}

Outcome run_rank(const std::string &workload, const ReferenceHandle &h, const RankCase &r) {
    if (workload == op_workload::name)
        return run_rank<op_workload>(h, r);
    if (workload == rate_workload::name)
        return run_rank<rate_workload>(h, r);
    if (workload == goodput_workload::name)
        return run_rank<goodput_workload>(h, r);
    if (workload == alltoall_workload::name)
        return run_rank<alltoall_workload>(h, r);
    if (workload == moe_workload::name)
        return run_rank<moe_workload>(h, r);
    if (workload == caller_workload::name)
        return run_rank<caller_workload>(h, r);
    if (workload == conform_workload::name)
        return run_rank<conform_workload>(h, r);
    return Outcome{-EINVAL, "no such workload", {}};
}

void check_rank(const Case &c, uint32_t lanes, uint32_t rank, const Outcome &o,
                const ReferenceFabric &fabric) {
    const RankCase &want = c.ranks[rank];
    const ReferenceFabric::Rank &got = fabric.ranks[rank];
    const std::string where = c.path + " lanes " + std::to_string(lanes) + " rank " + std::to_string(rank);
    CHECK(o.status == 0, "%s: status %d: %s", where.c_str(), o.status, o.error.c_str());
    CHECK(want.ops.size() == GIC_OP_COUNT, "%s: %zu counts", where.c_str(), want.ops.size());
    for (size_t op = 0; op < want.ops.size(); op++)
        CHECK(got.count[op] == want.ops[op], "%s: operation %zu: %llu, expected %llu", where.c_str(), op,
              (unsigned long long)got.count[op], (unsigned long long)want.ops[op]);
    CHECK(got.payload == want.payload, "%s: %llu payload bytes, expected %llu", where.c_str(),
          (unsigned long long)got.payload, (unsigned long long)want.payload);
    CHECK(o.series == want.series, "%s: other series than expected", where.c_str());
    for (uint64_t i = 0; i < c.window; i++)
        if (got.window[i] != want.after[i]) {
            CHECK(got.window[i] == want.after[i], "%s: window byte %llu: 0x%02x, expected 0x%02x",
                  where.c_str(), (unsigned long long)i, got.window[i], want.after[i]);
            break;
        }
}

void run_case(const Case &c, uint32_t lanes) {
    const uint32_t n = (uint32_t)c.ranks.size();
    ReferenceFabric fabric{std::vector<ReferenceFabric::Rank>(n), c.window};
    std::vector<gic::Arena> memory(n);
    for (uint32_t rank = 0; rank < n; rank++) {
        fabric.ranks[rank].window = memory[rank].array<uint8_t>(c.window);
        memcpy(fabric.ranks[rank].window, c.ranks[rank].before.data(), c.window);
    }
    const volatile uint32_t stop = 0;
    std::vector<Outcome> outcomes(n);
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < n; rank++)
        threads.emplace_back([&, rank] {
            const ReferenceHandle h{rank,  n,      fabric.ranks[rank].window, {&stop, 20000000000u},
                                    lanes, &fabric};
            outcomes[rank] = run_rank(c.workload, h, c.ranks[rank]);
        });
    for (std::thread &t : threads)
        t.join();
    for (uint32_t rank = 0; rank < n; rank++)
        check_rank(c, lanes, rank, outcomes[rank], fabric);
    // What a timed word returns is waited for. The clock's place no test of this machine can see.
    if (c.workload == op_workload::name)
        for (uint64_t old : fabric.ranks[0].fetched)
            CHECK(std::find(arrivals.begin(), arrivals.end(), old) != arrivals.end(),
                  "%s: nobody waits for the answer %llu of an atomic", c.path.c_str(),
                  (unsigned long long)old);
    arrivals.clear();
}

} // namespace

int main() {
    glob_t found{};
    if (glob("workloads/*/testdata/*.case", 0, nullptr, &found) != 0) {
        fprintf(stderr, "no workloads/*/testdata/*.case here: run from the repository's root\n");
        return 1;
    }
    std::map<std::string, int> seen;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        const Case c = read_case(found.gl_pathv[i]);
        seen[c.workload]++;
        for (uint32_t lanes : {1u, 2u}) {
            const auto threads = c.ranks[0].args.find("threads");
            if (threads != c.ranks[0].args.end() && std::stoul(threads->second) % lanes != 0)
                continue;
            run_case(c, lanes);
        }
    }
    globfree(&found);
    for (const char *name : {"op", "rate", "goodput", "alltoall", "moe", "caller", "conform"})
        CHECK(seen[name] > 0, "no case of %s", name);
    if (failures == 0)
        printf("ok\n");
    return failures != 0;
}
