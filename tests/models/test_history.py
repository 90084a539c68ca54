"""Customers who come again: histories in questions, learning from them, and leaks."""

from functools import cache

import numpy as np
import pytest

import contradpp as cd
from contradpp.data.orders import Histories, SetsWithHistory, is_last
from contradpp.data.sets import Sets
from contradpp.dpp import files
from contradpp.errors import DataError, ModelFileError, ParameterError
from contradpp.experts import history as history_module
from contradpp.experts.history import DECAY, FLOOR, SUPPORT, context, in_order, item_statistics
from contradpp.experts.queries import Queries, with_history
from contradpp.models.conditional import next_logits

ITEMS = [f"i{k:02}" for k in range(40)]
HISTORY = [["i01", "i02"], ["i02", "unheard of"], ["i02", "i03"]]
SETTINGS = {"random_state": 0, "n_jobs": 1}


@cache
def orders(*, n_customers=80, n_orders=6, seed=0) -> cd.Baskets:
    """Return orders of customers who each come back for four favorites, beside random items."""
    rng = np.random.default_rng(seed)
    lists, customers, times = [], [], []
    for customer in range(n_customers):
        favorites = rng.choice(len(ITEMS), 4, replace=False)
        for order in range(n_orders):
            codes = {*rng.choice(favorites, 3, replace=False).tolist(), *rng.choice(len(ITEMS), 2).tolist()}
            lists.append([ITEMS[code] for code in codes])
            customers.append(f"c{customer}")
            times.append(order)
    shuffled = rng.permutation(len(lists))
    baskets = cd.Baskets.from_lists(lists, items=ITEMS, customers=customers, times=times)
    return baskets.subset(shuffled)


def kernel() -> cd.LowRankDPP:
    return cd.LowRankDPP(5, max_iter=5, random_state=0)


@cache
def fitted() -> cd.ConditionalDPP:
    return cd.ConditionalDPP(kernel(), **SETTINGS).fit(orders())


# -- Without a history -----------------------------------------------------------------------------


def test_without_history_answers_are_the_same_bits_as_without_the_expert_and_without_customers():
    baskets = orders()
    experts = [expert for expert in fitted().experts if expert != "history"]
    without = cd.ConditionalDPP(kernel(), experts=experts, **SETTINGS).fit(baskets)
    anonymous = cd.ConditionalDPP(kernel(), **SETTINGS).fit(baskets.with_customers(None))
    assert [model.uses_history for model in (fitted(), without, anonymous)] == [True, False, False]
    queries = [*baskets[:20], []]
    expected = fitted().predict_next(queries).tobytes()
    for model in (without, anonymous):
        assert model.predict_next(queries).tobytes() == expected
    empty = fitted().predict_next(queries, history=[[] for _ in queries])
    assert empty.tobytes() == expected
    mixed = fitted().predict_next(queries, history=[HISTORY, *([[]] * 20)])
    assert mixed[1:].tobytes() == fitted().predict_next(queries)[1:].tobytes()
    assert not np.allclose(mixed[0], empty[0])


def test_models_that_use_no_history_say_so():
    baskets = orders()
    model = cd.LowRankDPP(5, max_iter=2).fit(baskets)
    for call in (model.recommend, model.predict_next, model.slate):
        with pytest.raises(ParameterError, match="LowRankDPP does not use a history"):
            call(["i01"], history=HISTORY)
    with pytest.raises(ParameterError, match="new_only needs a history"):
        model.recommend(["i01"], new_only=True)


@pytest.mark.parametrize(
    ("basket", "history", "words"),
    [
        (["i01"], ["i02", "i03"], "list of earlier baskets: .*'i02'"),
        (["i01"], 17, "list of earlier baskets"),
        (["i01"], [[["i02"]], [["i03"]]], "list of earlier baskets"),
        ([["i01"], ["i02"]], HISTORY, "several baskets take a list of histories"),
        ([["i01"], ["i02"]], 17, "several baskets take a list of histories"),
    ],
)
def test_bad_histories_are_named(basket, history, words):
    with pytest.raises(DataError, match=words):
        fitted().predict_next(basket, history=history)


# -- The definition --------------------------------------------------------------------------------


