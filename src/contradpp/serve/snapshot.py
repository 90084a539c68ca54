"""An immutable model with what the service derives from it: names, search, costs and a map."""

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
from contextlib import suppress
from dataclasses import fields
from datetime import UTC, datetime
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

import contradpp
from contradpp._threads import blas_threads
from contradpp._types import Array
from contradpp.data.vocabulary import Lookup, Vocabulary
from contradpp.dpp.sampling import chain_steps
from contradpp.errors import ContradppError, ModelFileError, RankError
from contradpp.experts.queries import allowed_codes
from contradpp.models.base import DPPRecommender, load
from contradpp.models.conditional import ConditionalDPP
from contradpp.report.item_map import N_LANDMARKS, ItemMap
from contradpp.slates.greedy import as_method

log = logging.getLogger("contradpp.serve")
RULES = [field.name for field in fields(contradpp.SlateRules)]

# Costs are in multiply-adds of a matrix product that takes as long.
# Per size³: factorize a set, draw one from a symmetric or a nonsymmetric kernel, step a chain.
FACTORIZE = 10.0
DRAW = 10.0
DRAW_NONSYMMETRIC = 1000.0
CHAIN_STEP = 10.0
# Per cluster and n³, with n items in S: prepare a sampler, condition, find the sizes of sets.
PREPARE = 0.3
CONDITION = 0.2
FIND_SIZES = 3.3
EXACT = 1e10  # about a second: sets that take more are drawn by a chain
# Per item scored by the experts, and per pair of an item scored and an item of the basket.
SCORE_ITEM = 3000.0
SCORE_PAIR = 300.0


class Resolved(NamedTuple):
    """The items of a request that the model knows, without duplicates, and the unknown names."""

    items: list[Hashable]
    unknown: list[str | int]


class Ranked(NamedTuple):
    """Suggested items with P(next = i | basket), and the reason if they are fewer than n."""

    items: list[Hashable]
    probabilities: list[float]
    problem: str | None = None


