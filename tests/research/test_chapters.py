"""Every target from the fits to the files, the numbers in the tables, and what the sentences say."""

from __future__ import annotations

import builtins
import json
import re

import numpy as np
import pytest

from contradpp.errors import MissingExtraError, ParameterError
from contradpp.research import paper, reproduce
from contradpp.research.paper import Number, Protocol, Task
from contradpp.research.reproduce import Store
from contradpp.research.tables import Collected, Selection, Table, by_size, number, statistic, value_of
from research.made_up import fake_result


def test_every_target_runs_and_writes_its_files(tmp_path, tiny):
    """The whole, with real fits on tiny data."""
    protocol = Protocol(quick=True, overrides={"max_iter": 2})
    chapters = reproduce.reproduce(["all", "table-amazon/feeding"], tmp_path, protocol, n_jobs=1)
    assert [chapter.target for chapter in chapters] == [*paper.SINGLE, "table-amazon/feeding"]
    index = (tmp_path / "index.md").read_text(encoding="utf-8")
    for chapter in chapters:
        text = (tmp_path / f"{chapter.slug}.md").read_text(encoding="utf-8")
        assert text.strip() in index
        content = json.loads((tmp_path / f"{chapter.slug}.json").read_text(encoding="utf-8"))
        assert content["target"] == chapter.target
        assert content["results"]
        assert chapter.plots
        for figure in content["figures"]:
            assert (tmp_path / figure).read_bytes().startswith(b"\x89PNG")
            assert figure in text
        assert "nan" not in text.lower()
    assert "Three claims" in index
    for key in ("Popularity alone reaches MPR", "one LowRank kernel", "from the paper's start"):
        assert key in index
    assert not list(tmp_path.rglob("*.tmp"))
    assert not list(tmp_path.rglob("*.partial.png"))


def test_the_papers_settings_have_the_papers_methods(tmp_path, faked):
    store, protocol = Store(tmp_path), Protocol("paper", trials=2)
    for target in paper.SINGLE:
        reproduce.compute(reproduce.missing([target], protocol, store), store)
        chapter = reproduce.build(target, protocol, store)
        assert chapter.findings
        assert "exact" not in [row[0] for table in chapter.tables for row in table.rows]


def test_published_numbers_stand_beside_ours(tmp_path, faked):
    reproduce.reproduce(["table-uk", "table-runtimes", "figure1"], tmp_path, Protocol(trials=2))
    uk = (tmp_path / "table-uk.md").read_text(encoding="utf-8")
    for text in ("80.07", "+3.75 ± 0.16", "+0.4147 ± 0.0134", "0.5730"):
        assert text in uk
    assert "4,070 items" in uk
    times = (tmp_path / "table-runtimes.md").read_text(encoding="utf-8")
    assert "27.59 ± 2.20" in times
    assert "1 : 3.2 : 8.6 : 33" in times
    toy = (tmp_path / "figure1.md").read_text(encoding="utf-8")
    assert "at most 1/2" in toy
    assert r"P(2\|1)" in toy


def test_improvements_are_differences_within_a_trial():
    results = {}
    for trial in range(3):
        for method, mpr in (("mle", 80.0 + trial), ("explicit", 83.0 + trial + 0.1 * trial)):
            task = Task("fit", "uk", method, trial)
            results[task] = {"metrics": {"mpr_paper": mpr}}
    collected = Collected(Protocol(), results)
    gain = collected.improvement(Selection(("uk",), "explicit"), Selection(("uk",), "mle"), "mpr_paper")
    assert gain.value == pytest.approx(3.1)
    assert gain.std == pytest.approx(0.1)
    assert collected.mean(Selection(("uk",), "mle"), "mpr_paper").std == pytest.approx(1.0)


def test_a_mean_over_data_sets_deviates_as_its_trials_do():
    data = ("amazon/feeding", "amazon/apparel")
    results = {
        Task("fit", name, "mle", trial): {"metrics": {"mpr_paper": 60.0 + 10 * place + trial}}
        for trial in range(2)
        for place, name in enumerate(data)
    }
    mean = Collected(Protocol(), results).mean(Selection(data, "mle"), "mpr_paper")
    assert mean.value == pytest.approx(65.5)
    assert mean.std == pytest.approx(np.std([0, 1], ddof=1))


