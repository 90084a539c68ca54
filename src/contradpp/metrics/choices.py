"""`evaluate_choices`: how well a model predicts what is taken of what is offered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import logsumexp

from contradpp._random import RandomState, root_seed
from contradpp._types import Array, Flags, Ints
from contradpp.data.baskets import Baskets
from contradpp.data.sets import Sets, difference, pointers, runs, swaps, take_sets
from contradpp.errors import DataError
from contradpp.metrics.intervals import Means
from contradpp.metrics.metrics import Samples, percentile_rank
from contradpp.models.base import DPPRecommender

MOST_OFFERED = 12  # items of which all subsets are enumerated
SUBSETS_PER_BLOCK = 2**17

# From sets and what they are chosen from to log P up to a constant per offered set.
LogWeights = Callable[[Sets, Sets], Array]


def evaluate_choices(model: Any, test: Baskets, *, random_state: RandomState = 0) -> ChoiceReport:
    """Measure a model on held-out choices.

    Parameters
    ----------
    model : a fitted DPP, or anything with `items_` and `score_choices(baskets)`
        The latter gives log P(taken | offered) for `Baskets` with `offered` sets.
    test : Baskets with `offered` sets
        Baskets without an offered set are left out, as are items that the model does not know.
    random_state : int, Generator or None
        Draws the bootstrap samples: the same for every model.

    Returns
    -------
    ChoiceReport

    Examples
    --------
    >>> import contradpp as cd
    >>> offered = [["tea", "jam"]] * 90
    >>> seen = cd.Baskets.from_lists([["tea"], ["tea"], ["jam"]] * 30, offered=offered)
    >>> model = cd.NonsymmetricDPP(1, 0, objective="choice", random_state=0).fit(seen)
    >>> round(cd.evaluate_choices(model, seen).exact)
    67
    """
    if not isinstance(test, Baskets) or test.offered is None or not (test.offered.sizes > 0).any():
        raise DataError(
            "evaluate_choices needs Baskets with `offered` sets: what each was chosen from"
        )
    given = test.subset(test.offered.sizes > 0)
    baskets = given.recode(model.items_, unknown="ignore")
    chosen = baskets.sets
    offered = baskets.offered
    if offered is None or not len(offered.indices):
        raise DataError("the model knows none of the items that were offered")

    def log_weights(sets: Sets, offers: Sets) -> Array:
        if isinstance(model, DPPRecommender):
            return model.dpp.unnormalized_log_probability(sets)
        return np.asarray(model.score_choices(Baskets(*sets, baskets.items, offers)))

    samples = {
        "log_likelihood": np.array(model.score_choices(baskets), dtype=np.float64),
        **_compare_with_subsets(log_weights, chosen, offered),
        "mpr": _percentile_ranks(log_weights, chosen, offered, baskets.n_items),
    }
    for values in samples.values():
        values[offered.sizes == 0] = np.nan
    return ChoiceReport(
        n_baskets=given.n_baskets,
        n_items=baskets.n_items,
        n_unknown=int((given.sizes != baskets.sizes).sum()),
        by_basket=samples,
        seed=root_seed(random_state),
    )


@dataclass(frozen=True)
class ChoiceReport(Means):
    """The result of `evaluate_choices`: means over the test baskets, by name in `metrics`.

    | metric | of a choice |
    |---|---|
    | `log_likelihood` | log P(taken given offered) |
    | `log_likelihood_given_size` | the same among sets of as many items as were taken |
    | `exact` | in percent: the most probable set of offered items is the taken set |
    | `exact_given_size` | the same among sets of as many items |
    | `mpr` | the percentile rank of a taken item among itself and the refused items |

    Sets that tie share a hit. NaN where there is no value. For baskets chosen from more than 12
    items only the first and the last metric are computed.
    """

    n_baskets: int
    n_items: int
    n_unknown: int
    by_basket: Samples = field(repr=False, compare=False)
    seed: int = field(repr=False)
    of = "choices"
    counts = ("n_baskets", "n_items", "n_unknown")

    def __str__(self) -> str:
        return "\n".join([f"{self.n_baskets:,} choices, {self.n_items:,} items", "", *self.table()])


def _compare_with_subsets(log_weights: LogWeights, chosen: Sets, offered: Sets) -> Samples:
    """Compare the chosen set with all subsets, and all of its size, of the offered set."""
    names = ("log_likelihood_given_size", "exact", "exact_given_size")
    samples = {name: np.full(chosen.count, np.nan) for name in names}
    for n in range(1, min(int(offered.sizes.max()), MOST_OFFERED) + 1):
        masks = (np.arange(2**n)[:, None] >> np.arange(n)) & 1 > 0
        sizes = masks.sum(axis=1)
        of_size_n = np.flatnonzero(offered.sizes == n)
        for first, last in runs(np.arange(len(of_size_n) + 1) * 2**n, SUBSETS_PER_BLOCK):
            part = of_size_n[first:last]
            some = take_sets(chosen, part)
            logs, own = _subset_log_weights(log_weights, some, take_sets(offered, part), masks)
            limited = np.where(sizes == some.sizes[:, None], logs, -np.inf)
            own_logs = limited[np.arange(len(part)), own]
            samples["exact"][part] = _hit_rate(logs, own)
            samples["exact_given_size"][part] = _hit_rate(limited, own)
            samples["log_likelihood_given_size"][part] = own_logs - logsumexp(limited, axis=1)
    return samples


def _subset_log_weights(
    log_weights: LogWeights, chosen: Sets, offered: Sets, masks: Flags
) -> tuple[Array, Ints]:
    """Return log P of every subset, up to a constant per set (sets, 2ⁿ), and the chosen one."""
    n_masks, n = masks.shape
    count = offered.count
    items = offered.indices.reshape(count, n)
    sizes = np.tile(masks.sum(axis=1), count)
    codes = np.repeat(items, n_masks, axis=0)[np.tile(masks, (count, 1))]
    offers = take_sets(offered, np.repeat(np.arange(count), n_masks))
    logs = log_weights(Sets(pointers(sizes), codes), offers).reshape(count, n_masks)
    M = int(offered.indices.max()) + 1
    taken = np.isin(offered.owners * M + offered.indices, chosen.owners * M + chosen.indices)
    return logs, (taken.reshape(count, n) * 2 ** np.arange(n)).sum(axis=1)


def _hit_rate(logs: Array, own: Ints) -> Array:
    """Return 100 if the own value is the largest of its row, divided among ties, else 0."""
    best = logs.max(axis=1)
    hit = (logs[np.arange(len(logs)), own] == best) & np.isfinite(best)
    n_best = (logs == best[:, None]).sum(axis=1)
    return np.where(hit, 100.0 / np.maximum(n_best, 1), 0.0)


def _percentile_ranks(log_weights: LogWeights, chosen: Sets, offered: Sets, n_items: int) -> Array:
    """Return the mean percentile rank of the taken items; NaN where nothing was refused.

    Each taken item is ranked among itself and the refused items, given the others taken.
    """
    swapped, entry = swaps(chosen, difference(offered, chosen, n_items))
    owner = chosen.owners
    n = len(owner)
    own = log_weights(chosen, offered)[owner[entry]]
    others = log_weights(swapped, take_sets(offered, owner[entry]))
    better = np.bincount(entry, weights=others > own, minlength=n)
    equal = np.bincount(entry, weights=others == own, minlength=n)
    n_refused = np.bincount(entry, minlength=n)
    ranked = n_refused > 0
    ranks = percentile_rank(better, equal, n_refused + 1)
    sums = np.bincount(owner[ranked], weights=ranks[ranked], minlength=chosen.count)
    counts = np.bincount(owner[ranked], minlength=chosen.count)
    means: Array = np.divide(sums, counts, out=np.full(chosen.count, np.nan), where=counts > 0)
    return means
