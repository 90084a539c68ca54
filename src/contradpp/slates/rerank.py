"""`rerank`: a varied short list from anyone's candidates and scores."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contradpp._threads import resolve_n_jobs
from contradpp.data.sets import pointers
from contradpp.data.vocabulary import Vocabulary, id_array, plain, unusable_ids
from contradpp.dpp.greedy import NOTHING, Lists, Rules, Slates, Trade, Vectors, choose, reason_of
from contradpp.dpp.kernel import Kernel, checked_factors
from contradpp.errors import DataError, ParameterError, UnknownItemError
from contradpp.models.base import BaseDPP

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Items = list[Hashable]
LARGEST = 1e100  # scores beyond would overflow when they are standardised


class SlateInfo(NamedTuple):
    """More of a slate: where its items stood among the candidates, what each gained, and why it is short, if it is."""

    positions: Ints
    gains: Array
    reason: str | None


def rerank(
    candidates: Any,
    scores: Any,
    k: int = 10,
    *,
    kernel: Any = None,
    vectors: Mapping[Any, ArrayLike] | Any = None,
    diversity: float = 0.5,
    categories: Mapping[Any, Any] | Any = None,
    at_most: int | Mapping[Any, int] | None = None,
    at_least: Mapping[Any, int] | None = None,
    window: int | None = None,
    fixed: Mapping[Any, int] | Sequence[Mapping[Any, int]] | None = None,
    given: Iterable[Any] = (),
    method: str = "dpp",
    scale: str = "rank",
    reach: int = 5,
    unknown: str = "error",
    n_jobs: int | None = None,
    return_info: bool = False,
) -> Any:
    """Choose and order k of the candidates of any recommender, so that they are relevant and unlike each other.

    The DPP takes, place by place, the candidate j of the largest (1 − δ) ℓ_j + δ log c_j: ℓ_j is the log of its
    relevance, c_j = det Φ_{Y∪j} / det Φ_Y what the chosen ones Y have left of it, δ the `diversity`. That is the greedy
    most likely slate of the DPP with kernel diag(q) Φ diag(q), q_j² = exp(ℓ_j (1 − δ)/δ). Φ holds the cosines of the
    items' vectors, and 1 + 10⁻³ on its diagonal: what is left of an exact copy is 2 · 10⁻³. Of equal gains (to 10⁻⁹,
    with float32 vectors 10⁻⁴) the one with the higher score comes first, then the one that stands first.

    Parameters
    ----------
    candidates : sequence of items, or several
        One list, or a batch: a 2-D array, or a list of lists, which may differ in length. None is left out, with which
        `recommend` ends short rows. An item is a string, a number or a tuple of them.
    scores : sequence of numbers, or several
        In the shape of the candidates, the higher the better.
    k : int
        How many to choose. If the candidates or the rules allow fewer, exactly those.
    kernel : model, optional
        A fitted DPP: alike is what its own slates take for alike, as learned from slates or by the symmetric part of
        its kernel (attraction is a matter of relevance). Or any model with `item_factors_` or `item_factors` and,
        unless its items are 0, 1, ..., `items_`.
    vectors : array (n, d) in the order of the candidates, or mapping of item to vector, optional
        What is alike by cosine, in float32 or float64; a vector of zeros is like nothing. For a batch also
        (lists, n, d) or a list of arrays. With `kernel`, Φ is the mean of both.
    diversity : float
        0: relevance only, exactly the k best by score, ties in their order. 1: variety only, scores break ties.
        In between the choice is as above; with ½ relevance and variety count as they are.
    categories : mapping of item to category, or array in the order of the candidates, optional
        What the next three count. An item without a category (None, or not in the mapping) is free of them.
    at_most : int or mapping of category to int, optional
        The most of each category, or of those in the mapping.
    at_least : mapping of category to int, optional
        The fewest of these categories.
    window : int, optional
        Any `window` places in a row hold a category at most once: 2 keeps neighbours apart. The selection is greedy:
        a list may end, or an `at_least` be refused, although some other order would do.
    fixed : mapping of item to place, or one for every list, optional
        Candidates whose place, from 0, is settled; they repel from the start. Where nothing may stand before one, the
        list ends with what is fixed, moved up (or left out, if the window forbids it there).
    given : iterable of items, or one for every list, optional
        What is on screen or in the basket already: it repels, and is not chosen again. It does not count in the rules.
    method : {"dpp", "mmr", "msd", "window"}
        "mmr" (maximal marginal relevance) takes the largest (1 − δ) r_j − δ max cos(i, j) over the shown i (−1 if
        nothing is shown). "msd" (max-sum dispersion) is greedy for the mean relevance times 1 − δ plus the mean
        distance 1 − cos of pairs times δ. "window" is the DPP in which only the last `reach` places repel, for long
        lists.
    scale : {"rank", "linear", "log", "raw"}
        What scores mean. "rank": ℓ = −log rank, r = 1/rank, equal scores of equal rank. Any increasing change of
        the scores leaves the choice as it is, so probabilities, their logarithms and raw scores are all the same;
        candidates that are worse than all chosen ones do not matter, however many; and shares of attention do fall
        like 1/rank. "linear": ℓ is the score in standard deviations from the mean, r runs from 0 for the
        lowest to 1; differences count, shift and unit do not. "log", for probabilities: ℓ = log p, r = p/max p,
        where p below 10⁻¹² of the largest counts as that. "raw": ℓ = r = score, for scores that are logs of
        relevance, or cosines for MMR.
    reach : int
        See "window" above; not the rule of that name.
    unknown : {"error", "ignore"}
        What to do with items, given ones too, that the model or the mapping does not know: raise `UnknownItemError`,
        or let them be unlike everything.
    n_jobs : int, optional
        Threads for a batch; None for all cores. Results do not depend on it.
    return_info : bool
        Also return a `SlateInfo` (a list of them for a batch): positions, gains, and why a slate is short.

    Returns
    -------
    items, scores : arrays of shape (k,), or (lists, k) for a batch
        The slate in its order with the scores that were passed. Short slates are shorter; in a batch they end in None
        with a score of NaN.

    Raises
    ------
    DataError
        Scores that are not finite, a candidate twice, shapes that do not agree.
    ParameterError
        Arguments out of range, rules that contradict each other, or an `at_least` that a list cannot give.

    Examples
    --------
    >>> import numpy as np
    >>> vectors = np.array([[1.0, 0.0], [0.99, 0.1], [0.0, 1.0]])
    >>> rerank(["tea", "green tea", "milk"], [0.9, 0.8, 0.5], k=2, vectors=vectors)[0].tolist()
    ['tea', 'milk']
    """
    trade = Trade(k=k, diversity=diversity, method=method, scale=scale, reach=reach)
    if unknown not in ("error", "ignore"):
        raise ParameterError(f"unknown must be 'error' or 'ignore', got {unknown!r}")
    if kernel is None and vectors is None and diversity > 0:
        raise ParameterError(
            "rerank has to know what is alike: pass kernel= or vectors=, or diversity=0 for the order of the scores",
            parameters=("vectors", "kernel", "diversity"),
        )
    lists = read_candidates(candidates, scores)
    if scale == "log" and len(lists.scores) and lists.scores.min() < 0:
        raise ParameterError('scale="log" is for probabilities, but a score is negative: use "raw" for logarithms')
    shown = read_given(given, lists)
    jobs = resolve_n_jobs(n_jobs)
    alike = read_likeness(kernel, vectors, lists, shown, unknown=unknown, n_jobs=jobs)
    left, rows = lists, alike.rows
    if shown:
        open_to = np.flatnonzero(_not_given(lists, shown))
        left, rows = lists.take(open_to), rows[open_to]
    labels = read_labels(categories, left)
    rules = Rules.of(labels, len(left.ids), k, at_most=at_most, at_least=at_least, window=window)
    settled = read_fixed(fixed, left, k, rules)
    slates = choose(
        alike.vectors, Lists(left.indptr, left.scores, rows, alike.given_ptr, alike.given, *settled), trade, rules,
        n_jobs=jobs,
    )  # fmt: skip
    return _answer(left, slates, return_info)


def _not_given(lists: Candidates, shown: list[list[Any]]) -> NDArray[np.bool_]:
    """Which candidates are not on screen already."""
    free = np.ones(len(lists.ids), dtype=bool)
    for number, items in enumerate(shown):
        if items:
            first, last = lists.indptr[number : number + 2].tolist()
            taken = set(items)
            free[first:last] = [item not in taken for item in lists.ids[first:last].tolist()]
    return free


def _answer(lists: Candidates, slates: Slates, return_info: bool) -> Any:
    """Items, scores and, if asked for, the rest, in the shape of the question."""
    width = int(slates.counts.max(initial=0))
    flat = (slates.positions + lists.indptr[:-1, None])[:, :width]
    if slates.counts.min(initial=width) == width:
        items, scores = lists.ids[flat], lists.scores[flat]
    else:
        there = slates.positions[:, :width] >= 0
        items, scores = np.full(there.shape, None, dtype=object), np.full(there.shape, np.nan)
        items[there], scores[there] = lists.ids[flat[there]], lists.scores[flat[there]]
    answer = (items[0], scores[0]) if lists.single else (items, scores)
    if not return_info:
        return answer
    sizes = np.diff(lists.indptr).tolist()
    infos = []
    for number, (count, end) in enumerate(zip(slates.counts.tolist(), slates.ends.tolist(), strict=True)):
        where = lists.places[flat[number, :count]] - lists.passed[number]
        infos.append(SlateInfo(where, slates.gains[number, :count], reason_of(end, count, sizes[number])))
    return (*answer, infos[0] if lists.single else infos)


class Candidates(NamedTuple):
    """Ids and scores, list after list; where each stood in what the user passed; and whether that was a single list."""

    indptr: Ints
    ids: NDArray[Any]
    scores: Array
    places: Ints
    passed: Ints  # the pointers of the lists as they were passed
    single: bool

    @property
    def count(self) -> int:  # type: ignore[override]
        """How many lists there are."""
        return len(self.indptr) - 1

    def where(self, position: int) -> str:
        """The list of a candidate, for messages."""
        return "" if self.single else f"list {np.searchsorted(self.indptr, position, side='right') - 1}: "

    def take(self, kept: Ints) -> Candidates:
        """The candidates at these positions, ascending."""
        indptr = np.searchsorted(kept, self.indptr)
        return Candidates(indptr, self.ids[kept], self.scores[kept], self.places[kept], self.passed, self.single)

    def find(self, number: int, item: Hashable) -> int:
        """The position of an item of a list, −1 if it is not in it."""
        first, last = self.indptr[number : number + 2].tolist()
        return next((first + i for i, other in enumerate(self.ids[first:last].tolist()) if other == item), -1)


# -- Candidates --------------------------------------------------------------------------------------


def read_candidates(candidates: Any, scores: Any) -> Candidates:
    """The lists with their scores, all checked; places that hold None, as `recommend` ends short rows, are left out."""
    single, indptr, ids = _flat(candidates, "candidates", _id_array)
    also, score_ptr, values = _flat(scores, "scores", _number_array)
    if single != also or len(indptr) != len(score_ptr):
        raise DataError("candidates and scores must have the same shape: one list of each, or as many lists of each")
    if (indptr != score_ptr).any():
        sizes, others = np.diff(indptr), np.diff(score_ptr)
        number = int(np.flatnonzero(sizes != others)[0])
        where = "there are" if single else f"list {number} has"
        raise DataError(f"{where} {sizes[number]} candidates but {others[number]} scores")
    found = Candidates(indptr, ids, _number_array(values), np.arange(len(ids)), indptr, single)
    if ids.dtype.kind not in "iuU":
        found = found.take(np.flatnonzero([item is not None for item in ids.tolist()]))
        unusable = unusable_ids(found.ids.tolist())
        if unusable:
            raise DataError(f"a candidate must be a string, a number or a tuple of them, got {unusable[0]!r}")
    fine = np.abs(found.scores) <= LARGEST
    if not fine.all():
        position = int(np.argmin(fine))
        raise DataError(
            f"{found.where(position)}the score of {plain(found.ids[position])!r} is {found.scores[position]}: leave "
            f"the candidate out, or give it a finite score within ±{LARGEST:.0e}"
        )
    _refuse_duplicates(found)
    return found


def _flat(lists: Any, what: str, as_array: Callable[[list[Any]], NDArray[Any]]) -> tuple[bool, Ints, NDArray[Any]]:
    """Whether it is a single list, the pointers of the lists, and all entries one after the other."""
    lists = np.arange(lists.start, lists.stop, lists.step) if isinstance(lists, range) else lists
    if isinstance(lists, np.ndarray) and lists.ndim in (1, 2) and lists.dtype != object:
        n_lists = 1 if lists.ndim == 1 else len(lists)
        return lists.ndim == 1, np.arange(n_lists + 1) * lists.shape[-1], lists.reshape(-1)
    if isinstance(lists, (str, bytes, Mapping, set)) or not isinstance(lists, Iterable):
        raise DataError(f"{what} must be a list, or a list of lists, got {type(lists).__name__}")
    rows = list(lists)
    if not any(isinstance(row, (list, np.ndarray)) for row in rows):
        return True, np.array([0, len(rows)]), as_array(rows)
    for row in rows:
        if not isinstance(row, (list, tuple)) and not (isinstance(row, np.ndarray) and row.ndim == 1):
            raise DataError(f"{what} must be one list or a list of lists, but {row!r:.60} stands beside a list")
    indptr = pointers([len(row) for row in rows])
    kinds = {row.dtype.kind if isinstance(row, np.ndarray) else "O" for row in rows}
    if len(kinds) == 1 and kinds != {"O"}:
        return False, indptr, np.concatenate(rows)
    return False, indptr, as_array([entry for row in rows for entry in row])


def _id_array(items: list[Any]) -> NDArray[Any]:
    return id_array(items if set(map(type, items)) <= {int, str} else [plain(item) for item in items])


def _number_array(values: Any) -> Array:
    try:
        return np.ascontiguousarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"scores must be numbers: {error}") from None


def _refuse_duplicates(found: Candidates) -> None:
    sizes = found.indptr[1:] - found.indptr[:-1]
    if found.ids.dtype.kind in "iu" and found.count and (sizes == sizes[0]).all():
        rows = found.ids.reshape(found.count, -1)
        if found.single and (rows[:, 1:] > rows[:, :-1]).all():
            return  # positions, as one passes for things without an id
        rows = np.sort(rows, axis=1)
        same = rows[:, 1:] == rows[:, :-1]
        if not same.any():
            return
        doubled = np.flatnonzero(same.any(axis=1))
    else:
        ids = found.ids.tolist()
        ends = found.indptr.tolist()
        doubled = np.array([n for n, (a, b) in enumerate(itertools.pairwise(ends)) if len(set(ids[a:b])) < b - a])
    for number in doubled[:1]:
        first = int(found.indptr[number])
        seen: set[Hashable] = set()
        for item in found.ids[first : found.indptr[number + 1]].tolist():
            if item in seen:
                raise DataError(f"{found.where(first)}the candidate {item!r} occurs twice: keep one of the two")
            seen.add(item)


# -- What is alike -----------------------------------------------------------------------------------


class Alike(NamedTuple):
    """Vectors, the row of each candidate, and those of the given items of each list (−1: none)."""

    vectors: Vectors
    rows: Ints
    given_ptr: Ints
    given: Ints


def read_given(given: Any, lists: Candidates) -> list[Items]:
    """The items on screen of every list: the same for all, or those of each where lists are passed; [] if none."""
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise DataError(f"given must be a list of items, got {given!r}: write [{given!r}] for one")
    content = list(given)
    if not content:
        return []
    if lists.single or not any(isinstance(entry, (list, set, np.ndarray)) for entry in content):
        return [[plain(item) for item in content]] * lists.count
    if len(content) != lists.count:
        raise DataError(f"given has {len(content)} lists, but there are {lists.count} lists of candidates")
    return [[plain(item) for item in one] for one in content]


def read_likeness(
    kernel: Any, vectors: Any, lists: Candidates, given: list[Items], *, unknown: str, n_jobs: int
) -> Alike:
    """The vectors of a model, those of the user, or both side by side with equal weight."""
    given_ptr = pointers([len(one) for one in given]) if given else np.zeros(lists.count + 1, dtype=np.int64)
    flat = _id_array([item for one in given for item in one])
    parts = []
    if kernel is not None:
        parts.append(_of_model(kernel, lists, flat, unknown))
    if isinstance(vectors, Mapping):
        parts.append(_of_mapping(vectors, lists, flat, unknown, n_jobs))
    elif vectors is not None:
        parts.append(_of_arrays(vectors, lists, given, unknown, n_jobs))
    if not parts:
        return Alike(Vectors.none(), np.full(len(lists.ids), -1), given_ptr, np.full(len(flat), -1))
    if len(parts) == 1:
        found, rows, given_rows = parts[0]
        return Alike(found, rows, given_ptr, given_rows)
    sides = [found.of_rows(np.concatenate([rows, given_rows])) for found, rows, given_rows in parts]
    joined = np.ascontiguousarray(np.hstack(sides))
    numbers = np.arange(len(joined))
    scales = np.full(len(joined), np.sqrt(0.5))
    return Alike(Vectors(joined, scales), numbers[: len(lists.ids)], given_ptr, numbers[len(lists.ids) :])


Part = tuple[Vectors, Ints, Ints]


def _of_model(model: Any, lists: Candidates, given: NDArray[Any], unknown: str) -> Part:
    kernel = model.kernel_ if hasattr(type(model), "kernel_") else None  # which an unfitted model refuses
    factors = getattr(model, "item_factors_", getattr(model, "item_factors", None)) if kernel is None else None
    if isinstance(kernel, Kernel):
        vectors = model.likeness_ if isinstance(model, BaseDPP) else Vectors.of_kernel(kernel)
    elif factors is not None:
        vectors = Vectors.of_table(checked_factors(np.asarray(factors)))
    else:
        raise ParameterError(
            f"kernel must be a fitted model with item factors, got {type(model).__name__}: pass a DPP, or vectors=",
            parameters=("kernel",),
        )
    items = getattr(model, "items_", None)
    items = items if isinstance(items, Vocabulary) else Vocabulary(range(len(vectors.table)))
    rows, given_rows = items.find(lists.ids), items.find(given)
    _refuse_unknown(rows, lists.ids, "candidates", "the model", unknown)
    _refuse_unknown(given_rows, given, "given", "the model", unknown)
    return vectors, rows, given_rows


def _of_mapping(vectors: Mapping[Any, Any], lists: Candidates, given: NDArray[Any], unknown: str, n_jobs: int) -> Part:
    used = list(dict.fromkeys([*lists.ids.tolist(), *given.tolist()]))
    known = [item for item in used if item in vectors]
    rows_of = {item: row for row, item in enumerate(known)}
    rows = np.array([rows_of.get(item, -1) for item in lists.ids.tolist()], dtype=np.int64)
    given_rows = np.array([rows_of.get(item, -1) for item in given.tolist()], dtype=np.int64)
    _refuse_unknown(rows, lists.ids, "candidates", "vectors", unknown)
    _refuse_unknown(given_rows, given, "given", "vectors", unknown)
    arrays = [np.asarray(vectors[item]) for item in known]
    for item, array in zip(known, arrays, strict=True):
        if array.shape != arrays[0].shape or array.ndim != 1:
            raise DataError(
                f"vectors must be one-dimensional and of one length, but that of {item!r} has shape {array.shape} and "
                f"that of {known[0]!r} {arrays[0].shape}"
            )
    table = np.stack(arrays) if arrays else np.zeros((0, 1))
    return Vectors.of_table(_real(table), n_jobs=n_jobs), rows, given_rows


def _of_arrays(vectors: Any, lists: Candidates, given: list[Items], unknown: str, n_jobs: int) -> Part:
    """Vectors that stand beside the candidates: (n, d), for several lists (lists, n, d) or a list of (n, d)."""
    try:
        if lists.single or isinstance(vectors, np.ndarray):
            table = np.asarray(vectors)
        else:
            table = np.concatenate([np.asarray(one) for one in vectors if len(one)])
    except (TypeError, ValueError) as error:
        raise DataError(f"vectors must all have the same length: {error}") from None
    if table.ndim == 3 and not lists.single:
        table = table.reshape(-1, table.shape[-1])
    if table.ndim != 2 or len(table) != lists.passed[-1]:
        raise DataError(
            f"vectors must be a row of numbers for each of the {lists.passed[-1]} candidates, in their order, or a "
            f"mapping of item to vector; got shape {table.shape}"
        )
    rows = NOTHING
    if given:
        rows = np.array([lists.find(number, item) for number, one in enumerate(given) for item in one], dtype=np.int64)
        flat = _id_array([item for one in given for item in one])
        _refuse_unknown(rows, flat, "given", "the candidates, beside which the vectors stand: pass a mapping", unknown)
        rows[rows >= 0] = lists.places[rows[rows >= 0]]
    return Vectors.of_table(_real(table), n_jobs=n_jobs), lists.places, rows


def _real(table: NDArray[Any]) -> NDArray[Any]:
    if table.dtype.kind not in "fiu":
        raise DataError(f"vectors must be real numbers, got dtype {table.dtype}")
    return table


def _refuse_unknown(rows: Ints, ids: NDArray[Any], what: str, place: str, unknown: str) -> None:
    if unknown == "error" and len(rows) and rows.min() < 0:
        missing = ids[rows < 0]
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise UnknownItemError(
            f"{what}: {plain(missing[0])!r}{more} not found in {place}; pass unknown='ignore' to let such items be "
            "unlike everything"
        )


# -- Rules -------------------------------------------------------------------------------------------


def read_labels(categories: Any, lists: Candidates) -> Sequence[Any] | NDArray[Any] | None:
    """The category of every candidate, None for one that has none."""
    if categories is None:
        return None
    if isinstance(categories, Mapping):
        return [categories.get(item) for item in lists.ids.tolist()]
    _, _, flat = _flat(categories, "categories", _id_array)
    if len(flat) != (n := lists.passed[-1]):
        raise DataError(f"there are {len(flat)} categories for {n} candidates: pass one for each, or a mapping")
    labels = flat[lists.places]
    if labels.dtype.kind in "iuU":
        return labels
    return [None if label is None or label != label else label for label in labels.tolist()]


def read_fixed(fixed: Any, lists: Candidates, k: int, rules: Rules) -> tuple[Ints, Ints, Ints]:
    """Which positions of every list are fixed, and at which places: pointers, positions and places, by place."""
    if fixed is None or len(fixed) == 0:
        return np.zeros(lists.count + 1, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    each = [fixed] * lists.count if isinstance(fixed, Mapping) else list(fixed)
    if len(each) != lists.count or not all(isinstance(one, Mapping) for one in each):
        raise ParameterError("fixed must be a mapping of item to place, or one for every list", parameters=("fixed",))
    positions: list[int] = []
    places: list[int] = []
    for number, one in enumerate(each):
        first = int(lists.indptr[number])
        try:
            pairs = sorted((_place(place, k), _fixed_position(lists, number, item)) for item, place in one.items())
            _check_places(pairs, rules, first, k)
        except ParameterError as error:
            raise ParameterError(f"{lists.where(first)}{error}", parameters=("fixed",)) from None
        positions += [position for _, position in pairs]
        places += [place for place, _ in pairs]
    sizes = pointers([len(one) for one in each])
    return sizes, np.array(positions, dtype=np.int64), np.array(places, dtype=np.int64)


def _place(place: Any, k: int) -> int:
    if isinstance(place, bool) or not isinstance(place, (int, np.integer)) or not 0 <= place < k:
        raise ParameterError(f"a fixed place must be an integer from 0 to k − 1 = {k - 1}, got {place!r}")
    return int(place)


def _fixed_position(lists: Candidates, number: int, item: Any) -> int:
    position = lists.find(number, plain(item))
    if position < 0:
        raise ParameterError(f"the fixed item {item!r} is not among the candidates, or it is given already")
    return position - int(lists.indptr[number])


def _check_places(pairs: list[tuple[int, int]], rules: Rules, first: int, k: int) -> None:
    """Refuse fixed places that contradict each other or the rules."""
    if len({place for place, _ in pairs}) < len(pairs):
        raise ParameterError("two items are fixed at the same place")
    groups = [(place, int(rules.groups[first + position])) for place, position in pairs]
    used: dict[int, list[int]] = {}
    for place, group in groups:
        if group >= 0:
            used.setdefault(group, []).append(place)
    for group, taken in used.items():
        name = rules.names[group]
        if len(taken) > rules.caps[group]:
            raise ParameterError(f"{len(taken)} items of {name!r} are fixed, but at_most is {rules.caps[group]}")
        if any(later - earlier < rules.window for earlier, later in itertools.pairwise(taken)):
            raise ParameterError(f"two items of {name!r} are fixed within a window of {rules.window} places")
    missing = sum(max(int(need) - len(used.get(g, ())), 0) for g, need in enumerate(rules.needs.tolist()))
    if missing > k - len(pairs):
        raise ParameterError(
            f"the fixed items leave {k - len(pairs)} places, but at_least asks for {missing} more items"
        )
