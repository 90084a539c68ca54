"""Histories on the command line: earlier baskets, customers in files of orders, and fits with customers."""

from __future__ import annotations

import json

import numpy as np
import pytest

import contradpp as cd


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A file of orders, and a model fitted to it by the command."""
    from contradpp.cli.main import main

    folder = tmp_path_factory.mktemp("customers")
    rng = np.random.default_rng(0)
    rows = ["order_id,product,customer_id,ordered_at"]
    for customer in range(120):
        favorites = rng.choice(20, 3, replace=False)
        for week in range(5):
            codes = {*favorites[:2].tolist(), *rng.choice(20, 2).tolist()}
            rows += [f"{100 * customer + week},p{code},{customer},2024-01-{week + 1:02}" for code in sorted(codes)]
    (folder / "orders.csv").write_text("\n".join([*rows, ""]))
    words = ["fit", folder / "orders.csv", "-o", folder / "shop.safetensors", "--n-components", 4, "--max-iter", 3]
    with pytest.raises(SystemExit) as stop:
        main([*map(str, words), "--n-jobs", "1"])
    assert stop.value.code == 0
    return folder


def test_fit_finds_customers_and_says_what_they_bring(shop, call, tmp_path):
    out = tmp_path / "again.safetensors"
    words = ["fit", shop / "orders.csv", "-o", out, "--n-components", 4, "--max-iter", 3, "--n-jobs", 1]
    shown = call(*words, code=0).out
    assert "120 customers, 5.0 orders each: learning what they come back for." in shown
    assert "baskets of customers who came before" in " ".join(shown.split())
    assert cd.load(out).uses_history
    found = json.loads(call(*words, "--json", code=0).out)["history"]
    assert found["with"] > found["without"]
    assert found["n_baskets"] > 50


def test_histories_as_words_as_a_file_and_of_a_customer(shop, call, tmp_path):
    path = shop / "shop.safetensors"
    model = cd.load(path)
    orders = cd.read_baskets(shop / "orders.csv")
    history = [basket for customer, basket in zip(orders.customers, orders, strict=True) if customer == 17]
    items, shares = model.recommend(["p1"], history=history)
    expected = [{"item": item, "probability": p} for item, p in zip(items.tolist(), shares.tolist(), strict=True)]
    words = [word for basket in history for word in ("--history", ",".join(basket))]
    (tmp_path / "past.jsonl").write_text("".join(json.dumps(basket) + "\n" for basket in history))
    for options in (words, ["--history", tmp_path / "past.jsonl"], ["--customer", 17, "--orders", shop / "orders.csv"]):
        assert json.loads(call("recommend", path, "p1", *options, "--json", code=0).out) == expected
    completed = call("complete", path, "p1", *words, "--size", 4, "--json", code=0)
    assert json.loads(completed.out)["completed"] == model.complete(["p1"], 4, history=history)
    slate = json.loads(call("slate", path, "p1", *words, "--json", code=0).out)
    assert [one["item"] for one in slate] == model.slate(["p1"], history=history)[0].tolist()


def test_reasons_name_the_orders_and_new_only_leaves_them_out(shop, call):
    path = shop / "shop.safetensors"
    words = ["recommend", path, "--history", "p1,p2", "--history", "p1,unheard", "-n", 20]
    shown = call(*words, "--why", code=0)
    assert "bought in 2 of your last 2 orders" in shown.out
    assert "does not know 1 items of the history" in shown.err
    bought = {one["item"]: one["bought"] for one in json.loads(call(*words, "--why", "--json").out)}
    assert (bought["p1"], bought["p2"], bought["p3"]) == (2, 1, 0)
    fresh = {one["item"] for one in json.loads(call(*words, "--new-only", "--json", code=0).out)}
    assert fresh == {f"p{code}" for code in range(20)} - {"p1", "p2"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--customer", "17"], "give either --history, or --customer and --orders"),
        (["--customer", "17", "--orders", "ORDERS", "--history", "p1"], "give either --history"),
        (["--customer", "none", "--orders", "ORDERS"], "there is no customer 'none'"),
        (["--new-only"], "--new-only needs a history"),
        (["--history", "p1", "--input", "-"], "not with --input"),
    ],
)
def test_wrong_histories(shop, call, options, message):
    words = [shop / "orders.csv" if word == "ORDERS" else word for word in options]
    shown = call("recommend", shop / "shop.safetensors", *words)
    assert shown.code != 0
    assert message in " ".join(shown.err.split())


def test_evaluate_takes_earlier_baskets(shop, call, tmp_path):
    lines = (shop / "orders.csv").read_text().splitlines()
    last = [line for line in lines if line.endswith("2024-01-05")]
    (tmp_path / "last.csv").write_text("\n".join([lines[0], *last, ""]))
    (tmp_path / "earlier.csv").write_text("\n".join(line for line in lines if line not in last) + "\n")
    words = ["evaluate", shop / "shop.safetensors", tmp_path / "last.csv", "--history", tmp_path / "earlier.csv"]
    found = json.loads(call(*words, "--json", code=0).out)
    test, earlier = (cd.read_baskets(tmp_path / name) for name in ("last.csv", "earlier.csv"))
    report = cd.evaluate(cd.load(shop / "shop.safetensors"), test, history=earlier)
    for name in ("repeat@10", "new@10", "next_recall", "ndcg"):
        assert found[name] == pytest.approx(report.metrics[name])