def naive_logits(model, basket, history):
    """The definition: log P(j | A) plus θ(A, H)ᵀ g_j, feature by feature."""
    expert = model._history
    base = model.predict_next(basket)
    n = len(history)
    share = np.array([sum(DECAY ** (n - 1 - k) for k in range(n) if item in history[k]) for item in ITEMS]) / sum(
        DECAY**k for k in range(n)
    )
    matrices = [weights.matrix(len(ITEMS)).toarray() for weights in expert.near]
    counts = orders().item_counts
    popularity = np.log((counts + 1) / (len(orders()) + 1))
    size = len(basket)
    bought_before = {one for order in history for one in order}
    share_of_basket = (len(bought_before & set(basket)) + 1) / (size + 2)
    amounts = [1, np.log(n), np.log(len(bought_before))]
    Z = [np.log(size), share_of_basket, *amounts, 0, 0, 0] if size else [0, 0, 0, 0, 0, *amounts]
    theta = np.array(Z) @ expert.theta
    logits = np.full(len(ITEMS), -np.inf)
    for j, item in enumerate(ITEMS):
        if item in basket:
            continue
        bought = item in bought_before
        log_p = np.log(base[j])
        means = [np.log(FLOOR + share @ W[:, j] / share.sum()) for W in matrices[:2]]
        regression = share @ matrices[2][:, j]
        g = [log_p, log_p**2, log_p * means[0], log_p * popularity[j], bought * log_p]
        g += [*means, (not bought) * np.sign(regression) * abs(regression) ** 0.5, popularity[j]]
        count = sum(item in order for order in history)
        age = min((n - 1 - k for k in range(n) if item in history[k]), default=0)
        if bought:
            g += [1, np.log(share[j]), np.log1p(age), np.log(count), expert.again[j], *means, popularity[j]]
        else:
            g += [0] * 8
        logits[j] = model_log(base[j]) + theta @ np.array(g, dtype=float)
    return logits


def model_log(p):
    return np.log(p) if p > 0 else -np.inf


@pytest.mark.parametrize("basket", [[], ["i05"], ["i05", "i02", "i09"]])
def test_scores_are_those_of_the_definition(basket):
    history = [["i01", "i02"], ["i02"], ["i02", "i03"]]
    logits = naive_logits(fitted(), basket, history)
    expected = np.exp(logits - logits.max())
    found = fitted().predict_next(basket, history=history)
    np.testing.assert_allclose(found, expected / expected.sum(), rtol=1e-9)


def test_a_history_does_not_lift_what_cannot_come_next():
    history = cd.Baskets.from_lists([["i01", "i02"], ["i02"]], items=ITEMS)
    histories = Histories(history.sets, history.items, np.arange(2), np.array([0]), np.array([2]))
    found = []
    for depth in (-40.0, -60.0):
        logits = np.zeros((1, len(ITEMS)))
        logits[0, [7, 1]] = depth
        fitted()._history.add_to(logits, Sets.one([5]), histories)
        found.append(logits[0])
    np.testing.assert_allclose((found[0] - found[1])[[7, 1]], 20.0)
    np.testing.assert_allclose(np.delete(found[0] - found[1], [7, 1]), 0.0, atol=1e-9)


def test_only_the_most_frequent_items_of_a_long_history_have_neighbors(monkeypatch):
    monkeypatch.setattr(history_module, "N_NEAR", 2)
    history = cd.Baskets.from_lists([["i01", "i02"], ["i02"], ["i02", "i03"]], items=ITEMS).sets
    found = fitted()._history.features(history, len(ITEMS))[0]
    W = fitted()._history.near[0].matrix(len(ITEMS)).toarray()
    expected = np.log(FLOOR + (2.71 * W[2] + 1.0 * W[3]) / 3.71)
    np.testing.assert_allclose(found[0], expected)


