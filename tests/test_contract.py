"""One suite over every model and baseline: what `contract.py` says each can do, it does in the same way."""

from __future__ import annotations

import copy
import itertools
import pickle

import numpy as np
import pytest
from sklearn.base import clone

import contradpp as cd
from contract import BASKETS, BLACK, FAST, RED, ROWS, answers, checkerboard, fitted, rows_that
from contradpp.errors import ContradppError, DataError, NotFittedError, ParameterError, UnknownItemError

ITEMS = RED + BLACK
every_model = pytest.mark.parametrize("name", ROWS)


def models_that(*can: str):
    return pytest.mark.parametrize("name", rows_that(*can))


# -- Learning ----------------------------------------------------------------------------------------


@every_model
def test_fit_returns_the_model_and_leaves_its_parameters(name):
    model = ROWS[name].make()
    before = repr(model.get_params())
    assert model.fit(checkerboard()) is model
    assert before == repr(model.get_params())
    assert list(model.items_) == ITEMS


@every_model
def test_one_seed_gives_the_same_bytes(name):
    assert answers(ROWS[name].make().fit(checkerboard())) == answers(fitted(name))
    again = copy.deepcopy(fitted(name)).fit(checkerboard())  # a second fit owes nothing to the first
    assert answers(again) == answers(fitted(name))


@models_that("seed")
def test_another_seed_gives_other_factors(name):
    other = ROWS[name].make().set_params(random_state=1).fit(checkerboard())
    assert other.dpp.kernel.factors.tobytes() != fitted(name).dpp.kernel.factors.tobytes()


@models_that("seed")
def test_one_and_two_threads_give_the_same_bytes(name):
    two = ROWS[name].make().set_params(n_jobs=2).fit(checkerboard())
    assert two.dpp.kernel.factors.tobytes() == fitted(name).dpp.kernel.factors.tobytes()
    assert answers(two.set_params(n_jobs=1)) == answers(fitted(name))


@every_model
def test_lists_are_baskets(name):
    lists = checkerboard()
    listed = ROWS[name].make().fit([list(basket) for basket in lists])
    coded = ROWS[name].make().fit(cd.Baskets.from_lists(lists))  # numbered as they come
    assert answers(listed) == answers(coded)


@models_that("board")
def test_the_right_answer_is_found(name):
    model = fitted(name)
    for alike, other in ((RED, BLACK), (BLACK, RED)):
        for item in alike:
            best = model.recommend([item], N=3)[0].tolist()
            assert set(best) <= set(other), (item, best)
    together = model.predict_next([[item] for item in RED])
    assert (together[:, 4:].sum(axis=1) > 0.7).all()


@models_that("sets", "board")
def test_what_goes_together_is_likely(name):
    model = fitted(name)
    apart = model.score_samples([list(pair) for pair in itertools.combinations(RED, 2)])
    together = model.score_samples([list(pair) for pair in itertools.product(RED, BLACK)])
    assert together.mean() > apart.mean() + 1


def test_popularity_knows_what_is_bought_most():
    model = fitted("popularity")
    assert (
        model.recommend(["r0"], N=2)[0].tolist()
        == [ITEMS[i] for i in np.argsort(-checkerboard().item_counts, kind="stable") if ITEMS[i] != "r0"][:2]
    )


# -- The next item ------------------------------------------------------------------------------------


@every_model
def test_the_next_item_has_a_law(name):
    model = fitted(name)
    many = model.predict_next(BASKETS)
    assert many.shape == (len(BASKETS), 8)
    assert (many >= 0).all()
    np.testing.assert_allclose(many.sum(axis=1), 1, rtol=1e-12)
    for row, basket in zip(many, BASKETS, strict=True):
        assert (row[[ITEMS.index(item) for item in basket]] == 0).all()
        if basket:
            one = model.predict_next(basket)
            assert one.shape == (8,)
            np.testing.assert_allclose(one, row, rtol=1e-9, atol=1e-12)
    coded = model.predict_next(cd.Baskets.from_lists(BASKETS, items=ITEMS[::-1]))  # codes of another vocabulary
    np.testing.assert_array_equal(coded, many)
    assert model.predict_next(cd.Baskets.from_lists([], items=ITEMS)).shape == (0, 8)


