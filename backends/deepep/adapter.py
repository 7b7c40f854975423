"""Drives DeepEP for a session: opens it, runs a point of the workload moe, closes it. call() is what C++ calls."""

import os
import struct
import sys
import time
import traceback

from gic_deepep_bridge import Comm, Failure, Refused, Session
from gic_deepep_operations import Point, choose


class State:
    """What lasts from open to close."""

    def __init__(self, session):
        self.session = session
        self.comm = Comm()
        self.comm.session = session
        self.mode = session.text("config.mode")
        self.held = None  # (kind, key, size, buffer)
        if session.text("config.library") == "double":
            import gic_deepep_double as backing
        else:
            import gic_deepep_cuda as backing
        self.deep_ep, self.device, self.version = backing.start(session, self.comm)

    def enter(self, session):
        self.session = self.comm.session = session

    def tokens(self, point):
        at = self.session.number("arg.x")
        return self.session.window()[at:at + 2 * point.tokens * point.hidden]

    def buffer(self, kind, key, size, make):
        """The buffer of a kind, made anew when the one there is another or too small. One at a time: two would be
        two users of one NVSHMEM."""
        if self.held and self.held[:2] == (kind, key) and self.held[2] >= size:
            return self.held[3]
        s = self.session
        s.setup(True)
        self.drop()
        s.progress("making a buffer (%s)" % kind)
        error, made = None, None
        try:
            made = make()
            self.device.sync()
        except Failure as e:
            error = e
        s.agree("make a buffer", error)
        self.held = (kind, key, size, made)
        s.barrier()
        s.setup(False)
        return made

    def drop(self):
        if self.held:
            self.session.progress("destroying a buffer")
            self.held, held = None, self.held
            held[3].destroy()


state = None


def open_session(session):
    global state
    error, made = None, None
    try:
        made = State(session)
    except Failure as e:
        error = e
    except ImportError as e:
        error = Refused("DeepEP does not import: %s" % e)
    session.agree("open DeepEP", error)
    state = made
    state.device.meet_peers(session)


def close_session(session):
    global state
    if state is None:
        return
    state.enter(session)
    state.drop()
    state = None


def run(session):
    state.enter(session)
    point = Point(session)
    error = None
    try:
        choose(state.mode, point.layout).check(state, point)
        state.device.check(point, choose(state.mode, point.layout))
    except Failure as e:
        error = e
    session.agree("check the point", error)
    operation = choose(state.mode, point.layout)(state, point)
    error = None
    try:
        state.device.prove_path(session, operation.buffer, operation.kind)
    except Failure as e:
        error = e
    session.agree("prove the path", error)
    Measurement(session, state.device, operation).take()


