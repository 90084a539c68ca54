"""`rerank`: a varied short list from the candidates and scores of any recommender."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contradpp._threads import resolve_n_jobs
from contradpp._types import Array, Flags, Ints
from contradpp.data.sets import pointers
from contradpp.data.vocabulary import Vocabulary, check_unknown, id_array, plain, unusable_ids
from contradpp.dpp.kernel import checked_factors
from contradpp.errors import DataError, NotFittedError, ParameterError, UnknownItemError
from contradpp.slates.greedy import Lists, SlateObjective, Slates, SlidingWindow, Vectors, choose
from contradpp.slates.rules import (
    NO_INTEGERS,
    CategoryLimits,
    SlateRules,
    category_limits,
    check_places,
)

LARGEST = 1e100  # larger scores would overflow when they are standardized

Rows = tuple[Vectors, Ints, Ints]  # vectors, rows of the candidates and of the given items


class SlateInfo(NamedTuple):
    """Details of a slate."""

    positions: Ints  # of its items among the candidates
    gains: Array  # of each item when it was chosen
    reason: str | None  # why the slate is short, None if it is not


def rerank(
    candidates: Any,
    scores: Any,
    k: int = 10,
    *,
    kernel: Any = None,
    vectors: Mapping[Any, ArrayLike] | Any = None,
    diversity: float = 0.5,
    rules: SlateRules | None = None,
    given: Iterable[Any] = (),
    method: str | SlidingWindow = "dpp",
    scale: str = "rank",
    unknown: str = "error",
    n_jobs: int | None = None,
    return_info: bool = False,
) -> Any:
    """Choose and order k candidates of any recommender: relevant and unlike each other.

    Place by place, the DPP takes the candidate j of the largest

        (1 − δ) ℓ_j + δ log c_j,    c_j = det Φ_{Y∪j} / det Φ_Y.

    δ is the `diversity`, ℓ_j the log of relevance, Y the chosen items. Φ holds the cosines of the
    items' vectors, and 1 + 10⁻³ on its diagonal: an exact copy keeps c = 2 · 10⁻³. The slate is the
    greedy most likely one of the DPP with kernel diag(q) Φ diag(q), q_j² = exp(ℓ_j (1 − δ)/δ). Of
    gains equal to 10⁻⁹ (10⁻⁴ in float32) the higher score comes first, then the first position.

    Parameters
    ----------
    candidates : sequence of items, or several
        One list, or a batch: a 2-D array, or a list of lists, which may differ in length. None is
        left out, because it ends short rows of `recommend`. An item is a string, a number or a
        tuple of them.
    scores : sequence of numbers, or several
        In the shape of the candidates; higher is better.
    k : int
        The length of the slate. It is shorter if the candidates or the rules allow fewer.
    kernel : model, optional
        A fitted DPP, whose own similarity of items counts: learned from slates, or of the symmetric
        part of its kernel. Or any model with `item_factors_` or `item_factors` and,
        unless its items are 0, 1, ..., `items_`.
    vectors : array (n, d) in the order of the candidates, or mapping of item to vector, optional
        Items are similar by the cosine of their vectors, in float32 or float64. A vector of zeros
        is like nothing. For a batch also (lists, n, d) or a list of arrays. With `kernel`, Φ is the
        mean of both.
    diversity : float
        At 0 the slate has exactly the k best by score, ties in their order. At 1 only variety
        counts, and scores break ties.
    rules : SlateRules, optional
        Limits by category, and fixed places.
    given : iterable of items, or one for every list, optional
        Items on screen or in the basket already. They repel, are not chosen again, and do not count
        in the rules.
    method : {"dpp", "mmr", "msd"} or SlidingWindow
        "mmr" (maximal marginal relevance) takes the largest (1 − δ) r_j − δ max cos(i, j) over the
        shown items i, or −1 in place of max if nothing is shown. "msd" (max-sum dispersion) is
        greedy for (1 − δ) times the mean relevance plus δ times the mean distance 1 − cos of pairs.
        `SlidingWindow(size=5)` is the DPP in which only the latest places repel, for long lists.
    scale : {"rank", "linear", "log", "raw"}
        The meaning of scores.

        - "rank": ℓ = −log rank, r = 1/rank; equal scores have equal rank. Any increasing change of
          the scores leaves the slate as it is, and so do worse candidates.
        - "linear": ℓ is the score in standard deviations from the mean, r runs from 0 for the
          lowest to 1. Shift and unit of the scores do not count.
        - "log", for probabilities: ℓ = log p, r = p/max p, with p at least 10⁻¹² of the largest.
        - "raw": ℓ = r = score, for logs of relevance, or cosines for MMR.
    unknown : {"error", "ignore"}
        For items, given ones too, that the model or the mapping does not know: raise
        `UnknownItemError`, or let them be unlike everything.
    n_jobs : int, optional
        Threads for a batch; None for all cores. Results do not depend on it.
    return_info : bool
        Also return a `SlateInfo`, or a list of them for a batch.

    Returns
    -------
    items, scores : arrays of shape (k,), or (lists, k) for a batch
        The slate in its order with the scores that were passed. Short slates are shorter; in a
        batch they end in None with a score of NaN.

    Raises
    ------
    DataError
        Scores that are not finite, a candidate twice, shapes that do not agree.
    ParameterError
        Arguments out of range, rules that contradict each other, or an `at_least` that a list
        cannot give.

    Examples
    --------
    >>> import numpy as np
    >>> vectors = np.array([[1.0, 0.0], [0.99, 0.1], [0.0, 1.0]])
    >>> rerank(["tea", "green tea", "milk"], [0.9, 0.8, 0.5], k=2, vectors=vectors)[0].tolist()
    ['tea', 'milk']
    """
    objective = SlateObjective(k=k, diversity=diversity, method=method, scale=scale)
    check_unknown(unknown)
    if kernel is None and vectors is None and diversity > 0:
        raise ParameterError(
            "rerank has to know what is alike: pass kernel= or vectors=, or diversity=0 for the "
            "order of the scores",
            parameters=("vectors", "kernel", "diversity"),
        )
    lists = read_candidates(candidates, scores)
    if scale == "log" and lists.scores.min(initial=0) < 0:
        raise ParameterError(
            'scale="log" is for probabilities, but a score is negative: use "raw" for logarithms'
        )
    given_lists = _read_given(given, lists)
    given_indptr = pointers([len(items) for items in given_lists])
    jobs = resolve_n_jobs(n_jobs)
    table, rows, given_rows = _read_similarity(
        kernel, vectors, lists, given_lists, unknown=unknown, n_jobs=jobs
    )
    if len(given_rows):
        free = np.flatnonzero(lists.without(given_lists))
        lists = lists.take(free)
        rows = rows[free]
    rules = SlateRules() if rules is None else rules
    labels = read_categories(rules.categories, lists)
    limits, names = category_limits(labels, len(lists.ids), k, rules)
    fixed = read_fixed(rules.fixed, lists, k, limits, names)
    slates = choose(
        table,
        Lists(lists.indptr, lists.scores, rows, given_indptr, given_rows, *fixed),
        objective,
        limits,
        n_jobs=jobs,
    )
    if slates.ends.min(initial=0) < 0:
        number = int(np.flatnonzero(slates.ends < 0)[0])
        group = -1 - int(slates.ends[number])
        where = f"list {number}: " if lists.n_lists > 1 else ""
        raise ParameterError(
            f"{where}at_least asks for {limits.needs[group]} of {names[group]!r}, but the "
            "candidates and the other rules do not allow as many: ask for fewer, bring more "
            "candidates of it, or relax window and fixed",
            parameters=("at_least",),
        )
    return _answer(lists, slates, return_info)


def _answer(lists: Candidates, slates: Slates, return_info: bool) -> Any:
    """Return items, scores and, if requested, details in the shape of the candidates."""
    width = int(slates.counts.max(initial=0))
    entries = (slates.positions + lists.indptr[:-1, None])[:, :width]
    if slates.counts.min(initial=width) == width:
        items = lists.ids[entries]
        scores = lists.scores[entries]
    else:
        is_chosen = slates.positions[:, :width] >= 0
        items = np.full(is_chosen.shape, None, dtype=object)
        items[is_chosen] = lists.ids[entries[is_chosen]]
        scores = np.full(is_chosen.shape, np.nan)
        scores[is_chosen] = lists.scores[entries[is_chosen]]
    answer = (items[0], scores[0]) if lists.single else (items, scores)
    if not return_info:
        return answer
    infos = []
    sizes = np.diff(lists.indptr).tolist()
    for number, (count, size) in enumerate(zip(slates.counts.tolist(), sizes, strict=True)):
        positions = lists.sources[entries[number, :count]] - lists.source_indptr[number]
        gains = slates.gains[number, :count]
        infos.append(SlateInfo(positions, gains, slates.reason(number, size)))
    return (*answer, infos[0] if lists.single else infos)


# -- Candidates ------------------------------------------------------------------------------------


class Candidates(NamedTuple):
    """Ids and scores of all candidates, list after list."""

    indptr: Ints
    ids: NDArray[Any]
    scores: Array
    sources: Ints  # positions among all entries of the input
    source_indptr: Ints  # pointers of the lists of the input
    single: bool  # the input is one list, not a batch

    @property
    def n_lists(self) -> int:
        """The number of lists."""
        return len(self.indptr) - 1

    def prefix(self, number: int) -> str:
        """Return the start of a message about a list."""
        return "" if self.single else f"list {number}: "

    def ids_of(self, number: int) -> list[Hashable]:
        """Return the ids of one list."""
        ids: list[Hashable] = self.ids[self.indptr[number] : self.indptr[number + 1]].tolist()
        return ids

    def take(self, positions: Ints) -> Candidates:
        """Return the candidates at these ascending positions."""
        return self._replace(
            indptr=np.searchsorted(positions, self.indptr),
            ids=self.ids[positions],
            scores=self.scores[positions],
            sources=self.sources[positions],
        )

    def find(self, number: int, item: Hashable) -> int:
        """Return the position of an item within a list, −1 if it is not there."""
        ids = self.ids_of(number)
        return ids.index(item) if item in ids else -1

    def without(self, items_of_lists: list[list[Hashable]]) -> Flags:
        """Tell which candidates are not among the items of their list."""
        free = np.ones(len(self.ids), dtype=bool)
        for number, items in enumerate(items_of_lists):
            if items:
                excluded = set(items)
                first, last = self.indptr[number : number + 2].tolist()
                free[first:last] = [item not in excluded for item in self.ids_of(number)]
        return free


def read_candidates(candidates: Any, scores: Any) -> Candidates:
    """Read and check lists with their scores; leave out None, as in short rows of `recommend`."""
    single, indptr, ids = flatten(candidates, "candidates", plain_ids)
    single_scores, score_indptr, values = flatten(scores, "scores", _as_numbers)
    if single != single_scores or len(indptr) != len(score_indptr):
        raise DataError(
            "candidates and scores must have the same shape: one list of each, or as many lists of "
            "each"
        )
    if (indptr != score_indptr).any():
        sizes = np.diff(indptr)
        score_sizes = np.diff(score_indptr)
        number = int(np.flatnonzero(sizes != score_sizes)[0])
        subject = "there are" if single else f"list {number} has"
        raise DataError(f"{subject} {sizes[number]} candidates but {score_sizes[number]} scores")
    found = Candidates(indptr, ids, _as_numbers(values), np.arange(len(ids)), indptr, single)
    if ids.dtype.kind not in "iuU":
        found = found.take(np.flatnonzero([item is not None for item in ids.tolist()]))
        unusable = unusable_ids(found.ids.tolist())
        if unusable:
            raise DataError(
                f"a candidate must be a string, a number or a tuple of them, got {unusable[0]!r}"
            )
    finite = np.abs(found.scores) <= LARGEST
    if not finite.all():
        position = int(np.argmin(finite))
        number = int(np.searchsorted(found.indptr, position, side="right")) - 1
        raise DataError(
            f"{found.prefix(number)}the score of {plain(found.ids[position])!r} is "
            f"{found.scores[position]}: leave the candidate out, or give it a finite score within "
            f"±{LARGEST:.0e}"
        )
    _refuse_duplicates(found)
    return found


def flatten(
    lists: Any, name: str, as_array: Callable[[list[Any]], NDArray[Any]]
) -> tuple[bool, Ints, NDArray[Any]]:
    """Return if the input is a single list, the pointers of its lists, and all entries."""
    if isinstance(lists, range):
        lists = np.arange(lists.start, lists.stop, lists.step)
    if isinstance(lists, np.ndarray) and lists.ndim in (1, 2) and lists.dtype != object:
        n_lists = 1 if lists.ndim == 1 else len(lists)
        return lists.ndim == 1, np.arange(n_lists + 1) * lists.shape[-1], lists.reshape(-1)
    if isinstance(lists, (str, bytes, Mapping, set)) or not isinstance(lists, Iterable):
        raise DataError(f"{name} must be a list, or a list of lists, got {type(lists).__name__}")
    rows = list(lists)
    if not any(isinstance(row, (list, np.ndarray)) for row in rows):
        return True, np.array([0, len(rows)]), as_array(rows)
    for row in rows:
        is_vector = isinstance(row, np.ndarray) and row.ndim == 1
        if not is_vector and not isinstance(row, (list, tuple)):
            raise DataError(
                f"{name} must be one list or a list of lists, but {row!r:.60} stands beside a list"
            )
    indptr = pointers([len(row) for row in rows])
    kinds = {row.dtype.kind if isinstance(row, np.ndarray) else "O" for row in rows}
    if len(kinds) == 1 and kinds != {"O"}:
        return False, indptr, np.concatenate(rows)
    return False, indptr, as_array([entry for row in rows for entry in row])


def plain_ids(items: list[Any]) -> NDArray[Any]:
    """Return items as an array of plain Python ids."""
    if not set(map(type, items)) <= {int, str}:
        items = [plain(item) for item in items]
    return id_array(items)


def _as_numbers(values: Any) -> Array:
    try:
        return np.ascontiguousarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"scores must be numbers: {error}") from None


def _refuse_duplicates(found: Candidates) -> None:
    sizes = np.diff(found.indptr)
    if found.ids.dtype.kind in "iu" and len(sizes) and (sizes == sizes[0]).all():
        rows = found.ids.reshape(found.n_lists, -1)
        if found.single and (rows[:, 1:] > rows[:, :-1]).all():
            return  # ascending positions, for things without an id
        rows = np.sort(rows, axis=1)
        doubled = (rows[:, 1:] == rows[:, :-1]).any(axis=1)
    else:
        ids = found.ids.tolist()
        ends = itertools.pairwise(found.indptr.tolist())
        doubled = np.array([len(set(ids[a:b])) < b - a for a, b in ends], dtype=bool)
    for number in np.flatnonzero(doubled).tolist():
        seen: set[Hashable] = set()
        for item in found.ids_of(number):
            if item in seen:
                raise DataError(
                    f"{found.prefix(number)}the candidate {item!r} occurs twice: "
                    "keep one of the two"
                )
            seen.add(item)


def read_categories(
    categories: Any, candidates: Candidates
) -> Sequence[Hashable | None] | NDArray[Any] | None:
    """Return the category of every candidate, None for one without."""
    if categories is None:
        return None
    if isinstance(categories, Mapping):
        return [categories.get(item) for item in candidates.ids.tolist()]
    _, _, entries = flatten(categories, "categories", plain_ids)
    n_sources = candidates.source_indptr[-1]
    if len(entries) != n_sources:
        raise DataError(
            f"there are {len(entries)} categories for {n_sources} candidates: "
            "pass one for each, or a mapping"
        )
    labels = entries[candidates.sources]
    if labels.dtype.kind in "iuU":
        return labels
    return [None if label is None or label != label else label for label in labels.tolist()]


def read_fixed(
    fixed: Any, candidates: Candidates, k: int, limits: CategoryLimits, names: list[Hashable]
) -> tuple[Ints, Ints, Ints]:
    """Return pointers of the lists, positions of fixed items within them, and their places."""
    if fixed is None or len(fixed) == 0:
        return np.zeros(candidates.n_lists + 1, dtype=np.int64), NO_INTEGERS, NO_INTEGERS
    mappings = [fixed] * candidates.n_lists if isinstance(fixed, Mapping) else list(fixed)
    if len(mappings) != candidates.n_lists or not all(isinstance(m, Mapping) for m in mappings):
        raise ParameterError(
            "fixed must be a mapping of item to place, or one for every list", parameters=("fixed",)
        )
    by_place: list[tuple[int, int]] = []
    for number, places in enumerate(mappings):
        try:
            pairs = sorted(
                (_place(place, k), _fixed_position(candidates, number, item))
                for item, place in places.items()
            )
            groups = limits.groups[candidates.indptr[number] :]
            check_places([(place, int(groups[at])) for place, at in pairs], limits, names, k)
        except ParameterError as error:
            message = f"{candidates.prefix(number)}{error}"
            raise ParameterError(message, parameters=("fixed",)) from None
        by_place += pairs
    table = np.array(by_place, dtype=np.int64).reshape(-1, 2)
    return pointers([len(places) for places in mappings]), table[:, 1], table[:, 0]


def _place(place: Any, k: int) -> int:
    if isinstance(place, bool) or not isinstance(place, (int, np.integer)) or not 0 <= place < k:
        raise ParameterError(
            f"a fixed place must be an integer from 0 to k − 1 = {k - 1}, got {place!r}"
        )
    return int(place)


def _fixed_position(candidates: Candidates, number: int, item: Any) -> int:
    position = candidates.find(number, plain(item))
    if position < 0:
        raise ParameterError(
            f"the fixed item {item!r} is not among the candidates, or it is given already"
        )
    return position


# -- Similarity ------------------------------------------------------------------------------------


def _read_given(given: Any, lists: Candidates) -> list[list[Hashable]]:
    """Return the given items of every list."""
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise DataError(f"given must be a list of items, got {given!r}: write [{given!r}] for one")
    content = list(given)
    if lists.single or not any(isinstance(entry, (list, set, np.ndarray)) for entry in content):
        return [[plain(item) for item in content]] * lists.n_lists
    if len(content) != lists.n_lists:
        raise DataError(
            f"given has {len(content)} lists, but there are {lists.n_lists} lists of candidates"
        )
    return [[plain(item) for item in items] for items in content]


def _read_similarity(
    kernel: Any,
    vectors: Any,
    lists: Candidates,
    given: list[list[Hashable]],
    *,
    unknown: str,
    n_jobs: int,
) -> Rows:
    """Return the vectors of a model, those of the user, or both side by side with equal weight."""
    given_ids = plain_ids([item for items in given for item in items])
    n = len(lists.ids)
    parts: list[tuple[str, Rows]] = []
    if kernel is not None:
        table, items = _of_model(kernel)
        parts.append(("the model", (table, items.find(lists.ids), items.find(given_ids))))
    if isinstance(vectors, Mapping):
        ids = dict.fromkeys([*lists.ids.tolist(), *given_ids.tolist()])
        table, row_of = _of_mapping(vectors, ids, n_jobs)
        rows = np.array([row_of.get(item, -1) for item in lists.ids.tolist()], dtype=np.int64)
        others = np.array([row_of.get(item, -1) for item in given_ids.tolist()], dtype=np.int64)
        parts.append(("vectors", (table, rows, others)))
    elif vectors is not None:
        place = "the candidates, beside which the vectors stand: pass a mapping"
        table = _of_arrays(vectors, lists, n_jobs)
        parts.append((place, (table, lists.sources, _sources_of(given, lists))))
    for place, (_, rows, others) in parts:
        if unknown == "error":
            _refuse_unknown(rows, lists.ids, "candidates", place)
            _refuse_unknown(others, given_ids, "given", place)
    if not parts:
        return Vectors.none(), np.full(n, -1), np.full(len(given_ids), -1)
    if len(parts) == 1:
        return parts[0][1]
    sides = [table.of_rows(np.concatenate([rows, others])) for _, (table, rows, others) in parts]
    joined = np.ascontiguousarray(np.hstack(sides))
    rows, others = np.split(np.arange(len(joined)), [n])
    return Vectors(joined, np.full(len(joined), np.sqrt(0.5))), rows, others


def _of_model(model: Any) -> tuple[Vectors, Vocabulary]:
    try:
        vectors = model.similarity_
    except NotFittedError:  # an AttributeError, too
        raise
    except AttributeError:
        vectors = None
    if not isinstance(vectors, Vectors):
        factors = getattr(model, "item_factors_", getattr(model, "item_factors", None))
        if factors is None:
            raise ParameterError(
                f"kernel must be a fitted model with item factors, got {type(model).__name__}: "
                "pass a DPP, or vectors=",
                parameters=("kernel",),
            )
        vectors = Vectors.of_table(checked_factors(np.asarray(factors)))
    items = getattr(model, "items_", None)
    if not isinstance(items, Vocabulary):
        items = Vocabulary(range(len(vectors.table)))
    return vectors, items


def _of_mapping(
    vectors: Mapping[Any, Any], ids: Iterable[Hashable], n_jobs: int
) -> tuple[Vectors, dict[Hashable, int]]:
    known = [item for item in ids if item in vectors]
    arrays = [np.asarray(vectors[item]) for item in known]
    for item, array in zip(known, arrays, strict=True):
        if array.shape != arrays[0].shape or array.ndim != 1:
            raise DataError(
                f"vectors must be one-dimensional and of one length, but that of {item!r} has "
                f"shape {array.shape} and that of {known[0]!r} {arrays[0].shape}"
            )
    table = np.stack(arrays) if arrays else np.zeros((0, 1))
    return _scaled(table, n_jobs), {item: row for row, item in enumerate(known)}


def _of_arrays(vectors: Any, lists: Candidates, n_jobs: int) -> Vectors:
    """Read vectors in the order of the candidates: (n, d); of a batch (lists, n, d) or a list."""
    try:
        if lists.single or isinstance(vectors, np.ndarray):
            table = np.asarray(vectors)
        else:
            table = np.concatenate([np.asarray(part) for part in vectors if len(part)])
    except (TypeError, ValueError) as error:
        raise DataError(f"vectors must all have the same length: {error}") from None
    if table.ndim == 3 and not lists.single:
        table = table.reshape(-1, table.shape[-1])
    n_sources = lists.source_indptr[-1]
    if table.ndim != 2 or len(table) != n_sources:
        raise DataError(
            f"vectors must be a row of numbers for each of the {n_sources} candidates, in their "
            f"order, or a mapping of item to vector; got shape {table.shape}"
        )
    return _scaled(table, n_jobs)


def _sources_of(given: list[list[Hashable]], lists: Candidates) -> Ints:
    """Return where given items stand among all entries of the input, −1 if they do not."""
    rows = [
        -1 if (at := lists.find(number, item)) < 0 else lists.sources[lists.indptr[number] + at]
        for number, items in enumerate(given)
        for item in items
    ]
    return np.array(rows, dtype=np.int64)


def _scaled(table: NDArray[Any], n_jobs: int) -> Vectors:
    if table.dtype.kind not in "fiu":
        raise DataError(f"vectors must be real numbers, got dtype {table.dtype}")
    return Vectors.of_table(table, n_jobs=n_jobs)


def _refuse_unknown(rows: Ints, ids: NDArray[Any], name: str, place: str) -> None:
    missing = ids[rows < 0]
    if len(missing):
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise UnknownItemError(
            f"{name}: {plain(missing[0])!r}{more} not found in {place}; pass unknown='ignore' to "
            "let such items be unlike everything"
        )
