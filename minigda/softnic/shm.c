/* Shared memory: the node's segment with its MR table, its memory, and the peers' mapped here.
 *
 * What a peer wrote is data to be checked: sizes come from the files, offsets are compared against them, and
 * addresses of another process are never used.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { NAME_MAX_BYTES = 256 };

static void node_name(char *name, const char *job, uint32_t node) {
    snprintf(name, NAME_MAX_BYTES, "/%s-nic%u", job, node);
}

static void memory_name(char *name, const char *job, uint32_t node, uint32_t id) {
    snprintf(name, NAME_MAX_BYTES, "/%s-nic%u-mem%u", job, node, id);
}

static int create_mapped(const char *name, size_t bytes, void **addr_p) {
    int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        int error = errno;
        return softnic_fail(-error, "create shared memory %s: %s", name,
                            error == EEXIST ? "exists; another run uses this job name" : strerror(error));
    }
    /* Reserved now: a full /dev/shm must be an error here, not a SIGBUS at some store later. */
    int error = posix_fallocate(fd, 0, (off_t)bytes);
    void *addr = error ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (!error && addr == MAP_FAILED)
        error = errno;
    close(fd);
    if (error) {
        shm_unlink(name);
        return softnic_fail(-error, "create shared memory %s of %zu bytes: %s", name, bytes, strerror(error));
    }
    *addr_p = addr;
    return 0;
}

/* 0 or a negative errno; *bytes_p is the file's size. Its pages are there (posix_fallocate), and are mapped now: a NIC's
 * registered memory is pinned, and a fault at the first write to each page took as long as the copy of it. */
