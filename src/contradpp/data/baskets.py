"""Baskets: an immutable collection of sets of items, as a CSR of integer codes with a vocabulary."""

from __future__ import annotations

import functools
import itertools
import numbers
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contradpp._random import RandomState, as_generator
from contradpp.data.sets import (
    Sets,
    checked_csr,
    difference,
    drawn_entries,
    first_entries,
    frozen,
    joined,
    kept_entries,
    pointers,
    take_sets,
    without_duplicates,
)
from contradpp.data.tables import OnBadRow, Returns, assemble_table, frame_to_arrow
from contradpp.data.vocabulary import Vocabulary, as_vocabulary, plain, unusable_ids
from contradpp.errors import DataError, ParameterError


class Baskets(Sequence[list[Hashable]]):
    """Sets of items, ready for learning: basket b holds the codes `indices[indptr[b]:indptr[b + 1]]`.

    An item occurs at most once in a basket, items keep the order in which they came, and the arrays cannot
    be written to. Build one with `from_lists`, `from_csr`, `from_frame`, `from_arrow` or
    `contradpp.read_baskets`. As a sequence it gives each basket as a list of the user's own item ids.

    Attributes
    ----------
    indptr, indices : ndarray
        The CSR of codes: int64 of length n_baskets + 1, and int32.
    items : Vocabulary
        The item ids; the position of an id is its code.
    offered : Sets or None
        What each basket was chosen from, in codes: its own items and those that were refused. An empty set says that
        this is not known of that basket; None, of any.

    Examples
    --------
    >>> B = Baskets.from_lists([["tea", "milk"], ["milk", "bread", "milk"]])
    >>> B.n_baskets, B.n_items, B.sizes.tolist(), B[1]
    (2, 3, [2, 2], ['milk', 'bread'])

    What was looked at, and what of it was bought:

    >>> B = Baskets.from_lists([["tea"], ["milk", "bread"]], offered=[["tea", "coffee"], ["milk", "bread", "jam"]])
    >>> B.refused.sizes.tolist()
    [1, 1]
    """

    __slots__ = ("indices", "indptr", "items", "offered")

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    items: Vocabulary
    offered: Sets | None

    def __init__(
        self,
        indptr: ArrayLike,
        indices: ArrayLike,
        items: Vocabulary,
        offered: tuple[ArrayLike, ArrayLike] | None = None,
    ) -> None:
        pointers, codes = checked_csr(indptr, indices, len(items))
        if unusable := unusable_ids(items):
            raise _not_an_id(unusable[0])
        chosen = Sets(*without_duplicates(pointers, codes, len(items)))
        choices = None
        if offered is not None:
            choices = Sets(*without_duplicates(*checked_csr(*offered, len(items)), len(items)))
            _check_chosen(chosen, choices, items)
        self._store(*chosen, items, choices)

    def _store(
        self, indptr: NDArray[np.int64], indices: NDArray[np.int32], items: Vocabulary, offered: Sets | None
    ) -> None:
        object.__setattr__(self, "indptr", frozen(indptr))
        object.__setattr__(self, "indices", frozen(indices))
        object.__setattr__(self, "items", items)
        object.__setattr__(self, "offered", offered)

    @classmethod
    def trusted(
        cls, indptr: NDArray[np.int64], indices: NDArray[np.int32], items: Vocabulary, offered: Sets | None = None
    ) -> Baskets:
        """Baskets from arrays of our own making: no check and no search for duplicates."""
        baskets = cls.__new__(cls)
        baskets._store(indptr, indices, items, offered)
        return baskets

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Baskets are immutable: cannot set {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return Baskets, (self.indptr, self.indices, self.items, self.offered)

    # -- Building ----------------------------------------------------------------------------------

    @classmethod
    def from_lists(
        cls,
        lists: Iterable[Iterable[Any]],
        *,
        items: Iterable[Any] | None = None,
        offered: Iterable[Iterable[Any]] | None = None,
    ) -> Baskets:
        """Baskets from an iterable of iterables of item ids: strings, numbers, or tuples of them.

        Parameters
        ----------
        lists : iterable of iterables
            A basket each. Empty ones are kept.
        items : iterable of hashable, optional
            The vocabulary. Without it, items are numbered in the order in which they first occur.
        offered : iterable of iterables, optional
            What each basket was chosen from; an empty one where that is not known.
        """
        if offered is not None:
            return cls.from_lists(lists, items=items).with_offered(cls.from_lists(offered, items=items))
        known = None if items is None else as_vocabulary(items)
        codes: dict[Hashable, int] = {} if known is None else {item: c for c, item in enumerate(known)}
        sizes: list[int] = []
        flat: list[int] = []
        for number, basket in enumerate(_lists(lists, "baskets")):
            if isinstance(basket, (str, bytes)) or not isinstance(basket, Iterable):
                raise DataError(f"basket {number} must be a list of items, got {basket!r}")
            row = [plain(item) for item in basket]
            if known is not None and (missing := [item for item in row if item not in codes]):
                raise DataError(f"basket {number} holds {missing[0]!r}, which is not among the given items")
            flat.extend([codes.setdefault(item, len(codes)) for item in row])
            sizes.append(len(row))
        indptr, indices = pointers(sizes), np.array(flat, dtype=np.int32)
        if unusable := unusable_ids(codes):
            first = int(np.argmax(indices == codes[unusable[0]]))
            raise _not_an_id(unusable[0], f"basket {np.searchsorted(indptr, first, side='right') - 1}: ")
        return cls(indptr, indices, known or Vocabulary(codes))

    @classmethod
    def from_csr(
        cls, indptr: ArrayLike, indices: ArrayLike | None = None, *, items: Iterable[Any] | None = None
    ) -> Baskets:
        """Baskets from the pointers and codes of a CSR, or from a SciPy sparse matrix (baskets × items).

        Of a sparse matrix the entries that are not zero count as present. Without `items` the ids are
        0, 1, 2, ... .
        """
        if indices is None:
            return cls._from_sparse(indptr, items)
        codes = np.asarray(indices)
        if items is None:
            vocabulary = Vocabulary(range(int(codes.max()) + 1 if codes.size else 0))
        else:
            vocabulary = as_vocabulary(items)
        return cls(np.array(indptr), np.array(codes), vocabulary)  # copies: the caller may write to theirs

    @classmethod
    def _from_sparse(cls, matrix: Any, items: Iterable[Any] | None) -> Baskets:
        if not hasattr(matrix, "tocsr"):
            raise ParameterError("from_csr needs (indptr, indices) or one SciPy sparse matrix")
        csr = matrix.tocsr(copy=True)
        csr.eliminate_zeros()
        if csr.dtype.kind in "fc" and np.isnan(csr.data).any():
            raise DataError("the matrix has entries that are NaN: whether such an item is in the basket is not known")
        vocabulary = Vocabulary(range(csr.shape[1])) if items is None else as_vocabulary(items)
        if len(vocabulary) != csr.shape[1]:
            raise DataError(f"the matrix has {csr.shape[1]} columns but {len(vocabulary)} items were given")
        return cls(csr.indptr, csr.indices, vocabulary)

    @classmethod
    def from_frame(cls, frame: Any, **columns: Any) -> Baskets:
        """Baskets from a pandas or polars data frame, long (a row per item) or with a column of lists.

        Parameters are those of `from_arrow`; neither pandas nor polars is required.
        """
        told = {role: name for role, name in columns.items() if role not in ("on_bad_row", "returns")}
        return cls.from_arrow(frame_to_arrow(frame, told), **columns)

    @classmethod
    def from_arrow(
        cls, table: Any, *, basket: str | None = None, item: str | None = None, quantity: str | None = None,
        name: str | None = None, category: str | None = None, chosen: str | None = None,
        on_bad_row: OnBadRow = "error", returns: Returns = "drop",
    ) -> Baskets:  # fmt: skip
        """Baskets from a pyarrow Table, RecordBatch or RecordBatchReader.

        Parameters
        ----------
        table : pyarrow.Table, pyarrow.RecordBatch or pyarrow.RecordBatchReader
            Long (a row per basket and item) or with one column of lists (a row per basket).
        basket, item, quantity, name, category, chosen, on_bad_row, returns : optional
            As of `contradpp.read_baskets`.
        """
        told = {"basket": basket, "item": item, "quantity": quantity, "name": name, "category": category}
        told["chosen"] = chosen
        return cls(*assemble_table(table, told, on_bad_row=on_bad_row, returns=returns))

    # -- Looking -----------------------------------------------------------------------------------

    @property
    def n_baskets(self) -> int:
        """How many baskets there are."""
        return len(self.indptr) - 1

    @property
    def n_items(self) -> int:
        """How many items the vocabulary has, whether or not they occur."""
        return len(self.items)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The number of items in each basket."""
        return np.diff(self.indptr)

    @property
    def item_counts(self) -> NDArray[np.int64]:
        """In how many baskets each item occurs."""
        return np.bincount(self.indices, minlength=self.n_items).astype(np.int64)

    def codes(self, basket: int) -> NDArray[np.int32]:
        """The item codes of one basket."""
        return self.indices[self.indptr[basket] : self.indptr[basket + 1]]

    def __len__(self) -> int:
        return self.n_baskets

    @overload
    def __getitem__(self, which: int) -> list[Hashable]: ...
    @overload
    def __getitem__(self, which: slice) -> Baskets: ...
    def __getitem__(self, which: int | slice) -> list[Hashable] | Baskets:
        if isinstance(which, slice):
            return self.subset(np.arange(self.n_baskets)[which])
        position = range(self.n_baskets)[which]
        return [self.items[code] for code in self.codes(position).tolist()]

    def __iter__(self) -> Iterator[list[Hashable]]:
        ids = self.items
        for first, last in itertools.pairwise(self.indptr.tolist()):
            yield [ids[code] for code in self.indices[first:last].tolist()]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Baskets):
            return NotImplemented
        ours, theirs = ((*baskets.sets, *(baskets.offered or ())) for baskets in (self, other))
        same = len(ours) == len(theirs) and all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))
        return same and self.items == other.items

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Baskets({self.n_baskets:,} baskets, {self.n_items:,} items)"

    @property
    def sets(self) -> Sets:
        """The CSR of codes."""
        return Sets(self.indptr, self.indices)

    @property
    def refused(self) -> Sets:
        """What was offered with each basket and not taken, in codes; nothing where that is not known."""
        if self.offered is None:
            return Sets.empty(self.n_baskets)
        return difference(self.offered, self.sets, self.n_items)

    def to_csr(self) -> Any:
        """The baskets as a SciPy CSR array of ones (n_baskets × n_items)."""
        from scipy.sparse import csr_array

        shape = (self.n_baskets, self.n_items)
        matrix = csr_array((np.ones(len(self.indices)), self.indices.copy(), self.indptr.copy()), shape=shape)
        matrix.sort_indices()
        return matrix

    def summary(self) -> Summary:
        """The figures that `describe` prints."""
        sizes, counts = self.sizes, self.item_counts
        top = np.argsort(-counts, kind="stable")[:5]
        choices = np.zeros(0) if self.offered is None else self.offered.sizes[self.offered.sizes > 0]
        return Summary(
            n_baskets=self.n_baskets,
            n_items=self.n_items,
            n_entries=len(self.indices),
            n_unused_items=int(np.count_nonzero(counts == 0)),
            smallest=int(sizes.min()) if len(sizes) else 0,
            median=float(np.median(sizes)) if len(sizes) else 0.0,
            mean=float(sizes.mean()) if len(sizes) else 0.0,
            largest=int(sizes.max(initial=0)),
            sizes=dict(zip(_SIZE_BINS, np.histogram(sizes, [*_SIZE_BINS.values(), np.inf])[0].tolist(), strict=True)),
            popular={self.items.name(self.items[c]): int(counts[c]) for c in top.tolist() if counts[c]},
            mean_offered=float(choices.mean()) if len(choices) else None,
        )

    def describe(self) -> str:
        """One screen about the data: how many baskets and items, how large, what is popular."""
        return str(self.summary())

    # -- Making others -----------------------------------------------------------------------------

    def subset(self, which: ArrayLike) -> Baskets:
        """The baskets at these positions (or where a boolean mask is true), vocabulary unchanged."""
        wanted, n = np.asarray(which), self.n_baskets
        if not wanted.size and wanted.dtype != bool:
            wanted = wanted.astype(np.int64)
        if wanted.ndim != 1:
            raise ParameterError("subset needs a one-dimensional array of positions or a boolean mask")
        try:
            positions = np.arange(n)[wanted]
        except IndexError as error:
            raise ParameterError(f"subset needs positions in 0..{n - 1} or a mask of {n} entries: {error}") from None
        offered = None if self.offered is None else take_sets(self.offered, positions)
        return Baskets.trusted(*take_sets(self.sets, positions), self.items, offered)

    def split(self, test_size: float | int = 0.2, random_state: RandomState = None) -> tuple[Baskets, Baskets]:
        """Split at random into (train, test), both with the whole vocabulary and in their original order.

        Parameters
        ----------
        test_size : float or int
            The share of the baskets (0 to 1) or the number of baskets in the second part.
        random_state : int, Generator or None
        """
        if isinstance(test_size, numbers.Integral) and not isinstance(test_size, bool):
            n_test = int(test_size)
        elif isinstance(test_size, numbers.Real) and 0 < test_size < 1:
            n_test = round(float(test_size) * self.n_baskets)
        else:
            raise ParameterError(f"test_size must be a share between 0 and 1 or a number of baskets, got {test_size!r}")
        n_train = self.n_baskets - n_test
        if n_test < 1 or n_train < 1:
            raise DataError(
                f"cannot split {self.n_baskets} baskets into {n_train} for training and {n_test} for testing"
            )
        shuffled = as_generator(random_state).permutation(self.n_baskets)
        return self.subset(np.sort(shuffled[n_test:])), self.subset(np.sort(shuffled[:n_test]))

    def filter(self, *, min_size: int = 0, max_size: int | None = None, min_item_count: int = 0) -> Baskets:
        """Keep frequent items, then baskets of the right size; items that no longer occur are dropped.

        Parameters
        ----------
        min_item_count : int
            Items in fewer baskets than this are taken out of all baskets first.
        min_size, max_size : int, optional
            Baskets that are then smaller or larger are left out.
        """
        if max_size is not None and max_size < min_size:
            raise ParameterError(f"max_size={max_size} is below min_size={min_size}")
        frequent = self.item_counts >= min_item_count
        chosen = kept_entries(self.sets, frequent[self.indices])
        offered = self.offered if self.offered is None else kept_entries(self.offered, frequent[self.offered.indices])
        fits = chosen.sizes >= min_size
        if max_size is not None:
            fits &= chosen.sizes <= max_size
        return Baskets.trusted(*chosen, self.items, offered).subset(fits).compact()

    def clip(self, size: int) -> Baskets:
        """The baskets, each cut to its first `size` items; the others were not refused, and count as not offered."""
        return self._cut(first_entries(self.sets, size))

    def draw(self, size: int) -> Baskets:
        """As `clip`, but with `size` items of a larger basket drawn at random, the same ones every time."""
        return self._cut(drawn_entries(self.sets, size))

    def _cut(self, kept: NDArray[np.bool_]) -> Baskets:
        offered = self.offered
        if offered is not None:
            offered = difference(offered, kept_entries(self.sets, ~kept), self.n_items)
        return Baskets.trusted(*kept_entries(self.sets, kept), self.items, offered)

    def compact(self) -> Baskets:
        """The same baskets with a vocabulary of only the items that occur."""
        used = np.flatnonzero(self._occurs())
        if len(used) == self.n_items:
            return self
        recode = np.zeros(self.n_items, dtype=np.int32)
        recode[used] = np.arange(len(used), dtype=np.int32)
        offered = None if self.offered is None else Sets(self.offered.indptr, recode[self.offered.indices])
        return Baskets.trusted(self.indptr, recode[self.indices], self.items.subset(used.tolist()), offered)

    def _occurs(self) -> NDArray[np.bool_]:
        """Whether an item is in some basket, or was offered."""
        occurs: NDArray[np.bool_] = self.item_counts > 0
        if self.offered is not None:
            occurs[self.offered.indices] = True
        return occurs

    def recode(self, items: Vocabulary, *, unknown: str = "error") -> Baskets:
        """The same baskets in the codes of another vocabulary.

        Items that it lacks raise `UnknownItemError`, or are left out with `unknown="ignore"`.
        """
        if self.items == items:
            return Baskets.trusted(self.indptr, self.indices, items, self.offered)
        table = np.full(max(self.n_items, 1), -1, dtype=np.int32)
        present = np.flatnonzero(self._occurs()).tolist()
        known = present if unknown == "error" else [code for code in present if self.items[code] in items]
        table[known] = items.codes([self.items[code] for code in known], unknown=unknown)

        def recoded(sets: Sets) -> Sets:
            codes = table[sets.indices]
            return kept_entries(Sets(sets.indptr, codes), codes >= 0)

        return Baskets.trusted(*recoded(self.sets), items, None if self.offered is None else recoded(self.offered))

    def with_names(self, names: Mapping[Hashable, str]) -> Baskets:
        """The same baskets with readable item names attached."""
        return Baskets.trusted(self.indptr, self.indices, self.items.with_names(names), self.offered)

    def with_categories(self, categories: Mapping[Hashable, str]) -> Baskets:
        """The same baskets with item categories attached."""
        return Baskets.trusted(self.indptr, self.indices, self.items.with_categories(categories), self.offered)

    def with_offered(self, offered: Any) -> Baskets:
        """The same baskets with what each was chosen from: `Baskets` or lists, an empty one where it is not known."""
        choices = as_baskets(offered, "offered")
        if choices.n_baskets != self.n_baskets:
            raise DataError(f"there are {self.n_baskets:,} baskets but {choices.n_baskets:,} offered sets")
        items = self.items.merge(choices.items)
        return Baskets(*self.recode(items).sets, items, choices.recode(items).sets)

    @staticmethod
    def concat(parts: Iterable[Baskets]) -> Baskets:
        """All baskets of several collections, their vocabularies merged in order of appearance."""
        parts = list(parts)
        if not parts:
            raise ParameterError("concat needs at least one Baskets")
        items = functools.reduce(Vocabulary.merge, (part.items for part in parts))
        coded = [part.recode(items) for part in parts]
        offered = None
        if any(part.offered is not None for part in coded):
            offered = joined([part.offered or Sets.empty(part.n_baskets) for part in coded])
        return Baskets.trusted(*joined([part.sets for part in coded]), items, offered)

    def __add__(self, other: Baskets) -> Baskets:
        if not isinstance(other, Baskets):
            return NotImplemented
        return Baskets.concat([self, other])


def as_baskets(given: Any, name: str = "baskets", *, empty: bool = True) -> Baskets:
    """Baskets of what a user passes: `Baskets`, lists of lists, a data frame or Arrow table, or a sparse matrix.

    `empty` allows that there are none.
    """
    baskets = given if isinstance(given, Baskets) else _of_anything(given, name)
    if not (baskets.n_baskets or empty):
        raise DataError(f"{name} is empty")
    return baskets


def _of_anything(given: Any, name: str) -> Baskets:
    if any(hasattr(given, mark) for mark in ("collect_schema", "columns", "schema")):  # polars, pandas, Arrow
        try:
            return Baskets.from_frame(given)
        except DataError as error:
            if not error.parameters:
                raise
            raise DataError(f"{error} to Baskets.from_frame") from None
    if hasattr(given, "tocsr"):
        return Baskets.from_csr(given)
    numbers = isinstance(given, np.ndarray) and given.ndim == 2 and given.dtype.kind in "biuf"
    if numbers and given.shape[1] > 2 and np.isin(given, (0, 1)).all():
        raise DataError(f"{name} is a table of zeros and ones: scipy.sparse.csr_array(table) would be read as baskets")
    return Baskets.from_lists(_lists(given, name))


def _lists(given: Any, name: str) -> Iterator[Any]:
    try:
        return iter(given)
    except TypeError:
        raise DataError(f"{name} must be Baskets or a list of lists of items, got {type(given).__name__}") from None


def _check_chosen(chosen: Sets, offered: Sets, items: Vocabulary) -> None:
    """`DataError` unless every basket is part of what it was chosen from, as far as that is known."""
    if offered.count != chosen.count:
        raise DataError(f"there are {chosen.count:,} baskets but {offered.count:,} offered sets")
    beyond = difference(chosen, offered, len(items))
    wrong = np.flatnonzero((beyond.sizes > 0) & (offered.sizes > 0))
    if len(wrong):
        item = items[int(beyond.indices[beyond.indptr[wrong[0]]])]
        raise DataError(f"basket {wrong[0]}: {item!r} was chosen but is not among what was offered")


def _not_an_id(item: Hashable, where: str = "") -> DataError:
    if item is None or item != item:
        return DataError(f"{where}an item is missing: {item!r} is no id; leave it out")
    kind = type(item).__name__
    return DataError(
        f"{where}{item!r} ({kind}) cannot be an item id, which is a string, a number or a tuple: use str()"
    )


# -- Figures ---------------------------------------------------------------------------------------


_SIZE_BINS = {"0": 0, "1": 1, "2-3": 2, "4-7": 4, "8-15": 8, "16-31": 16, "32-63": 32, "64+": 64}


@dataclass(frozen=True)
class Summary:
    """Figures about a collection of baskets, printed as one screen."""

    n_baskets: int
    n_items: int
    n_entries: int
    n_unused_items: int
    smallest: int
    median: float
    mean: float
    largest: int
    sizes: dict[str, int]
    popular: dict[str, int]
    mean_offered: float | None = None  # items that a basket was chosen from, where that is known

    def as_dict(self) -> dict[str, Any]:
        """The figures as plain values, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        unused = f" ({self.n_unused_items:,} never occur)" if self.n_unused_items else ""
        lines = [
            f"{self.n_baskets:,} baskets, {self.n_items:,} items{unused}, largest {self.largest}",
            f"basket size: smallest {self.smallest}, median {self.median:g}, mean {self.mean:.2f}, "
            f"largest {self.largest}; {self.n_entries:,} entries",
        ]
        if self.mean_offered is not None:
            lines.append(f"chosen from {self.mean_offered:.2f} offered items on average")
        most = max(self.sizes.values(), default=0)
        for label, count in self.sizes.items():
            if count:
                share = count / self.n_baskets
                lines.append(f"  {label:>5}  {count:>10,}  {share:6.1%}  {'█' * round(30 * count / most)}")
        if self.popular:
            lines.append("most popular:")
            width = max(map(len, self.popular))
            for name, count in self.popular.items():
                lines.append(f"  {name:<{min(width, 50)}.50}  {count:>8,}  in {count / self.n_baskets:.1%} of baskets")
        return "\n".join(lines)
