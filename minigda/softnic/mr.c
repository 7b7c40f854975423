/* Memory and memory keys. A key is slot << 8 | variant, as hardware has it; the variant grows with every
 * reuse of the slot and slots are reused in turn, so a stale key is a wrong one. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GRACE_NS = 2000000000 };

static uint32_t free_area(const struct softnic *nic) {
    uint32_t slot = 0;
    while (slot < MAX_MEMS && nic->mems[slot].addr)
        slot++;
    return slot;
}

int softnic_mem_alloc(struct softnic *nic, size_t bytes, void **addr_p) {
    *addr_p = NULL;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (bytes == 0 || bytes > SIZE_MAX / 4)
        return softnic_fail(-EINVAL, "alloc memory: %zu bytes", bytes);
    bytes = (bytes + page - 1) & ~(page - 1);
    uint32_t slot = free_area(nic);
    if (slot == MAX_MEMS)
        return softnic_fail(-ENOMEM, "alloc memory: all %d areas are in use", MAX_MEMS);
    uint32_t id = nic->next_mem_id + 1;
    uint8_t *addr;
    struct gpu_nics held = {.count = 0};
    if (nic->gpu)
        nic_pause_gpus(&held);
    int status = shm_memory_create(nic, id, bytes, &addr);
    nic_unpause_gpus(&held);
    if (status)
        return status;
    nic->next_mem_id = id;
    nic->mems[slot] = (struct mem){.addr = addr, .bytes = bytes, .id = id};
    nic->shm->mems[slot] = (struct shm_mem){.bytes = bytes, .kind = SHM_HOST};
    __atomic_store_n(&nic->shm->mems[slot].id, id, __ATOMIC_RELEASE);
    *addr_p = addr;
    return 0;
}

/* Device memory, the NIC's or the caller's, as one more area. */
static int gpu_area(struct softnic *nic, uint8_t *addr, size_t bytes, int borrowed) {
    uint32_t slot = free_area(nic);
    if (slot == MAX_MEMS)
        return softnic_fail(-ENOMEM, "share memory: all %d areas are in use", MAX_MEMS);
    struct shm_mem area = {.bytes = bytes};
    int status = gpu_memory_share(nic, addr, bytes, &area);
    if (status)
        return status;
    uint32_t id = ++nic->next_mem_id;
    nic->mems[slot] =
        (struct mem){.addr = addr, .bytes = bytes, .id = id, .kind = area.kind, .borrowed = borrowed};
    nic->shm->mems[slot] = area;
    __atomic_store_n(&nic->shm->mems[slot].id, id, __ATOMIC_RELEASE);
    return 0;
}

int softnic_mem_alloc_gpu(struct softnic *nic, size_t bytes, void **addr_p) {
    *addr_p = NULL;
    if (!nic->gpu)
        return softnic_fail(-ENOTSUP, "alloc device memory: the CPU engine cannot reach it");
    if (bytes == 0 || bytes > SIZE_MAX / 4)
        return softnic_fail(-EINVAL, "alloc device memory: %zu bytes", bytes);
    void *addr;
    struct gpu_nics held;
    nic_pause_gpus(&held);
    int status = gpu_memory_alloc(nic, bytes, &addr);
    if (!status && (status = gpu_area(nic, addr, bytes, 0)) != 0)
        gpu_memory_free(nic, addr);
    nic_unpause_gpus(&held);
    if (!status)
        *addr_p = addr;
    return status;
}

int softnic_mem_share_gpu(struct softnic *nic, void *addr, size_t bytes) {
    if (!nic->gpu)
        return softnic_fail(-ENOTSUP, "share device memory: the CPU engine cannot reach it");
    if (!addr || bytes == 0 || bytes > UINTPTR_MAX - (uintptr_t)addr)
        return softnic_fail(-EINVAL, "share device memory: %zu bytes at %p", bytes, addr);
    return gpu_area(nic, addr, bytes, 1);
}

