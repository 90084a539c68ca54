"""The arguments of `rerank`, and its errors."""

from __future__ import annotations

import numpy as np
import pytest

import contradpp as cd
from contradpp.errors import DataError, ParameterError, UnknownItemError

ITEMS, SCORES = ["tea", "green tea", "milk"], [0.9, 0.8, 0.5]
VECTORS = np.array([[1.0, 0.0], [0.99, 0.1], [0.0, 1.0]])
BY_ITEM = dict(zip(ITEMS, VECTORS, strict=True))


def model(**kernel) -> cd.NonsymmetricDPP:
    return cd.NonsymmetricDPP.from_factors(VECTORS * [[0.3], [2.0], [1.0]], items=ITEMS, **kernel)


def slate(*args, **kwargs) -> list:
    return cd.rerank(*args, **kwargs)[0].tolist()


# -- Where similarity comes from -----------------------------------------------------------------------


def test_vectors_beside_the_candidates_by_item_and_of_a_model_say_the_same():
    assert slate(ITEMS, SCORES, 2, vectors=VECTORS) == ["tea", "milk"]
    assert slate(ITEMS, SCORES, 2, vectors=BY_ITEM) == ["tea", "milk"]
    assert slate(ITEMS, SCORES, 2, vectors=VECTORS.tolist()) == ["tea", "milk"]
    assert slate(ITEMS, SCORES, 2, kernel=model()) == ["tea", "milk"]


def test_attraction_is_no_matter_of_variety():
    """A skew part may tie tea and green tea together: they stay alike."""
    S = np.zeros((3, 3))
    S[0, 1], S[1, 0] = 5.0, -5.0
    assert slate(ITEMS, SCORES, 2, kernel=model(S=S)) == ["tea", "milk"]
    both = cd.NonsymmetricDPP.from_factors(VECTORS, B=np.array([[3.0, 0], [0, 3], [0, 0]]), items=ITEMS)
    assert slate(ITEMS, SCORES, 2, kernel=both) == ["tea", "milk"]
    assert np.allclose(both.kernel_.vectors @ both.kernel_.vectors.T, VECTORS @ VECTORS.T)


def test_a_models_lengths_do_not_matter_but_its_diagonal_does():
    from contradpp.dpp.kernel import Kernel
    from contradpp.slates.greedy import Vectors

    kernel = Kernel(VECTORS * [[0.3], [2.0], [1.0]], diagonal=[1.0, 0.0, 0.5])
    scaled = Vectors.of_kernel(kernel)
    L = kernel.vectors @ kernel.vectors.T + np.diag(kernel.diagonal)
    root = np.sqrt(np.diag(L))
    off = ~np.eye(3, dtype=bool)
    rows = scaled.of_rows(np.arange(3))
    assert np.allclose((rows @ rows.T)[off], (L / root[:, None] / root)[off])


def test_kernel_and_vectors_together_are_the_mean_of_both():
    rng = np.random.default_rng(0)
    A, B, scores = rng.normal(size=(20, 3)), rng.normal(size=(20, 5)), rng.random(20)
    unit = [X / np.linalg.norm(X, axis=1, keepdims=True) for X in (A, B)]
    both = slate(range(20), scores, 8, kernel=cd.LowRankDPP.from_factors(A), vectors=B)
    assert both == slate(range(20), scores, 8, vectors=np.hstack(unit) / np.sqrt(2))


def test_any_model_with_item_factors_will_do():
    class Factors:
        item_factors = VECTORS.astype(np.float32)

    assert slate([0, 1, 2], SCORES, 2, kernel=Factors()) == [0, 2]
    Factors.items_ = cd.Vocabulary(ITEMS)
    assert slate(ITEMS, SCORES, 2, kernel=Factors()) == ["tea", "milk"]


def test_a_batch_from_arrays_of_vectors():
    items = np.arange(12).reshape(2, 6)
    rng = np.random.default_rng(1)
    scores, vectors = rng.random((2, 6)), rng.normal(size=(2, 6, 4))
    whole = cd.rerank(items, scores, 3, vectors=vectors)[0]
    assert whole.tolist() == cd.rerank(items, scores, 3, vectors=list(vectors))[0].tolist()
    assert whole.tolist() == [slate(items[i], scores[i], 3, vectors=vectors[i]) for i in range(2)]


def test_a_recommendation_can_be_passed_on_as_it_is():
    rng = np.random.default_rng(2)
    shop = cd.LowRankDPP.from_factors(rng.normal(size=(30, 6)))
    items, chances = shop.recommend([1, 2], N=20)
    assert set(slate(items, chances, 5, kernel=shop)) <= set(items.tolist())
    batch, shares = shop.recommend([[1], [2, 3, 4]], N=40)  # rows of 29 and 27
    found, kept = cd.rerank(batch, shares, 28, kernel=shop)
    assert found[1, -1] is None
    assert np.isnan(kept[1, -1])
    assert None not in found[0]


