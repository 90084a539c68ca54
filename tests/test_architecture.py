"""Data flows one way: a walk over every import of the package, those inside functions included."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import contradpp

ROOT = Path(contradpp.__file__).parent

# docs/architecture.md. A part may import itself and every part above it in this list, nothing below.
FLOORS = [
    {"errors", "_types"},
    {"_random", "_threads", "_display"},
    {"data"},
    {"dpp"},
    {"learn"},
    {"experts"},
    {"slates"},
    {"models", "baselines", "select"},
    {"metrics"},
    {"report", "distributed", "serve", "integrations", "torch"},
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


def test_the_package_does_not_know_the_experiments():
    """They are beside `src`, and no part of the wheel."""
    users = [path for path in FILES if re.search(r"\b(from|import) experiments\b", path.read_text(encoding="utf-8"))]
    assert users == []


# -- Private names ---------------------------------------------------------------------------------

NAMED_TUPLES = {"_asdict", "_fields", "_make", "_replace"}  # public, whatever they look like


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name not in NAMED_TUPLES


def defined_in(part: str) -> set[str]:
    """Every name that a part's files define or assign, attributes included."""
    found: set[str] = set()
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if part_of(path) == part else ():
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                found.add(node.name)
            elif isinstance(node, (ast.Attribute, ast.Name)) and isinstance(node.ctx, ast.Store):
                found.add(node.attr if isinstance(node, ast.Attribute) else node.id)
    return found


def foreign_privates(source: str, path: Path, own: set[str]) -> list[str]:
    """The private names of other parts that a file imports, or asks of anything: a module, a class or an object."""
    here, imported, found = part_of(path), set(), []
    nodes = list(ast.walk(ast.parse(source)))
    for node in nodes:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            module = (node.module or "" if isinstance(node, ast.ImportFrom) else "").split(".")
            for alias in node.names:
                parts = [*module, alias.name] if isinstance(node, ast.ImportFrom) else alias.name.split(".")
                foreign = parts[0] == "contradpp" and here not in parts[1:2] and not getattr(node, "level", 0)
                if foreign:
                    imported.add((alias.asname or alias.name).split(".")[0])
                if foreign and any(map(is_private, parts[2:])):
                    found.append(f"{node.lineno}: {'.'.join(parts)}")
    for node in nodes:
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            holder = node.value
            while isinstance(holder, ast.Attribute):
                holder = holder.value
            if node.attr not in own or (isinstance(holder, ast.Name) and holder.id in imported):
                found.append(f"{node.lineno}: {ast.unparse(node)}")
    return found


@pytest.mark.parametrize("part", sorted({part_of(path) for path in FILES} - {""}))
def test_no_part_uses_private_names_of_another(part):
    own = defined_in(part)
    found = {
        str(path.relative_to(ROOT)): names
        for path in FILES
        if part_of(path) == part and (names := foreign_privates(path.read_text(encoding="utf-8"), path, own))
    }
    assert found == {}


@pytest.mark.parametrize(
    "source",
    [
        "from contradpp.data.sets import _runs",
        "from contradpp.data._sets import runs",
        "import contradpp.data._sets",
        "def f():\n    from contradpp.data import _sets",
        "from contradpp.data import sets\nsets._runs()",
        "import contradpp.data.sets\ncontradpp.data.sets._runs()",
        "from contradpp.data.baskets import Baskets as B\nB._own()",
        "def f(baskets):\n    baskets._trusted()",
    ],
)
def test_the_walk_sees_private_names(source):
    assert len(foreign_privates(source, ROOT / "dpp/x.py", {"_own", "_runs"})) == 1


def test_the_walk_lets_our_own_private_names_pass():
    source = "from contradpp import _random\nfrom contradpp.dpp.x import _y\nself._own = a._replace(b=c.__name__)"
    assert foreign_privates(source, ROOT / "dpp/x.py", {"_own"}) == []


# -- Imports inside functions ------------------------------------------------------------------------

# What a call may still have to load by itself: parts that need an extra.
LATE = {("cli/serve.py", "contradpp.serve.server")}


def late_imports(source: str) -> list[str]:
    """The modules of ours that functions import."""
    functions = [
        node for node in ast.walk(ast.parse(source)) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    inside = [node for function in functions for node in ast.walk(function)]
    names = [node.module or "." for node in inside if isinstance(node, ast.ImportFrom)]
    names += [alias.name for node in inside if isinstance(node, ast.Import) for alias in node.names]
    return [name for name in names if name.split(".")[0] in ("contradpp", "")]


def test_functions_import_nothing_of_ours_but_what_needs_an_extra():
    found = {
        (str(path.relative_to(ROOT)), name) for path in FILES for name in late_imports(path.read_text(encoding="utf-8"))
    }
    assert found == LATE
    assert len(late_imports("def f():\n    import contradpp\n    from contradpp.dpp import x\n    import numpy")) == 2
    assert late_imports("if TYPE_CHECKING:\n    from contradpp.dpp import x") == []


@pytest.mark.parametrize("name", ["errors", "_random", "_threads"])
def test_the_ground_floor_imports_nothing_of_ours_but_errors(name):
    path = ROOT / f"{name}.py"
    parts = {part for part, _ in imported_parts(path.read_text(encoding="utf-8"), path)}
    assert parts <= ({"errors", "_types"} if name != "errors" else set())


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
        ("dpp/x.py", "from contradpp.data.vocabulary import Vocabulary\nfrom contradpp import errors, _threads"),
        ("dpp/x.py", "from .kernel import Sets\nfrom . import map"),
        ("learn/x.py", "import numpy as np\nfrom contradpp.dpp import kernel"),
        ("cli/x.py", "import contradpp as cd\nfrom contradpp import load\nimport contradpp.serve.app"),
        ("report/x.py", "import contradpp as cd"),
        ("_random.py", "from contradpp.errors import ParameterError"),
    ],
)
def test_the_walk_lets_the_right_ones_pass(file, source):
    assert violations(source, ROOT / file) == []
