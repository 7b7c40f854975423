// The ranks' exchange: bytes and file descriptors, strangers, ranks that are late, gone, or make another call.
#include "backends/ncclgin/gin_test.h"

int ncclgin::Memory::open(const char *, std::unique_ptr<Memory> *) { return -ENOTSUP; }
int ncclgin::Relay::open(std::unique_ptr<Relay> *) { return -ENOTSUP; }

namespace {

using namespace ncclgin;
using namespace ncclgin_test;

constexpr uint64_t short_ns = 20000000;

struct Pair {
    std::unique_ptr<Listener> listener;
    Address first;
    std::unique_ptr<Group> group;
    int rank;

    explicit Pair(int rank_) : rank(rank_) {
        Address all[2];
        MUST(Listener::open(&listener));
        allgather(&rank, &listener->address(), all, sizeof all[0]);
        first = all[0];
    }
    int form(uint64_t timeout_ns) {
        return Group::form(*listener, first, (uint32_t)rank, 2, timeout_ns, &group);
    }
};

void check_exchange(int rank, const char *) {
    Pair p(rank);
    if (rank == 1) { // strangers: who does not know the cookie, and who is no rank
        Address guess = p.first;
        guess.cookie++;
        std::unique_ptr<Group> stranger;
        MUST(Group::form(*p.listener, guess, 1, 2, deadline_ns, &stranger));
        stranger.reset();
        MUST(Group::form(*p.listener, p.first, 2, 3, deadline_ns, &stranger));
    }
    MUST(p.form(deadline_ns));
    for (int call = 0; call < 3; call++) {
        // Of a memory file each, but not every time.
        const bool with_fd = call != 1 || rank == 0;
        const int fd = with_fd ? memfd_create("gic-test", MFD_CLOEXEC) : -1;
        const uint64_t mine = 100 * (uint64_t)(rank + 1) + (uint64_t)call;
        if (fd >= 0)
            MUST(write(fd, &mine, sizeof mine) != sizeof mine);
        uint64_t all[2] = {};
        std::vector<int> fds;
        MUST(p.group->gather(&mine, all, sizeof mine, fd, &fds));
        CHECK(all[0] == 100 + (uint64_t)call && all[1] == 200 + (uint64_t)call, "%llu %llu",
              (unsigned long long)all[0], (unsigned long long)all[1]);
        CHECK(fds.size() == 2 && fds[(size_t)rank] == -1, "the own descriptor has come back");
        const int theirs = fds[1 - (size_t)rank];
        CHECK((theirs >= 0) == (call != 1 || rank == 1), "descriptor %d in call %d", theirs, call);
        uint64_t in_file = 0;
        if (theirs >= 0) {
            CHECK(pread(theirs, &in_file, sizeof in_file, 0) == sizeof in_file && in_file == all[1 - rank],
                  "%llu in the peer's file", (unsigned long long)in_file);
            close(theirs);
        }
        if (fd >= 0)
            close(fd);
    }
    // One of them makes another call.
    char mine[16] = {}, all[32];
    CHECK(p.group->gather(mine, all, rank == 0 ? 8 : 16) != 0, "calls of two sizes");
    REFUSES(p.group->gather(mine, all, 8), "is gone");
}

void check_gone(int rank, const char *) {
    Pair p(rank);
    MUST(p.form(deadline_ns));
    char mine[8] = {}, all[16];
    if (rank == 1)
        p.group.reset();
    else
        REFUSES(p.group->gather(mine, all, 8), "it is gone");
    barrier(nullptr);
}

void check_late(int rank, const char *) {
    Pair p(rank);
    if (rank == 0)
        REFUSES(p.form(short_ns), "1 of 2 ranks did not connect in 20 ms");
    barrier(nullptr);
    if (rank == 0)
        p.listener.reset();
    barrier(nullptr);
    if (rank == 1)
        REFUSES(p.form(short_ns), "connect to rank 0");
}

void check_alone() {
    std::unique_ptr<Listener> l;
    std::unique_ptr<Group> g;
    MUST(Listener::open(&l));
    MUST(Group::form(*l, l->address(), 0, 1, deadline_ns, &g));
    uint64_t mine = 7, all = 0;
    MUST(g->gather(&mine, &all, sizeof mine));
    CHECK(all == 7, "%llu", (unsigned long long)all);
    REFUSES(Group::form(*l, l->address(), 0, 251, deadline_ns, &g), "at most 250");
}

} // namespace

int main() {
    make_shared();
    check_alone();
    int bad = failures;
    bad += in_pair("exchange", check_exchange);
    bad += in_pair("gone", check_gone);
    bad += in_pair("late", check_late);
    printf(bad ? "gin_group_test: %d failed\n" : "gin_group_test: ok\n", bad);
    return bad != 0;
}
