"""The package as a whole: what an import costs, what it offers, and that the examples are true."""

from __future__ import annotations

import doctest
import importlib
import importlib.metadata
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import contradpp
from contradpp import errors

ROOT = Path(contradpp.__file__).parent
HEAVY = ["numba", "pyarrow", "sklearn", "matplotlib", "fastapi", "ray", "pandas", "polars", "rich", "click"]
HEAVY += ["scipy.optimize", "scipy.stats"]  # as much again as the rest of what we take from SciPy
MODULES = sorted(
    ".".join(["contradpp", *path.relative_to(ROOT).with_suffix("").parts]).removesuffix(".__init__")
    for path in ROOT.rglob("*.py")
    if path.name != "__main__.py"
)


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_loads_nothing_heavy():
    loaded = run(f"import sys, contradpp; print(*[name for name in {HEAVY!r} if name in sys.modules])")
    assert loaded == ""


def test_the_check_for_heavy_modules_can_fail():
    """The same question after a query, which needs the compiled kernels."""
    code = (
        "import sys, contradpp as cd; cd.LowRankDPP.from_factors([[1.0]]).score_samples([[0]]);"
        f"print(*[name for name in {HEAVY!r} if name in sys.modules])"
    )
    assert "numba" in run(code).split()


def test_import_says_nothing():
    assert run("import contradpp") == ""


def test_all_is_importable_and_complete():
    assert len(set(contradpp.__all__)) == len(contradpp.__all__)
    for name in contradpp.__all__:
        assert getattr(contradpp, name) is not None
    public = {
        name
        for name, value in vars(contradpp).items()
        if not name.startswith("_") and not inspect.ismodule(value) and name != "annotations"
    }
    assert public <= set(contradpp.__all__)
    expected = {"Baskets", "LowRankDPP", "NonsymmetricDPP", "datasets", "errors", "load", "read_baskets"}
    assert expected <= set(contradpp.__all__)


def test_version_is_that_of_the_distribution():
    assert contradpp.__version__ == importlib.metadata.version("contradpp")


def test_the_package_is_typed():
    assert (ROOT / "py.typed").is_file()


def test_every_error_is_ours_and_is_explained():
    kinds = [kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, Exception)]
    assert len(kinds) > 5
    for kind in kinds:
        assert kind.__doc__
        assert issubclass(kind, errors.ContradppError | Warning)


def load_module(name: str):
    try:
        return importlib.import_module(name)
    except errors.MissingExtraError as error:
        pytest.skip(str(error))
    except ImportError as error:
        if ".integrations." not in name:  # they say at once which framework is missing
            raise
        pytest.skip(str(error))


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_are_true(name):
    module = load_module(name)
    assert module.__doc__, "a module says on its first line what it is for"
    failed, _ = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert failed == 0


def test_public_classes_have_examples():
    for name in contradpp.__all__:
        value = getattr(contradpp, name)
        if inspect.isclass(value):
            assert ">>>" in (value.__doc__ or ""), name


@pytest.mark.parametrize("name", ["baselines", "callbacks", "datasets", "objectives"])
def test_modules_are_imported_by_the_names_they_have_in_the_package(name):
    assert importlib.import_module(f"contradpp.{name}") is getattr(contradpp, name)
