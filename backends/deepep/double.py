"""A test double of deep_ep and of the GPU, in plain Python: same calls, same shapes, same orders left open, and the
faults that a test asks for. It proves the adapter where there is no GPU; what it says of time means nothing.
"""

import bisect
import ctypes
import time
from array import array

from gic_deepep_bridge import Refused

# bf16 and e4m3.
_bits = array("I", (h << 16 for h in range(1 << 16)))
FLOAT = array("f", _bits.tobytes())  # of every bf16


def from_bf16(data):
    return [FLOAT[h] for h in array("H", data)]


def to_bf16(values):
    words = array("I", array("f", values).tobytes())
    return array("H", [(w + 0x7FFF + (w >> 16 & 1)) >> 16 for w in words]).tobytes()


E4M3 = [(m / 8 * 2.0 ** -6) if e == 0 else (1 + m / 8) * 2.0 ** (e - 7) for e in range(16) for m in range(8)][:127]


def to_e4m3(v):
    a = abs(v)
    i = bisect.bisect_left(E4M3, a)
    if i == len(E4M3):
        i -= 1
    elif i and (a - E4M3[i - 1] < E4M3[i] - a or a - E4M3[i - 1] == E4M3[i] - a and i % 2):
        i -= 1
    return i | (0x80 if v < 0 else 0)


