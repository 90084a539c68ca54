"""`evaluate`: one pass over the test baskets, and a report with every metric."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np

from contradpp._display import html_table, new_figure
from contradpp._random import HELD_OUT_ITEM, RandomState, root_seed, stream
from contradpp._threads import resolve_n_jobs
from contradpp._types import Codes, Flags, Ints
from contradpp.data.baskets import Baskets, as_baskets
from contradpp.data.orders import Histories, SetsWithHistory
from contradpp.data.sets import Sets, drawn_entries, kept_entries, take_sets
from contradpp.data.vocabulary import Vocabulary
from contradpp.errors import DataError, ParameterError
from contradpp.learn.params import MOST_LEARNED
from contradpp.metrics import metrics
from contradpp.metrics.intervals import Resampled, plain
from contradpp.metrics.metrics import N_TOP, Samples
from contradpp.metrics.ranks import as_scorer

SIZES = {"1": 1, "2-3": 2, "4-7": 4, "8-15": 8, "16-31": 16, "32-63": 32, "64+": 64}
POPULARITY = ("head", "middle", "tail")
VISIBLE_ERROR = 0.005  # of a log-likelihood, which is printed with two digits
KNOWN_SIZE = 3  # items of a test basket from which it is compared with the training baskets
MOST_KNOWN = 0.5  # the share of test baskets that a model may know
TWO_WAYS = (
    "MPR and nDCG above are those of one item of each basket, drawn at random; p@k above and all "
    "of the tables below leave out every item in turn."
)
OF_HISTORY = ("repeat@10", "new@10", "new_only@10", "next_recall", "next_ndcg")

log = logging.getLogger("contradpp.metrics")


def evaluate(
    model: Any,
    test: Any,
    ks: Sequence[int] = (1, 5, 10, 20),
    random_state: RandomState = 0,
    *,
    train: Any = None,
    history: Any = None,
    min_size: int = 1,
    n_jobs: int | None = None,
    likelihood: bool = True,
    check: bool = True,
) -> Report:
    """Measure a model on held-out baskets.

    Of a basket with more than 500 items, 500 drawn at random are ranked, each given the others of
    the 500, as in learning; `n_shortened` counts such baskets. Their log-likelihood is that of all
    their items.

    Parameters
    ----------
    model : a fitted DPP or baseline, or anything with `predict_next` and `items_`
    test : Baskets or list of lists
        Items that the model does not know are left out of the baskets; `n_unknown` counts them.
    ks : sequence of int
        The k of p@k.
    random_state : int, Generator or None
        Chooses the item that is held out of each basket, the random sets of the AUC and the
        bootstrap samples: the same for every model with the same catalogue.
    train : Baskets or list of lists, optional
        Where the popularity and the similarity of items are counted; the test baskets if left out.
    history : Baskets, optional
        Earlier baskets, such as those for training, in which customers of the test baskets are
        known. Models that use histories then get, for each test basket, the customer's earlier
        ones, and all models are measured on repeat and new items apart, and on the next basket.
    min_size : int
        Test baskets with fewer items are left out. With 1, a basket of one item counts, and is
        predicted from nothing; with 2, there is always a rest to predict from. The two can differ
        by more than methods do: say which.
    n_jobs : int, optional
        Threads; None for as many as the model uses, else all cores. Results do not depend on it.
    likelihood : bool
        False leaves out log-likelihood and AUC, which are NaN then. They take the model's
        normalizer, which is an estimate for a nonsymmetric model of many items (see
        `refine_normalizer`), and seconds to minutes of work.
    check : bool
        Log a warning if the model has learned from most of the test baskets.

    Returns
    -------
    Report

    Examples
    --------
    >>> import contradpp as cd
    >>> shop = cd.Baskets.from_lists([["tea", "milk"], ["pasta", "sauce"]] * 50)
    >>> report = cd.evaluate(cd.baselines.ItemKNN().fit(shop), shop)
    >>> report.mpr, report.precision[1], report.coverage
    (100.0, 100.0, 1.0)
    """
    given = as_baskets(test)
    if check:
        warn_if_known(model, given)
    ks = _checked_ks(ks)
    scorer = as_scorer(model)
    seed = root_seed(random_state)
    threads = resolve_n_jobs(getattr(model, "n_jobs", None) if n_jobs is None else n_jobs)
    large = np.flatnonzero((given.sizes >= min_size) | (min_size <= 1))  # empty ones are counted
    histories = None
    if history is not None:
        histories = given.histories(before=as_baskets(history, "history")).take(large)
    given = given.subset(large)
    if not given.n_baskets:
        raise DataError(f"evaluate needs at least one test basket of {min_size} or more items")
    baskets = given.recode(scorer.items, unknown="ignore")
    reference = baskets
    if train is not None:
        reference = as_baskets(train).recode(scorer.items, unknown="ignore")

    sets = baskets.sets
    ranked = np.flatnonzero(scorer.rankable(sets.sizes))
    part = take_sets(sets, ranked)
    n_shortened = int((part.sizes > MOST_LEARNED).sum())
    if n_shortened:
        part = kept_entries(part, drawn_entries(part, MOST_LEARNED))
    chosen = np.floor(stream(seed, HELD_OUT_ITEM).random(sets.count)[ranked] * part.sizes).astype(
        np.int64
    )
    held = part.indptr[:-1] + chosen
    came_before = None
    if histories is not None:
        came_before = histories.recode(scorer.items)
        if not came_before.lengths.any():
            raise DataError(
                "no customer of a test basket has an earlier basket: pass Baskets with customers "
                "as history, such as those for training"
            )
        part = SetsWithHistory(part, came_before.take(ranked))
    outcome = scorer.leave_one_out(part, held, N_TOP, threads)
    ranks = metrics.rank_samples(part, held, outcome, reference, ks)
    if came_before is not None:
        ranks |= metrics.history_samples(part, outcome)
    samples = metrics.spread_samples(ranks, ranked, sets.count) | metrics.likelihood_samples(
        scorer if likelihood else None,
        sets,
        emptied=(sets.sizes == 0) & (given.sizes > 0),
        seed=seed,
    )
    if came_before is not None:
        rows = np.flatnonzero(came_before.lengths)
        known = take_sets(sets, rows)
        lists = _next_baskets(model, scorer.items, came_before.take(rows))
        following = metrics.next_basket_samples(lists, known)
        samples |= metrics.spread_samples(following, rows, sets.count)
    others = baskets.n_items + 1 - part.sizes[part.owners]
    entries = Entries(part.indptr, outcome.better, outcome.equal, others)
    return Report(
        **metrics.sample_means(samples, ks),
        coverage=metrics.coverage(outcome.top, baskets.n_items),
        personalization=metrics.personalization(outcome.top, baskets.n_items),
        n_baskets=sets.count,
        n_items=baskets.n_items,
        n_skipped=sets.count - part.count,
        n_unknown=int((given.sizes != sets.sizes).sum()),
        n_shortened=n_shortened,
        by_size=by_size(entries, ks),
        by_popularity=by_popularity(entries, part.indices, reference.item_counts, ks),
        by_basket=samples,
        seed=seed,
        log_likelihood_error=scorer.log_probability_error if likelihood else 0.0,
    )


def warn_if_known(model: Any, test: Baskets) -> None:
    """Log a warning if the model has learned from most of the test baskets."""
    known = getattr(model, "baskets_", None)
    if known is None:
        return
    test = test.recode(known.items, unknown="ignore")
    large = test.subset(test.sizes >= KNOWN_SIZE)
    if not large.n_baskets:
        return
    train = {frozenset(known.codes(row).tolist()) for row in range(known.n_baskets)}
    found = sum(frozenset(large.codes(row).tolist()) in train for row in range(large.n_baskets))
    if found > MOST_KNOWN * large.n_baskets:
        log.warning(
            "the model learned from %.0f %% of these baskets (of %d items and more): metrics on "
            "training data are too good; evaluate on baskets that were held out",
            100 * found / large.n_baskets,
            KNOWN_SIZE,
        )


def _next_baskets(model: Any, items: Vocabulary, histories: Histories) -> Codes:
    """Return the ten best items given an empty basket, and a history if the model uses it."""
    n = len(histories)
    if getattr(model, "uses_history", False):
        ids, _ = model.recommend(Baskets(*Sets.empty(n), items), N_TOP, history=histories)
    else:
        ids = np.argsort(-model.predict_next(Baskets(*Sets.empty(1), items)), kind="stable")
        return np.tile(ids[:, :N_TOP], (n, 1)).astype(np.int32)
    known = [-1 if item is None else items.code(item) for item in ids.ravel().tolist()]
    return np.array(known, dtype=np.int32).reshape(ids.shape)


@dataclass(frozen=True)
class Report(Resampled):
    """The result of `evaluate`.

    Percentages run from 0 to 100, shares from 0 to 1. NaN where a model has no such metric.

    Attributes
    ----------
    mpr, mpr_paper : float
        Mean percentile rank of one item held out of each basket, drawn at random. Ties count half;
        in the paper's definition they count for the model. The latter is for comparison with the
        paper, and no part of `metrics`.
    precision : dict of int to float
        The paper's leave-one-out p@k in percent. Items that tie are ranked in random order, in
        expectation.
    ndcg : float
        nDCG at 10 of the item that was held out; ties as for precision.
    auc, auc_paired : float
        The paper's AUC of log-likelihood against uniform sets of the same sizes; and the share of
        baskets that beat their own random set.
    log_likelihood : float
        Mean log P(A) over the baskets that the model holds possible; `n_impossible` others have
        P(A) = 0.
    log_likelihood_error : float
        Its standard error where it rests on an estimate of the model's normalizer, else 0.
        Intervals do not hold it.
    coverage : float
        The share of the catalogue that is among the ten best items for some basket without its
        held-out item.
    diversity : float
        Mean over these lists of 1 − Jaccard index of the baskets of two of their items.
    personalization : float
        The expected share of a list that is not in the list of another basket.
    n_baskets, n_items : int
        Test baskets and catalogue.
    n_skipped, n_unknown, n_shortened : int
        Baskets that could not be ranked (empty, or larger than the model's rank), with items that
        the model does not know, and of which only some items were ranked.
    by_size, by_popularity : Breakdown
    "repeat@10", "new@10", "new_only@10", "next_recall", "next_ndcg" : float
        With histories, in `metrics` and `by_basket`: p@10 of items that the customer bought before
        and of new ones, also ranked among new ones only; recall and nDCG at 10 of the whole basket,
        given the history alone.
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
        return {
            "mpr": self.mpr,
            **{f"precision@{k}": value for k, value in self.precision.items()},
            "ndcg": self.ndcg,
            "auc": self.auc,
            "auc_paired": self.auc_paired,
            "log_likelihood": self.log_likelihood,
            "coverage": self.coverage,
            "diversity": self.diversity,
            "personalization": self.personalization,
            **{
                name: metrics.mean(self.by_basket[name])
                for name in OF_HISTORY
                if name in self.by_basket
            },
        }

    def plus_minus(self, metric: str = "log_likelihood") -> str:
        shown = metric == "log_likelihood" and self.log_likelihood_error >= VISIBLE_ERROR
        return f" ± {self.log_likelihood_error:.2f}" if shown else ""

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Draw bars of MPR and of the last p@k, group by group, a panel per breakdown.

        The dashed line is the mean over all groups. The matplotlib figure is written to `path` if
        one is given.
        """
        breakdowns = (self.by_size, self.by_popularity)
        figure = new_figure(4.5 * len(breakdowns), 5.5)
        axes = figure.subplots(2, len(breakdowns), squeeze=False, sharey="row")
        for column, table in enumerate(breakdowns):
            k = list(self.precision)[-1]
            labels = [f"{row.group}\n{row.n:,}" for row in table.rows[:-1]]
            panels = {
                "MPR": ("#4477aa", [row.mpr for row in table.rows]),
                f"p@{k}": ("#ee6677", [row.precision[k] for row in table.rows]),
            }
            for panel, (name, (color, values)) in zip(axes[:, column], panels.items(), strict=True):
                panel.bar(labels, values[:-1], color=color)
                panel.axhline(values[-1], color="0.3", linewidth=1, linestyle="--")
                panel.spines[["top", "right"]].set_visible(False)
                if column == 0:
                    panel.set_ylabel(f"{name} (%)")
            axes[1, column].set_xlabel(f"{table.title} (and number of {table.counted})")
        if path is not None:
            figure.savefig(path, dpi=150)
        return figure

    def _repr_html_(self) -> str:
        tables = (
            super()._repr_html_(),
            self.by_size._repr_html_(),
            self.by_popularity._repr_html_(),
        )
        return "".join(tables)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON: NaN is None, and the ks are strings."""
        names = [entry.name for entry in fields(self) if entry.name.startswith("n_")]
        content: dict[str, Any] = plain(
            {
                **{n: value for n, value in self.metrics.items() if not n.startswith("precision")},
                "mpr_paper": self.mpr_paper,
                "log_likelihood_error": self.log_likelihood_error,
                "precision": self.precision,
                **{name: getattr(self, name) for name in names},
                "intervals": self.intervals,
                "by_size": self.by_size.as_dict(),
                "by_popularity": self.by_popularity.as_dict(),
            }
        )
        return content

    def __str__(self) -> str:
        shortened = (
            f"of more than {MOST_LEARNED} items, of which {MOST_LEARNED} drawn at random are ranked"
        )
        counts = {
            "not ranked (empty, or larger than the model's rank)": self.n_skipped,
            "impossible under the model, left out of the log-likelihood": self.n_impossible,
            "with unknown items, which were ignored": self.n_unknown,
            shortened: self.n_shortened,
        }
        lines = [f"{self.n_baskets:,} baskets, {self.n_items:,} items"]
        lines += [f"{count:,} baskets {which}" for which, count in counts.items() if count]
        lines += [
            "",
            *self.table(),
            "",
            TWO_WAYS,
            "",
            str(self.by_size),
            "",
            str(self.by_popularity),
        ]
        return "\n".join(lines)


# -- By group --------------------------------------------------------------------------------------

# Here every item of a basket is held out in turn and weighs 1/|A|: the expectation of the random
# choice that `Report.mpr` makes once per basket.


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
        """Return the rows as plain values, for JSON."""
        return [asdict(row) for row in self.rows]

    def _cells(self) -> Iterator[list[str]]:
        """Yield the head and the rows of the table."""
        ks = list(self.rows[0].precision)
        yield [self.title, self.counted, "MPR", *[f"p@{k}" for k in ks], "nDCG"]
        for row in self.rows:
            values = [f"{value:.2f}" for value in (row.mpr, *row.precision.values())]
            yield [row.group, f"{row.n:,}", *values, f"{row.ndcg:.4f}"]

    def __str__(self) -> str:
        head, *rows = self._cells()
        rows = [head, *(["  " + row[0], *row[1:]] for row in rows)]
        return "\n".join(
            f"{first:<12}" + "".join(f"{cell:>10}" for cell in others) for first, *others in rows
        )

    def _repr_html_(self) -> str:
        head, *rows = self._cells()
        return html_table(head, rows)


@dataclass(frozen=True)
class Entries:
    """The rank of every item when it is left out of its basket, entry by entry of the baskets."""

    indptr: Ints
    better: Ints
    equal: Ints
    others: Ints  # M − |A∖i|

    @property
    def sizes(self) -> Ints:
        """The size of the basket of each entry."""
        sizes = np.diff(self.indptr)
        return np.repeat(sizes, sizes)


def by_size(entries: Entries, ks: Sequence[int]) -> Breakdown:
    """Break the metrics down by the size of the basket, the held-out item included."""
    group = np.searchsorted(list(SIZES.values()), entries.sizes, side="right") - 1
    firsts = group[entries.indptr[:-1]] if len(group) else group
    counts = np.bincount(firsts, minlength=len(SIZES))
    return _breakdown("basket size", "baskets", tuple(SIZES), group, counts, entries, ks)


def by_popularity(
    entries: Entries, codes: Codes, item_counts: Ints, ks: Sequence[int]
) -> Breakdown:
    """Break the metrics down by how popular the held-out item is; see `popularity_groups`."""
    group = popularity_groups(item_counts)[codes]
    counts = np.bincount(group, minlength=len(POPULARITY))
    return _breakdown("popularity", "items", POPULARITY, group, counts, entries, ks)


def popularity_groups(item_counts: Ints) -> Ints:
    """Return 0, 1 or 2 for the items of the head, the middle and the tail.

    With items sorted by how often they occur, those that make up the first third of all occurrences
    are the head, the second third the middle, the others the tail.
    """
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
    group: Ints,
    counts: Ints,
    entries: Entries,
    ks: Sequence[int],
) -> Breakdown:
    n = len(names)
    ranks = (entries.better, entries.equal, entries.others)
    columns = {
        "mpr": metrics.percentile_rank(*ranks),
        "mpr_paper": metrics.percentile_rank(*ranks, lost=0.0),
        "ndcg": metrics.ndcg(entries.better, entries.equal),
        **{f"p{k}": 100.0 * metrics.hits(entries.better, entries.equal, k) for k in ks},
    }
    weights = 1.0 / entries.sizes
    totals = np.bincount(group, weights, minlength=n)
    sums = {
        name: np.bincount(group, weights * values, minlength=n) for name, values in columns.items()
    }

    def row(name: str, which: Flags) -> Row:
        weight = totals[which].sum()
        means = {
            column: float(values[which].sum() / weight) if weight else float("nan")
            for column, values in sums.items()
        }
        precision = {k: means.pop(f"p{k}") for k in ks}
        return Row(name, int(counts[which].sum()), precision=precision, **means)

    rows = [row(name, np.arange(n) == g) for g, name in enumerate(names) if counts[g]]
    return Breakdown(title, counted, (*rows, row("all", np.ones(n, dtype=bool))))


def _checked_ks(ks: Sequence[int]) -> tuple[int, ...]:
    good = [isinstance(k, (int, np.integer)) and not isinstance(k, bool) and k >= 1 for k in ks]
    if not good or not all(good):
        raise ParameterError(f"ks must be positive integers, got {ks!r}")
    return tuple(dict.fromkeys(int(k) for k in ks))
