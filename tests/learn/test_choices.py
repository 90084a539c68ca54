"""Learning from choices: P(chosen | offered) by enumeration, its gradient by differences, and real negatives."""

from __future__ import annotations

import numpy as np
import pytest

import reference_gradients
from contradpp import LowRankDPP, NonsymmetricDPP
from contradpp.data.baskets import Baskets
from contradpp.data.sets import EMPTY, swaps
from contradpp.errors import DataError, ParameterError
from contradpp.learn.calibration import calibrated
from contradpp.learn.negatives import ExplicitSource, Negatives, RefusedSource
from contradpp.learn.objectives import (
    Batch,
    ChoiceLikelihood,
    Validation,
    conditional_monitor,
    mixed_monitor,
    swap_monitor,
)
from contradpp.learn.params import FitData, problem_of
from contradpp.learn.state import State, first_state
from learn.test_forms import FORMS, M, as_sets, check_by_differences, dense_kernel, make_state

CHOSEN = [[0, 3, 4], [2], [], [0, 1, 2, 6], [8, 7, 3]]
OFFERED = [[4, 0, 3, 5, 8], [1, 2, 7], [5, 6], [6, 2, 1, 0, 3, 4, 5], [8, 7, 3]]
WEIGHTS = np.array([0.3, 0.2, 0.1, 0.5, 0.2])


def batch() -> Batch:
    return Batch(as_sets(CHOSEN), WEIGHTS, Negatives(EMPTY, np.empty(0)), as_sets(OFFERED))


def by_enumeration(L: np.ndarray) -> np.ndarray:
    return np.array([reference_gradients.choice_log_likelihood(L, *pair) for pair in zip(CHOSEN, OFFERED, strict=True)])


@pytest.mark.parametrize("form", FORMS)
def test_gradient_of_the_choice_likelihood(form):
    state = make_state(form, 7)

    def value(state: State) -> float:
        return float(WEIGHTS @ by_enumeration(dense_kernel(state)))

    gradient = check_by_differences(ChoiceLikelihood(), batch(), state, value)
    assert gradient.objective == pytest.approx(value(state), rel=1e-10)
    assert gradient.right is None  # no item that was not offered moves
    assert set(gradient.rows.tolist()) == set(range(M))
    assert state.epsilon == sum(form[3:])  # it only looked


@pytest.mark.parametrize("form", FORMS)
def test_log_choice_of_state_and_kernel(form):
    state = make_state(form, 8)
    expected = by_enumeration(dense_kernel(state))
    np.testing.assert_allclose(state.log_choice(as_sets(CHOSEN), as_sets(OFFERED)), expected, rtol=1e-9)
    if not form[3:]:
        np.testing.assert_allclose(state.kernel.log_choice(as_sets(CHOSEN), as_sets(OFFERED)), expected, rtol=1e-9)


def test_swaps():
    found, entry = swaps(as_sets([[0, 1], [2]]), as_sets([[5, 6], [7]]))
    lists = [part.tolist() for part in np.split(found.indices, found.indptr[1:-1])]
    assert lists == [[5, 1], [6, 1], [0, 5], [0, 6], [7]]
    assert entry.tolist() == [0, 0, 1, 1, 2]
    assert swaps(as_sets([[0, 1]]), as_sets([[]]))[0].count == 0


def test_validation_by_swaps():
    """Which of what was refused, and the item itself, completes the rest: by its definition."""
    state = make_state((True, 5, True), 3)
    L, weights = dense_kernel(state), np.array([1.0, 2.0, 1.0, 0.5, 1.0])

    def det(items):
        return np.linalg.det(L[np.ix_(items, items)]) if items else 1.0

    logs, mass = 0.0, 0.0
    for chosen, offered, weight in zip(CHOSEN, OFFERED, weights, strict=True):
        refused = [j for j in offered if j not in chosen]
        for i in chosen if refused else []:
            rest = [a for a in chosen if a != i]
            logs += weight / len(chosen) * np.log(det(chosen) / (det(chosen) + sum(det([*rest, j]) for j in refused)))
            mass += weight / len(chosen)
    monitor = swap_monitor(Validation(as_sets(CHOSEN), weights), as_sets(OFFERED), M)
    assert monitor(state) == pytest.approx(logs / mass, rel=1e-10)