@every_model
def test_ranking_by_lift_is_its_definition(name):
    model = fitted(name)
    law, p = model.predict_next(["r0", "b1"]), model.item_probabilities()
    assert p.sum() == pytest.approx(1)
    for rank_by, damping in (("lift", 1.0), (0.3, 0.3)):
        lift = np.log(law + damping / 8, where=law > 0, out=np.full(8, -np.inf)) - damping * np.log(p + 1 / 8)
        counts = getattr(model, "item_counts_", None)
        if counts is not None:  # a lower bound: luck does not put rare items first
            lift -= 1.64 * damping / np.sqrt(counts + 1)
        items, shares = model.recommend(["r0", "b1"], N=8, rank_by=rank_by)
        order = [code for code in np.argsort(-lift, kind="stable").tolist() if law[code] > 0]
        np.testing.assert_allclose(lift[[ITEMS.index(item) for item in items]], lift[order], rtol=1e-9)
        np.testing.assert_allclose(shares, law[[ITEMS.index(item) for item in items]], rtol=1e-9)
        assert model.recommend(["r0"], N=2, rank_by=rank_by, candidates=["b0", "b1"], exclude=["b1"])[0].tolist() == [
            "b0"
        ]
    assert model.recommend(["r0"], rank_by=0)[0].tolist() == model.recommend(["r0"])[0].tolist()
    for wrong in ("magic", 1.5, True, None):
        with pytest.raises(ParameterError, match="rank_by"):
            model.recommend(["r0"], rank_by=wrong)


@every_model
def test_the_empty_basket(name):
    law = fitted(name).predict_next([])
    assert law.shape == (8,)
    assert law.sum() == pytest.approx(1)
    assert len(fitted(name).recommend([], N=3)[0]) == 3


@every_model
def test_nothing_comes_after_the_whole_catalogue(name):
    """Its row is all zeros, and the rows beside it are as they are without it."""
    model = fitted(name)
    assert model.predict_next(ITEMS).tolist() == [0.0] * 8
    beside = model.predict_next([["r0"], ITEMS[::-1], ["r1", "b2"]])
    assert beside[1].tolist() == [0.0] * 8
    np.testing.assert_allclose(beside[[0, 2]], model.predict_next([["r0"], ["r1", "b2"]]), rtol=1e-9, atol=1e-12)
    assert [len(part) for part in model.recommend(ITEMS)] == [0, 0]
    if "slate" in ROWS[name].can:
        assert [len(part) for part in model.slate(ITEMS)] == [0, 0]


@every_model
@pytest.mark.parametrize("basket", BASKETS[1:], ids=" ".join)
def test_recommending_is_the_law_in_order(name, basket):
    model = fitted(name)
    law = dict(zip(ITEMS, model.predict_next(basket), strict=True))
    items, shares = model.recommend(basket, N=3)
    assert items.shape == shares.shape == (3,)
    assert (np.diff(shares) <= 0).all()
    np.testing.assert_allclose(shares, [law[item] for item in items], rtol=1e-9)
    np.testing.assert_allclose(shares, sorted(law.values(), reverse=True)[:3], rtol=1e-9)
    many, scores = model.recommend([basket, ["r3"]], N=3)
    assert many.shape == scores.shape == (2, 3)
    assert many[0].tolist() == items.tolist()


@every_model
def test_candidates_and_excluded_items(name):
    model, basket = fitted(name), ["r0", "b1"]
    law = dict(zip(ITEMS, model.predict_next(basket), strict=True))
    for options, left in (
        ({"candidates": ["b0", "r0", "r3", "b0"]}, {"b0", "r3"}),
        ({"exclude": ["b0", "r3", "r0"]}, {"r1", "r2", "b2", "b3"}),
        ({"candidates": ["b0", "b2", "r1"], "exclude": ["b2"]}, {"b0", "r1"}),
        ({"candidates": []}, set()),
        ({"exclude": ITEMS}, set()),
    ):
        items, shares = model.recommend(basket, N=8, **options)
        assert set(items.tolist()) == left
        assert len(items) == len(left)
        np.testing.assert_allclose(shares, [law[item] for item in items], rtol=1e-9)  # among the whole catalogue


