// gpu_engine_test.cu: what takes processes of its own, the engine's peer in another one and an engine whose process is
// stopped. A part of that file.
struct Meeting {
    uint32_t ready[2], key[2], done[2], error;
    uint64_t mem[2];
};

bool await(const uint32_t *word, uint32_t value) {
    for (int i = 0; i < 300000 && __atomic_load_n(word, __ATOMIC_ACQUIRE) < value; i++)
        usleep(100);
    return __atomic_load_n(word, __ATOMIC_ACQUIRE) >= value;
}

__global__ void wait_word(const uint64_t *word, uint64_t value, uint32_t *bad) {
    uint64_t start, now, seen;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(seen) : "l"(word) : "memory");
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
        if (now - start > 10000000000ull) {
            *bad = 1;
            return;
        }
    } while (seen < value);
}
__global__ void post_one(rig::Queue q, uint32_t index, uint64_t value, uint32_t *bad) {
    uint32_t cons = index;
    rig::write(q, index, q.remote, true, value, 8, true);
    rig::ring(q, index + 1);
    if (!rig::wait(q, index + 1, &cons))
        *bad = 1;
}

enum Memory { OWN, CALLERS, MAPPED };

// Device memory of the kind that cuMemCreate gives, for a file descriptor.
uint8_t *mapped(int device, size_t bytes) {
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = device;
    CUmemGenericAllocationHandle handle;
    CUmemAccessDesc access{};
    access.location = prop.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CUdeviceptr at = 0;
    // The type of a driver function alone, not the function: nothing here is linked against the driver.
    auto call = [](const char *name, auto **f) {
        void *p = nullptr;
        cudaDriverEntryPointQueryResult found;
        CUDA(cudaGetDriverEntryPointByVersion(name, &p, 12000, cudaEnableDefault, &found));
        return reinterpret_cast<std::decay_t<decltype(*f)>>(p);
    };
    if (call("cuMemCreate", (decltype(&cuMemCreate) *)nullptr)(&handle, bytes, &prop, 0) != CUDA_SUCCESS ||
        call("cuMemAddressReserve", (decltype(&cuMemAddressReserve) *)nullptr)(&at, bytes, 0, 0, 0) !=
            CUDA_SUCCESS ||
        call("cuMemMap", (decltype(&cuMemMap) *)nullptr)(at, bytes, 0, handle, 0) != CUDA_SUCCESS ||
        call("cuMemSetAccess", (decltype(&cuMemSetAccess) *)nullptr)(at, bytes, &access, 1) != CUDA_SUCCESS) {
        fprintf(stderr, "cuMemCreate and mapping failed\n");
        exit(1);
    }
    CUDA(cudaMemset((void *)at, 0, bytes));
    return (uint8_t *)at;
}

