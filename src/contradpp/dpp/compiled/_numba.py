"""How our kernels are compiled, and all that this takes of Numba's private classes and of LLVM.

`SUPPORTED` says for which versions of Numba that has been tested; `tests/dpp/test_compiled.py` says what to do with
another. No other file imports numba.core, numba.extending or llvmlite.

There are *entries*, which Python calls, and *helpers*, which only kernels call. Numba links a kernel that others call
into each of them as a weak symbol, and the copy that a process loads first serves all. With reassociation every copy
rounds in its own way, so that results would depend on which kernel ran first. A helper is therefore inlined where it is
called: no copy is shared.

A loop that adds up numbers writes none. A loop that does both looks, as it begins, whether what it writes could lie in
what it reads, and runs in vector registers only if the arrays lie far enough apart: the sum would be rounded in
another way wherever memory happens to be laid out in another way. The tests walk the syntax trees for both rules.

A new user waits for all of this, so that a helper is compiled as far as its callers need it and no further: once for
every kind of argument, not to machine code, and not optimised, as that is done where it is inlined.
"""

from __future__ import annotations

import gc
import hashlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from llvmlite import ir
from numba.core import cgutils, event, types
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.registry import CPUDispatcher
from numba.extending import intrinsic

SUPPORTED = (0, 60), (0, 69)  # versions of Numba: from the first, below the second, as pyproject.toml has it

fcntl: Any = None
if os.name == "posix":
    import fcntl

F = TypeVar("F", bound=Callable[..., object])
log = logging.getLogger("contradpp")

# Reassociation lets sums run in vector registers; NaN and infinity keep their meaning.
FAST = {"reassoc", "contract", "nsz", "arcp"}
AS_PYTHON = bool(getattr(numba.config, "DISABLE_JIT", False))  # for a debugger
LONGEST = 60.0  # seconds in which another process compiles a kernel: beyond, we do not wait for it
OPTIONS: dict[str, Any] = {"nogil": True, "fastmath": FAST, "error_model": "numpy", "no_cfunc_wrapper": True}


class NoEnvironment:
    """What stands for the code generator of a helper, which has no environment of its own."""

    def set_env(self, name: str, environment: object) -> None:
        """Numba would look the name up in machine code that there is none of."""


class InlinedLibrary(JITCodeLibrary):
    """The code of a helper: linked into that of its callers, and never run by itself."""

    codegen = NoEnvironment()

    def _optimize_final_module(self) -> None:
        """Not here."""

    def _finalize_final_module(self) -> None:
        """Ready to be linked, without machine code."""
        self._finalized = True


class InliningCompiler(Compiler):
    """Numba's compiler, but for where the code goes."""

    def define_pipelines(self) -> Any:
        """The usual ones."""
        name = self.state.func_id.func_qualname
        self.state.library = InlinedLibrary(self.state.targetctx.codegen(), name)  # type: ignore[no-untyped-call]
        return super().define_pipelines()  # type: ignore[no-untyped-call]


class Helper(CPUDispatcher):  # type: ignore[misc, unused-ignore]
    """A kernel that other kernels call. It has no machine code of its own: a call from Python would end the process."""

    def __call__(self, *args: object, **kwargs: object) -> object:  # noqa: ARG002
        """Refuse."""
        raise TypeError(f"{self.py_func.__name__} is a part of other kernels, and cannot be called from Python")


# An entry holds the code of helpers in other files, so that it is out of date when any file of kernels has changed:
# those of this folder, and the `compiled.py` of other folders of the package.
FILES = sorted([*Path(__file__).parent.glob("*.py"), *Path(__file__).parents[2].glob("*/compiled.py")])
STAMP = tuple((path.name, path.stat().st_mtime, path.stat().st_size) for path in FILES)


def reading(locator: Any) -> Any:
    """A way to find a folder of compiled kernels that does without writing to it."""
    return type(f"Reading{locator.__name__}", (locator,), {"ensure_cache_path": lambda _: None})


