"""Dispatch and combine as DeepEP has them: which call, which buffer, which limits, what came of it.

One class per API. `device` makes arrays and looks into them: cuda.py with torch, double.py without anything.
"""

import bisect
import hashlib
import inspect
import os
import struct
from array import array

from gic_deepep_bridge import Failure, Refused


class Point:
    """The parameters of a run, and the routing of all ranks, which proves to be that of the job."""

    def __init__(self, session):
        self.rank, self.ranks = session.rank, session.ranks
        for name in ("hidden", "experts", "topk", "tokens", "iterations", "warmup", "pairs",
                     "graph_warm", "graph_timed", "graph_traced", "halves_runs"):
            setattr(self, name, session.number("arg." + name))
        self.layout = session.text("arg.layout")
        self.max_tokens = session.number("config.max_tokens")
        self.fp8 = session.text("config.dispatch") == "fp8"
        self.sms = session.number("config.sms")
        self.path = session.text("path")
        self.local = self.experts // self.ranks
        self.gates = session.blob("gates")
        self.mine = session.blob("experts")
        self.factors = array("f", session.blob("factors"))
        self.table = self._exchange(session)

    def _exchange(self, session):
        """Experts and gates of every rank's tokens: [rank][token] -> [(expert, gate)]."""
        mine = self.mine + self.gates
        if session.text("config.fault") == "routing" and self.rank == self.ranks - 1:
            mine = bytes([mine[0] ^ 1]) + mine[1:]
        parts = session.gather(mine)
        half = len(self.mine)
        words = array("I", bytes(8 * self.ranks * self.tokens * self.topk))
        words[0::2] = array("I", b"".join(p[:half] for p in parts))
        words[1::2] = array("I", b"".join(p[half:] for p in parts))
        head = struct.pack("<4I", self.ranks, self.tokens, self.experts, self.topk)
        found, want = hashlib.sha256(head + words.tobytes()).hexdigest(), session.text("arg.routing_hash")
        if found != want:
            raise Failure("rank %d: the ranks' routing tables together hash to %s, the job's to %s" % (self.rank, found, want))
        session.fact("routing_hash", found)
        table = []
        for part in parts:
            experts, gates = array("i", part[:half]), array("f", part[half:])
            table.append([list(zip(experts[t * self.topk:(t + 1) * self.topk], gates[t * self.topk:(t + 1) * self.topk]))
                          for t in range(self.tokens)])
        return table

    def here(self, source, token):
        """The entries of a token that are experts of this rank: [(entry, local expert, gate)]."""
        first = self.rank * self.local
        return [(k, e - first, g) for k, (e, g) in enumerate(self.table[source][token]) if first <= e < first + self.local]

    def by_expert(self):
        """Tokens that belong here: {(local expert, source): [token]}."""
        rows = {(e, r): [] for e in range(self.local) for r in range(self.ranks)}
        for r in range(self.ranks):
            for t in range(self.tokens):
                for _, e, _ in self.here(r, t):
                    rows[e, r].append(t)
        return rows

    def by_rank(self):
        """Tokens that belong here: {source: [token]}."""
        return {r: [t for t in range(self.tokens) if self.here(r, t)] for r in range(self.ranks)}

    def row_bytes(self):
        return self.hidden + 4 * self.hidden // 128 if self.fp8 else 2 * self.hidden


def check_rows(point, what, got, want):
    if sorted(got) != want:
        raise Failure("rank %d: %s brought the tokens %s, the routing sends %s" %
                      (point.rank, what, abridged(sorted(got)), abridged(want)))


def abridged(values):
    return "[%s]" % ", ".join([str(v) for v in values[:6]] + (["... %d of them" % len(values)] if len(values) > 6 else []))


