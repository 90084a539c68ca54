"""Data flows one way: a walk over every import of the package, those inside functions included."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import contradpp

ROOT = Path(contradpp.__file__).parent

# docs/architecture.md. A part may import itself and every part above it in this list, nothing below.
FLOORS = [
    {"errors"},
    {"_random", "_threads"},
    {"data"},
    {"dpp"},
    {"learn"},
    {"models"},
    {"slates"},
    {"metrics"},
    {"atlas"},
    {"research", "report", "distributed", "serve"},
    {"cli"},
    {"__main__"},
]
LEVEL = {part: level for level, parts in enumerate(FLOORS) for part in parts}
# The package itself pulls in everything up to `metrics`: only what stands above that may import it.
PACKAGE_LEVEL = LEVEL["metrics"]
FILES = sorted(ROOT.rglob("*.py"))


def part_of(path: Path) -> str:
    """The first folder or file under the package: 'dpp' for dpp/kernel.py, '' for __init__.py."""
    first = path.relative_to(ROOT).parts[0]
    return "" if first == "__init__.py" else first.removesuffix(".py")


def imported_parts(source: str, path: Path) -> Iterator[tuple[str, int]]:
    """Every part of the package that a file imports, and the line; '' for the package itself."""
    package = ["contradpp", *path.relative_to(ROOT).parts[:-1]]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = base + (node.module.split(".") if node.module else [])
            names = [[*base, alias.name] if base == ["contradpp"] else base for alias in node.names]
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            text = node.args[0].value
            names = [text.split(".")] if called in ("import_module", "__import__") and isinstance(text, str) else []
        else:
            continue
        for name in names:
            if name[0] == "contradpp":
                yield (name[1] if len(name) > 1 and exists(name[1]) else ""), node.lineno


def exists(part: str) -> bool:
    return (ROOT / part).is_dir() or (ROOT / f"{part}.py").is_file()


def violations(source: str, path: Path) -> list[str]:
    here = part_of(path)
    found = []
    for part, line in imported_parts(source, path):
        there = PACKAGE_LEVEL + 0.5 if part == "" else LEVEL[part]
        own = part == here
        sideways = part != here and part in FLOORS[LEVEL[here]]
        if not own and (there > LEVEL[here] or (sideways and LEVEL[here] <= LEVEL["metrics"])):
            found.append(f"{path.relative_to(ROOT)}:{line}: {here} imports {part or 'the whole package'}")
    return found


def test_there_are_no_parts_but_those_of_the_design():
    """A new module at the top must be given its place in docs/architecture.md and in FLOORS first."""
    parts = {part_of(path) for path in FILES} - {""}
    assert parts <= set(LEVEL), f"no place in the design for {sorted(parts - set(LEVEL))}"
    assert {"errors", "_random", "_threads", "data", "dpp", "learn", "models"} <= parts


@pytest.mark.parametrize("path", [p for p in FILES if part_of(p)], ids=lambda p: str(p.relative_to(ROOT)))
def test_lower_never_imports_upper(path):
    assert violations(path.read_text(encoding="utf-8"), path) == []


def test_only_reproduce_and_bench_import_the_research():
    users = {
        str(path.relative_to(ROOT))
        for path in FILES
        if part_of(path) not in ("", "research")
        and "research" in {part for part, _ in imported_parts(path.read_text(encoding="utf-8"), path)}
    }
    assert users == {"cli/bench.py", "cli/reproduce.py"}


@pytest.mark.parametrize("name", ["errors", "_random", "_threads"])
def test_the_ground_floor_imports_nothing_of_ours_but_errors(name):
    path = ROOT / f"{name}.py"
    parts = {part for part, _ in imported_parts(path.read_text(encoding="utf-8"), path)}
    assert parts <= ({"errors"} if name != "errors" else set())


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("data/x.py", "import contradpp.dpp.kernel"),
        ("data/x.py", "from contradpp.dpp import kernel"),
        ("data/x.py", "from contradpp import models"),
        ("dpp/x.py", "import contradpp as cd"),
        ("dpp/x.py", "from contradpp import LowRankDPP"),
        ("dpp/x.py", "def f():\n    from contradpp.learn import trainer"),
        ("dpp/x.py", "if TYPE_CHECKING:\n    from contradpp.models.base import BaseDPP"),
        ("dpp/x.py", "from ..learn import trainer"),
        ("dpp/deep/x.py", "from ...models.base import load"),
        ("dpp/x.py", "from .. import learn"),
        ("learn/x.py", "import importlib\nimportlib.import_module('contradpp.models')"),
        ("learn/x.py", "__import__('contradpp.cli.main')"),
        ("_random.py", "from contradpp import _threads"),
        ("errors.py", "import contradpp._random"),
        ("metrics/x.py", "import contradpp.cli.main"),
        ("serve/x.py", "from contradpp.cli import main"),
    ],
)
def test_the_walk_sees_every_kind_of_import(file, source):
    assert len(violations(source, ROOT / file)) == 1


@pytest.mark.parametrize(
    ("file", "source"),
    [
        (
            "dpp/x.py",
            "from contradpp.data.vocabulary import Vocabulary\nfrom contradpp import errors, _threads",
        ),
        ("dpp/x.py", "from .kernel import Sets\nfrom . import map"),
        ("learn/x.py", "import numpy as np\nfrom contradpp.dpp import kernel"),
        ("cli/x.py", "import contradpp as cd\nfrom contradpp import load\nimport contradpp.serve.app"),
        ("research/x.py", "import contradpp as cd"),
        ("_random.py", "from contradpp.errors import ParameterError"),
    ],
)
def test_the_walk_lets_the_right_ones_pass(file, source):
    assert violations(source, ROOT / file) == []