class Row:
    """A token's row as it travels: bf16, or e4m3 with a scale per 128 elements."""

    def __init__(self, data, scales=None):
        self.data, self.scales = data, scales

    @classmethod
    def cast(cls, data):
        values, out, scales = from_bf16(data), bytearray(), []
        for i in range(0, len(values), 128):
            block = values[i:i + 128]
            scale = max(1e-4, max(abs(v) for v in block)) / 448
            scales.append(scale)
            out += bytes(to_e4m3(v / scale) for v in block)
        return cls(bytes(out), scales)

    def values(self):
        if self.scales is None:
            return from_bf16(self.data)
        return [(-E4M3[b & 0x7F] if b & 0x80 else E4M3[b]) * self.scales[i // 128] for i, b in enumerate(self.data)]

    def bf16(self):
        return self.data if self.scales is None else to_bf16(self.values())

    def scaled(self, factor):
        return Row(to_bf16([v * factor for v in self.values()]))


class Rows:
    """An array of rows; of blocks of rows, when `shape` has three dimensions. Rows that nobody wrote are not there."""

    def __init__(self, shape, rows=None):
        self.shape, self.at = tuple(shape), rows or {}

    def listed(self):
        return [self.at[0, i] for i in range(self.shape[0])]


class Device:
    multiprocessors = 4

    def __init__(self, session, comm):
        self.comm, self.at = comm, []

    def meet_peers(self, session):
        session.barrier()

    def check(self, point, operation):
        if point.path != "nvlink":
            raise Refused("the test double has no NIC")

    def prove_path(self, session, buffer, kind):
        session.fact("path", session.text("path"))

    def array(self, data, kind, shape):
        if kind == "bf16":
            size = 2 * shape[1]
            return Rows(shape, {(0, i): Row(bytes(data[i * size:(i + 1) * size])) for i in range(shape[0])})
        flat = array({"f32": "f", "i64": "q"}[kind], bytes(data)).tolist()
        if len(shape) == 1:
            return flat
        return [flat[i * shape[1]:(i + 1) * shape[1]] for i in range(shape[0])]

    def zeros(self, kind, shape):
        zero = Row(bytes(2 * shape[-1]))
        return Rows(shape, {(0, i): zero for i in range(shape[0])} if len(shape) == 2 else None)

    def quantised(self, x):
        return Rows(x.shape, {k: Row.cast(r.data) for k, r in x.at.items()})

    def scaled_blocks(self, rows, factors):
        return Rows(rows.shape, {(e, i): r.scaled(factors[e]) for (e, i), r in rows.at.items()})

    def scaled_rows(self, rows, weights):
        return Rows(rows.shape, {(0, i): r.scaled(weights[i]) for (_, i), r in rows.at.items()})

    def rows(self, rows, first, count, block=None):
        return [rows.at[block or 0, i].bf16() for i in range(first, first + count)]

    def numbers(self, t):
        return t

    def sync(self):
        pass

    def slots(self, count):
        self.at = [0] * count

    def stamp(self, slot):
        self.at[slot] = time.perf_counter_ns()

    def meet(self, slot):
        self.comm.Barrier()
        self.stamp(slot)

    def check_barrier(self):
        pass

    def stamps(self, count):
        return self.at[:count]

    def capture(self, work):
        class Graph:
            replay = staticmethod(work)

        return Graph

    def elapsed(self, work):
        begin = time.perf_counter_ns()
        work()
        return float(time.perf_counter_ns() - begin)

    def kernels(self, work):
        work()
        return {"dispatch": [], "combine": []}


class Faulty:
    """What a test asks to go wrong, on the last rank."""

    fault = "none"

    @classmethod
    def on(cls, fault, comm):
        return cls.fault == fault and comm.Get_rank() == comm.Get_size() - 1

    @classmethod
    def meddle(cls, comm):
        """In a dispatch."""
        if cls.on("hang", comm):
            while True:
                time.sleep(1)
        if cls.on("trap", comm):
            raise RuntimeError("CUDA error: unspecified launch failure")


class Buffer:
    num_sms = 20

    def __init__(self, group, num_nvl_bytes=0, num_rdma_bytes=0, low_latency_mode=False, num_qps_per_rank=24,
                 allow_nvlink_for_low_latency_mode=True, explicitly_destroy=False, comm=None):
        assert group is None and explicitly_destroy
        self.comm, self.rank, self.ranks = comm, comm.Get_rank(), comm.Get_size()
        self.low_latency, self.qps = low_latency_mode, num_qps_per_rank
        self.nvl_bytes, self.rdma_bytes = num_nvl_bytes, num_rdma_bytes
        comm.allgather(("handle", self.rank) * (1 + self.rank))  # handles of different lengths, as pickled objects are
        if Faulty.on("constructor", comm):
            raise RuntimeError("Assertion error double.py: num_ranks > 0")
        if Faulty.on("exit", comm):
            print("WARN: init failed for transport: IBGDA", flush=True)
            ctypes.CDLL(None).exit(255)

    def destroy(self):
        self.comm.Barrier()

    @staticmethod
    def set_num_sms(n):
        assert n % 2 == 0
        Buffer.num_sms = n

    @staticmethod
    def get_low_latency_rdma_size_hint(max_tokens, hidden, ranks, experts):
        return 4 * experts * max_tokens * (2 * hidden + 16)

    @staticmethod
    def get_dispatch_config(ranks):
        class Config:
            get_nvl_buffer_size_hint = staticmethod(lambda hidden_bytes, n: 1024 * hidden_bytes * n)

        return Config

    get_combine_config = get_dispatch_config

    def _exchange(self, mine):
        """Items for every rank: a list by target; what came, by source. The later ranks' come first, as they may."""
        Faulty.meddle(self.comm)
        return [sent[self.rank] for sent in self.comm.allgather(mine)]

    # One row per (token, expert).

    def low_latency_dispatch(self, x, topk_idx, max_tokens, experts, use_fp8=True, return_recv_hook=False):
        local = experts // self.ranks
        assert self.low_latency and self.qps >= local and self.ranks * max_tokens % 4 == 0
        assert self.rdma_bytes >= self.get_low_latency_rdma_size_hint(max_tokens, x.shape[1], self.ranks, experts)
        out = [[] for _ in range(self.ranks)]
        for t in reversed(range(x.shape[0])):  # the order within a source is left open
            row = x.at[0, t]
            row = Row.cast(row.data) if use_fp8 else row
            for e in topk_idx[t]:
                if e >= 0:
                    out[e // local].append((e % local, t, row))
        came = self._exchange(out)
        rows = Rows((local, self.ranks * max_tokens, x.shape[1]))
        counts, sources = [0] * local, [[0] * (self.ranks * max_tokens) for _ in range(local)]
        ranges = [[0] * self.ranks for _ in range(local)]
        for source in reversed(range(self.ranks)):  # and so is that of the sources
            for e in range(local):
                begin = counts[e]
                for _, t, row in (item for item in came[source] if item[0] == e):
                    rows.at[e, counts[e]] = row
                    sources[e][counts[e]] = t
                    counts[e] += 1
                ranges[e][source] = begin << 32 | counts[e] - begin
        told = [list(line) for line in sources]
        self._spoil(rows, counts, told)
        return rows, counts, (told, ranges, max_tokens, x.shape[1], experts, sources), None, (lambda: None)

    def _spoil(self, rows, counts, sources):
        full = [e for e, n in enumerate(counts) if n]
        if not full:
            return
        e = full[0]
        if Faulty.on("row", self.comm):
            data = bytearray(rows.at[e, 0].data)
            data[1] ^= 0x10
            rows.at[e, 0] = Row(bytes(data), rows.at[e, 0].scales)
        if Faulty.on("count", self.comm):
            counts[e] += 1
        if Faulty.on("source", self.comm):
            sources[e][0] += 1

    def low_latency_combine(self, y, topk_idx, topk_weights, handle, return_recv_hook=False):
        _, ranges, max_tokens, hidden, experts, sources = handle
        assert y.shape == (experts // self.ranks, self.ranks * max_tokens, hidden)
        first = self.rank * (experts // self.ranks)
        zero = Row(bytes(2 * hidden))
        out = [[] for _ in range(self.ranks)]
        for e, line in enumerate(ranges):
            for source, packed in enumerate(line):
                begin, count = packed >> 32, packed & 0xFFFFFFFF
                for i in range(begin, begin + count):
                    out[source].append((sources[e][i], first + e, y.at.get((e, i), zero)))
        came = {(t, e): row for items in self._exchange(out) for t, e, row in items}
        return self._sum(len(topk_idx), hidden, [
            [(g, came[t, e]) for e, g in zip(topk_idx[t], topk_weights[t]) if e >= 0] for t in range(len(topk_idx))]), None, (lambda: None)

    def _sum(self, tokens, hidden, terms):
        out = Rows((tokens, hidden))
        for t, list_ in enumerate(terms):
            total = [0.0] * hidden
            for weight, row in list_:
                if any(row.data):
                    total = [a + weight * v for a, v in zip(total, row.values())]
            out.at[0, t] = Row(to_bf16(total))
        return out

    # One row per (token, rank).

    def get_dispatch_layout(self, topk_idx, experts):
        local = experts // self.ranks
        in_rank = [[any(e // local == r for e in line if e >= 0) for r in range(self.ranks)] for line in topk_idx]
        per_expert = [sum(e == i for line in topk_idx for e in line) for i in range(experts)]
        return [sum(line[r] for line in in_rank) for r in range(self.ranks)], None, per_expert, in_rank, None

    def _send(self, x, in_rank, beside):
        return self._exchange([[(t, x.at[0, t], beside(r, t)) for t in range(x.shape[0]) if in_rank[t][r]] for r in range(self.ranks)])

    def dispatch(self, x, handle=None, num_tokens_per_rank=None, is_token_in_rank=None, num_tokens_per_expert=None,
                 topk_idx=None, topk_weights=None):
        assert self.nvl_bytes > 0
        if handle is not None:
            assert topk_idx is None
            came = self._send(x, handle[4], lambda r, t: None)
            return self._received(x, came), None, None, None, None, None
        local = len(num_tokens_per_expert) // self.ranks

        def beside(r, t):
            return [(e - r * local, g) if r * local <= e < (r + 1) * local else (-1, 0.0) for e, g in zip(topk_idx[t], topk_weights[t])]

        came = self._send(x, is_token_in_rank, beside)
        items = [item for part in came for item in part]
        experts, gates = [[e for e, _ in b] for _, _, b in items], [[g for _, g in b] for _, _, b in items]
        counts = [sum(e == i for line in experts for e in line) for i in range(local)]
        if Faulty.on("gate", self.comm) and gates:
            gates[0] = [2 * g for g in gates[0]]
        if Faulty.on("count", self.comm):
            counts[0] += 1
        sizes = [len(p) for p in came]
        ends = [[sum(sizes[:r + 1])] * self.ranks for r in range(self.ranks)]  # this rank's column is what is read
        tokens = [t for t, _, _ in items]
        told = list(tokens)
        if Faulty.on("source", self.comm) and told:
            told[0] += 1
        handle = (ends, tokens, sizes, told, is_token_in_rank, None)
        return self._received(x, came), experts, gates, counts, handle, None

    def _received(self, x, came):
        items = [row for part in came for _, row, _ in part]
        rows = Rows((len(items), x.shape[1]), {(0, i): row for i, row in enumerate(items)})
        if Faulty.on("row", self.comm) and items:
            data = bytearray(items[0].data)
            data[1] ^= 0x10
            rows.at[0, 0] = Row(bytes(data), items[0].scales)
        return rows

    def combine(self, y, handle):
        _, tokens, sizes, _, in_rank, _ = handle
        assert y.shape[0] == sum(sizes)
        out, at = [[] for _ in range(self.ranks)], 0
        for source, n in enumerate(sizes):
            out[source] = [(tokens[i], y.at[0, i]) for i in range(at, at + n)]
            at += n
        came = self._exchange(out)
        terms = [[] for _ in in_rank]
        for part in came:
            for t, row in part:
                terms[t].append((1.0, row))
        return self._sum(len(in_rank), y.shape[1], terms), None, None


class ElasticBuffer(Buffer):
    """One row per (token, rank), in an order that only the handle tells."""

    def __init__(self, group, num_max_tokens_per_rank=0, hidden=0, num_topk=0, use_fp8_dispatch=False, allow_hybrid_mode=True,
                 explicitly_destroy=False):
        super().__init__(None, num_nvl_bytes=1, explicitly_destroy=explicitly_destroy, comm=group)
        self.max_tokens = num_max_tokens_per_rank

    def dispatch(self, x, topk_idx=None, topk_weights=None, num_experts=None, num_max_tokens_per_rank=None, handle=None, num_sms=0):
        if handle is not None:
            rows = super().dispatch(x, handle=handle.plain)[0]
            return handle.turn(rows), None, None, handle, None
        per_rank, _, per_expert, in_rank, _ = self.get_dispatch_layout(topk_idx, num_experts)
        rows, experts, gates, counts, plain, _ = super().dispatch(
            x, num_tokens_per_rank=per_rank, is_token_in_rank=in_rank, num_tokens_per_expert=per_expert, topk_idx=topk_idx,
            topk_weights=topk_weights)
        handle = Handle(plain, counts, self.max_tokens)
        return handle.turn(rows), experts[::-1], gates[::-1], handle, None

    def combine(self, y, handle, num_sms=0):
        return super().combine(handle.turn(y), handle.plain)


class Handle:
    def __init__(self, plain, counts, max_tokens):
        self.plain, self.num_recv_tokens_per_expert_list = plain, counts
        sources = [r for r, n in enumerate(plain[2]) for _ in range(n)]
        self.recv_src_metadata = [[r * max_tokens + t, 0] for r, t in zip(sources, plain[3])][::-1]

    @staticmethod
    def turn(rows):
        n = rows.shape[0]
        return Rows(rows.shape, {(0, n - 1 - i): row for (_, i), row in rows.at.items()})


class deep_ep:
    Buffer, ElasticBuffer = Buffer, ElasticBuffer


def start(session, comm):
    Faulty.fault = session.text("config.fault")
    if Faulty.on("import", comm):
        raise ImportError("libnvshmem_host.so.3: cannot open shared object file")
    session.fact("unsafe", "library=double is a test double, not DeepEP")
    session.fact("library.deep_ep.version", "double")
    session.fact("python.version", session.text("python.version"))
    return deep_ep, Device(session, comm), "double"
