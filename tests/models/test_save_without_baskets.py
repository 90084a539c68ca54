"""A file of a conditional model without its training baskets: what it tells, what still works, and what is refused."""

from __future__ import annotations

import logging
from itertools import pairwise

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import load_file

import contradpp as cd
from contradpp.cli.main import cli
from contradpp.errors import NotFittedError, ParameterError
from contradpp.experts.table import DEFAULT_EXPERTS, WITHOUT_BASKETS
from contradpp.models.conditional import nested_baskets

RNG = np.random.default_rng(3)
LISTS = [RNG.choice(9, size=RNG.integers(1, 5), replace=False, p=np.arange(9, 0, -1) / 45).tolist() for _ in range(150)]


def fitted(experts=WITHOUT_BASKETS) -> cd.ConditionalDPP:
    kernel = cd.LowRankDPP(4, max_iter=3, random_state=0)
    return cd.ConditionalDPP(kernel, experts, random_state=0, verbose=0).fit(LISTS)


@pytest.fixture(scope="module")
def model() -> cd.ConditionalDPP:
    return fitted()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


def test_the_answers_are_the_same(model, path):
    model.save(path, baskets=False)
    loaded = cd.load(path)
    for basket in ([0], [3, 1], []):
        assert loaded.predict_next(basket).tobytes() == model.predict_next(basket).tobytes()
    assert loaded.recommend([2], N=3)[0].tolist() == model.recommend([2], N=3)[0].tolist()
    assert loaded.slate([2], N=3)[0].tolist() == model.slate([2], N=3)[0].tolist()
    assert loaded.item_counts_.tolist() == model.item_counts_.tolist()
    assert loaded.n_baskets_ == model.n_baskets_
    assert cd.evaluate(loaded, LISTS[:40], min_size=2).mpr == cd.evaluate(model, LISTS[:40], min_size=2).mpr


def test_the_file_tells_counts_of_items_and_of_baskets_only(model, path):
    """Two lots of baskets with the same counts give the same sets."""
    model.save(path, baskets=False)
    tensors = load_file(path)
    indptr, indices = tensors["baskets.indptr"], tensors["baskets.indices"]
    assert len(indptr) == len(LISTS) + 1
    assert np.bincount(indices, minlength=9).tolist() == model.item_counts_.tolist()
    sets = [set(indices[a:b].tolist()) for a, b in pairwise(indptr)]
    assert all(later <= earlier for earlier, later in pairwise(sets))
    one = cd.Baskets.from_lists([["a", "b"], ["a"], ["c"], []], items=["a", "b", "c"])
    other = cd.Baskets.from_lists([["a"], ["c", "a"], ["b"], []], items=["a", "b", "c"])
    assert list(nested_baskets(one)) == list(nested_baskets(other)) == [["a", "b", "c"], ["a"], [], []]


def test_what_needs_the_baskets_says_that_they_are_missing(model, path):
    model.save(path, baskets=False)
    loaded = cd.load(path)
    assert not hasattr(loaded, "baskets_")
    for ask in (lambda: loaded.partial_fit([[0, 1]]), lambda: loaded.substitutes(0)):
        with pytest.raises(NotFittedError, match="left out of this model's file"):
            ask()
    loaded.save(path)  # still without
    assert not hasattr(cd.load(path), "baskets_")
    assert loaded.fit(LISTS).baskets_.n_baskets == len(LISTS)


@pytest.mark.parametrize("expert", ["item_knn", "basket_knn"])
def test_experts_that_learn_from_the_baskets_again_refuse(expert, path):
    assert expert in DEFAULT_EXPERTS
    model = fitted(("popularity", expert))
    with pytest.raises(ParameterError, match=rf"the experts {expert}.* need the training baskets"):
        model.save(path, baskets=False)
    assert not path.exists()
    with pytest.raises(NotFittedError):
        cd.ConditionalDPP().save(path, baskets=False)


def test_a_file_with_baskets_is_announced_once(path, caplog):
    model = fitted()
    with caplog.at_level(logging.INFO, logger="contradpp"):
        model.save(path, baskets=False)
        assert not caplog.records
        model.save(path)
        model.save(path)
        cd.load(path).save(path)
    assert [record.getMessage().endswith("baskets=False) leaves them out") for record in caplog.records] == [True]


def test_on_the_command_line(tmp_path, path):
    data = tmp_path / "orders.txt"
    data.write_text("\n".join(" ".join(map(str, basket)) for basket in LISTS), encoding="utf-8")
    words = ["fit", str(data), "-o", str(path), "--max-iter", "2", "--n-clusters", "1", "--no-baskets"]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    assert "no-baskets = true" in path.with_suffix(".toml").read_text(encoding="utf-8")
    loaded = cd.load(path)
    assert not hasattr(loaded, "baskets_")
    assert CliRunner().invoke(cli, ["info", str(path)]).exit_code == 0
