"""`log_likelihood_and_gradient` against plain definitions, central differences and 50 digits."""

from __future__ import annotations

import itertools

import mpmath
import numpy as np
import pytest
from scipy.sparse import coo_array

import contradpp as cd
from contradpp.errors import DataError, ParameterError
from contradpp.learn.likelihood import KINDS
from reference_gradients import choice_log_likelihood, skew_conditional

M, K = 7, 3
RNG = np.random.default_rng(0)
V = RNG.normal(size=(M, K))
D = RNG.uniform(0.1, 1.0, M)
D[2] = 0.0
PAIRS = ([0, 1, 5, 3], [4, 2, 0, 6], np.array([0.3, -0.5, 0.0, 0.2]))
BASKETS = [[0, 1, 5], [2], [], [3, 6, 4, 0]]
OFFERED = [[0, 1, 5, 2], [2, 3], [1], [3, 6, 4, 0, 1]]
WEIGHTS = np.array([0.7, -1.2, 2.0, 0.4])
FORMS = {"V": (None, None), "D": (D, None), "S": (None, PAIRS), "D and S": (D, PAIRS)}

every_form = pytest.mark.parametrize("form", FORMS)
every_kind = pytest.mark.parametrize("kind", KINDS)


def ask(V, diagonal, skew, kind, baskets=BASKETS, offered=OFFERED, weights=WEIGHTS, **how):
    how["offered"] = offered if kind == "choice" else None
    return cd.log_likelihood_and_gradient(V, baskets, diagonal, skew, kind=kind, sample_weight=weights, **how)


def matrix(V, diagonal, skew) -> np.ndarray:
    L = V @ V.T
    if diagonal is not None:
        L = L + np.diag(diagonal)
    if skew is not None:
        i, j, s = skew
        S = coo_array((s, (i, j)), shape=L.shape).toarray()
        L = L + S - S.T
    return L


def minor(L, items) -> float:
    return float(np.linalg.det(L[np.ix_(items, items)])) if len(items) else 1.0


def by_definition(L, items, offered, kind) -> float:
    if kind == "conditional":
        return skew_conditional(L, [items], [np.full(len(items), 1 / max(len(items), 1))])
    if kind == "choice":
        return choice_log_likelihood(L, items, offered)
    sets = itertools.chain.from_iterable(itertools.combinations(range(M), k) for k in range(M + 1))
    total = sum(minor(L, list(one)) for one in sets) if kind == "joint" else 1.0
    return float(np.log(minor(L, items) / total))


@every_form
@every_kind
def test_values_are_those_of_the_definition(form, kind):
    L = matrix(V, *FORMS[form])
    found = ask(V, *FORMS[form], kind).values
    for items, offered, value in zip(BASKETS, OFFERED, found, strict=True):
        if len(items) > K and form == "V":
            assert value == -np.inf
        else:
            assert value == pytest.approx(by_definition(L, items, offered, kind), abs=1e-10)


def differences(f, x, h=1e-5) -> np.ndarray:
    out = np.empty_like(x)
    for index in np.ndindex(*x.shape):
        step = np.zeros_like(x)
        step[index] = h
        if x[index] == 0 and x is D:  # d must not be negative
            out[index] = (-3 * f(x) + 4 * f(x + step) - f(x + 2 * step)) / (2 * h)
        else:
            out[index] = (f(x + step) - f(x - step)) / (2 * h)
    return out


@every_form
@every_kind
def test_gradients_are_those_of_central_differences(form, kind):
    """Also at d = 0 and at s = 0, and with a set of probability zero, which does not count."""
    diagonal, skew = FORMS[form]

    def total(V, diagonal, skew) -> float:
        values = ask(V, diagonal, skew, kind).values
        return float(WEIGHTS @ np.where(np.isfinite(values), values, 0.0))

    found = ask(V, diagonal, skew, kind)
    np.testing.assert_allclose(found.V, differences(lambda x: total(x, diagonal, skew), V), atol=1e-7)
    if diagonal is None:
        assert found.diagonal is None
    else:
        numeric = differences(lambda x: total(V, x, skew), D)
        np.testing.assert_allclose(found.diagonal, numeric, atol=1e-7)
    if skew is None:
        assert found.skew is None
    else:
        numeric = differences(lambda s: total(V, diagonal, (*PAIRS[:2], s)), PAIRS[2])
        np.testing.assert_allclose(found.skew, numeric, atol=1e-7)