def test_values_and_statistics():
    assert statistic([]) is None
    assert statistic([2.0]) == Number(2.0)
    popularity = fake_result(Task("fit", "uk", "popularity", 0))
    assert value_of(popularity, "auc:none") == 0.6
    assert value_of(popularity, "auc:likelihood") is None
    assert value_of(fake_result(Task("fit", "uk", "mle", 0)), "auc:discrimination") == 0.99


def test_sizes_are_pooled_and_in_order():
    rows = [
        {"by_size": [{"group": "16-31", "n": 1, "mpr_paper": 50.0}, {"group": "all", "n": 9, "mpr_paper": 1.0}]},
        {"by_size": [{"group": "4-7", "n": 5, "mpr_paper": 70.0}, {"group": "16-31", "n": 3, "mpr_paper": 90.0}]},
    ]
    assert by_size(rows) == {"4-7": (70.0, 5), "16-31": (80.0, 4)}
    assert list(by_size(rows)) == ["4-7", "16-31"]


def test_numbers_and_tables_in_markdown():
    assert number(Number(83.123, 0.256)) == "83.12 ± 0.26"
    assert number(Number(-0.5), sign=True) == "−0.50"
    assert number(Number(0.3705, 8.569e-5), "auc", sign=True) == "+0.3705 ± 0.0001"
    assert number(Number(0.3702, 4.447e-5), "auc") == "0.3702 ± 4.4e-05"
    assert number(Number(-0.00001), "auc", sign=True) == "+0.0000"
    assert number(None) == "–"
    lines = Table("T", ("a|b", "c"), (("x", "1"), ("long", "20")), "note").markdown.splitlines()
    assert lines[0] == "**T**"
    assert lines[2] == r"| a\|b |  c |"
    assert len({len(line) for line in lines[2:6]}) == 1
    assert lines[-1] == "note"


def test_sentences_say_what_is_not_reached_and_why(tmp_path, faked):
    (chapter,) = reproduce.reproduce(["table-belgian"], tmp_path, Protocol(trials=2))
    text = " ".join(chapter.findings)
    assert re.search(r"Exp: MPR 80\.\d\d ± 0\.07 does not reach the published 89\.00", text)
    assert "reached at the last of them, not as trained" in text
    assert "less than the published +9.64" in text
    assert "**not confirmed**" in chapter.claims["1 popularity belgian"]


def test_the_index_keeps_what_was_written_before(tmp_path, faked):
    reproduce.reproduce(["table-uk"], tmp_path, Protocol(trials=2))
    reproduce.reproduce(["figure1"], tmp_path, Protocol(quick=True))
    index = (tmp_path / "index.md").read_text(encoding="utf-8")
    assert "2 trials" in index
    assert index.index("Figure 1") < index.index("UK retail")


def test_a_finished_reproduction_only_renders(tmp_path, faked):
    reproduce.reproduce(["scale"], tmp_path, Protocol(quick=True))
    faked.clear()
    (tmp_path / "scale.md").unlink()
    reproduce.reproduce(["scale"], tmp_path, Protocol(quick=True))
    assert faked == []
    assert (tmp_path / "scale.md").is_file()


def test_an_unknown_target_is_refused(tmp_path):
    with pytest.raises(ParameterError, match="there are: figure1"):
        reproduce.reproduce(["table-mars"], tmp_path, Protocol())
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_the_extra_is_named_before_any_work(tmp_path, faked, monkeypatch):
    real = builtins.__import__

    def no_matplotlib(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", no_matplotlib)
    with pytest.raises(MissingExtraError, match=r"contradpp\[plot\]"):
        reproduce.reproduce(["figure1"], tmp_path, Protocol(quick=True))
    assert faked == []


def test_results_of_other_parameters_are_not_mixed_in(tmp_path, faked):
    store = Store(tmp_path)
    reproduce.reproduce(["figure1"], tmp_path, Protocol(quick=True))
    assert reproduce.missing(["figure1"], Protocol(quick=True), store) == []
    assert len(reproduce.missing(["figure1"], Protocol(quick=True, overrides={"alpha": 2.0}), store)) == 18
