"""Lists of candidates with their scores, as `rerank` receives them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contradpp._types import Array, Flags, Ints
from contradpp.data.sets import pointers
from contradpp.data.vocabulary import id_array, plain, unusable_ids
from contradpp.errors import DataError

LARGEST = 1e100  # larger scores would overflow when they are standardized


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
