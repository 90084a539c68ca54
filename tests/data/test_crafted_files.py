"""Data files that are not what they seem."""

from __future__ import annotations

import json
import logging
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import contradpp as cd
from contradpp.cli.main import main
from contradpp.data import tables
from contradpp.errors import DataError


def test_a_million_fields_are_not_looked_at_as_names(tmp_path, monkeypatch):
    looked: list[str] = []
    original = tables._normal
    monkeypatch.setattr(tables, "_normal", lambda name: (looked.append(name), original(name))[1])
    path = tmp_path / "wide.txt"
    path.write_text(" ".join(map(str, range(12_000))) + "\n1 2\n")
    assert cd.read_baskets(path).sizes.tolist() == [12_000, 2]
    assert len(looked) < 10_000
    assert max(map(len, looked), default=0) <= 1_000  # under other separators the line is one field


@pytest.mark.parametrize("value", ["a", None, 7, True])
def test_json_lines_that_are_no_baskets(tmp_path, value):
    path = tmp_path / "values.jsonl"
    path.write_text(f"{json.dumps(value)}\n" * 5)
    with pytest.raises(DataError, match="a basket must be a JSON array or object"):
        cd.read_baskets(path)


def test_of_a_folder_it_is_said_what_is_not_read(tmp_path, caplog):
    pq.write_table(pa.table({"order": [1, 1, 2], "item": ["a", "b", "a"]}), tmp_path / "part.parquet")
    (tmp_path / "_SUCCESS").touch()
    with caplog.at_level(logging.WARNING, "contradpp"):
        assert cd.read_baskets(tmp_path).n_baskets == 2
        assert not caplog.messages
        (tmp_path / "more.csv").write_text("order,item\n3,c\n")
        assert cd.read_baskets(tmp_path).n_baskets == 2
    assert re.search(r"only .parquet files are read, not more.csv \(1 in all\)", caplog.text)


def test_half_a_character_is_written_out(tmp_path, capfd):
    path, model = tmp_path / "half.jsonl", tmp_path / "model.safetensors"
    path.write_text("\n".join(json.dumps(["\ud800", "b", "c", "d"][k % 3 :]) for k in range(60)))
    cd.NonsymmetricDPP(n_components=2, max_iter=1).fit(cd.read_baskets(path)).save(model)
    for more in ([], ["--json"], ["--input", str(path)]):
        with pytest.raises(SystemExit) as ended:
            main(["recommend", str(model), *([] if "--input" in more else ["b"]), *more])
        out, err = capfd.readouterr()
        assert ended.value.code == 0, err
        assert "\\ud800" in out


def test_a_key_that_is_there_twice_is_no_basket(tmp_path):
    path = tmp_path / "twins.jsonl"
    path.write_text('{"items": ["a", "b"]}\n{"items": ["a", "b"], "items": ["c"]}\n')
    with pytest.raises(DataError, match="line 2: not valid JSON: the key 'items' is there twice"):
        cd.read_baskets(path)
