"""The end of learning beside what is known: the kernels that baskets come from, published figures, popularity."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import click
import numpy as np

import contradpp as cd
from contradpp.data.sets import EMPTY, distinct_sets
from contradpp.learn.objectives import Contrastive
from contradpp.learn.optimizers import FullBatch, climb
from contradpp.learn.state import NO_SKEW, SkewPattern, State, kernel_of
from contradpp.learn.training import assemble
from contradpp.metrics.intervals import mean_interval
from experiments.benchmark.models import AMAZON
from experiments.speed.timing import head, row

# -- Known kernels -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Known:
    """A kernel of M items and K normal columns, with a diagonal and a skew part where they are not zero."""

    M: int
    K: int
    scale: float
    seed: int
    diagonal: float = 0.0
    skew: float = 0.0

    @cached_property
    def truth(self) -> Any:
        """The model that baskets are drawn from."""
        rng = np.random.default_rng(self.seed)
        V = rng.normal(size=(self.M, self.K)) * self.scale
        d = None
        S = None
        if self.diagonal:
            d = self.diagonal * np.exp(0.5 * rng.normal(size=self.M))
            S = np.triu(self.skew * rng.normal(size=(self.M, self.M)) * (rng.random((self.M, self.M)) < 4 / self.M), 1)
            S = S - S.T
        return cd.NonsymmetricDPP.from_factors(V, S=S, diagonal=d)

    @property
    def name(self) -> str:
        """The first cell of its row."""
        return f"M={self.M}, K={self.K}" + (", D and S" if self.diagonal else "")

    def learner(self, seed: int, **parameters: Any) -> Any:
        """Return an unfitted model of the same kind."""
        given: dict[str, Any] = {"objective": "mle", "random_state": seed} | parameters
        return cd.NonsymmetricDPP(self.K, self.M, **given) if self.diagonal else cd.LowRankDPP(self.K, **given)


KERNELS = (
    Known(8, 3, 0.8, 1),
    Known(12, 4, 0.8, 21),
    Known(12, 12, 0.3, 2),
    Known(20, 5, 0.5, 5),
    Known(20, 6, 0.3, 3, diagonal=0.3, skew=0.5),
    Known(40, 8, 0.3, 3),
    Known(40, 40, 0.08, 4),
)


@click.command()
@click.option("--seeds", default=5, show_default=True)
@click.option("--baskets", default=18_000, show_default=True)
@click.option("--only", default="", help="A part of a name, such as 'M=12'.")
@click.option("--figure", type=click.Path(path_type=Path), help="Draw one kernel, learned with and without annealing.")
def known_kernels(seeds: int, baskets: int, only: str, figure: Path | None) -> None:
    """Learn known kernels again from samples, by objective="mle" and the defaults.

    The table says how far, in nats a basket, held-out baskets are below the best that is known of the same model: a
    long climb by L-BFGS with full batches that starts at the truth.
    """
    if figure is not None:
        draw(figure, seeds)
        return
    head("kernel", "truth", "best known", "nats below the best known, seed by seed", "seconds")
    for known in KERNELS:
        if only in known.name:
            data, held_out = (known.truth.sample(baskets, random_state=seed) for seed in (0, 1))
            truth = known.truth.score(held_out)
            best = best_known(known, data).score(held_out)
            began = time.perf_counter()
            gaps = [best - known.learner(seed).fit(data).score(held_out) for seed in range(seeds)]
            took = (time.perf_counter() - began) / seeds
            listed = " ".join(f"{gap:.4f}" for gap in gaps)
            row(known.name, f"{truth:.4f}", f"{best:.4f}", listed, f"{took:.1f}")


def best_known(known: Known, data: cd.Baskets) -> Any:
    """Return the model where a long climb from the truth ends."""
    kernel = known.truth.kernel_
    partners = SkewPattern.of_matrix(kernel.skew.matrix(), known.M) if kernel.skew.n_entries else NO_SKEW
    state = State(kernel.factors.copy(), np.log(kernel.diagonal) if kernel.has_diagonal else np.empty(0), partners)
    sets, weights = distinct_sets(data.sets, np.ones(data.n_baskets))
    batch = assemble(sets, weights * sets.count / data.n_baskets, EMPTY, np.empty(0))
    climb(FullBatch(state, Contrastive(1.0), batch, np.zeros(known.M), 10_000), 3000)
    found = kernel_of(state.V, state.log_d, state.pairs, partners)
    S = found.skew.matrix() if partners is not NO_SKEW else None
    return cd.NonsymmetricDPP.from_factors(state.V, S=S, diagonal=found.diagonal if kernel.has_diagonal else None)


def draw(path: Path, n_seeds: int) -> None:
    """Draw the nats below the truth after training on 5,000 baskets, without annealing and with it."""
    from matplotlib.figure import Figure

    known = Known(12, 4, 1.0, 1)
    data = known.truth.sample(5000, random_state=1)
    figure = Figure(figsize=(6, 2.2), layout="constrained")
    axes = figure.subplots()
    for place, anneal in enumerate((False, True)):
        for seed in range(n_seeds):
            model = known.learner(seed, alpha=0, anneal=anneal, calibrate=None).fit(data, validation=data)
            gap = known.truth.score(data) - model.score(data)
            axes.plot(gap, place, "o", color=f"C{place}", alpha=0.6)
            click.echo(f"anneal={anneal} seed={seed}: {gap:.4f}")
    axes.axvline(0, color="0.6", lw=1)
    axes.set(yticks=(0, 1), yticklabels=("steps along the gradient", "a diagonal lowered to zero"), ylim=(-0.6, 1.6))
    axes.set_xlabel("nats a basket below the kernel that the baskets come from")
    figure.savefig(path, dpi=110)


# -- Published nonsymmetric DPPs -----------------------------------------------------------------------

N_TEST = 2000
N_VALIDATION = 300
METRICS = {"mpr_paper": 2, "auc": 3, "log_likelihood": 2}
EARLIER = ("low rank", "nonsymmetric, 2019", "scalable, 2021")
PUBLISHED = {
    "apparel": [(62.63, 0.68, -10.02), (72.20, 0.77, -9.64), (69.02, 0.74, -9.63)],
    "three categories": [(61.0, 0.76, -18.11), (74.10, 0.82, -16.96), (73.04, 0.82, -17.14)],
    "uk": [(69.95, 0.58, -116.23), (74.17, 0.66, -104.38), (76.79, 0.73, -100.65)],
}


def apparel() -> cd.Baskets:
    """Read all 14,970 registries, those of one item among them."""
    return cd.read_baskets(cd.datasets.download("amazon/apparel")[0], "ragged")


def three_categories() -> cd.Baskets:
    """Load the 31,218 registries of two or more items of three categories: 300 items, and no basket mixes."""
    parts = []
    for name in ("apparel", "diaper", "feeding"):
        baskets = cd.datasets.load(f"amazon/{name}")
        items = cd.Vocabulary([f"{name}-{item}" for item in baskets.items])
        parts.append(cd.Baskets(baskets.indptr, baskets.indices, items))
    whole = parts[0].items.merge(parts[1].items).merge(parts[2].items)
    return cd.Baskets.concat([part.recode(whole) for part in parts])


DATA: dict[str, Callable[[], cd.Baskets]] = {
    "apparel": apparel,
    "three categories": three_categories,
    "uk": lambda: cd.datasets.load("uk"),
}
MODELS: dict[str, Callable[[int, int], Any]] = {
    "LowRankDPP, mle": lambda largest, seed: cd.LowRankDPP(max(largest, 30), objective="mle", random_state=seed),
    "NonsymmetricDPP": lambda _, seed: cd.NonsymmetricDPP(random_state=seed),
    "ConditionalDPP": lambda _, seed: cd.ConditionalDPP(random_state=seed),
}


@click.command()
@click.option("--only", type=click.Choice(list(DATA)))
@click.option("--seeds", default=3, show_default=True)
def published(only: str | None, seeds: int) -> None:
    """Set our models beside the published nonsymmetric DPPs, by their protocol.

    2,000 test and 300 validation baskets, the rest to learn. Their numbers are those of table 2 of Gartrell, Han,
    Dohmatob, Gillenwater and Brunel, Scalable Learning and MAP Inference for Nonsymmetric Determinantal Point Processes
    (ICLR 2021): MPR of one item left out of each basket at random, AUC of log P of baskets beside uniform sets of the
    same sizes, and log P of the test baskets.
    """
    for name in (only,) if only else DATA:
        baskets = DATA[name]()
        click.echo(f"\n{name}: {baskets.n_baskets:,} baskets, {baskets.n_items:,} items\n")
        head("model", "MPR", "AUC", "log-likelihood")
        for label, (mpr, auc, likelihood) in zip(EARLIER, PUBLISHED[name], strict=True):
            row(f"published: {label}", f"{mpr:.2f}", f"{auc:.2f}", f"{likelihood:.2f}")
        for model in MODELS:
            runs = np.array([measured(baskets, model, seed) for seed in range(seeds)])
            found = zip(runs.mean(axis=0), runs.std(axis=0), METRICS.values(), strict=True)
            row(model, *(f"{mean:.{digits}f} ± {spread:.{digits}f}" for mean, spread, digits in found))


def measured(baskets: cd.Baskets, model: str, seed: int) -> list[float]:
    """Return the three metrics of a model on one split."""
    order = np.random.default_rng(seed).permutation(baskets.n_baskets)
    test, held, train = (baskets.subset(np.sort(part)) for part in np.split(order, [N_TEST, N_TEST + N_VALIDATION]))
    fitted = MODELS[model](int(baskets.sizes.max()), seed).fit(train, validation=held)
    report = cd.evaluate(fitted, test, random_state=seed)
    return [getattr(report, name) for name in METRICS]


# -- Popularity ----------------------------------------------------------------------------------------


@click.command()
@click.option("--only", default=",".join((*AMAZON, "uk", "belgian")), show_default=True)
@click.option("--objective", default="mle", show_default=True)
@click.option("--components", default=16, show_default=True)
def symmetric(only: str, objective: str, components: int) -> None:
    """Ask whether a kernel that only repels, D + V Vᵀ, is more likely on held-out baskets than popularity alone.

    80/20 of nine data sets by the seed 0, all test baskets, everything else by default; nats a basket gained over
    `baselines.Popularity`, with a paired interval of 95 %.
    """
    head("data", "popularity", "D + V Vᵀ", "gain", "seconds to fit")
    for name in only.split(","):
        train, test = cd.datasets.load(name, progress=False).split(0.2, random_state=0)
        began = time.perf_counter()
        model = cd.NonsymmetricDPP(components, 0, objective=objective, random_state=0).fit(train)
        took = time.perf_counter() - began
        popularity = cd.baselines.Popularity().fit(train)
        ours, theirs = (one.score_samples(test, unknown="ignore") for one in (model, popularity))
        low, high = mean_interval(ours - theirs, level=0.95, n_resamples=1000, seed=0)
        gain = f"{np.mean(ours - theirs):+.4f} [{low:+.4f}, {high:+.4f}]"
        row(name, f"{theirs.mean():.3f}", f"{ours.mean():.3f}", gain, f"{took:.0f}")