class Places(CompileResultCacheImpl):  # type: ignore[misc, unused-ignore]
    """Numba's places for compiled kernels; where none can be written to, that of NUMBA_CACHE_DIR or beside the package.

    Numba itself would refuse to define a kernel there: in a container whose files are read-only, nothing would work.
    """

    _locator_classes = [  # noqa: RUF012  (as Numba has it)
        *CompileResultCacheImpl._locator_classes, *map(reading, CompileResultCacheImpl._locator_classes[:2])
    ]  # fmt: skip


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Let a signal that ends the process wait: between the index and the code the index would tell of old code."""
    if fcntl is None:
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class SharedCache(FunctionCache):  # type: ignore[misc, unused-ignore]
    """The compiled forms of an entry on disk, which several processes may add to.

    Numba numbers their files by what the index lists: two processes that add one each at the same time would take the
    same number, and then find each other's code. It writes the index before the code: a process that reads in between
    would find code of that number that is out of date. Beside it stands an empty file whose name says what was compiled
    from which sources, so that one look is enough.
    """

    _impl_class = Places
    told_of_failure = False

    def __init__(self, function: Any) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        self._what = f"{function.__module__}.{function.__qualname__}"
        self._turn = ExitStack()

    def save_overload(self, sig: Any, data: Any) -> None:
        """Write one, alone; where that cannot be, the next process compiles it again."""
        try:
            Path(self.cache_path).mkdir(parents=True, exist_ok=True)
            with self._locked("w"), _undisturbed():
                super().save_overload(sig, data)  # type: ignore[no-untyped-call]
                self._mark.touch()
        except Exception as error:  # of the system, or of a damaged file that cannot be replaced
            if not SharedCache.told_of_failure:
                SharedCache.told_of_failure = True
                log.warning("compiled code is not kept: %s (NUMBA_CACHE_DIR may name another folder)", error)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Read one, while none is written; where there is none, it is the caller's turn to compile it."""
        found = self._load(sig, target_context)
        if found is None and self._wait_for_turn(sig):
            found = self._load(sig, target_context)
        return found

    def end_turn(self) -> None:
        """Let others compile this form, if it was our turn."""
        self._turn.close()

    def _load(self, sig: Any, target_context: Any) -> Any:
        """One of the disk; files that are damaged, as those of a machine that lost its power, are given up."""
        try:
            with self._locked("r"):
                return super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        except Exception as error:
            log.warning("compiled code cannot be read, and is compiled anew: %s: %s", type(error).__name__, error)
        with suppress(OSError), self._locked("w"):
            self.flush()  # type: ignore[no-untyped-call]
        return None

    def _wait_for_turn(self, sig: Any) -> bool:
        """Wait while another process compiles this form, no longer than that can take; whether there was one."""
        if fcntl is None:
            return False
        until, waited = time.monotonic() + LONGEST, False
        with suppress(OSError, ValueError):  # compiled twice where it cannot be locked, or another thread ends the turn
            Path(self.cache_path).mkdir(parents=True, exist_ok=True)
            form = hashlib.sha256(str(sig).encode()).hexdigest()[:16]
            lock = self._turn.enter_context((Path(self.cache_path) / f"{self._what}.{form}.lock").open("w"))
            while time.monotonic() < until:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until the file is closed, or the process ends
                    break
                except BlockingIOError:
                    waited = True
                    time.sleep(0.05)
        return waited

    @contextmanager
    def _locked(self, mode: str) -> Iterator[None]:
        with ExitStack() as stack:
            with suppress(OSError):  # nothing was ever written, or there are no locks on such a disk
                lock = stack.enter_context((Path(self.cache_path) / "contradpp.lock").open(mode))
                if fcntl is not None:
                    fcntl.flock(lock, fcntl.LOCK_EX if mode == "w" else fcntl.LOCK_SH)  # until the file is closed
            yield

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        key: Any = super()._index_key
        return (*key(sig, codegen), STAMP)

    @property
    def _mark(self) -> Path:
        made_of = repr((STAMP, numba.__version__, sys.version_info[:2])).encode()
        return Path(self.cache_path) / f"{self._what}.{hashlib.sha256(made_of).hexdigest()[:16]}"

    @property
    def at_hand(self) -> bool:
        """Whether a form of the entry is on disk that is not out of date."""
        return self._mark.exists()


