"""What notebooks show: HTML, data frames, pictures; and what `dir`, `repr` and wrong words say."""

from __future__ import annotations

import asyncio
import os
import re
import warnings

import numpy as np
import pytest

import contradpp as cd
from contradpp.errors import MissingExtraError, ParameterError, UnknownItemError

SHOP = [["tea", "milk"], ["tea", "milk", "<b>jam</b>"], ["pasta", "sauce"], ["pasta", "sauce", "cheese"]] * 15


@pytest.fixture(scope="module")
def model() -> cd.ConditionalDPP:
    return cd.ConditionalDPP(cd.LowRankDPP(4, max_iter=3), random_state=0).fit(SHOP)


@pytest.fixture(scope="module")
def comparison(model):
    return cd.compare({"ours": model, "neighbors": cd.baselines.ItemKNN().fit(SHOP)}, SHOP, train=SHOP)


def cells(html: str) -> list[list[str]]:
    """The texts of a table's rows."""
    rows = re.findall(r"<tr>(.*?)</tr>", html)
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]


def test_a_model_shows_what_differs_from_the_defaults_and_what_it_learned(model):
    rows = dict(row for row in cells(model._repr_html_()) if row)
    assert rows["random_state"] == "0"
    assert rows["items"] == "6"
    assert rows["training baskets"] == "60"
    assert "item_knn_cosine" in rows["experts"]
    assert "verbose" not in rows
    assert cells(cd.NonsymmetricDPP(7)._repr_html_()) == [[], ["n_components", "7"], ["not fitted", ""]]
    assert model._repr_mimebundle_() == {"text/plain": repr(model), "text/html": model._repr_html_()}


def test_settings_show_what_differs_from_the_defaults():
    adam = cd.optimizers.Adam(batch_size=50)
    assert repr(adam) == "Adam(batch_size=50)"
    assert repr(cd.optimizers.Adam()) == "Adam()"
    shown = " ".join(repr(cd.LowRankDPP(8, negatives=cd.negatives.DynamicNegatives(ratio=2), optimizer=adam)).split())
    assert shown == "LowRankDPP(n_components=8, negatives=DynamicNegatives(ratio=2), optimizer=Adam(batch_size=50))"


def test_a_report_as_html_and_as_a_frame(comparison):
    report = comparison.reports["ours"]
    rows = {row[0]: row[1:] for row in cells(report._repr_html_())}
    assert rows["MPR"][0] == f"{report.mpr:.2f}"
    assert rows["all"][0] == str(report.by_popularity.rows[-1].n)
    pytest.importorskip("pandas")
    frame = report.to_frame()
    assert frame.loc["ndcg", "value"] == report.ndcg
    assert tuple(frame.loc["ndcg", ["low", "high"]]) == report.interval("ndcg")
    assert np.isnan(frame.loc["coverage", "low"])


def test_a_comparison_as_html_and_as_a_frame(comparison):
    head, *rows = cells(comparison._repr_html_())
    assert head == ["", "Popularity", "ours", "neighbors"]
    assert rows[0][2] == f"{comparison.reports['ours'].mpr:.2f}"
    assert repr(comparison) == "Comparison(Popularity, ours, neighbors; 60 baskets)"
    pytest.importorskip("pandas")
    frame = comparison.to_frame()
    assert frame.index.tolist() == ["Popularity", "ours", "neighbors"]
    assert frame.loc["neighbors", "precision@5"] == comparison.reports["neighbors"].precision[5]


def test_an_explanation_as_html_and_as_a_frame(model):
    explanation = model.explain(["tea", "<b>jam</b>"], "milk")
    head, *_, total = cells(explanation._repr_html_())
    assert head == ["expert", "alone", "tea", "&lt;b&gt;jam&lt;/b&gt;"]
    assert float(total[2]) == pytest.approx(explanation.by_item["tea"], abs=0.005)
    assert repr(explanation).startswith("Explanation('milk', log P = -")
    pytest.importorskip("pandas")
    frame = explanation.to_frame()
    total = frame.to_numpy().sum() - explanation.log_normalizer
    assert total == pytest.approx(explanation.log_probability)
    assert frame["tea"].sum() == pytest.approx(explanation.by_item["tea"])


def test_slates_and_choices_have_the_same_display(model):
    for report in (cd.evaluate_slates(model, SHOP, k=2, min_size=3),):
        assert ["recall", f"{report.recall:.4f}"] in [row[:2] for row in cells(report._repr_html_())]