def test_zero_vectors_are_like_nothing():
    vectors = np.array([[1.0, 0.0], [1.0, 0.01], [0.0, 0.0]])
    for method in ("dpp", "mmr", "msd", cd.SlidingWindow()):
        assert slate(ITEMS, SCORES, 2, vectors=vectors, method=method) == ["tea", "milk"]


def test_lengths_of_vectors_do_not_matter_even_extreme_ones():
    for dtype, powers in ((np.float64, [-90, 0, 90]), (np.float32, [-15, 0, 14])):
        scaled = (VECTORS * 10.0 ** np.array(powers)[:, None]).astype(dtype)
        assert slate(ITEMS, SCORES, 2, vectors=scaled) == ["tea", "milk"]


def test_half_precision_and_integers_are_read():
    assert slate(ITEMS, SCORES, 2, vectors=VECTORS.astype(np.float16)) == ["tea", "milk"]
    assert slate(ITEMS, SCORES, 2, vectors=np.array([[1, 0], [1, 0], [0, 1]])) == ["tea", "milk"]


# -- Items -------------------------------------------------------------------------------------------


def test_items_keep_their_kind():
    assert cd.rerank(ITEMS, SCORES, 2, vectors=VECTORS)[0].dtype.kind == "U"
    assert cd.rerank(range(3), SCORES, 2, vectors=VECTORS)[0].dtype.kind == "i"
    pairs = [("a", 1), ("b", 2), ("c", 3)]
    assert slate(pairs, SCORES, 2, vectors=VECTORS) == [("a", 1), ("c", 3)]
    assert slate(["a", 1, 2.5], SCORES, 3, vectors=VECTORS) == ["a", 2.5, 1]
    assert cd.rerank(np.array(ITEMS, dtype=object), SCORES, 2, vectors=VECTORS)[0].tolist() == ["tea", "milk"]


def test_series_and_frames_are_read():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"item": ITEMS, "score": SCORES, "shelf": ["x", "x", None]})
    vectors = pandas.DataFrame(VECTORS)
    rules = cd.SlateRules(categories=frame["shelf"], at_most=1)
    items, scores = cd.rerank(frame["item"], frame["score"], 3, vectors=vectors, rules=rules)
    assert items.tolist() == ["tea", "milk"]
    assert scores.tolist() == [0.9, 0.5]


def test_no_candidates_are_no_error():
    items, scores, info = cd.rerank([], [], diversity=0, return_info=True)
    assert items.shape == scores.shape == (0,)
    assert info.reason == "there are only 0 candidates"
    items, scores = cd.rerank([[], []], [[], []], vectors={}, n_jobs=1)
    assert items.shape == (2, 0)
    assert cd.rerank(np.empty((0, 5), dtype=int), np.empty((0, 5)), diversity=0)[0].shape == (0, 0)


def test_given_may_be_for_all_or_for_each():
    lists, scores = [ITEMS, ITEMS], [SCORES, SCORES]
    vectors = BY_ITEM | {"sugar": [0.0, 1.0]}
    assert cd.rerank(lists, scores, 1, vectors=vectors, given=["tea"])[0].tolist() == [["milk"], ["milk"]]
    each = cd.rerank(lists, scores, 1, vectors=vectors, given=[["tea"], ["sugar"]])[0]
    assert each.tolist() == [["milk"], ["tea"]]


def test_unknown_items_are_unlike_everything_if_that_is_asked_for():
    bigger = [*ITEMS, "cheese"]
    for options in ({"kernel": model()}, {"vectors": BY_ITEM}):
        found = slate(bigger, [*SCORES, 0.1], 3, unknown="ignore", given=["olives"], **options)
        assert found == ["tea", "milk", "cheese"]


# -- What is refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e101])
def test_scores_must_be_finite(bad):
    with pytest.raises(DataError, match=r"the score of 'green tea' is .*: leave the candidate out"):
        cd.rerank(ITEMS, [0.9, bad, 0.5], vectors=VECTORS)
    with pytest.raises(DataError, match="list 1: the score of 'milk'"):
        cd.rerank([ITEMS, ITEMS], [SCORES, [1, 1, bad]], vectors=BY_ITEM)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e200])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_vectors_must_be_finite(bad, dtype):
    vectors = VECTORS.copy()
    vectors[1, 0] = bad
    with pytest.raises(ParameterError, match="row 1 is not"):
        cd.rerank(ITEMS, SCORES, vectors=vectors.astype(dtype))


def test_a_candidate_twice_is_refused():
    with pytest.raises(DataError, match="'tea' occurs twice"):
        cd.rerank(["tea", "milk", "tea"], SCORES, vectors=VECTORS)
    with pytest.raises(DataError, match="list 1: the candidate 7 occurs twice"):
        cd.rerank(np.array([[1, 2, 3], [7, 8, 7]]), np.ones((2, 3)), diversity=0)


