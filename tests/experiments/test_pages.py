"""Data frames of results and numbers as text: means within trials, paired differences, Markdown."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from jinja2 import FileSystemLoader

from experiments import pages
from experiments.pages import Results, Section, Table, gain, mean, number, numbers_of, statistic, words
from experiments.paper.published import Number
from experiments.paper.sections import by_size
from experiments.protocol import Protocol, Task


def test_improvements_are_differences_within_a_trial():
    results = {}
    for trial in range(3):
        for method, mpr in (("mle", 80.0 + trial), ("explicit", 83.0 + trial + 0.1 * trial)):
            task = Task("fit", "uk", method, trial)
            results[task] = {"metrics": {"mpr_paper": mpr}}
    ours, base = (Results(Protocol(), results).rows(("uk",), method) for method in ("explicit", "mle"))
    assert gain(ours, base, "mpr_paper") == pytest.approx((3.1, 0.1))
    assert mean(base, "mpr_paper").std == pytest.approx(1.0)


def test_a_mean_over_data_sets_deviates_as_its_trials_do():
    data = ("amazon/feeding", "amazon/apparel")
    results = {
        Task("fit", name, "mle", trial): {"metrics": {"mpr_paper": 60.0 + 10 * place + trial}}
        for trial in range(2)
        for place, name in enumerate(data)
    }
    found = mean(Results(Protocol(), results).rows(data, "mle"), "mpr_paper")
    assert found == pytest.approx((65.5, np.std([0, 1], ddof=1)))


def test_numbers_and_statistics(fake):
    assert statistic([]) is None
    assert statistic([2.0]) == Number(2.0)
    popularity, lowrank = (numbers_of(fake(Task("fit", "uk", method, 0))) for method in ("popularity", "mle"))
    assert popularity["auc:none"] == 0.6
    assert "auc:likelihood" not in popularity
    assert lowrank["auc:discrimination"] == 0.99


def test_sizes_are_pooled_and_in_order():
    rows = [
        {"by_size": [{"group": "16-31", "n": 1, "mpr_paper": 50.0}, {"group": "all", "n": 9, "mpr_paper": 1.0}]},
        {"by_size": [{"group": "4-7", "n": 5, "mpr_paper": 70.0}, {"group": "16-31", "n": 3, "mpr_paper": 90.0}]},
    ]
    found = by_size(pd.DataFrame({"result": rows}))
    assert list(found.itertuples(name=None)) == [("4-7", 70.0, 5), ("16-31", 80.0, 4)]


def test_numbers_and_tables_in_markdown():
    assert number(Number(83.123, 0.256)) == "83.12 ± 0.26"
    assert number(Number(-0.5), sign=True) == "−0.50"
    assert number(Number(0.3705, 8.569e-5), "auc", sign=True) == "+0.3705 ± 0.0001"
    assert number(Number(0.3702, 4.447e-5), "auc") == "0.3702 ± 4.4e-05"
    assert number(Number(-0.00001), "auc", sign=True) == "+0.0000"
    assert number(None) == "–"
    table = Table.of("T", ("a|b", "c"), (("x", "1"), ("long", "20")))
    lines = table.markdown.splitlines()
    assert lines[0] == r"| a\|b |  c |"
    assert len({len(line) for line in lines}) == 1
    section = Section("x/y", "Title", "Setup.", (table,), ["One.", "Two."], claims={})
    assert section.slug == "x-y"
    assert section.markdown == f"## Title\n\nSetup.\n\n**T**\n\n{table.markdown}\n\n- One.\n- Two.\n"


def test_sentences_of_a_template_are_lines(tmp_path, monkeypatch):
    (tmp_path / "a.md").write_text(
        "# setup\nOne\ntwo .\n\nThree\n# findings\n- a {{ x }}\n  b\n- c\n", encoding="utf-8"
    )
    monkeypatch.setattr(pages.TEMPLATES, "loader", FileSystemLoader(tmp_path))
    assert words("a.md", x=1) == {"setup": ["One two.", "Three"], "findings": ["a 1 b", "c"]}
