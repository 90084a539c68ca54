"""`DPP`, a given kernel: every answer against the enumeration of all sets."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.stats import binom
from sklearn.base import clone

import contradpp as cd
from contradpp.dpp.kernel import Kernel
from contradpp.errors import DataError, NotFittedError, ParameterError, RankError, UnknownItemError
from exact import ExactDPP, chi_square_p_value

M = 6
RNG = np.random.default_rng(0)
A = RNG.normal(size=(M, M))
V = RNG.normal(size=(M, 3))
D = RNG.uniform(0.1, 1.0, M)
S = 0.3 * RNG.normal(size=(M, M))
S -= S.T
L = {
    "L": A @ A.T / 3,
    "nonsymmetric L": A @ A.T / 3 + S,
    "V": V @ V.T,
    "V and D": V @ V.T + np.diag(D),
    "V, D and S": V @ V.T + np.diag(D) + S,
    "D": np.diag(D),
}
MODELS = {
    "L": cd.DPP(L["L"]),
    "nonsymmetric L": cd.DPP(L["nonsymmetric L"]),
    "V": cd.DPP(V=V),
    "V and D": cd.DPP(V=V, diagonal=D),
    "V, D and S": cd.DPP(V=V, diagonal=D, skew=S),
    "D": cd.DPP(diagonal=D),
}
for name in ("V and D", "V, D and S"):
    L[f"K of {name}"] = L[name]
    MODELS[f"K of {name}"] = cd.DPP(K=np.eye(M) - np.linalg.inv(np.eye(M) + L[name]))
every_kernel = pytest.mark.parametrize("name", L)


def exact(name) -> tuple[cd.DPP, ExactDPP, list[list[int]]]:
    known = ExactDPP(L[name])
    return MODELS[name], known, [list(one) for one in known.sets]


@every_kernel
def test_probabilities(name):
    model, known, sets = exact(name)
    np.testing.assert_allclose(np.exp(model.score_samples(sets)), known.probabilities, atol=1e-14)
    inclusion = [sum(p for s, p in known.table.items() if set(one) <= set(s)) for one in sets]
    np.testing.assert_allclose(np.exp(model.score_inclusion(sets)), inclusion, atol=1e-13)
    np.testing.assert_allclose(model.marginals(), known.marginals(), atol=1e-13)
    assert model.score_inclusion([]) == pytest.approx(0.0)


@every_kernel
@pytest.mark.parametrize("size", [0, 1, 3])
def test_the_k_dpp(name, size):
    model, known, sets = exact(name)
    wanted = np.array([p if len(s) == size else 0.0 for s, p in known.table.items()])
    found = model.score_samples(sets, size=size)
    np.testing.assert_allclose(np.exp(found), wanted / wanted.sum(), atol=1e-13)
    assert model.score_samples(sets[7], size=2) == model.score_samples([sets[7]], size=2)[0]


@every_kernel
def test_entropy_is_exact_for_few_items(name):
    model, known, _ = exact(name)
    p = known.probabilities[known.probabilities > 0]
    value, error = model.entropy()
    assert value == pytest.approx(-(p @ np.log(p)), abs=1e-12)
    assert error == 0.0


def test_entropy_beyond_is_within_its_errors():
    """Independent items, whose entropy is a sum."""
    p = np.random.default_rng(1).uniform(0.05, 0.6, 40)
    value, error = cd.DPP(diagonal=p / (1 - p)).entropy(4000, random_state=0)
    truth = -(p @ np.log(p) + (1 - p) @ np.log(1 - p))
    assert 0 < error < 0.1
    assert abs(value - truth) < 4 * error


@every_kernel
def test_conditioning_on_items_in_and_out(name):
    model, known, _ = exact(name)
    given = model.condition([1], without=[4, 0])
    assert list(given.items_) == [2, 3, 5]
    inside = {s: p for s, p in known.table.items() if 1 in s and not {4, 0} & set(s)}
    found = np.exp(given.score_samples([[i for i in s if i != 1] for s in inside]))
    np.testing.assert_allclose(found, np.array(list(inside.values())) / sum(inside.values()), atol=1e-13)
    nothing = model.condition()
    np.testing.assert_allclose(nothing.marginals(), model.marginals(), atol=1e-14)


@every_kernel
def test_samples(name):
    model, known, _ = exact(name)
    places = {s: n for n, s in enumerate(known.sets)}
    drawn = model.sample(4000, random_state=0)
    counts = np.bincount([places[tuple(sorted(one))] for one in drawn], minlength=len(places))
    assert chi_square_p_value(counts, known.probabilities) > 1e-4
    other = ExactDPP(np.diag(np.diagonal(L[name]))).probabilities
    if name != "D":  # a sampler of independent items would be noticed
        assert chi_square_p_value(counts, other) < 1e-4


@every_kernel
@pytest.mark.parametrize("size", [None, 1, 2, 3])
def test_the_bound_is_above_the_mode_and_the_greedy_set_below(name, size):
    model, known, _ = exact(name)
    allowed = [p for s, p in known.table.items() if size in (None, len(s))]
    found = model.most_probable(size)
    assert found.log_probability == pytest.approx(model.score_samples(found.items))
    assert found.log_probability <= np.log(max(allowed)) + 1e-12
    assert found.bound >= np.log(max(allowed)) - 1e-12
    assert size in (None, len(found.items))


@every_kernel
def test_the_bound_given_items(name):
    model, known, _ = exact(name)
    found = model.most_probable(3, given=[2])
    assert found.items[0] == 2
    best = max(p for s, p in known.table.items() if 2 in s and len(s) == 3)
    assert found.log_probability - 1e-12 <= np.log(best) <= found.bound + 1e-12
    assert model.most_probable(M if name != "V" else 3).bound < np.inf


def test_the_bound_is_reached_for_independent_items():
    found = MODELS["D"].most_probable(2)
    assert found.bound == pytest.approx(found.log_probability)


# -- Marginal kernels ------------------------------------------------------------------------------


def test_a_projection_dpp():
    """Sets of its rank have the probabilities det K_A, all others none."""
    P = np.linalg.qr(RNG.normal(size=(8, 3)))[0]
    K = P @ P.T
    model = cd.DPP(K=K)
    np.testing.assert_allclose(model.size_distribution()[:4], [0, 0, 0, 1], atol=1e-9)
    sets = [[0, 1, 2], [1, 4, 7], [2, 3, 5]]
    wanted = [np.linalg.det(K[np.ix_(one, one)]) for one in sets]
    np.testing.assert_allclose(np.exp(model.score_samples(sets)), wanted, rtol=1e-8)
    np.testing.assert_allclose(np.exp(model.score_inclusion(sets)), wanted, rtol=1e-8)
    assert set(map(len, model.sample(500, random_state=0))) == {3}


def test_k_is_kept():
    K = MODELS["V, D and S"].K
    np.testing.assert_allclose(cd.DPP(K=K).K, K, atol=1e-13)


def test_inclusion_of_rare_items_keeps_its_digits():
    """P(A ⊆ Y) of three items that are together once in 10²¹, against 50 digits."""
    rare = 1e-4 * RNG.normal(size=(5, 3))
    with mpmath.workdps(50):
        X = mpmath.matrix(rare.tolist())
        whole = X * X.T
        K = whole * mpmath.inverse(mpmath.eye(5) + whole)
        exact = float(mpmath.log(mpmath.det(K[:3, :3])))
    assert cd.DPP(V=rare).score_inclusion([0, 1, 2]) == pytest.approx(exact, abs=1e-8)


def test_a_k_dpp_far_from_the_scale_of_the_kernel_keeps_its_digits():
    """Sets of 5 of a kernel that expects 0.005 items, with a diagonal, by log-binomials."""
    model = cd.DPP(diagonal=np.full(600, 1e-5))
    count = 1 / binom(600, 0.5).pmf(5) * 0.5**600
    assert model.score_samples(list(range(5)), size=5) == pytest.approx(np.log(count), rel=1e-9)


# -- The class -------------------------------------------------------------------------------------


def test_it_has_the_methods_of_a_model(tmp_path):
    model = cd.DPP(V=V, diagonal=D, skew=S, items=list("abcdef"), n_jobs=1)
    assert model.recommend(["a"], N=2)[0].shape == (2,)
    assert len(model.complete(["a"], 3)) == 3
    assert len(model.slate(["a"], N=3)[0]) == 3
    model.save(tmp_path / "kernel.safetensors")
    again = cd.load(tmp_path / "kernel.safetensors")
    for other in (again, clone(model)):
        assert type(other) is cd.DPP
        assert other.score_samples([["a", "f"]]).tobytes() == model.score_samples([["a", "f"]]).tobytes()
    assert clone(model).n_jobs == 1  # a file does not hold it
    assert model.get_params() == {"n_jobs": 1}
    assert isinstance(model.kernel_, Kernel)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"L": np.eye(2), "V": np.eye(2)}, "one of L, K and V"),
        ({"L": np.eye(2), "skew": np.zeros((2, 2))}, "go with V"),
        ({"L": [[1.0, 2.0], [2.0, 1.0]]}, "positive semi-definite"),
        ({"K": 2 * np.eye(2)}, "eigenvalues from 0 to 1"),
        ({"K": -np.eye(2)}, "eigenvalues from 0 to 1"),
        ({"K": [[1.0, 0.5], [0.0, 0.5]]}, "I − K is singular"),
        ({"K": [1.0]}, "square"),
        ({"K": [[0.5, np.nan], [np.nan, 0.5]]}, r"K\[0, 1\] is nan"),
        ({"K": [[3.0, 0.0], [0.0, 1.0]]}, "likelihood kernel is passed as L"),
        ({"L": csr_array(np.eye(2))}, r"L\.toarray"),
        ({"diagonal": [-1.0]}, "diagonal"),
        ({"V": np.eye(2), "items": ["a"]}, "1 items"),
    ],
)
def test_what_is_no_kernel_is_refused(how, words):
    with pytest.raises(ParameterError, match=words):
        cd.DPP(**how)


@pytest.mark.parametrize(
    ("ask", "error", "words"),
    [
        (lambda m: m.condition([1], without=[1]), ParameterError, "both"),
        (lambda m: m.condition([0, 1, 2], without=[3, 4, 5]), ParameterError, "no items are left"),
        (lambda m: m.condition(without=["x"]), UnknownItemError, "'x'"),
        (lambda m: m.score_samples([0], size=4), RankError, "size=4"),
        (lambda m: m.score_samples([0], size=-1), ParameterError, "size"),
        (lambda m: m.most_probable(7), RankError, "size=7"),
        (lambda m: m.most_probable(1, given=[0, 1]), ParameterError, "given items"),
        (lambda m: m.score_inclusion("ab"), DataError, "list of items"),
        (lambda m: cd.DPP(diagonal=np.ones(20)).entropy(1), ParameterError, "n_samples"),
        (lambda m: cd.DPP().marginals(), NotFittedError, "DPP"),
    ],
)
def test_bad_questions_are_named(ask, error, words):
    with pytest.raises(error, match=words):
        ask(MODELS["V"])


def test_a_complex_matrix_is_refused():
    with pytest.raises(ParameterError, match="L must be a square matrix of real numbers"):
        cd.DPP(L=np.array([[1.0, 0.5j], [-0.5j, 1.0]]))


def test_the_repr_shows_the_size():
    assert repr(cd.DPP(V=np.ones((5, 2)))) == "DPP(5 items, n_components=2)"
    assert repr(cd.DPP()) == "DPP()"
