"""The documentation builds without a warning, its pages fetch nothing from elsewhere, and links lead somewhere."""

from __future__ import annotations

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


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_links_outside_the_site_lead_somewhere(page):
    for target in LINK.findall((ROOT / page).read_text(encoding="utf-8")):
        if not target.startswith(("http:", "https:")):
            assert (ROOT / target.split("#")[0]).exists(), target


def test_the_pattern_finds_what_a_browser_would_fetch():
    assert FETCHED.search('<script src="https://cdn.example/x.js"></script>')
    assert FETCHED.search('<link rel="stylesheet" href="https://fonts.example/css">')
    assert not FETCHED.search('<a href="https://example.org">')