class Measurement:
    """The sections of a run, in an order in which what is checked came last."""

    def __init__(self, session, device, operation):
        self.session, self.device, self.op = session, device, operation
        self.p = operation.point
        self.each = self.p.warmup + self.p.iterations
        self.pairs = 0

    def take(self):
        self.eager()
        if self.op.phases:
            self.phase_times()
        self.pair_times()
        result, out = self.half_times()
        self.deliver(result, out)
        p = self.p
        self.session.series("pairs", "1", [self.pairs])
        self.session.series("dispatch_message", "B", [self.op.message()])
        self.session.series("dispatch_row", "B", [p.row_bytes()])
        self.session.series("combine_message", "B", [2 * p.hidden])
        self.session.series("combine_row", "B", [2 * p.hidden])

    def kept(self, values):
        return values[self.p.warmup:]

    def step(self, what):
        self.session.progress(what)
        self.session.barrier()

    def eager(self):
        """One call after the other, as from a model: what they take on the host."""
        self.step("the first call")
        self.op.prepare()
        self.device.sync()
        self.step("eager calls")
        took = {"dispatch": [], "combine": []}
        for _ in range(self.each):
            t0 = time.perf_counter_ns()
            result, _ = self.op.dispatch()
            t1 = time.perf_counter_ns()
            y = self.op.blank(result)
            t2 = time.perf_counter_ns()
            self.op.combine(result, y)
            t3 = time.perf_counter_ns()
            self.device.sync()
            self.session.progress("eager calls")
            took["dispatch"].append(t1 - t0)
            took["combine"].append(t3 - t2)
            self.pairs += 1
        for half, values in took.items():
            self.session.series(half + "_launch", "ns", self.kept(values))

    def phase_times(self):
        """Send and receive as kernels of their own."""
        self.step("the graph of phases")
        device, op = self.device, self.op

        def rounds(n):
            for i in range(n):
                device.meet(6 * i)
                result, receive = op.again(hook=True)
                device.stamp(6 * i + 1)
                receive()
                device.stamp(6 * i + 2)
                device.meet(6 * i + 3)
                _, receive = op.combine(result, op.blank(result), hook=True)
                device.stamp(6 * i + 4)
                receive()
                device.stamp(6 * i + 5)

        at = self.replay(rounds, 6)
        self.pairs += self.each
        for first, half in ((0, "dispatch"), (3, "combine")):
            for k, phase in ((1, "send"), (2, "recv")):
                self.session.series("%s_%s" % (half, phase), "ns",
                                    self.kept([at[6 * i + first + k] - at[6 * i + first + k - 1] for i in range(self.each)]))

    def replay(self, rounds, slots):
        """Runs a graph of all rounds once; the stamps, ns."""
        device = self.device
        device.slots(slots * self.each)
        graph = device.capture(lambda: rounds(self.each))
        self.session.barrier()
        graph.replay()
        device.sync()
        self.session.progress("reading stamps")
        device.check_barrier()
        return device.stamps(slots * self.each)

    def pair_times(self):
        """Pairs back to back, without any barrier."""
        self.step("the graph of pairs")
        p, device, op = self.p, self.device, self.op

        def rounds():
            for _ in range(p.iterations):
                result, _ = op.again()
                op.combine(result, op.blank(result))

        graph = device.capture(rounds)
        took = []
        for i in range(p.graph_warm + p.graph_timed):
            self.session.barrier()
            ns = device.elapsed(graph.replay)
            self.session.progress("replays of pairs")
            if i >= p.graph_warm:
                took.append(ns / p.iterations)
        self.session.series("pair", "ns", took)
        self.session.barrier()
        kernels = device.kernels(lambda: [graph.replay() for _ in range(p.graph_traced)])
        self.session.progress("traced replays")
        self.pairs += (p.graph_warm + p.graph_timed + p.graph_traced) * p.iterations
        for half, values in kernels.items():
            if len(values) == p.graph_traced * p.iterations:
                self.session.series(half + "_kernel", "ns", values)
            elif values:
                self.session.fact("kernels." + half, "%d kernels traced of %d pairs" % (len(values), p.graph_traced * p.iterations))

    def half_times(self):
        """Dispatch and combine one by one, each from behind a barrier of all ranks, the experts' work in between. That work
        begins behind a barrier too: on a shared GPU its blocks would keep the other rank's stamp waiting."""
        self.step("the graph of halves")
        device, op, last = self.device, self.op, {}

        def rounds():
            for i in range(self.each):
                device.meet(7 * i)
                device.stamp(7 * i + 1)
                device.meet(7 * i + 2)
                result, _ = op.again()
                device.stamp(7 * i + 3)
                device.meet(7 * i + 4)
                y = op.expert(result)
                device.meet(7 * i + 5)
                out, _ = op.combine(result, y)
                device.stamp(7 * i + 6)
                last["result"], last["out"] = result, out

        device.slots(7 * self.each)
        graph = device.capture(rounds)
        for _ in range(self.p.halves_runs):
            self.session.barrier()
            graph.replay()
            device.sync()
            self.session.progress("replays of halves")
            device.check_barrier()
            self.pairs += self.each
        at = device.stamps(7 * self.each)
        for name, a, b in (("empty", 0, 1), ("dispatch", 2, 3), ("combine", 5, 6)):
            self.session.series(name, "ns", self.kept([at[7 * i + b] - at[7 * i + a] for i in range(self.each)]))
        return last["result"], last["out"]

    def deliver(self, result, out):
        """Received rows and the result into the window, where the workload checks them."""
        self.session.progress("reading the result")
        p, window = self.p, self.session.window()
        row, room = 2 * p.hidden, self.session.number("arg.recv_rows")
        rows = self.op.received(result)
        if len(rows) > room:
            raise Failure("rank %d: %d rows received, there is room for %d" % (p.rank, len(rows), room))
        at = self.session.number("arg.recv")
        for i, data in enumerate(rows):
            window[at + i * row:at + (i + 1) * row] = data
        at = self.session.number("arg.out")
        for i, data in enumerate(self.device.rows(out, 0, p.tokens)):
            window[at + i * row:at + (i + 1) * row] = data
        at = self.session.number("arg.format")
        window[at:at + 8] = struct.pack("<Q", 4 if p.fp8 else 8)


FUNCTIONS = {"open": open_session, "run": run, "close": close_session}


def place(error):
    """The innermost line of an error's traceback that tells something."""
    frames = traceback.extract_tb(error.__traceback__)
    return "%s:%d" % (os.path.basename(frames[-1].filename), frames[-1].lineno) if frames else "no line"


def call(name, address):
    session = Session(address)
    try:
        FUNCTIONS[name](session)
    except Failure as e:
        session.fail(e.status, str(e))
    except BaseException as e:  # whatever a library raises, SystemExit too, must not leave this call
        session.fail(Failure.status, "%s: %s (%s)" % (type(e).__name__, e, place(e)))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