@every_model
def test_what_is_unknown_may_be_excluded(name):
    """Nobody has to look first whether the model knows what is sold out."""
    model, basket = fitted(name), ["r0", "b1"]
    for with_salt, without in ((["b0", "salt"], ["b0"]), (["salt"], [])):
        assert (
            model.recommend(basket, exclude=with_salt)[0].tolist()
            == model.recommend(basket, exclude=without)[0].tolist()
        )
        if "complete" in ROWS[name].can:
            assert model.complete(basket, 3, exclude=with_salt) == model.complete(basket, 3, exclude=without)
        if hasattr(model, "slate"):
            assert (
                model.slate(basket, exclude=with_salt)[0].tolist() == model.slate(basket, exclude=without)[0].tolist()
            )


@every_model
def test_items_are_found_by_id_and_by_name_the_most_sold_of_a_name_first(name):
    lists = checkerboard()
    train = cd.Baskets.from_lists([*lists, *[["r1", "b1"]] * 60]).with_names({"r0": "Red", "r1": "RED", "b0": "Black"})
    model = ROWS[name].make().fit(train)
    assert model.find_items(["red", "b0", "BLACK", "r2"]) == ["r1", "b0", "b0", "r2"]
    with pytest.raises(UnknownItemError, match="salt"):
        model.find_items(["salt"])
    assert model.find_items(["salt", "Red"], unknown="ignore") == ["r1"]
    for wrong in ("red", 7, None):
        with pytest.raises(DataError):
            model.find_items(wrong)


@every_model
def test_more_than_the_catalogue_is_all_that_is_left(name):
    model = fitted(name)
    items, shares = model.recommend(["r0", "b1"], N=1000)
    assert set(items.tolist()) == set(ITEMS) - {"r0", "b1"}
    assert shares.sum() == pytest.approx(1)
    many, scores = model.recommend([["r0", "b1"], ["r0"]], N=1000)
    assert many.shape == (2, 7)
    assert many[0, 6] is None
    assert scores[0, 6] == 0


@every_model
def test_every_model_is_evaluated_by_the_same_code(name):
    report = cd.evaluate(fitted(name), checkerboard().subset(range(60)), ks=(1, 7), check=False)
    assert 0 <= report.mpr <= report.mpr_paper <= 100
    assert report.precision[7] >= report.precision[1]
    assert report.n_skipped == 0
    with pytest.raises(NotFittedError, match="fit"):
        cd.evaluate(ROWS[name].make(), [["r0"]])


# -- Sets ----------------------------------------------------------------------------------------------


@models_that("sets")
def test_the_probabilities_of_all_sets_sum_to_one(name):
    sets = [list(s) for size in range(9) for s in itertools.combinations(ITEMS, size)]
    logs = fitted(name).score_samples(sets)
    assert logs.shape == (256,)
    assert np.exp(logs).sum() == pytest.approx(1, abs=1e-8)
    assert np.ndim(fitted(name).score_samples(["r0", "b1"])) == 0
    assert fitted(name).score_samples(["r0", "b1"]) == pytest.approx(logs[sets.index(["r0", "b1"])])


@models_that("marginals")
def test_marginals_are_sums_of_probabilities(name):
    model = fitted(name)
    sets = [list(s) for size in range(9) for s in itertools.combinations(ITEMS, size)]
    shares = np.exp(model.score_samples(sets))
    for given in ([], ["r1"], ["b0", "r2"]):
        holds = np.array([set(given) <= set(s) for s in sets])
        expected = [sum(shares[[item in s for s in sets] & holds]) / shares[holds].sum() for item in ITEMS]
        np.testing.assert_allclose(model.marginals(given), expected, atol=1e-7)
    np.testing.assert_allclose(model.size_distribution().sum(), 1)


@models_that("condition")
def test_conditioning_is_dividing_by_the_probability_of_the_given(name):
    model = fitted(name)
    rest = model.condition(["r1"])
    assert set(rest.items_) == set(ITEMS) - {"r1"}
    base = model.score_samples(["r1"]) - rest.score_samples([])
    for s in (["b0"], ["b1", "r2"], ["r0", "b2", "b3"]):
        assert rest.score_samples(s) + base == pytest.approx(model.score_samples([*s, "r1"]), abs=1e-6)
    if "listens" in ROWS[name].can:
        return
    np.testing.assert_allclose(
        rest.predict_next(["b0"]), np.delete(model.predict_next(["b0", "r1"]), ITEMS.index("r1")), atol=1e-9
    )


