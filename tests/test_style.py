"""Hold the habits of CONTRIBUTING.md that a machine can check: names, docstrings and sizes."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

import contradpp as cd

ROOT = Path(cd.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
Definition = ast.FunctionDef | ast.AsyncFunctionDef

# First words of a docstring that names nothing, and of one that describes a function as if it were a thing.
VAGUE = {"What", "Whether", "Where", "How", "Of", "Those", "Who", "Whoever", "That", "Which"}
ARTICLES = {"A", "An", "The", "All", "Some", "One"}
MOST_PUBLIC_NAMES = 37


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def is_property(function: Definition) -> bool:
    names = [ast.unparse(decorator) for decorator in function.decorator_list]
    return any(name.endswith(("property", ".setter")) for name in names)


def first_words(path: Path) -> list[tuple[ast.AST, str]]:
    """Return every documented definition of a file with the first word of its docstring."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, kinds)]
    return [(node, text.split()[0].rstrip(",.:;")) for node in nodes if (text := ast.get_docstring(node))]


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_docstrings_of_functions_start_with_a_verb_and_others_with_a_noun(path):
    for node, word in first_words(path):
        what = getattr(node, "name", "the module")
        assert word not in VAGUE, f"{what}: {word}"
        if isinstance(node, Definition) and not is_property(node):
            assert word not in ARTICLES, f"{what}: {word}"
            assert word[0].isupper() or not word[0].isalpha(), f"{what}: {word}"


def test_a_class_name_has_one_meaning():
    places = defaultdict(set)
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].add(name_of(path))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


@pytest.mark.parametrize("model", [cd.LowRankDPP, cd.NonsymmetricDPP, cd.ConditionalDPP])
def test_a_model_has_few_public_names(model):
    """Names that scikit-learn gives to every estimator do not count."""
    from sklearn.base import BaseEstimator

    theirs = {"set_fit_request", "set_partial_fit_request", "set_score_request", *dir(BaseEstimator)}
    assert len([name for name in dir(model) if not name.startswith("_") and name not in theirs]) <= MOST_PUBLIC_NAMES


def test_layout_is_left_to_the_formatter():
    """Only tables of numbers are laid out by hand."""
    by_hand = [name_of(path) for path in FILES if "# fmt: skip" in path.read_text(encoding="utf-8")]
    assert len(by_hand) <= 5, by_hand
