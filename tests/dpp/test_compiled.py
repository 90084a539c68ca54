"""The promises of `dpp/compiled/_numba.py`: rules of helpers and of sums, and a shared cache."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numba
import numpy as np
import pytest
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.errors import TypingError

import contradpp
from contradpp.data.sets import EMPTY, Sets, pointers
from contradpp.dpp.compiled import _numba, blocks, gradients
from contradpp.dpp.compiled._numba import STAMP, SharedCache
from contradpp.learn.negatives import Negatives
from contradpp.learn.objectives import Batch, ConditionalLikelihood
from contradpp.learn.state import State

ROOT = Path(contradpp.__file__).parent
FILES = sorted([*(ROOT / "dpp" / "compiled").glob("*.py"), *ROOT.glob("*/compiled.py")])
Kernel = tuple[str, str]  # module and name


# -- Numba's private classes ---------------------------------------------------------------------------

NEW_NUMBA = """
`dpp/compiled/_numba.py` was tested with Numba {supported}, and this is {version}. It rests on private
classes of Numba and on LLVM code. Run `pytest tests/dpp tests/cli/test_warm.py tests/test_same_kernel.py`, and
`make bench` with both versions. If all is well, move `SUPPORTED` and the range in pyproject.toml. If not,
one of these has to change, each of which the library can do without:
- `InliningCompiler`, `InlinedLibrary`, `Helper`: `helper` can be `numba.njit(forceinline=True, **OPTIONS)`;
  kernels then take longer to compile;
- `SharedCache`, `Places`, `Entry`: `entry` can be `numba.njit(cache=True, **OPTIONS)`; processes that compile
  at the same time may then spoil each other's files, and nobody can tell what is compiled already;
- `tile`: a helper with the loops of `plain`; products then take twice the time;
- `Announcement`: nothing says that kernels are being compiled.
"""


def test_this_numba_is_one_that_was_tested():
    low, high = _numba.SUPPORTED
    supported = f"{low[0]}.{low[1]} up to, but not including, {high[0]}.{high[1]}"
    version = tuple(int(part) for part in numba.__version__.split(".")[:2])
    assert low <= version < high, NEW_NUMBA.format(version=numba.__version__, supported=supported)
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    assert f'"numba>={low[0]}.{low[1]},<{high[0]}.{high[1]}"' in project


def private_imports(source: str) -> list[str]:
    """The imports of Numba's inside, and of LLVM."""
    found = []
    for node in ast.walk(ast.parse(source)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [f"{node.module}.{alias.name}" for alias in node.names] if isinstance(node, ast.ImportFrom) else []
        found += [name for name in names if re.match(r"numba\.(core|extending)\b|llvmlite\b", name)]
    return found


def test_one_module_alone_imports_the_inside_of_numba():
    package = ROOT
    users = [path for path in package.rglob("*.py") if private_imports(path.read_text(encoding="utf-8"))]
    assert users == [ROOT / "dpp" / "compiled" / "_numba.py"]
    source = "import numba\nfrom numba import core\nimport llvmlite.ir\nfrom numba.extending import f"
    assert private_imports(source) == ["numba.core", "llvmlite.ir", "numba.extending.f"]


# -- Entries, helpers, sums -----------------------------------------------------------------------------


def decorated(source: str, module: str) -> dict[Kernel, str]:
    """Every kernel of a module, and which decorator it has."""
    found: dict[Kernel, str] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Name) and decorator.id in ("entry", "helper"):
                    found[module, node.name] = decorator.id
    return found


def called(source: str, module: str, kernels: dict[Kernel, str]) -> set[Kernel]:
    """The kernels that kernels of this module call."""
    tree = ast.parse(source)
    names: dict[str, Kernel] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("contradpp.dpp.compiled."):
            module_there = ".".join(node.module.split(".")[-2:])
            names |= {alias.asname or alias.name: (module_there, alias.name) for alias in node.names}
    found = set()
    for node in tree.body:
        if (module, getattr(node, "name", "")) not in kernels:
            continue
        for inner in ast.walk(node):
            if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name):
                found.add(names.get(inner.func.id, (module, inner.func.id)))
    return found & kernels.keys()


