"""The command line as a person calls it: through `main`, with its exit code and what it prints."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from contradpp.cli.main import main


class Shown(NamedTuple):
    """The exit code and what was printed."""

    code: int
    out: str
    err: str


Call = Callable[..., Shown]


@pytest.fixture
def call(capsys, monkeypatch) -> Call:
    """Run a command on words of any type and on text from `stdin`; it must end with `code`, if that is given."""

    def run(*words: object, stdin: str | None = None, code: int | None = None) -> Shown:
        if stdin is not None:
            monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main([str(word) for word in words])
        shown = Shown(int(stop.value.code or 0), *capsys.readouterr())
        assert code in (None, shown.code), shown
        return shown

    return run


@pytest.fixture(scope="session")
def orders(tmp_path_factory) -> Path:
    """A long file of orders with readable names."""
    path = tmp_path_factory.mktemp("shop") / "orders.csv"
    names = {"T1": "Green tea", "M1": "Milk", "C1": "Coffee", "S1": "Sugar, white"}
    lines = ["order_id,sku,product_name"]
    for number, basket in enumerate([("T1", "M1"), ("C1", "M1", "S1"), ("C1", "S1"), ("T1", "S1")] * 60):
        lines += [f'{number},{item},"{names[item]}"' for item in basket]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def model(orders) -> Path:
    """A model of these orders, as `fit` writes it."""
    path = orders.parent / "shop.safetensors"
    with pytest.raises(SystemExit) as stop:
        main(["fit", str(orders), "-o", str(path), "--max-iter", "5", "--report", str(orders.parent / "shop.html")])
    assert stop.value.code == 0
    return path


@pytest.fixture
def on_a_terminal(monkeypatch) -> None:
    """Let standard output pass for a terminal."""
    monkeypatch.setattr("contradpp.cli.output.on_terminal", lambda: True)