// Each writes a growing word into the other's device memory and waits for the other's; on two devices where they are.
int rank_main(uint32_t me, const char *job, Meeting *m, Memory kind, bool demand) {
    softnic_attr a{};
    int devices = 0;
    CUDA(cudaGetDeviceCount(&devices));
    a.device = (int)me % devices;
    CUDA(cudaSetDevice(a.device));
    a.presence = demand ? SOFTNIC_DEMAND : SOFTNIC_WINDOW;
    a.idle_us = demand ? 300 : 0;
    a.job = job;
    a.node = me;
    a.nodes = 2;
    a.engine = SOFTNIC_ENGINE_GPU;
    a.watch = SOFTNIC_WATCH_DBR;
    softnic *nic;
    NIC(softnic_create(&a, &nic));
    uint8_t *mem, *queue;
    if (kind == OWN) {
        NIC(softnic_mem_alloc_gpu(nic, 65536, (void **)&mem));
    } else {
        const size_t bytes = 2 << 20;
        if (kind == CALLERS)
            CUDA(cudaMalloc((void **)&mem, bytes));
        else
            mem = mapped(a.device, bytes);
        CUDA(cudaMemset(mem, 0, bytes));
        mem += 4096; // not where the allocation begins
        NIC(softnic_mem_share_gpu(nic, mem, 65536));
    }
    NIC(softnic_mr_register(nic, mem, 65536, SOFTNIC_LOCAL_WRITE | SOFTNIC_REMOTE_WRITE, &m->key[me]));
    m->mem[me] = (uint64_t)mem;
    __atomic_store_n(&m->ready[me], 1, __ATOMIC_RELEASE);
    CHECK(await(&m->ready[1 - me], 1));
    NIC(softnic_peers_map(nic));
    uint64_t *bell;
    CUDA(cudaHostAlloc((void **)&bell, 64, cudaHostAllocMapped | cudaHostAllocPortable));
    *bell = 0;
    CUDA(cudaMalloc(&queue, 65536));
    CUDA(cudaMemset(queue, 0, 65536));
    rig::Queue q{};
    q.sq = queue;
    q.dbr = (uint32_t *)(queue + 32768);
    q.bell = demand ? bell : (uint64_t *)(queue + 32768 + 128);
    q.cqe = (mlx5_cqe *)(queue + 32768 + 256);
    q.depth = 64;
    q.rkey = m->key[1 - me];
    q.remote = m->mem[1 - me] + 64;
    softnic_cq_attr cq{(void *)q.cqe, 1, 1, nullptr};
    uint32_t cqn;
    NIC(softnic_cq_create(nic, &cq, &cqn));
    softnic_qp_attr qp{q.sq, q.depth, q.dbr, q.bell, cqn};
    NIC(softnic_qp_create(nic, &qp, &q.qpn));
    NIC(softnic_qp_connect(nic, q.qpn, 1 - me, 0));
    cudaStream_t stream;
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    uint32_t *bad = flag();
    NIC(softnic_start(nic));
    post_one<<<1, 1, 0, stream>>>(q, 0, 0, bad);
    CUDA(cudaStreamSynchronize(stream));
    for (uint32_t lap = 1; lap <= 20 && !*bad; lap++) {
        post_one<<<1, 1, 0, stream>>>(q, lap, lap, bad);
        wait_word<<<1, 1, 0, stream>>>((const uint64_t *)(mem + 64), lap, bad);
        CUDA(cudaStreamSynchronize(stream));
        if (demand && lap % 5 == 0)
            CUDA(cudaDeviceSynchronize());
    }
    CHECK(*bad == 0);
    // One deregisters while the other's kernel runs; both are told to wait for that.
    __atomic_store_n(&m->done[me], 1, __ATOMIC_RELEASE);
    CHECK(await(&m->done[1 - me], 1));
    if (me == 0) {
        NIC(softnic_mr_deregister(nic, m->key[0]));
        __atomic_store_n(&m->done[0], 2, __ATOMIC_RELEASE);
        CHECK(await(&m->done[1], 2));
    } else {
        CHECK(await(&m->done[0], 2));
        post_one<<<1, 1, 0, stream>>>(q, 21, 99, bad);
        CUDA(cudaStreamSynchronize(stream));
        CHECK(*bad == 1 && softnic_qp_syndrome(nic, q.qpn) == MLX5_SYND_REMOTE_ACCESS);
        __atomic_store_n(&m->done[1], 2, __ATOMIC_RELEASE);
    }
    softnic_destroy(nic);
    return failures != 0;
}

// Before this process has a context of its own: it forks.
void two_processes(Memory kind, bool demand) {
    Meeting *m =
        (Meeting *)mmap(nullptr, sizeof *m, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char job[64];
    snprintf(job, sizeof job, "gic-rig-two-%d", (int)getpid());
    pid_t pid[2];
    for (uint32_t i = 0; i < 2; i++) {
        pid[i] = fork();
        if (pid[i] == 0)
            _exit(rank_main(i, job, m, kind, demand));
    }
    for (pid_t one : pid) {
        int status = -1;
        waitpid(one, &status, 0);
        CHECK(status == 0);
    }
    munmap(m, sizeof *m);
}
void test_processes() {
    two_processes(OWN, false);
    two_processes(CALLERS, false);
    two_processes(MAPPED, false);
    two_processes(MAPPED, true);
}

// A process that is stopped for a while: its kernel leaves, and is back when it goes on.
int silent_main(uint32_t *state) {
    rig::Setup s;
    s.patience_ms = 400;
    rig::Pair p(s);
    NIC(softnic_start(p.nic[0]));
    CHECK(served(p, 0, 50, 5) && softnic_launches(p.nic[0]) == 1);
    __atomic_store_n(state, 1, __ATOMIC_RELEASE);
    CHECK(await(state, 2));
    CHECK(served(p, 50, 50, 7) && landed(p, 50, 7));
    for (int i = 0; i < 100000 && softnic_launches(p.nic[0]) == 1; i++)
        usleep(100);
    CHECK(softnic_launches(p.nic[0]) == 2 && softnic_engine_error(p.nic[0]) == 0);
    CHECK(served(p, 100, 50, 9) && landed(p, 50, 9));
    CHECK(p.counters().wqes == 150);
    return failures != 0;
}
void test_silence() {
    uint32_t *state =
        (uint32_t *)mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const pid_t pid = fork();
    if (pid == 0)
        _exit(silent_main(state));
    CHECK(await(state, 1));
    kill(pid, SIGSTOP);
    usleep(800000); // twice what its kernel bears
    __atomic_store_n(state, 2, __ATOMIC_RELEASE);
    kill(pid, SIGCONT);
    int status = -1;
    waitpid(pid, &status, 0);
    CHECK(status == 0);
    munmap(state, 4096);
}
