"""Numba kernels that add up what threads have written entry by entry, in a fixed order: the same bytes for any number.

And the sums over partners by which the rows of V and those of S V hang together.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contradpp.dpp.compiled.decorators import entry
from contradpp.dpp.compiled.terms import Parameters

Array = NDArray[np.float64]
Pointers = NDArray[np.int64]
Codes = NDArray[np.int32]
Marks = NDArray[np.bool_]


@entry
def number_rows(rows: Codes, indices: Codes, marked: Marks, places: Codes, slots: Codes) -> None:
    """The place in `rows` of the item of every entry; its marks are taken away, and `places` (M,) is but room."""
    for r in range(len(rows)):
        places[rows[r]] = r
        marked[rows[r]] = False
    for e in range(len(indices)):
        slots[e] = places[indices[e]]


@entry
def gather_rows(G: Array, indptr: Pointers, slots: Codes, y: Array, out: Array) -> None:
    """out[slot] = Σ y_A G_e over the entries e of that slot, in the order of the entries.

    One thread does it: handing half of it to another takes as long as it would save.
    """
    for r in range(len(out)):
        for c in range(out.shape[1]):
            out[r, c] = 0.0
    for s in range(len(indptr) - 1):
        weight = y[s]
        if weight == 0.0:
            continue
        for e in range(indptr[s], indptr[s + 1]):
            row = slots[e]
            for c in range(G.shape[1]):
                out[row, c] += weight * G[e, c]


@entry
def gather_pairs(
    shares: Array, links: Pointers, starts: Pointers, pair: Codes, indptr: Pointers, indices: Codes, y: Array,
    out: Array,
) -> None:  # fmt: skip
    """out[pair] += y_A × the share of every partner of every entry, in the order of the entries."""
    for s in range(len(indptr) - 1):
        weight = y[s]
        if weight == 0.0:
            continue
        for e in range(indptr[s], indptr[s + 1]):
            first = starts[indices[e]]
            for at in range(links[e], links[e + 1]):
                out[pair[first + at - links[e]]] += weight * shares[at]


@entry
def partner_sums(p: Parameters, items: Codes, out: Array) -> None:
    """out[r] = Σ_j s_ij v_j for the r-th of the items: rows of S V."""
    K = p.V.shape[1]
    for r in range(len(items)):
        i = items[r]
        for c in range(K):
            out[r, c] = 0.0
        for e in range(p.starts[i], p.starts[i + 1]):
            j, value = p.partners[e], p.skew[e]
            for c in range(K):
                out[r, c] += value * p.V[j, c]


@entry
def spread_to_partners(p: Parameters, items: Codes, adjoint: Array, slots: Codes, out: Array) -> None:
    """What the adjoint of the rows of Y = S V says of V: v_j gains s_ij Ȳ_i.

    `slots` holds, partner by partner of one item after the other, the row of `out` that belongs to it.
    """
    at = 0
    for r in range(len(items)):
        i = items[r]
        for e in range(p.starts[i], p.starts[i + 1]):
            value, row = p.skew[e], slots[at]
            at += 1
            for c in range(adjoint.shape[1]):
                out[row, c] += value * adjoint[r, c]


@entry
def spread_to_pairs(p: Parameters, pair: Codes, items: Codes, adjoint: Array, out: Array) -> None:
    """What it says of S: log |s_ij| gains s_ij Ȳ_i · v_j."""
    for r in range(len(items)):
        i = items[r]
        for e in range(p.starts[i], p.starts[i + 1]):
            j = p.partners[e]
            dot = 0.0
            for c in range(adjoint.shape[1]):
                dot += adjoint[r, c] * p.V[j, c]
            out[pair[e]] += p.skew[e] * dot
