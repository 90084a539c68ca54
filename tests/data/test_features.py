"""Features of items: the recipe, the forms in which they may come, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from contradpp.data import datasets
from contradpp.data.features import ItemFeatures, features_contents, read_features, restored_features
from contradpp.data.vocabulary import Vocabulary
from contradpp.errors import DataError, ParameterError

ITEMS = Vocabulary(["tea", "mint tea", "cola", "bread"])
ROWS = {
    "tea": {"name": "Black Tea", "shelf": "hot", "price": 2.0},
    "mint tea": {"name": "Mint Tea", "shelf": "hot", "price": 3.0},
    "cola": {"name": "Cola Zero", "shelf": "cold", "price": None},
    "bread": {"name": "Rye Bread", "shelf": "cold", "price": 4.0},
}


def cosines(features: ItemFeatures) -> np.ndarray:
    return features.matrix.transposed().products(features.matrix)


def kinds(features: ItemFeatures) -> dict[str, str]:
    return {column.name: column.kind for column in features.encoder.columns}


def same(a: ItemFeatures, b: ItemFeatures) -> bool:
    return abs(a.matrix.sparse - b.matrix.sparse).nnz == 0 and (a.matrix.dense == b.matrix.dense).all()


def test_rows_have_length_one_and_what_is_alike_is_close():
    found = ItemFeatures.learn(ROWS, ITEMS)
    alike = cosines(found)
    assert kinds(found) == {"name": "text", "shelf": "category", "price": "number"}
    assert np.allclose(np.diag(alike), 1, atol=1e-5)
    assert alike[0, 1] > alike[0, 2]
    assert alike[0, 1] > alike[0, 3]


def test_frames_tables_files_and_mappings_say_the_same(tmp_path):
    pandas, polars, pyarrow = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))
    listed = {"item": list(ROWS), **{c: [row[c] for row in ROWS.values()] for c in ("name", "shelf", "price")}}
    frame, path = pandas.DataFrame(listed), tmp_path / "items.csv"
    frame.to_csv(path, index=False)
    frame.to_parquet(tmp_path / "items.parquet")
    expected = ItemFeatures.learn(ROWS, ITEMS)
    backwards = frame.iloc[::-1]  # its index is no RangeIndex, and is not taken for the ids
    for given in (frame, backwards, frame.set_index("item"), polars.DataFrame(listed), polars.LazyFrame(listed),
                  pyarrow.table(listed), read_features(path), read_features(tmp_path / "items.parquet")):  # fmt: skip
        assert same(ItemFeatures.learn(given, ITEMS), expected)


def test_category_types_ids_and_truths_are_categories():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {"item": list(ROWS), "brand": pandas.Categorical(["a", "b", "c", "d"]), "aisle_id": [1, 2, 2, 1],
         "organic": [True, False, True, False], "amount": [1, 2, 3, 4]}
    )  # fmt: skip
    expected = {"brand": "category", "aisle_id": "category", "organic": "category", "amount": "number"}
    assert kinds(ItemFeatures.learn(frame, ITEMS)) == expected


def test_vectors_count_by_their_direction_dense_or_sparse():
    vectors = np.array([[3.0, 4.0], [6.0, 8.0], [0.0, 1.0], [np.nan, np.nan]])
    dense = ItemFeatures.learn(vectors, ITEMS)
    sparse = ItemFeatures.learn(csr_matrix(np.nan_to_num(vectors)), ITEMS)
    named = ItemFeatures.learn(dict(zip(ITEMS, vectors.tolist(), strict=True)), ITEMS)
    for found in (dense, sparse, named):
        assert np.allclose(cosines(found)[:3, :3], [[1, 1, 0.8], [1, 1, 0.8], [0.8, 0.8, 1]], atol=1e-6)
        assert found.matrix.has_row.tolist() == [True, True, True, False]


def test_a_column_of_lists_is_a_vector():
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table({"item": list(ITEMS), "embedding": [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], None]})
    found = ItemFeatures.learn(table, ITEMS)
    assert kinds(found) == {"embedding": "vector"}
    assert found.matrix.has_row.tolist() == [True, True, True, False]


def test_missing_rows_constant_columns_and_unknown_items_are_allowed():
    rows = {"tea": {"shelf": "hot", "weight": 1.0, "note": None}, "cola": {"shelf": "cold", "weight": 1.0},
            "car": {"shelf": "road", "weight": 1.0}}  # fmt: skip
    found = ItemFeatures.learn(rows, ITEMS)
    assert found.n_unknown == 1
    assert kinds(found) == {"shelf": "text", "weight": "number", "note": "category"}
    assert found.matrix.has_row.tolist() == [True, False, True, False]


def test_later_items_follow_the_same_recipe():
    known = ItemFeatures.learn(ROWS, ITEMS)
    again = known.rows_for(["x", "y", "z"], {"x": ROWS["tea"], "y": {"shelf": "never seen"}})
    assert abs(again.sparse[0] - known.matrix.sparse[0]).nnz == 0
    assert again.has_row.tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (7, ParameterError, "data frame"),
        (np.zeros((3, 2)), ParameterError, "3 rows, but there are 4 items"),
        (np.full((4, 2), np.inf), DataError, "not finite"),
        (np.array([[1.0, np.nan]] * 4), DataError, "row 1: the vector"),
        ([["a", "b"]] * 4, DataError, "numbers only"),
        ({"tea": [1.0], "cola": [1.0, 2.0]}, DataError, "different lengths"),
        ({"tea": [1.0], "cola": {"a": 1}}, DataError, "mixes"),
        ({"who?": [1.0]}, DataError, "no row of item_features belongs"),
        ({"tea": {"a": None}}, DataError, "no column with values"),
        ({"tea": {"a": 1.0}, "cola": {"a": "x"}}, DataError, "mixes types"),
        ({"tea": {"a": float("inf")}}, DataError, "not finite"),
        ({"tea": {"a": {1}}}, DataError, "no feature"),
    ],
)
def test_what_cannot_be_used_says_so(given, error, words):
    with pytest.raises(error, match=words):
        ItemFeatures.learn(given, ITEMS)


@pytest.mark.parametrize(
    ("ids", "given", "error", "words"),
    [
        (["x"], {"x": {"color": "red"}}, DataError, "no feature 'color'"),
        (["x"], {"y": {"shelf": "hot"}}, DataError, "not among the new items"),
        (["x"], [[1.0, 2.0]], ParameterError, "in the same way"),
        (["x"], {"x": {"price": "dear"}}, DataError, "holds numbers"),
    ],
)
def test_later_items_that_do_not_fit_are_refused(ids, given, error, words):
    with pytest.raises(error, match=words):
        ItemFeatures.learn(ROWS, ITEMS).rows_for(ids, given)


def test_vectors_of_another_length_are_refused():
    known = ItemFeatures.learn(np.eye(4), ITEMS)
    with pytest.raises(ParameterError, match="vectors of 3 numbers, but those of the model have 4"):
        known.rows_for(["x"], [[1.0, 2.0, 3.0]])
    with pytest.raises(ParameterError, match="1 new items, but 2 rows"):
        known.rows_for(["x"], np.eye(4)[:2])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("item,shelf\ntea,hot\ntea,cold\n", "two rows for the item 'tea'"),
        ("item,shelf\n,hot\n", "row 1: the item is missing"),
        ("item,shelf\ntea\n", "2 fields but this row has 1"),
        ("thing,shelf\ntea,hot\n", "cannot tell which column"),
    ],
)
def test_bad_files_are_told_with_the_place(tmp_path, text, words):
    path = tmp_path / "items.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=words):
        read_features(path)


@pytest.mark.parametrize("given", [ROWS, np.eye(4), csr_matrix(np.eye(4))], ids=["columns", "dense", "sparse"])
def test_a_file_holds_all_of_them(given):
    found = ItemFeatures.learn(given, ITEMS)
    tensors, told = features_contents(found)
    again = restored_features(tensors, json.loads(json.dumps(told)), len(ITEMS))
    assert same(again, found)
    assert same(ItemFeatures(again.encoder, again.rows_for(list(ITEMS), given)), found)
    weights = [name for name in tensors if name.startswith("features.idf")]
    for name in ("features.indptr", "features.dense", *weights):
        with pytest.raises(ValueError, match="features"):
            restored_features(tensors | {name: tensors[name][:-1]}, told, len(ITEMS))


def test_data_sets_without_a_table_of_items_have_no_features():
    with pytest.raises(ParameterError, match="have no features"):
        datasets.item_features("toy")


def test_a_whole_number_that_no_float_can_hold_is_refused():
    with pytest.raises(DataError, match="not finite"):
        ItemFeatures.learn({item: {"price": 10**400} for item in ITEMS}, ITEMS)
