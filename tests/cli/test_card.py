"""`contradpp card`: what hubs read, what people read, and that neither can be broken by a name."""

from __future__ import annotations

import json

import numpy as np
import pytest
import yaml

import contradpp as cd


def parts_of(text: str) -> tuple[dict, str]:
    _, head, body = text.split("---\n", 2)
    return yaml.safe_load(head), body


def test_the_card_of_a_model_with_its_metrics(call, model, orders, tmp_path):
    path = tmp_path / "README.md"
    call("card", model, "-o", path, "--test", orders, "--license", "mit", code=0)
    head, body = parts_of(path.read_text(encoding="utf-8"))
    assert head["library_name"] == "contradpp"
    assert head["license"] == "mit"
    metrics = {entry["type"]: entry["value"] for entry in head["model-index"][0]["results"][0]["metrics"]}
    report = cd.evaluate(cd.load(model), cd.read_baskets(orders))
    assert metrics["MPR"] == pytest.approx(report.mpr, rel=1e-5)
    assert set(metrics) == {"MPR", "p@10", "nDCG@10", "log-likelihood"}
    for words in ("ConditionalDPP", "Coffee", f'cd.load("{model.name}")', f"On {report.n_baskets} baskets", " to "):
        assert words in body
    again = call("card", model, "-o", path)  # its own file may be replaced
    assert again.code == 0
    assert "Not measured" in path.read_text(encoding="utf-8")


def test_what_card_did_not_write_is_not_replaced(call, model, tmp_path):
    path = tmp_path / "README.md"
    path.write_text("mine")
    assert call("card", model, "-o", path).code == 1
    assert path.read_text() == "mine"
    assert call("card", model, "-o", path, "--force").code == 0
    assert "library_name" in path.read_text(encoding="utf-8")


def test_foreign_data_are_refused(call, model, tmp_path):
    (tmp_path / "other.csv").write_text("order_id,item\n1,xx\n1,yy\n")
    assert "knows none" in call("card", model, "--test", tmp_path / "other.csv", code=1).err


def test_names_cannot_break_out(call, tmp_path):
    evil = ["a|b", "`x`", "<script>alert(1)</script>", "[x](http://evil)", "\x1b[31mred", "---\n# new"]
    path = tmp_path / "m.safetensors"
    cd.LowRankDPP.from_factors(np.eye(6), items=evil).save(path)
    head, body = parts_of(call("card", path).out)
    assert head["library_name"] == "contradpp"
    table = next(line for line in body.splitlines() if "most likely" in line)
    assert not {"<script>", "[x](", "\x1b"} & set(table)
    assert "<script" not in body.replace("cd.", "").split("## Use")[0]
    assert "\n# new" not in body
    assert json.loads(call("card", path, "--json").out)["items"] == 6