@pytest.mark.parametrize(
    ("candidates", "scores", "message"),
    [
        (ITEMS, [1, 2], "3 candidates but 2 scores"),
        ([ITEMS, ITEMS], [SCORES, [1.0]], "list 1 has 3 candidates but 1 scores"),
        (ITEMS, [SCORES], "same shape"),
        ([ITEMS, ITEMS], [SCORES], "same shape"),
        ("tea", [1.0], "must be a list"),
        ({"tea": 1}, [1.0], "must be a list"),
        (ITEMS, 3, "must be a list"),
        (ITEMS, ["a", "b", "c"], "scores must be numbers"),
        ([ITEMS, "tea"], [SCORES, [1.0]], "stands beside a list"),
        ([["tea"], [np.nan]], [[1.0], [1.0]], "must be a string, a number"),
        (["tea", b"x", "milk"], SCORES, "must be a string, a number"),
    ],
)
def test_shapes_and_kinds_must_agree(candidates, scores, message):
    with pytest.raises(DataError, match=message):
        cd.rerank(candidates, scores, diversity=0)


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        (VECTORS[:2], "3 candidates"),
        ([[1.0, 0.0], [1.0], [0.0, 1.0]], "same length"),
        (np.ones(3), "got shape"),
        (np.array([["a", "b"]] * 3), "real numbers"),
        ({"tea": [1.0, 0.0], "green tea": [1.0], "milk": [0.0, 1.0]}, "'green tea' has shape"),
        ({"tea": 1.0, "green tea": 1.0, "milk": 2.0}, "one-dimensional"),
    ],
)
def test_vectors_must_have_one_length(vectors, message):
    with pytest.raises(DataError, match=message):
        cd.rerank(ITEMS, SCORES, vectors=vectors)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"diversity": 1.5}, "from 0 .* to 1"),
        ({"diversity": np.nan}, "diversity"),
        ({"diversity": True}, "diversity"),
        ({"diversity": "half"}, "diversity"),
        ({"k": 0}, "k must be an integer"),
        ({"k": 2.0}, "k must be an integer"),
        ({"method": "magic"}, r"dpp, mmr, msd or SlidingWindow\(size=5\)"),
        ({"scale": "octave"}, "rank, linear, log, raw"),
        ({"unknown": "guess"}, "'error', 'ignore'"),
        ({"n_jobs": 0}, "n_jobs"),
    ],
)
def test_arguments_out_of_range(options, message):
    with pytest.raises(ParameterError, match=message):
        cd.rerank(ITEMS, SCORES, **{"vectors": VECTORS} | options)


def test_a_sliding_window_has_a_place_at_least():
    with pytest.raises(ParameterError, match="size must be an integer"):
        cd.SlidingWindow(0)


def test_variety_needs_to_know_what_is_alike():
    with pytest.raises(ParameterError, match="pass kernel= or vectors="):
        cd.rerank(ITEMS, SCORES)
    with pytest.raises(ParameterError, match="fitted model with item factors"):
        cd.rerank(ITEMS, SCORES, kernel=object())
    with pytest.raises(cd.errors.NotFittedError):
        cd.rerank(ITEMS, SCORES, kernel=cd.LowRankDPP())


def test_logarithms_are_no_probabilities():
    with pytest.raises(ParameterError, match='"raw"'):
        cd.rerank(ITEMS, [-1.0, -2.0, -3.0], vectors=VECTORS, scale="log")


def test_unknown_items_are_refused_and_the_way_out_is_told():
    for options in ({"kernel": model()}, {"vectors": BY_ITEM}):
        with pytest.raises(UnknownItemError, match=r"candidates: 'cheese' not found .*unknown='ignore'"):
            cd.rerank([*ITEMS, "cheese"], [*SCORES, 0.1], **options)
        with pytest.raises(UnknownItemError, match="given: 'olives' and 1 more not found"):
            cd.rerank(ITEMS, SCORES, given=["olives", "capers"], **options)
    with pytest.raises(UnknownItemError, match="pass a mapping"):
        cd.rerank(ITEMS, SCORES, vectors=VECTORS, given=["olives"])


def test_given_must_be_a_list():
    for bad in ("tea", 3):
        with pytest.raises(DataError, match="given must be a list"):
            cd.rerank(ITEMS, SCORES, vectors=VECTORS, given=bad)
    with pytest.raises(DataError, match="given has 1 lists"):
        cd.rerank([ITEMS, ITEMS], [SCORES, SCORES], vectors=BY_ITEM, given=[["tea"]])


def test_as_many_categories_as_candidates():
    with pytest.raises(DataError, match="2 categories for 3 candidates"):
        cd.rerank(ITEMS, SCORES, vectors=VECTORS, rules=cd.SlateRules(categories=["a", "b"], at_most=1))
