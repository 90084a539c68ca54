"""A model as it is served: one immutable snapshot with everything that is derived from it, asked by the routes."""

from __future__ import annotations

import hashlib
import logging
import math
import os
import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import contradpp
from contradpp._threads import blas_threads
from contradpp.atlas import N_LANDMARKS, Atlas
from contradpp.data.vocabulary import Lookup, Vocabulary
from contradpp.dpp.sampling import chain_steps
from contradpp.errors import ModelFileError, RankError
from contradpp.experts.base import allowed_codes
from contradpp.models.base import BaseDPP, load
from contradpp.models.conditional import ConditionalDPP

log = logging.getLogger("contradpp.serve")

# Multiply-adds of a matrix product in the time that it takes to factorise, or to draw, a set: so many times size³.
FACTORISED, DRAWN, DRAWN_NONSYMMETRIC, CHAINED = 10.0, 10.0, 1000.0, 10.0
# And in the time in which the experts score one item, and in which they score it by one item of the basket.
SCORED, SCORED_BY = 3000.0, 300.0


class Known(NamedTuple):
    """The items of a request that the model knows, as it holds them, without duplicates, and the others."""

    items: list[Hashable]
    unknown: list[str | int]


class Ranked(NamedTuple):
    """Items with P(next = i | basket), best first or in the order of choice, and why there are fewer than asked."""

    items: list[Hashable]
    probabilities: list[float]
    problem: str | None = None


