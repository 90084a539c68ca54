"""scikit-learn's conventions: clone, parameters, cross-validation; and when it is imported."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline

import contradpp as cd
from contradpp.errors import DataError

RNG = np.random.default_rng(0)
LISTS = [RNG.choice(8, size=RNG.integers(1, 4), replace=False).tolist() for _ in range(90)]


def as_objects(lists) -> np.ndarray:
    out = np.empty(len(lists), dtype=object)
    out[:] = lists
    return out


@pytest.fixture
def model() -> cd.LowRankDPP:
    return cd.LowRankDPP(4, objective="mle", alpha=0.3, max_iter=3, random_state=0)


def test_clone_copies_parameters_and_nothing_learned(model):
    model.set_params(contrast="counted", optimizer=cd.optimizers.Adam(batch_size=50))
    model.fit(LISTS)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert copy is not model
    assert not [name for name in vars(copy) if name.endswith("_")]
    with pytest.raises(cd.errors.NotFittedError):
        copy.predict_next([0])
    assert copy.fit(LISTS).item_factors_.tobytes() == model.item_factors_.tobytes()


def test_updates_do_not_change_parameters(model):
    before = model.get_params()
    assert model.fit(LISTS).partial_fit(LISTS[:3]) is model
    assert model.get_params() == before == model.get_params(deep=False)


@pytest.mark.parametrize("form", [list, as_objects], ids=["lists", "array of objects"])
def test_grid_search(model, form):
    grid = {"n_components": [3, 6], "alpha": [0.1, 100.0]}
    search = GridSearchCV(model, grid, cv=KFold(3), error_score="raise").fit(form(LISTS))
    scores = search.cv_results_["mean_test_score"]
    assert np.isfinite(scores).all()
    assert len(set(scores)) > 1
    best = search.best_params_
    folds = []
    for train, test in KFold(3).split(LISTS):
        one = clone(model).set_params(**best).fit([LISTS[i] for i in train])
        folds.append(one.score([LISTS[i] for i in test]))
    assert search.best_score_ == pytest.approx(np.mean(folds))
    assert search.best_estimator_.predict_next([0]).shape == (8,)


@pytest.mark.parametrize("form", [list, cd.Baskets.from_lists], ids=["lists", "baskets"])
def test_grid_search_where_folds_hold_items_of_their_own(model, form):
    """Every score was NaN: `score` refused the item that only the fold had."""
    lists = [*LISTS, [0, "seen once"], [1, "seen once, too"]]
    search = GridSearchCV(model, {"n_components": [3, 6]}, cv=KFold(3), error_score="raise").fit(form(lists))
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_folds_of_order_lines_are_refused(model):
    """They cut orders apart; folds of Baskets do not."""
    lines = [(number, item) for number, basket in enumerate(LISTS) for item in basket]
    frame = pd.DataFrame(lines, columns=["order", "item"])
    search = GridSearchCV(model, {"n_components": [3]}, cv=2, error_score="raise")
    with pytest.raises(DataError, match=r"Baskets.from_frame"):
        search.fit(frame)
    search.fit(cd.Baskets.from_frame(frame))
    by_rank = GridSearchCV(model, {"n_components": [3]}, cv=2, scoring=lambda one, X, y=None: cd.evaluate(one, X).ndcg)
    assert 0 < by_rank.fit(LISTS).best_score_ <= 1


def test_grid_search_over_objectives_and_threads(model):
    grid = {"objective": ["mle", "dynamic", "explicit", "product", "nce", "exact"]}
    search = GridSearchCV(model, grid, cv=2, n_jobs=1, error_score="raise").fit(LISTS)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_cross_validation_with_labels(model):
    scores = cross_val_score(model, LISTS, cv=3, params={"sample_weight": np.linspace(0.5, 2, 90)})
    assert np.isfinite(scores).all()


def test_in_a_pipeline(model):
    pipeline = make_pipeline("passthrough", model).fit(LISTS)
    assert pipeline.score(LISTS) == pytest.approx(model.score(LISTS))


def test_tags(model):
    from sklearn.utils import get_tags

    tags = get_tags(model)
    assert not tags.target_tags.required
    assert not tags.input_tags.two_d_array


def test_it_is_imported_with_the_first_model_and_not_before():
    code = (
        "import sys, contradpp as cd; cd.Baskets.from_lists([[0, 1]]), cd.datasets, cd.read_baskets, cd.objectives\n"
        "assert 'sklearn' not in sys.modules\ncd.LowRankDPP\nassert 'sklearn' in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def order_lines():
    pandas = pytest.importorskip("pandas")
    lines = [(number, item) for number, basket in enumerate(LISTS) for item in basket]
    return pandas.DataFrame(lines, columns=["order_id", "product_id"])


@pytest.mark.parametrize("scoring", [None, cd.scorer("ndcg")], ids=["score", "scorer"])
def test_a_search_over_order_lines_is_refused_because_it_cuts_orders(model, scoring):
    """Rows were split: parts of one order were in training and test folds."""
    search = GridSearchCV(model, {"n_components": [3, 6]}, scoring=scoring, cv=KFold(3), error_score="raise")
    with pytest.raises(cd.errors.DataError, match=r"would cut baskets apart.*Baskets\.from_frame"):
        search.fit(order_lines())
    search.fit(cd.Baskets.from_frame(order_lines()))
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_a_frame_of_lists_has_a_row_per_basket_and_can_be_scored(model):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"items": LISTS})
    assert cross_val_score(model, frame, cv=3, error_score="raise").shape == (3,)


@pytest.mark.parametrize(("metric", "name"), [("ndcg", "ndcg"), ("mpr", "mpr"), ("p@10", "precision@10")])
def test_a_scorer_is_the_metric_of_evaluate(model, metric, name):
    fitted = cd.baselines.ItemKNN().fit(LISTS)
    report = cd.evaluate(fitted, LISTS, min_size=2)
    assert cd.scorer(metric)(fitted, LISTS) == pytest.approx(report.metrics[name])
    assert cd.scorer("log-likelihood")(model.fit(LISTS), LISTS) < 0


def test_a_basket_beyond_the_rank_counts_as_not_found():
    small = cd.LowRankDPP(2, objective="mle", max_iter=3, oversize="drop", random_state=0).fit(LISTS)
    report = cd.evaluate(small, LISTS, min_size=2)
    assert report.n_skipped > 0
    share = 1 - report.n_skipped / report.n_baskets
    assert cd.scorer("ndcg")(small, LISTS) == pytest.approx(share * report.ndcg)
    with pytest.raises(cd.errors.ParameterError, match=r"metric must be one of .mpr., .p@10."):
        cd.scorer("recall")