class Entry(CPUDispatcher):  # type: ignore[misc, unused-ignore]
    """A kernel that Python calls."""

    def enable_caching(self) -> None:
        """Keep what is compiled on disk."""
        self._cache = SharedCache(self.py_func)

    def compile(self, sig: Any) -> Any:
        """The machine code for arguments of these types, from the disk if it is there."""
        with ExitStack() as after:
            after.callback(self._cache.end_turn)
            if gc.isenabled():
                after.callback(gc.enable)
                gc.disable()  # it would walk again and again through all that a compiler builds up: a tenth of the time
            return super().compile(sig)

    @property
    def at_hand(self) -> bool:
        """Whether someone has compiled it on this machine, for arguments of whatever types."""
        return self._cache.at_hand


def entry(function: F) -> F:
    """Compile a kernel that Python calls: cached on disk and free of the GIL. NUMBA_DISABLE_JIT=1 leaves it plain."""
    if AS_PYTHON:
        return function
    compiled: Any = numba.njit(**OPTIONS)(function)
    compiled.__class__ = Entry
    compiled.enable_caching()
    return cast(F, compiled)


def helper(function: F) -> F:
    """Compile a kernel that other kernels call, as a part of each of them."""
    if AS_PYTHON:
        return function
    inlined: dict[str, Any] = {"forceinline": True, "no_cpython_wrapper": True, "pipeline_class": InliningCompiler}
    compiled: Any = numba.njit(**inlined, **OPTIONS)(function)
    resolve = compiled.get_call_template

    def resolve_by_type(args: Any, kwargs: Any) -> Any:
        """A number that is known beforehand is not a type of its own: `k = 0` before a loop is not."""
        unliteral: Any = types.unliteral
        return resolve(map(unliteral, args), {name: unliteral(of) for name, of in kwargs.items()})

    compiled.get_call_template = resolve_by_type
    compiled.__class__ = Helper
    return cast(F, compiled)


class Announcement(event.Listener):
    """Says once a process that kernels are being compiled, which happens when the cache does not have them."""

    said = False

    def on_start(self, event: Any) -> None:
        """A compilation begins."""
        function = event.data["dispatcher"].py_func
        if not self.said and function.__module__.startswith(__name__.split(".")[0]):
            self.said = True
            log.warning("compiling for this machine: up to half a minute, once; later runs find it in the cache")

    def on_end(self, event: Any) -> None:
        """A compilation has ended."""


event.register("numba:compile", Announcement())  # type: ignore[no-untyped-call]


# -- Tiles ---------------------------------------------------------------------------------------------

# A compiler runs a plain loop in vector registers only if it can tell what is written from what is read. Of several
# rows that are written at a time it cannot, and one row at a time every number that is loaded serves one product. Here
# a tile of rows is summed in registers and written once: twice as fast as such loops, compiled in half the time, and
# rounded in the same way whatever stands around it.

LANES = 4  # numbers in a vector; eight sums, as of 4 × 2 vectors, wait for none and fit into the registers of most
NUMBER = ir.DoubleType()
VECTOR = ir.VectorType(NUMBER, LANES)
ZERO = ir.Constant(VECTOR, [0.0] * LANES)
FUSED = ("contract",)  # a product and a sum may be one instruction


class Matrix:
    """The numbers of a C-contiguous array, as code that finds them."""

    def __init__(self, context: Any, builder: Any, of: Any, value: Any) -> None:
        array = context.make_array(of)(context, builder, value)
        self.builder, self.data, self.width = builder, array.data, builder.extract_value(array.shape, 1)

    def at(self, row: Any, column: Any) -> Any:
        """The address of a number."""
        return self.builder.gep(self.data, [self.builder.add(self.builder.mul(row, self.width), column)])

    def vector(self, row: Any, column: Any) -> Any:
        """The address of a number and those after it."""
        return self.builder.bitcast(self.at(row, column), VECTOR.as_pointer())


