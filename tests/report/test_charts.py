"""The pieces of charts: escaping, scales, round numbers and labels that keep apart."""

from __future__ import annotations

import numpy as np
import pytest

from contradpp.report.charts import (
    Box,
    Scale,
    curve,
    heat_legend,
    heat_map,
    hint,
    item_map,
    short,
    tag,
    text,
    ticks,
    width_of,
)  # fmt: skip


def test_names_cannot_break_out():
    bad = '</title><script>alert("x")</script>'
    assert "<script>" not in text(bad, 0, 0) + hint(bad) + tag("a", href=bad)


def test_attributes():
    assert tag("g", "x", class_="a", stroke_width=1.5, data_item=3, missing=None) == (
        '<g class="a" stroke-width="1.5" data-item="3">x</g>'
    )


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-6.7, -6.5), (0, 23.7), (3, 97), (1, 2)])
def test_ticks_are_few_round_and_inside(low, high):
    found = ticks(low, high)
    assert 2 <= len(found) <= 9
    assert all(low - 1e-9 <= t <= high + 1e-9 for t in found)
    assert ticks(2.0, 2.0) == [2.0]


def test_scale():
    assert Scale(0, 10, 100, 0)(5) == 50
    assert Scale(3, 3, 0, 10)(3) == 0


def test_text_is_cut_and_measured():
    assert short("abcdef", 4) == "abc…"
    assert short("abc", 4) == "abc"
    assert width_of("WIDE") > width_of("wide")


def test_boxes():
    assert Box(0, 0, 2, 2).meets(Box(1, 1, 3, 3))
    assert not Box(0, 0, 2, 2).meets(Box(2, 0, 3, 3))


def test_the_best_round_is_marked_and_nan_is_left_out():
    history = [{"iteration": i, "validation": v} for i, v in ((1, -3.0), (2, -1.0), (3, float("nan")), (4, -2.0))]
    drawn = curve(history, "validation", label="x", class_="s1", mark_best=True)
    assert "best: round 2" in drawn
    assert "round 3" not in drawn
    assert curve([{"iteration": 1, "validation": float("nan")}], "validation", label="x", class_="s1") == ""
    assert "round 1" in curve(history[:1], "validation", label="x", class_="s1")


def test_the_heat_map_has_a_cell_a_pair_and_two_sides():
    ratios = np.log(np.array([[1.0, 0.5, 3.0], [0.5, 1.0, 1.0], [3.0, 1.0, 1.0]]))
    drawn = heat_map(ratios, ["tea", "milk", "<b>"])
    assert drawn.count("<rect") == 3
    assert drawn.count('class="apart"') == 1
    assert "<b>" not in drawn
    assert "0.50 times" in drawn
    assert "twice as often" in heat_legend(attracts=True)
    assert "twice as often" not in heat_legend(attracts=False)


def test_labels_of_the_map_do_not_overlap():
    rng = np.random.default_rng(0)
    names = [f"a long name of item {n}" for n in range(80)]
    drawn = item_map(rng.uniform(-1, 1, (80, 2)), names, rng.uniform(0, 1, 80), [0] * 80)
    assert drawn.count("<circle") == 80
    assert 10 < drawn.count('class="name"') < 80
