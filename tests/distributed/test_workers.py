"""Workers in threads, without Ray: they learn what one machine learns, and no wait is without end."""

from __future__ import annotations

import pickle
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import contradpp as cd
from contradpp.distributed import learning
from contradpp.distributed.learning import Worker, refuse_unsupported
from contradpp.distributed.shards import Exchange
from contradpp.errors import CheckpointError, ClusterError, ParameterError, RankError
from contradpp.learn import optimizers
from distributed import threads
from distributed.threads import TIMEOUT, in_threads, one_machine, task_of, together

PAIRS = {"n_skew": 8, "dropout": 0.2}


def compare(model, whole, atol=1e-9):
    """The same model, up to rounding."""
    assert model.items_ == whole.items_
    np.testing.assert_allclose(model.item_factors_, whole.item_factors_, rtol=0, atol=atol)
    np.testing.assert_array_equal(model.item_counts_, whole.item_counts_)
    scores = [[record["validation"] for record in one.history_] for one in (model, whole)]
    np.testing.assert_allclose(scores[0], scores[1], atol=1e-9)


# -- What comes out ----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize(
    "parameters",
    [
        {"objective": "dynamic"},
        {"objective": "exact"},
        {"objective": "mle"},
        {"objective": "mle", "optimizer": "nesterov"},
        {"objective": "nce", "calibrate": "discrimination"},
        {"objective": "product", "contrast": 0.5},
        {"objective": "dynamic", "n_components": 3, "oversize": "clip"},
        {"objective": "dynamic", "n_components": 4, "oversize": "drop"},
        {"objective": "explicit"},
        {"objective": "exact", "optimizer": "robbins-monro", "init": "uniform", "monitor": "likelihood"},
    ],
    ids=lambda p: "-".join(map(str, p.values())),
)
def test_any_number_of_workers_learns_what_one_machine_learns(folder, tmp_path, n, parameters):
    whole = one_machine(folder, parameters)
    first, *others = together(folder, n, task_of(folder, tmp_path, parameters, every="1000s"))
    assert others == [None] * (n - 1)
    compare(first, whole)
    if n == 1:
        assert first.item_factors_.tobytes() == whole.item_factors_.tobytes()


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("objective", ["exact", "dynamic", "mle"])
def test_kernels_that_attract(folder, tmp_path, n, objective):
    kind, parameters = cd.NonsymmetricDPP, PAIRS | {"objective": objective}
    whole = one_machine(folder, parameters, kind=kind)
    first, *_ = together(folder, n, task_of(folder, tmp_path, parameters, kind=kind, every="1000s"))
    compare(first, whole)
    np.testing.assert_allclose(first.skew_.toarray(), whole.skew_.toarray(), rtol=0, atol=1e-9)
    basket = list(whole.items_)[:3]
    assert first.recommend(basket, N=5)[0].tolist() == whole.recommend(basket, N=5)[0].tolist()


def test_of_an_enormous_basket_workers_learn_from_the_same_items(tmp_path):
    baskets = [*cd.datasets.load("grocer", n_baskets=90, random_state=0), [f"item {i}" for i in range(600)]]
    (tmp_path / "files").mkdir()
    for number, part in enumerate((baskets[:50], baskets[50:])):
        pq.write_table(pa.table({"items": part}), tmp_path / "files" / f"{number}.parquet")
    task = task_of(tmp_path / "files", tmp_path, PAIRS, kind=cd.NonsymmetricDPP, every="1000s")
    first, _ = together(tmp_path / "files", 2, task)
    compare(first, one_machine(tmp_path / "files", PAIRS, kind=cd.NonsymmetricDPP))


@pytest.mark.parametrize("kind", [cd.LowRankDPP, cd.NonsymmetricDPP])
def test_rows_that_put_off_what_all_share(folder, tmp_path, monkeypatch, kind):
    """As for a large catalogue: no step touches a row outside its batch."""
    monkeypatch.setattr(optimizers, "DENSE_ITEMS", 0)
    parameters = {"objective": "exact"}
    first, *_ = together(folder, 3, task_of(folder, tmp_path, parameters, kind=kind, every="1000s"))
    compare(first, one_machine(folder, parameters, kind=kind))


@pytest.mark.parametrize("objective", ["dynamic", "exact", "mle", "nce"])
def test_more_workers_than_files_and_than_sets(folder, tmp_path, objective):
    """Empty shards and empty shares: whoever has nothing to compute keeps step with the others."""
    parameters = {"objective": objective, "batch_size": 400, "negative_ratio": 0.01}
    model = together(folder, 6, task_of(folder, tmp_path, parameters, every="1000s"))[0]
    compare(model, one_machine(folder, parameters))
    assert model.history_[-1]["bytes_sent"] > 0


