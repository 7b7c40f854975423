#include "backends/ncclgin/gin_group.h"

#include "backends/abi/driver.cuh"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace ncclgin {

namespace {

constexpr uint32_t max_ranks = 250; // file descriptors in one message (SCM_MAX_FD is 253)

// In front of what every message carries. `fds` bit r of word r / 64: one of rank r is attached, in the ranks' order.
struct Head {
    uint64_t cookie; // of the first message, else 0
    uint32_t rank, call;
    uint64_t bytes;
    uint64_t fds[(max_ranks + 63) / 64];
};

bool has_fd(const Head &h, uint32_t rank) { return h.fds[rank / 64] >> (rank % 64) & 1; }
void set_fd(Head *h, uint32_t rank) { h->fds[rank / 64] |= (uint64_t)1 << (rank % 64); }

uint64_t now_ns() {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

socklen_t unix_name(const char *name, struct sockaddr_un *un) {
    memset(un, 0, sizeof *un);
    un->sun_family = AF_UNIX;
    const size_t n = strnlen(name, sizeof(Address::name));
    memcpy(un->sun_path + 1, name, n);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

// Ready for `events` before the deadline?
int await(int fd, short events, uint64_t deadline_ns) {
    for (;;) {
        const uint64_t now = now_ns();
        if (now >= deadline_ns)
            return -ETIMEDOUT;
        struct pollfd p = {fd, events, 0};
        const uint64_t left_ms = (deadline_ns - now) / 1000000 + 1;
        const int n = poll(&p, 1, left_ms > 1000 ? 1000 : (int)left_ms);
        if (n > 0)
            return 0;
        if (n < 0 && errno != EINTR)
            return -errno;
    }
}

int send_message(int socket, const Head &head, const void *data, const std::vector<int> &fds,
                 uint64_t deadline_ns) {
    struct iovec io[2] = {{const_cast<Head *>(&head), sizeof head}, {const_cast<void *>(data), head.bytes}};
    struct msghdr m = {};
    std::vector<char> control(CMSG_SPACE(sizeof(int) * fds.size()));
    m.msg_iov = io;
    m.msg_iovlen = 2;
    if (!fds.empty()) {
        m.msg_control = control.data();
        m.msg_controllen = control.size();
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
        memcpy(CMSG_DATA(c), fds.data(), sizeof(int) * fds.size());
    }
    for (;;) {
        if (int rc = await(socket, POLLOUT, deadline_ns))
            return rc;
        const ssize_t n = sendmsg(socket, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n == (ssize_t)(sizeof head + head.bytes))
            return 0;
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return -errno;
    }
}

void close_all(std::vector<int> *fds) {
    for (int fd : *fds)
        if (fd >= 0)
            close(fd);
    fds->clear();
}

// -EPROTO: not a message of this kind.
int receive_message(int socket, Head *head, void *data, size_t bytes, std::vector<int> *fds,
                    uint64_t deadline_ns) {
    struct iovec io[2] = {{head, sizeof *head}, {data, bytes}};
    std::vector<char> control(CMSG_SPACE(sizeof(int) * max_ranks));
    ssize_t n = -1;
    struct msghdr m = {};
    do {
        if (int rc = await(socket, POLLIN, deadline_ns))
            return rc;
        m = {};
        m.msg_iov = io;
        m.msg_iovlen = 2;
        m.msg_control = control.data();
        m.msg_controllen = control.size();
        n = recvmsg(socket, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return -errno;
    } while (n < 0);
    fds->clear();
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
            fds->resize((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
            memcpy(fds->data(), CMSG_DATA(c), fds->size() * sizeof(int));
        }
    if (n == 0)
        return -ECONNRESET;
    if ((size_t)n != sizeof *head + bytes || head->bytes != bytes ||
        (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
        close_all(fds);
        return -EPROTO;
    }
    return 0;
}

const char *why(int rc) {
    return rc == -ECONNRESET || rc == -EPIPE ? "it is gone"
           : rc == -ETIMEDOUT                ? "no answer in time"
           : rc == -EPROTO                   ? "it makes another call"
                                             : strerror(-rc);
}

} // namespace

int Listener::open(std::unique_ptr<Listener> *listener_p) {
    std::unique_ptr<Listener> l(new Listener());
    uint64_t random[2] = {};
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return gic::fail(-EIO, "no random numbers: %s", strerror(errno));
    l->address_.cookie = random[0] | 1;
    snprintf(l->address_.name, sizeof l->address_.name, "gic-ncclgin-%016llx", (unsigned long long)random[1]);
    l->fd_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (l->fd_ < 0)
        return gic::fail(-errno, "make a socket: %s", strerror(errno));
    struct sockaddr_un un;
    const socklen_t length = unix_name(l->address_.name, &un);
    if (bind(l->fd_, (const struct sockaddr *)&un, length) != 0 || listen(l->fd_, (int)max_ranks) != 0)
        return gic::fail(-errno, "listen on a Unix socket: %s", strerror(errno));
    *listener_p = std::move(l);
    return 0;
}

Listener::~Listener() {
    if (fd_ >= 0)
        close(fd_);
}

Group::~Group() { give_up(); }

void Group::give_up() { close_all(&sockets_); }

int Group::form(const Listener &mine, const Address &first, uint32_t rank, uint32_t nranks,
                uint64_t timeout_ns, std::unique_ptr<Group> *group_p) {
    if (nranks > max_ranks)
        return gic::fail(-ENOTSUP, "a communicator of %u ranks: at most %u", nranks, max_ranks);
    std::unique_ptr<Group> g(new Group());
    g->rank_ = rank;
    g->nranks_ = nranks;
    g->timeout_ns_ = timeout_ns;
    if (int rc = nranks == 1 ? 0 : rank == 0 ? g->admit(mine, first.cookie) : g->join(first))
        return rc;
    *group_p = std::move(g);
    return 0;
}

// Rank 0: until everybody is there. A stranger is shown out and costs nobody's place.
int Group::admit(const Listener &mine, uint64_t cookie) {
    const uint64_t deadline = now_ns() + timeout_ns_;
    sockets_.assign(nranks_, -1);
    for (uint32_t here = 1; here < nranks_;) {
        if (await(mine.fd(), POLLIN, deadline) != 0)
            return gic::fail(-ETIMEDOUT, "%u of %u ranks did not connect in %llu ms", nranks_ - here, nranks_,
                             (unsigned long long)(timeout_ns_ / 1000000));
        const int fd = accept4(mine.fd(), nullptr, nullptr, SOCK_CLOEXEC);
        if (fd < 0)
            continue;
        Head hello;
        std::vector<int> fds;
        const int rc = receive_message(fd, &hello, nullptr, 0, &fds, deadline);
        close_all(&fds);
        if (rc || hello.cookie != cookie || hello.rank == 0 || hello.rank >= nranks_ ||
            sockets_[hello.rank] >= 0)
            close(fd);
        else
            sockets_[hello.rank] = fd, here++;
    }
    return 0;
}

int Group::join(const Address &first) {
    struct sockaddr_un un;
    const socklen_t length = unix_name(first.name, &un);
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return gic::fail(-errno, "make a socket: %s", strerror(errno));
    sockets_.assign(1, fd);
    if (connect(fd, (const struct sockaddr *)&un, length) != 0)
        return gic::fail(-errno,
                         "connect to rank 0 of the communicator: %s (ranks are to be on one host, in one "
                         "network namespace)",
                         strerror(errno));
    Head hello = {};
    hello.cookie = first.cookie;
    hello.rank = rank_;
    const int rc = send_message(fd, hello, nullptr, {}, now_ns() + timeout_ns_);
    return rc ? gic::fail(rc, "greet rank 0: %s", why(rc)) : 0;
}

int Group::failed(uint32_t rank, int rc) {
    give_up();
    return gic::fail(rc, "rank %u: exchange with rank %u: %s", rank_, rank, why(rc));
}

// Rank 0: what the others have.
int Group::collect(void *all, size_t bytes, std::vector<int> *by_rank, uint64_t deadline_ns) {
    for (uint32_t r = 1; r < nranks_; r++) {
        Head head;
        std::vector<int> got;
        int rc = receive_message(sockets_[r], &head, (char *)all + r * bytes, bytes, &got, deadline_ns);
        if (rc == 0 && (head.call != calls_ || got.size() != (has_fd(head, r) ? 1 : 0)))
            rc = -EPROTO;
        if (rc) {
            close_all(&got);
            return failed(r, rc);
        }
        if (!got.empty())
            (*by_rank)[r] = got[0];
    }
    return 0;
}

// Rank 0: what everybody has, its own descriptor among them.
int Group::spread(const void *all, size_t bytes, const std::vector<int> &by_rank, uint64_t deadline_ns) {
    Head head = {};
    std::vector<int> fds;
    head.call = calls_;
    head.bytes = nranks_ * bytes;
    for (uint32_t r = 0; r < nranks_; r++)
        if (by_rank[r] >= 0)
            set_fd(&head, r), fds.push_back(by_rank[r]);
    for (uint32_t r = 1; r < nranks_; r++)
        if (int rc = send_message(sockets_[r], head, all, fds, deadline_ns))
            return failed(r, rc);
    return 0;
}

// The other ranks: theirs to rank 0, all from there.
int Group::ask(const void *mine, void *all, size_t bytes, int fd, std::vector<int> *by_rank,
               uint64_t deadline_ns) {
    Head head = {};
    std::vector<int> fds;
    head.rank = rank_;
    head.call = calls_;
    head.bytes = bytes;
    if (fd >= 0)
        set_fd(&head, rank_), fds.push_back(fd);
    int rc = send_message(sockets_[0], head, mine, fds, deadline_ns);
    fds.clear();
    if (rc == 0)
        rc = receive_message(sockets_[0], &head, all, nranks_ * bytes, &fds, deadline_ns);
    size_t want = 0, next = 0;
    for (uint32_t r = 0; r < nranks_; r++)
        want += has_fd(head, r);
    if (rc == 0 && (head.call != calls_ || want != fds.size()))
        rc = -EPROTO;
    if (rc) {
        close_all(&fds);
        return failed(0, rc);
    }
    for (uint32_t r = 0; r < nranks_; r++)
        if (has_fd(head, r))
            (*by_rank)[r] = fds[next++];
    return 0;
}

int Group::gather(const void *mine, void *all, size_t bytes, int fd, std::vector<int> *fds_p) {
    const uint64_t deadline = now_ns() + timeout_ns_;
    std::vector<int> by_rank(nranks_, -1);
    memcpy((char *)all + rank_ * bytes, mine, bytes);
    calls_++;
    int rc = 0;
    if (nranks_ > 1 && sockets_.empty()) {
        rc = failed(rank_ ? 0 : 1, -ECONNRESET);
    } else if (nranks_ > 1 && rank_ == 0) {
        rc = collect(all, bytes, &by_rank, deadline);
        by_rank[0] = fd;
        rc = rc ? rc : spread(all, bytes, by_rank, deadline);
        by_rank[0] = -1; // the caller's still
    } else if (nranks_ > 1) {
        rc = ask(mine, all, bytes, fd, &by_rank, deadline);
        if (by_rank[rank_] >= 0) // the own one, come back
            close(by_rank[rank_]), by_rank[rank_] = -1;
    }
    if (rc == 0 && fds_p)
        fds_p->swap(by_rank);
    close_all(&by_rank);
    return rc;
}

} // namespace ncclgin
