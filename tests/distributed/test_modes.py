"""Rows of V spread over workers, and steps of one's own: what comes out, whatever the number of workers."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import contradpp as cd
from contradpp.distributed import learning, local, sharded
from contradpp.distributed.learning import refuse_unsupported
from contradpp.distributed.ray import put_together, take_over
from contradpp.errors import ClusterError, ParameterError
from contradpp.learn import settings
from distributed.crew import one_machine, task_of, together

K = {"n_components": 30, "oversize": "drop", "batch_size": 100}


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A small shop in three files: unlike baskets at random, it has something to learn."""
    place = tmp_path_factory.mktemp("shop")
    baskets = cd.datasets.load("grocer", n_baskets=900, random_state=0)
    lists = [[str(item) for item in basket] for basket in baskets]
    for number, (first, last) in enumerate([(0, 100), (100, 450), (450, 900)]):
        pq.write_table(pa.table({"items": pa.array(lists[first:last])}), place / f"{number}.parquet")
    return place


def run(folder, tmp_path, n, parameters, **changes):
    """The result of n workers."""
    tmp_path.mkdir(exist_ok=True)
    found = together(folder, n, task_of(folder, tmp_path, parameters, **changes))
    errors = [one for one in found if isinstance(one, BaseException)]
    if errors:
        raise errors[0]
    return put_together([one for one in found if one is not None])


# -- Rows spread over workers --------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize(
    "parameters",
    [
        {"objective": "exact"},
        {"objective": "mle", "optimizer": "nesterov"},
        {"objective": "nce", "calibrate": "discrimination"},
        {"objective": "product", "contrast": 0.5, "n_components": 20, "oversize": "clip"},
        {"objective": "product"},
        {"objective": "exact", "optimizer": "robbins-monro", "init": "uniform", "monitor": "likelihood"},
    ],
    ids=lambda p: "-".join(map(str, p.values())),
)
def test_rows_on_several_workers_learn_what_one_machine_learns(shop, tmp_path, n, parameters):
    whole = one_machine(shop, K | parameters)
    found = run(shop, tmp_path, n, K | parameters, mode="sharded", every="1000s")
    assert found.ids == list(whole.items_)
    np.testing.assert_allclose(found.factors, whole.item_factors_, rtol=0, atol=1e-8)
    scores = [[record["validation"] for record in history] for history in (found.history, whole.history_)]
    np.testing.assert_allclose(scores[0], scores[1], atol=1e-8)


@pytest.mark.parametrize("objective", ["exact", "dynamic", "mle"])
def test_rows_that_put_off_what_all_share(shop, tmp_path, monkeypatch, objective):
    """As for a large catalogue: no step touches a row outside its batch."""
    monkeypatch.setattr(settings, "DENSE_ITEMS", 0)
    monkeypatch.setattr(learning, "DENSE_ITEMS", 0)
    parameters = K | {"objective": objective}
    found = [run(shop, tmp_path / str(n), n, parameters, mode="sharded", every="1000s") for n in (1, 3)]
    np.testing.assert_allclose(found[0].factors, found[1].factors, rtol=0, atol=1e-8)
    if objective != "dynamic":  # whose negatives come from other streams than one machine's
        np.testing.assert_allclose(found[0].factors, one_machine(shop, parameters).item_factors_, rtol=0, atol=1e-8)


@pytest.mark.parametrize("calibrate", [None, "likelihood", "discrimination"])
def test_dynamic_negatives_do_not_depend_on_the_number_of_workers(shop, tmp_path, calibrate):
    parameters = K | {"objective": "dynamic", "calibrate": calibrate}
    found = [run(shop, tmp_path / str(n), n, parameters, mode="sharded", every="1000s") for n in (1, 2, 4)]
    for other in found[1:]:
        np.testing.assert_allclose(found[0].factors, other.factors, rtol=0, atol=1e-8)


def test_no_worker_has_all_rows(shop, tmp_path, monkeypatch):
    sizes, build = [], sharded.OwnedState.__init__

    def watched(self, V, owners, **given):
        sizes.append(len(V))
        build(self, V, owners, **given)

    monkeypatch.setattr(sharded.OwnedState, "__init__", watched)
    found = run(shop, tmp_path, 3, K | {"objective": "exact", "max_iter": 1}, mode="sharded")
    assert sum(sizes) == len(found.ids)
    assert max(sizes) < 0.5 * len(found.ids)


