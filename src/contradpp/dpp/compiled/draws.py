"""Numba kernels that draw dynamic, explicit and product negatives (see `learn/negatives.py`)."""

from __future__ import annotations

import numpy as np

from contradpp._types import Array, Codes, Ints, Rng
from contradpp.dpp.compiled._numba import entry, helper
from contradpp.dpp.compiled.blocks import place_of, project_off


@helper
def weighted_position(weights: Array, items: Codes, skip: int, rng: Rng) -> int:
    """Draw a position in `items` with probability ∝ weights[item], never `skip` (−1 for none)."""
    total = 0.0
    for a in range(len(items)):
        if a != skip:
            total += weights[items[a]]
    target = rng.random() * total
    last = 0
    for a in range(len(items)):
        if a != skip:
            last = a
            target -= weights[items[a]]
            if target < 0:
                break
    return last


@entry
def norm_blocks(norms: Array, block: int) -> Array:
    """Return the sums of the squared norms over blocks of items."""
    sums = np.zeros(-(-len(norms) // block))
    for j in range(len(norms)):
        sums[j // block] += norms[j]
    return sums


@entry
def update_norms(rows: Codes, new: Array, norms: Array, sums: Array, block: int) -> None:
    """Set the squared norms of these rows, and update the sums over blocks, if there are any."""
    for r in range(len(rows)):
        i = rows[r]
        if len(sums) > 0:
            sums[i // block] += new[r] - norms[i]
        norms[i] = new[r]


@helper
def item_at(norms: Array, cumulative: Array, block: int, target: float) -> int:
    """Return the item at `target` on the line of squared norms: bisect blocks, then walk."""
    b = place_of(cumulative, 0, len(cumulative), target)
    if b > 0:
        target -= cumulative[b - 1]
    j = b * block
    end = min((b + 1) * block, len(norms))
    while j < end - 1 and target >= norms[j]:
        target -= norms[j]
        j += 1
    return j


@helper
def length_along(v: Array, basis: Array, t: int) -> float:
    """Return the squared length of v within the span of the first t rows of the basis."""
    taken = 0.0
    for b in range(t):
        dot = 0.0
        for c in range(len(v)):
            dot += basis[b, c] * v[c]
        taken += dot * dot
    return taken


@helper
def span_of(V: Array, d: Array, items: Codes, skip: int, basis: Array) -> int:
    """Compute rows B with L_jA L_A⁻¹ L_Aj = ‖B v_j‖², A without the item at `skip`; return |A|.

    B = R⁻¹ V_A, R Rᵀ = L_A = D_A + V_A V_Aᵀ, by Gram–Schmidt with d_a in the pivot. Without D the
    rows are orthonormal, and a second pass keeps them so.
    """
    K = V.shape[1]
    t = 0
    for a in range(len(items)):
        if a == skip:
            continue
        row = basis[t]
        for c in range(K):
            row[c] = V[items[a], c]
        whole = 0.0
        for c in range(K):
            whole += row[c] * row[c]
        pivot = 0.0
        if len(d):
            pivot = d[items[a]] + whole - length_along(V[items[a]], basis, t)
            project_off(row, basis, t, V[items[a]])
        else:
            pivot = whole
            for _ in range(2):
                before = pivot
                project_off(row, basis, t, row)
                pivot = 0.0
                for c in range(K):
                    pivot += row[c] * row[c]
                if pivot > 0.25 * before:  # little was lost: once is enough
                    break
            whole *= 1e-28
        scale = 1.0 / np.sqrt(pivot) if pivot > (0.0 if len(d) else whole) else 0.0
        for c in range(K):
            row[c] *= scale
        t += 1
    return t


@entry
def dynamic_negatives(
    V: Array,
    d: Array,
    norms: Array,
    cumulative: Array,
    block: int,
    popularity: Array,
    indptr: Ints,
    indices: Codes,
    parents: Ints,
    out_indptr: Ints,
    rng: Rng,
    out: Codes,
) -> None:
    """Draw by the paper's Algorithm 1, once per parent: replace i by j ∝ P(A∖i ∪ j), exactly.

    i is drawn ∝ popularity. j is proposed ∝ L_jj = d_j + ‖v_j‖² and accepted with probability
    c_j / L_jj, c_j its score given A∖i. The new item comes last in the set. `norms` holds L_jj.
    """
    largest = 1
    for n in range(len(parents)):
        largest = max(largest, indptr[parents[n] + 1] - indptr[parents[n]])
    basis = np.empty((largest, V.shape[1]))
    last = len(cumulative) - 1
    for n in range(len(parents)):
        items = indices[indptr[parents[n]] : indptr[parents[n] + 1]]
        removed = weighted_position(popularity, items, -1, rng)
        target_set = out[out_indptr[n] : out_indptr[n + 1]]
        t = 0
        for a in range(len(items)):
            if a != removed:
                target_set[t] = items[a]
                t += 1
        span_of(V, d, items, removed, basis)
        chosen = items[removed]
        for _ in range(10_000):  # in degenerate kernels nothing is ever accepted
            j = item_at(norms, cumulative, block, rng.random() * cumulative[last])
            inside = False
            for a in range(t):
                inside = inside or target_set[a] == j
            if not inside and rng.random() * norms[j] < norms[j] - length_along(V[j], basis, t):
                chosen = j
                break
        target_set[t] = chosen


@helper
def pair_count(postings_ptr: Ints, postings: Codes, i: int, j: int) -> int:
    """Count the baskets with i and j: the intersection of their sorted lists of baskets."""
    a = postings_ptr[i]
    a_end = postings_ptr[i + 1]
    b = postings_ptr[j]
    b_end = postings_ptr[j + 1]
    count = 0
    while a < a_end and b < b_end:
        if postings[a] == postings[b]:
            count += 1
            a += 1
            b += 1
        elif postings[a] < postings[b]:
            a += 1
        else:
            b += 1
    return count


@entry
def explicit_negatives(
    popularity: Array,
    n_baskets: int,
    postings_ptr: Ints,
    postings: Codes,
    indptr: Ints,
    indices: Codes,
    parents: Ints,
    out_indptr: Ints,
    rng: Rng,
    out: Codes,
) -> None:
    """Draw A∖j ∪ k with i ≠ j from A by popularity, k outside A ∝ 1 − P̂({i, k}).

    k is proposed uniformly and accepted with probability 1 − P̂({i, k}). The pair is counted only
    if the bound P̂({i, k}) ≤ min(P̂_i, P̂_k) leaves it open. In a basket of one item, i and j are
    that item.
    """
    M = len(popularity)
    for n in range(len(parents)):
        items = indices[indptr[parents[n]] : indptr[parents[n] + 1]]
        k = len(items)
        anchor = weighted_position(popularity, items, -1, rng)
        replaced = weighted_position(popularity, items, anchor, rng) if k > 1 else 0
        target_set = out[out_indptr[n] : out_indptr[n + 1]]
        for a in range(k):
            target_set[a] = items[a]
        i = items[anchor]
        for _ in range(10_000):  # a basket of nearly all items may have nothing outside it
            j = min(int(rng.random() * M), M - 1)
            inside = False
            for a in range(k):
                inside = inside or items[a] == j
            if inside:
                continue
            u = rng.random()
            if u >= min(popularity[i], popularity[j]) or u * n_baskets >= pair_count(
                postings_ptr, postings, i, j
            ):
                target_set[replaced] = j
                break


@entry
def product_sets(
    probabilities: Array, order: Codes, rng: Rng, n: int, sizes: Ints, capacity: int
) -> Codes:
    """Draw n sets in which every item occurs on its own with its probability.

    Items come in the order of falling probability. The bound q = p of an item holds for all that
    follow, so that a geometric jump finds the next candidate and a coin p/q thins it. A set costs
    about twice its size plus the logarithm of the spread of p, not M.
    """
    M = len(order)
    out = np.empty(capacity, dtype=np.int32)
    used = 0
    for s in range(n):
        sizes[s] = 0
        position = 0
        while position < M:
            q = probabilities[order[position]]
            if q <= 0:
                break
            if q < 1:
                jump = np.log(1.0 - rng.random()) / np.log1p(-q)
                if jump >= M - position:
                    # Nothing below this bound: every later item has a probability of at most q.
                    break
                position += int(jump)
            item = order[position]
            if rng.random() * q < probabilities[item]:
                if used == len(out):
                    grown = np.empty(2 * len(out), dtype=np.int32)
                    for a in range(used):
                        grown[a] = out[a]
                    out = grown
                out[used] = item
                used += 1
                sizes[s] += 1
            position += 1
    return out[:used].copy()