@models_that("complete")
def test_completion_adds_the_best_next_item_again_and_again(name):
    model = fitted(name)
    for basket, size in ((["r2"], 3), ([], 2), (["b1", "r0"], 2)):
        grown = list(basket)
        while len(grown) < size:
            grown.append(model.recommend(grown, N=1)[0][0])
        assert model.complete(basket, size) == grown
    assert not {"b0", "b1"} & set(model.complete(["r0"], 3, exclude=["b0", "b1", "salt"]))
    assert set(model.complete(["r0"], 3, candidates=["b0", "b2", "r3"], exclude=["r3"])) == {"r0", "b0", "b2"}
    for size in (0, 9, 2.5, None, True):
        with pytest.raises(ParameterError, match="size"):
            model.complete(["r0"], size)


@models_that("sample")
def test_samples_are_what_was_asked_for(name):
    model = fitted(name)
    drawn = model.sample(50, random_state=3)
    assert isinstance(drawn, cd.Baskets)
    assert drawn.items == model.items_
    assert drawn == model.sample(50, random_state=3)
    assert drawn != model.sample(50, random_state=4)
    sized = model.sample(20, size=3, given=["b2"], random_state=0)
    assert all(len(set(basket)) == 3 and basket[0] == "b2" for basket in sized)
    assert len(model.sample(0)) == 0
    for bad in ({"n_samples": -1}, {"size": -1}, {"size": 0, "given": ["b2"]}, {"random_state": "seed"}):
        with pytest.raises(ParameterError):
            model.sample(**bad)


@models_that("sample")
def test_samples_have_the_models_marginals(name):
    model = fitted(name)
    for given in ([], ["r1"]):
        p = model.marginals(given)
        share = model.sample(4000, given=given, random_state=0).item_counts / 4000
        assert (np.abs(share - p) <= 5 * np.sqrt(p * (1 - p) / 4000) + 1e-9).all()


@models_that("similar")
def test_similar_items_are_substitutes(name):
    model = fitted(name)
    items, similarity = model.similar_items("r0", N=3)
    assert set(items.tolist()) == set(RED) - {"r0"}
    counts = getattr(model, "item_counts_", None)
    sold = np.inf if counts is None else counts[model.items_.codes(items.tolist())]
    assert (np.diff(similarity * np.exp(-1.64 / np.sqrt(sold + 1.0))) <= 0).all()  # seldom sold, later
    assert len(model.similar_items("r0", N=99)[0]) == 7
    with pytest.raises(UnknownItemError):
        model.similar_items("salt")


@models_that("complements")
def test_complements_go_together(name):
    items, lift = fitted(name).complements("r1", N=2)
    assert set(items.tolist()) <= set(BLACK)
    assert len(items) > 0
    assert (lift > 1).all()


# -- Going on ------------------------------------------------------------------------------------------


@models_that("partial_fit")
def test_partial_fit_learns_new_items(name):
    model = copy.deepcopy(fitted(name))
    before = model.get_params()
    assert model.partial_fit([["r0", "new"], ["b0", "new"]] * 5) is model
    assert list(model.items_) == [*ITEMS, "new"]
    assert model.dpp.kernel.factors.shape == (9, 5)
    assert np.isfinite(model.dpp.kernel.factors).all()
    assert model.predict_next(["new"]).sum() == pytest.approx(1)
    assert model.get_params() == before


@models_that("partial_fit")
def test_partial_fit_is_reproducible_also_from_a_file(name, tmp_path):
    fitted(name).save(tmp_path / "m")
    a, b = copy.deepcopy(fitted(name)), cd.load(tmp_path / "m")
    for model in (a, b):
        model.partial_fit([["r0", "new"]] * 3, negatives=[["r0", "r1"]])
    assert answers(a) == answers(b)


