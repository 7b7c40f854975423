// Memory that the ranks of a communicator share. The owner registers it; every peer maps it and attaches that to the
// owner's key, so that the engine finds it.
#include "backends/ncclgin/gin_job.h"

#include <unistd.h>

namespace ncclgin {

namespace {

constexpr uint32_t all_rights = SOFTNIC_LOCAL_WRITE | SOFTNIC_REMOTE_WRITE | SOFTNIC_REMOTE_READ |
                                SOFTNIC_REMOTE_ATOMIC | SOFTNIC_PEER_MAPPED | SOFTNIC_ZERO_BASED;

// What a rank tells the others of its region. `key` 0: nothing there for them.
struct Offer {
    uint32_t key;
    Place place;
    uint32_t relayed;
    uint64_t bytes, mapping_bytes, offset;
};

size_t front(bool relayed) { return relayed ? sizeof(Mailbox) : 0; }

int name_region(uint8_t *addr, size_t bytes, uint32_t *key_p) {
    const int rc = softnic_mr_register(job.fabric->nic, addr, bytes, all_rights, key_p);
    return rc ? gic::fail(rc, "register %zu bytes at %p: %s", bytes, (void *)addr, softnic_error()) : 0;
}

// The own side: key and, for peers, a file descriptor.
int prepare(Mr *mr, bool signals, int *fd_p) {
    mr->bytes = mr->own.bytes;
    mr->reached = mr->own.place == Place::HOST || job.fabric->places.gpu_engine;
    mr->relayed = signals && !mr->reached;
    if (mr->relayed) {
        if (int rc = job.memory->create(sizeof(Mailbox) + mr->bytes, Place::HOST, &mr->box))
            return rc;
        if (int rc = name_region((uint8_t *)mr->box.addr + sizeof(Mailbox), mr->bytes, &mr->key))
            return rc;
        return job.memory->export_fd(mr->box, fd_p);
    }
    if (!mr->reached)
        return 0;
    if (int rc = name_region((uint8_t *)mr->own.addr, mr->bytes, &mr->key))
        return rc;
    return job.memory->export_fd(mr->own, fd_p);
}

int map_peer(Coll *coll, uint32_t rank, const Offer &offer, int fd, Mr *mr) {
    Region like;
    like.bytes = offer.bytes;
    like.place = offer.place;
    like.mapping_bytes = offer.mapping_bytes;
    like.offset = offer.offset;
    if ((offer.relayed != 0) != mr->relayed)
        return gic::fail(-EINVAL, "rank %u's signals are reached another way than the own ones", rank);
    if (int rc = job.memory->import(fd, like, &mr->theirs[rank]))
        return rc;
    uint8_t *first = (uint8_t *)mr->theirs[rank].addr + front(mr->relayed);
    if (int rc = softnic_mr_attach(job.fabric->nic, coll->nodes[rank], offer.key, first))
        return gic::fail(rc, "reach rank %u's memory: %s", rank, softnic_error());
    mr->keys[rank] = offer.key;
    return 0;
}

// Collective: rc here, or that another rank has failed.
int agree(Coll *coll, int rc, const char *what) {
    const std::string said = gic::error_text();
    std::vector<int32_t> all(coll->nranks);
    const int32_t mine = rc;
    const int gathered = coll->group->gather(&mine, all.data(), sizeof mine);
    if (rc)
        return gic::fail(rc, "%s", said.c_str());
    if (gathered)
        return gathered;
    for (uint32_t r = 0; r < coll->nranks; r++)
        if (all[r])
            return gic::fail(-EIO, "rank %u cannot %s: %s", r, what, strerror(-all[r]));
    return 0;
}

// Collective, of ranks that have all prepared theirs.
int share(Coll *coll, int fd, Mr *mr) {
    const Region &shown = mr->relayed ? mr->box : mr->own;
    const Offer mine = {fd >= 0 ? mr->key : 0, shown.place,         mr->relayed,
                        shown.bytes,           shown.mapping_bytes, shown.offset};
    std::vector<Offer> all(coll->nranks);
    std::vector<int> fds;
    if (int rc = coll->group->gather(&mine, all.data(), sizeof mine, fd, &fds))
        return rc;
    mr->keys.assign(coll->nranks, 0);
    mr->theirs.assign(coll->nranks, Region());
    mr->keys[coll->rank] = mr->key;
    int rc = 0;
    {
        std::lock_guard<std::mutex> hold(job.lock);
        for (uint32_t r = 0; r < coll->nranks && rc == 0; r++)
            if (r != coll->rank && all[r].key && fds[r] >= 0)
                rc = map_peer(coll, r, all[r], fds[r], mr);
    }
    for (int one : fds)
        if (one >= 0)
            close(one);
    // Nobody may take his away before all have found it.
    return agree(coll, rc, "map memory");
}

int finish(Coll *coll, int rc, bool signals, Mr *mr) {
    int fd = -1;
    if (rc == 0) {
        std::lock_guard<std::mutex> hold(job.lock);
        rc = prepare(mr, signals, &fd);
    }
    rc = agree(coll, rc, "register its memory");
    rc = rc ? rc : share(coll, fd, mr);
    if (fd >= 0)
        close(fd);
    if (rc) {
        const std::string said = gic::error_text();
        coll->group->give_up(); // who has come further waits no longer
        mr_release(coll, mr);
        return gic::fail(rc, "%s", said.c_str());
    }
    return 0;
}

} // namespace

int mr_register(Coll *coll, void *data, size_t bytes, bool signals, Mr *mr) {
    int rc;
    {
        std::lock_guard<std::mutex> hold(job.lock);
        rc = job.memory->adopt(data, bytes, &mr->own);
    }
    return finish(coll, rc, signals, mr);
}

int mr_make(Coll *coll, size_t bytes, Mr *mr) {
    int rc;
    {
        std::lock_guard<std::mutex> hold(job.lock);
        rc = job.memory->create(bytes, job.fabric->places.window_on_gpu ? Place::GPU : Place::HOST, &mr->own);
    }
    return finish(coll, rc, false, mr);
}

int mr_withdraw(Mr *mr) {
    if (!mr->key)
        return 0;
    const int rc = softnic_mr_deregister(job.fabric->nic, mr->key);
    if (rc)
        return gic::fail(rc, "deregister %zu bytes: %s", mr->bytes, softnic_error());
    mr->key = 0;
    return 0;
}

int mr_release(Coll *coll, Mr *mr) {
    std::lock_guard<std::mutex> hold(job.lock);
    const int rc = mr_withdraw(mr);
    for (Region &r : mr->theirs)
        if (r.mapping)
            coll->old.push_back(r);
    mr->theirs.clear();
    for (Region *r : {&mr->own, &mr->box})
        if (rc) // somebody may still write there
            coll->old.push_back(*r);
        else
            job.memory->drop(r);
    block_free(job.fabric, &mr->device);
    block_free(job.fabric, &mr->device_keys);
    return rc;
}

} // namespace ncclgin
