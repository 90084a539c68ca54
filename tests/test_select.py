"""`DPPSelector` against the definition of its greedy choice, and of the k-DPP."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone

import contradpp as cd
from contradpp.errors import DataError, NotFittedError, ParameterError, RankError
from contradpp.select import DPPSelector
from exact import chi_square_p_value

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 5))
WEIGHTS = RNG.uniform(0.5, 2.0, 60)


def kernel(X, weights, metric) -> np.ndarray:
    lengths = np.linalg.norm(X, axis=1)
    rows = X / lengths[:, None]
    quality = weights * (lengths if metric == "linear" else 1.0)
    return quality[:, None] * (rows @ rows.T + 1e-3 * np.eye(len(X))) * quality


def greedy(L, n) -> tuple[list[int], list[float]]:
    chosen, gains = [], []
    for _ in range(n):
        before = np.linalg.slogdet(L[np.ix_(chosen, chosen)])[1] if chosen else 0.0
        rest = [j for j in range(len(L)) if j not in chosen]
        logs = [np.linalg.slogdet(L[np.ix_([*chosen, j], [*chosen, j])])[1] for j in rest]
        gains.append(max(logs) - before)
        chosen.append(rest[int(np.argmax(logs))])
    return chosen, gains


@pytest.mark.parametrize("metric", ["cosine", "linear"])
@pytest.mark.parametrize("n", [1, 5, 12])
def test_the_greedy_choice_is_that_of_the_definition(metric, n):
    """Also beyond the rank of X, which is 5."""
    chosen, gains = greedy(kernel(X, WEIGHTS, metric), n)
    found = DPPSelector(n, metric=metric).fit(X, sample_weight=WEIGHTS)
    assert found.indices_.tolist() == chosen
    np.testing.assert_allclose(found.gains_, gains, atol=1e-8)


@pytest.mark.parametrize("metric", ["cosine", "linear"])
def test_samples_are_those_of_the_k_dpp(metric):
    rows, weights = X[:6, :3], WEIGHTS[:6]
    quality = weights if metric == "linear" else weights / np.linalg.norm(rows, axis=1)
    pairs = list(itertools.combinations(range(6), 2))
    probabilities = np.exp(cd.DPP(V=rows * quality[:, None]).score_samples([list(pair) for pair in pairs], size=2))
    counts = dict.fromkeys(pairs, 0)
    for seed in range(2000):
        how = {"method": "sample", "metric": metric, "random_state": seed}
        counts[tuple(sorted(DPPSelector(2, **how).fit(rows, sample_weight=weights).indices_.tolist()))] += 1
    found = np.array(list(counts.values()))
    assert chi_square_p_value(found, probabilities) > 1e-3
    assert chi_square_p_value(found, np.full(15, 1 / 15)) < 1e-6


def test_it_is_an_estimator():
    selector = DPPSelector(4, metric="linear")
    assert clone(selector).get_params() == selector.get_params()
    frame = pytest.importorskip("pandas").DataFrame(X)
    rows = selector.fit_transform(frame)
    assert rows.index.tolist() == selector.indices_.tolist()
    np.testing.assert_array_equal(selector.transform(X), X[selector.indices_])
    assert np.flatnonzero(selector.get_support()).tolist() == sorted(selector.indices_.tolist())
    assert selector.get_support(indices=True).tolist() == sorted(selector.indices_.tolist())


def test_results_do_not_depend_on_threads_nor_on_the_order_of_rows():
    order = RNG.permutation(60)
    one, two = (DPPSelector(8, n_jobs=n).fit(X) for n in (1, 2))
    assert one.indices_.tolist() == two.indices_.tolist()
    turned = DPPSelector(8).fit(X[order], sample_weight=WEIGHTS[order])
    assert order[turned.indices_].tolist() == DPPSelector(8).fit(X, sample_weight=WEIGHTS).indices_.tolist()


def test_float32_chooses_the_same():
    assert DPPSelector(5).fit(X.astype(np.float32)).indices_.tolist() == DPPSelector(5).fit(X).indices_.tolist()


def test_rows_without_weight_or_direction_are_not_chosen():
    rows = X[:8].copy()
    rows[3] = 0.0
    weights = np.ones(8)
    weights[[0, 5]] = 0.0
    assert sorted(DPPSelector(5).fit(rows, sample_weight=weights).indices_.tolist()) == [1, 2, 4, 6, 7]
    with pytest.raises(DataError, match="5 of 8 rows"):
        DPPSelector(6).fit(rows, sample_weight=weights)


@pytest.mark.parametrize(
    ("how", "given", "error", "words"),
    [
        ({"n": 0}, {}, ParameterError, "n must be"),
        ({"method": "best"}, {}, ParameterError, "greedy, sample"),
        ({"metric": "l2"}, {}, ParameterError, "cosine, linear"),
        ({"n": 99}, {}, DataError, "n=99"),
        ({"n": 6, "method": "sample"}, {}, RankError, "rank of X: .* method='greedy'"),
        ({}, {"X": [1.0, 2.0]}, DataError, "matrix"),
        ({}, {"X": [["a"]]}, DataError, "real numbers"),
        ({}, {"X": np.full((20, 2), np.nan)}, ParameterError, "row 0 .* fill in missing"),
        ({}, {"X": csr_array(X)}, DataError, "X.toarray"),
        ({}, {"sample_weight": [1.0]}, ParameterError, r"shape \(1,\)"),
        ({}, {"sample_weight": -WEIGHTS}, ParameterError, "sample_weight"),
    ],
)
def test_bad_input_is_named(how, given, error, words):
    with pytest.raises(error, match=words):
        DPPSelector(**how).fit(**{"X": X, **given})


def test_before_fit_and_with_other_rows():
    with pytest.raises(NotFittedError):
        DPPSelector().get_support()
    with pytest.raises(DataError, match="60 rows"):
        DPPSelector(3).fit(X).transform(X[:5])
