"""The GPU by torch and the driver: arrays, graphs, clocks, and a barrier of all ranks inside the stream."""

import ctypes
import os
import re
import struct

from gic_deepep_bridge import Failure, Refused

# A stamp of the GPU's wall clock, and a barrier of all ranks with a stamp behind it, as kernels of their own: nothing of
# torch reads %globaltimer or waits for another process. The driver compiles them for the GPU at hand.
#
# A rank's flags: word r is the last round that rank r came to, word 64 its own round, word 65 is set when a peer was
# late. Lane r tells rank r that this rank is there, behind everything before it in the stream, and waits for it.
PTX = b"""
.version 7.0
.target sm_70
.address_size 64

.visible .entry gic_stamp(.param .u64 p_slot)
{
    .reg .u64 %slot, %now;
    ld.param.u64 %slot, [p_slot];
    mov.u64 %now, %globaltimer;
    st.global.u64 [%slot], %now;
    ret;
}

.visible .entry gic_meet(.param .u64 p_flags, .param .u64 p_peers, .param .u32 p_ranks, .param .u32 p_rank,
                         .param .u64 p_limit, .param .u64 p_slot)
{
    .reg .pred %p;
    .reg .u32 %lane, %ranks, %rank;
    .reg .u64 %flags, %peers, %limit, %slot, %round, %at, %peer, %begin, %now, %seen;
    ld.param.u64 %flags, [p_flags];
    ld.param.u64 %peers, [p_peers];
    ld.param.u32 %ranks, [p_ranks];
    ld.param.u32 %rank, [p_rank];
    ld.param.u64 %limit, [p_limit];
    ld.param.u64 %slot, [p_slot];
    mov.u32 %lane, %tid.x;
    ld.volatile.global.u64 %round, [%flags+512];
    add.u64 %round, %round, 1;
    bar.warp.sync 0xffffffff;
    setp.eq.u32 %p, %lane, 0;
    @%p st.volatile.global.u64 [%flags+512], %round;
    setp.ge.u32 %p, %lane, %ranks;
    @%p bra DONE;
    setp.eq.u32 %p, %lane, %rank;
    @%p bra DONE;
    mul.wide.u32 %at, %lane, 8;
    add.u64 %peer, %peers, %at;
    ld.global.u64 %peer, [%peer];
    add.u64 %flags, %flags, %at;
    mul.wide.u32 %at, %rank, 8;
    add.u64 %peer, %peer, %at;
    fence.acq_rel.sys;
    st.release.sys.global.u64 [%peer], %round;
    mov.u64 %begin, %globaltimer;
SPIN:
    ld.acquire.sys.global.u64 %seen, [%flags];
    setp.ge.u64 %p, %seen, %round;
    @%p bra DONE;
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %begin;
    setp.lt.u64 %p, %now, %limit;
    @%p bra SPIN;
    ld.param.u64 %at, [p_flags];
    mov.u64 %now, 1;
    st.volatile.global.u64 [%at+520], %now;
DONE:
    bar.warp.sync 0xffffffff;
    setp.ne.u32 %p, %lane, 0;
    @%p ret;
    mov.u64 %now, %globaltimer;
    st.global.u64 [%slot], %now;
    ret;
}
\0"""
FLAG_BYTES = 4096
MAX_RANKS = 32  # lanes of the barrier


class _Handle(ctypes.Structure):  # CUipcMemHandle, passed by value
    _fields_ = [("bytes", ctypes.c_char * 64)]


class Driver:
    """The few calls of the driver that torch does not have."""

    def __init__(self):
        self.lib = ctypes.CDLL("libcuda.so.1")
        self.lib.cuIpcOpenMemHandle_v2.argtypes = [ctypes.POINTER(ctypes.c_uint64), _Handle, ctypes.c_uint]

    def call(self, name, *args):
        status = getattr(self.lib, name)(*args)
        if status:
            text = ctypes.c_char_p()
            self.lib.cuGetErrorString(status, ctypes.byref(text))
            raise Failure("%s answers %d (%s)" % (name, status, (text.value or b"unknown error").decode()))

    def attribute(self, number, device):
        value = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), ctypes.c_int(number), ctypes.c_int(device))
        return value.value

    def alloc(self, size):
        at = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(size))
        self.call("cuMemsetD8_v2", at, ctypes.c_ubyte(0), ctypes.c_size_t(size))
        return at.value

    def write(self, at, data):
        self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(at), data, ctypes.c_size_t(len(data)))

    def read(self, at, size):
        data = ctypes.create_string_buffer(size)
        self.call("cuMemcpyDtoH_v2", data, ctypes.c_uint64(at), ctypes.c_size_t(size))
        return data.raw