class Served:
    """A model with what people and programs ask of it; its version tells it from others."""

    def __init__(self, model: BaseDPP, version: str) -> None:
        self.model = model
        self.version = version
        self.loaded = datetime.now(UTC).isoformat(timespec="seconds")
        self.items: Vocabulary = model.items_
        with ThreadPoolExecutor(1) as pool:
            counting = pool.submit(model.marginals)  # compiled for the most part, so that words are sorted meanwhile
            lookup = Lookup(self.items, model.item_shares())
            _ = lookup.named  # made now, before someone waits for it
            labels = [list(dict.fromkeys([self.items.name(item), str(item)])) for item in self.items]
            self.probabilities = np.clip(counting.result(), 0.0, 1.0)  # P(i ∈ Y)
        self.find = lookup.find
        self.search = Search(labels, self.probabilities)
        self._drawing = threading.Lock()

    def resolve(self, asked: Iterable[str | int]) -> Known:
        """Find items as the vocabulary holds them; "17" finds 17 where there is no "17", and the other way round."""
        found: dict[Hashable, None] = {}
        unknown: dict[str | int, None] = {}
        for name in asked:
            item = self.find(name)
            if item is None:
                unknown[name] = None
            else:
                found[item] = None
        return Known(list(found), list(unknown))

    def named(self, item: Hashable) -> dict[str, Any]:
        """Return an item as JSON shows it: its id and what people call it."""
        return {"item": item if type(item) in (str, int) else str(item), "name": self.items.name(item)}

    def weight(self, item: Hashable) -> float:
        """Return P(item ∈ Y)."""
        return float(self.probabilities[self.items.code(item)])

    @property
    def expected_size(self) -> float:
        """The mean size of the model's sets."""
        return float(self.probabilities.sum())

    # -- Costs: about how many multiply-adds it takes -----------------------------------------------

    def ranking_cost(self, baskets: Iterable[list[Hashable]], *, additions: int = 0, rankings: int = 1) -> float:
        """Estimate ranking all items for these baskets, so many times, and choosing so many that go together."""
        sizes = [len(basket) + additions for basket in baskets]
        passes = sum(sizes) + len(sizes) + additions
        cost = passes * float(self.model.item_factors_.size) + self.scoring_cost(sizes)
        return cost + rankings * self._experts_cost(sizes)

    def _experts_cost(self, sizes: Sequence[int]) -> float:
        """Estimate scoring all items by experts besides the kernel, given baskets of these sizes."""
        if not isinstance(self.model, ConditionalDPP):
            return 0.0
        return len(self.items) * (SCORED * len(sizes) + SCORED_BY * sum(sizes))

    def explaining_cost(self, baskets: Iterable[list[Hashable]], n: int) -> float:
        """Estimate saying why n items are suggested for each of these baskets."""
        if not isinstance(self.model, ConditionalDPP):
            return 0.0
        by_features = self.model.newcomers_ is not None
        cost = 0.0
        for size in map(len, baskets):
            cost += self._experts_cost([size]) * (1.0 + 0.1 * n + size * by_features)
            cost += FACTORISED * size * float(size + n) ** 2
        return cost

    def scoring_cost(self, sizes: Iterable[int]) -> float:
        """Estimate log P of sets of these sizes."""
        return FACTORISED * sum(float(size) ** 3 for size in sizes)

    def sampling_cost(self, n: int, size: int | None) -> float:
        """Estimate drawing n sets, of this size or of any."""
        k = float(self.expected_size if size is None else size)
        if not self.model.law_is_cheap_:
            return n * chain_steps(k) * (CHAINED * (k + 1) ** 3 + k * self.model.n_components)
        kernel = self.model.kernel_
        step = DRAWN if kernel.symmetric and not kernel.has_diagonal else DRAWN_NONSYMMETRIC
        return step * n * k**3 + float(len(kernel.skew.connected)) ** 3

    # -- What is asked of the model ------------------------------------------------------------------

    def recommend(self, baskets: Sequence[list[Hashable]], n: int, **told: Any) -> list[Ranked]:
        """Return the n best next items of every basket; a basket that nothing can join has a problem instead."""
        return _ask_for_each(lambda asked: self.model.recommend(asked, N=n, **told), baskets)

    def slate(self, baskets: Sequence[list[Hashable]], n: int, **told: Any) -> list[Ranked]:
        """As `recommend`, for slates; one that is shorter than n has a problem, too."""
        found = _ask_for_each(lambda asked: self.model.slate(asked, N=n, **told), baskets)
        return [
            one._replace(problem=one.problem or f"only {len(one.items)} items can be chosen")
            if len(one.items) < n
            else one
            for one in found
        ]

    def rerank(self, candidates: Sequence[str | int], scores: list[float], **told: Any) -> tuple[Any, Any, Any]:
        """Rerank anyone's candidates as `contradpp.rerank` does: by the user's vectors, or else by this model."""
        kernel = self.model if told["vectors"] is None else None
        items: list[Hashable] = list(candidates)
        if kernel is not None:
            known = {name: self.find(name) for name in [*items, *told["given"]]}
            items = [name if known[name] is None else known[name] for name in items]
            told["given"] = [name if known[name] is None else known[name] for name in told["given"]]
        found: tuple[Any, Any, Any] = contradpp.rerank(
            items, scores, kernel=kernel, **told, unknown="ignore", n_jobs=1, return_info=True
        )
        return found

    def complete(
        self, basket: list[Hashable], n: int, *, candidates: list[Hashable] | None, exclude: list[Hashable]
    ) -> Ranked:
        """Add n items to a basket as `model.complete` does, or as many as it can, and say why they are fewer."""
        free = allowed_codes(self.items, candidates, exclude)
        free[self.items.codes(basket)] = False
        most = min(n, int(free.sum()))

        def add(additions: int) -> tuple[list[Hashable], str | None]:
            """Return so many additions, or why there are none."""
            try:
                whole = self.model.complete(basket, len(basket) + additions, candidates=candidates, exclude=exclude)
            except RankError as error:
                return [], str(error)
            return whole[len(basket) :], None

        added, problem = add(most)
        if problem is not None:  # A small set is the beginning of a larger one: the largest is found by bisection.
            impossible = bisect_left(range(most), True, key=lambda additions: add(additions)[1] is not None)
            added, _ = add(max(impossible - 1, 0))
        if len(added) < n and (added or problem is None):
            problem = f"only {len(added)} items can be added to this basket"
        probabilities = self.model.predict_next(basket)[self.items.codes(added)].tolist() if added else []
        return Ranked(added, probabilities, problem)

    def scores(self, baskets: Sequence[list[Hashable]]) -> list[float | None]:
        """Return log P of every basket, None where it is −inf."""
        if not baskets:
            return []
        logs = self.model.score_samples(list(baskets)).tolist()
        return [value if math.isfinite(value) else None for value in logs]

    def sample(self, n: int, *, size: int | None, given: list[Hashable], seed: int | None) -> list[list[Hashable]]:
        """Draw sets from the model: exactly, or by a Markov chain if it has too many items with partners."""
        method = "exact" if self.model.law_is_cheap_ else "chain"
        return list(self.model.sample(n, size=size, given=given, random_state=seed, method=method))

    # -- The map -----------------------------------------------------------------------------------

    def places(self, asked: Iterable[int], limit: int) -> tuple[list[int], NDArray[np.float64]]:
        """Return the weightiest items and the asked ones, at most `limit` in all, with their places on the map."""
        with self._drawing:  # the first to ask draws the map
            atlas = self._atlas
        codes = list(dict.fromkeys([*asked, *atlas.landmarks[:limit].tolist()]))[:limit]
        return codes, atlas.places_of(codes)

    @cached_property
    def _atlas(self) -> Atlas:
        return Atlas(self.model, np.argsort(-self.probabilities, kind="stable")[:N_LANDMARKS])