def test_item_statistics_are_those_of_the_definition():
    baskets = orders()
    again, near = item_statistics(baskets)
    n_bought, n_again = np.zeros((2, len(ITEMS)))
    for basket, history in zip(baskets, baskets.histories(), strict=True):
        for item in {item for order in history for item in order}:
            n_bought[ITEMS.index(item)] += 1
            n_again[ITEMS.index(item)] += item in basket
    mean = (n_again.sum() + 1) / (n_bought.sum() + 2)
    np.testing.assert_allclose(again, np.log((n_again + SUPPORT * mean) / (n_bought + SUPPORT)))
    unions = {}
    for customer, basket in zip(baskets.customers, baskets, strict=True):
        unions.setdefault(customer, set()).update(basket)
    has = np.array([[item in union for item in ITEMS] for union in unions.values()], dtype=float)
    together = has.T @ has
    counts = has.sum(axis=0)
    cosines = together / (np.sqrt(np.outer(counts, counts)) + 10.0)
    np.fill_diagonal(cosines, 0.0)
    np.testing.assert_allclose(near.matrix(len(ITEMS)).toarray(), cosines, rtol=1e-6)


def test_context_has_its_own_places_for_the_empty_basket():
    sets = Sets(np.array([0, 0, 1, 5]), np.array([2, 0, 1, 2, 3], dtype=np.int32))
    found = context(sets, np.array([0, 2, 3, 4, 5]), 3)
    amounts = [1, np.log(3), np.log(5)]
    expected = [[0] * 5 + amounts, [0, 2 / 3, *amounts, 0, 0, 0], [np.log(4), 4 / 6, *amounts, 0, 0, 0]]
    np.testing.assert_allclose(found, expected)


# -- Learning, and leaks ---------------------------------------------------------------------------


def test_customers_get_what_they_come_back_for():
    train, test = orders(n_customers=300, seed=1).split_by_time()
    model = cd.ConditionalDPP(kernel(), **SETTINGS).fit(train)
    before = cd.evaluate(model, test, likelihood=False)
    after = cd.evaluate(model, test, history=train, likelihood=False)
    assert after.precision[10] > before.precision[10] + 10
    assert after.ndcg > before.ndcg
    assert after.metrics["repeat@10"] > after.metrics["new@10"]


class Watched:
    """The features of a fit, with the baskets that they were made of."""

    def __init__(self, monkeypatch):
        self.seen = []
        add = history_module._Examples.add

        def watch(examples, expert, score, codes, history, rng):
            self.seen.append((frozenset(codes.tolist()), [frozenset(part.tolist()) for part in split(history)]))
            add(examples, expert, score, codes, history, rng)

        monkeypatch.setattr(history_module._Examples, "add", watch)


def split(sets: Sets):
    return np.split(sets.indices, sets.indptr[1:-1])


def future_of(baskets: cd.Baskets, seen) -> int:
    """Count the examples whose history holds a basket that is not earlier."""
    by_customer = {}
    for number in np.lexsort((np.arange(len(baskets)), baskets.times)).tolist():
        by_customer.setdefault(baskets.customers[number], []).append(frozenset(baskets.codes(number).tolist()))
    allowed = {(sequence[-1], tuple(sequence[:-1])) for sequence in by_customer.values()}
    return sum((target, tuple(history)) not in allowed for target, history in seen)


def test_no_basket_of_the_future_reaches_a_feature_of_the_past(monkeypatch):
    watched = Watched(monkeypatch)
    cd.ConditionalDPP(kernel(), **SETTINGS).fit(orders())
    assert len(watched.seen) >= 5
    assert future_of(orders(), watched.seen) == 0


def test_a_planted_leak_is_found(monkeypatch):
    """With times that run backwards, histories hold the future: the check above must see it."""
    watched = Watched(monkeypatch)
    leaking = orders().with_customers(orders().customers, -orders().times)
    cd.ConditionalDPP(kernel(), **SETTINGS).fit(leaking)
    assert len(watched.seen) >= 5
    assert future_of(orders(), watched.seen) == len(watched.seen)


def test_splitting_does_not_change_the_order_of_baskets_at_the_same_time():
    baskets = cd.Baskets.from_lists([["a"], ["b"], ["c"]], customers=["ann"] * 3, times=[1, 1, 1])
    ordered = in_order(baskets)
    for train, test in ((ordered.subset([0, 2]), ordered.subset([1])), (ordered.subset([1, 2]), ordered.subset([0]))):
        expected = [[["a"]]] if list(test) == [["b"]] else [[]]
        assert list(test.histories(before=train)) == expected
    assert is_last(ordered.ordering, 2).tolist() == [False, False, True]


