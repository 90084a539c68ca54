"""Every snippet of the documentation runs, page by page, in a folder with a small shop's files."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

import contradpp as cd
from contradpp.cli.fit import fit
from contradpp.cli.main import main
from data.workbook import workbook

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^```[ ]*$", re.MULTILINE | re.DOTALL)
EXCUSE = re.compile(r"<!-- not run: \S.*?-->\s*\Z")
SHELL_SYNTAX = frozenset("|<>&;$`*?")


class Snippet(NamedTuple):
    """A fenced block: its language, its code, where it stands, and whether a comment excuses it from running."""

    language: str
    code: str
    line: int
    excused: bool


def snippets(text: str) -> list[Snippet]:
    """The fenced blocks of a page, in order."""
    return [
        Snippet(
            found["language"], found["code"], text.count("\n", 0, found.start()) + 2,
            bool(EXCUSE.search(text[: found.start()])),
        )
        for found in FENCE.finditer(text)
    ]  # fmt: skip


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.fixture(scope="session")
def sample_files(tmp_path_factory) -> Path:
    """What the pages speak of: orders in several formats, a model, and a feedback log."""
    folder = tmp_path_factory.mktemp("shop")
    shop = cd.datasets.load("grocer", n_baskets=600, random_state=0)
    rows = [(number, item) for number, basket in enumerate(shop) for item in basket]
    for name, part in {"orders.csv": rows, "next-week.csv": rows[: len(rows) // 4]}.items():
        lines = "".join(f"{order},{item}\n" for order, item in part)
        (folder / name).write_text("order_id,product\n" + lines, encoding="utf-8")
    codes = {item: code for code, item in enumerate(shop.items)}
    till = [f"{receipt},{codes[item]},{1 if codes[item] % 7 else -1},{item}\n" for receipt, item in rows[:2000]]
    (folder / "till.csv").write_text("receipt,plu,pieces,text\n" + "".join(till), encoding="utf-8")
    write_exports(folder, rows[:2000], codes)
    events = [["accepted", ["spaghetti", "parmesan"]], ["rejected", ["spaghetti", "bin bags"]]]
    for outcome, items in events:
        cd.data.feedback.append_feedback(folder / "feedback.jsonl", outcome, items)
    model = cd.LowRankDPP(n_components=20, objective="mle", max_iter=3, random_state=0).fit(shop)
    for name in ("shop.safetensors", "model.safetensors"):
        model.save(folder / name)
    return folder


def write_exports(folder: Path, rows: list[tuple[int, str]], codes: dict[str, int]) -> None:
    """Write the same orders as the export of a till, of two shops, of an API, and as clicks."""
    cells = [["receipt", "plu", "pieces", "text"], *([order, codes[item], 1, item] for order, item in rows)]
    (folder / "orders.xlsx").write_bytes(workbook({"May": [["Orders of May"], *cells]}))
    orders: dict[int, list[str]] = {}
    for order, item in rows:
        orders.setdefault(order, []).append(item)
    documents = [
        {"id": order, "line_items": [{"sku": str(codes[item]), "title": item, "quantity": 1} for item in items]}
        for order, items in orders.items()
    ]
    (folder / "orders.json").write_text(json.dumps({"orders": documents}, indent=1), encoding="utf-8")
    shopify = "".join(f"#{order},a@example.com,1,{item},{codes[item]}\n" for order, item in rows)
    woocommerce = "".join(f"{order},Completed,{codes[item]},1,{item},1\n" for order, item in rows)
    clicks = "".join(f"c{order % 50},2024-05-01 {order // 50:02d}:00,{item}\n" for order, item in rows)
    for name, text in {
        "orders_export.csv": "Name,Email,Lineitem quantity,Lineitem name,Lineitem sku\n" + shopify,
        "woocommerce.csv": "Order Number,Order Status,SKU,Item #,Item Name,Quantity (- Refund)\n" + woocommerce,
        "clicks.csv": "customer,timestamp,item\n" + clicks,
    }.items():
        (folder / name).write_text(text, encoding="utf-8")


@pytest.fixture
def workplace(sample_files, tmp_path, monkeypatch) -> Path:
    """A copy of the sample files, to work in."""
    place = tmp_path / "work"
    shutil.copytree(sample_files, place)
    monkeypatch.chdir(place)
    return place


def run_python(snippet: Snippet, page: Path, namespace: dict[str, object]) -> None:
    """Run the code as if it stood at its line of the page."""
    source = "\n" * (snippet.line - 1) + snippet.code
    exec(compile(source, str(page), "exec"), namespace)


def run_shell(snippet: Snippet, page: Path) -> None:
    """Run the commands one by one: ours in this process where that is the same, others by the shell."""
    for command in filter(None, (line.strip() for line in snippet.code.replace("\\\n", " ").splitlines())):
        words = shlex.split(command, comments=True)
        where = f"{name_of(page)}, line {snippet.line}: {command}"
        if words[:1] == ["contradpp"] and not SHELL_SYNTAX & set(command):
            with pytest.raises(SystemExit) as stop:
                main(words[1:])
            assert not stop.value.code, where
        elif words:
            places = os.environ | {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
            done = subprocess.run(["sh", "-c", command], env=places, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{where}\n{done.stderr}"


def check_toml(snippet: Snippet) -> None:
    """A configuration must consist of options that `fit` has."""
    known = {max(param.opts, key=len).lstrip("-") for param in fit.params}
    assert tomllib.loads(snippet.code).keys() <= known


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_snippets_of_a_page_run_in_order(page, workplace):
    text = page.read_text(encoding="utf-8")
    if "import torch" in text:
        pytest.importorskip("torch", reason="needs the extra torch: pip install 'contradpp[torch]'")
    namespace: dict[str, object] = {"__name__": "__main__", "cd": cd}
    for snippet in snippets(text):
        if snippet.excused:
            continue
        with contextlib.redirect_stdout(io.StringIO()):
            if snippet.language in ("python", "py"):
                run_python(snippet, page, namespace)
            elif snippet.language in ("sh", "bash", "shell", "console"):
                run_shell(snippet, page)
            elif snippet.language == "toml":
                check_toml(snippet)


def test_the_collector_sees_blocks_lines_and_excuses():
    page = "# T\n\n```python\nx = 1\n```\n\n<!-- not run: needs a cluster -->\n```sh\nray up\n```\n\n```\nplain\n```\n"
    first, second, third = snippets(page)
    assert first == Snippet("python", "x = 1\n", 4, excused=False)
    assert (second.language, second.excused, third.language) == ("sh", True, "")


def test_a_broken_snippet_is_an_error(workplace):
    with pytest.raises(NameError):
        run_python(Snippet("python", "nothing_of_that_name\n", 1, excused=False), PAGES[0], {})
    with pytest.raises(AssertionError, match="no-such-file"):
        run_shell(Snippet("sh", "contradpp info no-such-file\n", 1, excused=False), PAGES[0])
    with pytest.raises(AssertionError, match="no-such-folder"):
        run_shell(Snippet("sh", "ls no-such-folder > out\n", 1, excused=False), PAGES[0])


def test_the_exports_of_the_guide_hold_the_same_orders(workplace):
    """What differs is only how often the recipes would be read, and how their items are called."""
    till = {"basket": "receipt", "item": "plu", "quantity": "pieces", "name": "text"}
    expected = [
        cd.read_baskets("orders.xlsx", **till),
        cd.read_baskets("orders.json", item="line_items.sku", name="line_items.title"),
        cd.read_baskets("orders_export.csv"),
        cd.read_baskets("woocommerce.csv"),
    ]
    first, *others = [[[found.items.name(item) for item in basket] for basket in found] for found in expected]
    assert len(first) > 100
    for other in others:
        assert other == first
    clicks = cd.read_baskets("clicks.csv", basket="customer,timestamp")
    assert sorted(map(sorted, clicks)) == sorted(map(sorted, first))
    assert list(map(sorted, cd.read_baskets("clicks.csv", gap="30min"))) == list(map(sorted, clicks))
