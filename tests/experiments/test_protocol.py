"""The protocol says what the paper says, and the published numbers are those of the paper."""

from __future__ import annotations

import pytest

from contradpp.data import datasets
from contradpp.errors import ParameterError
from experiments import protocol
from experiments.paper.published import PRINTED, RUNTIMES, Number
from experiments.protocol import Protocol, tasks_of, tasks_of_all


def test_ranks_and_hyperparameters_are_those_printed():
    assert {protocol.DATA[name].n_components for name in protocol.AMAZON} == {30}
    assert protocol.DATA["uk"].n_components == 100
    assert protocol.DATA["belgian"].n_components == 76
    assert (protocol.ALPHA, protocol.RATIO, protocol.TEST_SHARE) == (1.0, 0.5, 0.2)
    assert set(protocol.DATA) <= set(datasets.names())
    estimator = tasks_of("table-uk", Protocol())[0].estimator
    assert (estimator["alpha"], estimator["negative_ratio"], estimator["contrast"]) == (1.0, 0.5, 1.0)


@pytest.mark.parametrize("target", protocol.TARGETS)
def test_every_target_has_tasks_with_names_of_their_own(target):
    tasks = tasks_of(target, Protocol(trials=2))
    assert tasks
    assert len({task.name for task in tasks}) == len(tasks)
    assert {task.trial for task in tasks} >= ({0} if target in ("slates", "cold-start") else {0, 1})


def test_quick_is_one_trial_and_a_part_of_the_full_run():
    quick, full = (set(tasks_of("all", Protocol(quick=one))) for one in (True, False))
    assert quick < full
    assert {task.trial for task in quick if task.kind != "toy"} == {0}
    assert len({task.trial for task in quick if task.kind == "toy"}) == 3
    assert len({task.trial for task in full if task.kind == "toy"}) == protocol.TOY_RUNS


def test_targets_share_what_they_have_in_common():
    table, ablation = (set(tasks_of(t, Protocol())) for t in ("table-amazon", "ablation-alpha"))
    assert table & ablation
    assert len(tasks_of_all(["table-amazon", "ablation-alpha"], Protocol())) == len(table | ablation)
    assert set(tasks_of("table-amazon/feeding", Protocol())) < table


def test_ablations_vary_what_they_say():
    alphas = {task.alpha for task in tasks_of("ablation-alpha", Protocol())}
    ratios = {task.ratio for task in tasks_of("ablation-ratio", Protocol())}
    assert alphas == {0.0, 0.01, 0.1, 1.0, 10.0}
    assert ratios == {0.25, 0.5, 1.0, 2.0}
    assert {task.method for task in tasks_of("ablation-ratio", Protocol())} == {"explicit", "dynamic"}


def test_published_numbers():
    uk, belgian, amazon = (PRINTED[f"table-{name}"] for name in ("uk", "belgian", "amazon"))
    assert uk.absolute("mle", "mpr_paper") == 80.07
    assert uk.absolute("explicit", "mpr_paper") == pytest.approx(83.82)
    assert uk.absolute("nce", "mpr_paper") is None
    assert belgian.absolute("dynamic", "mpr_paper") == pytest.approx(89.06)
    assert belgian.absolute("explicit", "auc") == pytest.approx(0.9867)
    assert amazon.improvement["nce"]["precision@1"] == Number(0.20, 1.75)
    assert RUNTIMES["nce"].value / RUNTIMES["mle"].value == pytest.approx(33.2, abs=0.1)
    for table in PRINTED.values():
        assert all(gains.keys() == set(table.metrics) for gains in table.improvement.values())


def test_a_wrong_protocol_or_target_is_refused():
    for wrong in ({"settings": "best"}, {"trials": 0}, {"models": ("magic",)}):
        with pytest.raises(ParameterError):
            Protocol(**wrong)
    with pytest.raises(ParameterError, match=r"table-uk.*ablation-ratio"):
        tasks_of("table-nowhere", Protocol())
