"""When training slows down and when it ends."""

from __future__ import annotations

import pytest

from contradpp.learn.optimizers import Plateau, RelativeChange, Steady, Verdict

ON, SLOW, END = Verdict.GO_ON, Verdict.SLOW_DOWN, Verdict.CONVERGED


def test_relative_change_ends_at_the_tolerance():
    rule = RelativeChange(1e-5)
    assert [rule.judge(s) for s in (-10.0, -9.0, -8.9999)] == [ON, ON, ON]  # 1.1e-5 of it
    assert rule.judge(-8.9999 + 8e-5) is END  # 0.9e-5 of it
    assert rule.rate == 1.0


def test_relative_change_sees_falls_as_change():
    rule = RelativeChange(1e-2)
    assert [rule.judge(s) for s in (-10.0, -11.0, -11.05)] == [ON, ON, END]


def test_relative_change_of_nothing_is_an_end():
    rule = RelativeChange(0.0)
    assert [rule.judge(s) for s in (-3.0, -3.0)] == [ON, END]


def test_plateau_slows_down_then_ends():
    rule = Plateau(0.0, patience=2, reductions=2, factor=0.5)
    assert [rule.judge(s) for s in (-5.0, -4.0, -4.5, -4.2)] == [ON, ON, ON, SLOW]
    assert rule.rate == 0.5
    assert [rule.judge(s) for s in (-3.0, -3.5, -3.5)] == [ON, ON, SLOW]
    assert rule.rate == 0.25
    assert [rule.judge(s) for s in (-3.5, -3.0)] == [ON, END]


def test_plateau_counts_only_rises_beyond_the_tolerance():
    rule = Plateau(0.1, patience=2, reductions=0)
    assert [rule.judge(s) for s in (-10.0, -9.5, -9.2)] == [ON, ON, END]
    rule = Plateau(0.1, patience=2, reductions=0)
    assert [rule.judge(s) for s in (-10.0, -9.5, -8.9, -8.5, -8.2)] == [ON, ON, ON, ON, END]


@pytest.mark.parametrize("score", [-1e9, 0.0, 5.0])
def test_steady_never_ends(score):
    rule = Steady()
    assert {rule.judge(score) for _ in range(50)} == {ON}
    assert rule.rate == 1.0


def test_the_rounds_left_are_those_until_the_score_has_stopped_rising():
    plateau = Plateau(tol=0.0, patience=2, reductions=2)
    told = []
    for score in (1.0, 2.0, 2.0, 2.0, 3.0, 3.0, 3.0, 3.0, 3.0):
        verdict = plateau.judge(score)
        told.append(plateau.rounds_left())
    assert verdict is Verdict.CONVERGED
    assert told == [8, 8, 7, 5, 5, 4, 2, 1, 0]
    assert Steady().rounds_left() == RelativeChange(1e-3).rounds_left() == float("inf")
