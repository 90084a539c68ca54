"""Kernels that other kernels call are helpers, inlined into each of them: see `dpp/compiled/decorators.py`."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

import contradpp
from contradpp.dpp.compiled import blocks

FOLDER = Path(contradpp.__file__).parent / "dpp" / "compiled"
Kernel = tuple[str, str]  # module and name


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
            names |= {alias.asname or alias.name: (node.module.split(".")[-1], alias.name) for alias in node.names}
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
    sources = {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.py")}
    assert sum(len(decorated(source, module)) for module, source in sources.items()) > 30  # the walk sees them
    assert wrong(sources) == []


def test_the_walk_sees_a_kernel_that_should_be_a_helper():
    here = "@entry\ndef f(): pass\n@entry\ndef g():\n    f()\n"
    there = "from contradpp.dpp.compiled.here import f as h\n@entry\ndef k():\n    return 1 + h()\n"
    assert wrong({"here": here}) == [("here", "f")]
    assert wrong({"here": here.replace("    f()", "    1"), "there": there}) == [("here", "f")]
    assert wrong({"here": here.replace("@entry\ndef f", "@helper\ndef f"), "there": there}) == []


def test_python_cannot_call_a_helper():
    """It has no machine code of its own, and the process would end."""
    with pytest.raises(TypeError, match="place_of is a part of other kernels"):
        blocks.place_of(np.array([0.1, 0.6]), 0, 2, 0.5)
