"""Mixtures: the number of clusters and the sizes of samples, a mixture beside a single kernel, and completed baskets.

`clusters` draws the figures of docs/guides/kinds-of-baskets.md.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click
import numpy as np

import contradpp as cd
from contradpp.data.baskets import Baskets
from experiments.paper import training
from experiments.paper.figures import panels_of

DATA = ("groceries", "amazon/apparel", "uk")
NUMBERS = (1, 3, 10, 30, 100, 300)
MOST = 10_000  # baskets
FEWEST = 20  # baskets a cluster
N_SAMPLES = 5_000
MOST_TESTED = 3_000


@click.command()
@click.option("--data", default=",".join(DATA), show_default=True, help="Between commas.")
@click.option("--seed", default=0, show_default=True)
@click.option("--sizes-of", default="groceries", show_default=True, help="The data set of the samples.")
@click.option("--figures", type=click.Path(path_type=Path), default=Path("docs/figures"), show_default=True)
def clusters(data: str, seed: int, sizes_of: str, figures: Path) -> None:
    """Plot held-out log-likelihood against the number of clusters, and sizes of samples against those of the data."""
    found = {name: by_number(*parts(name, seed), seed) for name in data.split(",") if name}
    if found:
        figure, panels = panels_of(3.4 * len(found), 2.8, 1, len(found))
        for panel, (name, (values, chosen)) in zip(panels.flat, found.items(), strict=True):
            panel.plot(list(values), list(values.values()), "o-")
            panel.axvline(chosen, color="0.7", linestyle="--", zorder=0)
            panel.set(xscale="log", xlabel="clusters")
            panel.set_xticks(list(values), map(str, values))
            panel.set_xticks([], minor=True)
            panel.set_title(name, fontsize=10)
        panels.flat[0].set_ylabel("log P of a held-out basket")
        figure.savefig(figures / "clusters-number.png", dpi=120)
    if sizes_of:
        shares = sizes(*parts(sizes_of, seed), seed)
        figure, panels = panels_of(5.4, 3.0, 1, 1)
        for name, share in shares.items():
            style = {"color": "0.3", "linewidth": 2.5} if name == "held-out baskets" else {}
            panels.flat[0].plot(np.arange(1, 21), share[1:21], label=name, **style)
        panels.flat[0].set(xlabel=f"size of a basket, {sizes_of}", ylabel="share of baskets")
        panels.flat[0].set_xticks(range(1, 21, 2))
        panels.flat[0].legend()
        figure.savefig(figures / "clusters-sizes.png", dpi=120)


def parts(name: str, seed: int) -> tuple[Baskets, Baskets]:
    """Return 80 % of the baskets, of 10,000 at most, and the others."""
    baskets = training.load(name)
    kept = np.sort(np.random.default_rng(seed).permutation(baskets.n_baskets)[:MOST])
    return baskets.subset(kept).split(0.2, random_state=seed)


def by_number(train: Baskets, test: Baskets, seed: int) -> tuple[dict[int, float], int]:
    """Return the mean of log P(A) for numbers of clusters of independent items, and the number that "auto" chooses."""

    def fitted(number: int | str) -> Any:
        return cd.MixtureDPP(cd.NonsymmetricDPP(0, 0), number, random_state=seed).fit(train)

    values = {}
    for number in NUMBERS:
        if number * FEWEST <= train.n_baskets:
            values[number] = fitted(number).score(test)
            click.echo(f"{number} clusters: {values[number]:.3f}")
    chosen = len(fitted("auto").weights_)
    click.echo(f"chosen: {chosen}")
    return values, chosen


def sizes(train: Baskets, test: Baskets, seed: int) -> dict[str, Any]:
    """Return the shares of sizes 0, 1, ..., of the data and of samples, without the empty set."""
    models: dict[str, Any] = {
        "MixtureDPP": cd.MixtureDPP(random_state=seed),
        "NonsymmetricDPP": cd.NonsymmetricDPP(random_state=seed),
    }
    drawn = {"held-out baskets": test}
    drawn |= {name: model.fit(train).sample(N_SAMPLES, random_state=seed) for name, model in models.items()}
    found = {}
    for name, baskets in drawn.items():
        counts = np.bincount(baskets.sizes, minlength=22)
        counts[0] = 0
        found[name] = counts / counts.sum()
    distances = {name: 0.5 * np.abs(share[:22] - found["held-out baskets"][:22]).sum() for name, share in found.items()}
    for name, distance in distances.items():
        click.echo(f"{name}: mean size {drawn[name].sizes.mean():.2f}, total variation to the data {distance:.3f}")
    return found


@click.command()
@click.option("--data", default="instacart,uk,groceries", show_default=True, help="Between commas.")
@click.option("--baskets", default=6000, show_default=True, help="Of every data set, drawn at random.")
@click.option("--queries", default=300, show_default=True, help="The most test baskets.")
@click.option("--seed", default=0, show_default=True)
def completions(data: str, baskets: int, queries: int, seed: int) -> None:
    """Add five items to three of a test basket of eight or more, by `complete` and by `recommend`."""
    for name in data.split(","):
        train, test = drawn(name, baskets).split(test_size=0.2, random_state=seed)
        test = test.subset(np.flatnonzero(test.sizes >= 8)[:queries])
        sellers = {train.items[code] for code in np.argsort(-train.item_counts)[:6].tolist()}
        model = cd.ConditionalDPP(random_state=seed, verbose=0).fit(train)
        rng = np.random.default_rng(seed)
        asked = [rng.permutation(np.array(list(basket), dtype=object)).tolist() for basket in test]
        click.echo(f"{name}, {len(asked)} baskets: recall of the other items, share of the six best sellers")
        for label, one in (("ConditionalDPP", model), ("MixtureDPP", model.kernel_)):
            added = {
                "complete": [one.complete(basket[:3], 8)[3:] for basket in asked],
                "recommend": [list(one.recommend(basket[:3], N=5)[0]) for basket in asked],
            }
            for way, items in added.items():
                pairs = zip(items, asked, strict=True)
                recall = np.mean([len({*new} & {*basket[3:]}) / len(basket[3:]) for new, basket in pairs])
                share = np.mean([len({*new} & sellers) / 5 for new in items])
                click.echo(f"{label}.{way}: {recall:.4f}, {share:.0%}")


def drawn(name: str, most: int | None) -> Baskets:
    """Return baskets of a data set, so many at random."""
    data = cd.datasets.load(name)
    return data if most is None else data.subset(np.random.default_rng(0).permutation(data.n_baskets)[:most])


@click.command()
@click.argument("name")
@click.option("--baskets", type=int, help="Of the data set, drawn at random; default: all.")
@click.option("--seed", default=0, show_default=True)
def kernels(name: str, baskets: int | None, seed: int) -> None:
    """Compare a ConditionalDPP that has a MixtureDPP with one that has a NonsymmetricDPP, and both kernel models."""
    train, test = drawn(name, baskets).split(test_size=0.2, random_state=seed)
    test = test.subset(np.arange(min(test.n_baskets, MOST_TESTED)))
    models: dict[str, Any] = {}
    for word, kernel in (("mixture", cd.MixtureDPP()), ("nonsymmetric", cd.NonsymmetricDPP())):
        started = time.process_time()
        fitted = cd.ConditionalDPP(kernel, random_state=seed, verbose=0).fit(train)
        click.echo(f"{word}: {time.process_time() - started:.0f} s of processor time")
        models |= {f"conditional, {word}": fitted, word: fitted.kernel_}
    click.echo(f"{len(models['mixture'].weights_)} clusters, smoothing {models['mixture'].smoothing_:g}")
    click.echo(cd.compare(models, test, min_size=2))
