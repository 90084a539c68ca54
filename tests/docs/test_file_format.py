"""The page on model files names every tensor that models write."""

from __future__ import annotations

import re
from pathlib import Path

import contradpp as cd
from contradpp.dpp.files import read_model

PAGE = Path(__file__).parents[2] / "docs" / "file-format.md"


def documented() -> set[str]:
    names = set()
    for row in re.findall(r"^\| (`.*?) \|", PAGE.read_text(encoding="utf-8").split("## Tensors")[1], re.MULTILINE):
        first, *others = re.findall(r"`([^`]+)`", row)
        prefix = first.rpartition(".")[0]
        names |= {first, *(f"{prefix}{name}" if name.startswith(".") else name for name in others)}
    return names


def test_every_tensor_is_documented(tmp_path):
    shop = cd.datasets.load("grocer", n_baskets=1000, random_state=0)
    aisles = shop.items.categories
    features = {item: {"name": str(item), "aisle": aisles[item], "price": 1.0} for item in aisles}
    model = cd.ConditionalDPP(cd.NonsymmetricDPP(4, 4, max_iter=2), random_state=0).fit(shop, item_features=features)
    model.add_items(["oat milk"], {"oat milk": {"name": "oat milk", "aisle": "dairy", "price": 2.0}})
    path = tmp_path / "model.safetensors"
    model.save(path)
    tensors, _ = read_model(path)
    written = {re.sub(r"idf\.\d+", "idf.<k>", re.sub(r"expert\.\w+", "expert.<name>", name)) for name in tensors}
    assert {"theta", "cold_start.neighbors", "features.idf.<k>"} <= written
    assert written <= documented()
