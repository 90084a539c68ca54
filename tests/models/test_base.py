"""The public interface of a DPP, against enumeration of all subsets and at its edges."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import contradpp as cd
import reference
from contradpp.errors import DataError, NotFittedError, ParameterError, RankError, UnknownItemError
from contradpp.learn.training import TrainingResult
from contradpp.models.learned import set_result
from exact import ExactDPP, chi_square_p_value

GIVEN = [(), (3,), (6, 0), (1, 2, 5)]
NAMES = ["tea", "milk", "bread", "jam", "salt", "rice", "eggs"]


def counted_p_value(drawn, law: dict[tuple[int, ...], float]) -> float:
    counts = Counter(tuple(sorted(basket)) for basket in drawn)
    observed = np.array([counts.pop(cell, 0) for cell in law])
    return 0.0 if counts else chi_square_p_value(observed, np.array(list(law.values())))


# -- Probabilities -----------------------------------------------------------------------------------


def test_score_samples_of_every_subset(model, exact):
    logs = model.score_samples([list(s) for s in exact.sets])
    np.testing.assert_allclose(np.exp(logs), exact.probabilities, atol=1e-12)
    assert (logs[[len(s) > 4 for s in exact.sets]] == -np.inf).all()
    assert model.score_samples([0, 3]) == pytest.approx(np.log(exact.probability((0, 3))))
    assert np.ndim(model.score_samples([0, 3])) == 0
    assert model.score([[0], [1, 2]]) == pytest.approx(np.mean(model.score_samples([[0], [1, 2]])))
    assert model.score_samples([]) == pytest.approx(-model.kernel_.log_normalizer)
    logs = model.kernel_.log_det(cd.Baskets.from_lists([[0], [0, 3]], items=model.items_).sets)
    np.testing.assert_allclose(logs - model.kernel_.log_normalizer, model.score_samples([[0], [0, 3]]))
    assert model.dpp.is_exact


def test_size_distribution_of_every_size(model, exact):
    np.testing.assert_allclose(model.size_distribution(), exact.sizes()[:5], atol=1e-12)


@pytest.mark.parametrize("items", [*GIVEN, (0, 1, 2, 3)])
def test_marginals(model, exact, items):
    np.testing.assert_allclose(model.marginals(given=items), exact.marginals(items), atol=1e-9)


@pytest.mark.parametrize("items", [*GIVEN, (0, 1, 2, 3)])
def test_condition(model, exact, items):
    rest = model.condition(items)
    law = exact.given(items)
    assert set(rest.items_) == set(range(7)) - set(items)
    total = 0.0
    for size in range(len(rest.items_) + 1):
        for s in itertools.combinations(rest.items_, size):
            p = np.exp(rest.score_samples([list(s)]))[0]
            assert p == pytest.approx(law[tuple(sorted([*items, *s]))], abs=1e-9)
            total += p
    assert total == pytest.approx(1)


def test_condition_twice_is_condition_on_both(model):
    both = model.condition([4, 1])
    again = model.condition([4]).condition([1])
    assert list(both.items_) == list(again.items_)
    np.testing.assert_allclose(both.marginals(), again.marginals(), atol=1e-10)


def test_condition_keeps_names_and_threads(factors):
    items = cd.Vocabulary(NAMES, names={"tea": "Tea", "jam": "Jam"})
    model = cd.LowRankDPP.from_factors(factors, items=items).set_params(n_jobs=1)
    rest = model.condition(["tea"])
    assert rest.items_.names == {"jam": "Jam"}
    assert rest.n_jobs == 1


def test_predict_next_for_one_and_many(model, exact):
    many = model.predict_next([list(items) for items in GIVEN])
    assert many.shape == (4, 7)
    np.testing.assert_allclose(many.sum(axis=1), 1)
    for row, items in zip(many, GIVEN, strict=True):
        np.testing.assert_allclose(row, exact.next_item(items), atol=1e-9)
        assert (row[list(items)] == 0).all()
        np.testing.assert_allclose(model.predict_next(list(items)), row, atol=1e-12)


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 7), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_random_kernels(n_items, n_components, seed):
    V = np.random.default_rng(seed).normal(size=(n_items, n_components))
    model, exact = cd.LowRankDPP.from_factors(V), ExactDPP(V @ V.T)
    np.testing.assert_allclose(np.exp(model.score_samples(list(map(list, exact.sets)))), exact.probabilities, atol=1e-9)
    np.testing.assert_allclose(model.marginals(), exact.marginals(), atol=1e-8)
    if min(n_items, n_components) > 1:
        np.testing.assert_allclose(model.predict_next([0]), exact.next_item([0]), atol=1e-6)
        np.testing.assert_allclose(model.marginals([0]), exact.marginals([0]), atol=1e-6)


def test_many_baskets_over_several_blocks():
    rng = np.random.default_rng(0)
    V = rng.normal(size=(40, 8))
    lists = [rng.choice(40, size=rng.integers(0, 8), replace=False).tolist() for _ in range(900)]
    model = cd.LowRankDPP.from_factors(V)
    predicted = model.predict_next(cd.Baskets.from_lists(lists, items=range(40)))
    logs = model.score_samples(lists)
    for row in range(0, 900, 53):
        np.testing.assert_allclose(predicted[row], reference.next_item(V, lists[row]), atol=1e-9)
        assert logs[row] == pytest.approx(reference.log_probability(V, lists[row]))


# -- Recommending --------------------------------------------------------------------------------


def test_recommend_is_predict_next_sorted(model):
    items, probabilities = model.recommend([2, 5], N=3)
    law = model.predict_next([2, 5])
    assert items.tolist() == np.argsort(-law)[:3].tolist()
    np.testing.assert_allclose(probabilities, law[items])
    many, scores = model.recommend([[2, 5], [0]], N=3)
    assert many.shape == scores.shape == (2, 3)
    assert many[0].tolist() == items.tolist()


@pytest.mark.parametrize("items", GIVEN)
def test_candidates_have_the_probabilities_of_the_whole_catalogue(model, exact, items):
    pool = [6, 1, 4, 1]
    law = exact.next_item(items)
    chosen, probabilities = model.recommend(list(items), N=9, candidates=pool)
    assert set(chosen.tolist()) == set(pool) - set(items)
    np.testing.assert_allclose(probabilities, law[chosen.astype(int)], atol=1e-9)
    assert (np.diff(probabilities) <= 0).all()


@pytest.mark.parametrize("exclude", [[0, 4], (0, 4), {0, 4}, np.array([0, 4]), iter([0, 4, 4])])
def test_excluded_items_keep_their_probability(model, exact, exclude):
    chosen, probabilities = model.recommend([2], N=9, exclude=exclude)
    assert set(chosen.tolist()) == {1, 3, 5, 6}
    np.testing.assert_allclose(probabilities, exact.next_item([2])[chosen], atol=1e-9)


def test_more_than_are_left_gives_exactly_the_rest(model):
    chosen, probabilities = model.recommend([2, 5], N=1000)
    assert sorted(chosen.tolist()) == [0, 1, 3, 4, 6]
    assert probabilities.sum() == pytest.approx(1)
    many, scores = model.recommend([[2, 5], [0]], N=1000)
    assert many.shape == (2, 6)
    assert many[0, 5] is None
    assert scores[0, 5] == 0


def test_nothing_left_to_recommend(model):
    for options in ({"candidates": []}, {"candidates": [2]}, {"exclude": range(7)}):
        chosen, probabilities = model.recommend([2], **options)
        assert chosen.shape == probabilities.shape == (0,)
    none, scores = model.recommend(cd.Baskets.from_lists([], items=range(7)))
    assert len(none) == len(scores) == 0


def test_the_whole_catalogue_as_a_query(model, exact):
    everything = list(range(7))
    assert model.score_samples(everything) == -np.inf
    assert model.recommend(everything)[0].tolist() == []
    assert model.predict_next(everything).tolist() == [0.0] * 7
    with pytest.raises(RankError):
        model.marginals(everything)
    with pytest.raises(ParameterError, match="whole catalogue"):
        model.condition(everything)
    with pytest.raises(ParameterError, match="whole catalogue"):
        model.sample(given=everything)
    full = cd.LowRankDPP.from_factors(np.eye(3))  # where the whole catalogue is possible
    assert full.marginals([0, 1, 2]).tolist() == [1, 1, 1]
    assert full.complete([2], 3) == [2, 0, 1]
    assert full.score_samples([0, 1, 2]) == pytest.approx(-3 * np.log(2))


def test_complete_equals_the_plain_greedy(model, factors):
    for basket, size in itertools.product(([], [2], [5, 0]), (2, 3, 4)):
        assert model.complete(basket, size) == reference.greedy_completion(factors, basket, size)
    assert model.complete([5, 0], 2) == [5, 0]
    assert model.complete([5, 5, 0], np.int64(3))[:2] == [5, 0]


@pytest.mark.parametrize("exclude", [[1, 4], np.array([1, 4])])
def test_complete_without_excluded_items(model, exclude):
    assert not {1, 4} & set(model.complete([2], 4, exclude=exclude))


def test_similar_items():
    model = cd.LowRankDPP.from_factors([[1, 0], [-3, 0], [1, 1], [0, 2], [0, 0]], items=list("abcde"))
    items, similarity = model.similar_items("a", N=4)
    assert items.tolist() == ["b", "c", "d", "e"]
    np.testing.assert_allclose(similarity, [1, np.sqrt(0.5), 0, 0], atol=1e-12)
    assert model.similar_items("a", N=99)[0].tolist() == ["b", "c", "d", "e"]
    with pytest.raises(UnknownItemError):
        model.similar_items("z")
    alone = cd.LowRankDPP.from_factors([[1.0]])
    assert alone.similar_items(0)[0].tolist() == []


def test_similar_items_that_seldom_sell_come_later():
    """b is a little more alike to a than c is, but was sold once; what is told of both is the similarity itself."""
    model = cd.LowRankDPP.from_factors([[1, 0], [1, 0.1], [1, 0.2]], items=list("abc"))
    assert model.similar_items("a")[0].tolist() == ["b", "c"]
    model.item_counts_ = np.array([100.0, 1.0, 100.0])
    items, similarity = model.similar_items("a")
    assert items.tolist() == ["c", "b"]
    np.testing.assert_allclose(similarity, [1 / np.sqrt(1.04), 1 / np.sqrt(1.01)])


# -- Sampling ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [None, 3])
@pytest.mark.parametrize("fixed", [(), (5,), (4, 1)])
def test_samples_follow_the_exact_law(model, exact, fixed, size):
    drawn = model.sample(20_000, size=size, given=fixed, random_state=1)
    law = {s: p for s, p in exact.given(fixed).items() if size is None or len(s) == size}
    total = sum(law.values())
    assert counted_p_value(drawn, {s: p / total for s, p in law.items()}) > 1e-3
    assert all(tuple(basket[: len(fixed)]) == fixed for basket in drawn)


def test_the_wrong_conditional_law_is_rejected(model, exact):
    """Throwing the given items in with a plain sample is not conditioning."""
    drawn = [{5, *basket} for basket in model.sample(20_000, random_state=1)]
    assert counted_p_value(drawn, exact.given((5,))) < 1e-9


def test_given_may_be_an_iterator(model):
    listed = model.sample(20, given=[4, 1], random_state=0)
    assert model.sample(20, given=iter([4, 1]), random_state=0) == listed
    assert all(len(set(basket)) == len(basket) for basket in listed)


def test_samples_of_named_items(factors):
    model = cd.LowRankDPP.from_factors(factors, items=NAMES)
    drawn = model.sample(5, size=3, given=["jam"], random_state=0)
    assert isinstance(drawn, cd.Baskets)
    assert drawn.items == model.items_
    assert all(len(basket) == 3 and basket[0] == "jam" and set(basket) <= set(NAMES) for basket in drawn)


def test_samples_without_a_choice(model):
    assert model.sample(3, size=2, given=[6, 0])[2] == [6, 0]
    assert model.sample(3, size=0)[2] == []
    assert len(model.sample(0)) == 0
    assert len(model.sample(0, given=[1])) == 0
    assert [sorted(basket) for basket in model.sample(2, given=[0, 1, 2, 3])] == [[0, 1, 2, 3]] * 2


def test_random_states(model):
    assert model.sample(30, random_state=4) == model.sample(30, random_state=4)
    assert model.sample(30, random_state=4) != model.sample(30, random_state=5)
    rng = np.random.default_rng(0)
    assert model.sample(30, random_state=rng) != model.sample(30, random_state=rng)
    with pytest.raises(ParameterError, match="random_state"):
        model.sample(random_state="seed")


def test_one_and_two_threads_agree():
    rng = np.random.default_rng(0)
    V = rng.normal(size=(50, 10))
    lists = [rng.choice(50, size=rng.integers(0, 9), replace=False).tolist() for _ in range(800)]
    answers = []
    for n_jobs in (1, 2):
        model = cd.LowRankDPP.from_factors(V)
        model.n_jobs = n_jobs
        assert model.kernel_.n_jobs == n_jobs
        answers.append(
            [
                model.score_samples(lists),
                model.sample(3000, random_state=1).indices,
                model.sample(3000, size=4, given=[7], random_state=1).indices,
                model.recommend(lists, N=5)[0],
                model.predict_next(lists),
            ]
        )
    for one, two in zip(*answers, strict=True):
        np.testing.assert_array_equal(one, two)


# -- What must not matter --------------------------------------------------------------------------


@settings(deadline=None, max_examples=30)
@given(st.permutations(range(4)), st.permutations(range(7)), st.integers(0, 2**32 - 1))
def test_invariances(order, labels, seed):
    rng = np.random.default_rng(seed)
    V, basket = rng.normal(size=(7, 5)), [6, 0, 3, 1]
    model = cd.LowRankDPP.from_factors(V)
    log, law, inside = model.score_samples(basket), model.predict_next(basket), model.marginals(basket)

    shuffled = [basket[i] for i in order]
    assert model.score_samples(shuffled) == pytest.approx(log, abs=1e-6)
    np.testing.assert_allclose(model.predict_next(shuffled), law, atol=1e-6)
    np.testing.assert_allclose(model.marginals(shuffled), inside, atol=1e-6)

    relabeled = cd.LowRankDPP.from_factors(V[labels], items=labels)
    assert relabeled.score_samples(basket) == pytest.approx(log, abs=1e-6)
    np.testing.assert_allclose(relabeled.predict_next(basket), law[labels], atol=1e-6)
    np.testing.assert_allclose(relabeled.size_distribution(), model.size_distribution(), atol=1e-9)

    rotated = cd.LowRankDPP.from_factors(V @ np.linalg.qr(rng.normal(size=(5, 5)))[0])
    assert rotated.score_samples(basket) == pytest.approx(log, abs=1e-6)
    np.testing.assert_allclose(rotated.predict_next(basket), law, atol=1e-6)
    np.testing.assert_allclose(rotated.marginals(basket), inside, atol=1e-6)


def test_scale_leaves_the_ranking_and_moves_the_sizes(model, factors):
    larger = cd.LowRankDPP.from_factors(3 * factors)
    np.testing.assert_allclose(larger.predict_next([1, 4]), model.predict_next([1, 4]), atol=1e-12)
    codes = cd.Baskets.from_lists([[1, 4]], items=model.items_).sets
    shift = larger.kernel_.log_det(codes) - model.kernel_.log_det(codes)
    assert shift == pytest.approx(4 * np.log(3))


def test_duplicates_in_a_query_count_once(model):
    assert model.score_samples([3, 1, 3]) == model.score_samples([3, 1])
    np.testing.assert_array_equal(model.predict_next([3, 1, 3]), model.predict_next([3, 1]))
    assert model.sample(5, given=[3, 3], random_state=0) == model.sample(5, given=[3], random_state=0)
    assert model.complete([3, 3], 3) == model.complete([3], 3)


def test_float32_is_close_to_float64(factors):
    single = cd.LowRankDPP.from_factors(factors.astype(np.float32))
    double = cd.LowRankDPP.from_factors(factors.astype(np.float32).astype(float))
    assert single.item_factors_.dtype == np.float32
    np.testing.assert_allclose(single.predict_next([[1], [2, 3]]), double.predict_next([[1], [2, 3]]), atol=1e-5)
    np.testing.assert_allclose(single.marginals([1]), double.marginals([1]), atol=1e-5)
    np.testing.assert_allclose(single.score_samples([[1], [2, 3]]), double.score_samples([[1], [2, 3]]), atol=1e-5)
    assert single.condition([1]).item_factors_.dtype == np.float32
    assert single.complete([1], 4) == double.complete([1], 4)
    assert single.sample(50, random_state=0) == double.sample(50, random_state=0)


@pytest.mark.parametrize("alike", [0.0, 0.9, 0.999], ids=str)
def test_what_is_computed_in_which_precision(alike):
    """As the docstring of `dtype` says; items that are alike leave a small share of each other."""
    rng = np.random.default_rng(0)
    V = alike * np.abs(rng.normal(size=8)) + (1 - alike) * rng.normal(size=(60, 8))
    single = cd.LowRankDPP.from_factors(V.astype(np.float32))
    double = cd.LowRankDPP.from_factors(V.astype(np.float32).astype(np.float64))
    baskets = [[0], [1, 2], [3, 4, 5], [6, 7, 8, 9]]
    np.testing.assert_allclose(single.score_samples(baskets), double.score_samples(baskets), rtol=1e-12)
    np.testing.assert_allclose(single.kernel_.log_normalizer, double.kernel_.log_normalizer, rtol=1e-12)
    assert single.sample(20, random_state=0) == double.sample(20, random_state=0)
    np.testing.assert_allclose(single.kernel_.similarity(3), double.kernel_.similarity(3), rtol=1e-12)
    assert "wide" not in vars(single.kernel_)  # no copy in float64 is kept
    np.testing.assert_allclose(single.marginals(), double.marginals(), rtol=1e-5)
    np.testing.assert_allclose(single.predict_next(baskets), double.predict_next(baskets), rtol=1e-2)
    skew = np.zeros((60, 60))
    skew[0, 1], skew[1, 0] = 0.5, -0.5
    single, double = (
        cd.NonsymmetricDPP.from_factors(V.astype(np.float32).astype(dtype), S=skew) for dtype in ("f4", "f8")
    )
    np.testing.assert_array_equal(single.predict_next(baskets), double.predict_next(baskets))
    np.testing.assert_array_equal(single.marginals([3]), double.marginals([3]))


# -- Bad input -------------------------------------------------------------------------------------


def test_before_there_are_parameters():
    model = cd.LowRankDPP(n_components=3)
    for ask in (
        lambda: model.predict_next([1]),
        lambda: model.score_samples([[1]]),
        lambda: model.recommend([1]),
        lambda: model.sample(),
        lambda: model.marginals(),
        lambda: model.complete([], 1),
        lambda: model.similar_items(1),
        lambda: model.save("never.safetensors"),
        lambda: model.item_factors_,
        lambda: model.kernel_.log_normalizer,
        lambda: model.size_distribution(),
    ):
        with pytest.raises(NotFittedError, match="fit"):
            ask()
    assert not hasattr(model, "item_factors_")


@pytest.mark.parametrize(
    "ask",
    [
        lambda m, **o: m.score_samples([1, 99], **o),
        lambda m, **o: m.predict_next([1, 99], **o),
        lambda m, **o: m.recommend([1, 99], **o),
        lambda m, **o: m.recommend([1], candidates=[2, 99], **o),
        lambda m, **o: m.complete([1, 99], 3, **o),
        lambda m, **o: m.complete([1], 3, candidates=[2, 3, 99], **o),
        lambda m, **o: m.marginals([1, 99], **o),
        lambda m, **o: m.condition([1, 99], **o),
        lambda m, **o: m.sample(given=[1, 99], **o),
    ],
)
def test_unknown_items_raise_or_are_left_out(model, ask):
    with pytest.raises(UnknownItemError, match="99"):
        ask(model)
    ask(model, unknown="ignore")
    with pytest.raises(ParameterError, match="unknown"):
        ask(model, unknown="drop")


def test_the_score_leaves_unknown_items_out_unless_told(model):
    assert model.score([[1, 99], [2]]) == model.score([[1], [2]])
    with pytest.raises(UnknownItemError, match="99"):
        model.score([[1, 99]], unknown="error")


def test_ignored_items_change_nothing(model):
    np.testing.assert_array_equal(model.predict_next([1, 99], unknown="ignore"), model.predict_next([1]))
    assert model.complete([99, 1], 3, unknown="ignore") == model.complete([1], 3)


@pytest.mark.parametrize("N", [0, -1, 2.5, "3", None, True])
def test_bad_counts(model, N):
    with pytest.raises(ParameterError, match="N must be"):
        model.recommend([1], N=N)
    with pytest.raises(ParameterError, match="N must be"):
        model.similar_items(1, N=N)


@pytest.mark.parametrize("size", [-1, 0, 2.5, "3", True, 8, None])
def test_bad_sizes_of_a_completion(model, size):
    with pytest.raises(ParameterError, match="size"):
        model.complete([1], size)


@pytest.mark.parametrize("size", [-1, 0, 2.5, "3", True])
def test_bad_sizes_of_a_sample(model, size):
    with pytest.raises(ParameterError, match="size must be"):
        model.sample(size=size, given=[1])


@pytest.mark.parametrize("n_samples", [-1, 2.5, "3", None, True])
def test_bad_numbers_of_samples(model, n_samples):
    with pytest.raises(ParameterError, match="n_samples"):
        model.sample(n_samples)


def test_sizes_beyond_the_rank(model):
    assert model.score_samples([0, 1, 2, 3, 4]) == -np.inf
    for ask in (
        lambda: model.complete([1], 5),
        lambda: model.sample(size=5),
        lambda: model.sample(size=5, given=[1]),
        lambda: model.marginals([0, 1, 2, 3, 4]),
        lambda: model.condition([0, 1, 2, 3, 4]),
        lambda: model.sample(given=[0, 1, 2, 3, 4]),
        lambda: model.predict_next([0, 1, 2, 3]),
        lambda: model.recommend([[0], [0, 1, 2, 3]]),
    ):
        with pytest.raises(RankError):
            ask()
    with pytest.raises(RankError, match="size=5 is more than 4"):
        model.sample(size=5, given=[1])


def test_a_kernel_of_lower_rank_than_it_has_components(factors):
    """Two components repeated: no answer may be made of rounding errors."""
    model = cd.LowRankDPP.from_factors(np.hstack([factors[:, :2], factors[:, :2]]))
    assert model.score_samples([0, 1, 2]) == -np.inf
    for ask in (
        lambda: model.predict_next([0, 1]),
        lambda: model.complete([0], 3),
        lambda: model.sample(size=3),
    ):
        with pytest.raises(RankError):
            ask()
    np.testing.assert_allclose(model.size_distribution()[3:], 0, atol=0)
    assert max(map(len, model.sample(200, random_state=0))) == 2


def test_dependent_items_are_never_together(factors):
    factors[1] = 2 * factors[0]
    model = cd.LowRankDPP.from_factors(factors)
    assert model.score_samples([0, 1]) == -np.inf
    assert model.predict_next([0])[1] == pytest.approx(0, abs=1e-12)
    assert model.marginals([0])[1] == pytest.approx(0, abs=1e-12)
    assert not any({0, 1} <= set(basket) for basket in model.sample(500, random_state=0))
    with pytest.raises(RankError, match="dependent"):
        model.condition([0, 1])


def test_empty_data(model):
    none = cd.Baskets.from_lists([], items=range(7))
    assert model.score_samples(none).shape == (0,)
    assert model.predict_next(none).shape == (0, 7)
    with pytest.raises(DataError, match="at least one basket"):
        model.score(none)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_factors_that_are_not_finite(factors, bad):
    factors[4, 1] = bad
    with pytest.raises(ParameterError, match="row 4"):
        cd.LowRankDPP.from_factors(factors)


def test_items_that_do_not_fit_the_factors(factors):
    with pytest.raises(ParameterError, match="7 rows, but there are 2 items"):
        cd.LowRankDPP.from_factors(factors, items=["a", "b"])
    with pytest.raises(DataError, match="twice"):
        cd.LowRankDPP.from_factors(factors, items=list("aabcdef"))
    with pytest.raises(ParameterError, match="shape"):
        cd.LowRankDPP.from_factors(factors[0])


def test_the_callers_factors_stay_theirs(factors):
    model = cd.LowRankDPP.from_factors(factors)
    before = model.score_samples([0, 1])
    factors[:] = 0
    assert model.score_samples([0, 1]) == before


def test_new_parameters_forget_the_old_ones(model, factors):
    model.sample(3, random_state=0)
    model.kernel_.log_normalizer  # noqa: B018
    fresh = cd.LowRankDPP.from_factors(2 * factors)
    set_result(model, TrainingResult(fresh.kernel_, model.items_, np.ones(7), 1.0))
    assert model.kernel_.log_normalizer == fresh.kernel_.log_normalizer
    assert model.sample(50, random_state=0) == fresh.sample(50, random_state=0)


def test_threads_that_cannot_be(model):
    with pytest.raises(ParameterError, match="n_jobs"):
        model.set_params(n_jobs=0).sample()


# -- The kernel as a matrix --------------------------------------------------------------------------------


def matrix_of(kind: str) -> np.ndarray:
    rng = np.random.default_rng(3)
    X, S = rng.normal(size=(5, 3)), np.triu(rng.normal(size=(5, 5)), 1)
    full = X @ X.T + np.diag(rng.uniform(size=5))
    scales = np.array([1e6, 1.0, 1e-3, 1.0, 10.0])
    return {
        "low rank": X @ X.T, "full": full, "wide scales": scales[:, None] * full * scales, "nothing": np.zeros((5, 5)),
        "attracting": full + S - S.T, "skew only": S - S.T,
    }[kind]  # fmt: skip


@pytest.mark.parametrize("kind", ["low rank", "full", "wide scales", "nothing", "attracting", "skew only"])
def test_a_kernel_given_as_a_matrix_is_that_law(kind):
    L = matrix_of(kind)
    model = cd.NonsymmetricDPP.from_kernel(L, items="abcde")
    np.testing.assert_allclose(model.L, L, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(np.diagonal(model.K), model.marginals(), atol=1e-7)
    sets = [list(s) for n in range(6) for s in itertools.combinations(range(5), n)]
    with np.errstate(divide="ignore"):
        logs = np.array([np.linalg.slogdet(L[np.ix_(s, s)]) for s in sets])
        exact = np.where(logs[:, 0] > 0, logs[:, 1], -np.inf) - np.linalg.slogdet(np.eye(5) + L)[1]
    found = model.score_samples([["abcde"[i] for i in s] for s in sets])
    likely = exact > -25
    np.testing.assert_allclose(found[likely], exact[likely], rtol=1e-6, atol=1e-6)
    assert (found[~likely] < -20).all()
    values = np.linalg.eigvals(L)
    np.testing.assert_allclose(
        np.sort(np.abs(model.kernel_.eigenvalues))[::-1],
        np.sort(np.abs(values))[::-1][: len(model.kernel_.eigenvalues)],
    )
    if model.kernel_.symmetric:
        same = cd.LowRankDPP.from_kernel(L, items="abcde")
        np.testing.assert_allclose(same.L, L, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(same.kernel_.eigenvalues, model.kernel_.eigenvalues, rtol=1e-9)
    else:
        with pytest.raises(ParameterError, match="NonsymmetricDPP"):
            cd.LowRankDPP.from_kernel(L)


@pytest.mark.parametrize(
    "L",
    [[[1.0, 2.0], [2.0, 1.0]], [[-1.0]], [[0.0, 1.0], [1.0, 1.0]], [[1.0, np.nan], [0.0, 1.0]], [[1.0, 2.0]], [], "L",
     3, [["a"]], [[1e200]]],
    ids=range(10),
)  # fmt: skip
def test_matrices_that_are_no_kernel(L):
    with pytest.raises(ParameterError):
        cd.NonsymmetricDPP.from_kernel(L)


def test_a_matrix_of_many_items_is_refused():
    model = cd.LowRankDPP.from_factors(np.ones((5000, 1)))
    for name in ("L", "K"):
        with pytest.raises(ParameterError, match=f"^{name} as a matrix .* 4,000"):
            getattr(model, name)
    assert model.kernel_.eigenvalues == pytest.approx([5000])
    with pytest.raises(ParameterError, match=r"^eigenvalues .* 4,000"):
        _ = cd.NonsymmetricDPP.from_factors(np.ones((5000, 1)), diagonal=np.ones(5000)).kernel_.eigenvalues