def everywhere(builder: Any, value: Any) -> Any:
    """A vector of one value."""
    of = ir.VectorType(value.type, LANES)
    first = builder.insert_element(ir.Constant(of, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    lanes = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(first, ir.Constant(of, ir.Undefined), lanes)


def store_first(builder: Any, vector: Any, to: Any, number: Any) -> None:
    """Write the first `number` numbers of a vector, all if there are fewer."""
    count = ir.Constant(ir.VectorType(number.type, LANES), list(range(LANES)))
    mask = builder.icmp_signed("<", count, everywhere(builder, number))
    kind = ir.FunctionType(ir.VoidType(), [VECTOR, to.type, ir.IntType(32), mask.type])
    store = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
        builder.module, kind, f"llvm.masked.store.v{LANES}f64.p0v{LANES}f64"
    )
    builder.call(store, [vector, to, ir.Constant(ir.IntType(32), 8), mask])


def tile(rows: int, vectors: int, kind: str = "whole") -> Callable[..., None]:
    """A function of (C, a, k, Y, y, c, n, out, row) for kernels. For i < rows and j < LANES · vectors,

        out[row + i, c + j] = Σ_{b < k} C[a + i, b] Y[y + b, c + j],

    of which an "edge" writes only columns below n, and one that is to "add"

        out[row + i, c + j] += Σ_{b < k} C[n + b, a + i] Y[y + b, c + j].

    Y, and `out` but at an edge, have columns for whole vectors. `out` may be Y: all that is read is read before.
    """

    def plain(C: Any, a: int, k: int, Y: Any, y: int, c: int, n: int, out: Any, row: int) -> None:
        stop = min(c + LANES * vectors, n) if kind == "edge" else c + LANES * vectors
        if kind == "add":
            out[row : row + rows, c:stop] += C[n : n + k, a : a + rows].T @ Y[y : y + k, c:stop]
        else:
            out[row : row + rows, c:stop] = C[a : a + rows, :k] @ Y[y : y + k, c:stop]

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        C, Y, out = (Matrix(context, builder, signature.args[n], args[n]) for n in (0, 3, 7))
        numbers = (context.cast(builder, args[n], signature.args[n], types.intp) for n in (1, 2, 4, 5, 6, 8))
        a, k, y, c, n, row = numbers
        places = [(i, j) for i in range(rows) for j in range(vectors)]
        own, to = ([builder.add(first, first.type(i)) for i in range(rows)] for first in (a, row))
        columns = [builder.add(c, c.type(LANES * j)) for j in range(vectors)]
        sums = {place: cgutils.alloca_once(builder, VECTOR) for place in places}  # type: ignore[no-untyped-call]
        for i, j in places:
            before = builder.load(out.vector(to[i], columns[j]), align=8) if kind == "add" else ZERO
            builder.store(before, sums[i, j])
        with cgutils.for_range(builder, k, intp=k.type) as loop:
            b = loop.index
            ys = [builder.load(Y.vector(builder.add(y, b), column), align=8) for column in columns]
            for i in range(rows):
                at = C.at(builder.add(n, b), own[i]) if kind == "add" else C.at(own[i], b)
                factor = everywhere(builder, builder.load(at))
                for j in range(vectors):
                    product = builder.fmul(factor, ys[j], flags=FUSED)
                    builder.store(builder.fadd(builder.load(sums[i, j]), product, flags=FUSED), sums[i, j])
        for i, j in places:
            total, there = builder.load(sums[i, j]), out.vector(to[i], columns[j])
            if kind == "edge":
                store_first(builder, total, there, builder.sub(n, columns[j]))
            else:
                builder.store(total, there, align=8)
        return context.get_dummy_value()

    def typed(_: Any, C: Any, a: Any, k: Any, Y: Any, y: Any, c: Any, n: Any, out: Any, row: Any) -> Any:
        if any(array != types.Array(types.float64, 2, "C") for array in (C, Y, out)):
            return None  # refused: addresses are counted as in such arrays
        return types.void(C, a, k, Y, y, c, n, out, row), generate

    return plain if AS_PYTHON else cast(Callable[..., None], intrinsic(typed))