def wrong(sources: dict[str, str]) -> list[Kernel]:
    """Kernels that another kernel calls although they are entries."""
    kernels: dict[Kernel, str] = {}
    for module, source in sources.items():
        kernels |= decorated(source, module)
    callees = set().union(*(called(source, module, kernels) for module, source in sources.items()))
    return sorted(kernel for kernel in callees if kernels[kernel] != "helper")


def test_every_kernel_that_another_calls_is_a_helper():
    sources = {f"{path.parent.name}.{path.stem}": path.read_text(encoding="utf-8") for path in FILES}
    assert sum(len(decorated(source, module)) for module, source in sources.items()) > 30  # the walk sees them
    assert wrong(sources) == []


def test_the_walk_sees_a_kernel_that_should_be_a_helper():
    here = "@entry\ndef f(): pass\n@entry\ndef g():\n    f()\n"
    there = "from contradpp.dpp.compiled.here import f as h\n@entry\ndef k():\n    return 1 + h()\n"
    assert wrong({"compiled.here": here}) == [("compiled.here", "f")]
    unused = here.replace("    f()", "    1")
    mended = here.replace("@entry\ndef f", "@helper\ndef f")
    assert wrong({"compiled.here": unused, "compiled.there": there}) == [("compiled.here", "f")]
    assert wrong({"compiled.here": mended, "compiled.there": there}) == []


def test_python_cannot_call_a_helper():
    """It has no machine code of its own, and the process would end."""
    with pytest.raises(TypeError, match="place_of is a part of other kernels"):
        blocks.place_of(np.array([0.1, 0.6]), 0, 2, 0.5)


def loops_that_add_and_write(source: str) -> list[str]:
    """The sums of innermost loops that write to an array, too, or that add up in an array: function and statement."""
    found = []
    for function in [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]:
        for loop in [node for node in ast.walk(function) if isinstance(node, ast.For | ast.While)]:
            inside = [inner for statement in loop.body for inner in ast.walk(statement)]
            if not any(isinstance(inner, ast.For | ast.While) for inner in inside):
                changing = names_in([*inside, *ast.walk(loop.target)] if isinstance(loop, ast.For) else inside)
                found += [f"{function.name}: {ast.unparse(of)}" for of in sums_of(inside, changing)]
    return found


def names_in(nodes: list[ast.AST]) -> set[str]:
    """The names that these nodes set."""
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def sums_of(inside: list[ast.AST], changing: set[str]) -> list[ast.AugAssign]:
    """The sums of a loop whose rounding would depend on where arrays lie."""
    writes = any(isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) for node in inside)
    found = []
    for node in inside:
        if isinstance(node, ast.AugAssign) and not is_count(node.value):
            used = {inner.id for inner in ast.walk(node.target) if isinstance(inner, ast.Name)}
            in_array = isinstance(node.target, ast.Subscript)
            if not used & changing if in_array else writes:
                found.append(node)
    return found


def is_count(value: ast.expr) -> bool:
    """Return whether this is an integer: such sums are exact."""
    ends = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
    return all(isinstance(end, ast.Constant) and isinstance(end.value, int) for end in ends)


def test_no_loop_adds_up_and_writes():
    for path in FILES:
        assert loops_that_add_and_write(path.read_text(encoding="utf-8")) == [], path.name


def test_the_walk_sees_a_loop_that_adds_up_and_writes():
    source = "def f(x, y):\n    t = 0.0\n    for i in range(9):\n        {}\n        {}\n    return t\n"
    assert loops_that_add_and_write(source.format("t += x[i]", "y[i] = t")) == ["f: t += x[i]"]
    assert loops_that_add_and_write(source.format("y[0] += x[i]", "pass")) == ["f: y[0] += x[i]"]
    for good in (("t += x[i]", "pass"), ("y[i] += x[i]", "y[i] *= 2"), ("t += 1", "y[i] = t")):
        assert loops_that_add_and_write(source.format(*good)) == []