def test_a_nearly_singular_set_keeps_the_digits_that_its_condition_leaves():
    """Two rows that differ by 7e-6, so that W_ii L_ii is some 1e11, against 50 digits."""
    near = np.array([[1.0, 0.5, 0.25], [1.0, 0.5, 0.25 + 2.0**-17], [0.5, 1.0, 0.0]])
    found = cd.log_likelihood_and_gradient(near, [[0, 1, 2]], kind="log_det")
    with mpmath.workdps(50):
        X = mpmath.matrix(near.tolist())
        L = X * X.T
        exact = float(mpmath.log(mpmath.det(L)))
        gradient = np.array((2 * mpmath.inverse(L) * X).tolist(), dtype=float)
    assert found.values[0] == pytest.approx(exact, abs=1e-5)
    np.testing.assert_allclose(found.V, gradient, atol=1e-5 * np.abs(gradient).max())


@every_kind
def test_baskets_may_come_in_any_form(kind):
    lists = [[0, 1, 1], [2], [], [3, 6]]
    coded = cd.Baskets.from_lists(lists, items=range(M))
    ways = [lists, coded, coded.sets, [np.array(one, dtype=int) for one in lists], [set(one) for one in lists]]
    answers = [ask(V, D, PAIRS, kind, baskets=way) for way in ways]
    for answer in answers[1:]:
        for one, other in zip(answer, answers[0], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)


def test_results_do_not_depend_on_threads():
    rng = np.random.default_rng(1)
    many = [rng.choice(50, size=rng.integers(0, 6), replace=False) for _ in range(300)]
    wide = rng.normal(size=(50, 8))
    one, two = (cd.log_likelihood_and_gradient(wide, many, kind="conditional", n_jobs=n) for n in (1, 2))
    assert one.values.tobytes() == two.values.tobytes()
    assert one.V.tobytes() == two.V.tobytes()


def test_float32_stays_float32_and_is_close():
    single = ask(V.astype(np.float32), D, PAIRS, "joint")
    assert single.V.dtype == np.float32
    np.testing.assert_allclose(single.V, ask(V, D, PAIRS, "joint").V, rtol=1e-4)


@pytest.mark.parametrize(
    ("how", "error", "words"),
    [
        ({"baskets": [[0, M]]}, DataError, "set 0 .* row numbers 0..6"),
        ({"baskets": [[0], [0.5]]}, DataError, "set 1"),
        ({"baskets": [["tea"]]}, DataError, "for item ids, pass Baskets"),
        ({"baskets": [0, 1]}, DataError, "list of lists"),
        ({"baskets": cd.Baskets.from_lists([["a"]])}, DataError, "7 rows"),
        ({"kind": "odd"}, ParameterError, "joint, conditional"),
        ({"kind": "choice"}, ParameterError, "offered"),
        ({"offered": [[0]]}, ParameterError, "offered"),
        ({"kind": "choice", "offered": [[0]] * 2}, DataError, "2 offered"),
        ({"sample_weight": [1.0, 2.0]}, ParameterError, "1 finite"),
        ({"diagonal": -D}, ParameterError, "diagonal"),
        ({"skew": ([0], [0], [1.0])}, ParameterError, "different"),
        ({"skew": ([0, 1], [1, 0], [1.0, 1.0])}, ParameterError, "once"),
        ({"skew": ([0], [9], [1.0])}, DataError, "skew"),
        ({"skew": ([0], [1], [np.nan])}, ParameterError, "finite"),
        ({"V": [[np.inf]]}, ParameterError, "finite"),
    ],
)
def test_bad_input_is_named(how, error, words):
    with pytest.raises(error, match=words):
        cd.log_likelihood_and_gradient(**{"V": V, "baskets": [[0, 1]], **how})