def test_the_number_of_threads_changes_no_bit(folder, tmp_path):
    found = []
    for n_jobs in (1, 2):
        place = tmp_path / str(n_jobs)
        place.mkdir()
        found.append(together(folder, 2, task_of(folder, place, {"n_jobs": n_jobs, "max_iter": 2}))[0])
    assert found[0].item_factors_.tobytes() == found[1].item_factors_.tobytes()


# -- Losses, resumes, faults -------------------------------------------------------------------------


def break_at(monkeypatch, call: int) -> None:
    """Let worker 1 fail at its so many-th batch."""
    own_share, calls = learning.own_share, []

    def breaking(exchange, batch):
        if exchange.rank == 1:
            calls.append(1)
            if len(calls) == call:
                raise MemoryError("killed")
        return own_share(exchange, batch)

    monkeypatch.setattr(learning, "own_share", breaking)


def test_a_lost_worker_is_an_error_at_once_and_the_rest_goes_on_from_the_checkpoint(folder, tmp_path, monkeypatch):
    """Worker 1 of 3 breaks at its 4th step; then two workers finish, as if nothing had been."""
    break_at(monkeypatch, 4)
    started = time.monotonic()
    found = together(folder, 3, task_of(folder, tmp_path, {}))
    assert time.monotonic() - started < TIMEOUT
    assert [type(error) for error in found] == [ClusterError, MemoryError, ClusterError]
    assert "worker 1 failed: killed" in str(found[0])
    monkeypatch.undo()
    model, _ = together(folder, 2, task_of(folder, tmp_path, {}, resume=True))
    compare(model, one_machine(folder, {}))


@pytest.mark.parametrize("objective", ["dynamic", "exact"])
def test_a_resume_in_a_new_process_ends_with_the_same_bytes(folder, tmp_path, monkeypatch, objective):
    """One breaks within the second round; the other process has neither this one's kernels nor its sums."""
    parameters = {"objective": objective, "max_iter": 2}
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    expected = together(folder, 2, task_of(folder, whole, parameters))[0]
    break_at(monkeypatch, 8)
    assert isinstance(together(folder, 2, task_of(folder, broken, parameters))[1], MemoryError)
    words = [sys.executable, threads.__file__, folder, broken, objective, tmp_path / "model"]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = cd.load(tmp_path / "model")
    assert found.item_factors_.tobytes() == expected.item_factors_.tobytes()


@pytest.mark.parametrize(("pause", "timeout"), [(0.05, TIMEOUT), (5.0, 2.0)], ids=["slow", "silent"])
def test_a_slow_worker_is_waited_for_but_not_for_ever(folder, tmp_path, monkeypatch, pause, timeout):
    own_share = learning.own_share

    def sleeping(exchange, batch):
        if exchange.rank == 1:
            time.sleep(pause)
        return own_share(exchange, batch)

    monkeypatch.setattr(learning, "own_share", sleeping)
    first, _ = together(folder, 2, task_of(folder, tmp_path, {}), timeout=timeout)
    if pause < timeout:
        compare(first, one_machine(folder, {}))
    else:
        assert isinstance(first, ClusterError)
        assert "worker 1 has not answered for 2 s" in str(first)


@pytest.mark.parametrize("kind", [cd.LowRankDPP, cd.NonsymmetricDPP])
def test_parameters_that_drift_apart_are_noticed(folder, tmp_path, monkeypatch, kind):
    summed = learning.summed

    def other_processor(exchange, own):
        found = summed(exchange, own)
        return replace(found, values=found.values * (1 + 1e-12)) if exchange.rank == 1 else found

    monkeypatch.setattr(learning, "summed", other_processor)
    found = together(folder, 2, task_of(folder, tmp_path, {"objective": "exact"}, kind=kind))
    assert all(isinstance(error, ClusterError) for error in found)
    assert "round differently" in str(found[0])


@pytest.mark.parametrize(
    ("parameters", "error"),
    [
        ({"n_components": 2}, RankError),
        ({"objective": "exact", "init": "other"}, ParameterError),
        ({"random_state": None}, ParameterError),
    ],
)
def test_all_workers_find_the_same_fault(folder, tmp_path, parameters, error):
    """Or hear of it from the one that found it first."""
    found = together(folder, 2, task_of(folder, tmp_path, parameters))
    assert any(isinstance(each, error) for each in found)
    assert all(isinstance(each, (error, ClusterError)) for each in found)


