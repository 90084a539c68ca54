"""`evaluate_choices`: how well a model says what is taken of what is offered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from contradpp._random import RandomState, root_seed
from contradpp.data.baskets import Baskets
from contradpp.data.sets import Sets, difference, runs, swaps, take_sets
from contradpp.errors import DataError
from contradpp.metrics.intervals import Means
from contradpp.metrics.metrics import Samples, percentile_rank
from contradpp.models.base import BaseDPP

Array = NDArray[np.float64]
MOST_OFFERED = 12  # items of which all subsets are looked at
SUBSETS_PER_BLOCK = 2**17


def evaluate_choices(model: Any, test: Baskets, *, random_state: RandomState = 0) -> ChoiceReport:
    """Measure on held-out choices what a model expects to be taken of what is offered.

    Parameters
    ----------
    model : a fitted DPP, or anything with `items_` and `score_choices(baskets)`
        The latter gives log P(taken | offered) for `Baskets` with `offered` sets.
    test : Baskets with `offered` sets
        Those of which it is not known what was offered are left out, as are items that the model does not know.
    random_state : int, Generator or None
        Of the bootstrap samples: the same for every model.

    Examples
    --------
    >>> import contradpp as cd
    >>> seen = cd.Baskets.from_lists([["tea"], ["tea"], ["jam"]] * 30, offered=[["tea", "jam"]] * 90)
    >>> model = cd.NonsymmetricDPP(1, 0, objective="choice", random_state=0).fit(seen)
    >>> round(cd.evaluate_choices(model, seen).exact)
    67
    """
    if not isinstance(test, Baskets) or test.offered is None or not (test.offered.sizes > 0).any():
        raise DataError("evaluate_choices needs Baskets with `offered` sets: what each was chosen from")
    given = test.subset(test.offered.sizes > 0)
    baskets = given.recode(model.items_, unknown="ignore")
    chosen, offered = baskets.sets, baskets.offered
    if offered is None or not len(offered.indices):
        raise DataError("the model knows none of the items that were offered")
    weigh = _weights_of(model, baskets)
    samples = {"log_likelihood": _log_likelihood(model, baskets)} | _against_all(weigh, chosen, offered)
    samples["mpr"] = _ranks(weigh, chosen, offered, baskets.n_items)
    for values in samples.values():
        values[offered.sizes == 0] = np.nan
    return ChoiceReport(
        n_baskets=given.n_baskets, n_items=baskets.n_items, n_unknown=int((given.sizes != baskets.sizes).sum()),
        by_basket=samples, seed=root_seed(random_state),
    )  # fmt: skip


@dataclass(frozen=True)
class ChoiceReport(Means):
    """What `evaluate_choices` found: means over the test baskets, by name in `metrics`; NaN where there is none.

    | metric | of a choice |
    |---|---|
    | `log_likelihood` | log P(taken given offered) |
    | `log_likelihood_given_size` | the same among sets of as many items as were taken |
    | `exact` | in percent, whether the most probable set of offered items is what was taken |
    | `exact_given_size` | the same among sets of as many items |
    | `mpr` | the percentile rank of a taken item among itself and what was refused, given the others that were taken |

    Sets that tie share a hit. Of baskets chosen from more than 12 items only the first and the last are there.
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


Weigh = Callable[[Sets, Sets], Array]


def _weights_of(model: Any, baskets: Baskets) -> Weigh:
    """From sets and what they are chosen from to log P up to what depends on the offered set alone."""
    if isinstance(model, BaseDPP):
        return lambda chosen, _: model.kernel_.log_det(chosen)
    return lambda chosen, offered: np.asarray(model.score_choices(Baskets(*chosen, baskets.items, offered)))


def _log_likelihood(model: Any, baskets: Baskets) -> Array:
    return np.array(model.score_choices(baskets), dtype=np.float64)