def open_model(path: str, n_jobs: int, version: str | None = None) -> Served:
    """Open the model of a file, ready to answer on so many threads."""
    version = version or digest(path)
    started = time.perf_counter()
    log.info("loading model %s, %s bytes", version, f"{os.path.getsize(path):,}")
    with blas_threads(n_jobs):
        model = load(path)
        model.n_jobs = n_jobs  # whatever the file says: its author does not know this machine
        served = Served(model, version)
        served.recommend([[served.items[0]]], 1)  # compiles or loads the kernels before the first request needs them
    seconds = time.perf_counter() - started
    log.info("serving model %s: %s items, ready in %.1f s", version, f"{len(served.items):,}", seconds)
    return served


def digest(path: str) -> str:
    """Return what tells the contents of a model file from others; `ModelFileError` if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]
    except OSError as error:
        raise ModelFileError(f"cannot read the model file {path}: {error.strerror or error}") from error


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
    found = []
    for padded, shares in rows:  # a batch pads its short rows
        items = [item for item in padded.tolist() if item is not None]
        found.append(Ranked(items, np.minimum(shares[: len(items)], 1.0).tolist()))
    return found


# -- Search ----------------------------------------------------------------------------------------


class Search:
    """Finds items by the start of what they are called, then by any part of it; the weightier ones first.

    All names stand in one text, a line each, the weightiest first: a search is a scan that stops when it has enough.
    """

    def __init__(self, labels: Sequence[Sequence[str]], weights: NDArray[np.float64]) -> None:
        self._by_weight = np.argsort(-weights, kind="stable")
        names = ["\n".join(map(_fold, labels[code])) for code in self._by_weight.tolist()]
        self._text = "\n" + "\n".join(names)
        self._starts = np.cumsum([1, *(len(name) + 1 for name in names)])

    def find(self, query: str, limit: int) -> tuple[list[int], bool]:
        """Return the codes of at most `limit` items that match, and whether there are more."""
        wanted = _fold(query)
        found: dict[int, None] = {}
        for code in chain(self._with("\n" + wanted), self._with(wanted or "\n")):
            found[code] = None
            if len(found) > limit:
                break
        return list(found)[:limit], len(found) > limit

    def _with(self, text: str) -> Iterator[int]:
        """Yield the items whose names, each after the end of a line, contain a text."""
        position = self._text.find(text)
        while position >= 0:
            place = bisect_right(self._starts, position + 1) - 1
            yield int(self._by_weight[place])
            position = self._text.find(text, int(self._starts[place + 1]) - 1)


def _fold(text: str) -> str:
    return " ".join(text.casefold().split())