int softnic_mem_free(struct softnic *nic, void *addr) {
    uint32_t slot = 0;
    while (slot < MAX_MEMS && (!addr || nic->mems[slot].addr != addr))
        slot++;
    if (slot == MAX_MEMS)
        return softnic_fail(-EINVAL, "free memory: %p was not given by softnic_mem_alloc", addr);
    for (uint32_t i = 1; i < nic->max_mrs; i++)
        if (nic->mr_busy[i] && nic->mrs[i].mem_id == nic->mems[slot].id)
            return softnic_fail(-EBUSY, "free memory: key 0x%x is registered in it",
                                (uint32_t)nic->mrs[i].tag ? (uint32_t)nic->mrs[i].tag : i << 8);
    __atomic_store_n(&nic->shm->mems[slot].id, 0, __ATOMIC_RELEASE);
    shm_changed(nic);
    struct gpu_nics held = {.count = 0};
    if (nic->gpu)
        nic_pause_gpus(&held);
    shm_memory_destroy(nic, &nic->mems[slot]);
    nic_unpause_gpus(&held);
    return 0;
}

static uint32_t mem_of(const struct softnic *nic, uintptr_t addr, size_t bytes) {
    for (uint32_t i = 0; i < MAX_MEMS; i++) {
        const struct mem *m = &nic->mems[i];
        uintptr_t base = (uintptr_t)m->addr;
        if (m->addr && addr >= base && addr - base <= m->bytes && bytes <= m->bytes - (addr - base))
            return i;
    }
    return NO_MEM;
}

static uint32_t free_slot(struct softnic *nic) {
    for (uint32_t tried = 1; tried < nic->max_mrs; tried++) {
        nic->next_mr = nic->next_mr + 1 < nic->max_mrs ? nic->next_mr + 1 : 1;
        if (!nic->mr_busy[nic->next_mr])
            return nic->next_mr;
    }
    return 0;
}

/* Puts an entry into the table under a key of its own, 0 when the table is full. */
static uint32_t publish(struct softnic *nic, const struct shm_mr *mr) {
    uint32_t slot = free_slot(nic);
    if (slot == 0)
        return 0;
    uint32_t serial = ++nic->mr_serial, variant = ++nic->mr_variant[slot];
    uint32_t key = slot << 8 | (variant & 0xff);
    uint64_t tag = (uint64_t)serial << 32 | key;
    nic->mr_busy[slot] = 1;
    nic->mrs[slot] = *mr;
    nic->shm->mrs[slot] = *mr;
    __atomic_store_n(&nic->mrs[slot].tag, tag, __ATOMIC_RELEASE);
    __atomic_store_n(&nic->shm->mrs[slot].tag, tag, __ATOMIC_RELEASE);
    shm_changed(nic);
    return key;
}

int softnic_mr_register(struct softnic *nic, void *addr, size_t bytes, uint32_t access, uint32_t *key_p) {
    const uint32_t remote = SOFTNIC_REMOTE_WRITE | SOFTNIC_REMOTE_READ | SOFTNIC_REMOTE_ATOMIC;
    uintptr_t at = (uintptr_t)addr;
    *key_p = 0;
    if (!addr || bytes == 0 || bytes > UINTPTR_MAX - at)
        return softnic_fail(-EINVAL, "register memory: %zu bytes at %p", bytes, addr);
    if (access & ~(remote | SOFTNIC_LOCAL_WRITE | SOFTNIC_PEER_MAPPED | SOFTNIC_ZERO_BASED))
        return softnic_fail(-EINVAL, "register memory: unknown access bits in 0x%x", access);
    uint32_t mem = access & SOFTNIC_PEER_MAPPED ? NO_MEM : mem_of(nic, at, bytes);
    if ((access & remote) && !(access & SOFTNIC_PEER_MAPPED) && mem == NO_MEM && !nic_all_here(nic))
        return softnic_fail(-EFAULT,
                            "register memory: %p is not of softnic_mem_alloc, peers in other processes "
                            "could not reach it (access 0x%x)",
                            addr, access);
    int status = nic->gpu ? gpu_mr_check(nic, addr, bytes) : 0;
    if (status)
        return status;
    struct shm_mr mr = {.va = access & SOFTNIC_ZERO_BASED ? 0 : at,
                        .addr = at,
                        .len = bytes,
                        .access = access,
                        .mem_slot = mem};
    if (mem != NO_MEM) {
        mr.mem_offset = at - (uintptr_t)nic->mems[mem].addr;
        mr.mem_id = nic->mems[mem].id;
    }
    *key_p = publish(nic, &mr);
    return *key_p ? 0 : softnic_fail(-ENOMEM, "register memory: all %u keys are in use", nic->max_mrs - 1);
}

