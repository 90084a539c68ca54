"""The decorators of kernels, and all that they take from private classes of Numba and from LLVM.

`SUPPORTED` are the versions of Numba for which that is tested; `tests/dpp/test_compiled.py` says
what to do with another. No other file imports numba.core, numba.extending or llvmlite.

*Entries* are called from Python, *helpers* only from kernels. Numba links a kernel that others call
into each of them as a weak symbol, and the copy that a process loads first serves all. With
reassociation every copy rounds in its own way, so that results would depend on which kernel ran
first. A helper is therefore inlined where it is called: no copy is shared.

A loop that adds up numbers writes none. A loop that did both would check first whether its output
could overlap its input, and run in vector registers only if arrays lie far enough apart: the sum
would depend on the layout of memory. The tests walk the syntax trees for both rules.

A new user waits for the compiler. A helper is compiled no further than its callers need: once for
every kind of argument, not to machine code, and not optimized, which happens where it is inlined.
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

from contradpp._types import Array

# Versions of Numba: from the first, below the second, as in pyproject.toml.
SUPPORTED = ((0, 60), (0, 69))

fcntl: Any = None
if os.name == "posix":
    import fcntl

F = TypeVar("F", bound=Callable[..., object])
log = logging.getLogger("contradpp")

# Reassociation lets sums run in vector registers; NaN and infinity keep their meaning.
FAST = {"reassoc", "contract", "nsz", "arcp"}
AS_PYTHON = bool(getattr(numba.config, "DISABLE_JIT", False))  # for a debugger
MAX_WAIT = 60.0  # seconds to wait for another process that compiles a kernel
OPTIONS: dict[str, Any] = {
    "nogil": True,
    "fastmath": FAST,
    "error_model": "numpy",
    "no_cfunc_wrapper": True,
}


class NoEnvironment:
    """The code generator of a helper, which has no environment of its own."""

    def set_env(self, name: str, environment: object) -> None:
        """Ignore the environment: Numba would look it up in machine code that is not there."""


class InlinedLibrary(JITCodeLibrary):
    """The code of a helper: linked into that of its callers, and never run by itself."""

    codegen = NoEnvironment()

    def _optimize_final_module(self) -> None:
        """Leave optimization to the callers."""

    def _finalize_final_module(self) -> None:
        """Mark the code as ready to be linked, without machine code."""
        self._finalized = True


class InliningCompiler(Compiler):
    """Numba's compiler with an `InlinedLibrary` as its output."""

    def define_pipelines(self) -> object:
        """Return the usual pipelines."""
        name = self.state.func_id.func_qualname
        codegen = self.state.targetctx.codegen()
        self.state.library = InlinedLibrary(codegen, name)  # type: ignore[no-untyped-call]
        return super().define_pipelines()  # type: ignore[no-untyped-call]


class Helper(CPUDispatcher):  # type: ignore[misc, unused-ignore]
    """A kernel that other kernels call, without machine code of its own."""

    def __call__(self, *args: object, **kwargs: object) -> object:  # noqa: ARG002
        """Refuse the call, which would end the process."""
        raise TypeError(
            f"{self.py_func.__name__} is a part of other kernels, and cannot be called from Python"
        )


# An entry contains the code of helpers in other files, so that it is outdated when any file of
# kernels has changed: those of this folder, and the `compiled.py` of other folders of the package.
FILES = sorted(
    [*Path(__file__).parent.glob("*.py"), *Path(__file__).parents[2].glob("*/compiled.py")]
)
STAMP = tuple((path.name, path.stat().st_mtime, path.stat().st_size) for path in FILES)


def reading(locator: Any) -> Any:
    """Return a locator of compiled kernels that does not need to write to its folder."""
    return type(f"Reading{locator.__name__}", (locator,), {"ensure_cache_path": lambda _: None})


