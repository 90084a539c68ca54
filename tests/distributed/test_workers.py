"""Workers in threads, with real connections but without Ray: the same bytes as one machine, and no wait without end."""

from __future__ import annotations

import itertools
import os
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import contradpp as cd
from contradpp.distributed.collective import _HELLO, _LENGTH, Alone, Mesh, gather, gather_arrays, listen, total
from contradpp.distributed.learning import refuse_unsupported
from contradpp.distributed.shards import FileOf, Shard, assign, list_files, read_file
from contradpp.distributed.worker import Worker
from contradpp.errors import CheckpointError, ClusterError, ContradppError, DataError, ParameterError, RankError
from distributed.crew import COLUMNS, one_machine, task_of, together


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize(
    "parameters",
    [
        {"objective": "dynamic"},
        {"objective": "exact"},
        {"objective": "mle", "optimizer": "nesterov"},
        {"objective": "nce"},
        {"objective": "dynamic", "n_components": 3, "oversize": "clip", "refresh": 2},
        {"objective": "exact", "n_components": 3, "oversize": "drop", "calibrate": "discrimination"},
    ],
    ids=lambda p: "-".join(map(str, p.values())),
)
def test_the_number_of_workers_does_not_matter(folder, tmp_path, n, parameters):
    """Not to 1e-8 but to the last bit: the blocks are the same, only who computes them differs."""
    whole = one_machine(folder, parameters)
    first, *others = together(folder, n, task_of(folder, tmp_path, parameters))
    assert others == [None] * (n - 1)
    assert first.ids == list(whole.items_)
    assert first.factors.tobytes() == whole.item_factors_.tobytes()
    np.testing.assert_array_equal(first.item_counts, whole.item_counts_)
    assert [h["validation"] for h in first.history] == [h["validation"] for h in whole.history_]


def test_more_workers_than_files(folder, tmp_path):
    """Empty shards compute like the others."""
    first, *_ = together(folder, 6, task_of(folder, tmp_path, {"objective": "dynamic"}))
    assert first.factors.tobytes() == one_machine(folder, {"objective": "dynamic"}).item_factors_.tobytes()
    assert first.bytes_sent > 0


def test_a_lost_worker_is_an_error_at_once_and_the_rest_goes_on_from_the_checkpoint(folder, tmp_path, monkeypatch):
    """Worker 1 of 3 breaks at its 4th step; then two workers finish. The result is that of an undisturbed run."""
    take, calls = Shard.take, []

    def breaking(self, numbers):
        if self.collective.rank == 1:
            calls.append(1)
            if len(calls) == 5:
                raise MemoryError("killed")
        return take(self, numbers)

    monkeypatch.setattr(Shard, "take", breaking)
    task = task_of(folder, tmp_path, {"objective": "dynamic"})
    started = time.monotonic()
    found = together(folder, 3, task)
    assert time.monotonic() - started < task.timeout
    assert [type(error) for error in found] == [ClusterError, MemoryError, ClusterError]
    monkeypatch.undo()
    again = task_of(folder, tmp_path, {"objective": "dynamic"}, resume=True)
    first, _ = together(folder, 2, again)
    assert first.factors.tobytes() == one_machine(folder, {"objective": "dynamic"}).item_factors_.tobytes()


def test_a_silent_worker_is_not_waited_for_for_ever(folder, tmp_path, monkeypatch):
    take = Shard.take

    def sleeping(self, numbers):
        if self.collective.rank == 1:
            time.sleep(3)
        return take(self, numbers)

    monkeypatch.setattr(Shard, "take", sleeping)
    found = together(folder, 2, task_of(folder, tmp_path, {"objective": "dynamic"}, timeout=1.0))
    assert isinstance(found[0], ClusterError)
    assert "has not answered for 1 s" in str(found[0])


def test_a_slow_worker_is_waited_for(folder, tmp_path, monkeypatch):
    take = Shard.take

    def slow(self, numbers):
        if self.collective.rank == 1:
            time.sleep(0.05)
        return take(self, numbers)

    monkeypatch.setattr(Shard, "take", slow)
    first, _ = together(folder, 2, task_of(folder, tmp_path, {"objective": "dynamic"}))
    assert first.factors.tobytes() == one_machine(folder, {"objective": "dynamic"}).item_factors_.tobytes()


def test_workers_that_never_meet(tmp_path):
    """The second does not come: the first has waited long enough after a second. A stranger is hung up on."""
    with listen("127.0.0.1") as listener:
        address, answers = listener.getsockname(), []

        def stranger():
            with socket.create_connection(address, timeout=5) as connection:
                connection.sendall(b"GET / HTTP/1.1\r\nHost: worker.example\r\nAccept: */*\r\n\r\n")
                with suppress(ConnectionResetError):
                    answers.append(connection.recv(1))

        thread = threading.Thread(target=stranger)
        thread.start()
        with pytest.raises(ClusterError, match="could not reach the others within 1 s"):
            Mesh(0, [address, address], listener, os.urandom(32), timeout=1.0)
        thread.join()
        assert answers in ([], [b""])


def test_factors_that_drift_apart_are_noticed(folder, tmp_path, monkeypatch):
    from contradpp.distributed import worker

    learn = worker.learn

    def other_processor(problem, task, folder):
        if problem.collective.rank == 1:
            changed = replace(problem.settings, alpha=problem.settings.alpha * (1 + 1e-12))
            problem = replace(problem, settings=changed)
        return learn(problem, task, folder)

    monkeypatch.setattr(worker, "learn", other_processor)
    found = together(folder, 2, task_of(folder, tmp_path, {"objective": "exact"}))
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
    found = together(folder, 2, task_of(folder, tmp_path, parameters))
    assert all(isinstance(each, error) for each in found)