/* Numbers and keys are one table: peers look for both. */
int softnic_dct_create(struct softnic *nic, uint64_t dc_key, uint32_t *dctn_p) {
    const struct shm_mr dct = {.va = dc_key, .access = ACCESS_DCT, .mem_slot = NO_MEM};
    *dctn_p = publish(nic, &dct);
    if (*dctn_p == 0 || *dctn_p > MLX5_QPN_MASK)
        return softnic_fail(-ENOMEM, "create DCT: no number of 24 bits is free, of %u keys",
                            nic->max_mrs - 1);
    return 0;
}

int dct_check(const struct softnic *nic, uint32_t node, uint32_t dctn, uint64_t dc_key) {
    if (node >= nic->nodes)
        return MLX5_SYND_TRANSPORT_RETRY;
    const int self = node == nic->node;
    const struct peer *peer = &nic->peers[node];
    struct shm_mr mr;
    if (!self && (!peer->shm || __atomic_load_n(&peer->shm->state, __ATOMIC_ACQUIRE) != SHM_READY))
        return MLX5_SYND_TRANSPORT_RETRY;
    const struct shm_mr *table = self ? nic->mrs : peer->shm->mrs;
    if (!mr_entry_read(table, self ? nic->max_mrs : peer->max_mrs, dctn, &mr) || !(mr.access & ACCESS_DCT))
        return MLX5_SYND_TRANSPORT_RETRY;
    return mr.va == dc_key ? 0 : MLX5_SYND_REMOTE_ACCESS;
}

int softnic_mr_deregister(struct softnic *nic, uint32_t key) {
    uint32_t slot = key >> 8;
    if (slot == 0 || slot >= nic->max_mrs || key == 0 || (uint32_t)nic->mrs[slot].tag != key ||
        (nic->mrs[slot].access & ACCESS_DCT))
        return softnic_fail(-EINVAL, "deregister memory: no key 0x%x", key);
    __atomic_store_n(&nic->mrs[slot].tag, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&nic->shm->mrs[slot].tag, 0, __ATOMIC_SEQ_CST);
    shm_changed(nic);
    int status = shm_grace(nic, GRACE_NS);
    if (status)
        return status; /* the slot stays busy: somebody may still write there */
    nic->mr_busy[slot] = 0;
    return 0;
}

