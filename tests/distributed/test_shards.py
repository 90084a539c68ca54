"""Files of baskets, shared out to workers: found, read and put together, or refused by name."""

from __future__ import annotations

import itertools
import re
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import contradpp as cd
from contradpp.distributed.learning import Worker
from contradpp.distributed.shards import NO_COLUMNS, FileOf, assign, gather_baskets, list_files, read_file
from contradpp.errors import ContradppError, DataError, MissingExtraError
from distributed.threads import in_threads, task_of, together


def test_files_are_shared_out_evenly():
    files = [FileOf(i, f"f{i}", rows) for i, rows in enumerate([10, 50, 20, 30, 10])]
    shards = assign(files, 2)
    assert sorted(itertools.chain(*shards)) == files
    assert [sum(f.n_rows for f in shard) for shard in shards] == [60, 60]
    assert assign(files[:1], 3)[1:] == [[], []]


@pytest.mark.parametrize("n", [1, 2, 6])
def test_every_worker_has_the_baskets_of_one_machine(folder, n):
    """Whoever has read them; the items are numbered as one machine numbers them."""
    files = list_files(str(folder))
    shares = assign(files, n)

    def work(exchange):
        read = {file.number: read_file(file.path, NO_COLUMNS) for file in shares[exchange.rank]}
        return gather_baskets(read, [file.path for file in files], exchange)

    whole = cd.read_baskets(folder)
    for found in in_threads(n, work):
        assert found == whole
        assert found.items == whole.items


def test_a_file_that_disappears_is_named(folder, tmp_path):
    gone = list_files(str(folder))[0]._replace(path=str(tmp_path / "gone.parquet"))
    with pytest.raises(DataError, match=r"gone\.parquet"):
        Worker().load([gone], NO_COLUMNS)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + bytes(100) + b"PAR1"])
def test_files_that_are_none(tmp_path, content):
    (tmp_path / "x.parquet").write_bytes(content)
    with pytest.raises(ContradppError, match=r"x\.parquet"):
        list_files(str(tmp_path))
    with pytest.raises(ContradppError, match=r"x\.parquet"):
        read_file(str(tmp_path / "x.parquet"), NO_COLUMNS)


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
    assert read_file(files[0].path, NO_COLUMNS).sets.count == 100
    memory.rm("/shop", recursive=True)


@pytest.mark.parametrize("missing", ["ray", "fsspec"])
def test_without_the_extra_its_name_is_given(folder, tmp_path, monkeypatch, missing):
    """fsspec, with which files are listed, comes with the extra too."""
    from click.testing import CliRunner

    from contradpp.cli.main import cli

    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MissingExtraError, match=r"contradpp\[ray\]"):
        cd.LowRankDPP(5).fit(folder, engine="ray")
    words = ["fit", str(folder), "-o", str(tmp_path / "m"), "--engine", "ray"]
    asked = CliRunner().invoke(cli, words)
    assert isinstance(asked.exception, MissingExtraError)
    assert "contradpp[ray]" in str(asked.exception)