# -- Questions -------------------------------------------------------------------------------------


def test_new_only_leaves_out_what_was_bought():
    model = fitted()
    bought = {"i01", "i02", "i03"}
    for items in (
        model.recommend([], 40, history=HISTORY, new_only=True)[0].tolist(),
        model.recommend([], 40, history=HISTORY, new_only=True, rank_by="lift")[0].tolist(),
        model.slate(["i05"], 12, history=HISTORY, new_only=True)[0].tolist(),
        model.complete(["i05"], 20, history=HISTORY, new_only=True),
    ):
        assert len(items) >= 12
        assert bought.isdisjoint(items)
    items, shares = model.recommend([[], []], 40, history=[HISTORY, [["i07"]]], new_only=True)
    assert bought.isdisjoint(items[0].tolist())
    assert "i07" not in items[1].tolist()
    assert "i02" in items[1].tolist()
    assert (shares[0] > 0).sum() == 37


def test_a_batch_has_histories_of_its_own_and_equals_single_questions():
    model = fitted()
    histories = [HISTORY, [], [["i07"], ["i08", "i07"]]]
    baskets = [["i05"], ["i06"], []]
    found = model.predict_next(baskets, history=histories)
    for row, basket, history in zip(found, baskets, histories, strict=True):
        np.testing.assert_allclose(row, model.predict_next(basket, history=history), rtol=1e-12)
    with pytest.raises(DataError, match="3 baskets but 2 histories"):
        model.predict_next(baskets, history=histories[:2])
    earlier = orders().histories()
    np.testing.assert_allclose(
        model.predict_next(orders()[:1], history=earlier.take(np.array([0])))[0],
        model.predict_next(orders()[0], history=earlier[0]),
    )


def test_next_basket_is_a_recommendation_for_an_empty_basket():
    items, shares = fitted().next_basket(HISTORY, 5)
    again = fitted().recommend([], 5, history=HISTORY)
    assert items.tolist() == again[0].tolist()
    assert shares.tolist() == again[1].tolist()
    assert "i02" in items.tolist()


def test_unknown_items_of_a_history_are_ignored_and_counted(caplog):
    model = fitted()
    known = [["i01", "i02"], ["i02"], ["i02", "i03"]]
    assert model.predict_next(["i05"], history=HISTORY).tolist() == model.predict_next(["i05"], history=known).tolist()
    found = with_history(Queries(Sets.one([5]), single=True), HISTORY, model).sets.histories
    assert found[0] == known
    assert {record.message for record in caplog.records} == {
        "the model does not know 1 of the 6 items of the history, and ignores them"
    }
    caplog.clear()
    model.predict_next(["i05"], history=known)
    model.predict_next([["i05"], ["i06"]], history=[HISTORY, [["unheard of"], ["i01"]]])
    assert [record.message for record in caplog.records] == [
        "the model does not know 2 of the 8 items of the histories, and ignores them"
    ]
    nothing = model.predict_next(["i05"], history=[["unheard of"]])
    assert nothing.tolist() == model.predict_next(["i05"]).tolist()


def test_explanations_add_up_and_say_how_often_it_was_bought():
    model = fitted()
    for basket in (["i05", "i06"], []):
        found = model.explain(basket, "i02", history=HISTORY)
        share = model.predict_next(basket, history=HISTORY)[model.items_.code("i02")]
        assert found.log_probability == pytest.approx(np.log(share))
        assert found.bought == "bought in 3 of your last 3 orders"
        assert found.by_expert["history"] != 0
        assert model.explain(basket, "i09", history=HISTORY).bought == ""
        assert "history" not in model.explain(basket, "i02").by_expert


def test_files_and_updates_keep_it_and_hold_nothing_about_a_customer(tmp_path):
    path = tmp_path / "model.safetensors"
    model = cd.ConditionalDPP(kernel(), **SETTINGS).fit(orders())
    model.save(path)
    content = path.read_bytes()
    assert b"c17" not in content
    assert model.baskets_.customers is None
    again = cd.load(path)
    expected = model.predict_next(["i05"], history=HISTORY)
    assert again.predict_next(["i05"], history=HISTORY).tobytes() == expected.tobytes()
    again.save(path)
    assert path.read_bytes() == content
    again.partial_fit([["i05", "i41"], ["i02", "i41"]] * 5)
    assert again.uses_history
    assert again.next_basket([["i41"]], 40)[0].tolist() != []
    assert again.predict_next(["i05"], history=HISTORY).sum() == pytest.approx(1)