def test_without_pandas_the_message_says_what_to_install(comparison, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(MissingExtraError, match="pip install pandas"):
        comparison.to_frame()


def test_the_plot_of_a_comparison_draws_values_and_paired_intervals(comparison, tmp_path):
    pytest.importorskip("matplotlib")
    figure = comparison.plot(["ndcg", "precision@5"], tmp_path / "comparison.png")
    first, second = figure.axes
    assert [label.get_text() for label in first.get_yticklabels()] == ["Popularity", "ours", "neighbors"]
    change = comparison.difference("neighbors", "precision@5")
    base = comparison.reports["Popularity"].precision[5]
    drawn = [tuple(line.get_xdata()) for line in second.lines]
    assert (base + change.low, base + change.high) in drawn
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert (tmp_path / "comparison.png").stat().st_size > 2000


def test_the_plot_of_a_slate_colors_what_differs(model, tmp_path):
    pytest.importorskip("matplotlib")
    figure = cd.plot_slate(model, ["tea"], 3, diversity=0.9, path=tmp_path / "slate.png")
    slate = model.slate(["tea"], 3, diversity=0.9)[0].tolist()
    best = model.recommend(["tea"], 3)[0].tolist()
    left, right = figure.axes
    assert [label.get_text() for label in right.get_yticklabels()] == slate
    for panel, items, others in ((left, best, slate), (right, slate, best)):
        colors = [bar.get_facecolor() for bar in panel.patches]
        is_gray = [color[0] == color[1] == color[2] for color in colors]
        assert is_gray == [item in others for item in items]
    assert (tmp_path / "slate.png").stat().st_size > 2000


def test_dir_lists_what_is_public_and_nothing_else():
    assert dir(cd) == sorted(cd.__all__)
    assert "sys" not in dir(cd)


@pytest.mark.parametrize(
    ("call", "error", "suggestion"),
    [
        (lambda: cd.LowRankDPP(objective="exat").fit(SHOP), ParameterError, "Did you mean 'exact'?"),
        (lambda: cd.LowRankDPP(optimizer="adm").fit(SHOP), ParameterError, "Did you mean 'adam'?"),
        (lambda: cd.optimizers.Adam().set_params(batchsize=3), ParameterError, "Did you mean 'batch_size'?"),
        (lambda: cd.datasets.load("belgain"), ParameterError, "Did you mean 'belgian'?"),
        (lambda: cd.scorer("ndgc"), ParameterError, "Did you mean 'ndcg'?"),
        (lambda: cd.baselines.ItemKNN().fit(SHOP).recommend(["mikl"]), UnknownItemError, "Did you mean 'milk'?"),
        (lambda: cd.baselines.ItemKNN().fit(SHOP).find_items(["chees"]), UnknownItemError, "Did you mean 'cheese'?"),
    ],
)
def test_a_wrong_word_is_answered_by_the_closest(call, error, suggestion):
    with pytest.raises(error, match=re.escape(suggestion)):
        call()


def test_ids_and_names_are_both_suggested_and_numbers_are_not():
    items = cd.Vocabulary(["85123A", "22423"], names={"22423": "Regency cakestand"})
    for word, found in {"85123B": "'85123A'", "cakestand": "'22423'"}.items():
        with pytest.raises(UnknownItemError, match=f"Did you mean {found}"):
            items.code(word)
    with pytest.raises(UnknownItemError) as caught:
        cd.Vocabulary([1001, 1002]).code(1003)
    assert "mean" not in str(caught.value)


def test_a_wrong_name_of_the_package_is_answered_by_the_closest():
    with pytest.raises(AttributeError) as caught:
        cd.evalute  # noqa: B018
    assert caught.value.name == "evalute"  # with these two, Python itself makes the suggestion
    assert caught.value.obj is cd


def test_in_a_notebook(tmp_path, monkeypatch):
    """Models and reports are tables, plots are pictures without pyplot, and a fit shows its progress."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    pytest.importorskip("matplotlib")
    for variable in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable.lower()))
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")
    sources = [
        "import contradpp as cd\nfrom contradpp.learn import callbacks\ncallbacks.SECONDS_BEFORE = 0\n"
        f"model = cd.LowRankDPP(4, max_iter=3, random_state=0).fit({SHOP!r})\nmodel",
        f"report = cd.evaluate(model, {SHOP!r})\nreport",
        "report.plot()",
    ]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    client = nbclient.NotebookClient(
        book, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the client's own libraries; the kernel is another process
        asyncio.run(client.async_execute(env=dict(os.environ)))
    fit, evaluated, plotted = (cell.outputs for cell in book.cells)
    assert "round" in "".join(output.text for output in fit if output.get("name") == "stderr")
    assert "<table>" in fit[-1].data["text/html"]
    assert "MPR" in evaluated[-1].data["text/html"]
    assert "image/png" in plotted[-1].data
