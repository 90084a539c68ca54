"""What a user may pass to `rerank`: lists of candidates, vectors, items on screen, categories, fixed places."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp.data.sets import pointers
from contradpp.data.vocabulary import Vocabulary, id_array, plain, unusable_ids
from contradpp.dpp.kernel import Kernel, checked_factors
from contradpp.dpp.slates import NOTHING, Rules, Vectors
from contradpp.errors import DataError, ParameterError, UnknownItemError
from contradpp.models.base import BaseDPP

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Items = list[Hashable]
LARGEST = 1e100  # scores beyond would overflow when they are standardised


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
