"""Baskets: an immutable collection of sets of items, as a CSR of item codes with a vocabulary."""

from __future__ import annotations

import functools
import itertools
import numbers
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contradpp._random import RandomState, as_generator
from contradpp._types import Codes, Flags, Ints
from contradpp.data import orders
from contradpp.data.builder import OnBadRow, Returns
from contradpp.data.columns import GAP, NAMED
from contradpp.data.orders import (
    Histories,
    Times,
    as_customers,
    as_times,
    histories_of,
    is_last,
    order_by_customer,
    read_times,
    starts_of_sessions,
)
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
from contradpp.data.summary import Summary
from contradpp.data.tables import baskets_from_table, frame_to_arrow, layout_of
from contradpp.data.vocabulary import Labels, Vocabulary, as_vocabulary, plain, unusable_ids
from contradpp.errors import DataError, ParameterError, check_choice

if TYPE_CHECKING:
    from scipy.sparse import csr_array


_CONTENTS = ("indptr", "indices", "items", "offered", "customers", "times")


class Baskets(Sequence[list[Hashable]]):
    """Sets of items, ready for learning.

    Build one with `from_lists`, `from_csr`, `from_frame`, `from_arrow` or
    `contradpp.read_baskets`. As a sequence it returns each basket as a list of the user's own item
    ids. An item occurs at most once in a basket, and items keep their order.

    Baskets are stored as a CSR of item codes: basket b holds the codes
    `indices[indptr[b]:indptr[b + 1]]`. The arrays are read-only.

    Attributes
    ----------
    indptr : ndarray of int64, shape (n_baskets + 1,)
    indices : ndarray of int32
    items : Vocabulary
        The item ids; the position of an id is its code.
    offered : Sets or None
        The items that each basket was chosen from, in codes: its own and the refused ones. A set is
        empty if they are not known of that basket; None if they are not known of any.
    customers : ndarray of object, shape (n_baskets,), or None
        The id of the customer of each basket, None where it is not known.
    times : ndarray of datetime64 or float64, shape (n_baskets,), or None
        The time of each basket, NaT or NaN where it is not known.

    Examples
    --------
    >>> baskets = Baskets.from_lists([["tea", "milk"], ["milk", "bread", "milk"]])
    >>> baskets
    Baskets(2 baskets, 3 items)
    >>> baskets[1]
    ['milk', 'bread']
    >>> baskets.sizes.tolist(), baskets.item_counts.tolist()
    ([2, 2], [1, 2, 1])

    Baskets may come with the items that were offered:

    >>> offered = [["tea", "coffee"], ["milk", "bread", "jam"]]
    >>> baskets = Baskets.from_lists([["tea"], ["milk", "bread"]], offered=offered)
    >>> baskets.refused.sizes.tolist()
    [1, 1]
    """

    __slots__ = _CONTENTS

    indptr: Ints
    indices: Codes
    items: Vocabulary
    offered: Sets | None
    customers: NDArray[np.object_] | None
    times: Times | None

    def __init__(
        self,
        indptr: ArrayLike,
        indices: ArrayLike,
        items: Vocabulary,
        offered: tuple[ArrayLike, ArrayLike] | None = None,
        customers: Iterable[Any] | None = None,
        times: Iterable[Any] | None = None,
    ) -> None:
        n_items = len(items)
        csr = checked_csr(indptr, indices, n_items)
        if unusable := unusable_ids(items):
            raise _unusable_id(unusable[0])
        chosen = Sets(*without_duplicates(*csr, n_items))
        candidates = None
        if offered is not None:
            candidates = Sets(*without_duplicates(*checked_csr(*offered, n_items), n_items))
            _check_chosen(chosen, candidates, items)
        n = chosen.count
        owners = None if customers is None else as_customers(customers, n)
        self._store(
            *chosen, items, candidates, owners, None if times is None else as_times(times, n)
        )

    def _store(self, *contents: Any) -> None:
        for name, value in zip(_CONTENTS, contents, strict=True):
            array = isinstance(value, np.ndarray)
            object.__setattr__(self, name, frozen(value) if array else value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Baskets are immutable: cannot set {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return Baskets.trusted, tuple(getattr(self, name) for name in _CONTENTS)

    # -- Constructors ------------------------------------------------------------------------------

    @classmethod
    def trusted(
        cls,
        indptr: Ints,
        indices: Codes,
        items: Vocabulary,
        offered: Sets | None = None,
        customers: NDArray[np.object_] | None = None,
        times: Times | None = None,
    ) -> Baskets:
        """Make baskets from arrays that are known to be valid, without any check."""
        baskets = cls.__new__(cls)
        baskets._store(indptr, indices, items, offered, customers, times)
        return baskets

    @classmethod
    def from_lists(
        cls,
        lists: Iterable[Iterable[Hashable]],
        *,
        items: Iterable[Hashable] | None = None,
        offered: Iterable[Iterable[Hashable]] | None = None,
        customers: Iterable[Any] | None = None,
        times: Iterable[Any] | None = None,
    ) -> Baskets:
        """Make baskets from an iterable of iterables of item ids.

        Parameters
        ----------
        lists : iterable of iterables
            A basket each, of strings, numbers or tuples of them. Baskets may be empty.
        items : iterable of hashable, optional
            The vocabulary. Without it, items are numbered in order of first appearance.
        offered : iterable of iterables, optional
            The items that each basket was chosen from; an empty one where they are not known.
        customers, times : iterable, optional
            The customer and the time of each basket: see `with_customers`.

        Returns
        -------
        Baskets

        Examples
        --------
        >>> Baskets.from_lists([["tea", "milk"], ["milk"]], items=["milk", "tea", "jam"])
        Baskets(2 baskets, 3 items)
        """
        if customers is not None or times is not None:
            made = cls.from_lists(lists, items=items, offered=offered)
            return made.with_customers(customers, times)
        if offered is not None:
            candidates = cls.from_lists(offered, items=items)
            return cls.from_lists(lists, items=items).with_offered(candidates)
        known = None if items is None else as_vocabulary(items)
        codes: dict[Hashable, int] = {item: code for code, item in enumerate(known or ())}
        sizes: list[int] = []
        flat: list[int] = []
        for number, basket in enumerate(_iterate(lists, "baskets")):
            if isinstance(basket, (str, bytes)) or not isinstance(basket, Iterable):
                raise DataError(f"basket {number} must be a list of items, got {basket!r}")
            row = [plain(item) for item in basket]
            if known is not None and (missing := [item for item in row if item not in codes]):
                raise DataError(
                    f"basket {number} holds {missing[0]!r}, which is not among the given items"
                )
            flat.extend([codes.setdefault(item, len(codes)) for item in row])
            sizes.append(len(row))
        indptr = pointers(sizes)
        indices = np.array(flat, dtype=np.int32)
        if unusable := unusable_ids(codes):
            first = np.argmax(indices == codes[unusable[0]])
            number = int(np.searchsorted(indptr, first, side="right")) - 1
            raise _unusable_id(unusable[0], f"basket {number}: ")
        return cls(indptr, indices, known or Vocabulary(codes))

    @classmethod
    def from_csr(
        cls,
        indptr: ArrayLike,
        indices: ArrayLike | None = None,
        *,
        items: Iterable[Hashable] | None = None,
    ) -> Baskets:
        """Make baskets from a CSR of item codes, or from a SciPy sparse matrix.

        Parameters
        ----------
        indptr : array or sparse matrix
            The pointers, or a matrix (n_baskets × n_items) whose nonzero entries are the items.
        indices : array of int, optional
            The item codes, unless a matrix is given.
        items : iterable of hashable, optional
            The item ids in the order of their codes; 0, 1, 2, ... without them.

        Returns
        -------
        Baskets

        Examples
        --------
        >>> list(Baskets.from_csr([0, 2, 3], [0, 1, 1], items=["tea", "milk"]))
        [['tea', 'milk'], ['milk']]
        """
        if indices is None:
            return cls._from_sparse(indptr, items)
        codes = np.array(indices)  # a copy: the caller may write to the original
        if items is None:
            items = range(int(codes.max()) + 1 if codes.size else 0)
        return cls(np.array(indptr), codes, as_vocabulary(items))

    @classmethod
    def _from_sparse(cls, matrix: Any, items: Iterable[Hashable] | None) -> Baskets:
        if not hasattr(matrix, "tocsr"):
            raise ParameterError("from_csr needs (indptr, indices) or one SciPy sparse matrix")
        csr = matrix.tocsr(copy=True)
        csr.eliminate_zeros()
        if csr.dtype.kind in "fc" and np.isnan(csr.data).any():
            raise DataError(
                "the matrix has entries that are NaN: "
                "it is not known if these items are in their baskets"
            )
        vocabulary = as_vocabulary(range(csr.shape[1]) if items is None else items)
        if len(vocabulary) != csr.shape[1]:
            raise DataError(
                f"the matrix has {csr.shape[1]} columns but {len(vocabulary)} items were given"
            )
        return cls(csr.indptr, csr.indices, vocabulary)

    @classmethod
    def from_frame(cls, frame: Any, **columns: Any) -> Baskets:
        """Make baskets from a pandas or polars data frame, which need not be installed.

        Parameters
        ----------
        frame : data frame
            Long (a row per basket and item), with one column of lists (a row per basket), or with
            a column of 0 and 1 for each item (a row per basket).
        **columns
            The parameters of `from_arrow`.

        Returns
        -------
        Baskets
        """
        options = ("on_bad_row", "returns")
        named = {role: name for role, name in columns.items() if role not in options}
        return cls.from_arrow(frame_to_arrow(frame, named), **columns)

    @classmethod
    def from_arrow(
        cls,
        table: Any,
        *,
        on_bad_row: OnBadRow = "error",
        returns: Returns = "drop",
        **columns: str | None,
    ) -> Baskets:
        """Make baskets from an Arrow table.

        Parameters
        ----------
        table : pyarrow.Table, pyarrow.RecordBatch or pyarrow.RecordBatchReader
            Long (a row per basket and item), with one column of lists (a row per basket), or with
            a column of 0 and 1 for each item (a row per basket).
        on_bad_row, returns : optional
        **columns
            `basket`, `item`, `quantity`, `name`, `category`, `chosen`, `customer`, `time` and
            `gap`, as in `contradpp.read_baskets`.

        Returns
        -------
        Baskets

        Examples
        --------
        >>> import pyarrow as pa
        >>> table = pa.table({"order_id": [7, 7, 9], "product": ["tea", "milk", "milk"]})
        >>> list(Baskets.from_arrow(table))
        [['tea', 'milk'], ['milk']]
        """
        for role in columns:
            check_choice("a column's role", role, NAMED)
        baskets = cls(*baskets_from_table(table, columns, on_bad_row=on_bad_row, returns=returns))
        gap = columns.get(GAP)
        return baskets if gap is None else baskets.sessions(gap)

    # -- Contents ----------------------------------------------------------------------------------

    @property
    def n_baskets(self) -> int:
        """The number of baskets."""
        return len(self.indptr) - 1

    @property
    def n_items(self) -> int:
        """The number of items in the vocabulary, including items that never occur."""
        return len(self.items)

    @property
    def sizes(self) -> Ints:
        """The number of items in each basket."""
        return np.diff(self.indptr)

    @property
    def item_counts(self) -> Ints:
        """The number of baskets with each item."""
        return np.bincount(self.indices, minlength=self.n_items).astype(np.int64)

    @property
    def sets(self) -> Sets:
        """The CSR of codes."""
        return Sets(self.indptr, self.indices)

    @property
    def refused(self) -> Sets:
        """The offered items that were not chosen, in codes; none where they are not known."""
        if self.offered is None:
            return Sets.empty(self.n_baskets)
        return difference(self.offered, self.sets, self.n_items)

    def codes(self, basket: int) -> Codes:
        """Return the item codes of one basket."""
        return self.indices[self.indptr[basket] : self.indptr[basket + 1]]

    def to_csr(self) -> csr_array:
        """Return a SciPy CSR array of ones (n_baskets × n_items)."""
        from scipy.sparse import csr_array

        data = (np.ones(len(self.indices)), self.indices.copy(), self.indptr.copy())
        matrix = csr_array(data, shape=(self.n_baskets, self.n_items))
        matrix.sort_indices()
        return matrix

    def summary(self) -> Summary:
        """Return the figures that `describe` prints."""
        return Summary.of(self)

    def describe(self) -> str:
        """Describe the baskets on one screen: their number, their sizes, and popular items.

        Examples
        --------
        >>> print(Baskets.from_lists([["tea", "milk"], ["milk"]]).describe().splitlines()[0])
        2 baskets, 2 items, largest 2
        """
        return str(self.summary())

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
        for first, last in itertools.pairwise(self.indptr.tolist()):
            yield [self.items[code] for code in self.indices[first:last].tolist()]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Baskets):
            return NotImplemented
        ours = (*self.sets, *(self.offered or ()))
        theirs = (*other.sets, *(other.offered or ()))
        same = len(ours) == len(theirs) and all(map(np.array_equal, ours, theirs))
        same = same and self.items == other.items
        return same and _same(self.customers, other.customers) and _same(self.times, other.times)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Baskets({self.n_baskets:,} baskets, {self.n_items:,} items)"

    # -- Derived baskets ---------------------------------------------------------------------------

    def subset(self, which: ArrayLike) -> Baskets:
        """Select baskets; the vocabulary stays the same.

        Parameters
        ----------
        which : array of int or of bool
            Positions, or a mask with an entry per basket.

        Returns
        -------
        Baskets
        """
        n = self.n_baskets
        wanted = np.asarray(which)
        if not wanted.size and wanted.dtype != bool:
            wanted = wanted.astype(np.int64)
        if wanted.ndim != 1:
            raise ParameterError(
                "subset needs a one-dimensional array of positions or a boolean mask"
            )
        try:
            positions = np.arange(n)[wanted]
        except IndexError as error:
            raise ParameterError(
                f"subset needs positions in 0..{n - 1} or a mask of {n} entries: {error}"
            ) from None
        return self._map_sets(lambda sets: take_sets(sets, positions))._with(
            customers=None if self.customers is None else self.customers[positions],
            times=None if self.times is None else self.times[positions],
        )

    def split(
        self, test_size: float | int = 0.2, random_state: RandomState = None
    ) -> tuple[Baskets, Baskets]:
        """Split at random into training and test baskets.

        Parameters
        ----------
        test_size : float or int
            The share of test baskets (0 to 1), or their number.
        random_state : int, Generator or None

        Returns
        -------
        train, test : Baskets
            Both with the same vocabulary and in their original order.

        Examples
        --------
        >>> Baskets.from_lists([["tea"]] * 10).split(0.3, random_state=0)
        (Baskets(7 baskets, 1 items), Baskets(3 baskets, 1 items))
        """
        if isinstance(test_size, numbers.Integral) and not isinstance(test_size, bool):
            n_test = int(test_size)
        elif isinstance(test_size, numbers.Real) and 0 < test_size < 1:
            n_test = round(float(test_size) * self.n_baskets)
        else:
            raise ParameterError(
                "test_size must be a share between 0 and 1 or a number of baskets, "
                f"got {test_size!r}"
            )
        n_train = self.n_baskets - n_test
        if n_test < 1 or n_train < 1:
            raise DataError(
                f"cannot split {self.n_baskets} baskets "
                f"into {n_train} for training and {n_test} for testing"
            )
        shuffled = as_generator(random_state).permutation(self.n_baskets)
        return self.subset(np.sort(shuffled[n_test:])), self.subset(np.sort(shuffled[:n_test]))

    def split_by_time(self, time: Any = None, *, min_baskets: int = 2) -> tuple[Baskets, Baskets]:
        """Split into earlier training and later test baskets.

        Parameters
        ----------
        time : date, text or number, optional
            Test baskets are those at this time or later; baskets of unknown time are for training.
            None for the last basket of each customer.
        min_baskets : int
            Without `time`: the last basket of a customer with fewer baskets is for training.

        Returns
        -------
        train, test : Baskets
            Both with the same vocabulary and in their original order.

        Examples
        --------
        >>> baskets = Baskets.from_lists(
        ...     [["tea"], ["milk"], ["jam"]], customers=["ann", "ann", "bob"], times=[1, 2, 3]
        ... )
        >>> [list(part) for part in baskets.split_by_time()]
        [[['tea'], ['jam']], [['milk']]]
        """
        if time is None:
            if self.customers is None:
                raise DataError("without customers there is no last basket of each: give a time")
            is_test = is_last(self.ordering, min_baskets)
        else:
            if self.times is None:
                raise DataError("the times of these baskets are not known")
            at = read_times([time])
            if at.dtype != self.times.dtype or at[0] != at[0]:
                kind = "a date" if self.times.dtype.kind == "M" else "a number"
                raise ParameterError(f"time must be {kind}, as the times are, got {time!r}")
            is_test = self.times >= at[0]
        if is_test.all() or not is_test.any():
            raise DataError(f"there are {is_test.sum():,} test baskets of {len(is_test):,}")
        return self.subset(~is_test), self.subset(is_test)

    def sessions(self, gap: str) -> Baskets:
        """Join successive baskets of a customer that are no more than a gap apart.

        A session has the time of its first basket. Baskets of unknown customer or time stay as they
        are. Times that are numbers count seconds.

        Parameters
        ----------
        gap : str
            Such as "30min", "2h" or "1d".

        Examples
        --------
        >>> times = ["2024-05-01 10:00", "2024-05-01 10:20", "2024-05-01 18:00"]
        >>> lists = [["tea"], ["milk"], ["jam"]]
        >>> clicks = Baskets.from_lists(lists, customers=[7] * 3, times=times)
        >>> list(clicks.sessions("30min"))
        [['tea', 'milk'], ['jam']]
        """
        n = self.n_baskets
        if self.customers is None or self.times is None:
            raise DataError("sessions need the customer and the time of each basket")
        ordering = order_by_customer(self.customers, self.times, n)
        order = ordering[0]
        firsts = np.flatnonzero(starts_of_sessions(self.times, ordering, gap))
        ends = np.append(firsts, n)

        def joined_sets(sets: Sets) -> Sets:
            ordered = take_sets(sets, order)
            return Sets(ordered.indptr[ends], ordered.indices)

        joined = Baskets(
            *joined_sets(self.sets),
            self.items,
            None if self.offered is None else joined_sets(self.offered),
            self.customers[order[firsts]],
            self.times[order[firsts]],
        )
        # In the order of the first row of each.
        return joined.subset(np.argsort(np.minimum.reduceat(order, firsts)) if n else [])

    def histories(self, before: Baskets | None = None) -> Histories:
        """Return the earlier baskets of each basket's customer, oldest first, without copying.

        Of baskets at the same time, those that come first in the file are earlier. If times are
        not known at all, the order of the file is that of time. A basket of unknown customer, or
        of unknown time beside known ones, has no history and is in none.

        Parameters
        ----------
        before : Baskets, optional
            Further baskets that histories may hold, such as training baskets; they come first in
            the file.

        Returns
        -------
        Histories
            A sequence: for each basket the list of earlier ones.
        """
        both = self if before is None else Baskets.concat([before, self])
        which = np.arange(both.n_baskets - self.n_baskets, both.n_baskets)
        return histories_of(both.sets, both.items, both.ordering, which)

    @property
    def ordering(self) -> tuple[Ints, Ints, Ints]:
        return order_by_customer(self.customers, self.times, self.n_baskets)

    def filter(
        self, *, min_size: int = 0, max_size: int | None = None, min_item_count: int = 0
    ) -> Baskets:
        """Select frequent items, then baskets by size, and drop items that no longer occur.

        Parameters
        ----------
        min_size, max_size : int, optional
            Smaller and larger baskets are left out.
        min_item_count : int
            Items in fewer baskets are taken out of all baskets first.

        Returns
        -------
        Baskets

        Examples
        --------
        >>> baskets = Baskets.from_lists([["tea", "milk"], ["milk"], ["milk", "tea", "jam"]])
        >>> list(baskets.filter(min_size=2, min_item_count=2))
        [['tea', 'milk'], ['milk', 'tea']]
        """
        if max_size is not None and max_size < min_size:
            raise ParameterError(f"max_size={max_size} is below min_size={min_size}")
        frequent = self.item_counts >= min_item_count
        baskets = self._map_sets(lambda sets: kept_entries(sets, frequent[sets.indices]))
        fits = baskets.sizes >= min_size
        if max_size is not None:
            fits &= baskets.sizes <= max_size
        return baskets.subset(fits).compact()

    def clip(self, size: int) -> Baskets:
        """Cut each basket to its first `size` items; the others count as not offered."""
        return self._keep_entries(first_entries(self.sets, size))

    def draw(self, size: int) -> Baskets:
        """Cut each larger basket to `size` random items, the same ones every time; see `clip`."""
        return self._keep_entries(drawn_entries(self.sets, size))

    def _keep_entries(self, keep: Flags) -> Baskets:
        offered = self.offered
        if offered is not None:
            offered = difference(offered, kept_entries(self.sets, ~keep), self.n_items)
        return self._with(**kept_entries(self.sets, keep)._asdict(), offered=offered)

    def compact(self) -> Baskets:
        """Drop the items that never occur from the vocabulary."""
        used = np.flatnonzero(self._occurs())
        if len(used) == self.n_items:
            return self
        recode = np.zeros(self.n_items, dtype=np.int32)
        recode[used] = np.arange(len(used), dtype=np.int32)
        items = self.items.subset(used.tolist())
        return self._map_sets(lambda sets: Sets(sets.indptr, recode[sets.indices]), items)

    def recode(self, items: Vocabulary, *, unknown: str = "error") -> Baskets:
        """Convert to the codes of another vocabulary.

        Parameters
        ----------
        items : Vocabulary
        unknown : {"error", "ignore"}
            Items that it lacks raise `UnknownItemError`, or are left out.

        Returns
        -------
        Baskets
        """
        if self.items == items:
            return self.with_items(items)
        table = np.full(max(self.n_items, 1), -1, dtype=np.int32)
        known = np.flatnonzero(self._occurs()).tolist()
        if unknown != "error":
            known = [code for code in known if self.items[code] in items]
        table[known] = items.codes([self.items[code] for code in known], unknown=unknown)

        def recode(sets: Sets) -> Sets:
            codes = table[sets.indices]
            return kept_entries(Sets(sets.indptr, codes), codes >= 0)

        return self._map_sets(recode, items)

    def with_items(self, items: Vocabulary) -> Baskets:
        """Replace the vocabulary; the codes stay the same."""
        return self._with(items=items)

    def with_names(self, names: Labels) -> Baskets:
        """Attach readable item names, by item."""
        return self.with_items(self.items.with_names(names))

    def with_categories(self, categories: Labels) -> Baskets:
        """Attach item categories, by item."""
        return self.with_items(self.items.with_categories(categories))

    def with_offered(self, offered: Any) -> Baskets:
        """Attach the items that each basket was chosen from.

        Parameters
        ----------
        offered : Baskets or iterable of iterables
            A set per basket, empty where it is not known. It includes the items of the basket.

        Returns
        -------
        Baskets
        """
        candidates = as_baskets(offered, "offered")
        if candidates.n_baskets != self.n_baskets:
            raise _wrong_count(self.n_baskets, candidates.n_baskets)
        items = self.items.merge(candidates.items)
        offers = candidates.recode(items).sets
        return Baskets(*self.recode(items).sets, items, offers, self.customers, self.times)

    def with_customers(
        self, customers: Iterable[Any] | None, times: Iterable[Any] | None = None
    ) -> Baskets:
        """Attach the customer, and the time, of each basket.

        Parameters
        ----------
        customers : iterable of ids or None
        times : iterable, optional
            Dates and times, ISO 8601 texts, or numbers; None where one is unknown.

        Returns
        -------
        Baskets

        Examples
        --------
        >>> baskets = Baskets.from_lists([["tea"], ["milk"], ["tea", "jam"]])
        >>> baskets.with_customers(["ann", "bob", "ann"]).histories()[2]
        [['tea']]
        """
        n = self.n_baskets
        return self._with(
            customers=None if customers is None else as_customers(customers, n),
            times=None if times is None else as_times(times, n),
        )

    @staticmethod
    def concat(parts: Iterable[Baskets]) -> Baskets:
        """Concatenate collections; vocabularies are merged in order of appearance.

        Examples
        --------
        >>> part = Baskets.from_lists([["tea"]])
        >>> list(Baskets.concat([part, Baskets.from_lists([["milk"]]), part]))
        [['tea'], ['milk'], ['tea']]
        """
        parts = list(parts)
        if not parts:
            raise ParameterError("concat needs at least one Baskets")
        items = functools.reduce(Vocabulary.merge, (part.items for part in parts))
        coded = [part.recode(items) for part in parts]
        offered = None
        if any(part.offered is not None for part in coded):
            offered = joined([part.offered or Sets.empty(part.n_baskets) for part in coded])
        return Baskets.trusted(
            *joined([part.sets for part in coded]),
            items,
            offered,
            orders.joined([(part.customers, part.n_baskets) for part in parts]),
            orders.joined([(part.times, part.n_baskets) for part in parts]),
        )

    def __add__(self, other: Baskets) -> Baskets:
        if not isinstance(other, Baskets):
            return NotImplemented
        return Baskets.concat([self, other])

    def _map_sets(self, change: Callable[[Sets], Sets], items: Vocabulary | None = None) -> Baskets:
        offered = None if self.offered is None else change(self.offered)
        items = self.items if items is None else items
        return self._with(**change(self.sets)._asdict(), items=items, offered=offered)

    def _with(self, **changes: Any) -> Baskets:
        """Return the same baskets with other contents, which are not checked."""
        return Baskets.trusted(**{name: getattr(self, name) for name in _CONTENTS} | changes)

    def _occurs(self) -> Flags:
        """Flag the items that are in some basket, or were offered."""
        occurs: Flags = self.item_counts > 0
        if self.offered is not None:
            occurs[self.offered.indices] = True
        return occurs


def as_baskets(baskets: Any, name: str = "baskets", *, empty: bool = True) -> Baskets:
    """Convert an argument to `Baskets`.

    Parameters
    ----------
    baskets : Baskets, lists of lists, data frame, Arrow table or sparse matrix
    name : str
        The name of the argument, for messages.
    empty : bool
        False to refuse an argument without baskets.

    Returns
    -------
    Baskets
    """
    converted = baskets if isinstance(baskets, Baskets) else _convert(baskets, name)
    if not (converted.n_baskets or empty):
        raise DataError(f"{name} is empty")
    return converted


def _convert(data: Any, name: str) -> Baskets:
    if _is_table(data):
        try:
            return Baskets.from_frame(data)
        except DataError as error:
            if not error.parameters:
                raise
            raise DataError(f"{error} to Baskets.from_frame") from None
    if hasattr(data, "tocsr"):
        return Baskets.from_csr(data)
    is_table = isinstance(data, np.ndarray) and data.ndim == 2 and data.dtype.kind in "biuf"
    if is_table and data.shape[1] > 2 and np.isin(data, (0, 1)).all():
        raise DataError(
            f"{name} is a table of zeros and ones: "
            "scipy.sparse.csr_array(table) would be read as baskets"
        )
    return Baskets.from_lists(_iterate(data, name))


def _is_table(data: Any) -> bool:
    """Return whether this is a frame of polars or of pandas, or an Arrow table."""
    return any(hasattr(data, attribute) for attribute in ("collect_schema", "columns", "schema"))


def refuse_order_lines(data: Any) -> None:
    """Raise `DataError` for a table with a row per basket and item.

    Cross-validation splits rows, so that parts of one basket would be in both parts of the data.
    """
    if (
        _is_table(data)
        and not layout_of(frame_to_arrow(data, {}).schema, {}, where="the table").lists
    ):
        raise DataError(
            "score needs baskets, but a row of this table is an item of a basket: cross-validation "
            "would cut baskets apart. Pass Baskets.from_frame(table), whose rows are baskets"
        )


def _iterate(lists: Any, name: str) -> Iterator[Any]:
    try:
        return iter(lists)
    except TypeError:
        raise DataError(
            f"{name} must be Baskets or a list of lists of items, got {type(lists).__name__}"
        ) from None


def _same(one: NDArray[Any] | None, other: NDArray[Any] | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.dtype == other.dtype and bool(
        ((one == other) | (one != one) & (other != other)).all()
    )


def _check_chosen(chosen: Sets, offered: Sets, items: Vocabulary) -> None:
    """Raise `DataError` unless every basket is part of its offered set, where that is known."""
    if offered.count != chosen.count:
        raise _wrong_count(chosen.count, offered.count)
    beyond = difference(chosen, offered, len(items))
    wrong = np.flatnonzero((beyond.sizes > 0) & (offered.sizes > 0))
    if len(wrong):
        item = items[int(beyond.indices[beyond.indptr[wrong[0]]])]
        raise DataError(f"basket {wrong[0]}: {item!r} was chosen but is not among what was offered")


def _wrong_count(n_baskets: int, n_offered: int) -> DataError:
    return DataError(f"there are {n_baskets:,} baskets but {n_offered:,} offered sets")


def _unusable_id(item: Hashable, where: str = "") -> DataError:
    if item is None or item != item:
        return DataError(f"{where}an item is missing: {item!r} is no id; leave it out")
    return DataError(
        f"{where}{item!r} ({type(item).__name__}) cannot be an item id, "
        "which is a string, a number or a tuple: use str()"
    )