class ModelSnapshot:
    """A model with everything that the routes need to answer; its version identifies it."""

    def __init__(self, model: DPPRecommender, version: str) -> None:
        self.model = model
        self.version = version
        self.loaded = datetime.now(UTC).isoformat(timespec="seconds")
        self.items: Vocabulary = model.items_
        with ThreadPoolExecutor(1) as pool:
            # Compiled code computes the marginals while Python sorts the names.
            marginals = pool.submit(lambda: model.dpp.rates)
            self.shares = model.item_probabilities()  # of all sales
            lookup = Lookup(self.items, self.shares)
            _ = lookup.named  # computed before a request needs it
            labels = [
                list(dict.fromkeys([self.items.name(item), str(item)])) for item in self.items
            ]
            self.probabilities = np.clip(marginals.result(), 0.0, 1.0)  # P(i ∈ Y)
        self.find = lookup.find
        self.search = Search(labels, self.probabilities)
        self._map_lock = threading.Lock()

    def resolve(self, names: Iterable[str | int]) -> Resolved:
        """Find items by id or name; "17" finds 17 if there is no "17", and the reverse."""
        found: dict[Hashable, None] = {}
        unknown: dict[str | int, None] = {}
        for name in names:
            item = self.find(name)
            if item is None:
                unknown[name] = None
            else:
                found[item] = None
        return Resolved(list(found), list(unknown))

    def named(self, item: Hashable) -> dict[str, Any]:
        """Return the id and the name of an item for JSON."""
        key = item if type(item) in (str, int) else str(item)
        return {"item": key, "name": self.items.name(item)}

    def weight(self, item: Hashable) -> float:
        """Return P(item ∈ Y)."""
        return float(self.probabilities[self.items.code(item)])

    def lift(self, item: Hashable, probability: float) -> float | None:
        """Return how many times an item's share of sales a probability is; None without sales."""
        share = float(self.shares[self.items.code(item)])
        return probability / share if share > 0 else None

    @property
    def expected_size(self) -> float:
        """The mean size of the model's sets."""
        return float(self.probabilities.sum())

    # -- Costs in multiply-adds -------------------------------------------------------------------

    def ranking_cost(
        self, baskets: Iterable[list[Hashable]], *, additions: int = 0, rankings: int = 1
    ) -> float:
        """Estimate the cost of ranking all items for baskets, and of greedy additions to each."""
        sizes = [len(basket) + additions for basket in baskets]
        passes = sum(sizes) + len(sizes) + additions
        cost = passes * float(self.model.dpp.kernel.factors.size) + self.scoring_cost(sizes)
        return cost + rankings * self._experts_cost(sizes)

    def _experts_cost(self, sizes: Sequence[int]) -> float:
        """Estimate the cost of scoring all items by experts, given baskets of these sizes."""
        if not isinstance(self.model, ConditionalDPP):
            return 0.0
        return len(self.items) * (SCORE_ITEM * len(sizes) + SCORE_PAIR * sum(sizes))

    def explaining_cost(self, baskets: Iterable[list[Hashable]], n: int) -> float:
        """Estimate the cost of explaining n suggestions for each of these baskets."""
        if not isinstance(self.model, ConditionalDPP):
            return 0.0
        by_features = self.model.cold_start_ is not None
        cost = 0.0
        for size in map(len, baskets):
            cost += self._experts_cost([size]) * (1.0 + 0.1 * n + size * by_features)
            cost += FACTORIZE * size * float(size + n) ** 2
        return cost

    def scoring_cost(self, sizes: Iterable[int]) -> float:
        """Estimate the cost of log P of sets of these sizes."""
        return FACTORIZE * sum(float(size) ** 3 for size in sizes)

    def sampling_cost(self, n: int, size: int | None) -> float:
        """Estimate the cost of drawing n sets, of this size or of any."""
        k = float(self.expected_size if size is None else size)
        kernel = self.model.dpp.kernel
        if self.sampling_method(n, size) == "chain":
            return n * chain_steps(k) * (CHAIN_STEP * (k + 1) ** 3 + k * kernel.n_components)
        draw = DRAW if kernel.symmetric and not kernel.has_diagonal else DRAW_NONSYMMETRIC
        return draw * n * k**3 + self._preparation_cost(n, size)

    def sampling_method(self, n: int, size: int | None, *, given: bool = False) -> str:
        """Return how to draw n sets: by a Markov chain if exact ones would take long."""
        if self.model.dpp.is_exact and self._preparation_cost(n, size, given=given) <= EXACT:
            return "exact"
        return "chain"

    def _preparation_cost(self, n: int, size: int | None, *, given: bool = False) -> float:
        """Estimate the cost of what precedes n exact samples."""
        n_clusters = getattr(self.model.dpp, "n_clusters", 1)
        rounds = PREPARE * min(n, n_clusters) + CONDITION * n_clusters * given
        if size is not None and n_clusters > 1:
            rounds += FIND_SIZES * n_clusters
        return rounds * float(len(self.model.dpp.kernel.skew.connected)) ** 3

    # -- Answers of the model ---------------------------------------------------------------------

    def recommend(self, baskets: Sequence[list[Hashable]], n: int, **options: Any) -> list[Ranked]:
        """Return the n best next items of every basket; a basket beyond the rank has a problem."""
        return _rank_each(lambda basket: self.model.recommend(basket, N=n, **options), baskets)

    def slate(self, baskets: Sequence[list[Hashable]], n: int, **options: Any) -> list[Ranked]:
        """Return a slate for every basket; one shorter than n has a problem, too."""
        slates = _rank_each(lambda basket: self.model.slate(basket, N=n, **options), baskets)
        return [
            one._replace(problem=f"only {len(one.items)} items can be chosen")
            if len(one.items) < n and not one.problem
            else one
            for one in slates
        ]

    def rerank(
        self, candidates: Sequence[str | int], scores: list[float], **options: Any
    ) -> tuple[Any, Any, Any]:
        """Rerank candidates by the vectors of the request, or else by this model."""
        kernel = self.model if options["vectors"] is None else None
        items: list[Hashable] = list(candidates)
        texts = [str(name) for name in (*items, *options["given"])]  # as in keys of JSON objects
        if kernel is not None:
            items = [self._known_or_same(name) for name in items]
            options["given"] = [self._known_or_same(name) for name in options["given"]]
        named = dict(zip(texts, [*items, *options["given"]], strict=True))
        for name in ("vectors", "categories", "fixed"):
            if isinstance(options[name], dict):
                by_text = options[name].items()
                options[name] = {named.get(text, text): value for text, value in by_text}
        rules = {name: options.pop(name) for name in RULES}
        reranked: tuple[Any, Any, Any] = contradpp.rerank(
            items,
            scores,
            kernel=kernel,
            rules=contradpp.SlateRules(**rules),
            method=as_method(options.pop("method"), options.pop("window_size")),
            **options,
            n_jobs=1,
            return_info=True,
        )
        return reranked

    def _known_or_same(self, name: Hashable) -> Hashable:
        item = self.find(name)
        return name if item is None else item

    def complete(
        self,
        basket: list[Hashable],
        n: int,
        *,
        candidates: list[Hashable] | None,
        exclude: list[Hashable],
        **history: Any,
    ) -> Ranked:
        """Add n items to a basket as `model.complete` does, or as many as the model allows."""
        allowed = allowed_codes(self.items, candidates, exclude)
        allowed[self.items.codes(basket)] = False
        limit = min(n, int(allowed.sum()))

        def add(n_items: int) -> tuple[list[Hashable], str | None]:
            """Return the added items, or the reason if there are none."""
            size = len(basket) + n_items
            try:
                completed = self.model.complete(
                    basket, size, candidates=candidates, exclude=exclude, **history
                )
            except RankError as error:
                return [], str(error)
            return completed[len(basket) :], None

        added, problem = add(limit)
        if problem is not None:
            # A smaller set is the beginning of a larger one, so bisection finds the largest.
            impossible = bisect_left(range(limit), True, key=lambda size: add(size)[1] is not None)
            added, _ = add(max(impossible - 1, 0))
        if len(added) < n and (added or problem is None):
            problem = f"only {len(added)} items can be added to this basket"
        if not added:
            return Ranked([], [], problem)
        earlier = history.get("history")
        following = self.model.predict_next(basket, history=earlier)
        probabilities = following[self.items.codes(added)]
        return Ranked(added, probabilities.tolist(), problem)

    def scores(self, baskets: Sequence[list[Hashable]]) -> list[float | None]:
        """Return log P of every basket, None for −inf."""
        if not baskets:
            return []
        logs = self.model.score_samples(list(baskets)).tolist()
        return [value if math.isfinite(value) else None for value in logs]

    def sample(
        self, n: int, *, size: int | None, given: list[Hashable], seed: int | None
    ) -> list[list[Hashable]]:
        """Draw sets exactly, or by a Markov chain if that would take too long."""
        method = self.sampling_method(n, size, given=bool(given))
        return list(self.model.sample(n, size=size, given=given, random_state=seed, method=method))

    def map_positions(self, required: Iterable[int], limit: int) -> tuple[list[int], Array]:
        """Return the codes of the required and the most probable items, and their positions."""
        with self._map_lock:  # the first request computes the map
            item_map = self._item_map
        codes = list(dict.fromkeys([*required, *item_map.landmarks[:limit].tolist()]))[:limit]
        return codes, item_map.positions_of(codes)

    @cached_property
    def _item_map(self) -> ItemMap:
        return ItemMap(self.model, np.argsort(-self.probabilities, kind="stable")[:N_LANDMARKS])