def test_a_gradient_is_the_same_wherever_memory_is_free():
    """Arrays of all sizes come and go between the calls, so that the workspace lies elsewhere each time."""
    rng = np.random.default_rng(4)
    sizes = rng.integers(2, 13, size=100)
    items = np.concatenate([rng.choice(150, size=k, replace=False) for k in sizes]).astype(np.int32)
    sets, batch = Sets(pointers(sizes), items), np.full(100, 0.01)
    state, objective = State(rng.normal(size=(150, 24))), ConditionalLikelihood(np.ones(150))
    held: list[np.ndarray] = []
    seen = set()
    for _ in range(3000):
        held.append(np.empty(int(rng.choice([3, 17, 50, 200, 1000, 4000, 9000])) + int(rng.integers(64))))
        while len(held) > rng.integers(20, 60):
            held.pop(int(rng.integers(len(held))))
        seen.add(objective.gradient(state, Batch(sets, batch, Negatives(EMPTY, np.empty(0)))).values.tobytes())
    assert len(seen) == 1


def test_only_one_process_at_a_time_writes_to_the_cache(tmp_path, monkeypatch):
    inside, most = [], []

    def save(self: object, sig: str, data: str) -> None:
        inside.append(sig)
        most.append(len(inside))
        time.sleep(0.02)
        inside.remove(sig)

    monkeypatch.setattr(FunctionCache, "save_overload", save)
    monkeypatch.setattr(FunctionCache, "cache_path", str(tmp_path / "kernels"))
    cache = SharedCache(blocks.padded.py_func)
    with ThreadPoolExecutor(4) as pool:  # locks hold threads off as they do processes
        list(pool.map(lambda number: cache.save_overload(str(number), ""), range(8)))
    assert most == [1] * 8


def test_what_is_cached_is_out_of_date_when_any_file_of_kernels_has_changed(monkeypatch):
    assert {name for name, _, _ in STAMP} == {path.name for path in FILES}
    cache, codegen = gradients.number_rows._cache, gradients.number_rows.targetctx.codegen()
    key = cache._index_key((), codegen)
    assert key == cache._index_key((), codegen)
    name, changed, size = STAMP[3]
    monkeypatch.setattr(_numba, "STAMP", (*STAMP[:3], (name, changed + 1.0, size), *STAMP[4:]))
    assert key != cache._index_key((), codegen)


def test_code_is_read_when_none_is_being_written(monkeypatch):
    cache, events = SharedCache(blocks.padded.py_func), []

    def save(self, sig, data):
        events.append("index")
        time.sleep(0.2)
        events.append("code")

    monkeypatch.setattr(FunctionCache, "save_overload", save)
    monkeypatch.setattr(FunctionCache, "load_overload", lambda *_: events.append("read") or "code")
    with ThreadPoolExecutor(2) as pool:
        pool.submit(cache.save_overload, (), None)
        while not events:
            time.sleep(0.01)
        pool.submit(cache.load_overload, (), None).result()
    assert events == ["index", "code", "read"]


def test_a_cache_that_no_one_has_written_to_is_read_without_a_lock(monkeypatch, tmp_path):
    monkeypatch.setattr(SharedCache, "cache_path", str(tmp_path / "none"))
    monkeypatch.setattr(FunctionCache, "load_overload", lambda *_: "nothing")
    assert SharedCache(blocks.padded.py_func).load_overload((), None) == "nothing"


def test_a_kernel_is_compiled_by_one_process_while_others_wait_for_it(monkeypatch, tmp_path):
    """Two caches of one kernel stand for two processes: their locks hold each other off."""
    monkeypatch.setattr(FunctionCache, "cache_path", str(tmp_path))
    written, events = [], []
    monkeypatch.setattr(FunctionCache, "load_overload", lambda *_: written[0] if written else None)
    monkeypatch.setattr(FunctionCache, "save_overload", lambda *_: written.append("code"))
    one, other = (SharedCache(blocks.padded.py_func) for _ in range(2))
    assert one.load_overload((), None) is None
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: events.append(other.load_overload((), None)))
        time.sleep(0.2)
        assert events == []
        one.save_overload((), None)
        one.end_turn()
        waiting.result(10)
    other.end_turn()
    assert events == ["code"]


