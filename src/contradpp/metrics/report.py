"""`evaluate`: one pass over the test baskets, and a report with every metric."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contradpp._random import RandomState, root_seed, stream
from contradpp._threads import resolve_n_jobs
from contradpp.data.baskets import as_baskets
from contradpp.data.sets import Sets, drawn_entries, kept_entries, take_sets
from contradpp.errors import DataError, MissingExtraError, ParameterError
from contradpp.learn.params import MOST_LEARNED
from contradpp.metrics import metrics
from contradpp.metrics.intervals import Resampled, plain
from contradpp.metrics.metrics import N_TOP, Samples
from contradpp.metrics.ranks import as_scorer

Counts = NDArray[np.int64]
SIZES = {"1": 1, "2-3": 2, "4-7": 4, "8-15": 8, "16-31": 16, "32-63": 32, "64+": 64}
POPULARITY = ("head", "middle", "tail")


def evaluate(
    model: Any,
    test: Any,
    ks: Sequence[int] = (1, 5, 10, 20),
    random_state: RandomState = 0,
    *,
    train: Any = None,
    min_size: int = 1,
    n_jobs: int | None = None,
    likelihood: bool = True,
) -> Report:
    """Measure a model on held-out baskets.

    Of a basket with more than 500 items, 500 drawn at random are ranked, each given the others of the 500, as in
    learning; `n_shortened` counts such baskets. Their log-likelihood is that of all their items.

    Parameters
    ----------
    model : a fitted DPP or baseline, or anything with `predict_next` and `items_`
    test : Baskets or list of lists
        Items that the model does not know are left out of the baskets, which are counted in `n_unknown`.
    ks : sequence of int
        The k of p@k.
    random_state : int, Generator or None
        Chooses the item that is held out of each basket, the random sets of the AUC and the bootstrap samples: the
        same for every model with the same catalogue.
    train : Baskets or list of lists, optional
        Where the popularity and the likeness of items are counted; the test baskets if left out.
    min_size : int
        Test baskets with fewer items are left out. With 1, a basket of one item counts, and is predicted from nothing;
        with 2, there is always a rest to predict from. The two can differ by more than methods do: say which.
    n_jobs : int, optional
        Threads; None for as many as the model uses, else all cores. Results do not depend on it.
    likelihood : bool
        Whether log-likelihood and AUC are computed; they are NaN otherwise. They take the model's normaliser, which is
        an estimate for a nonsymmetric model of many items (see `refine_normalizer`), and seconds to minutes of work.

    Examples
    --------
    >>> import contradpp as cd
    >>> shop = cd.Baskets.from_lists([["tea", "milk"], ["pasta", "sauce"]] * 50)
    >>> report = cd.evaluate(cd.baselines.ItemKNN().fit(shop), shop)
    >>> report.mpr, report.precision[1], report.coverage
    (100.0, 100.0, 1.0)
    """
    ks = _checked_ks(ks)
    scorer, seed = as_scorer(model), root_seed(random_state)
    threads = resolve_n_jobs(getattr(model, "n_jobs", None) if n_jobs is None else n_jobs)
    given = as_baskets(test)
    if min_size > 1:
        given = given.subset(given.sizes >= min_size)
    if not given.n_baskets:
        raise DataError(f"evaluate needs at least one test basket of {min_size} or more items")
    baskets = given.recode(scorer.items, unknown="ignore")
    sets = Sets(baskets.indptr, baskets.indices)
    ranked = np.flatnonzero(scorer.rankable(sets.sizes))
    large = int((sets.sizes[ranked] > MOST_LEARNED).sum())
    part = take_sets(sets, ranked)
    part = kept_entries(part, drawn_entries(part, MOST_LEARNED)) if large else part
    chosen = np.floor(stream(seed, 0).random(sets.count)[ranked] * part.sizes).astype(np.int64)
    held = part.indptr[:-1] + chosen
    outcome = scorer.leave_one_out(part, held, N_TOP, threads)
    reference = baskets if train is None else as_baskets(train).recode(scorer.items, unknown="ignore")
    ranks = metrics.rank_samples(part, held, outcome, reference, ks)
    samples = metrics.at_places(ranks, ranked, sets.count) | metrics.likelihood_samples(
        scorer if likelihood else None, sets, emptied=(sets.sizes == 0) & (given.sizes > 0), seed=seed
    )
    entries = Entries(part.indptr, outcome.better, outcome.equal, _others(part, baskets.n_items))
    return Report(
        **metrics.sample_means(samples, ks),
        coverage=metrics.coverage(outcome.top, baskets.n_items),
        personalization=metrics.personalization(outcome.top, baskets.n_items),
        n_baskets=sets.count,
        n_items=baskets.n_items,
        n_skipped=sets.count - part.count,
        n_unknown=int((given.sizes != sets.sizes).sum()),
        n_shortened=large,
        by_size=by_size(entries, ks),
        by_popularity=by_popularity(entries, part.indices, reference.item_counts, ks),
        by_basket=samples,
        seed=seed,
        log_likelihood_error=getattr(scorer, "log_probability_error", 0.0) if likelihood else 0.0,
    )


@dataclass(frozen=True)
class Report(Resampled):
    """What `evaluate` found. Percentages run from 0 to 100, shares from 0 to 1; NaN where a model has no such thing.

    Attributes
    ----------
    mpr, mpr_paper : float
        Mean percentile rank of one item held out of each basket, drawn at random. Ties count half; in the paper's
        definition they count for the model. The latter is for comparison with the paper, and no part of `metrics`.
    precision : dict of int to float
        The paper's leave-one-out p@k in percent. Items that tie are ranked in random order, in expectation.
    ndcg : float
        nDCG at 10 of the item that was held out; ties as for precision.
    auc, auc_paired : float
        The paper's AUC of log-likelihood against uniform sets of the same sizes; and the share of baskets that beat
        their own random set.
    log_likelihood : float
        Mean log P(A) over the baskets that the model holds possible; `n_impossible` others have P(A) = 0.
    log_likelihood_error : float
        Its standard error where it rests on an estimate of the model's normaliser, else 0. Intervals do not hold it.
    coverage : float
        The share of the catalogue that is among the ten best items for some basket without its held-out item.
    diversity : float
        Mean over these lists of 1 − Jaccard index of the baskets of two of their items.
    personalization : float
        The expected share of a list that is not in the list of another basket.
    n_baskets, n_items, n_skipped, n_unknown, n_shortened : int
        Test baskets and catalogue; baskets that could not be ranked (empty, or larger than the model's rank);
        baskets with items that the model does not know; baskets of which only some items were ranked.
    by_size, by_popularity : Breakdown
    by_basket : dict of str to array
        The metrics test basket by test basket, NaN where there is no value: `compare` pairs them.
    """

    mpr: float
    mpr_paper: float
    precision: dict[int, float]
    ndcg: float
    auc: float
    auc_paired: float
    log_likelihood: float
    coverage: float
    diversity: float
    personalization: float
    n_baskets: int
    n_items: int
    n_skipped: int
    n_impossible: int
    n_unknown: int
    by_size: Breakdown = field(repr=False)
    by_popularity: Breakdown = field(repr=False)
    by_basket: Samples = field(repr=False, compare=False)
    seed: int = field(repr=False)
    log_likelihood_error: float = 0.0
    n_shortened: int = 0

    @property
    def metrics(self) -> dict[str, float]:
        """Every metric by name; p@k as "precision@k"."""
        precision = {f"precision@{k}": value for k, value in self.precision.items()}
        return {
            "mpr": self.mpr, **precision, "ndcg": self.ndcg, "auc": self.auc,
            "auc_paired": self.auc_paired, "log_likelihood": self.log_likelihood, "coverage": self.coverage,
            "diversity": self.diversity, "personalization": self.personalization,
        }  # fmt: skip

    def plus_minus(self, metric: str = "log_likelihood") -> str:
        """ " ± x" for a log-likelihood that rests on an estimate, nothing for anything else."""
        shown = metric == "log_likelihood" and self.log_likelihood_error > 0
        return f" ± {self.log_likelihood_error:.1g}" if shown else ""

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """The breakdowns as a matplotlib figure, written to `path` if one is given."""
        return plot_breakdowns((self.by_size, self.by_popularity), path)

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain values for JSON: NaN is None, and the ks are strings."""
        counts = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name.startswith("n_")}
        content: dict[str, Any] = plain(
            {
                **{name: value for name, value in self.metrics.items() if "@" not in name},
                "mpr_paper": self.mpr_paper,
                "log_likelihood_error": self.log_likelihood_error,
                "precision": self.precision,
                **counts,
                "intervals": self.intervals,
                "by_size": self.by_size.as_dict(),
                "by_popularity": self.by_popularity.as_dict(),
            }
        )
        return content

    def __str__(self) -> str:
        notes = [f"{self.n_baskets:,} baskets, {self.n_items:,} items"]
        for count, what in (
            (self.n_skipped, "not ranked (empty, or larger than the model's rank)"),
            (self.n_impossible, "impossible under the model, left out of the log-likelihood"),
            (self.n_unknown, "with unknown items, which were ignored"),
            (
                self.n_shortened,
                f"of more than {MOST_LEARNED} items, of which {MOST_LEARNED} drawn at random are ranked",
            ),
        ):
            notes += [f"{count:,} baskets {what}"] if count else []
        lines = ["\n".join(notes), "", *self.table()]
        return "\n".join([*lines, "", str(self.by_size), "", str(self.by_popularity)])


