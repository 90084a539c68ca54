"""The notebooks of examples/ run from top to bottom on little data, and are committed without anything private."""

from __future__ import annotations

import asyncio
import os
import re
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
LARGEST = 100_000  # bytes of a committed notebook


def name_of(notebook: Path) -> str:
    return notebook.stem


def test_there_are_four_of_them():
    assert len(NOTEBOOKS) == 4


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=name_of)
def test_a_notebook_runs_at_small_size(notebook, tmp_path, monkeypatch):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    if "import torch" in notebook.read_text(encoding="utf-8"):
        pytest.importorskip("torch", reason="needs the extra torch: pip install 'contradpp[torch]'")
    for variable in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable.lower()))
    monkeypatch.setenv("CONTRADPP_SMALL", "1")
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")
    book = nbformat.read(notebook, as_version=4)
    client = nbclient.NotebookClient(
        book, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the client's own libraries; the kernel is another process
        asyncio.run(client.async_execute(env=dict(os.environ)))
    texts = [output.get("text", "") for cell in book.cells for output in cell.get("outputs", ())]
    assert sum(map(len, texts)) > 200


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=name_of)
def test_a_committed_notebook_is_small_and_has_no_error_or_path(notebook):
    text = notebook.read_text(encoding="utf-8")
    assert len(text) < LARGEST
    assert '"output_type": "error"' not in text
    assert not re.search(r'"/(home|root|tmp|work|Users)/', text)
    assert not re.search(r"\s/(home|root|tmp|work|Users)/", text)