def open_model(path: str, n_jobs: int, version: str | None = None) -> ModelSnapshot:
    """Open a model file, ready to answer on `n_jobs` threads."""
    version = version or digest(path)
    started = time.perf_counter()
    log.info("loading model %s, %s bytes", version, f"{os.path.getsize(path):,}")
    with blas_threads(n_jobs):
        model = load(path)
        model.n_jobs = n_jobs  # the file was written for another machine
        snapshot = ModelSnapshot(model, version)
        # These compile or load the kernels: a compiler in a request would hold the event loop.
        snapshot.recommend([[snapshot.items[0]]], 1)
        with suppress(ContradppError):  # a kernel may have no set of one item
            model.sample(1, size=1, random_state=0, method=snapshot.sampling_method(1, 1))
    seconds = time.perf_counter() - started
    n_items = f"{len(snapshot.items):,}"
    log.info("serving model %s: %s items, ready in %.1f s", version, n_items, seconds)
    return snapshot


def digest(path: str) -> str:
    """Return a hash of the contents of a model file; raise `ModelFileError` if it is unreadable."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]
    except OSError as error:
        message = f"cannot read the model file {path}: {error.strerror or error}"
        raise ModelFileError(message) from error


def _rank_each(
    rank: Callable[[Any], tuple[Any, Any]], baskets: Sequence[list[Hashable]]
) -> list[Ranked]:
    """Rank for all baskets at once, or one by one if a basket is beyond the model's rank."""
    if not baskets:
        return []
    try:
        if len(baskets) == 1:
            rows = [rank(baskets[0])]
        else:
            rows = list(zip(*rank(list(baskets)), strict=True))
    except RankError as error:
        if len(baskets) == 1:
            return [Ranked([], [], str(error))]
        return [_rank_each(rank, [basket])[0] for basket in baskets]
    ranked = []
    for padded, probabilities in rows:  # short rows of a batch end in None
        items = [item for item in padded.tolist() if item is not None]
        ranked.append(Ranked(items, np.minimum(probabilities[: len(items)], 1.0).tolist()))
    return ranked


class Search:
    """An index that finds items by the start of a name, then by any part; more probable ones first.

    All names stand in one text, a line each, the most probable first. A search scans until it
    has enough.
    """

    def __init__(self, labels: Sequence[Sequence[str]], weights: Array) -> None:
        self._by_weight = np.argsort(-weights, kind="stable")
        names = ["\n".join(map(_fold, labels[code])) for code in self._by_weight.tolist()]
        self._text = "\n" + "\n".join(names)
        self._starts = np.cumsum([1, *(len(name) + 1 for name in names)])

    def find(self, query: str, limit: int) -> tuple[list[int], bool]:
        """Return the codes of at most `limit` items that match, and whether there are more."""
        text = _fold(query)
        found: dict[int, None] = {}
        for code in chain(self._matches("\n" + text), self._matches(text or "\n")):
            found[code] = None
            if len(found) > limit:
                break
        return list(found)[:limit], len(found) > limit

    def _matches(self, text: str) -> Iterator[int]:
        """Yield the codes of the items whose names, each after a newline, contain a text."""
        position = self._text.find(text)
        while position >= 0:
            row = bisect_right(self._starts, position + 1) - 1
            yield int(self._by_weight[row])
            position = self._text.find(text, int(self._starts[row + 1]) - 1)


def _fold(text: str) -> str:
    return " ".join(text.casefold().split())