def test_a_checkpoint_of_another_run_is_refused_by_all(folder, tmp_path):
    together(folder, 2, task_of(folder, tmp_path, {}))
    found = together(folder, 2, task_of(folder, tmp_path, {"alpha": 7.0}, resume=True))
    assert all(isinstance(error, CheckpointError) for error in found)


def test_sums_are_the_same_everywhere():
    listeners = [listen("127.0.0.1") for _ in range(4)]
    addresses = [listener.getsockname() for listener in listeners]
    parts = np.random.default_rng(0).normal(size=(4, 300, 200))  # large enough to fill every buffer
    token = os.urandom(32)

    def run(rank):
        with listeners[rank], Mesh(rank, addresses, listeners[rank], token, timeout=20) as mesh:
            found = [total(mesh, parts[rank]) for _ in range(3)]
            sizes = [len(a) for a in gather_arrays(mesh, np.zeros(rank))]
            return found, sizes, mesh.sent

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(run, range(4)))
    for found, sizes, sent in results:
        assert all(one.tobytes() == results[0][0][0].tobytes() for one in found)
        assert sizes == [0, 1, 2, 3]
        assert sent >= 3 * 3 * parts[0].nbytes
    np.testing.assert_allclose(results[0][0][0], parts.sum(axis=0))
    np.testing.assert_array_equal(total(Alone(), parts[0]), parts[0])


@pytest.mark.parametrize("pause", [0.2, 2.5])
def test_half_a_message_is_never_followed_by_another(pause):
    """A reader may be slow for longer than the time limit as a whole; one that stands still is hung up on."""
    large, heard = bytes(30_000_000), []
    with listen("127.0.0.1") as listener:

        def slow_peer():
            address = listener.getsockname()
            with socket.create_connection(address, timeout=10) as connection, suppress(ConnectionResetError):
                connection.sendall(_HELLO.pack(bytes(32), 1))
                for message in (b"first", b"second"):
                    connection.sendall(_LENGTH.pack(len(message)) + message)
                for _ in range(8):
                    time.sleep(pause)
                    heard.append(len(connection.recv(1 << 20)))
                while piece := connection.recv(1 << 20):
                    heard.append(len(piece))

        thread = threading.Thread(target=slow_peer)
        thread.start()
        with Mesh(0, [listener.getsockname()] * 2, listener, bytes(32), timeout=1.0) as mesh:
            assert bytes(gather(mesh, large)[1]) == b"first"
            if pause < 1:
                assert bytes(gather(mesh, b"done")[1]) == b"second"
            else:
                time.sleep(1.5)
                with pytest.raises(ClusterError, match="could not send"):
                    gather(mesh, b"done")
        thread.join()
    whole = 8 + len(large) + 8 + len(b"done")
    assert sum(heard) == whole if pause < 1 else sum(heard) < len(large)


# -- Files -------------------------------------------------------------------------------------------


def test_files_are_shared_out_evenly():
    files = [FileOf(i, f"f{i}", rows) for i, rows in enumerate([10, 50, 20, 30, 10])]
    shards = assign(files, 2)
    assert sorted(itertools.chain(*shards)) == files
    assert [sum(f.n_rows for f in shard) for shard in shards] == [60, 60]
    assert assign(files[:1], 3)[1:] == [[], []]


def test_a_file_that_disappears_is_named(folder, tmp_path):
    files = list_files(str(folder))
    gone = files[0]._replace(path=str(tmp_path / "gone.parquet"))
    with pytest.raises(DataError, match=r"gone\.parquet"):
        Worker().load([gone], COLUMNS)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + bytes(100) + b"PAR1"])
def test_files_that_are_none(tmp_path, content):
    (tmp_path / "x.parquet").write_bytes(content)
    with pytest.raises(ContradppError, match=r"x\.parquet"):
        list_files(str(tmp_path))
    with pytest.raises(ContradppError, match=r"x\.parquet"):
        read_file(str(tmp_path / "x.parquet"), COLUMNS)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_basket_in_two_files_is_an_error_for_all(tmp_path, n):
    """Rows of (basket, item): no worker could put the halves together."""
    place = tmp_path / "files"
    place.mkdir()
    for number, ids in enumerate([[1, 1, 2, 2], [3, 3, 4], [5, 2, 6]]):
        columns = {"order_id": ids, "product_id": [f"item {i}" for i in range(len(ids))]}
        pq.write_table(pa.table(columns), place / f"part-{number}.parquet")
    found = together(place, n, task_of(place, tmp_path, {}))
    assert all(isinstance(error, DataError) for error in found)
    assert re.search(r"part-0\.parquet goes on in .*part-2\.parquet", str(found[0]))


def test_places_without_files(tmp_path):
    for place in (tmp_path, tmp_path / "nowhere", "gibberish://nowhere"):
        with pytest.raises(DataError):
            list_files(str(place))


def test_any_file_system_will_do(folder):
    import fsspec

    memory = fsspec.filesystem("memory")
    for path in folder.iterdir():
        memory.pipe(f"/shop/{path.name}", path.read_bytes())
    files = list_files("memory://shop")
    assert [f.n_rows for f in files] == [100, 800, 0, 600]
    assert read_file(files[0].path, COLUMNS).baskets.n_baskets == 100
    memory.rm("/shop", recursive=True)


@pytest.mark.parametrize(
    "model",
    [
        cd.LowRankDPP(objective="explicit"),
        cd.LowRankDPP(false_negatives="reject"),
        cd.LowRankDPP(warm_start=True),
    ],
)
def test_what_shards_cannot_do_is_said(model):
    with pytest.raises(ParameterError, match="engine='ray'"):
        refuse_unsupported(model, "replicated")
