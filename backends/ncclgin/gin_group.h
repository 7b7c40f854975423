// The ranks of one communicator among each other, for what NCCL does not carry: file descriptors of memory, keys, queue
// pair numbers. A star of Unix sockets around rank 0, whose address travels in NCCL's listen handle.
//
// Functions return 0 or a negative errno and leave one line in gic::error_text(). Every wait has a deadline, and a rank
// that is gone ends the others' waits at once.
#ifndef BACKENDS_NCCLGIN_GIN_GROUP_H
#define BACKENDS_NCCLGIN_GIN_GROUP_H

#include <stddef.h>
#include <stdint.h>

#include <memory>
#include <vector>

namespace ncclgin {

// Of a listening socket; the name is in the abstract namespace, so it goes with the socket.
struct Address {
    uint64_t cookie; // who does not know it does not get in
    char name[40];
};

class Listener {
  public:
    static int open(std::unique_ptr<Listener> *listener_p);
    ~Listener();
    const Address &address() const { return address_; }
    int fd() const { return fd_; }

  private:
    Listener() = default;
    Address address_{};
    int fd_ = -1;
};

class Group {
  public:
    // Collective. `mine`: used by rank 0 alone; `first`: rank 0's.
    static int form(const Listener &mine, const Address &first, uint32_t rank, uint32_t nranks,
                    uint64_t timeout_ns, std::unique_ptr<Group> *group_p);
    ~Group();

    // Collective: `all` gets nranks times `bytes`, which is the same on every rank. `fd`: sent along, or -1; *fds then
    // has each rank's, -1 for none and for the own rank, for the caller to close. After an error the group is of no more
    // use, and every later call fails at once.
    int gather(const void *mine, void *all, size_t bytes, int fd = -1, std::vector<int> *fds = nullptr);

    // Nothing is to come from this rank any more: the others' exchanges fail at once, and the own ones.
    void give_up();

  private:
    Group() = default;
    int admit(const Listener &mine, uint64_t cookie);
    int join(const Address &first);
    int collect(void *all, size_t bytes, std::vector<int> *by_rank, uint64_t deadline_ns);
    int spread(const void *all, size_t bytes, const std::vector<int> &by_rank, uint64_t deadline_ns);
    int ask(const void *mine, void *all, size_t bytes, int fd, std::vector<int> *by_rank,
            uint64_t deadline_ns);
    int failed(uint32_t rank, int rc);

    uint32_t rank_ = 0, nranks_ = 0, calls_ = 0;
    uint64_t timeout_ns_ = 0;
    std::vector<int> sockets_; // rank 0: by rank; else: that of rank 0
};

} // namespace ncclgin

#endif