@models_that("partial_fit")
def test_a_refused_partial_fit_leaves_no_trace(name):
    a, b = copy.deepcopy(fitted(name)), copy.deepcopy(fitted(name))
    with pytest.raises(DataError):
        b.partial_fit("tea")
    for model in (a, b):
        model.partial_fit(checkerboard(), negatives=[["r0", "r1"]])
    assert answers(a) == answers(b)


# -- Copies and files ------------------------------------------------------------------------------------


@every_model
@pytest.mark.parametrize("copied", [lambda m: pickle.loads(pickle.dumps(m)), copy.deepcopy], ids=["pickle", "deepcopy"])
def test_copies_say_the_same(name, copied):
    model = fitted(name)
    answers(model)  # so that whatever is kept for later is in the copy too
    assert answers(copied(model)) == answers(model)
    unfitted = copied(ROWS[name].make())
    assert answers(unfitted.fit(checkerboard())) == answers(model)


@models_that("save")
def test_files_say_the_same_and_are_the_same(name, tmp_path):
    model = fitted(name)
    for path in ("a", "b"):
        model.save(tmp_path / path)
    loaded = cd.load(tmp_path / "a")
    assert type(loaded) is type(model)
    assert answers(loaded) == answers(model)
    loaded.save(tmp_path / "c")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() == (tmp_path / "c").read_bytes()


@models_that("params")
def test_scikit_learn_can_clone_it(name):
    base = pytest.importorskip("sklearn.base")
    clone = base.clone(fitted(name))
    assert clone.get_params() == fitted(name).get_params()
    with pytest.raises(NotFittedError):
        clone.predict_next(["r0"])
    assert answers(clone.fit(checkerboard())) == answers(fitted(name))


@models_that("params")
def test_parameters(name):
    model = ROWS[name].make()
    params = model.get_params(deep=False)
    assert params.items() >= FAST.items()
    assert type(model)(**params).get_params() == model.get_params()
    assert model.set_params(alpha=0.5, n_jobs=2) is model
    assert model.get_params(deep=False) == params | {"alpha": 0.5, "n_jobs": 2}
    with pytest.raises(ParameterError, match="Invalid parameter 'beta'"):
        model.set_params(beta=1)
    assert "alpha=0.5" in repr(model)


@every_model
def test_every_model_is_an_estimator(name):
    model = fitted(name)
    copied = clone(model)
    assert repr(copied) == repr(model)
    assert repr(copied.get_params()) == repr(model.get_params())
    assert not [part for part in vars(copied) if part.endswith("_")]
    assert type(model).__name__ in model._repr_html_()


# -- What must not matter --------------------------------------------------------------------------------


@every_model
def test_order_and_duplicates_in_a_query_do_not_matter(name):
    model, basket = fitted(name), ["r1", "b2", "b0"]
    law = model.predict_next(basket)
    for order in itertools.permutations(basket):
        np.testing.assert_allclose(model.predict_next(list(order)), law, atol=1e-9)
    np.testing.assert_array_equal(model.predict_next([*basket, "b2", "r1"]), law)
    for form in (tuple(basket), set(basket), np.array(basket), iter(basket)):
        np.testing.assert_allclose(model.predict_next(form), law, atol=1e-9)
    if "sets" in ROWS[name].can:
        assert model.score_samples(basket[::-1]) == pytest.approx(model.score_samples(basket), abs=1e-9)


@every_model
def test_duplicates_in_the_data_do_not_matter(name):
    doubled = [[*basket, *basket] for basket in checkerboard()]
    assert answers(ROWS[name].make().fit(cd.Baskets.from_lists(doubled, items=ITEMS))) == answers(fitted(name))


@every_model
def test_other_names_give_the_same_answers(name):
    """Ids that are not strings, of the same codes: the same bytes under new names."""
    ids = [(3, "a"), 17, "tea", -1, "x", (1, 2), 0, "é"]
    board = checkerboard()
    renamed = ROWS[name].make().fit(cd.Baskets(board.indptr, board.indices, cd.Vocabulary(ids)))
    code = dict(zip(ITEMS, ids, strict=True))
    for basket in BASKETS[1:]:
        theirs = [code[item] for item in basket]
        assert renamed.predict_next(theirs).tobytes() == fitted(name).predict_next(basket).tobytes()
        items = fitted(name).recommend(basket, N=3)[0]
        assert renamed.recommend(theirs, N=3)[0].tolist() == [code[item] for item in items]


