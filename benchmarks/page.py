"""Publish the benchmark: `python benchmarks/page.py reproduction` puts what was found into docs/ and README.md.

Takes the chapters that `contradpp benchmark`, `contradpp reproduce beyond`, `contradpp reproduce ingredients` and
`contradpp reproduce all` wrote to the folder, those that are there; a test compares pages with the numbers in docs/.
A data set of the benchmark is a column of its own, all of it from one run: columns that are not in the folder stay as
they were published, so that pieces can be run on several machines.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from contradpp.research import pages, paper, standings
from contradpp.research.contestants import GROUPS
from contradpp.research.reproduce import DPI

ROOT = Path(__file__).parents[1]


def publish(folder: Path) -> None:
    """Write the numbers, the figures and the blocks of the pages."""
    if (folder / "benchmark.json").is_file():
        summary = with_new_columns(folder, "benchmark.json")
        put(pages.blocks(summary))
        chapter = pages.chapter_of(summary)
        for plot in chapter.plots:  # of all columns, whichever run they are from
            plot.draw().savefig(ROOT / "docs" / "figures" / f"{chapter.slug}-{plot.name}.png", dpi=DPI)
    if (folder / "beyond.json").is_file():
        put(pages.beyond_blocks(with_new_columns(folder, "beyond.json")))
    if (folder / "ingredients.json").is_file():
        told = results(folder / "ingredients.json")
        text = json.dumps(told, indent=1, ensure_ascii=False)
        (ROOT / "docs" / "ingredients.json").write_text(text + "\n", encoding="utf-8")
        put(pages.ladder_blocks(told))
    if all((folder / f"{name}.md").is_file() for name in paper.SINGLE):
        _, heading, chapters = (folder / "index.md").read_text(encoding="utf-8").partition("## Three claims")
        put({"docs/reproduction.md": {"paper": heading + chapters}})
        for figure in (figure for name in paper.SINGLE for figure in (folder / "figures").glob(f"{name}-*.png")):
            shutil.copy(figure, ROOT / "docs" / "figures" / figure.name)


def with_new_columns(folder: Path, name: str) -> dict[str, Any]:
    """The published columns, those of the folder in place of older ones; published again."""
    path = ROOT / "docs" / name
    found = json.loads(path.read_text(encoding="utf-8")) | standings.rounded(results(folder / name))
    summary = {label: found[label] for label in (group.label for group in GROUPS) if label in found}
    path.write_text(standings.dump(summary), encoding="utf-8")
    return summary


def results(path: Path) -> dict[str, Any]:
    """The numbers of a chapter."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["results"]
    return found


def put(blocks: dict[str, dict[str, str]]) -> None:
    """Write blocks into pages."""
    for page, contents in blocks.items():
        text = (ROOT / page).read_text(encoding="utf-8")
        for name, content in contents.items():
            text = pages.replaced(text, name, content)
        (ROOT / page).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    publish(Path(sys.argv[1]))