class Places(CompileResultCacheImpl):  # type: ignore[misc, unused-ignore]
    """Numba's locators of compiled kernels, and after them read-only ones.

    Numba itself would refuse to define a kernel if it can write nowhere, as in a read-only
    container.
    """

    _locator_classes = [  # noqa: RUF012  (as Numba has it)
        *CompileResultCacheImpl._locator_classes,
        *map(reading, CompileResultCacheImpl._locator_classes[:2]),
    ]


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Defer a signal that ends the process.

    Between writing the index and the code, the index would refer to old code.
    """
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

    Numba numbers files by what the index lists. Two processes that add one form each at the same
    time would take the same number and then load each other's code. It also writes the index before
    the code: a process that reads in between would find outdated code. A lock prevents both. An
    empty file, whose name holds a hash of the sources, marks that an entry is compiled, so that one
    look is enough.
    """

    _impl_class = Places
    has_warned = False

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        self._name = f"{function.__module__}.{function.__qualname__}"
        self._turn = ExitStack()

    def save_overload(self, sig: object, data: object) -> None:
        """Write one form, alone; on failure the next process compiles it again."""
        try:
            Path(self.cache_path).mkdir(parents=True, exist_ok=True)
            with self._locked("w"), _undisturbed():
                super().save_overload(sig, data)  # type: ignore[no-untyped-call]
                self._mark.touch()
        except Exception as error:  # no access, or a damaged file that cannot be replaced
            if not SharedCache.has_warned:
                SharedCache.has_warned = True
                log.warning(
                    "compiled code is not kept: %s (NUMBA_CACHE_DIR may name another folder)", error
                )

    def load_overload(self, sig: object, target_context: object) -> object:
        """Read one form while none is written; if there is none, the caller compiles it."""
        found = self._load(sig, target_context)
        if found is None and self._wait_for_turn(sig):
            found = self._load(sig, target_context)
        return found

    def end_turn(self) -> None:
        """Let other processes compile this form."""
        self._turn.close()

    def _load(self, sig: object, target_context: object) -> object:
        """Read one form; give damaged files up, as those of a machine that lost power."""
        try:
            with self._locked("r"):
                return super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        except Exception as error:
            log.warning(
                "compiled code cannot be read, and is compiled anew: %s: %s",
                type(error).__name__,
                error,
            )
        with suppress(OSError), self._locked("w"):
            self.flush()  # type: ignore[no-untyped-call]
        return None

    def _wait_for_turn(self, sig: object) -> bool:
        """Wait while another process compiles this form, up to a limit; return if one did."""
        if fcntl is None:
            return False
        until = time.monotonic() + MAX_WAIT
        waited = False
        # Without a lock, or if another thread ends the turn, the form is compiled twice.
        with suppress(OSError, ValueError):
            Path(self.cache_path).mkdir(parents=True, exist_ok=True)
            form = hashlib.sha256(str(sig).encode()).hexdigest()[:16]
            path = Path(self.cache_path) / f"{self._name}.{form}.lock"
            lock = self._turn.enter_context(path.open("w"))
            while time.monotonic() < until:
                try:
                    # It is held until the file is closed, or the process ends.
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    waited = True
                    time.sleep(0.05)
        return waited

    @contextmanager
    def _locked(self, mode: str) -> Iterator[None]:
        with ExitStack() as stack:
            with suppress(OSError):  # an empty cache, or a disk without locks
                lock = stack.enter_context((Path(self.cache_path) / "contradpp.lock").open(mode))
                if fcntl is not None:
                    fcntl.flock(lock, fcntl.LOCK_EX if mode == "w" else fcntl.LOCK_SH)
            yield

    def _index_key(self, sig: object, codegen: object) -> tuple[object, ...]:
        key: Any = super()._index_key
        return (*key(sig, codegen), STAMP)

    @property
    def _mark(self) -> Path:
        made_of = repr((STAMP, numba.__version__, sys.version_info[:2])).encode()
        return Path(self.cache_path) / f"{self._name}.{hashlib.sha256(made_of).hexdigest()[:16]}"

    @property
    def is_compiled(self) -> bool:
        """True if an up-to-date form of the entry is on disk."""
        return self._mark.exists()


class Entry(CPUDispatcher):  # type: ignore[misc, unused-ignore]
    """A kernel that Python calls."""

    def enable_caching(self) -> None:
        """Store compiled forms on disk."""
        self._cache = SharedCache(self.py_func)

    def compile(self, sig: Any) -> Any:
        """Return machine code for arguments of these types, from the disk if it is there."""
        with ExitStack() as after:
            after.callback(self._cache.end_turn)
            if gc.isenabled():
                after.callback(gc.enable)
                gc.disable()  # collections take a tenth of the compiler's time
            return super().compile(sig)

    @property
    def is_compiled(self) -> bool:
        """True if some form of it has been compiled on this machine."""
        return self._cache.is_compiled


def entry(function: F) -> F:
    """Compile a kernel that Python calls: cached on disk and free of the GIL.

    NUMBA_DISABLE_JIT=1 leaves it a plain function.
    """
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
    inlined: dict[str, Any] = {
        "forceinline": True,
        "no_cpython_wrapper": True,
        "pipeline_class": InliningCompiler,
    }
    compiled: Any = numba.njit(**inlined, **OPTIONS)(function)
    resolve = compiled.get_call_template

    def resolve_by_type(args: Any, kwargs: Any) -> Any:
        """Ignore literal types: `k = 0` before a loop is no type of its own."""
        unliteral: Any = types.unliteral
        return resolve(map(unliteral, args), {name: unliteral(of) for name, of in kwargs.items()})

    compiled.get_call_template = resolve_by_type
    compiled.__class__ = Helper
    return cast(F, compiled)


class Announcement(event.Listener):
    """A log message, once per process, that kernels are being compiled."""

    has_logged = False

    def on_start(self, event: Any) -> None:
        """Log the message when a compilation begins."""
        function = event.data["dispatcher"].py_func
        if not self.has_logged and function.__module__.startswith(__name__.split(".")[0]):
            self.has_logged = True
            log.warning(
                "compiling for this machine: up to half a minute, once; "
                "later runs find it in the cache"
            )

    def on_end(self, event: Any) -> None:
        """Ignore the end of a compilation."""


event.register("numba:compile", Announcement())  # type: ignore[no-untyped-call]


# -- Tiles -----------------------------------------------------------------------------------------