def test_a_checkpoint_of_another_run_is_refused(folder, tmp_path):
    together(folder, 2, task_of(folder, tmp_path, {}))
    found = together(folder, 2, task_of(folder, tmp_path, {"alpha": 7.0}, resume=True))
    assert all(isinstance(error, (CheckpointError, ClusterError)) for error in found)
    assert any("alpha was" in str(error) for error in found if isinstance(error, CheckpointError))


def test_a_checkpoint_that_cannot_be_written_is_known_to_whoever_asks_the_worker(folder, tmp_path, monkeypatch):
    """The place vanishes after the first checkpoint, as if the disk were full: training goes on, and says so."""
    place = tmp_path / "place"
    place.mkdir()
    run = learning.SameEverywhere.on_iteration

    def vanish(self, record, best):
        run(self, record, best)
        if self._exchange.rank == 0 and place.exists():
            (place / "c").unlink()
            place.rmdir()

    monkeypatch.setattr(learning.SameEverywhere, "on_iteration", vanish)
    workers = [Worker(), Worker()]
    first, _ = together(folder, 2, task_of(folder, place, {"max_iter": 2}, every=2), workers=workers)
    assert isinstance(first, cd.LowRankDPP)
    assert [worker.progress().max_iter for worker in workers] == [2, 2]
    said = workers[0].progress().warnings
    assert said
    assert all("no checkpoint at step" in warning for warning in said)
    assert workers[1].progress().warnings == []


def test_a_first_checkpoint_that_cannot_be_written_is_an_error(folder, tmp_path):
    found = together(folder, 2, task_of(folder, tmp_path / "nowhere", {}))
    assert isinstance(found[0], CheckpointError)
    assert isinstance(found[1], ClusterError)


@pytest.mark.parametrize(
    "model",
    [cd.LowRankDPP(objective="choice"), cd.LowRankDPP(warm_start=True), cd.baselines.Popularity()],
    ids=["choice", "warm start", "another model"],
)
def test_what_shards_cannot_do_is_said(model):
    with pytest.raises(ParameterError, match="engine='ray'"):
        refuse_unsupported(model)


# -- The exchange ------------------------------------------------------------------------------------


def test_every_worker_gets_the_values_of_all():
    parts = np.random.default_rng(0).normal(size=(4, 30, 20))

    def work(exchange):
        found = [exchange.gather(parts[exchange.rank]) for _ in range(3)]
        return found, exchange.gather({"n": exchange.rank}), exchange.sent

    for found, told, sent in in_threads(4, work):
        np.testing.assert_array_equal(found, [parts] * 3)
        assert told == [{"n": rank} for rank in range(4)]
        assert sent == 3 * parts[0].nbytes
    sent = pickle.loads(pickle.dumps(Exchange()))  # as to a cluster's only worker
    assert sent.gather("alone") == ["alone"]


def test_one_that_never_comes_is_named():
    """Two of three wait a second; the third does not come at all."""
    found = in_threads(3, lambda exchange: exchange.rank == 1 or exchange.gather(1), timeout=1.0)
    assert "worker 1 has not answered for 1 s" in str(found[0])
    assert found[1] is True


def test_one_that_says_so_is_not_waited_for():
    started = time.monotonic()
    found = in_threads(
        3, lambda exchange: exchange.leave("failed: a reason") if exchange.rank == 1 else exchange.gather(1)
    )
    assert time.monotonic() - started < TIMEOUT
    assert "worker 1 failed: a reason" in str(found[0])
    assert "worker 1 failed: a reason" in str(found[2])


def test_the_barrier_forgets_what_every_worker_has():
    place = []

    def work(exchange):
        place.append(exchange._barrier)
        for number in range(5):
            exchange.gather(number)

    in_threads(3, work)
    assert len(place[0]._values) == 1


def test_few_files_know_how_learning_works():
    """So that there is one place to change when it does; the driver draws its bar, checks, and has experts learn."""
    used = {
        (path.name, line.split()[1])
        for path in Path(learning.__file__).parent.glob("*.py")
        for line in path.read_text().splitlines()
        if line.startswith(("from contradpp.learn", "from contradpp.models")) and path.name != "learning.py"
    }
    known = {("ray.py", f"contradpp.learn.{name}") for name in ("callbacks", "checkpoints", "params", "training")}
    known |= {("ray.py", f"contradpp.models.{name}") for name in ("conditional", "learned", "mixture")}
    assert used == known