@pytest.mark.parametrize("name", [name for name in ROWS if "listens" not in ROWS[name].can])
def test_another_order_of_the_vocabulary_permutes_the_answers(name):
    """A learned kernel starts from other factors then, so its rows are permuted instead."""
    order = np.array([5, 2, 7, 0, 3, 6, 1, 4])
    ids = [ITEMS[i] for i in order]
    model = fitted(name)
    if "seed" not in ROWS[name].can:
        permuted = ROWS[name].make().fit(checkerboard().recode(cd.Vocabulary(ids)))
    elif hasattr(model, "skew_"):
        skew = model.skew_.toarray()[np.ix_(order, order)]
        d = model.kernel_.diagonal[order] if model.diagonal else None
        permuted = type(model).from_factors(model.item_factors_[order], S=skew, items=ids, diagonal=d)
    elif hasattr(model, "tilts_"):
        part = model.kernel_model_
        skew = part.skew_.toarray()[np.ix_(order, order)]
        d = part.kernel_.diagonal[order]
        kernel = type(part).from_factors(model.item_factors_[order], S=skew, items=ids, diagonal=d)
        permuted = cd.MixtureDPP().set_kernel_model(kernel, model.tilts_[:, order], model.weights_)
    else:
        permuted = type(model).from_factors(model.item_factors_[order], items=ids)
    near = 1e-3 if "iterates" in ROWS[name].can else 1e-9
    np.testing.assert_allclose(permuted.predict_next(BASKETS), model.predict_next(BASKETS)[:, order], rtol=0, atol=near)
    if "sets" in ROWS[name].can:
        np.testing.assert_allclose(permuted.score_samples(BASKETS), model.score_samples(BASKETS), atol=1e-8)
    if "marginals" in ROWS[name].can:
        np.testing.assert_allclose(permuted.marginals(["r2"]), model.marginals(["r2"])[order], atol=1e-9)


# -- Errors ------------------------------------------------------------------------------------------------

ASK = {
    "predict_next": lambda m, basket, **o: m.predict_next(basket, **o),
    "recommend": lambda m, basket, **o: m.recommend(basket, N=2, **o),
    "candidates": lambda m, basket, **o: m.recommend(["r0"], candidates=basket, **o),
    "exclude": lambda m, basket, **o: m.recommend(["r0"], exclude=basket, **o),
    "score_samples": lambda m, basket, **o: m.score_samples(basket, **o),
    "marginals": lambda m, basket, **o: m.marginals(basket, **o),
    "condition": lambda m, basket, **o: m.condition(basket, **o),
    "complete": lambda m, basket, **o: m.complete(basket, 3, **o),
    "sample": lambda m, basket, **o: m.sample(given=basket, **o),
}
NEEDS = {"score_samples": "sets", "candidates": "next", "exclude": "next", "predict_next": "next", "recommend": "next"}
QUESTIONS = [(name, ask) for ask in ASK for name in rows_that(NEEDS.get(ask, ask))]
every_question = pytest.mark.parametrize(("name", "ask"), QUESTIONS)


@every_question
def test_asked_before_it_has_learned(name, ask):
    with pytest.raises(NotFittedError, match="fit"):
        ASK[ask](ROWS[name].make(), ["r0"])


@every_question
def test_unknown_items_raise_or_are_left_out(name, ask):
    model = fitted(name)
    if ask != "exclude":  # what is not there will not be suggested
        with pytest.raises(UnknownItemError, match="salt"):
            ASK[ask](model, ["b1", "salt"])
    with pytest.raises(ParameterError, match="unknown"):
        ASK[ask](model, ["b1"], unknown="drop")
    options = {"random_state": 0} if ask == "sample" else {}
    ignored = ASK[ask](model, ["b1", "salt"], unknown="ignore", **options)
    known = ASK[ask](model, ["b1"], **options)
    if ask == "condition":
        ignored, known = answers_of_rest(ignored), answers_of_rest(known)
    if isinstance(known, tuple):
        np.testing.assert_array_equal(ignored[0], known[0])
        ignored, known = ignored[1], known[1]
    np.testing.assert_array_equal(ignored, known)


