"""Baskets with what they were chosen from: kept by everything that makes baskets of baskets, and read from files."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contradpp.data.baskets import Baskets
from contradpp.data.readers import read_baskets
from contradpp.data.vocabulary import Vocabulary
from contradpp.errors import DataError, ParameterError, UnknownItemError

CHOSEN = [["tea"], [], ["milk", "bread"], ["jam"]]
OFFERED = [["coffee", "tea"], ["jam", "milk"], ["milk", "bread", "butter"], []]


def shop() -> Baskets:
    return Baskets.from_lists(CHOSEN, offered=OFFERED)


def offered_of(baskets: Baskets) -> list[list[object]]:
    """What was offered, by ids."""
    offered = baskets.offered
    assert offered is not None
    return [[baskets.items[c] for c in part] for part in np.split(offered.indices, offered.indptr[1:-1])]


def test_offered_sets_and_what_was_refused() -> None:
    baskets = shop()
    assert list(baskets) == CHOSEN
    assert offered_of(baskets) == OFFERED
    assert baskets.item_counts.sum() == 4  # refused items are known, and counted in no basket
    assert "butter" in baskets.items
    assert [baskets.items[c] for c in baskets.refused.indices] == ["coffee", "jam", "milk", "butter"]
    assert baskets.refused.sizes.tolist() == [1, 2, 1, 0]
    assert Baskets.from_lists(CHOSEN).refused.sizes.tolist() == [0, 0, 0, 0]
    assert "2.33 offered" in baskets.describe()


def test_equality_copies_and_pickles_mind_them() -> None:
    baskets = shop()
    assert pickle.loads(pickle.dumps(baskets)) == baskets == copy.deepcopy(baskets)
    assert baskets != Baskets.from_lists(CHOSEN, items=baskets.items)
    assert baskets != Baskets.from_lists(CHOSEN, offered=[["tea"], [], ["milk", "bread"], []], items=baskets.items)
    with pytest.raises(ValueError, match="read-only"):
        baskets.offered.indices[0] = 1  # type: ignore[union-attr]


def test_subset_split_and_slices_keep_them() -> None:
    baskets = shop()
    assert offered_of(baskets.subset([2, 0])) == [OFFERED[2], OFFERED[0]]
    assert offered_of(baskets[1:3]) == OFFERED[1:3]
    train, test = baskets.split(1, random_state=0)
    whole = dict(zip(map(tuple, CHOSEN), OFFERED, strict=True))
    for part in (train, test):
        assert offered_of(part) == [whole[tuple(basket)] for basket in part]


def test_recode_filter_clip_and_names_keep_them() -> None:
    baskets = shop()
    other = Vocabulary(["butter", "milk", "bread", "tea", "coffee", "jam"])
    assert offered_of(baskets.recode(other)) == OFFERED
    fewer = baskets.recode(Vocabulary(["milk", "butter"]), unknown="ignore")
    assert (list(fewer), offered_of(fewer)) == ([[], [], ["milk"], []], [[], ["milk"], ["milk", "butter"], []])
    with pytest.raises(UnknownItemError):
        baskets.recode(Vocabulary(["tea", "milk", "bread", "jam"]))  # coffee was offered
    assert offered_of(baskets.filter(min_size=2)) == [OFFERED[2]]
    assert set(baskets.filter(min_size=2).items) == {"milk", "bread", "butter"}
    cut = baskets.clip(1)  # bread was taken: it is not among the refused
    assert (list(cut)[2], offered_of(cut)[2]) == (["milk"], ["milk", "butter"])
    assert offered_of(baskets.with_names({"tea": "Tea"}).with_categories({"tea": "drinks"})) == OFFERED
    rare = Baskets.from_lists([["a", "b"], ["a"]], offered=[["a", "b", "c"], ["a", "b"]]).filter(min_item_count=2)
    assert (list(rare), offered_of(rare)) == ([["a"], ["a"]], [["a"], ["a"]])


def test_concat_with_baskets_of_which_nothing_is_known() -> None:
    both = Baskets.concat([Baskets.from_lists([["tea", "pie"]]), shop()])
    assert list(both) == [["tea", "pie"], *CHOSEN]
    assert offered_of(both) == [[], *OFFERED]
    assert (shop() + shop()).offered.count == 8  # type: ignore[union-attr]
    assert Baskets.concat([Baskets.from_lists(CHOSEN)]).offered is None


@settings(deadline=None)
@given(st.lists(st.tuples(st.sets(st.integers(0, 7)), st.sets(st.integers(0, 7))), max_size=8))
def test_chosen_and_refused_make_up_what_was_offered(pairs: list[tuple[set[int], set[int]]]) -> None:
    chosen = [sorted(a) for a, b in pairs]
    baskets = Baskets.from_lists(chosen, offered=[sorted(a | b) for a, b in pairs])
    refused = np.split(baskets.refused.indices, baskets.refused.indptr[1:-1])
    for (a, b), left in zip(pairs, refused, strict=False):
        assert {baskets.items[c] for c in left} == b - a


def test_what_is_refused_with_a_typed_error() -> None:
    with pytest.raises(DataError, match="basket 1: 'pie' was chosen but is not among what was offered"):
        Baskets.from_lists([["tea"], ["pie"]], offered=[["tea"], ["tea"]])
    with pytest.raises(DataError, match="2 baskets but 1 offered"):
        Baskets.from_lists([["tea"], ["pie"]], offered=[["tea"]])
    with pytest.raises(DataError, match="not among the given items"):
        Baskets.from_lists([["tea"]], offered=[["tea", "pie"]], items=["tea"])
    with pytest.raises(DataError, match="offered must be"):
        Baskets.from_lists([["tea"]]).with_offered(3)


# -- Files and tables --------------------------------------------------------------------------------


def same(baskets: Baskets) -> bool:
    return (list(baskets), offered_of(baskets)) == ([["a"], [], ["c", "b"]], [["a", "b"], ["a", "c"], ["b", "c", "d"]])


@pytest.mark.parametrize(
    "text", ["a b;a\na c;\n\nb c d;c b\n", "a,b;a\na,c;\nb,c,d;c,b\n", "a, b ;a\r\na c ; \r\nb c d;c b"]
)
@pytest.mark.parametrize("format", ["auto", "choices"])
def test_lines_of_offered_and_chosen(tmp_path: Path, text: str, format: str) -> None:
    path = tmp_path / "choices.txt"
    path.write_text(text)
    assert same(read_baskets(path, format))


@pytest.mark.parametrize(
    ("text", "where"),
    [("a b;a\na c;b\n", "line 2.*'b' was chosen"), ("a b;a;b\n", "line 1.*2 semicolons"), ("a b;a\na b\n", "line 2")],
)
def test_lines_that_are_wrong(tmp_path: Path, text: str, where: str) -> None:
    path = tmp_path / "choices.txt"
    path.write_text(text)
    with pytest.raises(DataError, match=where):
        read_baskets(path, "choices")
    assert len(read_baskets(path, "choices", on_bad_row="skip") if "a b;a\n" in text else [1]) == 1


LONG = [(1, "a", 1), (1, "b", 0), (2, "a", 0), (2, "c", 0), (3, "b", 1), (3, "c", 1), (3, "d", 0)]


@pytest.mark.parametrize("words", [("0", "1"), ("false", "true"), ("No", "Yes"), ("0.0", "2")])
def test_a_column_of_yes_and_no(tmp_path: Path, words: tuple[str, str]) -> None:
    path = tmp_path / "views.csv"
    path.write_text("session,item,bought\n" + "".join(f"{s},{i},{words[t]}\n" for s, i, t in LONG))
    baskets = read_baskets(path, chosen="bought")
    assert [sorted(b) for b in baskets] == [["a"], [], ["b", "c"]]
    assert offered_of(baskets) == [["a", "b"], ["a", "c"], ["b", "c", "d"]]
    path.write_text("session,item,bought\n1,a,1\n1,b,perhaps\n")
    with pytest.raises(DataError, match=r"line 3.*'perhaps'.*neither yes nor no"):
        read_baskets(path, chosen="bought")


def test_tables_and_json(tmp_path: Path) -> None:
    lists = {"seen": [["a", "b"], ["a", "c"], ["b", "c", "d"]], "bought": [["a"], [], ["c", "b"]]}
    table = pa.table(lists)
    assert same(Baskets.from_arrow(table, item="seen", chosen="bought"))
    pq.write_table(table, tmp_path / "t.parquet")
    assert same(read_baskets(tmp_path / "t.parquet", item="seen", chosen="bought"))
    rows = [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert same(read_baskets(tmp_path / "t.jsonl", item="seen", chosen="bought"))
    long = [{"session": s, "item": i, "t": bool(t)} for s, i, t in LONG]
    assert offered_of(Baskets.from_arrow(pa.Table.from_pylist(long), chosen="t")) == lists["seen"]
    (tmp_path / "l.jsonl").write_text("\n".join(map(json.dumps, long)))
    assert offered_of(read_baskets(tmp_path / "l.jsonl", chosen="t")) == lists["seen"]


def test_tables_that_are_wrong(tmp_path: Path) -> None:
    table = pa.table({"seen": [["a", "b"]], "bought": [["c"]], "n": [1]})
    with pytest.raises(DataError, match="basket 0: 'c' was chosen"):
        Baskets.from_arrow(table, item="seen", chosen="bought")
    with pytest.raises(DataError, match="column of lists"):
        Baskets.from_arrow(table, item="seen", chosen="n")
    with pytest.raises(DataError, match="no column 'x' for chosen="):
        Baskets.from_arrow(table, item="seen", chosen="x")
    (tmp_path / "a.txt").write_text("1 2\n3 4\n")
    with pytest.raises(ParameterError, match="chosen cannot be given"):
        read_baskets(tmp_path / "a.txt", "fimi", chosen="x")


def test_what_is_not_drawn_of_a_large_basket_was_not_refused() -> None:
    baskets = Baskets.from_lists([range(9), range(3)], offered=[range(12), range(4)])
    drawn = baskets.draw(4)
    assert drawn.sizes.tolist() == [4, 3]
    assert drawn.refused.sizes.tolist() == [3, 1]
    assert set(drawn[0]) < set(range(9))
    assert drawn[0] == sorted(drawn[0]) != [0, 1, 2, 3]
    assert drawn[0] == baskets.subset([0]).draw(4)[0]