static int open_mapped(const char *name, size_t least, void **addr_p, size_t *bytes_p) {
    int fd = shm_open(name, O_RDWR | O_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    struct stat st;
    int status = fstat(fd, &st) < 0 ? -errno : st.st_size < (off_t)least ? -EAGAIN : 0;
    if (!status) {
        *bytes_p = (size_t)st.st_size;
        *addr_p = mmap(NULL, *bytes_p, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
        if (*addr_p == MAP_FAILED)
            status = -errno;
    }
    close(fd);
    return status;
}

/* Same address space: the random token alone would be inherited by a fork, the pid alone is not unique across
 * containers. */
static uint64_t process_token(void) {
    static uint64_t token;
    uint64_t fresh = 0;
    if (__atomic_load_n(&token, __ATOMIC_ACQUIRE) == 0) {
        if (getrandom(&fresh, sizeof fresh, 0) != sizeof fresh || fresh == 0)
            fresh = 1;
        uint64_t none = 0;
        __atomic_compare_exchange_n(&token, &none, fresh, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    }
    return __atomic_load_n(&token, __ATOMIC_ACQUIRE);
}

int shm_node_create(struct softnic *nic) {
    char name[NAME_MAX_BYTES];
    void *addr;
    node_name(name, nic->job, nic->node);
    size_t bytes = sizeof(struct shm_node) + nic->max_mrs * sizeof(struct shm_mr);
    int status = create_mapped(name, bytes, &addr);
    if (status)
        return status;
    nic->shm = addr;
    nic->shm_bytes = bytes;
    nic->shm->magic = SHM_MAGIC;
    nic->shm->token = process_token();
    nic->shm->node = nic->node;
    nic->shm->max_mrs = nic->max_mrs;
    nic->shm->workers = nic->worker_count;
    nic->shm->pid = getpid();
    __atomic_store_n(&nic->shm->state, SHM_READY, __ATOMIC_RELEASE);
    return 0;
}

void shm_node_destroy(struct softnic *nic) {
    char name[NAME_MAX_BYTES];
    node_name(name, nic->job, nic->node);
    munmap(nic->shm, nic->shm_bytes);
    shm_unlink(name);
    nic->shm = NULL;
}

int shm_memory_create(struct softnic *nic, uint32_t id, size_t bytes, uint8_t **addr_p) {
    char name[NAME_MAX_BYTES];
    void *addr;
    memory_name(name, nic->job, nic->node, id);
    int status = create_mapped(name, bytes, &addr);
    if (status == 0 && nic->gpu && (status = gpu_host_map(nic, addr, bytes)) != 0) {
        munmap(addr, bytes);
        shm_unlink(name);
    }
    if (status == 0)
        *addr_p = addr;
    return status;
}

void shm_memory_destroy(struct softnic *nic, struct mem *mem) {
    char name[NAME_MAX_BYTES];
    memory_name(name, nic->job, nic->node, mem->id);
    if (mem->kind != SHM_HOST) {
        gpu_memory_unshare(nic, &nic->shm->mems[mem - nic->mems]);
        if (!mem->borrowed)
            gpu_memory_free(nic, mem->addr);
    } else {
        if (nic->gpu)
            gpu_host_unmap(nic, mem->addr);
        munmap(mem->addr, mem->bytes);
        shm_unlink(name);
    }
    *mem = (struct mem){0};
}

int peer_open(struct softnic *nic, uint32_t node) {
    struct peer *peer = &nic->peers[node];
    if (peer->shm && __atomic_load_n(&peer->shm->state, __ATOMIC_ACQUIRE) == SHM_READY)
        return 0;
    if (peer->shm) { /* it was destroyed; there may be a new one of that name */
        nic_pause(nic);
        pthread_mutex_lock(&nic->map_lock);
        peer_close(nic, peer);
        for (uint32_t i = 0; i < nic->worker_count; i++)
            memset(nic->workers[i].cache, 0, sizeof nic->workers[i].cache);
        pthread_mutex_unlock(&nic->map_lock);
        nic_unpause(nic);
    }
    char name[NAME_MAX_BYTES];
    void *addr;
    size_t bytes;
    node_name(name, nic->job, node);
    int status = open_mapped(name, sizeof(struct shm_node), &addr, &bytes);
    if (status == -ENOENT || status == -EAGAIN)
        return softnic_fail(-ENXIO, "connect: node %u has no NIC in this job (%s)", node, name);
    if (status)
        return softnic_fail(status, "connect: map %s: %s", name, strerror(-status));
    struct shm_node *shm = addr;
    if (__atomic_load_n(&shm->state, __ATOMIC_ACQUIRE) != SHM_READY || shm->magic != SHM_MAGIC) {
        munmap(addr, bytes);
        return softnic_fail(-ENXIO, "connect: node %u's NIC is not ready (%s)", node, name);
    }
    peer->max_mrs = (uint32_t)((bytes - sizeof *shm) / sizeof(struct shm_mr));
    peer->shm_bytes = bytes;
    peer->shm = shm;
    return 0;
}

static void unmap(struct softnic *nic, struct mapping *map) {
    if (map->opened) {
        gpu_memory_close(nic, map->kind, map->opened);
    } else {
        if (nic->gpu)
            gpu_host_unmap(nic, map->base);
        munmap(map->base, map->bytes);
    }
    free(map);
}

void peer_close(struct softnic *nic, struct peer *peer) {
    while (peer->maps) {
        struct mapping *map = peer->maps;
        peer->maps = map->next;
        unmap(nic, map);
    }
    while (peer->attached) {
        struct attached *one = peer->attached;
        peer->attached = one->next;
        free(one);
    }
    if (peer->shm)
        munmap(peer->shm, peer->shm_bytes);
    *peer = (struct peer){0};
}

/* A GPU engine's pass lasts as long as its kernel runs; one that read the keys after `since_ns` is none to wait for. */
static int node_grace(const struct shm_node *shm, uint64_t since_ns, uint64_t deadline_ns) {
    uint32_t workers = shm->workers < MAX_WORKERS ? shm->workers : MAX_WORKERS;
    for (uint32_t i = 0; i < workers; i++) {
        uint64_t epoch = __atomic_load_n(&shm->worker[i].epoch, __ATOMIC_ACQUIRE);
        for (uint32_t polls = 0;
             (epoch & 1) && __atomic_load_n(&shm->worker[i].epoch, __ATOMIC_ACQUIRE) == epoch &&
             __atomic_load_n(&shm->built_ns, __ATOMIC_ACQUIRE) <= since_ns;
             polls++) {
            spin_pause(polls);
            if ((polls & 255) != 255)
                continue;
            if (kill(shm->pid, 0) < 0 && errno == ESRCH)
                return 0;
            if (nic_monotonic_ns() > deadline_ns)
                return -ETIMEDOUT;
        }
    }
    return 0;
}

/* Waits until no worker of any node is in a pass that began before the call. */
int shm_grace(struct softnic *nic, uint64_t timeout_ns) {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    uint64_t since = nic_monotonic_ns(), deadline = since + timeout_ns;
    if (nic->gpu)
        gpu_relaunch(nic);
    int status = node_grace(nic->shm, since, deadline);
    for (uint32_t n = 0; n < nic->nodes && status == 0; n++) {
        const struct peer *peer = &nic->peers[n];
        if (n == nic->node || (!peer->shm && peer_open(nic, n) != 0))
            continue;
        if (node_grace(peer->shm, since, deadline) != 0)
            status = softnic_fail(-ETIMEDOUT, "node %u's NIC did not leave its pass in %llu ms", n,
                                  (unsigned long long)(timeout_ns / 1000000));
    }
    return status;
}

/* Memory that its owner has freed: the owner waited for our passes before, so nobody here is using it. */
static void sweep(struct softnic *nic, struct peer *peer) {
    for (struct mapping **at = &peer->maps; *at;) {
        struct mapping *map = *at;
        if (__atomic_load_n(&peer->shm->mems[map->mem_slot].id, __ATOMIC_ACQUIRE) == map->mem_id) {
            at = &map->next;
            continue;
        }
        *at = map->next;
        unmap(nic, map);
    }
}

static int map_host(struct softnic *nic, uint32_t node, struct mapping *map) {
    char name[NAME_MAX_BYTES];
    void *addr;
    memory_name(name, nic->job, node, map->mem_id);
    int status = open_mapped(name, 1, &addr, &map->bytes);
    if (status == 0 && nic->gpu && (status = gpu_host_map(nic, addr, map->bytes)) != 0)
        munmap(addr, map->bytes);
    map->base = addr;
    return status;
}

/* The entry may be of another memory by now; then the handle opens nothing or the owner's id differs. */
static int map_gpu(struct softnic *nic, uint32_t node, struct mapping *map) {
    const struct shm_mem *theirs = &nic->peers[node].shm->mems[map->mem_slot];
    struct shm_mem mem = *theirs;
    if (!nic->gpu || __atomic_load_n(&theirs->id, __ATOMIC_ACQUIRE) != map->mem_id)
        return -EFAULT;
    map->kind = mem.kind;
    map->opened = gpu_memory_open(nic, &mem);
    if (!map->opened)
        return -EFAULT;
    /* A file descriptor's number may be another file's once the memory was withdrawn. */
    if (__atomic_load_n(&theirs->id, __ATOMIC_ACQUIRE) != map->mem_id) {
        gpu_memory_close(nic, map->kind, map->opened);
        return -EFAULT;
    }
    map->base = map->opened + mem.offset;
    map->bytes = mem.bytes;
    return 0;
}

static struct mapping *map_memory(struct softnic *nic, uint32_t node, uint32_t mem_slot, uint32_t mem_id) {
    struct mapping *map = calloc(1, sizeof *map);
    if (!map)
        return NULL;
    *map = (struct mapping){.next = nic->peers[node].maps, .mem_slot = mem_slot, .mem_id = mem_id};
    const struct shm_mem *theirs = &nic->peers[node].shm->mems[mem_slot];
    if ((theirs->kind != SHM_HOST ? map_gpu(nic, node, map) : map_host(nic, node, map)) != 0) {
        free(map);
        return NULL;
    }
    nic->peers[node].maps = map;
    return map;
}

uint8_t *peer_memory(struct softnic *nic, uint32_t node, uint32_t mem_slot, uint32_t mem_id, uint64_t offset,
                     uint64_t bytes) {
    struct peer *peer = &nic->peers[node];
    uint8_t *at = NULL;
    if (mem_slot >= MAX_MEMS)
        return NULL;
    pthread_mutex_lock(&nic->map_lock);
    struct mapping *map = peer->maps;
    while (map && map->mem_id != mem_id)
        map = map->next;
    if (!map) {
        sweep(nic, peer);
        map = map_memory(nic, node, mem_slot, mem_id);
    }
    if (map && offset <= map->bytes && bytes <= map->bytes - offset)
        at = map->base + offset;
    pthread_mutex_unlock(&nic->map_lock);
    return at;
}

void shm_changed(struct softnic *nic) { __atomic_add_fetch(&nic->shm->generation, 1, __ATOMIC_SEQ_CST); }

void peer_map_all(struct softnic *nic, uint32_t node) {
    const struct shm_node *shm = nic->peers[node].shm;
    for (uint32_t slot = 0; slot < MAX_MEMS; slot++) {
        uint32_t id = __atomic_load_n(&shm->mems[slot].id, __ATOMIC_ACQUIRE);
        if (id)
            peer_memory(nic, node, slot, id, 0, 0);
    }
}
