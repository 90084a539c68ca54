"""What `diversity` and `rank_by` do to lists of ten: `python -m experiments.benchmark.variety FOLDER [DATA]...`.

A tenth of the training baskets is held out, half of each hidden. Test baskets are not looked at. Near duplicates are
pairs whose names share half of their words, colors and sizes apart. The folder keeps the fitted models.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

import contradpp as cd
from contradpp import datasets
from contradpp.data.baskets import Baskets
from contradpp.models.conditional import ConditionalDPP
from contradpp.slates.halves import hide, hit_samples

DATA = ("groceries", "uk", "instacart", "tafeng", "amazon/feeding", "belgian")
K = 10
MOST_TRAINING = 20_000
MOST_HALVES = 2000
DIVERSITIES = tuple(round(0.1 * tenth, 1) for tenth in range(11))
RANKINGS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)
IGNORED = set(
    re.findall(
        "[a-z]+",
        "red blue green pink white black ivory cream yellow orange purple grey gray brown gold silver natural clear "
        "assorted colour color small medium large mini big jumbo extra organic of with and the in a for set pack",
    )
)


def fitted(name: str, folder: Path) -> tuple[ConditionalDPP, Baskets, Baskets]:
    """Return a model, kept in a folder, with its training baskets and the baskets held out."""
    train, _ = datasets.load(name).split(0.2, random_state=0)
    part, rest = train.split(0.1, random_state=0)
    if part.n_baskets > MOST_TRAINING:
        part = part.split(MOST_TRAINING, random_state=0)[1].compact()
    path = folder / f"{name.replace('/', '-')}.safetensors"
    if not path.exists():
        ConditionalDPP(cd.NonsymmetricDPP(max_iter=30), random_state=0).fit(part).save(path)
    model = cd.load(path)
    assert isinstance(model, ConditionalDPP)
    return model, part, rest


def words(name: str) -> set[str]:
    """Return the words of a name that tell what the thing is."""
    found = set(re.findall(r"[a-z]{2,}", name.lower()))
    return {word[:-1] if len(word) > 3 and word.endswith("s") else word for word in found} - IGNORED


def duplicates(slates: NDArray[np.int64], names: list[set[str]]) -> float:
    """Return the mean number of near duplicates of a slate."""
    pairs = 0
    for row in slates.tolist():
        known = [names[code] for code in row if code >= 0]
        pairs += sum(2 * len(a & b) >= len(a | b) > 0 for k, a in enumerate(known) for b in known[:k])
    return pairs / len(slates)


def measure(name: str, folder: Path) -> None:
    """Print recall, changed slates, new items and near duplicates, relative to the ten most probable items."""
    model, part, rest = fitted(name, folder)
    model.learn_slates(part)
    items = model.items_
    halves = hide(rest, 0.5, min_size=4, random_state=0)
    given, hidden = (half.recode(items, unknown="ignore") for half in halves)
    usable = np.flatnonzero((given.sizes > 0) & (hidden.sizes > 0))[:MOST_HALVES]
    given, hidden = given.subset(usable), hidden.subset(usable)
    names = [words(items.names.get(item, "")) for item in items]

    def coded(answer: tuple[NDArray[Any], Any]) -> NDArray[np.int64]:
        return items.find(answer[0].ravel()).reshape(answer[0].shape)

    def recall(codes: NDArray[np.int64]) -> NDArray[np.float64]:
        return hit_samples(codes, hidden.sets, None)["recall"]

    top = coded(model.recommend(given, K))
    best, pairs = recall(top), duplicates(top, names)
    click.echo(f"{name}: {len(usable)} half-hidden baskets")
    for label, values in (("diversity", DIVERSITIES), ("rank_by", RANKINGS)):
        last = top
        for value in values:
            if label == "diversity":
                codes = coded(model.slate(given, K, diversity=value))
            else:
                codes = coded(model.recommend(given, K, rank_by=value))
            found = recall(codes)
            error = (found - best).std() / np.sqrt(len(best)) / best.mean()
            near = duplicates(codes, names) / pairs if pairs else float("nan")
            first = np.bincount(codes[:, 0]).max() / len(codes)
            click.echo(
                f"  {label} {value:.1f}: recall {found.mean() / best.mean():.3f} ± {error:.3f}, "
                f"differ {changed(codes, top):.2f}, from the setting before {changed(codes, last):.2f}, "
                f"near duplicates {near:.2f}, first is the most common {first:.2f}"
            )
            last = codes


def changed(slates: NDArray[np.int64], others: NDArray[np.int64]) -> float:
    """Return the share of slates that are not the same sets."""
    return float((np.sort(slates, axis=1) != np.sort(others, axis=1)).any(axis=1).mean())


if __name__ == "__main__":
    kept = Path(sys.argv[1])
    kept.mkdir(exist_ok=True)
    for data in sys.argv[2:] or DATA:
        measure(data, kept)
