#include "backends/rawstore/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

namespace {

// Behind each window, for ceiling(). Pages that nobody touches cost nothing.
constexpr uint64_t spare = 8u << 20;

double now_ns() {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return 1e9 * (double)ts.tv_sec + (double)ts.tv_nsec;
}

class HostMemory final : public rawstore_memory {
  public:
    HostMemory(const gic::Ranks &ranks, const char *job) : ranks_(ranks), job_(job) {}
    ~HostMemory() override { drop(); }

    int window(uint64_t bytes) override {
        drop();
        bytes_ = bytes;
        mapped_ = spare_at() + spare;
        windows_.assign(ranks_.nranks, nullptr);
        int rc = ranks_.agree(map(ranks_.rank, O_CREAT | O_EXCL), "make the window");
        for (uint32_t r = 0; r < ranks_.nranks && rc == 0; r++)
            if (r != ranks_.rank)
                rc = map(r, 0);
        rc = ranks_.agree(rc, "map the windows");
        if (made_)
            shm_unlink(name(ranks_.rank).c_str()); // everybody has it, or never will
        made_ = false;
        if (rc)
            drop();
        return rc;
    }
    int write(uint64_t offset, const void *src, size_t bytes) override {
        memcpy(at(ranks_.rank) + offset, src, bytes);
        return 0;
    }
    int read(uint64_t offset, void *dst, size_t bytes) override {
        memcpy(dst, at(ranks_.rank) + offset, bytes);
        return 0;
    }
    int ceiling(uint32_t peer, uint64_t bytes, rawstore_ceiling *c) override {
        if (bytes > spare)
            return gic::fail(-ENOTSUP, "copies of %llu bytes: at most %llu", (unsigned long long)bytes,
                             (unsigned long long)spare);
        uint8_t *to = at(peer) + spare_at(), *from = at(ranks_.rank) + spare_at();
        memcpy(to, from, spare); // so that all pages are there
        const uint64_t places = spare / bytes, n = copies_of(bytes, spare);
        const double begin = now_ns();
        for (uint64_t i = 0; i < n; i++)
            memcpy(to + i % places * bytes, from + i % places * bytes, bytes);
        const double middle = now_ns();
        memcpy(to, from, spare);
        *c = {middle - begin, now_ns() - middle, n * bytes, spare};
        return 0;
    }
    bool bulk() const override { return false; }
    void facts(gic::Facts &f) const override {
        f.set("link", "host shared memory");
        f.set("window", "shm");
        f.set("copy_engine", "memcpy");
    }

  private:
    uint64_t spare_at() const { return (bytes_ + 4095) / 4096 * 4096; }
    std::string name(uint32_t r) const { return "/" + job_ + "-rawstore" + std::to_string(r); }
    int map(uint32_t r, int flags) {
        const int fd = shm_open(name(r).c_str(), O_RDWR | flags, 0600);
        if (fd < 0)
            return gic::fail(-errno, "window of rank %u: %s", r, strerror(errno));
        made_ |= flags != 0;
        int rc = flags && ftruncate(fd, (off_t)mapped_) != 0 ? -errno : 0;
        void *p = rc ? MAP_FAILED : mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (rc == 0 && p == MAP_FAILED)
            rc = -errno;
        close(fd);
        if (rc)
            return gic::fail(rc, "map %llu bytes of rank %u: %s", (unsigned long long)mapped_, r,
                             strerror(-rc));
        windows_[r] = static_cast<uint8_t *>(p);
        return 0;
    }
    void drop() {
        for (uint8_t *w : windows_)
            if (w)
                munmap(w, mapped_);
        windows_.clear();
        if (made_)
            shm_unlink(name(ranks_.rank).c_str());
        made_ = false;
        bytes_ = 0;
    }

    const gic::Ranks ranks_;
    const std::string job_;
    uint64_t mapped_ = 0;
    bool made_ = false; // and not unlinked
};

} // namespace

std::unique_ptr<rawstore_memory> rawstore_host_memory(const gic::Ranks &ranks, const char *job) {
    return std::make_unique<HostMemory>(ranks, job);
}