def test_no_one_waits_for_ever_or_for_a_process_that_failed(monkeypatch, tmp_path):
    monkeypatch.setattr(FunctionCache, "cache_path", str(tmp_path))
    monkeypatch.setattr(FunctionCache, "load_overload", lambda *_: None)
    monkeypatch.setattr(_numba, "MAX_WAIT", 0.2)
    one, other = (SharedCache(blocks.padded.py_func) for _ in range(2))
    assert one.load_overload((), None) is None
    started = time.monotonic()
    assert other.load_overload((), None) is None  # compiled twice
    assert time.monotonic() - started > 0.1
    other.end_turn()
    one.end_turn()
    assert not other._wait_for_turn(())
    other.end_turn()


def test_two_forms_of_a_kernel_do_not_wait_for_each_other(monkeypatch, tmp_path):
    monkeypatch.setattr(FunctionCache, "cache_path", str(tmp_path))
    monkeypatch.setattr(_numba, "MAX_WAIT", 0.2)
    one, other = (SharedCache(blocks.padded.py_func) for _ in range(2))
    assert not one._wait_for_turn((_numba.types.int64,))
    assert not other._wait_for_turn((_numba.types.int32,))
    other.end_turn()
    assert other._wait_for_turn((_numba.types.int64,))
    other.end_turn()
    one.end_turn()


def test_a_kernel_that_cannot_be_compiled_holds_up_no_one(monkeypatch, tmp_path):
    monkeypatch.setattr(FunctionCache, "cache_path", str(tmp_path))
    form = (_numba.types.unicode_type,) * 5
    with pytest.raises(TypingError):
        gradients.number_rows.compile(form)
    other = SharedCache(gradients.number_rows.py_func)
    assert not other._wait_for_turn(form)
    other.end_turn()


def refuse(*_, **__):
    raise PermissionError(30, "Read-only file system")


def test_where_nothing_can_be_written_kernels_are_compiled_all_the_same(monkeypatch, caplog):
    """In a container with read-only files every kernel was a RuntimeError of Numba's: no locator available."""
    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)  # with which Numba tries folders
    monkeypatch.setattr(SharedCache, "has_warned", False)
    cache = SharedCache(gradients.number_rows.py_func)
    monkeypatch.setattr(FunctionCache, "save_overload", refuse)
    for _ in range(2):
        cache.save_overload((), None)
    assert caplog.text.count("compiled code is not kept: [Errno 30] Read-only file system") == 1


def test_another_thread_may_end_the_turn_of_one_that_waits(monkeypatch, tmp_path):
    """It is the cache's: a thread that has compiled for arguments of other types ends it."""
    monkeypatch.setattr(FunctionCache, "cache_path", str(tmp_path))
    one, other = (SharedCache(blocks.padded.py_func) for _ in range(2))
    assert not one._wait_for_turn(())
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(other._wait_for_turn, ())
        time.sleep(0.2)
        other.end_turn()
        assert waiting.result(10)
    one.end_turn()


@pytest.mark.parametrize("content", [b"", b"garbage"])
def test_damaged_files_of_the_cache_are_given_up(monkeypatch, tmp_path, caplog, content):
    """After a loss of power they may be empty: every call ended in an EOFError until someone removed them."""
    monkeypatch.setattr(FunctionCache, "cache_path", str(tmp_path))
    cache, context = SharedCache(gradients.number_rows.py_func), gradients.number_rows.targetctx
    cache._cache_file = IndexDataCacheFile(str(tmp_path), "number_rows", "stamp")
    index = Path(cache._cache_file._index_path)
    index.write_bytes(content)
    assert cache.load_overload((), context) is None
    cache.end_turn()
    assert index.read_bytes() != content
    assert "compiled anew" in caplog.text
    caplog.clear()
    assert cache.load_overload((), context) is None
    cache.end_turn()
    assert not caplog.text


def test_kernels_can_be_run_as_plain_python():
    """For a debugger, or to count which lines tests reach."""
    code = (
        "import contradpp as cd; from contradpp.dpp import ahead\n"
        "m = cd.ConditionalDPP(cd.NonsymmetricDPP(2, max_iter=1), random_state=0).fit([['a', 'b'], ['b', 'c']] * 5)\n"
        "assert m.recommend(['a'], N=1)[0].tolist() == ['b'] and ahead.is_compiled(ahead.FIT)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