def test_bytes_do_not_grow_with_the_catalogue(shop, tmp_path):
    """Only rows of the batch and K×K matrices travel: far less than V in a step."""
    wide = K | {"objective": "exact", "batch_size": 4, "max_iter": 1}
    found = run(shop, tmp_path, 2, wide, mode="sharded", every="1000s")
    assert found.bytes_sent / found.history[-1]["step"] < found.factors.nbytes


def test_a_lost_worker_and_another_number_of_them(shop, tmp_path, monkeypatch):
    """One of three breaks at its 6th step; two go on from the parts of all three."""
    gradient, calls = sharded.OwnedObjective.gradient, []

    def breaking(self, state, batch):
        if self.owners.collective.rank == 1:
            calls.append(1)
            if len(calls) == 6:
                raise MemoryError("killed")
        return gradient(self, state, batch)

    parameters = K | {"objective": "exact"}
    monkeypatch.setattr(sharded.OwnedObjective, "gradient", breaking)
    task = task_of(shop, tmp_path, parameters, mode="sharded", every=2)
    found = together(shop, 3, task)
    assert [type(one) for one in found] == [ClusterError, MemoryError, ClusterError]
    parts = sorted(path.name for path in tmp_path.iterdir())
    assert re.fullmatch(r"c c\.step-4-(\w{8})\.0 c\.step-4-\1\.1 c\.step-4-\1\.2", " ".join(parts))
    monkeypatch.undo()
    again = run(shop, tmp_path, 2, parameters, mode="sharded", every=2, resume=True)
    np.testing.assert_allclose(again.factors, one_machine(shop, parameters).item_factors_, rtol=0, atol=1e-8)


@pytest.mark.parametrize("fault", ["missing", "damaged", "another"])
def test_a_part_that_is_not_as_it_was_is_an_error_for_all(shop, tmp_path, fault):
    parameters = K | {"objective": "exact", "max_iter": 1}
    run(shop, tmp_path, 2, parameters, mode="sharded", every=2)
    part = next(tmp_path.glob("c.step-*.1"))
    if fault == "missing":
        part.unlink()
    elif fault == "damaged":
        content = bytearray(part.read_bytes())
        content[len(content) // 2] ^= 1
        part.write_bytes(content)
    else:
        part.write_bytes(next(tmp_path.glob("c.step-*.0")).read_bytes())
    found = together(shop, 2, task_of(shop, tmp_path, parameters, mode="sharded", resume=True))
    assert isinstance(found[1], cd.errors.CheckpointError)
    assert isinstance(found[0], ClusterError if fault == "another" else cd.errors.CheckpointError)


def test_more_workers_than_rows(tmp_path):
    """Some own nothing, and their parts of a checkpoint are empty."""
    place = tmp_path / "few"
    place.mkdir()
    lists = [["a", "b"], ["b", "c"], ["a", "c", "d"], ["d"]] * 30
    pq.write_table(pa.table({"items": pa.array(lists)}), place / "0.parquet")
    parameters = {"n_components": 8, "objective": "exact", "max_iter": 1, "batch_size": 20}
    run(place, tmp_path, 6, parameters, mode="sharded", every=2)
    longer = run(place, tmp_path, 6, parameters | {"max_iter": 2}, mode="sharded", every=2, resume=True)
    np.testing.assert_allclose(
        longer.factors, one_machine(place, parameters | {"max_iter": 2}).item_factors_, rtol=0, atol=1e-8
    )


def test_only_parts_of_checkpoints_are_removed(shop, tmp_path):
    (tmp_path / "c.step-by-step.txt").write_text("mine")
    run(shop, tmp_path, 2, K | {"objective": "exact", "max_iter": 1}, mode="sharded", every=1)
    assert (tmp_path / "c.step-by-step.txt").read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 4  # that, the list, and two parts


# -- Kernels that also attract -------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize(
    "parameters",
    [{"objective": "exact"}, {"objective": "dynamic"}, {"objective": "mle", "dropout": 0.0, "max_iter": 1}],
    ids=lambda p: p["objective"],
)
def test_pairs_on_several_workers(shop, tmp_path, n, parameters):
    given = {"n_components": 30, "n_skew": 8, "oversize": "drop", "batch_size": 200, "max_iter": 2, "tol": 0.0}
    given |= {"n_jobs": 1, "random_state": 3} | parameters
    whole = cd.NonsymmetricDPP(**given).fit(cd.read_baskets(shop))
    task = replace(task_of(shop, tmp_path, {}, every="1000s", model="NonsymmetricDPP"), parameters=given)
    first, *others = together(shop, n, task)
    assert others == [None] * (n - 1)
    model = cd.NonsymmetricDPP(**given)
    take_over(model, first)
    assert model.items_ == whole.items_
    np.testing.assert_allclose(model.item_factors_, whole.item_factors_, rtol=0, atol=1e-8)
    np.testing.assert_allclose(model.skew_.toarray(), whole.skew_.toarray(), rtol=0, atol=1e-8)
    basket = list(whole.items_)[:3]
    assert model.recommend(basket, N=5)[0].tolist() == whole.recommend(basket, N=5)[0].tolist()