# -- By group ------------------------------------------------------------------------------------------

# Here every item of a basket is held out in turn and weighs 1/|A|, which is the mean over the random choice that
# `Report.mpr` makes once per basket.


@dataclass(frozen=True)
class Row:
    """One group: how many baskets (or held-out items) it has, and how the model does on them."""

    group: str
    n: int
    mpr: float
    mpr_paper: float
    precision: dict[int, float]
    ndcg: float


@dataclass(frozen=True)
class Breakdown:
    """A table of the metrics by group; the last row is all groups together."""

    title: str
    counted: str
    rows: tuple[Row, ...]

    def as_dict(self) -> list[dict[str, Any]]:
        """The rows as plain values, for JSON."""
        return [asdict(row) for row in self.rows]

    def __str__(self) -> str:
        ks = list(self.rows[0].precision)
        head = ["", self.counted, "MPR", *[f"p@{k}" for k in ks], "nDCG"]
        lines = [f"{self.title:<12}" + "".join(f"{name:>10}" for name in head[1:])]
        for row in self.rows:
            values = [row.mpr, *row.precision.values()]
            shown = "".join(f"{value:>10.2f}" for value in values)
            lines.append(f"  {row.group:<10}{row.n:>10,}{shown}{row.ndcg:>10.4f}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Entries:
    """How every item ranked when it was left out of its basket; aligned with the entries of the ranked baskets."""

    indptr: Counts
    better: Counts
    equal: Counts
    others: Counts  # M − |A∖i|

    @property
    def sizes(self) -> Counts:
        """The size of the basket of each entry."""
        sizes = np.diff(self.indptr)
        return np.repeat(sizes, sizes)


def by_size(entries: Entries, ks: Sequence[int]) -> Breakdown:
    """By the size of the basket, the held-out item included."""
    group = np.searchsorted(list(SIZES.values()), entries.sizes, side="right") - 1
    baskets = np.bincount(group[entries.indptr[:-1]], minlength=len(SIZES)) if len(group) else np.zeros(len(SIZES), int)
    return _breakdown("basket size", "baskets", tuple(SIZES), group, baskets, entries, ks)


def by_popularity(entries: Entries, codes: NDArray[np.int32], item_counts: Counts, ks: Sequence[int]) -> Breakdown:
    """By how popular the held-out item is.

    With items sorted by how often they occur, those that make up the first third of all occurrences are the head,
    the second third the middle, the others the tail.
    """
    group = popularity_groups(item_counts)[codes]
    held_out = np.bincount(group, minlength=len(POPULARITY))
    return _breakdown("popularity", "items", POPULARITY, group, held_out, entries, ks)


def popularity_groups(item_counts: Counts) -> NDArray[np.int64]:
    """0, 1 or 2 for the items of the head, the middle and the tail."""
    order = np.argsort(-item_counts, kind="stable")
    ahead = np.cumsum(item_counts[order]) - item_counts[order]
    groups = np.full(len(item_counts), 2)
    groups[order] = np.minimum(3 * ahead // max(int(item_counts.sum()), 1), 2)
    groups[item_counts == 0] = 2
    return groups


def _breakdown(
    title: str,
    counted: str,
    names: tuple[str, ...],
    group: NDArray[np.int64],
    counts: Counts,
    entries: Entries,
    ks: Sequence[int],
) -> Breakdown:
    e, weights = entries, 1.0 / entries.sizes
    columns = {
        "mpr": metrics.percentile_rank(e.better, e.equal, e.others),
        "mpr_paper": metrics.percentile_rank(e.better, e.equal, e.others, lost=0.0),
        "ndcg": metrics.ndcg(e.better, e.equal),
        **{f"p{k}": 100.0 * metrics.hits(e.better, e.equal, k) for k in ks},
    }
    n = len(names)
    totals = np.bincount(group, weights, minlength=n)
    sums = {name: np.bincount(group, weights * values, minlength=n) for name, values in columns.items()}

    def row(name: str, which: NDArray[np.bool_]) -> Row:
        weight = totals[which].sum()
        mean = {column: float(s[which].sum() / weight) if weight else float("nan") for column, s in sums.items()}
        precision = {k: mean[f"p{k}"] for k in ks}
        return Row(name, int(counts[which].sum()), mean["mpr"], mean["mpr_paper"], precision, mean["ndcg"])

    rows = [row(name, np.arange(n) == g) for g, name in enumerate(names) if counts[g]]
    return Breakdown(title, counted, (*rows, row("all", np.ones(n, dtype=bool))))


def plot_breakdowns(breakdowns: tuple[Breakdown, ...], path: str | os.PathLike[str] | None = None) -> Any:
    """Bars of MPR and of the last p@k, group by group, a panel per breakdown; written to `path` if given.

    The dashed line is the mean over all groups.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("plots need matplotlib: pip install 'contradpp[plot]'") from error
    figure = Figure(figsize=(4.5 * len(breakdowns), 5.5), layout="constrained")
    axes = figure.subplots(2, len(breakdowns), squeeze=False, sharey="row")
    for column, table in enumerate(breakdowns):
        *groups, everything = table.rows
        k = list(everything.precision)[-1]
        for line, (name, color) in enumerate({"MPR": "#4477aa", f"p@{k}": "#ee6677"}.items()):
            values = [row.mpr if line == 0 else row.precision[k] for row in (*groups, everything)]
            panel = axes[line, column]
            panel.bar([f"{row.group}\n{row.n:,}" for row in groups], values[:-1], color=color)
            panel.axhline(values[-1], color="0.3", linewidth=1, linestyle="--")
            panel.spines[["top", "right"]].set_visible(False)
            if column == 0:
                panel.set_ylabel(f"{name} (%)")
        axes[1, column].set_xlabel(f"{table.title} (and number of {table.counted})")
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure


def _others(sets: Sets, n_items: int) -> NDArray[np.int64]:
    """M − |A∖i| for every entry."""
    return n_items + 1 - np.repeat(sets.sizes, sets.sizes)


def _checked_ks(ks: Sequence[int]) -> tuple[int, ...]:
    good = [isinstance(k, (int, np.integer)) and not isinstance(k, bool) and k >= 1 for k in ks]
    if not good or not all(good):
        raise ParameterError(f"ks must be positive integers, got {ks!r}")
    return tuple(dict.fromkeys(int(k) for k in ks))