def mapped_library(name):
    """Path of a library that this process has mapped, None when it has none."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            path = line.split(maxsplit=5)[5].strip() if len(line.split(maxsplit=5)) > 5 else ""
            if os.path.basename(path).startswith(name):
                return path
    return None


class Graph:
    def __init__(self, torch, graph):
        self.replay = graph.replay


class Device:
    MPS_ENABLED = 133  # CU_DEVICE_ATTRIBUTE_MPS_ENABLED

    def __init__(self, torch, index):
        self.torch, self.index = torch, index
        torch.cuda.set_device(index)
        self.where = torch.device("cuda", index)
        torch.zeros(1, device=self.where)  # the context
        self.properties = torch.cuda.get_device_properties(index)
        self.multiprocessors = self.properties.multi_processor_count
        self.driver = Driver()
        self.mps = bool(self.driver.attribute(self.MPS_ENABLED, index))
        self.kinds = {"bf16": torch.bfloat16, "f32": torch.float32, "i64": torch.int64, "i32": torch.int32}
        self.stamped = None
        self.sharers = 1
        self.engine = 0  # multiprocessors of a NIC's engine beside each rank
        self.capture_stream = torch.cuda.Stream()

    def all_multiprocessors(self):
        """Of the whole GPU; torch and the driver show the share that MPS leaves. None when NVML does not tell."""
        try:
            nvml = ctypes.CDLL("libnvidia-ml.so.1")
            handle, cores = ctypes.c_void_p(), ctypes.c_uint()
            uuid = ("GPU-%s" % self.properties.uuid).encode()
            if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByUUID(uuid, ctypes.byref(handle)):
                return None
            if nvml.nvmlDeviceGetNumGpuCores(handle, ctypes.byref(cores)):
                return None
            return cores.value // 128
        except (OSError, AttributeError):
            return None

    def meet_peers(self, session):
        """Collective: who is on this GPU, who can be reached, and the barrier's memory."""
        torch, ranks = self.torch, session.ranks
        if ranks > MAX_RANKS:
            raise Refused("the barrier of all ranks is for at most %d of them, not %d" % (MAX_RANKS, ranks))
        uuid = str(self.properties.uuid).encode().ljust(64)[:64]
        others = session.gather(uuid + struct.pack("<i", self.index))
        self.sharers = sum(o[:64] == uuid for o in others)
        self.engine = session.number("engine_sms")
        error = None
        if self.sharers > 1 and not self.mps:
            error = Refused("%d ranks on one %s without MPS would be time-sliced, and no time taken would mean anything: start "
                            "nvidia-cuda-mps-control -d, or use a GPU for each rank" % (self.sharers, self.properties.name))
        if session.text("path") == "nvlink" and not error:
            for peer, o in enumerate(others):
                there = struct.unpack("<i", o[64:])[0]
                if o[:64] != uuid and not torch.cuda.can_device_access_peer(self.index, there):
                    error = Refused("the GPUs of rank %d and rank %d cannot reach each other's memory, and --nic none leaves no other "
                                    "path" % (session.rank, peer))
                    break
        session.agree("reach the peers", error)
        d = self.driver
        self.flags = d.alloc(FLAG_BYTES)
        handle = _Handle()
        d.call("cuIpcGetMemHandle", ctypes.byref(handle), ctypes.c_uint64(self.flags))
        table = []
        for peer, data in enumerate(session.gather(ctypes.string_at(ctypes.addressof(handle), 64))):
            at = ctypes.c_uint64(self.flags)
            if peer != session.rank:
                theirs = _Handle()
                ctypes.memmove(ctypes.addressof(theirs), data, 64)
                d.call("cuIpcOpenMemHandle_v2", ctypes.byref(at), theirs, ctypes.c_uint(1))
            table.append(at.value)
        self.peers = d.alloc(8 * MAX_RANKS)
        d.write(self.peers, struct.pack("<%dQ" % ranks, *table))
        self.rank, self.ranks = session.rank, ranks
        self.limit = min(int(session.text("timeout_ns")), 1 << 62)
        module = ctypes.c_void_p()
        d.call("cuModuleLoadData", ctypes.byref(module), PTX)
        self.functions = {}
        for name in ("gic_stamp", "gic_meet"):
            function = ctypes.c_void_p()
            d.call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
            self.functions[name] = function
        f = session.fact
        f("gpu", self.properties.name)
        f("gpu.mps", "yes" if self.mps else "no")
        f("gpu.ranks", self.sharers)
        f("gpu.multiprocessors", self.multiprocessors)
        f("module_loading", os.environ.get("CUDA_MODULE_LOADING", "lazy"))
        session.barrier()

    def check(self, point, operation):
        """Kernels of ranks on one GPU wait for each other, and for a NIC whose engine runs on the GPU: all their blocks must
        fit beside each other, or nobody moves on.

        DeepEP launches clusters of two blocks, which lie in one GPC: an engine's multiprocessor may leave another one of its
        GPC without a partner. With four of them 128 blocks of an H200 started only when the engine had left, after 2 ms.

        A limit of MPS is no help: two ranks with 64 blocks each and half of an H200 each did not move on; they may have
        been given the same half."""
        if self.sharers == 1 and self.engine == 0:
            return
        if operation.kind == "v2":
            raise Refused("mode=v2 wants a GPU for each rank: NCCL has no window between two ranks on one")
        whole = self.all_multiprocessors() or self.multiprocessors
        if self.sharers > 1 and self.multiprocessors < whole:
            raise Refused("%d of %d multiprocessors are left to a rank by CUDA_MPS_ACTIVE_THREAD_PERCENTAGE, maybe the same ones to "
                          "several that wait for each other: unset it, or use a GPU for each rank" % (self.multiprocessors, whole))
        room = whole // self.sharers - 2 * self.engine
        if operation.layout == "expert":
            m = self.multiprocessors
            blocks = -(-point.experts // -(-point.experts // m))
            blocks = max(blocks, -(-point.tokens // -(-point.tokens // m)))
            what = "experts=%d, tokens=%d make %d blocks" % (point.experts, point.tokens, blocks)
        else:
            blocks, what = point.sms, "sms=%d make as many blocks" % point.sms
        if blocks > room:
            raise Refused("%s in a rank that wait for others; %d of its GPU's %d multiprocessors are there for them (ranks on it: %d; "
                          "softnic's engine of each: sms=%d, and as many that lose their partner in a cluster)" %
                          (what, room, whole, self.sharers, self.engine))

    def prove_path(self, session, buffer, kind):
        path = session.text("path")
        session.fact("path", path)
        if kind != "ll":
            session.fact("peer_pointer", "cuda ipc" if kind == "normal" else "nccl window")
            return
        torch = self.torch
        file = mapped_library("libnvshmem_host.so")
        if file is None:
            raise Failure("no libnvshmem_host in this process after a low-latency buffer was made")
        lib = ctypes.CDLL(file)
        lib.nvshmem_ptr.restype, lib.nvshmem_ptr.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_int]
        version = [ctypes.c_int() for _ in range(3)]
        if hasattr(lib, "nvshmemx_vendor_get_version_info"):
            lib.nvshmemx_vendor_get_version_info(*[ctypes.byref(v) for v in version])
            session.fact("nvshmem.version", ".".join(str(v.value) for v in version))
        heap = buffer.get_local_buffer_tensor(torch.uint8, use_rdma_buffer=True).data_ptr()
        for peer in range(session.ranks):
            if peer == session.rank:
                continue
            reachable = lib.nvshmem_ptr(heap, peer) is not None
            if reachable != (path == "nvlink"):
                raise Failure("path=%s, but nvshmem_ptr says that rank %d's buffer is %s from rank %d" %
                              (path, peer, "mapped" if reachable else "not mapped", session.rank))
        session.fact("peer_pointer", "mapped" if path == "nvlink" else "null")

    # Arrays.

    def array(self, data, kind, shape):
        flat = self.torch.frombuffer(bytearray(data), dtype=self.kinds[kind]) if len(data) else self.torch.empty(0, dtype=self.kinds[kind])
        return flat.reshape(shape).to(self.where)

    def zeros(self, kind, shape):
        return self.torch.zeros(shape, dtype=self.kinds[kind], device=self.where)

    def quantised(self, x):
        blocks = x.float().view(x.shape[0], x.shape[1] // 128, 128)
        top = blocks.abs().amax(dim=2).clamp(min=1e-4)
        q = (blocks * (448.0 / top).unsqueeze(2)).view(x.shape).to(self.torch.float8_e4m3fn)
        return q, (top / 448.0).contiguous()

    @staticmethod
    def _plain(rows):
        """In fp32, whatever they travelled in."""
        if not isinstance(rows, tuple):
            return rows.float()
        q, scales = rows
        return (q.float().view(*q.shape[:-1], q.shape[-1] // 128, 128) * scales.float().unsqueeze(-1)).view(q.shape)

    def scaled_blocks(self, rows, factors):
        return (self._plain(rows) * factors.view(-1, 1, 1)).to(self.torch.bfloat16)

    def scaled_rows(self, rows, weights):
        return (self._plain(rows) * weights.view(-1, 1)).to(self.torch.bfloat16)

    def rows(self, rows, first, count, block=None):
        """Rows as bf16 bytes on the host."""
        if count == 0:
            return []

        def part(t):
            return (t if block is None else t[block])[first:first + count]

        chosen = tuple(part(t) for t in rows) if isinstance(rows, tuple) else part(rows)
        host = self._plain(chosen).to(self.torch.bfloat16).contiguous().cpu()
        size = host.numel() * 2 // count
        data = ctypes.string_at(host.data_ptr(), host.numel() * 2)
        return [data[i * size:(i + 1) * size] for i in range(count)]

    def numbers(self, t):
        return t.cpu().tolist()

    # Time.

    def sync(self):
        self.torch.cuda.synchronize()

    def slots(self, count):
        self.stamped = self.zeros("i64", (count,))

    def _launch(self, name, threads, *args):
        values = (ctypes.c_void_p * len(args))(*[ctypes.cast(ctypes.pointer(a), ctypes.c_void_p) for a in args])
        one = ctypes.c_uint(1)
        self.driver.call("cuLaunchKernel", self.functions[name], one, one, one, ctypes.c_uint(threads), one, one, ctypes.c_uint(0),
                         ctypes.c_void_p(self.torch.cuda.current_stream().cuda_stream), values, None)

    def stamp(self, slot):
        self._launch("gic_stamp", 1, ctypes.c_uint64(self.stamped.data_ptr() + 8 * slot))

    def meet(self, slot):
        self._launch("gic_meet", 32, ctypes.c_uint64(self.flags), ctypes.c_uint64(self.peers), ctypes.c_uint(self.ranks),
                     ctypes.c_uint(self.rank), ctypes.c_uint64(self.limit), ctypes.c_uint64(self.stamped.data_ptr() + 8 * slot))

    def check_barrier(self):
        if self.driver.read(self.flags + 520, 8) != bytes(8):
            raise Failure("rank %d: a peer did not come to the barrier within %g s" % (self.rank, self.limit / 1e9))

    def stamps(self, count):
        return self.numbers(self.stamped)[:count]

    def capture(self, work):
        torch = self.torch
        graph = torch.cuda.CUDAGraph()
        self.sync()
        # Other threads of this process may use the driver meanwhile: those of a NIC.
        with torch.cuda.graph(graph, stream=self.capture_stream, capture_error_mode="thread_local"):
            work()
        self.sync()
        return Graph(torch, graph)

    def elapsed(self, work):
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()  # not the device, on which the engine of a NIC may be, and stays for the next replay
        return begin.elapsed_time(end) * 1e6

    def kernels(self, work):
        """How long each dispatch and combine kernel ran, in order, ns."""
        # What torch.profiler.profile is made of, without its import of torch's compiler, which takes seconds.
        from torch.autograd.profiler import profile

        out = {"dispatch": [], "combine": []}
        with profile(use_cpu=False, use_device="cuda", use_kineto=True) as traced:
            work()
            self.sync()
        events = []
        for e in traced.function_events:
            found = re.search(r"::(dispatch|combine)(?:_impl)?<", e.name)
            if found:
                events.append((e.time_range.start, found.group(1), e.time_range.elapsed_us() * 1e3))
        for _, half, ns in sorted(events):
            out[half].append(ns)
        return out


def start(session, comm):
    """DeepEP as it is installed, and the GPU. torch is imported first: what it maps decides for both."""
    try:
        import torch
    except ImportError as e:
        raise Refused("PyTorch does not import: %s" % e)
    index = int(session.text("device_index"))
    if not torch.cuda.is_available() or index >= torch.cuda.device_count():
        raise Refused("PyTorch %s sees no CUDA device %d" % (torch.__version__, index))
    device = Device(torch, index)
    session.progress("importing deep_ep")
    import deep_ep

    version = session.text("python.deep_ep")
    f = session.fact
    f("library.deep_ep.version", version)
    f("library.deep_ep.path", os.path.dirname(deep_ep.__file__))
    f("library.torch.version", torch.__version__)
    f("torch.cuda", torch.version.cuda)
    f("nccl.version", ".".join(str(v) for v in torch.cuda.nccl.version()))
    f("python.version", session.text("python.version"))
    # A choice of the build that changes the kernels' loads and stores; only newer builds keep it.
    try:
        from deep_ep.envs import persistent_envs as kept
    except ImportError:
        kept = {}
    f("deep_ep.disable_aggressive_ptx", kept.get("DISABLE_AGGRESSIVE_PTX_INSTRS", "not told by the build"))
    return deep_ep, device, version
