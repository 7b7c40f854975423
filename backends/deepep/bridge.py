"""The session as Python sees it: struct Bridge of python.h, and the errors that a call may end with."""

import ctypes
import errno
import pickle
import struct

_P, _S, _N = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t


class _Bridge(ctypes.Structure):
    _fields_ = [
        ("arg", _P),
        ("exchange", ctypes.CFUNCTYPE(ctypes.c_int, _P, _P, _P, _N)),
        ("series", ctypes.CFUNCTYPE(None, _P, _S, _S, _P, _N)),
        ("fact", ctypes.CFUNCTYPE(None, _P, _S, _S)),
        ("fail", ctypes.CFUNCTYPE(None, _P, ctypes.c_int, _S)),
        ("progress", ctypes.CFUNCTYPE(None, _P, _S)),
        ("text", ctypes.CFUNCTYPE(_S, _P, _S)),
        ("blob", ctypes.CFUNCTYPE(_P, _P, _S, ctypes.POINTER(_N))),
        ("window", ctypes.CFUNCTYPE(_P, _P, ctypes.POINTER(ctypes.c_uint64))),
        ("setup", ctypes.CFUNCTYPE(None, _P, ctypes.c_int)),
    ]


class Failure(Exception):
    """Ends a call with a status and one line."""

    status = -errno.EIO


class Refused(Failure):
    """Cannot run here: a skipped row with the line as its reason."""

    status = -errno.ENOTSUP


class Canceled(Failure):
    status = -errno.ECANCELED


class Session:
    """One call's way back to the session."""

    def __init__(self, address):
        self._b = _Bridge.from_address(address)
        self.rank = self.number("rank")
        self.ranks = self.number("nranks")

    def text(self, name):
        value = self._b.text(self._b.arg, name.encode())
        if value is None:
            raise Failure("the run gives no %s" % name)
        return value.decode()

    def number(self, name):
        return int(self.text(name))

    def blob(self, name):
        size = _N()
        at = self._b.blob(self._b.arg, name.encode(), ctypes.byref(size))
        if at is None:
            raise Failure("the run gives no table %s" % name)
        return ctypes.string_at(at, size.value)

    def window(self):
        """This rank's window, to read and write in place."""
        size = ctypes.c_uint64()
        at = self._b.window(self._b.arg, ctypes.byref(size))
        if at is None:
            raise Failure("this session has no window")
        return memoryview((ctypes.c_char * size.value).from_address(at)).cast("B")

    def series(self, name, unit, values):
        data = (ctypes.c_double * len(values))(*values)
        self._b.series(self._b.arg, name.encode(), unit.encode(), ctypes.cast(data, _P), len(values))

    def fact(self, key, value):
        text = " ".join(str(value).split())
        self._b.fact(self._b.arg, key.encode(), text.encode())

    def fail(self, status, text):
        self._b.fail(self._b.arg, status, " ".join(text.split()).encode())

    def progress(self, what):
        self._b.progress(self._b.arg, what.encode())

    def setup(self, begin):
        self._b.setup(self._b.arg, 1 if begin else 0)

    def gather(self, mine):
        """Every rank's bytes, by rank; all give the same number of them."""
        source = ctypes.create_string_buffer(mine, len(mine)) if mine else ctypes.create_string_buffer(1)
        target = ctypes.create_string_buffer(max(1, len(mine) * self.ranks))
        status = self._b.exchange(self._b.arg, ctypes.cast(source, _P), ctypes.cast(target, _P), len(mine))
        if status == -errno.ECANCELED:
            raise Canceled("stopped in an exchange among the ranks")
        if status:
            raise Failure("an exchange among the ranks failed: %s" % errno.errorcode.get(-status, status))
        return [target.raw[r * len(mine):(r + 1) * len(mine)] for r in range(self.ranks)]

    def barrier(self):
        self.gather(b"\0")

    def agree(self, what, error):
        """Collective: None on every rank, or on every rank an error. `error` is this rank's."""
        text = ("%d %s" % (error.status, error) if error else "").encode()[:512]
        for rank, said in enumerate(self.gather(text.ljust(512))):
            said = said.decode(errors="replace").strip()
            if said and error is None:
                status, _, line = said.partition(" ")
                error = Refused(line) if int(status) == -errno.ENOTSUP else Failure("rank %d: %s: %s" % (rank, what, line))
        if error:
            raise error


class Comm:
    """What DeepEP asks of a communicator, in place of a process group or MPI. It outlives a call: `session` is that of
    the present one."""

    def __init__(self):
        self.session = None

    def Get_rank(self):
        return self.session.rank

    def Get_size(self):
        return self.session.ranks

    def allgather(self, obj):
        data = pickle.dumps(obj)
        sizes = [struct.unpack("<Q", b)[0] for b in self.session.gather(struct.pack("<Q", len(data)))]
        parts = self.session.gather(data.ljust(max(sizes), b"\0"))
        return [pickle.loads(p[:n]) for p, n in zip(parts, sizes)]

    def Barrier(self):
        self.session.barrier()

    # The same by the names of a process group, which the newer buffers take.
    def rank(self):
        return self.session.rank

    def size(self):
        return self.session.ranks

    def barrier(self):
        self.session.barrier()