def test_a_file_keeps_the_answers_for_items_added_later(tmp_path):
    features = {item: [float(code % 5), float(code % 3)] for code, item in enumerate(ITEMS)}
    model = cd.ConditionalDPP(kernel(), **SETTINGS).fit(orders(), item_features=features)
    model.add_items(["new"], {"new": [1.0, 2.0]}).save(tmp_path / "model.safetensors")
    again = cd.load(tmp_path / "model.safetensors")
    expected = model.predict_next(["i05"], history=HISTORY)
    assert again.predict_next(["i05"], history=HISTORY).tobytes() == expected.tobytes()


def test_a_file_whose_history_has_more_items_than_the_model_is_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    fitted().save(path)
    tensors, info = files.read_model(path)
    n_items = len(tensors["history.again"]) + 1
    tensors["history.again"] = np.zeros(n_items)
    tensors["history.indptr"] = np.append(tensors["history.indptr"], tensors["history.indptr"][-1])
    files.write_model(path, tensors, info)
    with pytest.raises(ModelFileError, match=f"its history has {n_items} items"):
        cd.load(path)


# -- Baselines -------------------------------------------------------------------------------------


def dense(baskets, items):
    return np.array([[item in basket for item in items] for basket in baskets], dtype=float).reshape(-1, len(items))


def by_customer(baskets):
    found = {}
    for customer, basket in sorted(
        zip(baskets.customers.tolist(), zip(baskets.times, list(baskets), strict=True), strict=True),
        key=lambda pair: pair[1][0],
    ):
        found.setdefault(customer, []).append(basket[1])
    return found


def tifu_vector(history, model):
    n = len(history)
    groups = [history[max(end - model.group_size, 0) : end] for end in range(n, 0, -model.group_size)]
    total = np.zeros(len(ITEMS))
    for g, group in enumerate(groups):
        X = dense(group, ITEMS)
        weights = model.within_decay ** np.arange(len(group) - 1, -1, -1)
        total += model.group_decay**g * (weights @ X) / len(group)
    return total / len(groups)


def test_tifu_knn_is_that_of_the_paper():
    model = cd.baselines.TIFUKNN(n_neighbors=5, group_size=2, alpha=0.4).fit(orders())
    history = [["i01", "i02"], ["i02"], ["i03"]]
    vectors = np.array([tifu_vector(own, model) for own in by_customer(orders()).values()])
    own = tifu_vector(history, model)
    nearest = np.argsort(((vectors - own) ** 2).sum(axis=1))[:5]
    expected = 0.4 * own + 0.6 * vectors[nearest].mean(axis=0)
    scores = model.history_scores(cd.Baskets.from_lists(history, items=ITEMS).sets)
    np.testing.assert_allclose(scores, expected, atol=1e-12)


def test_up_cf_is_that_of_the_paper():
    model = cd.baselines.UPCF(recency=2, locality=3.0, asymmetry=0.25).fit(orders())
    history = [["i01", "i02"], ["i02"], ["i03"]]

    def popularity(own):
        return dense(own[-2:], ITEMS).sum(axis=0) / min(2, len(own))

    expected = popularity(history)
    mine = {item for order in history for item in order}
    for own in by_customer(orders()).values():
        theirs = {item for order in own for item in order}
        weight = len(mine & theirs) / (len(mine) ** 0.25 * len(theirs) ** 0.75)
        expected += weight**3 * popularity(own)
    scores = model.history_scores(cd.Baskets.from_lists(history, items=ITEMS).sets)
    np.testing.assert_allclose(scores, expected, atol=1e-12)