# A compiler vectorizes a plain loop only if it can tell what is written from what is read. With
# several rows written at a time it cannot; with one row, every number that is loaded serves one
# product. A tile of rows is summed in registers and written once: twice as fast as such loops,
# compiled in half the time, and rounded in the same way whatever stands around it.

# The numbers in a vector. Eight sums, as of 4 × 2 vectors, hide latency and fit most processors'
# registers.
WIDTH = 4
NUMBER = ir.DoubleType()
VECTOR = ir.VectorType(NUMBER, WIDTH)
ZERO = ir.Constant(VECTOR, [0.0] * WIDTH)
FUSED = ("contract",)  # a product and a sum may be one instruction


class Matrix:
    """The addresses of the numbers of a C-contiguous array."""

    def __init__(self, context: Any, builder: ir.IRBuilder, of: Any, value: ir.Value) -> None:
        array = context.make_array(of)(context, builder, value)
        self.builder = builder
        self.data = array.data
        self.width = builder.extract_value(array.shape, 1)

    def at(self, row: ir.Value, column: ir.Value) -> ir.Value:
        """Return the address of a number."""
        return self.builder.gep(
            self.data, [self.builder.add(self.builder.mul(row, self.width), column)]
        )

    def vector(self, row: ir.Value, column: ir.Value) -> ir.Value:
        """Return the address of a number as that of a vector."""
        return self.builder.bitcast(self.at(row, column), VECTOR.as_pointer())


def everywhere(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """Return a vector of one value."""
    of = ir.VectorType(value.type, WIDTH)
    first = builder.insert_element(
        ir.Constant(of, ir.Undefined), value, ir.Constant(ir.IntType(32), 0)
    )
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH)
    return builder.shuffle_vector(first, ir.Constant(of, ir.Undefined), zeros)


def store_first(builder: ir.IRBuilder, vector: ir.Value, to: ir.Value, number: ir.Value) -> None:
    """Write the first `number` numbers of a vector, all if there are fewer."""
    count = ir.Constant(ir.VectorType(number.type, WIDTH), list(range(WIDTH)))
    mask = builder.icmp_signed("<", count, everywhere(builder, number))
    kind = ir.FunctionType(ir.VoidType(), [VECTOR, to.type, ir.IntType(32), mask.type])
    store = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
        builder.module, kind, f"llvm.masked.store.v{WIDTH}f64.p0v{WIDTH}f64"
    )
    builder.call(store, [vector, to, ir.Constant(ir.IntType(32), 8), mask])


def tile(rows: int, vectors: int, kind: str = "whole") -> Callable[..., None]:
    """Return a function of (C, a, k, Y, y, c, n, out, row) for kernels.

    For i < rows and j < WIDTH · vectors it writes

        out[row + i, c + j] = Σ_{b < k} C[a + i, b] Y[y + b, c + j].

    The kind "edge" writes only columns below n. The kind "add" does

        out[row + i, c + j] += Σ_{b < k} C[n + b, a + i] Y[y + b, c + j].

    Y has columns for whole vectors, and so has `out` except at an edge. `out` may be Y: all that is
    read is read before.
    """

    def plain(
        C: Array, a: int, k: int, Y: Array, y: int, c: int, n: int, out: Array, row: int
    ) -> None:
        stop = min(c + WIDTH * vectors, n) if kind == "edge" else c + WIDTH * vectors
        if kind == "add":
            out[row : row + rows, c:stop] += C[n : n + k, a : a + rows].T @ Y[y : y + k, c:stop]
        else:
            out[row : row + rows, c:stop] = C[a : a + rows, :k] @ Y[y : y + k, c:stop]

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        C, Y, out = (Matrix(context, builder, signature.args[n], args[n]) for n in (0, 3, 7))
        numbers = (
            context.cast(builder, args[n], signature.args[n], types.intp)
            for n in (1, 2, 4, 5, 6, 8)
        )
        a, k, y, c, n, row = numbers
        places = [(i, j) for i in range(rows) for j in range(vectors)]
        own, to = ([builder.add(first, first.type(i)) for i in range(rows)] for first in (a, row))
        columns = [builder.add(c, c.type(WIDTH * j)) for j in range(vectors)]
        alloca: Any = cgutils.alloca_once
        sums = {place: alloca(builder, VECTOR) for place in places}
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
                    builder.store(
                        builder.fadd(builder.load(sums[i, j]), product, flags=FUSED), sums[i, j]
                    )
        for i, j in places:
            total = builder.load(sums[i, j])
            there = out.vector(to[i], columns[j])
            if kind == "edge":
                store_first(builder, total, there, builder.sub(n, columns[j]))
            else:
                builder.store(total, there, align=8)
        return context.get_dummy_value()

    def typed(
        _: Any, C: Any, a: Any, k: Any, Y: Any, y: Any, c: Any, n: Any, out: Any, row: Any
    ) -> Any:
        if any(array != types.Array(types.float64, 2, "C") for array in (C, Y, out)):
            return None  # refused: addresses are computed for such arrays only
        return types.void(C, a, k, Y, y, c, n, out, row), generate

    return plain if AS_PYTHON else cast(Callable[..., None], intrinsic(typed))
