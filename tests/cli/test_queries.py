"""`recommend`, `slate`, `complete`, `sample`, `info` and `evaluate` on a saved model."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import load, save

import contradpp as cd
from contract import fitted, rows_that
from contradpp.cli.inputs import ItemParser
from contradpp.cli.output import paragraph
from contradpp.cli.recommend import reasons_as_dict, reasons_in_words
from contradpp.models.explain import Explanation


def lines(text: str) -> list:
    return [json.loads(line) for line in text.splitlines()]


def test_suggestions_by_id_by_name_and_between_commas(call, model):
    first = call("recommend", model, "T1", "M1", "--json", code=0)
    assert first.out == call("recommend", model, "green TEA", "milk", "--json").out
    assert first.out == call("recommend", model, "Green tea, Milk", "--json").out
    found = json.loads(first.out)
    assert {entry["item"] for entry in found} == {"C1", "S1"}
    assert {entry["name"] for entry in found} == {"Coffee", "Sugar, white"}
    assert 0.99 < sum(entry["probability"] for entry in found) < 1.01


def test_a_name_with_a_comma_in_it_is_one_item(call, model):
    assert "S1" not in call("recommend", model, "sugar, white").out


def test_a_name_that_several_items_have_means_the_most_sold(caplog):
    items = cd.Vocabulary(["a", "b", "c"], names={"a": "Tea", "b": "Tea", "c": "Milk"})
    assert ItemParser(items, counts=[1, 5, 3]).basket(["tea", "milk"]) == ["b", "c"]
    assert "2 items are called 'tea'" in caplog.text


def test_the_table_has_names_and_exclusions(call, model):
    shown = call("recommend", model, "-n", 2, "--exclude", "coffee")
    assert shown.out.splitlines()[0].split() == ["chance", "item", "name"]
    assert shown.out.count("%") == 2
    assert "C1" not in shown.out


@pytest.mark.parametrize("command", ["recommend", "slate", "complete"])
def test_candidates_and_an_unknown_item_to_exclude(call, model, command):
    size = ["--size", 3] if command == "complete" else []
    shown = call(command, model, "T1", *size, "--candidates", "Coffee", "--candidates", "M1", "--exclude", "petrol")
    assert shown.code == 0, shown.err
    assert "does not know petrol" in shown.err
    assert "Sugar" not in shown.out
    assert "Coffee" in shown.out
    assert call(command, model, "T1", "--candidates", "petrol").code == 1


def test_a_word_without_end_is_an_unknown_item(call, model):
    for word in ("9" * 5000, "tea" * 5000, "²"):
        shown = call("recommend", model, word, code=1)
        assert "does not know" in shown.err
        assert len(shown.err) < 500


def test_a_terminal_gets_a_drawn_table(call, model, on_a_terminal):
    shown = call("recommend", model, "T1")
    assert "With Green tea" in shown.out
    assert "───" in shown.out


def test_running_text_is_wrapped_only_on_a_terminal(capsys, monkeypatch):
    words = " ".join(["word"] * 40)
    paragraph(words, label="so: ")
    assert capsys.readouterr().out == f"so: {words}\n"
    monkeypatch.setattr("contradpp.cli.output.on_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "50")
    paragraph(words, label="so: ", bold=True)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 3
    assert all(line.startswith("    word") for line in lines[1:])


def test_baskets_of_a_file(call, model, tmp_path):
    (tmp_path / "baskets.jsonl").write_text('["T1"]\n["M1", "S1"]\n')
    shown = call("recommend", model, "--input", tmp_path / "baskets.jsonl", "-n", 2, code=0)
    assert [len(answer["items"]) for answer in lines(shown.out)] == [2, 2]
    assert lines(shown.out)[1]["basket"] == ["M1", "S1"]


def test_baskets_of_standard_input(call, model):
    given = '["T1"]\n{"basket": ["milk"]}\ngreen tea, milk\nT1 M1\nSugar, white\n\n'
    shown = call("recommend", model, "-i", "-", "-n", 1, stdin=given, code=0)
    assert [a["basket"] for a in lines(shown.out)] == [["T1"], ["M1"], ["T1", "M1"], ["T1", "M1"], ["S1"], []]


def test_one_bad_basket_does_not_stop_the_others(call, model):
    shown = call("recommend", model, "-i", "-", stdin='["T1"]\n["wine"]\n["T1", "M1", "C1", "S1"]\n', code=1)
    good, unknown, full = lines(shown.out)
    assert good["items"]
    assert "wine" in unknown["error"]
    assert full["items"] == []
    assert "1 baskets" in shown.err


@pytest.mark.parametrize("given", ["[1,", '{"a": 1}', '[["T1"]]'])
def test_lines_that_are_no_baskets(call, model, given):
    assert "line 1" in call("recommend", model, "-i", "-", stdin=given + "\n", code=1).err


@pytest.mark.parametrize("command", ["recommend", "complete"])
def test_unknown_items(call, model, command):
    assert "Did you mean 'Green tea'?" in call(command, model, "gren tea", code=1).err
    assert "contradpp info MODEL --items" in call(command, model, "xyzzy").err
    size = ["--size", 2] if command == "complete" else []
    assert call(command, model, "gren tea", "--unknown", "ignore", *size).code == 0


@pytest.mark.parametrize("command", ["recommend", "complete"])
def test_items_and_a_file_exclude_each_other(call, model, command):
    assert call(command, model, "T1", "--input", "-").code == 2


def test_completion_of_a_basket(call, model):
    shown = call("complete", model, "T1", "--size", 3, "--exclude", "S1")
    assert [line[:2] for line in shown.out.splitlines()] == ["  ", "+ ", "+ "]
    (answer,) = lines(call("complete", model, "T1", "--size", 3, "--json").out)
    assert answer["completed"][0] == "T1"
    assert len(answer["added"]) == 2
    assert len(lines(call("complete", model, "-i", "-", "--size", 2, stdin="T1\nM1\n").out)) == 2
    assert "--size" in call("complete", model, "T1", "--size", 9, code=1).err


def test_samples(call, model):
    shown = call("sample", model, "-n", 4, "--size", 2, "--given", "green tea", "--random-state", 1, "--json")
    assert shown.code == 0, shown.err
    assert len(lines(shown.out)) == 4
    assert all(len(basket) == 2 and "T1" in basket for basket in lines(shown.out))
    assert (
        call("sample", model, "-n", 4, "--random-state", 1).out
        == call("sample", model, "-n", 4, "--random-state", 1).out
    )
    assert call("sample", model, "--size", 9).code == 1


def test_info(call, model):
    found = json.loads(call("info", model, "--json").out)
    assert found["model"] == "ConditionalDPP"
    assert found["experts"] == "popularity, ridge, item_knn_share, item_knn_cosine, basket_knn, loglinear, kernel"
    assert found["items"] == 4
    assert found["bytes"] == model.stat().st_size
    assert found["most_likely_items"][0]["item"] == "S1"
    shown = call("info", model)
    for words in ("ConditionalDPP", "exact", "Sugar, white", "n_components="):
        assert words in shown.out
    listed = call("info", model, "--items").out.splitlines()
    assert len(listed) == 5
    assert len(json.loads(call("info", model, "--items", "--json").out)) == 4


def test_info_of_a_model_that_was_not_trained(call, tmp_path):
    cd.LowRankDPP.from_factors([[1.0, 0.0], [0.0, 1.0]]).save(tmp_path / "m")
    assert json.loads(call("info", tmp_path / "m", "--json").out)["learned_from_baskets"] is None


@pytest.mark.parametrize("name", rows_that("save"))
def test_info_of_every_model(call, tmp_path, name):
    fitted(name).save(tmp_path / "m")
    for words in (["info"], ["info", "--json"], ["info", "--items"], ["card"]):
        call(*words, tmp_path / "m", code=0)


def test_evaluation(call, model, orders):
    found = json.loads(call("evaluate", model, orders, "--min-size", 2, "--json").out)
    assert 0 < found["mpr"] <= 100
    assert call("evaluate", model, "no-such-file").code == 1
    views = orders.with_name("views.txt")
    views.write_text("T1 C1 M1;C1\nM1 T1;T1\n")
    found = json.loads(call("evaluate", model, views, "--choices", "--json").out)
    assert (found["n_baskets"], found["log_likelihood"] < 0, 0 < found["mpr"] <= 100) == (2, True, True)
    assert "`offered` sets" in call("evaluate", model, orders, "--choices").err
    assert call("evaluate", model, orders, "--ks", "0").code == 2


@pytest.mark.parametrize("word", ["²", "٣x", "9" * 5000, "-" + "9" * 5000, "--5"])
def test_words_that_look_like_numbers_are_unknown_items(call, model, word):
    for words in (["recommend", model, "--", word], ["complete", model, "--", word]):
        assert "does not know" in call(*words, code=1).err
    (answer,) = lines(call("recommend", model, "-i", "-", stdin=json.dumps([word]) + "\n").out)
    assert "does not know" in answer["error"]


def test_numbers_are_found_however_they_are_written(call, tmp_path):
    cd.LowRankDPP.from_factors([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], items=[7, -3, 10**30]).save(tmp_path / "m")
    for word in ("7", "-3", str(10**30)):
        assert call("recommend", tmp_path / "m", "--", word).code == 0


def test_answers_for_a_file_carry_names(call, model, tmp_path):
    (answer,) = lines(call("recommend", model, "-i", "-", "-n", 2, stdin="T1\n").out)
    known = {"T1": "Green tea", "M1": "Milk", "C1": "Coffee", "S1": "Sugar, white"}
    assert answer["names"] == [known[item] for item in answer["items"]]
    (whole,) = lines(call("complete", model, "T1", "--size", 2, "--json").out)
    assert whole["names"] == [known[item] for item in whole["completed"]]
    cd.LowRankDPP.from_factors([[1.0, 0.0], [0.0, 1.0]]).save(tmp_path / "m")
    assert "names" not in lines(call("recommend", tmp_path / "m", "-i", "-", stdin="0\n").out)[0]


def test_evaluation_on_foreign_data_is_an_error(call, model):
    shown = call("evaluate", model, "toy", code=1)
    assert "knows none of the" in shown.err
    assert shown.out == ""


def test_control_characters_do_not_reach_a_terminal(call, tmp_path, on_a_terminal):
    """An item's id could otherwise recolor the screen, move the cursor or set the window's title."""
    evil = ["\x1b[31mred", "\x9b2Jgone", "ring\x07", "plain\x7f"]
    cd.LowRankDPP.from_factors([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.5, 0.1]], items=evil).save(tmp_path / "m")
    for words in (
        ["recommend", tmp_path / "m"],
        ["recommend", tmp_path / "m", "--json"],
        ["recommend", tmp_path / "m", evil[0]],
        ["complete", tmp_path / "m", "--size", 2],
        ["sample", tmp_path / "m", "-n", 20, "--random-state", 0],
        ["info", tmp_path / "m"],
        ["info", tmp_path / "m", "--items"],
    ):
        said = call(*words, code=0).out.replace("\x1b[1m", "").replace("\x1b[0m", "")  # our own bold
        assert not {"\x1b", "\x9b", "\x07", "\x7f"} & set(said), words
    (answer,) = lines(call("recommend", tmp_path / "m", "-i", "-", stdin=json.dumps([evil[1]]) + "\n").out)
    assert answer["basket"] == [evil[1]]
    assert "\x1b" not in call("evaluate", tmp_path / "m", "\x1b[31mred").err


def test_info_of_a_large_catalogue_makes_no_dense_matrix(call, model, monkeypatch):
    monkeypatch.setattr("contradpp.dpp.normalizer.MAX_DENSE_ITEMS", 1)
    for way in ("ByCholesky", "ByLU"):
        monkeypatch.setattr(f"contradpp.dpp.normalizer.{way}", lambda _: 1 / 0)
    assert "Sugar, white" in call("info", model, code=0).out
    found = json.loads(call("info", model, "--json").out)
    assert found["expected_basket_size"] > 1
    assert found["format_version"] == 4
    assert found["most_likely_items"][0]["item"] == "S1"
    assert len(json.loads(call("info", model, "--items", "--json").out)) == 4
    refused = call("sample", model, "--random-state", "0")
    assert refused.code != 0
    assert "the most is 1" in refused.err
    assert "chain" in refused.err
    assert call("sample", model, "--random-state", "0", "--method", "chain").code == 0


@pytest.fixture
def newer(model, tmp_path):
    """The model as if a later version had written it."""
    path = tmp_path / "newer.safetensors"
    data = model.read_bytes()
    length = int.from_bytes(data[:8], "little")
    body = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["contradpp"])
    path.write_bytes(save(load(data), metadata={"contradpp": json.dumps({**body, "version": 99})}))
    return path


@pytest.mark.parametrize("words", [["recommend"], ["complete"], ["sample"], ["info"]])
def test_a_model_of_a_newer_version_or_none_at_all(call, newer, orders, words):
    assert "upgrade contradpp" in call(*words, newer, code=1).err
    foreign = call(*words, orders, code=1)
    assert "orders.csv" in foreign.err
    assert "contradpp fit" in foreign.err
    assert call(*words, "no-such-model").code == 2


# -- Slates ------------------------------------------------------------------------------------------


def test_a_slate_is_that_of_the_model(call, model):
    loaded = cd.load(model)
    shown = call("slate", model, "green tea", "-n", 2, "--diversity", 0.6, "--exclude", "milk", "--json", code=0)
    items, shares = loaded.slate(["T1"], N=2, diversity=0.6, exclude=["M1"])
    assert [entry["item"] for entry in json.loads(shown.out)] == items.tolist()
    assert [entry["probability"] for entry in json.loads(shown.out)] == pytest.approx(shares.tolist())
    assert call("slate", model, "T1").out.splitlines()[0].split() == ["chance", "item", "name"]


def test_slates_of_a_file(call, model, tmp_path):
    (tmp_path / "baskets.jsonl").write_text('["T1"]\n["M1", "no such thing"]\n')
    first, second = lines(call("slate", model, "--input", tmp_path / "baskets.jsonl", "-n", 2, code=1).out)
    assert len(first["items"]) == 2
    assert "no such thing" in second["error"]


def test_at_most_goes_by_the_categories_that_fit_was_told(call, tmp_path):
    rows = ["order_id,sku,shelf"]
    for number, basket in enumerate([("t", "m"), ("c", "m"), ("t", "s"), ("c", "s")] * 40):
        rows += [f"{number},{item},{'drink' if item in 'tc' else 'dairy' if item == 'm' else ''}" for item in basket]
    (tmp_path / "orders.csv").write_text("\n".join(rows) + "\n")
    path = tmp_path / "shop.safetensors"
    words = ["--category", "shelf", "-o", path, "--max-iter", 3, "--test-size", 0]
    assert call("fit", tmp_path / "orders.csv", *words).code == 0
    assert cd.load(path).items_.categories == {"t": "drink", "c": "drink", "m": "dairy"}
    found = [entry["item"] for entry in json.loads(call("slate", path, "--at-most", 1, "--json").out)]
    assert len(found) == 3
    assert not {"t", "c"} <= set(found)
    found = json.loads(call("slate", path, "--at-most", "drink=0", "--at-most", "dairy=1", "--json").out)
    assert {entry["item"] for entry in found} == {"m", "s"}
    shown = call("slate", path, "--at-most", "drinks=0", code=1)
    assert "no item is of the category 'drinks'; there are such as 'dairy', 'drink'" in shown.err


def test_at_most_that_is_no_number(call, model):
    for word in ("many", "drink=", "=2", "drink=-1"):
        assert "CATEGORY=NUMBER" in call("slate", model, "--at-most", word, code=2).err
    assert "at_most needs categories" in call("slate", model, "--at-most", 1).err


# -- Candidates of anyone ----------------------------------------------------------------------------

LINE = {"candidates": ["a", "b", "c"], "scores": [0.9, 0.8, 0.5], "vectors": [[1, 0], [0.99, 0.1], [0, 1]]}


def test_bytes_that_are_no_text_spoil_only_their_line(call, tmp_path):
    good = b'{"candidates": ["a", "b"], "scores": [2, 1], "vectors": [[1, 0], [0, 1]]}'
    (tmp_path / "lists").write_bytes(b"\xd6\x00\xff\n" + good)
    bad, fine = lines(call("rerank", tmp_path / "lists", "-k", 1, code=1).out)
    assert "not JSON" in bad["error"]
    assert fine["items"] == ["a"]


def test_lists_are_reranked_line_by_line(call, tmp_path):
    by_item = LINE | {"candidates": [1, 2, 3], "vectors": {"1": [1, 0], "2": [1, 0], "3": [0, 1], "9": [0, 1]}}
    fixed = by_item | {"fixed": {"3": 0}, "given": [9], "categories": {"1": "x", "2": "x"}}
    text = "\n".join(json.dumps(line) for line in (LINE, by_item, fixed)) + "\n\n"
    (tmp_path / "lists.jsonl").write_text(text)
    shown = call("rerank", tmp_path / "lists.jsonl", "-k", 2, code=0)
    first, second, third = lines(shown.out)
    assert first == {"items": ["a", "c"], "scores": [0.9, 0.5], "positions": [0, 2]}
    assert second["items"] == [1, 3]
    assert third["items"] == [3, 1]
    assert call("rerank", "-k", 2, stdin=text).out == shown.out


def test_rules_and_reasons_of_a_list(call, tmp_path):
    (tmp_path / "lists.jsonl").write_text(json.dumps(LINE | {"categories": ["x", "x", "y"]}) + "\n")
    path = tmp_path / "lists.jsonl"
    (short,) = lines(call("rerank", path, "--at-most", 1).out)
    assert short["items"] == ["a", "c"]
    assert "at_most" in short["reason"]
    (last,) = lines(call("rerank", path, "-k", 2, "--at-least", "x=2", "--diversity", 1).out)
    assert last["items"] == ["a", "b"]
    (apart,) = lines(call("rerank", path, "--window", 2, "--method", "mmr", "--scale", "raw").out)
    assert apart["items"] == ["a", "c", "b"]
    (windowed,) = lines(call("rerank", path, "--method", "window", "--window-size", 1, "--diversity", 1).out)
    expected = cd.rerank(**LINE, diversity=1, method=cd.SlidingWindow(1))[0]
    assert windowed["items"] == expected.tolist()


def test_a_list_of_a_models_items_needs_no_vectors(call, model, tmp_path):
    line = {"candidates": ["T1", "M1", "C1", "unheard of"], "scores": [4, 3, 2, 1]}
    (tmp_path / "lists.jsonl").write_text(json.dumps(line) + "\n")
    (refused,) = lines(call("rerank", tmp_path / "lists.jsonl", "--model", model).out)
    assert "unheard of" in refused["error"]
    shown = call("rerank", tmp_path / "lists.jsonl", "--model", model, "--unknown", "ignore")
    assert set(lines(shown.out)[0]["items"]) == set(line["candidates"])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "not JSON"),
        ("[]", "candidates and scores"),
        ('{"candidates": []}', "candidates and scores"),
        ('{"candidates": ["a"], "scores": [1], "vector": [1]}', "may have vectors"),
        ('{"candidates": ["a"], "scores": [NaN], "vectors": [[1]]}', "leave the candidate out"),
        ('{"candidates": ["a"], "scores": [1]}', "vectors="),
        ('{"candidates": [["a"], ["b"]], "scores": [[1], [2]], "vectors": [[[1]], [[1]]]}', "one list"),
        ('{"candidates": [{}], "scores": [1], "vectors": [[1]]}', "hashable"),
        ('{"candidates": ["a"], "scores": [1], "vectors": [["x"]]}', "real numbers"),
        ('{"candidates": ["a"], "scores": [1], "vectors": 7}', "a row of numbers"),
    ],
)
def test_a_bad_line_has_its_reason_and_the_others_their_answer(call, tmp_path, line, said):
    (tmp_path / "lists.jsonl").write_text(f"{line}\n{json.dumps(LINE)}\n")
    shown = call("rerank", tmp_path / "lists.jsonl", code=1)
    assert "1 lists could not be answered" in shown.err
    bad, good = lines(shown.out)
    assert said in bad["error"]
    assert len(good["items"]) == 3


def test_suggestions_say_why(call, model):
    assert "because of" in call("recommend", model, "T1", "--why").out
    assert "times its usual share" in call("recommend", model, "T1", "--why").out  # the basket has no other reason
    assert "times its usual share" not in call("recommend", model, "T1", "M1", "--why").out
    found = json.loads(call("recommend", model, "T1", "--why", "--json").out)
    assert {"because", "experts", "popular"} <= found[0].keys()
    assert found[0]["because"][0]["item"] == "T1"


def test_best_sellers_and_a_slate_of_nothing_alike_are_noted(call, tmp_path):
    lists = [["bread", f"kind {number % 100}", f"kind {(number + 1) % 100}"] for number in range(300)]
    lists += [["milk", f"kind {number % 100}"] for number in range(200)]
    shop = cd.Baskets.from_lists(lists)
    path = tmp_path / "shop.safetensors"
    model = cd.LowRankDPP.from_factors(np.diag(np.sqrt(shop.item_counts / 10.0)), items=shop.items)
    model.save(path)
    pick = [word for item in ("bread", "milk", "kind 1", "kind 2") for word in ("--candidates", item)]
    shown = call("recommend", path, *pick, code=0)
    assert "2 of these are best sellers; --rank-by 0.5" in shown.err
    assert "best sellers" not in call("recommend", path, *pick, "--rank-by", 0.5).err
    assert "no others are as likely and less alike" in call("slate", path, *pick, "-n", 3).err
    assert not call("slate", path, *pick, "--json").err


def test_suggestions_by_lift(call, model):
    by_chance = [one["item"] for one in json.loads(call("recommend", model, "T1", "--json").out)]
    for way in ("lift", "0.5"):
        found = [one["item"] for one in json.loads(call("recommend", model, "T1", "--rank-by", way, "--json").out)]
        assert sorted(found) == sorted(by_chance)  # all that there are
    assert call("recommend", model, "T1", "--rank-by", "2").code == 2
    assert call("recommend", model, "T1", "--rank-by", "magic").code == 2


def test_reasons_name_the_kind_of_basket():
    items = cd.Vocabulary(["a", "b", "c", "d", "e"], names={"a": "Apples"})
    why = Explanation("e", ["b"], ["mixture"], np.zeros(1), np.array([[0.5]]), 0.0, popular=False)
    assert reasons_in_words(why, items) == "b"
    assert "like" not in reasons_as_dict(why)
    why = why._replace(like=("b", "a", "e", "c", "d"))
    assert reasons_in_words(why, items).endswith("; as in baskets of Apples, c, d")
    assert reasons_as_dict(why)["like"] == ["b", "a", "e", "c", "d"]