def test_validation_of_choices_and_orders_together():
    state, weights = make_state((True, 5, True), 3), np.array([1.0, 2.0, 1.0, 0.5, 1.0])
    lists = [[0, 3, 4], [2], [5, 6], [0, 1, 2, 6], [8, 7, 3]]
    known = [0, 3]
    offered = as_sets([items if number in known else [] for number, items in enumerate(OFFERED)])
    mixed = mixed_monitor(Validation(as_sets(lists), weights), offered, np.ones(M))
    chosen = Validation(as_sets([lists[n] for n in known]), weights[known])
    swapped = swap_monitor(chosen, as_sets([OFFERED[n] for n in known]), M)
    rest = conditional_monitor(Validation(as_sets([lists[n] for n in (1, 2, 4)]), weights[[1, 2, 4]]), np.ones(M))
    assert mixed(state) == pytest.approx((1.5 * swapped(state) + 4.0 * rest(state)) / 5.5, rel=1e-12)


# -- Negatives -------------------------------------------------------------------------------------------


def test_refused_negatives_are_drawn_by_the_model():
    """A swap by det L_{A∖i∪j} among i and what was refused, the refused set by its share beside the positive."""
    state, positives = make_state(), as_sets([[0, 1], [2], [3, 4], []])
    offered = as_sets([[0, 1, 5, 6], [2, 7], [], [8]])
    L, n = dense_kernel(state), 8000

    def det(items):
        return np.linalg.det(L[np.ix_(items, items)]) if items else 1.0

    def share(items, *others):
        return det(items) / sum(map(det, others))

    shares = {(8,): share([8], [], [8]), (): share([], [], [8])}  # nothing was taken: the whole set, or none again
    for kept, own in ((1, 0), (0, 1)):
        for j in (own, 5, 6):
            key = tuple(sorted([kept, j]))
            shares[key] = shares.get(key, 0) + 0.25 * share([kept, j], [kept, own], [kept, 5], [kept, 6])
    shares[0, 1] += 0.5 * share([0, 1], [0, 1], [5, 6])
    shares[5, 6] = 0.5 * share([5, 6], [0, 1], [5, 6])
    shares |= {(7,): share([7], [2], [7]), (2,): share([2], [2], [7])}
    source = RefusedSource(ExplicitSource(np.full(M, 0.3), positives), set_share=0.5)
    drawn = source.draw(state, positives, n, np.random.default_rng(0), None, offered)
    found = [tuple(sorted(part.tolist())) for part in np.split(drawn.indices, drawn.indptr[1:-1])]
    for key, expected in shares.items():
        deviation = np.sqrt(n / 4 * expected * (1 - expected))
        assert found.count(key) == pytest.approx(n / 4 * expected, abs=4 * deviation + 1)
    others = [key for key in found if key not in shares]
    assert drawn.count == n
    assert len(others) == n / 4  # of the third nothing is known: generated ones
    assert all(3 in key or 4 in key for key in others)


def test_without_offered_sets_nothing_changes():
    state, positives = make_state(), as_sets([[0, 1], [2], [3, 4]])
    explicit = ExplicitSource(np.full(M, 0.3), positives)
    one = explicit.draw(state, positives, 50, np.random.default_rng(1))
    other = RefusedSource(explicit).draw(state, positives, 50, np.random.default_rng(1))
    np.testing.assert_array_equal(one.indices, other.indices)


# -- Fit -------------------------------------------------------------------------------------------------


def choices(n: int = 3000, seed: int = 0) -> tuple[Baskets, np.ndarray]:
    """Choices by a known law: from offered sets of two to five of six items."""
    rng = np.random.default_rng(seed)
    V = rng.normal(size=(6, 3))
    L = np.diag(rng.uniform(0.1, 1.0, 6)) + V @ V.T
    offered = [rng.choice(6, size=rng.integers(2, 6), replace=False).tolist() for _ in range(n)]
    chosen = []
    for items in offered:
        subsets = [[i for b, i in enumerate(items) if code >> b & 1] for code in range(2 ** len(items))]
        weights = np.array([np.linalg.det(L[np.ix_(s, s)]) if s else 1.0 for s in subsets])
        chosen.append(subsets[rng.choice(len(subsets), p=weights / weights.sum())])
    return Baskets.from_lists(chosen, offered=offered, items=range(6)), L