int mr_entry_read(const struct shm_mr *table, uint32_t limit, uint32_t key, struct shm_mr *mr) {
    uint32_t slot = key >> 8;
    if (slot == 0 || slot >= limit)
        return 0;
    const struct shm_mr *from = &table[slot];
    mr->tag = __atomic_load_n(&from->tag, __ATOMIC_ACQUIRE);
    if ((uint32_t)mr->tag != key)
        return 0;
    mr->va = __atomic_load_n(&from->va, __ATOMIC_RELAXED);
    mr->len = __atomic_load_n(&from->len, __ATOMIC_RELAXED);
    mr->mem_offset = __atomic_load_n(&from->mem_offset, __ATOMIC_RELAXED);
    mr->mem_slot = __atomic_load_n(&from->mem_slot, __ATOMIC_RELAXED);
    mr->mem_id = __atomic_load_n(&from->mem_id, __ATOMIC_RELAXED);
    mr->access = __atomic_load_n(&from->access, __ATOMIC_RELAXED);
    mr->addr = __atomic_load_n(&from->addr, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return __atomic_load_n(&from->tag, __ATOMIC_RELAXED) == mr->tag;
}

int softnic_mr_attach(struct softnic *nic, uint32_t node, uint32_t key, void *addr) {
    struct shm_mr mr;
    if (node >= nic->nodes || node == nic->node || !addr)
        return softnic_fail(-EINVAL, "attach: key 0x%x of node %u of %u at %p", key, node, nic->nodes, addr);
    struct peer *peer = &nic->peers[node];
    int status = peer_open(nic, node);
    if (status)
        return status;
    if (!mr_entry_read(peer->shm->mrs, peer->max_mrs, key, &mr))
        return softnic_fail(-ENOENT, "attach: node %u has no key 0x%x", node, key);
    if (!(mr.access & SOFTNIC_PEER_MAPPED))
        return softnic_fail(
            -EINVAL, "attach: key 0x%x of node %u is not registered to be mapped by its peers", key, node);
    struct attached *one = malloc(sizeof *one);
    if (!one)
        return softnic_fail(-ENOMEM, "attach: out of memory");
    pthread_mutex_lock(&nic->map_lock);
    *one = (struct attached){peer->attached, mr.tag, addr};
    peer->attached = one;
    pthread_mutex_unlock(&nic->map_lock);
    if (nic->gpu) {
        gpu_keys_changed(nic);
        gpu_relaunch(nic);
    }
    return 0;
}

int softnic_peers_map(struct softnic *nic) {
    for (uint32_t n = 0; n < nic->nodes; n++) {
        int status = n == nic->node ? 0 : peer_open(nic, n);
        if (status)
            return status;
        if (n != nic->node && !nic->gpu)
            peer_map_all(nic, n);
    }
    if (!nic->gpu)
        return 0;
    struct gpu_nics held;
    nic_pause_gpus(&held);
    int status = gpu_keys_map(nic);
    nic_unpause_gpus(&held);
    return status;
}

/* The latest attachment counts. */
static uint8_t *attached_base(struct softnic *nic, uint32_t node, uint64_t tag) {
    pthread_mutex_lock(&nic->map_lock);
    const struct attached *one = nic->peers[node].attached;
    while (one && one->tag != tag)
        one = one->next;
    uint8_t *base = one ? one->base : NULL;
    pthread_mutex_unlock(&nic->map_lock);
    return base;
}

uint8_t *mr_base(struct softnic *nic, uint32_t node, uint32_t key, const struct shm_mr *mr) {
    if (node == nic->node)
        return (uint8_t *)(uintptr_t)mr->addr;
    const struct shm_node *theirs = nic->peers[node].shm;
    if (mr->access & SOFTNIC_PEER_MAPPED)
        return attached_base(nic, node, mr->tag);
    int here = theirs->token == nic->shm->token && theirs->pid == nic->shm->pid;
    /* A device opens no memory of its own process, and needs no second mapping of host memory. */
    if (mr->mem_slot != NO_MEM && !(here && nic->gpu))
        return peer_memory(nic, node, mr->mem_slot, mr->mem_id, mr->mem_offset, mr->len);
    if (!here)
        return NULL;
    return nic_private_memory(nic, node, key >> 8, mr->tag);
}

uint8_t *mr_resolve(struct worker *w, uint32_t node, uint32_t key, uint64_t va, uint64_t bytes,
                    uint32_t access, int *syndrome_p) {
    struct softnic *nic = w->nic;
    const struct peer *peer = &nic->peers[node];
    int self = node == nic->node;
    const struct shm_mr *table = self ? nic->mrs : peer->shm->mrs;
    struct shm_mr mr;
    *syndrome_p = MLX5_SYND_REMOTE_ACCESS;
    if (!mr_entry_read(table, self ? nic->max_mrs : peer->max_mrs, key, &mr)) {
        if (!self && __atomic_load_n(&peer->shm->state, __ATOMIC_ACQUIRE) != SHM_READY)
            *syndrome_p = MLX5_SYND_TRANSPORT_RETRY;
        return NULL;
    }
    uint64_t offset = va - mr.va;
    if ((mr.access & access) != access || offset > mr.len || bytes > mr.len - offset)
        return NULL;
    uint8_t *base = mr_base(nic, node, key, &mr);
    if (!base) {
        *syndrome_p = MLX5_SYND_REMOTE_OP;
        return NULL;
    }
    *mr_slot(w, node, key) = (struct mr_entry){.src = &table[key >> 8].tag,
                                               .tag = mr.tag,
                                               .va = mr.va,
                                               .len = mr.len,
                                               .base = base,
                                               .node = node,
                                               .key = key,
                                               .access = mr.access};
    return base + offset;
}
