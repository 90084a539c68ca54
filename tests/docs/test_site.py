"""The documentation builds without a warning, its pages fetch nothing from elsewhere, and links lead somewhere."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# What a browser fetches by itself; a link that a reader may follow is another matter.
FETCHED = re.compile(
    r"<(?:script|img|iframe|source)[^>]*\ssrc=[\"']?(https?:)?//"
    r"|<link[^>]*(?:stylesheet|preconnect|icon)[^>]*href=[\"']?(https?:)?//"
    r"|@import\s+url\(\s*[\"']?(https?:)?//"
)
LINK = re.compile(r"\]\(([^)\s]+)\)")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMED = re.compile(r"`([\w/]*\w\.(?:py|ipynb|css|js|html))?(?:::(test_\w+))?`")


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout + done.stderr
    return folder


def test_no_page_fetches_anything_from_elsewhere(site):
    pages = [*site.rglob("*.html"), *site.rglob("*.css")]
    assert len(pages) > 15
    assert [page.name for page in pages if FETCHED.search(page.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("models", ["LowRankDPP", "recommend", "partial_fit", "sample", "load"]),
        ("data", ["Baskets", "from_frame", "read_baskets", "Vocabulary"]),
        ("evaluation", ["evaluate", "Report", "interval", "ItemKNN"]),
        ("learning", ["Callback", "NegativeSource", "Plan"]),
    ],
)
def test_the_reference_has_the_public_names(site, page, names):
    text = (site / "reference" / f"{page}.html").read_text(encoding="utf-8")
    for name in names:
        assert re.search(rf'id="contradpp\.[\w.]*\b{name}"', text), name


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "reference").glob("*.md")), ids=lambda page: page.stem)
def test_the_members_that_the_reference_lists_exist(page):
    block = re.compile(r"^::: ([\w.]+)\n    options:\n(?:      .*\n)*?      members: \[([^\]]*)\]", re.MULTILINE)
    for name, members in block.findall(page.read_text(encoding="utf-8")):
        try:
            owner = importlib.import_module(name)
        except ModuleNotFoundError:
            module, _, attribute = name.rpartition(".")
            owner = getattr(importlib.import_module(module), attribute)
        missing = [member for member in re.findall(r"\w+", members) if not hasattr(owner, member)]
        assert not missing, f"{name} has no {missing}"


def test_the_page_for_language_models_names_pages_that_are_there():
    text = (ROOT / "docs" / "llms.txt").read_text(encoding="utf-8")
    assert text.startswith("# contradpp\n\n> ")
    links = LINK.findall(text)
    assert len(links) > 15
    assert [link for link in links if not (ROOT / "docs" / link).is_file()] == []


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_links_outside_the_site_lead_somewhere(page):
    for target in LINK.findall((ROOT / page).read_text(encoding="utf-8")):
        if not target.startswith(("http:", "https:")):
            assert (ROOT / target.split("#")[0]).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_files_and_tests_that_a_page_names_are_there(page):
    """So that the pages follow when a module moves; a bare file name may be that of any folder of the package."""
    folders = [ROOT / name for name in ("src", "tests", "experiments", "examples")]
    there = [f"/{file.relative_to(ROOT).as_posix()}" for folder in folders for file in folder.rglob("*.*")]
    tests = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("*.py"))
    for file, test in NAMED.findall(page.read_text(encoding="utf-8")):
        assert not file or any(known.endswith(f"/{file}") for known in there), file
        assert not test or f"def {test}(" in tests, test


def test_the_pattern_finds_what_a_browser_would_fetch():
    assert FETCHED.search('<script src="https://cdn.example/x.js"></script>')
    assert FETCHED.search('<link rel="stylesheet" href="https://fonts.example/css">')
    assert not FETCHED.search('<a href="https://example.org">')


def test_the_pattern_finds_what_a_page_names():
    text = "`learn/plan.py` and `tests/a/test_b.py::test_c`, `::test_d`, but not `plan` nor `fit(x)`"
    assert NAMED.findall(text) == [("learn/plan.py", ""), ("tests/a/test_b.py", "test_c"), ("", "test_d")]
