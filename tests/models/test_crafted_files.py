"""Model files that someone crafted: whole, with a right checksum, and refused all the same, or harmless."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

import contradpp as cd
from contradpp.dpp import files
from contradpp.errors import ModelFileError, ParameterError

BASKETS = [["tea", "milk"], ["tea", "milk", "sugar"], ["pasta", "sauce"], ["pasta", "sauce", "cheese"]] * 20


@pytest.fixture(scope="module")
def contents(tmp_path_factory) -> tuple[dict[str, Any], dict[str, Any]]:
    path = tmp_path_factory.mktemp("crafted") / "model.safetensors"
    kernel = cd.NonsymmetricDPP(n_components=2, max_iter=1)
    cd.ConditionalDPP(kernel, random_state=0).fit(BASKETS).save(path)
    return files.read_model(path)


@pytest.fixture
def crafted(tmp_path, contents) -> Callable[[Callable[[dict[str, Any], dict[str, Any]], None]], Any]:
    def load(change: Callable[[dict[str, Any], dict[str, Any]], None]) -> Any:
        tensors, info = dict(contents[0]), copy.deepcopy(contents[1])
        change(tensors, info)
        files.write_model(tmp_path / "crafted.safetensors", tensors, info)
        return cd.load(tmp_path / "crafted.safetensors")

    return load


@pytest.mark.parametrize("part", ["indptr", "columns", "values"])
def test_rows_of_weights_are_lists_of_numbers(crafted, part):
    def change(tensors, info):
        tensors[f"expert.ridge.{part}"] = tensors[f"expert.ridge.{part}"].reshape(-1, 1)

    with pytest.raises(ModelFileError, match="rows of weights"):
        crafted(change)


@pytest.mark.parametrize(
    "change", [lambda w: w[:-1], lambda w: np.full_like(w, np.nan), lambda w: w[None], lambda w: w + 1e38]
)
@pytest.mark.parametrize("part", ["weights", "base"])
def test_weights_of_pairs_are_those_of_all_items(crafted, part, change):
    def damage(tensors, info):
        tensors[f"expert.loglinear.{part}"] = change(tensors[f"expert.loglinear.{part}"])

    with pytest.raises(ModelFileError, match="weights of pairs are damaged"):
        crafted(damage)


@pytest.mark.parametrize("words", [["nonsense"], [3], None])
def test_experts_that_nobody_knows_are_refused(crafted, words):
    def change(tensors, info):
        info["expert_names"] = words

    with pytest.raises(ModelFileError):
        crafted(change)


def test_weights_that_would_overflow_are_refused(crafted):
    def change(tensors, info):
        tensors["theta"] = np.full_like(tensors["theta"], 1e300)

    with pytest.raises(ModelFileError, match="weights are no numbers, or too large"):
        crafted(change)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("temperature", lambda x: x[:2]),
        ("products.center", lambda x: x[:-1]),
        ("products.spread", lambda x: np.zeros_like(x)),
        ("products.spread", lambda x: np.full_like(x, np.nan)),
        ("temperature", lambda x: np.full_like(x, np.inf)),
        ("theta", lambda x: x[:, :-1]),
    ],
)
def test_weights_that_fit_no_experts_are_refused(crafted, name, change):
    def damage(tensors, info):
        tensors[name] = np.ascontiguousarray(change(tensors[name]))

    with pytest.raises(ModelFileError, match="its weights"):
        crafted(damage)


def test_weights_in_single_precision_are_read(crafted):
    def change(tensors, info):
        tensors["theta"] = tensors["theta"].astype(np.float32)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shares = crafted(change).predict_next(["tea"])
    assert shares.sum() == pytest.approx(1)


def test_counts_that_would_overflow_are_refused(crafted):
    def change(tensors, info):
        tensors["item_counts"] = np.full_like(tensors["item_counts"], 1e307)

    with pytest.raises(ModelFileError, match="item counts"):
        crafted(change)


@pytest.mark.parametrize("name", ["max_postings", "n_neighbors", "power", "shrinkage"])
def test_parameters_of_experts_that_no_number_can_hold(crafted, name):
    def change(tensors, info):
        next(expert for expert in info["experts"] if expert["name"] == "basket_knn")["params"][name] = 2**70

    with pytest.raises(ModelFileError, match=name):
        crafted(change)


def test_so_are_those_that_a_user_passes():
    with pytest.raises(ParameterError, match="smoothing must be a number of at least 0 and at most"):
        cd.baselines.Popularity(smoothing=1e308).fit(BASKETS)


@pytest.mark.parametrize("n_known", [0, -1, 7, 2**70])
def test_experts_know_no_more_items_than_there_are(crafted, n_known):
    def change(tensors, info):
        info["cold_start"] = {"n_known": n_known, "decay": 0.0, "n_fitted": 6, "rank": None}

    with pytest.raises(ModelFileError, match="its experts know"):
        crafted(change)


def test_an_item_of_which_the_share_underflows_is_explained(crafted):
    def change(tensors, info):
        tensors["theta"] = tensors["theta"] * 0.0
        tensors["theta"][0, 0] = 1e6  # of log popularity

    model = crafted(change)
    basket, item = ["tea"], "cheese"
    shares = model.predict_next(basket)
    assert shares[model.items_.code(item)] == 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        explained = model.explain(basket, item)
    assert -np.inf < explained.log_probability < -700


def test_factors_whose_squares_underflow_are_sampled_as_nothing():
    model = cd.LowRankDPP.from_factors(np.full((4, 2), 1e-300) * [[1, 2], [2, 1], [1, 1], [3, 1]])
    assert [len(basket) for basket in model.sample(5, random_state=0)] == [0] * 5


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_is_no_model_file(tmp_path):
    os.mkfifo(tmp_path / "pipe.safetensors")
    with pytest.raises(ModelFileError, match="it is a pipe or a device"):
        cd.load(tmp_path / "pipe.safetensors")  # to open it would wait for someone who writes


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="no devices here")
def test_a_device_without_an_end_is_no_model_file(monkeypatch):
    monkeypatch.setattr("pathlib.Path.read_bytes", lambda _: pytest.fail("it was read"))
    with pytest.raises(ModelFileError, match="it is a pipe or a device"):
        cd.load("/dev/zero")


@pytest.fixture
def featured(tmp_path) -> Callable[[Callable[[dict[str, Any], dict[str, Any]], None]], Any]:
    features = {
        "brand": dict.fromkeys(["tea", "milk", "sugar"], "x") | dict.fromkeys(["pasta", "sauce", "cheese"], "y")
    }
    model = cd.NonsymmetricDPP(n_components=2, max_iter=1).fit(BASKETS, item_features=pd.DataFrame(features))
    model.save(tmp_path / "features.safetensors")
    tensors, info = files.read_model(tmp_path / "features.safetensors")

    def load(change: Callable[[dict[str, Any], dict[str, Any]], None]) -> Any:
        change(tensors, info)
        files.write_model(tmp_path / "crafted.safetensors", tensors, info)
        return cd.load(tmp_path / "crafted.safetensors")

    return load


def test_features_that_would_overflow_are_refused(featured):
    def change(tensors, info):
        tensors["features.values"] = np.full_like(tensors["features.values"], 1e30)

    with pytest.raises(ModelFileError, match="features are damaged"):
        featured(change)


@pytest.mark.parametrize("width", [2**70, 1e308])
def test_a_width_that_no_number_can_hold(featured, width):
    def change(tensors, info):
        info["features"]["blocks"][0]["width"] = width

    with pytest.raises(ModelFileError):
        featured(change)


def test_a_new_item_is_not_promised_more_than_a_kernel_holds(featured):
    def change(tensors, info):
        info["features"]["center"] = 1e6

    model = featured(change)
    with pytest.raises(ParameterError, match="more sales than a kernel can hold"):
        model.add_items(["rice"], pd.DataFrame({"brand": {"rice": "y"}}))


@pytest.mark.parametrize("decay", [-1.0, float("nan"), float("inf")])
def test_what_is_known_of_new_items_fades_by_a_number(tmp_path, decay):
    brands = dict.fromkeys(["tea", "milk", "sugar"], "x") | dict.fromkeys(["pasta", "sauce", "cheese"], "y")
    model = cd.ConditionalDPP(cd.NonsymmetricDPP(n_components=2, max_iter=1), random_state=0)
    model.fit(BASKETS, item_features=pd.DataFrame({"brand": brands})).save(tmp_path / "whole.safetensors")
    tensors, info = files.read_model(tmp_path / "whole.safetensors")
    info["cold_start"]["decay"] = decay
    files.write_model(tmp_path / "crafted.safetensors", tensors, info)
    with pytest.raises(ModelFileError, match="decay is"):
        cd.load(tmp_path / "crafted.safetensors")


@pytest.mark.parametrize("name", ["codes", "vectors"])
@pytest.mark.parametrize(
    "change", [lambda a: a.reshape(-1, 1, 1), lambda a: a[:-1], lambda a: a.ravel()[0], lambda a: a - 10**9]
)
def test_vectors_of_slates_fit_the_items(tmp_path, name, change):
    model = cd.LowRankDPP.from_factors(np.eye(6, 3))
    model.save(tmp_path / "model")
    tensors, info = files.read_model(tmp_path / "model")
    tensors["slates.codes"] = np.arange(3)
    tensors["slates.vectors"] = np.full((3, 2), 0.5, dtype=np.float32)
    info |= {"slates": 3}
    files.write_model(tmp_path / "model", tensors, info)
    assert len(cd.load(tmp_path / "model").slate([0], N=3)[0]) == 3
    tensors[f"slates.{name}"] = change(tensors[f"slates.{name}"])
    files.write_model(tmp_path / "model", tensors, info)
    try:
        loaded = cd.load(tmp_path / "model")
    except ModelFileError:
        return
    assert len(loaded.slate([0], N=3)[0]) == 3
