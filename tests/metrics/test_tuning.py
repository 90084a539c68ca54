"""The tuner: finds what is better, goes on where it stopped, and refuses another study's file."""

from __future__ import annotations

import json
import shlex

import numpy as np
import pytest
from click.testing import CliRunner

import contradpp as cd
from contradpp.cli.fit import fit as fit_command
from contradpp.cli.output import program
from contradpp.cli.tune import tune as tune_command
from contradpp.errors import DataError, ParameterError
from contradpp.metrics.tuning import Trial, measured, tune

pytest.importorskip("optuna", reason="tuning needs the extra `tune`")


def shop() -> cd.Baskets:
    return cd.Baskets.from_lists([["tea", "milk"], ["coffee", "milk"], ["pasta", "sauce"], ["salt", "tea"]] * 40)


def test_a_study_goes_on_where_it_stopped(tmp_path):
    seen: list[Trial] = []
    common = {"model": "lowrank", "max_iter": 3, "storage": tmp_path / "study", "seed": 1}
    first = tune(shop(), trials=2, watch=seen.append, **common)
    assert [trial.number for trial in seen] == [0, 1]
    again = tune(shop(), trials=4, watch=seen.append, **common)
    assert [trial.number for trial in seen] == [0, 1, 2, 3]
    assert len(first) == 2
    assert len(again) == 4
    values = [trial.value for trial in again if trial.value is not None]
    assert values == sorted(values, reverse=True)
    with pytest.raises(ParameterError, match="metric"):
        tune(shop(), trials=5, metric="ndcg", **common)


def test_nonsymmetric_settings_are_searched():
    found = tune(shop(), model="nonsymmetric", trials=1, max_iter=2)
    assert {"n_components", "n_skew", "dropout", "alpha", "learning_rate"} == set(found[0].parameters)


def test_wrong_words_and_too_little_data():
    with pytest.raises(ParameterError, match="model"):
        tune(shop(), model="tree")
    with pytest.raises(ParameterError, match="metric"):
        tune(shop(), metric="accuracy")
    with pytest.raises(DataError, match="ten"):
        tune(shop().subset(list(range(3))))


def test_a_rank_gains_no_likelihood_from_baskets_that_it_cannot_hold():
    """Log-likelihoods are negative: leaving baskets out must not raise them."""
    V = np.random.default_rng(0).normal(size=(6, 4))
    small = cd.LowRankDPP.from_factors(V[:, :2])
    # The same distribution, to rounding.
    large = cd.LowRankDPP.from_factors(np.hstack([V[:, :2], np.full((6, 2), 1e-9)]))
    validation = cd.Baskets.from_lists([[0, 1], [2, 3], [0, 4], [0, 1, 2], [3, 4, 5]], items=range(6))
    of = [measured(model, validation, "log-likelihood", 1, smallest=2) for model in (small, large)]
    assert of[0] == pytest.approx(of[1])
    hits = [measured(model, validation, "mpr", 1, smallest=2) for model in (small, large)]
    assert hits[0] < hits[1]


def test_the_command_reads_a_file_as_fit_does(tmp_path):
    """Columns, quantities and names by the same options, and a command that `fit` takes as it stands."""
    rows = [
        f"{n};{item};{1 - 2 * (item == 'bag')};{item} of ours" for n, b in enumerate(shop()) for item in [*b, "bag"]
    ]
    file = tmp_path / "my orders.csv"
    file.write_text("\n".join(["order;sku;units;label", *rows]) + "\n", encoding="utf-8")
    layout = ["--format", "long", "--basket", "order", "--item", "sku", "--quantity", "units", "--name", "label"]
    words = [
        str(file),
        *layout,
        "--trials",
        "1",
        "--max-iter",
        "2",
        "--model",
        "lowrank",
        "--objective",
        "mle",
        "--json",
    ]
    done = CliRunner().invoke(tune_command, words, catch_exceptions=False)
    assert done.exit_code == 0
    command = shlex.split(json.loads(done.stdout)["command"])
    words = shlex.split(program())
    assert command[: len(words) + 2] == [*words, "fit", str(file)]
    context = fit_command.make_context("fit", command[len(words) + 1 :])
    assert {context.params[name[2:]]: name for name in layout[::2]} == dict(zip(layout[1::2], layout[::2], strict=True))
    assert (context.params["model"], context.params["objective"]) == ("lowrank", "mle")
    assert context.params["n_components"] >= 2
