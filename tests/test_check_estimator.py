"""scikit-learn's own checks of estimators: those that apply pass, the rest fail for the reasons below."""

from __future__ import annotations

from collections import defaultdict
from warnings import catch_warnings, simplefilter

import pytest

import contradpp as cd
from contradpp import baselines
from contradpp.select import DPPSelector

estimator_checks = pytest.importorskip("sklearn.utils.estimator_checks")
if not hasattr(estimator_checks, "estimator_checks_generator"):
    pytest.skip("scikit-learn 1.6 or later can name expected failures", allow_module_level=True)

ROWS = "it chooses rows: what is transformed must have the rows, not the columns, of fit"
MESSAGE = "the input is refused with an error, in our words"
DENSE = "sparse matrices are refused, in our words"
EXPECTED = {
    "check_complex_data": MESSAGE,
    "check_dtype_object": "arrays of objects are refused, numbers or not",
    "check_estimator_sparse_array": DENSE,
    "check_estimator_sparse_matrix": DENSE,
    "check_estimator_sparse_tag": DENSE,
    "check_estimators_empty_data_messages": MESSAGE,
    "check_estimators_nan_inf": MESSAGE,
    "check_fit2d_1sample": MESSAGE,
    "check_fit2d_predict1d": ROWS,
    "check_fit_idempotent": ROWS,
    "check_methods_sample_order_invariance": ROWS,
    "check_methods_subset_invariance": ROWS,
    "check_n_features_in": ROWS,
    "check_n_features_in_after_fitting": ROWS,
    "check_sample_weight_equivalence_on_dense_data": "two copies of a row are two rows",
    "check_sample_weight_equivalence_on_sparse_data": DENSE,
    "check_transformer_data_not_an_array": "an object that only has __array__ has no rows to take",
    "check_transformer_general": ROWS,
}


def by_status(estimator, expected=None) -> dict[str, set[str]]:
    with catch_warnings():
        simplefilter("ignore")  # that checks are left out
        results = estimator_checks.check_estimator(estimator, expected_failed_checks=expected, on_fail=None)
    found = defaultdict(set)
    for one in results:
        found[one["status"]].add(one["check_name"])
    return found


def test_the_selector():
    found = by_status(DPPSelector(), EXPECTED)
    assert not found["failed"]
    assert found["xfail"]
    assert not found["passed"] & set(EXPECTED)
    assert len(found["passed"]) > 25


# Baskets are no table of numbers, which the tags say: `check_estimator` leaves checks with data out. These need none.
WITHOUT_DATA = [
    "check_estimator_cloneable",
    "check_estimator_tags_renamed",
    "check_valid_tag_types",
    "check_estimator_repr",
    "check_no_attributes_set_in_init",
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_parameters_default_constructible",
    "check_get_params_invariance",
    "check_set_params",
    "check_mixin_order",
]
MODELS = [cd.LowRankDPP, cd.NonsymmetricDPP, cd.MixtureDPP, cd.ConditionalDPP]
MODELS += [getattr(baselines, name) for name in baselines.__all__ if name != "Implicit"]
# `Implicit` has no defaults: it wraps a model of another package.


@pytest.mark.parametrize("name", WITHOUT_DATA)
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_models(model, name):
    getattr(estimator_checks, name)(model.__name__, model())


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_models_are_no_estimators_of_tables(model):
    assert set(by_status(model())) == {"passed"}