def answers_of_rest(model) -> np.ndarray:
    return model.predict_next(["r0"])


@every_question
@pytest.mark.parametrize("wrong", ["r0", b"r0", 7, None, 2.5])
def test_a_basket_is_a_list(name, ask, wrong):
    if wrong is None and ask in ("candidates", "exclude"):
        pytest.skip("None means no restriction")
    before = answers(fitted(name))
    with pytest.raises((DataError, UnknownItemError)):
        ASK[ask](fitted(name), wrong)
    assert answers(fitted(name)) == before


@every_model
@pytest.mark.parametrize("N", [0, -1, 2.5, "3", None, True])
def test_a_count_is_a_positive_integer(name, N):
    with pytest.raises(ParameterError, match="N must be"):
        fitted(name).recommend(["r0"], N=N)
    if "similar" in ROWS[name].can:
        with pytest.raises(ParameterError, match="N must be"):
            fitted(name).similar_items("r0", N=N)


@every_model
@pytest.mark.parametrize(
    "baskets",
    [[], None, 3, "tea", ["tea", "milk"], [["tea"], 3], [[["tea"]]]],
    ids=["none", "None", "number", "text", "texts", "number among", "list as item"],
)
def test_data_that_are_no_baskets_change_nothing(name, baskets):
    model = copy.deepcopy(fitted(name))
    before = answers(model)
    with pytest.raises(DataError):
        model.fit(baskets)
    assert answers(model) == before


@models_that("seed")
@pytest.mark.parametrize(
    "weights", [[np.nan] * 420, [1.0] * 3, [0.0] * 420, [np.inf] * 420, ["a"] * 420, [[1], [2, 3]]]
)
def test_weights_that_are_no_numbers_change_nothing(name, weights):
    model = copy.deepcopy(fitted(name))
    before = answers(model)
    with pytest.raises(ContradppError):
        model.fit(checkerboard(), sample_weight=weights)
    with pytest.raises(ContradppError):
        model.partial_fit(checkerboard(), sample_weight=weights)
    assert answers(model) == before


@models_that("seed")
@pytest.mark.parametrize("weight", [1e308, 1e-310])
def test_only_the_ratios_of_weights_matter(name, weight):
    """Also where their sum is no finite number."""
    model = ROWS[name].make().fit(checkerboard(), sample_weight=[weight] * 420)
    assert answers(model) == answers(fitted(name))


@models_that("seed")
def test_weights_of_negatives_that_cannot_be_added_are_refused(name):
    with pytest.raises(ParameterError, match="weights of negatives"):
        ROWS[name].make().fit(checkerboard(), negatives=cd.negatives.WeightedSets([["r0", "r1"]] * 2, [1e308] * 2))


@models_that("partial_fit")
def test_a_refused_fit_leaves_the_count_of_updates(name):
    model = copy.deepcopy(fitted(name)).partial_fit(checkerboard())
    with pytest.raises(DataError):
        model.fit("tea")
    assert model.n_updates_ == 1
    assert model.fit(checkerboard()).n_updates_ == 0


@models_that("seed")
@pytest.mark.parametrize(
    "wrong",
    [
        {"objective": "magic"}, {"alpha": -1}, {"alpha": np.nan}, {"optimizer__batch_size": 0}, {"max_iter": 0},
        {"tol": -1},
        {"n_components": 0}, {"n_jobs": 0}, {"random_state": "seed"}, {"calibrate": "x"}, {"oversize": "x"},
        {"optimizer__learning_rate": 0}, {"negatives": cd.negatives.DynamicNegatives(removal="x")}, {"init": "x"},
        {"negatives": cd.negatives.DynamicNegatives(ratio=-1)}, {"n_components": 2},
    ],
    ids=lambda wrong: "-".join(map(str, *wrong.items())),
)  # fmt: skip
def test_parameters_that_cannot_be_used_change_nothing(name, wrong):
    model = copy.deepcopy(fitted(name))
    before, params = answers(model), model.get_params()
    plain = (
        {"diagonal": False} if "n_components" in wrong and "diagonal" in params else {}
    )  # with one, any number will do
    with pytest.raises(ParameterError):
        model.set_params(**wrong, **plain).fit(checkerboard())
    assert answers(model.set_params(**params)) == before
