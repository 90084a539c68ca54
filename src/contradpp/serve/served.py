"""A model as it is served: one immutable snapshot with everything that is derived from it, asked by the routes."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import contradpp
from contradpp.atlas import N_LANDMARKS, Atlas
from contradpp.data.vocabulary import Vocabulary
from contradpp.dpp.sample import chain_steps
from contradpp.errors import RankError
from contradpp.experts.base import allowed_codes
from contradpp.models.base import BaseDPP
from contradpp.models.conditional import ConditionalDPP, Explanation
from contradpp.serve.catalogue import Ids, Search

# Multiply-adds of a matrix product in the time that it takes to factorise, or to draw, a set: so many times size³.
FACTORISED, DRAWN, DRAWN_NONSYMMETRIC, CHAINED = 10.0, 10.0, 1000.0, 10.0
# And in the time in which the voices judge one item, and in which they hear one item of the basket about it.
JUDGED, HEARD = 3000.0, 300.0


class Ranked(NamedTuple):
    """Items with P(next = i | basket), best first or in the order of choice, and why there are fewer than asked."""

    items: list[Hashable]
    probabilities: list[float]
    problem: str | None = None


class Reranked(NamedTuple):
    """Positions among the candidates with the scores that were sent, and why there are fewer than asked."""

    positions: list[int]
    scores: list[float]
    problem: str | None


class Served:
    """A model with what people and programs ask of it; its version tells it from others."""

    def __init__(self, model: BaseDPP, version: str) -> None:
        self.model = model
        self.version = version
        self.loaded = datetime.now(UTC).isoformat(timespec="seconds")
        self.items: Vocabulary = model.items_
        with ThreadPoolExecutor(1) as pool:
            counting = pool.submit(model.marginals)  # compiled for the most part, so that words are sorted meanwhile
            self.ids = Ids(self.items, model.item_shares())
            labels = [self._labels(item) for item in self.items]
            self.probabilities = np.clip(counting.result(), 0.0, 1.0)  # P(i ∈ Y)
        self.search = Search(labels, self.probabilities)
        self._drawing = threading.Lock()

    def _labels(self, item: Hashable) -> list[str]:
        return list(dict.fromkeys([self.items.name(item), str(item)]))

    def weight(self, item: Hashable) -> float:
        """How common an item is."""
        return float(self.probabilities[self.items.code(item)])

    @property
    def expected_size(self) -> float:
        """The mean size of the model's sets."""
        return float(self.probabilities.sum())

    # -- About how many multiply-adds questions take -----------------------------------------------

    def ranking_cost(self, baskets: Iterable[list[Hashable]], *, additions: int = 0, rankings: int = 1) -> float:
        """Of ranking all items for these baskets, so many times, and of choosing so many that go together."""
        sizes = [len(basket) + additions for basket in baskets]
        passes = sum(sizes) + len(sizes) + additions
        cost = passes * float(self.model.item_factors_.size) + self.scoring_cost(sizes)
        return cost + rankings * self._hearing_cost(sizes)

    def _hearing_cost(self, sizes: Sequence[int]) -> float:
        """Of what voices besides the kernel say of all items, given baskets of these sizes."""
        if not isinstance(self.model, ConditionalDPP):
            return 0.0
        return len(self.items) * (JUDGED * len(sizes) + HEARD * sum(sizes))

    def explaining_cost(self, baskets: Iterable[list[Hashable]], n: int) -> float:
        """Of saying why n items are suggested for each of these baskets."""
        if not isinstance(self.model, ConditionalDPP):
            return 0.0
        cost, by_features = 0.0, self.model.newcomers_ is not None
        for size in map(len, baskets):
            cost += self._hearing_cost([size]) * (1.0 + 0.1 * n + size * by_features)
            cost += FACTORISED * size * float(size + n) ** 2
        return cost

    def scoring_cost(self, sizes: Iterable[int]) -> float:
        """Of log P of sets of these sizes."""
        return FACTORISED * sum(float(size) ** 3 for size in sizes)

    def sampling_cost(self, n: int, size: int | None) -> float:
        """Of drawing n sets, of this size or of any."""
        k = float(self.expected_size if size is None else size)
        if not self.model.law_is_cheap_:
            return n * chain_steps(k) * (CHAINED * (k + 1) ** 3 + k * self.model.n_components)
        kernel = self.model.kernel_
        step = DRAWN if kernel.symmetric and not kernel.has_diagonal else DRAWN_NONSYMMETRIC
        return step * n * k**3 + float(len(kernel.skew.connected)) ** 3

    # -- Questions ---------------------------------------------------------------------------------

    def recommend(
        self,
        baskets: Sequence[list[Hashable]],
        n: int,
        *,
        candidates: list[Hashable] | None = None,
        exclude: Sequence[Hashable] = (),
        rank_by: str | float = "probability",
    ) -> list[Ranked]:
        """The n best next items of every basket; a basket that nothing can join has a problem instead."""
        told: dict[str, Any] = {"candidates": candidates, "exclude": exclude, "rank_by": rank_by}
        return _ask_for_each(lambda asked: self.model.recommend(asked, N=n, **told), baskets)

    def reasons(self, basket: list[Hashable], items: Sequence[Hashable]) -> list[Explanation]:
        """Why these items are suggested for a basket; nothing from a model that does not know."""
        if not isinstance(self.model, ConditionalDPP):
            return []
        return self.model.explain_each(basket, items)

    def slate(self, baskets: Sequence[list[Hashable]], n: int, **told: Any) -> list[Ranked]:
        """As `recommend`, for slates; one that is shorter than n has a problem, too."""
        found = _ask_for_each(lambda asked: self.model.slate(asked, N=n, **told), baskets)
        return [
            one._replace(problem=one.problem or (f"only {len(one.items)} items can be chosen" if short else None))
            for one in found
            for short in [len(one.items) < n]
        ]

    def rerank(self, candidates: Sequence[str | int], scores: list[float], **told: Any) -> Reranked:
        """Candidates of anyone, by the user's vectors or, without them, by this model; items it lacks repel nothing."""
        kernel = self.model if told.get("vectors") is None else None
        items: list[Hashable] = list(candidates)
        if kernel is not None:
            items = [self._as_known(name) for name in candidates]
            told["given"] = [self._as_known(name) for name in told["given"]]
        _, values, info = contradpp.rerank(
            items, scores, kernel=kernel, **told, unknown="ignore", n_jobs=1, return_info=True
        )
        return Reranked(info.positions.tolist(), values.tolist(), info.reason)

    def _as_known(self, name: str | int) -> Hashable:
        found = self.ids.find(name)
        return name if found is None else found

    def complete(
        self, basket: list[Hashable], n: int, *, variety: float, exclude: Collection[Hashable],
        candidates: Collection[Hashable] | None = None,
    ) -> Ranked:  # fmt: skip
        """Add n items to a basket A, each the i that maximises (1 − t) log P(i | A) + t log [P(i | A ∪ S) / P(i | A)].

        t is the variety and S the items added so far: the first term is how well i goes with the basket, the second
        how little of that the earlier additions have taken. t = 0 ranks by the basket alone, however alike the
        additions are; t = ½ is the greedy most likely set, as `model.complete` finds it; t = 1 looks for what is new,
        and at relevance only between equals. An item that would make the set impossible is never added.
        """
        variety = min(variety, 1.0 - 1e-9)  # so that relevance decides between equals
        added: list[Hashable] = []
        relevance: list[float] = []
        try:
            growing = self.model.grow(basket)
            now = given_basket = growing.probabilities()
            allowed = (given_basket > 0) & allowed_codes(self.items, candidates, exclude)
            with np.errstate(divide="ignore"):
                log_relevance = np.log(given_basket)
            while len(added) < n:
                allowed &= now > 0
                choices = np.flatnonzero(allowed)
                if not len(choices):
                    return Ranked(added, relevance, f"only {len(added)} items can be added to this basket")
                worth = (1.0 - 2.0 * variety) * log_relevance[choices] + variety * np.log(now[choices])
                best = int(choices[np.argmax(worth)])
                allowed[best] = False
                try:
                    growing.add(self.items[best])
                except RankError:  # the chosen ones span it: its probability was only rounding
                    continue
                added.append(self.items[best])
                relevance.append(float(given_basket[best]))
                if len(added) < n:
                    now = growing.probabilities()
        except RankError as error:
            return Ranked(added, relevance, str(error))
        return Ranked(added, relevance)

    def scores(self, baskets: Sequence[list[Hashable]]) -> list[float | None]:
        """log P of every basket, None where it is −inf."""
        if not baskets:
            return []
        logs = self.model.score_samples(list(baskets)).tolist()
        return [value if math.isfinite(value) else None for value in logs]

    def sample(self, n: int, *, size: int | None, given: list[Hashable], seed: int | None) -> list[list[Hashable]]:
        """Sets drawn from the model: exactly, or by a Markov chain if it has too many items with partners."""
        method = "exact" if self.model.law_is_cheap_ else "chain"
        return list(self.model.sample(n, size=size, given=given, random_state=seed, method=method))

    # -- The map -----------------------------------------------------------------------------------

    def places(self, asked: Iterable[int], limit: int) -> tuple[list[int], NDArray[np.float64]]:
        """The weightiest items and the asked ones, at most `limit` in all, with their places on the map."""
        with self._drawing:  # the first to ask draws the map
            atlas = self._atlas
        codes = list(dict.fromkeys([*asked, *atlas.landmarks[:limit].tolist()]))[:limit]
        return codes, atlas.places_of(codes)

    @cached_property
    def _atlas(self) -> Atlas:
        return Atlas(self.model, np.argsort(-self.probabilities, kind="stable")[:N_LANDMARKS])


def _ask_for_each(ask: Callable[[Any], tuple[Any, Any]], baskets: Sequence[list[Hashable]]) -> list[Ranked]:
    """Ask about all baskets at once, or one by one if one of them has no answer; that one has a problem instead."""
    if not baskets:
        return []
    try:
        if len(baskets) == 1:
            rows = [ask(baskets[0])]
        else:
            rows = list(zip(*ask(list(baskets)), strict=True))
    except RankError as error:
        if len(baskets) == 1:
            return [Ranked([], [], str(error))]
        return [_ask_for_each(ask, [one])[0] for one in baskets]
    return [_ranked(items.tolist(), shares.tolist()) for items, shares in rows]


def _ranked(items: list[Hashable], shares: list[float]) -> Ranked:
    last = len(items)
    while last and items[last - 1] is None:  # a batch pads its short rows
        last -= 1
    return Ranked(items[:last], [min(share, 1.0) for share in shares[:last]])
