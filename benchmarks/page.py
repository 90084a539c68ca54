"""Publish the benchmark: `python benchmarks/page.py reproduction` puts what was found into docs/ and README.md.

Takes the chapter that `contradpp benchmark` wrote to the folder; a test compares the pages with docs/benchmark.json.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from contradpp.research import pages, standings

ROOT = Path(__file__).parents[1]


def publish(folder: Path) -> None:
    """Write the numbers, the figures and the blocks of the pages."""
    summary = standings.rounded(json.loads((folder / "benchmark.json").read_text(encoding="utf-8"))["results"])
    (ROOT / "docs" / "benchmark.json").write_text(standings.dump(summary), encoding="utf-8")
    for figure in (folder / "figures").glob("benchmark-*.png"):
        shutil.copy(figure, ROOT / "docs" / "figures" / figure.name)
    for page, blocks in pages.blocks(summary).items():
        text = (ROOT / page).read_text(encoding="utf-8")
        for name, content in blocks.items():
            text = pages.replaced(text, name, content)
        (ROOT / page).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    publish(Path(sys.argv[1]))