# -- Steps of one's own --------------------------------------------------------------------------------


@pytest.mark.parametrize(("objective", "part"), [("exact", 0.8), ("dynamic", 0.8), ("mle", 0.5)])
def test_local_steps_learn_about_as_much(shop, tmp_path, objective, part):
    """Not the same factors, but after as many steps of each worker much of the gain over where they start."""
    parameters = K | {"objective": objective, "max_iter": 6, "batch_size": 40}
    whole = one_machine(shop, parameters)
    rounds = parameters | {"max_iter": 18}
    found = run(shop, tmp_path, 3, rounds, mode="local", local_steps=3, every="1000s")
    start = one_machine(shop, parameters | {"max_iter": 1, "learning_rate": 1e-9}).history_[0]["validation"]
    best, ours = (max(record["validation"] for record in history) for history in (whole.history_, found.history))
    assert ours - start > part * (best - start) > 0
    assert found.ids == list(whole.items_)


def test_local_steps_send_less_the_less_often_they_meet(shop, tmp_path):
    parameters = K | {"objective": "dynamic", "batch_size": 10, "max_iter": 2}
    sent = [
        run(shop, tmp_path / str(h), 2, parameters, mode="local", local_steps=h, every="1000s").bytes_sent
        for h in (1, 5, 40)
    ]
    assert sent[0] > 1.5 * sent[1] > 2 * sent[2]


def test_local_steps_go_on_from_a_checkpoint(shop, tmp_path):
    parameters = K | {"objective": "exact", "batch_size": 40, "max_iter": 2}
    first = run(shop, tmp_path, 2, parameters, mode="local", local_steps=3, every=1)
    longer = run(shop, tmp_path, 2, parameters | {"max_iter": 4}, mode="local", local_steps=3, every=1, resume=True)
    assert [r["validation"] for r in longer.history[:2]] == [r["validation"] for r in first.history]
    assert longer.n_iter == 4
    more = run(shop, tmp_path, 3, parameters | {"max_iter": 6}, mode="local", local_steps=3, every=1, resume=True)
    assert more.n_iter == 6  # another number of workers


def test_a_row_that_one_worker_moved_is_kept_as_it_is(shop, tmp_path, monkeypatch):
    """Also at the end of a round, where every row is settled."""
    seen, meet = [], local.Meetings.meet

    def watched(self, moved):
        before = self._state.V.copy()
        meet(self, moved)
        seen.append((self._collective.rank, moved, before, self._state.V.copy()))

    monkeypatch.setattr(local.Meetings, "meet", watched)
    parameters = K | {"objective": "dynamic", "batch_size": 20, "max_iter": 2}
    run(shop, tmp_path, 2, parameters, mode="local", local_steps=4, every="1000s")
    of = [[one[1:] for one in seen if one[0] == rank] for rank in (0, 1)]
    assert len(of[0]) == len(of[1]) > 4
    for (moved, before, after), (moved_by_other, _, after_there) in zip(*of, strict=True):
        np.testing.assert_array_equal(after, after_there)
        alone = moved & ~moved_by_other
        assert alone.any()
        np.testing.assert_allclose(after[alone], before[alone], rtol=1e-12)


@pytest.mark.parametrize(
    ("model", "mode"),
    [
        (cd.LowRankDPP(optimizer="nesterov"), "local"),
        (cd.LowRankDPP(settings="paper"), "local"),
        (cd.LowRankDPP(refresh=3), "sharded"),
        (cd.NonsymmetricDPP(), "sharded"),
    ],
)
def test_what_a_mode_cannot_do_is_said(model, mode):
    with pytest.raises(ParameterError, match=f"mode='{mode}'"):
        refuse_unsupported(model, mode)
