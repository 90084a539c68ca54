"""The compiled selection is the definition: greedy by explicit determinants, ties and all."""

from __future__ import annotations

import numpy as np
import pytest

import contradpp as cd
from contradpp import SlidingWindow
from contradpp.slates import compiled, greedy
from slates.cases import RIDGE, TIE, correlations, define

SCALES = greedy.SCALES
METHODS = (*greedy.METHODS, SlidingWindow())


def random_list(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Scores and vectors; half of the time of few values, so that scores tie and vectors are copies or zero."""
    n, d = int(rng.integers(1, 11)), int(rng.integers(1, 6))
    if rng.random() < 0.5:
        return rng.integers(0, 4, n).astype(float), rng.integers(-1, 2, (n, d)).astype(float)
    return rng.random(n), rng.normal(size=(n, d))


def picks(*args, **kwargs) -> list[int]:
    return cd.rerank(*args, **kwargs)[0].tolist()


def test_ten_thousand_random_lists_by_determinants():
    rng = np.random.default_rng(0)
    for number in range(10_000):
        scores, vectors = random_list(rng)
        k, delta = int(rng.integers(1, 8)), float(rng.choice([0.0, 0.2, 0.5, 0.9, 1.0]))
        scale = SCALES[number % 4]
        found = picks(np.arange(len(scores)), scores, k, vectors=vectors, diversity=delta, scale=scale)
        assert found == define(scores, correlations(vectors), k, delta, scale=scale), number


@pytest.mark.parametrize("method", METHODS[1:])
def test_the_other_methods_are_what_they_say(method):
    rng = np.random.default_rng(1)
    for number in range(600):
        scores, vectors = random_list(rng)
        k, delta, size = int(rng.integers(1, 8)), float(rng.choice([0.0, 0.3, 0.5, 1.0])), int(rng.integers(1, 4))
        window = SlidingWindow(size) if isinstance(method, SlidingWindow) else method
        options = {"method": window, "scale": SCALES[number % 4]}
        found = picks(np.arange(len(scores)), scores, k, vectors=vectors, diversity=delta, **options)
        assert found == define(scores, correlations(vectors), k, delta, **options), number


@pytest.mark.parametrize("method", METHODS)
def test_given_items_repel(method):
    rng = np.random.default_rng(2)
    for _ in range(300):
        scores, vectors = random_list(rng)
        n, n_given = len(scores), int(rng.integers(1, 4))
        known = rng.normal(size=(n_given, vectors.shape[1]))
        everything = np.vstack([vectors, known])
        items = range(n + n_given)
        found = picks(
            list(items)[:n], scores, 4, vectors=dict(zip(items, everything, strict=True)), given=list(items)[n:],
            method=method, diversity=0.6,
        )  # fmt: skip
        assert found == define(scores, correlations(everything), 4, 0.6, method=method, n_given=n_given)


def test_float32_chooses_what_float64_chooses():
    rng = np.random.default_rng(3)
    same = 0
    for _ in range(200):
        scores, vectors = rng.random(300), rng.normal(size=(300, 40)).astype(np.float32)
        wide = vectors.astype(np.float64)
        same += picks(range(300), scores, 15, vectors=vectors) == picks(range(300), scores, 15, vectors=wide)
    assert same >= 197  # gains within 10⁻⁴ may fall the other way


def test_gains_are_the_growth_of_the_determinant():
    rng = np.random.default_rng(4)
    scores, vectors = rng.random(30), rng.normal(size=(30, 6))
    items, _, info = cd.rerank(range(30), scores, 12, vectors=vectors, diversity=0.4, scale="raw", return_info=True)
    phi = correlations(vectors)[np.ix_(items, items)]
    whole = 0.6 * scores[items].sum() + 0.4 * np.linalg.slogdet(phi)[1]
    assert info.gains.sum() == pytest.approx(whole)  # more items than dimensions: the ridge carries it


def test_a_long_list_is_chosen_as_the_definition_says():
    """Most candidates are never looked at: that must not show."""
    rng = np.random.default_rng(5)
    centers = rng.normal(size=(8, 24))
    vectors = centers[rng.integers(0, 8, 400)] + 0.2 * rng.normal(size=(400, 24))
    scores = rng.gamma(0.5, size=400)
    phi = correlations(vectors)
    for method in METHODS:
        for delta in (0.1, 0.5, 0.95, 1.0):
            found = picks(range(400), scores, 12, vectors=vectors, diversity=delta, method=method)
            assert found == define(scores, phi, 12, delta, method=method), (method, delta)


@pytest.mark.parametrize("method", METHODS)
def test_no_variety_is_the_top_and_nothing_else(method):
    rng = np.random.default_rng(6)
    scores = rng.integers(0, 20, 200).astype(float)
    top = np.argsort(-scores, kind="stable")[:25].tolist()
    for scale in SCALES:
        vectors = np.tile([1.0, 0.0], (200, 1))
        assert picks(range(200), scores, 25, vectors=vectors, diversity=0, method=method, scale=scale) == top


def test_only_variety_ignores_scores_but_for_ties():
    vectors = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    assert picks(list("abcd"), [1, 2, 3, 4], 2, vectors=vectors, diversity=1) == ["d", "b"]
    assert picks(list("abcd"), [4, 4, 4, 4], 2, vectors=vectors, diversity=1) == ["a", "c"]


def test_the_trade_is_continuous():
    """Near the ends the slate is that of the ends, and a step in between never jumps over another slate."""
    rng = np.random.default_rng(7)
    scores, vectors = rng.random(40), rng.normal(size=(40, 5))
    ends = [picks(range(40), scores, 6, vectors=vectors, diversity=d) for d in (0, 1e-6, 1 - 1e-6, 1)]
    assert ends[0] == ends[1]
    assert ends[2] == ends[3]
    spread = [
        np.linalg.slogdet(correlations(vectors[picks(range(40), scores, 6, vectors=vectors, diversity=d)]))[1]
        for d in (0, 0.25, 0.5, 0.75, 1)
    ]
    assert spread == sorted(spread)


# -- Scores of any scale -----------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_shift_and_unit_of_scores_do_not_matter(method):
    rng = np.random.default_rng(8)
    for _ in range(50):
        scores, vectors, p = rng.normal(size=60), rng.normal(size=(60, 8)), rng.dirichlet(np.full(60, 0.3))
        for scale in ("rank", "linear", "log"):
            options = {"k": 10, "vectors": vectors, "method": method, "scale": scale}
            assert picks(range(60), p * 1e-7, **options) == picks(range(60), p, **options)
            if scale != "log":
                first = picks(range(60), scores, **options)
                assert picks(range(60), 1000 * scores - 77, **options) == first
                assert picks(range(60), scores / 512 + 3, **options) == first


def test_by_rank_any_increasing_change_leaves_the_slate():
    rng = np.random.default_rng(10)
    p, vectors = rng.dirichlet(np.full(60, 0.5)), rng.normal(size=(60, 8))
    first = picks(range(60), p, vectors=vectors)
    assert picks(range(60), np.log(p), vectors=vectors) == first
    assert picks(range(60), np.log(p / (1 - p)), vectors=vectors) == first


def test_by_rank_worse_candidates_do_not_matter():
    rng = np.random.default_rng(11)
    scores, vectors = np.sort(rng.random(500))[::-1], rng.normal(size=(500, 16))
    whole = picks(range(500), scores, vectors=vectors)
    cut = max(whole) + 1
    assert picks(range(cut), scores[:cut], vectors=vectors[:cut]) == whole


def test_logarithms_of_probabilities_are_the_kernel_of_the_design():
    """q_j² = p_j^τ, τ = (1 − δ)/δ: greedy for log det diag(q) Φ diag(q)."""
    rng = np.random.default_rng(12)
    p, vectors, delta = rng.dirichlet(np.ones(12)), rng.normal(size=(12, 4)), 0.3
    q = p ** ((1 - delta) / delta / 2)
    L = q[:, None] * correlations(vectors) * q
    chosen: list[int] = []
    while len(chosen) < 6:
        rest = [j for j in range(12) if j not in chosen]
        dets = [np.linalg.slogdet(L[np.ix_([*chosen, j], [*chosen, j])])[1] for j in rest]
        chosen.append(rest[int(np.argmax(dets))])
    assert picks(range(12), p, 6, vectors=vectors, diversity=delta, scale="log") == chosen
    assert picks(range(12), np.log(p), 6, vectors=vectors, diversity=delta, scale="raw") == chosen


def test_zero_probabilities_come_last():
    p = np.array([0.5, 0.0, 0.3, 0.0, 0.2])
    assert set(picks(range(5), p, 3, vectors=np.ones((5, 2)), scale="log")) == {0, 2, 4}


def test_scores_of_extreme_size_are_no_trouble():
    vectors = np.eye(4)[:, :3]
    for scale in SCALES[:2]:
        assert picks(range(4), [1e100, -1e100, 5e99, 0.0], 4, vectors=vectors, scale=scale)[0] == 0
    for scale in SCALES:
        assert len(picks(range(4), [5e-324, 0, 1e-320, 2e-323], 4, vectors=vectors, scale=scale)) == 4


# -- The machinery -----------------------------------------------------------------------------------


def test_words_and_numbers_agree():
    named = [compiled.DPP, compiled.MMR, compiled.MSD]
    assert named == list(range(len(greedy.METHODS)))
    assert compiled.WINDOW not in named
    named = [compiled.RANK, compiled.LINEAR, compiled.LOG, compiled.RAW]
    assert named == list(range(len(SCALES)))
    assert (compiled.RIDGE, greedy.TIES[np.dtype(np.float64)]) == (RIDGE, TIE)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_threads_change_nothing(dtype):
    rng = np.random.default_rng(13)
    items = np.array([rng.permutation(500)[:50] for _ in range(300)])
    scores, table = rng.random(items.shape), rng.normal(size=(500, 12)).astype(dtype)
    model = cd.LowRankDPP.from_factors(table)
    found = [cd.rerank(items, scores, 8, kernel=model, n_jobs=jobs, return_info=True) for jobs in (1, 2, 3)]
    for other in found[1:]:
        assert other[0].tobytes() == found[0][0].tobytes()
        assert b"".join(one.gains.tobytes() for one in other[2]) == b"".join(one.gains.tobytes() for one in found[0][2])


def test_a_batch_is_its_lists():
    rng = np.random.default_rng(14)
    vectors = {f"v{i}": rng.normal(size=6) for i in range(40)}
    lists = [[f"v{i}" for i in rng.permutation(40)[:size]] for size in (0, 3, 20, 40)]
    scores = [rng.random(len(one)) for one in lists]
    items, values = cd.rerank(lists, scores, 5, vectors=vectors)
    assert items.shape == values.shape == (4, 5)
    for number, (one, own) in enumerate(zip(lists, scores, strict=True)):
        alone, alone_scores = cd.rerank(one, own, 5, vectors=vectors)
        assert items[number, : len(alone)].tolist() == alone.tolist()
        assert values[number, : len(alone)].tolist() == alone_scores.tolist()
        assert all(item is None for item in items[number, len(alone) :])
        assert np.isnan(values[number, len(alone) :]).all()