class LowLatency:
    """Buffer.low_latency_dispatch and low_latency_combine: one row per (token, expert)."""

    kind = "ll"
    layout = "expert"
    phases = True
    hiddens = (2048, 2560, 3072, 4096, 5120, 6144, 7168, 8192)

    def __init__(self, state, point):
        self.device, self.point = state.device, point
        self.check(state, point)
        p = point
        bytes_ = state.deep_ep.Buffer.get_low_latency_rdma_size_hint(p.max_tokens, p.hidden, p.ranks, p.experts)
        if p.path == "softnic":  # a heap in one piece does not grow
            os.environ["NVSHMEM_SYMMETRIC_SIZE"] = str(bytes_ + (256 << 20))
        self.buffer = state.buffer("ll", (p.path, p.local), bytes_, lambda: make_buffer(
            state, 0, bytes_, low_latency_mode=True, num_qps_per_rank=p.local,
            allow_nvlink_for_low_latency_mode=p.path == "nvlink"))
        state.session.fact("blocks", -(-p.experts // -(-p.experts // self.device.multiprocessors)))
        self.x = self.device.array(state.tokens(p), "bf16", (p.tokens, p.hidden))
        self.experts = self.device.array(array("q", array("i", p.mine)).tobytes(), "i64", (p.tokens, p.topk))
        self.gates = self.device.array(p.gates, "f32", (p.tokens, p.topk))
        first = p.rank * p.local
        self.factors = self.device.array(p.factors[first:first + p.local].tobytes(), "f32", (p.local,))
        self.y = self.device.zeros("bf16", (p.local, p.ranks * p.max_tokens, p.hidden))

    @classmethod
    def check(cls, state, p):
        if p.layout != "expert":
            raise Refused("mode=ll sends one row per (token, expert): layout=expert, not layout=%s" % p.layout)
        if p.hidden not in cls.hiddens:
            raise Refused("mode=ll is compiled for hidden=%s, not %d" % ("|".join(map(str, cls.hiddens)), p.hidden))
        if p.tokens > p.max_tokens:
            raise Refused("tokens=%d exceeds max_tokens=%d, for which the buffer is laid out" % (p.tokens, p.max_tokens))
        if p.topk > 11:
            raise Refused("mode=ll takes at most 11 experts per token, not topk=%d" % p.topk)
        if p.ranks * p.max_tokens % 4:
            raise Refused("mode=ll wants ranks x max_tokens to be a multiple of 4, not %d x %d" % (p.ranks, p.max_tokens))

    def message(self):
        """Bytes on the wire of a dispatched row: 16 of header, elements, scales."""
        return 16 + self.point.row_bytes()

    def dispatch(self, hook=False):
        p = self.point
        rows, counts, handle, _, receive = self.buffer.low_latency_dispatch(
            self.x, self.experts, p.max_tokens, p.experts, use_fp8=p.fp8, return_recv_hook=hook)
        return (rows, counts, handle), receive

    again = dispatch

    def prepare(self):
        """Nothing has to be known of an earlier dispatch."""

    def combine(self, result, y, hook=False):
        out, _, receive = self.buffer.low_latency_combine(y, self.experts, self.gates, result[2], return_recv_hook=hook)
        return out, receive

    def blank(self, result):
        return self.y

    def expert(self, result):
        return self.device.scaled_blocks(result[0], self.factors)

    def received(self, result):
        """Rows in the order of expert, source and token. Their places tell whose they are."""
        p, (rows, counts, handle) = self.point, result
        counts, sources, ranges = (self.device.numbers(a) for a in (counts, handle[0], handle[1]))
        out, belongs = [], p.by_expert()
        for (e, r), want in sorted(belongs.items()):
            begin, count = ranges[e][r] >> 32, ranges[e][r] & 0xffffffff
            if begin < 0 or begin + count > counts[e]:
                raise Failure("rank %d: expert %d has %d rows, those of rank %d shall lie at %d to %d" %
                              (p.rank, e, counts[e], r, begin, begin + count))
            tokens = sources[e][begin:begin + count]
            check_rows(p, "for expert %d rank %d" % (e, r), tokens, want)
            block = self.device.rows(rows, begin, count, e)
            out += [row for _, row in sorted(zip(tokens, block), key=lambda pair: pair[0])]
        for e, count in enumerate(counts):
            if count != sum(len(belongs[e, r]) for r in range(p.ranks)):
                raise Failure("rank %d: expert %d counts %d rows" % (p.rank, e, count))
        return out


class Normal:
    """Buffer.dispatch and combine within a host: one row per (token, rank), and the gates and experts beside it."""

    kind = "normal"
    layout = "rank"
    phases = False

    def __init__(self, state, point):
        self.device, self.point = state.device, point
        self.check(state, point)
        p, Buffer = point, state.deep_ep.Buffer
        Buffer.set_num_sms(p.sms)
        bytes_ = max(config(p.ranks).get_nvl_buffer_size_hint(2 * p.hidden, p.ranks)
                     for config in (Buffer.get_dispatch_config, Buffer.get_combine_config))
        self.buffer = state.buffer("normal", (p.path,), bytes_, lambda: make_buffer(state, bytes_, 0))
        state.session.fact("sms", p.sms)
        self.load(state)
        self.handle = self.weights = self.latest = None

    def load(self, state):
        p = self.point
        x = self.device.array(state.tokens(p), "bf16", (p.tokens, p.hidden))
        self.x = self.device.quantised(x) if p.fp8 else x
        self.experts = self.device.array(array("q", array("i", p.mine)).tobytes(), "i64", (p.tokens, p.topk))
        self.gates = self.device.array(p.gates, "f32", (p.tokens, p.topk))

    @classmethod
    def check(cls, state, p):
        if p.layout != "rank":
            raise Refused("mode=normal sends one row per (token, rank): layout=rank, not layout=%s" % p.layout)
        if p.path != "nvlink":
            raise Refused("mode=normal moves rows over NVLink within a host: --nic none")
        if p.ranks not in (2, 4, 8):
            raise Refused("mode=normal within a host has no configuration for %d ranks: 2, 4 or 8" % p.ranks)
        if p.hidden % 128 and p.fp8:
            raise Refused("dispatch=fp8 wants hidden to be a multiple of 128, not %d" % p.hidden)

    def message(self):
        """Bytes per dispatched row with a cached layout: elements, scales and the source index."""
        return 4 + self.point.row_bytes()

    def dispatch(self, hook=False):
        """With its layout, which the host waits for."""
        b, p = self.buffer, self.point
        per_rank, _, per_expert, in_rank, _ = b.get_dispatch_layout(self.experts, p.experts)
        rows, experts, gates, counts, handle, _ = b.dispatch(
            self.x, num_tokens_per_rank=per_rank, is_token_in_rank=in_rank, num_tokens_per_expert=per_expert,
            topk_idx=self.experts, topk_weights=self.gates)
        self.latest = rows, experts, gates, counts, handle
        return (rows, handle), None

    def prepare(self):
        """One dispatch whose layout later ones use. A NIC that counts has no part in it."""
        result, _ = self.dispatch()
        self.combine(result, self.keep(*self.latest))

    def again(self, hook=False):
        """With the layout of an earlier one, so that no host takes part."""
        return (self.buffer.dispatch(self.x, handle=self.handle)[0], self.handle), None

    def combine(self, result, y, hook=False):
        return self.buffer.combine(y, result[1])[0], None

    def blank(self, result):
        return self.y

    def expert(self, result):
        return self.device.scaled_rows(result[0], self.weights)

    def keep(self, rows, experts, gates, counts, handle):
        """Of the first dispatch: the layout, checked, and what every row's experts make of it; rows to combine."""
        p = self.point
        self.handle = handle
        self.order = self.sources(handle, rows)
        belongs = p.by_expert()
        want = [sum(len(belongs[e, r]) for r in range(p.ranks)) for e in range(p.local)]
        if list(counts) != want:
            raise Failure("rank %d: the experts count %s rows, the routing sends %s" % (p.rank, abridged(list(counts)), abridged(want)))
        for r, tokens in p.by_rank().items():
            check_rows(p, "rank %d" % r, [t for s, t in self.order if s == r], tokens)
        first, weights = p.rank * p.local, array("f")
        for i, (e, g) in enumerate(zip(self.device.numbers(experts), self.device.numbers(gates))):
            source, token = self.order[i]
            expected = [(-1, 0.0)] * p.topk
            for k, expert, gate in p.here(source, token):
                expected[k] = (expert, gate)
            if [(a, b if a >= 0 else 0.0) for a, b in zip(e, g)] != expected:
                raise Failure("rank %d: with token %d of rank %d came experts %s and gates %s, expected %s" %
                              (p.rank, token, source, e, g, expected))
            weights.append(sum(gate * p.factors[first + expert] for _, expert, gate in p.here(source, token)))
        self.weights = self.device.array(weights.tobytes(), "f32", (len(weights),))
        self.y = self.device.zeros("bf16", (len(weights), p.hidden))
        return self.y

    def sources(self, handle, rows):
        """Whose the received rows are: [(source rank, token)]. The handle has the counts, summed up by source, and the
        tokens' numbers."""
        p = self.point
        ends = [column[p.rank] for column in self.device.numbers(handle[0])]
        return [(bisect.bisect_right(ends, i), token) for i, token in enumerate(self.device.numbers(handle[3]))]

    def received(self, result):
        rows = self.device.rows(result[0], 0, len(self.order))
        return [row for _, row in sorted(zip(self.order, rows), key=lambda pair: pair[0])]


class Elastic(Normal):
    """ElasticBuffer of DeepEP 2, over NCCL's device API: one row per (token, rank)."""

    kind = "v2"

    def __init__(self, state, point):
        self.device, self.point = state.device, point
        self.check(state, point)
        p = point
        self.buffer = state.buffer("v2", (p.path, p.max_tokens, p.hidden, p.topk, p.fp8), 0, lambda: self.make(state))
        state.session.fact("sms", p.sms)
        self.load(state)
        self.handle = self.weights = self.latest = None

    @classmethod
    def check(cls, state, p):
        if p.layout != "rank":
            raise Refused("mode=v2 sends one row per (token, rank): layout=rank, not layout=%s" % p.layout)
        if p.path != "nvlink":
            raise Refused("mode=v2 is driven over NVLink alone yet: --nic none")
        if p.tokens > p.max_tokens:
            raise Refused("tokens=%d exceeds max_tokens=%d, for which the buffer is laid out" % (p.tokens, p.max_tokens))
        if p.hidden % 128 and p.fp8:
            raise Refused("dispatch=fp8 wants hidden to be a multiple of 128, not %d" % p.hidden)

    def make(self, state):
        """The NCCL communicator is made with a unique id that goes through our exchange, and handed over where
        DeepEP looks for one of a process group."""
        p, module = self.point, state.deep_ep
        comm = state.comm
        if hasattr(module, "_C"):
            from deep_ep.utils import comm as communicators
            ids = comm.allgather(bytes(module._C.get_local_nccl_unique_id()))
            handle = communicators.NCCLCommHandle(module._C.create_nccl_comm(bytearray(ids[0]), p.ranks, p.rank), True)
            communicators._storage[comm] = handle
        return module.ElasticBuffer(comm, num_max_tokens_per_rank=p.max_tokens, hidden=p.hidden, num_topk=p.topk,
                                    use_fp8_dispatch=p.fp8, allow_hybrid_mode=False, explicitly_destroy=True)

    def message(self):
        """Elements and scales; expert numbers, gates and links of 4 bytes an entry; the source's index; each padded to 16."""
        return self.point.row_bytes() + 3 * (-(-4 * self.point.topk // 16) * 16) + 16

    def dispatch(self, hook=False):
        p = self.point
        rows, experts, gates, handle, _ = self.buffer.dispatch(
            self.x, topk_idx=self.experts, topk_weights=self.gates, num_experts=p.experts,
            num_max_tokens_per_rank=p.max_tokens, num_sms=p.sms)
        self.latest = rows, experts, gates, handle.num_recv_tokens_per_expert_list, handle
        return (rows, handle), None

    def again(self, hook=False):
        return (self.buffer.dispatch(self.x, handle=self.handle, num_sms=self.point.sms)[0], self.handle), None

    def combine(self, result, y, hook=False):
        return self.buffer.combine(y, result[1], num_sms=self.point.sms)[0], None

    def sources(self, handle, rows):
        return [divmod(line[0], self.point.max_tokens) for line in self.device.numbers(handle.recv_src_metadata)]


def make_buffer(state, nvl_bytes, rdma_bytes, **options):
    """A Buffer whose ranks meet through our exchange."""
    known = inspect.signature(state.deep_ep.Buffer.__init__).parameters
    if "comm" not in known:
        raise Refused("this DeepEP (%s) can only be set up through torch.distributed: want one whose Buffer takes comm" % state.version)
    return state.deep_ep.Buffer(None, nvl_bytes, rdma_bytes, explicitly_destroy=True, comm=state.comm, **options)


MODES = {"ll": LowLatency, "normal": Normal, "v2": Elastic}


def choose(mode, layout):
    """The class for a mode; auto: by the layout."""
    if mode == "auto":
        mode = "ll" if layout == "expert" else "normal"
    return MODES[mode]