@pytest.mark.parametrize("make", [lambda **how: LowRankDPP(6, **how), lambda **how: NonsymmetricDPP(4, 0, **how)])
def test_the_law_of_choices_is_found(make):
    baskets, L = choices()
    model = make(objective="choice", random_state=0).fit(baskets)
    offered = np.split(baskets.offered.indices, baskets.offered.indptr[1:-1])
    pairs = zip(baskets, (part.tolist() for part in offered), strict=True)
    truth = [reference_gradients.choice_log_likelihood(L, *pair) for pair in pairs]
    found = model.score_choices(baskets)
    assert np.mean(found) > np.mean(truth) - 0.005
    by_rate = NonsymmetricDPP(0, 0, objective="choice", random_state=0).fit(baskets)
    assert np.mean(found) > np.mean(by_rate.score_choices(baskets)) + 0.03


@pytest.mark.parametrize(("objective", "columns", "share"), [("choice", 4, 0.1), ("exact", 4, 0.9), ("choice", 0, 1.0)])
def test_choices_begin_with_little_on_the_diagonal(objective, columns, share):
    """One is taken of several that are alike: that is repulsion, and training seldom leaves the diagonal for V."""
    params = NonsymmetricDPP(columns, 0, objective=objective)._training_params()
    state = first_state(problem_of(FitData(choices(200)[0]), params, seed=0), params)
    d = np.exp(state.log_d)
    np.testing.assert_allclose(d / (d + np.square(state.V).sum(axis=1)), share)


def test_the_same_with_two_threads():
    baskets, _ = choices(600)
    one, two = (
        LowRankDPP(4, objective="choice", oversize="drop", max_iter=3, n_jobs=n, random_state=0).fit(baskets)
        for n in (1, 2)
    )
    np.testing.assert_array_equal(one.item_factors_, two.item_factors_)


def test_real_negatives_tell_taken_from_refused():
    """Item 0 is always taken and 1 always refused, and both are as popular; orders alone cannot tell."""
    rng = np.random.default_rng(0)
    rest = rng.integers(2, 8, size=(400, 1)).tolist()
    seen = Baskets.from_lists([[0, *r] for r in rest], offered=[[0, 1, *r] for r in rest], items=range(8))
    orders = Baskets.from_lists([[1, *r] for r in rest], items=range(8))
    both = Baskets.concat([seen, orders])
    model = LowRankDPP(4, objective="explicit", max_iter=20, random_state=0).fit(both)
    scores = model.predict_next([2])
    assert scores[0] > scores[1]


def test_scale_for_choices():
    """The scale at which choices are most likely: not that of the size of baskets."""
    baskets, L = choices()
    V = np.linalg.cholesky(L)
    kernel = LowRankDPP.from_factors(V / 3).kernel_
    found = calibrated(kernel, "choices", Validation(baskets.sets, np.ones(len(baskets)), baskets.offered), None)
    logs = [np.mean(found.scaled(c).log_choice(baskets.sets, baskets.offered)) for c in (0.8, 1.0, 1.25)]
    assert logs[1] == max(logs)
    assert found.squared_norms.sum() / np.trace(L) == pytest.approx(1.0, abs=0.15)


def test_partial_fit_on_choices():
    baskets, _ = choices(800)
    model = NonsymmetricDPP(4, 0, objective="choice", max_iter=2, random_state=0).fit(baskets)
    before = np.mean(model.score_choices([0], [0, 1]))
    model.partial_fit(Baskets.from_lists([[0]] * 200, offered=[[0, 1]] * 200), n_iter=5)
    assert np.mean(model.score_choices([0], [0, 1])) > before


def test_what_is_refused():
    plain = [[0, 1], [2]] * 30
    for model in (
        LowRankDPP(3, objective="choice"),
        LowRankDPP(3, calibrate="choices"),
        NonsymmetricDPP(3, 0, objective="choice"),
    ):
        with pytest.raises(DataError, match="need to know what baskets were chosen from"):
            model.fit(plain)
    seen, _ = choices(100)
    with pytest.raises(ParameterError, match="takes no negatives"):
        NonsymmetricDPP(3, 0, objective="choice").fit(seen, negatives=[[0, 1]])
    with pytest.raises(DataError, match="need to know"):
        NonsymmetricDPP(3, 0, objective="choice", max_iter=1).fit(seen, validation=[[0, 1]])


def test_baskets_of_unknown_choices_are_left_out(caplog):
    seen, _ = choices(200)
    mixed = Baskets.concat([seen, Baskets.from_lists([[5, 4]] * 50, items=range(6))])
    settings = {"objective": "choice", "max_iter": 3, "random_state": 0}
    one, other = (NonsymmetricDPP(3, 0, **settings).fit(data) for data in (seen, mixed))
    assert "50 baskets are left out" in caplog.text
    np.testing.assert_array_equal(one.item_factors_, other.item_factors_)