def _against_all(weigh: Weigh, chosen: Sets, offered: Sets) -> Samples:
    """What the chosen set is among all subsets, or all of its size, of what was offered."""
    names = ("log_likelihood_given_size", "exact", "exact_given_size")
    samples = {name: np.full(chosen.count, np.nan) for name in names}
    for n in range(1, min(int(offered.sizes.max()), MOST_OFFERED) + 1):
        masks = (np.arange(2**n)[:, None] >> np.arange(n)) & 1 > 0
        same = np.flatnonzero(offered.sizes == n)
        for first, last in runs(np.arange(len(same) + 1) * 2**n, SUBSETS_PER_BLOCK):
            part = same[first:last]
            logs, own = _subsets(weigh, take_sets(chosen, part), take_sets(offered, part), masks)
            alike = masks.sum(axis=1) == chosen.sizes[part][:, None]
            rows = np.arange(len(part))
            samples["exact"][part] = _share_of_best(logs, own)
            limited = np.where(alike, logs, -np.inf)
            samples["exact_given_size"][part] = _share_of_best(limited, own)
            samples["log_likelihood_given_size"][part] = limited[rows, own] - logsumexp(limited, axis=1)
    return samples


def _subsets(weigh: Weigh, chosen: Sets, offered: Sets, masks: NDArray[np.bool_]) -> tuple[Array, NDArray[np.int64]]:
    """log P of every subset, up to a constant per set (sets, 2ⁿ), and which of them is the chosen one."""
    n, count = masks.shape[1], offered.count
    table = offered.indices.reshape(count, n)
    sizes = np.tile(masks.sum(axis=1), count)
    every = Sets(
        np.concatenate([[0], np.cumsum(sizes)]), np.repeat(table, len(masks), axis=0)[np.tile(masks, (count, 1))]
    )
    owner = np.repeat(np.arange(count), len(masks))
    logs = weigh(every, take_sets(offered, owner)).reshape(count, len(masks))
    taken = (table[:, :, None] == _padded(chosen)[:, None, :]).any(axis=2)
    return logs, (taken * 2 ** np.arange(n)).sum(axis=1)


def _padded(sets: Sets) -> NDArray[np.int64]:
    """The items of every set in a row, −1 after its last."""
    out = np.full((sets.count, max(int(sets.sizes.max(initial=0)), 1)), -1, dtype=np.int64)
    owner = np.repeat(np.arange(sets.count), sets.sizes)
    out[owner, np.arange(len(owner)) - sets.indptr[owner]] = sets.indices
    return out


def _share_of_best(logs: Array, own: NDArray[np.int64]) -> Array:
    """100 where the own value is the largest of its row, less where others tie with it, else 0."""
    best = logs.max(axis=1)
    hit = logs[np.arange(len(logs)), own] == best
    return np.where(hit & np.isfinite(best), 100.0 / np.maximum((logs == best[:, None]).sum(axis=1), 1), 0.0)


def _ranks(weigh: Weigh, chosen: Sets, offered: Sets, n_items: int) -> Array:
    """The mean over the taken items of the percentile rank among the refused; NaN where nothing was refused."""
    swapped, entry = swaps(chosen, difference(offered, chosen, n_items))
    owner = np.repeat(np.arange(chosen.count), chosen.sizes)
    own, others = weigh(chosen, offered)[owner[entry]], weigh(swapped, take_sets(offered, owner[entry]))
    better, equal, count = (
        np.bincount(entry, weights=how, minlength=len(owner))
        for how in (others > own, others == own, np.ones(len(own)))
    )
    ranks = percentile_rank(better, equal, count + 1)
    usable = count > 0
    sums, numbers = (
        np.bincount(owner, weights=w, minlength=chosen.count) for w in (np.where(usable, ranks, 0.0), usable)
    )
    means: Array = np.divide(sums, numbers, out=np.full(chosen.count, np.nan), where=numbers > 0)
    return means
