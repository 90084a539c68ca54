"""Arrays of a CSR of item codes: checked, without duplicates, not to be written to."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contradpp.errors import DataError

_BLOCK = 1 << 22  # entries searched for duplicates at a time


def pointers(sizes: ArrayLike) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    array = array.view()
    array.flags.writeable = False
    return array


def checked_csr(indptr: ArrayLike, indices: ArrayLike, n_items: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    pointers, codes = np.asarray(indptr), np.asarray(indices)
    for name, array in (("indptr", pointers), ("indices", codes)):
        if array.ndim != 1 or (array.size and not np.issubdtype(array.dtype, np.integer)):
            raise DataError(f"{name} must be a one-dimensional array of integers, got {array.dtype} {array.shape}")
    if not pointers.size or pointers[0] != 0 or pointers[-1] != len(codes) or np.any(np.diff(pointers) < 0):
        raise DataError(f"indptr must rise from 0 to the number of indices ({len(codes)})")
    if n_items > np.iinfo(np.int32).max:
        raise DataError(f"at most {np.iinfo(np.int32).max:,} items can be told apart, got {n_items:,}")
    if codes.size and (codes.min() < 0 or codes.max() >= n_items):
        raise DataError(f"indices must lie in 0..{n_items - 1}, got {codes.min()}..{codes.max()}")
    return pointers.astype(np.int64, copy=False), codes.astype(np.int32, copy=False)


def without_duplicates(
    indptr: NDArray[np.int64], indices: NDArray[np.int32], n_items: int
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Drop the second and later occurrences of an item in a basket, keeping the order of the rest."""
    n_baskets, sizes = len(indptr) - 1, np.diff(indptr)
    again = np.zeros(len(indices), dtype=bool)
    left = sizes.copy()
    first = 0
    while first < n_baskets:  # in blocks of whole baskets: sorting takes many times the memory of the codes
        last = int(np.searchsorted(indptr, indptr[first] + _BLOCK, side="right")) - 1
        last = min(max(last, first + 1), n_baskets)
        block = slice(indptr[first], indptr[last])
        owner = np.repeat(np.arange(last - first), sizes[first:last])
        key = owner * max(n_items, 1) + indices[block]
        order = np.argsort(key, kind="stable")
        key = key[order]
        again[block][order[1:]] = key[1:] == key[:-1]
        left[first:last] -= np.bincount(owner[again[block]], minlength=last - first)
        first = last
    if not again.any():
        return indptr, indices
    return pointers(left), indices[~again]