def test_personal_frequency_is_that_of_the_definition_and_else_popularity():
    model = cd.baselines.PersonalFrequency(decay=0.5).fit(orders())
    history = [["i01", "i02"], ["i02"], ["i03"]]
    scores = model.history_scores(cd.Baskets.from_lists(history, items=ITEMS).sets)
    assert {ITEMS[j]: scores[j] for j in np.flatnonzero(scores)} == {"i01": 0.25, "i02": 0.75, "i03": 1.0}
    popular = cd.baselines.Popularity().fit(orders())
    assert model.recommend([], 40)[0].tolist() == popular.recommend([], 40)[0].tolist()


@pytest.mark.parametrize("kind", [cd.baselines.TIFUKNN, cd.baselines.UPCF])
def test_baselines_need_customers(kind):
    with pytest.raises(DataError, match="whose customers are known"):
        kind().fit([["tea"]])


# -- Evaluation ------------------------------------------------------------------------------------


def test_repeat_and_new_items_and_the_next_basket_are_measured_apart():
    train, test = orders().split_by_time()
    model = cd.baselines.PersonalFrequency().fit(train)
    report = cd.evaluate(model, test, history=train, likelihood=False)
    hits = {"repeat@10": [], "new@10": [], "new_only@10": [], "next_recall": [], "next_ndcg": []}
    gains = 1 / np.log2(np.arange(2, 12))
    for basket, history in zip(test, test.histories(train), strict=True):
        scores = by_item(model, history)
        bought = {item for order in history for item in order}
        groups = {name: [] for name in ("repeat@10", "new@10", "new_only@10")}
        for item in basket:
            others = [other for other in ITEMS if other not in basket]
            groups["repeat@10" if item in bought else "new@10"].append(hit(scores, item, others))
            if item not in bought:
                fresh = [other for other in others if other not in bought]
                groups["new_only@10"].append(hit(scores, item, fresh))
        for name, values in groups.items():
            if values:
                hits[name].append(100 * np.mean(values))
        best = sorted(ITEMS, key=lambda item: -scores[item])[:10]
        found = np.array([item in basket for item in best])
        hits["next_recall"].append(found.sum() / len(basket))
        hits["next_ndcg"].append(gains[found].sum() / gains[: len(basket)].sum())
    for name, values in hits.items():
        assert report.metrics[name] == pytest.approx(np.mean(values)), name
        assert name in report.intervals
    assert "next nDCG@10" in str(report)
    with pytest.raises(DataError, match="no customer of a test basket"):
        cd.evaluate(model, test.with_customers(None), history=train)


def hit(scores, item, others):
    """Return the share of the orders of ties in which the item is among the first ten."""
    better = sum(scores[other] > scores[item] + 1e-12 for other in others)
    equal = sum(abs(scores[other] - scores[item]) <= 1e-12 for other in others)
    return min(max((10 - better) / (equal + 1), 0), 1)


def by_item(model, history):
    scores = model.history_scores(cd.Baskets.from_lists(history, items=ITEMS).sets) + model.bias_
    return dict(zip(ITEMS, scores, strict=True))


def test_models_without_histories_can_be_compared_with_those_that_use_them():
    train, test = orders().split_by_time()
    models = {"neighbors": cd.baselines.ItemKNN().fit(train), "kernel": kernel().fit(train), "both": fitted()}
    table = cd.compare(models, test, train=train, history=train)
    assert table.reports["both"].metrics["next_recall"] > table.reports["neighbors"].metrics["next_recall"]
    alone = cd.evaluate(models["neighbors"], test, train=train)
    assert table.reports["neighbors"].ndcg == alone.ndcg


def test_logits_without_each_are_those_of_single_questions():
    model = fitted()
    sets = orders()[:3].sets
    queries = with_history(Queries(sets, single=False), orders().histories().take(np.arange(3)), model)
    histories = queries.sets.histories
    each = next_logits(model, queries.sets, leave_one_out=True)
    assert each.shape == (len(sets.indices), len(ITEMS))
    entry = 0
    for row in range(3):
        codes = sets.indices[sets.indptr[row] : sets.indptr[row + 1]]
        for place in range(len(codes)):
            rest = Sets.one(np.delete(codes, place))
            alone = next_logits(model, SetsWithHistory(rest, histories.take(np.array([row]))))
            np.testing.assert_allclose(each[entry], alone[0], atol=1e-6)
            entry += 1
