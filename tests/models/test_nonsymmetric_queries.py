"""The public interface of a nonsymmetric DPP, against enumeration of all subsets, in files and at its edges."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
import scipy.sparse

import contradpp as cd
from contradpp.data.sets import Sets
from contradpp.dpp import files as persist
from contradpp.dpp import sampling
from contradpp.errors import ModelFileError, NotFittedError, ParameterError, RankError, UnknownItemError
from exact import ExactDPP, chi_square_p_value

GIVEN = [(), (3,), (6, 0), (1, 2, 5)]
NAMES = ["tea", "milk", "bread", "jam", "salt", "rice", "eggs"]


@pytest.fixture
def S() -> np.ndarray:
    S = np.zeros((7, 7))
    for i, j, value in [(0, 1, 2.0), (1, 4, -1.5), (3, 6, 1.0), (0, 5, -0.5)]:
        S[i, j], S[j, i] = value, -value
    return S


@pytest.fixture
def B() -> np.ndarray:
    return np.random.default_rng(8).normal(size=(7, 2))


@pytest.fixture(params=["sparse", "low rank"])
def model(request, factors, S, B) -> cd.NonsymmetricDPP:
    if request.param == "sparse":
        return cd.NonsymmetricDPP.from_factors(factors, S=scipy.sparse.csr_array(S))
    return cd.NonsymmetricDPP.from_factors(factors, B)


@pytest.fixture
def exact(model) -> ExactDPP:
    return ExactDPP(dense(model))


def dense(model: cd.NonsymmetricDPP) -> np.ndarray:
    return model.item_factors_ @ model.kernel_.inner @ model.item_factors_.T + model.skew_.toarray()


def counted_p_value(drawn, law: dict[tuple[int, ...], float]) -> float:
    counts = Counter(tuple(sorted(basket)) for basket in drawn)
    observed = np.array([counts.pop(cell, 0) for cell in law])
    return 0.0 if counts else chi_square_p_value(observed, np.array(list(law.values())))


def test_the_low_rank_form_is_that_of_the_design(factors, B, S):
    J = np.array([[0.0, 1.0], [-1.0, 0.0]])
    model = cd.NonsymmetricDPP.from_factors(factors, B, S)
    np.testing.assert_allclose(dense(model), factors @ factors.T + B @ J @ B.T + S)
    with pytest.raises(ParameterError, match="even"):
        cd.NonsymmetricDPP.from_factors(factors, B[:, :1])
    with pytest.raises(ParameterError, match="7 rows"):
        cd.NonsymmetricDPP.from_factors(factors, B[:3])


def test_probabilities_of_every_subset(model, exact):
    logs = model.score_samples([list(s) for s in exact.sets])
    np.testing.assert_allclose(np.exp(logs), exact.probabilities, atol=1e-12)
    sizes = model.size_distribution()
    np.testing.assert_allclose(sizes, exact.sizes()[: len(sizes)], atol=1e-12)
    assert model.score_samples([]) == pytest.approx(-model.kernel_.log_normalizer)


@pytest.mark.parametrize("items", GIVEN)
def test_given_a_basket(model, exact, items):
    np.testing.assert_allclose(model.marginals(items), exact.marginals(items), atol=1e-9)
    np.testing.assert_allclose(model.predict_next(list(items)), exact.next_item(items), atol=1e-9)
    rest, law = model.condition(items), exact.given(items)
    assert isinstance(rest, cd.NonsymmetricDPP)
    for size in range(len(rest.items_) + 1):
        for s in itertools.combinations(rest.items_, size):
            p = np.exp(rest.score_samples([list(s)]))[0]
            assert p == pytest.approx(law[tuple(sorted([*items, *s]))], abs=1e-9)


@pytest.mark.parametrize("items", GIVEN)
def test_recommendations(model, exact, items):
    law = exact.next_item(items)
    best, shares = model.recommend(list(items), N=3)
    assert best.tolist() == np.argsort(-law, kind="stable")[:3].tolist()
    np.testing.assert_allclose(shares, law[best], atol=1e-9)
    chosen, shares = model.recommend(list(items), N=9, candidates=[6, 1, 4, 1])
    assert set(chosen.tolist()) == {6, 1, 4} - set(items)
    np.testing.assert_allclose(shares, law[chosen.astype(int)], atol=1e-9)


def test_completion_is_greedy(model, exact):
    chosen = [2]
    while len(chosen) < 4:
        chosen.append(int(np.argmax(exact.next_item(chosen))))
    assert model.complete([2], 4) == chosen
    assert model.complete([2], 2, exclude=[chosen[1]]) != chosen[:2]


@pytest.mark.parametrize("size", [None, 3])
@pytest.mark.parametrize("fixed", [(), (5,), (4, 1)])
def test_samples_follow_the_exact_law(model, exact, fixed, size):
    drawn = model.sample(20_000, size=size, given=fixed, random_state=1)
    law = {s: p for s, p in exact.given(fixed).items() if size is None or len(s) == size}
    total = sum(law.values())
    assert counted_p_value(drawn, {s: p / total for s, p in law.items()}) > 1e-3
    assert all(tuple(basket[: len(fixed)]) == fixed for basket in drawn)


def test_one_and_two_threads_agree():
    rng = np.random.default_rng(0)
    V, S = rng.normal(size=(50, 10)), rng.normal(size=(50, 50)) * (rng.random((50, 50)) < 0.1)
    lists = [rng.choice(50, size=rng.integers(0, 9), replace=False).tolist() for _ in range(800)]
    answers = []
    for n_jobs in (1, 2):
        model = cd.NonsymmetricDPP.from_factors(V, S=S - S.T).set_params(n_jobs=n_jobs)
        answers.append(
            [
                model.score_samples(lists),
                model.sample(300, random_state=1).indices,
                model.sample(100, size=9, given=[7], random_state=1).indices,
                model.recommend(lists, N=5)[0],
                model.predict_next(lists),
            ]
        )
    for one, two in zip(*answers, strict=True):
        np.testing.assert_array_equal(one, two)


# -- Pairs -----------------------------------------------------------------------------------------


def test_complements_are_lifts(model, exact):
    items, lifts = model.complements(0, N=7)
    expected = exact.next_item((0,)) / exact.next_item(())
    assert items.tolist() == [i for i in np.argsort(-expected) if expected[i] > 1]
    np.testing.assert_allclose(lifts, expected[items], rtol=1e-8)
    assert (lifts > 1).all()
    assert model.complements(0, N=1)[0].tolist() == items[:1].tolist()


def test_complements_and_similar_items_by_name(S):
    V = np.diag([1.0, 1, 1, 1, 1, 1, 1])
    V[5, 2] = 3.0  # rice is like bread
    model = cd.NonsymmetricDPP.from_factors(V, S=S, items=NAMES)
    assert model.complements("tea")[0][0] == "milk"
    assert model.similar_items("bread")[0][0] == "rice"
    assert "tea" not in model.complements("tea", N=50)[0]
    assert "rice" not in model.complements("bread", N=50)[0]
    with pytest.raises(UnknownItemError):
        model.complements("gin")
    with pytest.raises(ParameterError, match="N must be"):
        model.complements("tea", N=0)
    nothing = cd.NonsymmetricDPP.from_factors(np.zeros((3, 1)), S=[[0, 1, 0], [-1, 0, 0], [0, 0, 0]])
    with pytest.raises(RankError, match="on its own"):
        nothing.complements(0)


# -- Files -----------------------------------------------------------------------------------------


def test_save_and_load_are_byte_equal(model, tmp_path):
    model.save(tmp_path / "a")
    again = cd.load(tmp_path / "a")
    assert isinstance(again, cd.NonsymmetricDPP)
    again.save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    np.testing.assert_array_equal(dense(again), dense(model))
    np.testing.assert_array_equal(again.predict_next([[1], [2, 3]]), model.predict_next([[1], [2, 3]]))
    assert again.sample(50, random_state=0) == model.sample(50, random_state=0)
    assert again.get_params() == model.get_params()


def test_a_conditioned_model_is_saved_too(model, tmp_path):
    rest = model.condition([0, 4])
    rest.save(tmp_path / "m")
    np.testing.assert_array_equal(cd.load(tmp_path / "m").marginals(), rest.marginals())


def test_no_more_is_saved_than_there_is(factors, tmp_path):
    cd.NonsymmetricDPP.from_factors(factors).save(tmp_path / "m")
    assert set(persist.read_model(tmp_path / "m")[0]) == {"item_factors", "items.int"}


def damaged(tensors: dict, **changes) -> dict:
    return {name: array for name, array in {**tensors, **changes}.items() if array is not None}


@pytest.mark.parametrize(
    "change",
    [
        lambda t: {"skew.values": np.abs(t["skew.values"])},
        lambda t: {"skew.values": t["skew.values"][:-1]},
        lambda t: {"skew.values": np.full_like(t["skew.values"], np.nan)},
        lambda t: {"skew.values": t["skew.values"].astype(np.int64)},
        lambda t: {"skew.values": None},
        lambda t: {"skew.indices": t["skew.indices"] + 5},
        lambda t: {"skew.indices": t["skew.indices"] - 5},
        lambda t: {"skew.indices": t["skew.indices"][None]},
        lambda t: {"skew.indptr": t["skew.indptr"][:-1]},
        lambda t: {"skew.indptr": t["skew.indptr"][::-1].copy()},
        lambda t: {"skew.indptr": t["skew.indptr"] + 1},
        lambda t: {"skew.indptr": t["skew.indptr"].astype(float)},
        lambda t: {"inner": np.eye(3)},
        lambda t: {"inner": -np.eye(4)},
        lambda t: {"inner": np.full((4, 4), np.inf)},
        lambda t: {"item_factors": t["item_factors"][:-1]},
    ],
)
def test_files_that_contradict_themselves(factors, S, tmp_path, change):
    path = tmp_path / "m"
    cd.NonsymmetricDPP.from_factors(factors, S=S).save(path)
    tensors, info = persist.read_model(path)
    for key in ("format", "version"):
        info.pop(key)
    persist.write_model(path, damaged(tensors, **change(tensors)), info)
    with pytest.raises(ModelFileError):
        cd.load(path)


# -- Bad input -------------------------------------------------------------------------------------


def test_before_there_are_parameters():
    model = cd.NonsymmetricDPP()
    for ask in (
        lambda: model.predict_next([1]),
        lambda: model.complements(1),
        lambda: model.similar_items(1),
        lambda: model.skew_,
        lambda: model.kernel_.inner,
        lambda: model.sample(),
    ):
        with pytest.raises(NotFittedError):
            ask()


def test_sizes_that_no_set_has(model):
    for ask in (
        lambda: model.sample(size=9),
        lambda: model.complete([1], 9),
        lambda: model.sample(size=0, given=[1]),
    ):
        with pytest.raises(ParameterError):
            ask()


def test_bad_factors(factors, S):
    with pytest.raises(ParameterError, match="2 items"):
        cd.NonsymmetricDPP.from_factors(factors, S=S, items=["a", "b"])
    with pytest.raises(ParameterError, match="skew-symmetric"):
        cd.NonsymmetricDPP.from_factors(factors, S=np.abs(S))
    factors[4, 1] = np.nan
    with pytest.raises(ParameterError, match="row 4"):
        cd.NonsymmetricDPP.from_factors(factors)


def test_the_callers_arrays_stay_theirs(factors, S):
    sparse = scipy.sparse.csr_array(S)
    model = cd.NonsymmetricDPP.from_factors(factors, S=sparse)
    before = model.score_samples([0, 1])
    factors[:] = 0
    sparse.data[:] = 0
    assert model.score_samples([0, 1]) == before


def test_the_skew_part_of_one_model_can_be_given_to_another():
    """It is frozen, and stays as it is."""
    V = np.random.default_rng(0).normal(size=(4, 3))
    S = np.zeros((4, 4))
    S[0, 1], S[1, 0] = 0.3, -0.3
    first = cd.NonsymmetricDPP.from_factors(V, S=S)
    again = cd.NonsymmetricDPP.from_factors(V, S=first.skew_)
    np.testing.assert_array_equal(again.skew_.toarray(), S)


def test_log_det_does_not_need_the_normalizer(monkeypatch):
    shop = cd.NonsymmetricDPP.from_factors(np.eye(3), S=[[0.0, 0.5, 0.0], [-0.5, 0.0, 0.0], [0.0, 0.0, 0.0]])
    monkeypatch.setattr("contradpp.dpp.normalizer.log_normalizer", lambda _: 1 / 0)
    assert shop.kernel_.log_det(Sets.one([0, 1]))[0] == pytest.approx(np.log(1.25))
    assert shop.kernel_.is_exact
    monkeypatch.setattr("contradpp.dpp.normalizer.MAX_DENSE_ITEMS", 1)
    assert not shop.kernel_.is_exact


# -- Beyond the size of a dense matrix -----------------------------------------------------------------


@pytest.fixture
def large(monkeypatch) -> cd.NonsymmetricDPP:
    """A model that counts as too large for a dense matrix over its items with partners."""
    rng = np.random.default_rng(0)
    S = np.triu(0.3 * rng.normal(size=(8, 8)), 1)
    model = cd.NonsymmetricDPP.from_factors(0.4 * rng.normal(size=(8, 3)), S=S - S.T, items=list("abcdefgh"))
    monkeypatch.setattr("contradpp.dpp.normalizer.MAX_DENSE_ITEMS", 4)
    return model


def test_log_probabilities_have_an_error_that_can_be_made_smaller(large):
    L = large.item_factors_ @ large.item_factors_.T + large.skew_.toarray()
    exact = np.linalg.slogdet(np.eye(8) + L)[1]
    before = large.kernel_.log_normalizer_error
    assert 0 < before < 0.1
    assert abs(large.kernel_.log_normalizer - exact) < 4 * before
    large.kernel_.refine_normalizer(before / 2)
    after = large.kernel_.log_normalizer_error
    assert after < 0.6 * before
    assert abs(large.kernel_.log_normalizer - exact) < 4 * after
    assert large.score_samples([]) == -large.kernel_.log_normalizer
    found, errors = large.kernel_.marginals_with_errors(large.items_.codes(["a"]))
    assert found[0] == 1
    assert errors[0] == 0 < errors[1:].max()
    np.testing.assert_array_equal(found, large.marginals(["a"]))
    with pytest.raises(ParameterError, match="positive"):
        large.kernel_.refine_normalizer(-1)


def test_exact_samples_say_up_to_which_size_and_what_to_do(large):
    for ask in (large.sample, lambda: large.sample(size=2, given=["a"]), large.size_distribution):
        with pytest.raises(ParameterError, match=r"here 8; the most is 4\..*method='chain'"):
            ask()
    assert not large.kernel_.is_exact
    drawn = large.sample(50, size=3, given=["c", "a"], method="chain", random_state=0)
    assert all(basket[:2] == ["c", "a"] and len(set(basket)) == 3 for basket in drawn)
    assert drawn == large.sample(50, size=3, given=["c", "a"], method="chain", random_state=0)
    assert len(large.sample(0, method="chain")) == 0
    assert large.sample(2, given=list("abcdefg"), size=7, method="chain")[1] == list("abcdefg")


def test_bad_arguments_of_a_chain(large):
    for bad in ({"method": "magic"}, {"method": "chain", "n_steps": 0}, {"method": "chain", "size": 9}):
        with pytest.raises(ParameterError):
            large.sample(**bad)


def test_samplers_are_prepared_once_and_the_last_few_are_kept(monkeypatch):
    rng = np.random.default_rng(0)
    S = np.triu(0.3 * rng.normal(size=(8, 8)), 1)
    model = cd.NonsymmetricDPP.from_factors(0.4 * rng.normal(size=(8, 3)), S=S - S.T)
    prepared = []
    plain = sampling.eliminate
    monkeypatch.setattr(sampling, "eliminate", lambda kernel: (prepared.append(1), plain(kernel))[1])
    first = model.sample(5, size=3, given=[1], random_state=0)
    assert model.sample(5, size=3, given=[1], random_state=0) == first
    assert len(prepared) == 1
    model.sample(5, size=2, given=[1])
    model.sample(5, size=3, given=[1])
    assert len(prepared) == 2
    for item in range(sampling.MAX_PREPARED):
        model.sample(5, size=3, given=[item + 2])
    assert model.sample(5, size=3, given=[1], random_state=0) == first
    assert len(prepared) == 3 + sampling.MAX_PREPARED


def test_complements_of_little_support_come_later():
    V, S = np.eye(3) * 0.05, np.zeros((3, 3))
    S[0, 1], S[1, 0], S[0, 2], S[2, 0] = 0.02, -0.02, 0.018, -0.018
    model = cd.NonsymmetricDPP.from_factors(V, S=S, items=["tea", "rare", "milk"], diagonal=np.full(3, 1e-4))
    assert model.complements("tea")[0].tolist() == ["rare", "milk"]  # by lift alone where nothing is known of counts
    model.item_counts_, model.n_baskets_ = np.array([500.0, 2.0, 400.0]), 1000.0
    items, lift = model.complements("tea")
    assert items.tolist() == ["milk", "rare"]
    assert lift[1] > lift[0]


def of_bread(*lifts: tuple[str, float, int]) -> cd.NonsymmetricDPP:
    """A shop of 300 items, and what bread goes with: about how much, and how often that sells."""
    n = 300
    S = np.zeros((n, n))
    for item, (_, lift, _) in enumerate(lifts, start=1):
        S[0, item] = 0.05**2 * np.sqrt(lift - 1)
    names = ["bread", *(name for name, _, _ in lifts)]
    model = cd.NonsymmetricDPP.from_factors(np.eye(n) * 0.05, S=S - S.T, items=[*names, *range(n - len(names))])
    model.item_counts_, model.n_baskets_ = np.full(n, 500.0), 20_000.0
    model.item_counts_[: len(names)] = [2400, *(sold for _, _, sold in lifts)]
    return model


def test_the_luckiest_of_many_items_is_no_first_complement():
    """Batteries, with bread 20 times where 7 were to be expected, stood before ham: the bound was that of one pair."""
    items, lift = of_bread(("batteries", 2.8, 54), ("ham", 1.95, 576)).complements("bread")
    assert items.tolist() == ["ham", "batteries"]
    assert lift[1] > 1.4 * lift[0]


def test_no_complement_is_counted_more_often_than_it_was_sold():
    """Incense, sold three times, had the lift of 27 times together, and stood before what was together 500 times."""
    items, lift = of_bread(("incense", 251, 3), ("jam", 46, 970)).complements("bread")
    assert items.tolist() == ["jam", "incense"]
    assert lift[1] > 5 * lift[0]


def test_no_lift_counts_for_more_than_the_sales_allow():
    """Incense, sold three times, each time with bread, cannot have met it more often than that, whatever its lift."""
    items, lift = of_bread(("incense", 251, 3), ("jam", 5, 970)).complements("bread")
    assert items.tolist() == ["jam", "incense"]
    assert lift[1] > 40 * lift[0]
