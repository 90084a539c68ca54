"""`contradpp compare`: models side by side on a shop's own baskets, and what to make of it in words."""

from __future__ import annotations

import json
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import numpy as np
import pytest

import contradpp as cd
from contradpp.cli import compare as command
from contradpp.cli.output import program

BASELINES = ("--models", "itemknn,regression")
PAIRS = [("tea", "milk"), ("pasta", "sauce"), ("soap", "towel"), ("ink", "pen"), ("nut", "bolt")]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """Orders of two things that go together, so that the right answer is known; popularity knows nothing."""
    path = tmp_path_factory.mktemp("shop") / "pairs.dat"
    path.write_text("\n".join(" ".join(pair) for pair in PAIRS * 60) + "\n")
    return path


def test_all_models_on_orders(call, orders):
    shown = call("compare", orders, "--random-state", 1, code=0)
    assert shown.err == ""
    assert "240 baskets of 4 items. The models learn from 192 of them and are measured on 48 others." in shown.out
    for label in ("Popularity", "ItemKNN", "EASE", "NonsymmetricDPP", "ConditionalDPP", "top 1 over Popularity"):
        assert label in shown.out
    assert "\x1b" not in shown.out


def test_the_best_is_named_and_how_to_learn_it(call, pairs):
    shown = call("compare", pairs, "--models", "conditional")
    (said,) = (line for line in shown.out.splitlines() if line.startswith("ConditionalDPP suggests best"))
    assert "the first 2 suggestions of ConditionalDPP in 100.0 % of cases" in said
    assert "points over Popularity is more than chance explains." in said
    assert f"Try       {program()} fit {pairs} -o model.safetensors\n" in shown.out
    assert "In Python" not in shown.out


def test_what_baskets_cannot_tell_apart_is_not_told_apart(call, pairs):
    shown = call("compare", pairs, *BASELINES)
    assert "ItemKNN and EASE suggest best, and these baskets cannot tell them apart" in shown.out
    assert "may be chance" in shown.out
    assert "In Python contradpp.baselines.ItemKNN(shrinkage=" in shown.out
    alike = pairs.with_name("alike.dat")
    rng = np.random.default_rng(0)
    alike.write_text("\n".join(" ".join(map(str, rng.permutation(12)[:3])) for _ in range(100)))
    assert "Nothing is clearly better here than Popularity" in call("compare", alike, *BASELINES).out
    assert "Nothing else was measured" in call("compare", alike, "--models", "popularity").out


def test_json_has_the_paired_intervals_of_compare(call, pairs):
    shown = call("compare", pairs, *BASELINES, "--json", "--test-size", 0.1, "--random-state", 7)
    found = json.loads(shown.out)
    assert shown.err == ""
    assert found["baskets"] == {"learned": 270, "held_out": 30}
    assert found["left_out"].keys() <= {"als"}
    assert found["seconds"].keys() == found["settings"].keys() == {"Popularity", "ItemKNN", "EASE"}
    assert found["leaders"] == ["ItemKNN", "EASE"]
    train, test = cd.read_baskets(pairs).split(30, random_state=7)
    models = {
        "Popularity": cd.baselines.Popularity(),
        "ItemKNN": cd.baselines.ItemKNN(**found["settings"]["ItemKNN"]),
        "EASE": cd.baselines.EASE(**found["settings"]["EASE"]),
    }
    fitted = {name: model.fit(train) for name, model in models.items()}
    expected = cd.compare(fitted, test, train=train, ks=(1, 2), random_state=7, min_size=2)
    assert found["models"] == json.loads(json.dumps(expected.as_dict()))


def test_settings_are_not_chosen_on_test_baskets(call, pairs, monkeypatch):
    """They are chosen on training baskets, of which there must be enough to choose by."""
    asked = []
    monkeypatch.setattr(
        command, "validated", lambda models, train, *_, **__: asked.append(train) or [0.0] * len(models)
    )
    assert call("compare", pairs, *BASELINES).code == 0
    assert [train.n_baskets for train in asked] == [240, 240]
    assert call("compare", pairs, *BASELINES, "--test-size", 0.8).code == 0
    assert len(asked) == 2


def test_columns_are_named_as_for_fit_and_kept_in_its_call(call, tmp_path):
    rows = [f"{number},{item},{item}" for number, pair in enumerate(PAIRS * 30) for item in pair]
    (tmp_path / "till.csv").write_text("\n".join(["receipt,plu,thing", *rows]))
    words = ("--basket", "receipt", "--item", "plu", "--models", "kernel")
    shown = call("compare", tmp_path / "till.csv", *words, code=0)
    assert "-o model.safetensors --basket receipt --item plu --model nonsymmetric" in shown.out


@pytest.mark.parametrize(
    ("n", "words", "code", "said"),
    [
        (9, [], 1, "at least 50 baskets of two or more items, got 45"),
        (12, ["--test-size", "0.1"], 1, "6 of the held-out baskets have two or more items"),
        (12, ["--test-size", "0.1"], 1, "On the command line: --test-size."),
        (12, ["--test-size", "1"], 2, "--test-size"),
        (12, ["--models", "magic"], 2, "there are: popularity, itemknn"),
        (12, ["--basket", "order"], 1, "--basket"),
    ],
)
def test_errors(call, tmp_path, n, words, code, said):
    (tmp_path / "few.csv").write_text("\n".join(",".join(pair) for pair in PAIRS * n) + "\nalone\n" * 9)
    shown = call("compare", tmp_path / "few.csv", *words)
    assert shown.code == code
    assert said in shown.err
    assert shown.out == ""


def test_a_model_that_cannot_learn_is_left_out_with_its_reason(call, pairs, monkeypatch):
    def fail(*_, **__):
        raise cd.errors.NumericalError("singular")

    monkeypatch.setattr(cd.baselines.EASE, "fit", fail)
    assert "Left out: regression (singular)." in call("compare", pairs, *BASELINES, code=0).out


def test_a_large_catalogue_gets_the_regression_that_fits_in_memory(monkeypatch):
    assert command.regression(5000, None).label == "EASE"
    assert command.regression(10**6, None).label == "RidgeNeighbors"
    monkeypatch.setattr(command, "free_memory", lambda: 1e8)
    assert command.regression(5000, None).label == "RidgeNeighbors"


class Factors:
    """What stands for `AlternatingLeastSquares`: the factors are the rows of the co-occurrences."""

    def __init__(self, random_state, **settings):
        self.__dict__.update(settings)

    def fit(self, users, show_progress):
        self.item_factors = (users.T @ users).toarray()
        self.user_factors = users @ self.item_factors

    def recommend(self):
        """It could."""


def test_als_takes_part_where_implicit_is_installed(call, pairs, monkeypatch):
    modules = {name: ModuleType(name) for name in ("implicit", "implicit.als")}
    for name, module in modules.items():
        module.__spec__ = ModuleSpec(name, None)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(modules["implicit.als"], "AlternatingLeastSquares", Factors, raising=False)
    shown = call("compare", pairs, "--models", "als", code=0)
    assert "implicit ALS suggests best" in shown.out
    assert "In Python contradpp.baselines.Implicit(Factors(factors=64, regularization=10.0, alpha=1.0))" in shown.out
    monkeypatch.setitem(sys.modules, "implicit", None)
    shown = call("compare", pairs, "--models", "als")
    assert "Left out: als (`pip install implicit` adds it)." in shown.out
