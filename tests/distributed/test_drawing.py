"""Dynamic negatives from rows on several workers: the law by chi-square, with wrong laws that the same tests reject."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from contradpp.data.sets import Sets
from contradpp.distributed.collective import Mesh, listen
from contradpp.distributed.drawing import OwnedDynamic, chance
from contradpp.distributed.owners import Owners
from contradpp.distributed.sharded import OwnedState
from learn.test_negatives import POPULARITY, M, N, as_sets, dynamic_law, p_value

V = np.random.default_rng(2).normal(size=(M, 4))


def drawn_by(size: int, A: list[int], change: bool = False) -> Sets:
    """N negatives of one set, drawn by workers of which the last one has the set."""
    listeners = [listen("127.0.0.1") for _ in range(size)]
    addresses = [listener.getsockname() for listener in listeners]

    def work(rank: int) -> Sets:
        with listeners[rank], Mesh(rank, addresses, listeners[rank], bytes(32), timeout=20) as mesh:
            owners = Owners(M, mesh)
            state = OwnedState(V[owners.own].copy(), owners)
            positives = as_sets([A])
            if rank != size - 1:
                positives.indices[:] = -1
            source = OwnedDynamic(POPULARITY, owners)
            if change:  # the second draw must know of it
                source.draw(state, positives, 3, np.random.default_rng(5))
                state.V[:] = V[owners.own[::-1]] if size == 1 else 2.0 * V[owners.own]
                state.changed()
            return source.draw(state, positives, N, np.random.default_rng(0))

    with ThreadPoolExecutor(size) as pool:
        *others, last = pool.map(work, range(size))
    assert all((sets.indices == -1).all() for sets in others)
    return last


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("A", [[0, 1], [5, 2, 0], [3, 1, 2, 4]])
def test_the_law_is_that_of_the_paper(size, A):
    drawn = drawn_by(size, A)
    assert p_value(drawn, dynamic_law(V, A, POPULARITY)) > 1e-3
    assert p_value(drawn, dynamic_law(V, A, np.ones(M))) < 1e-6  # another removal
    assert p_value(drawn, dynamic_law(V, A, POPULARITY, by_norm=True)) < 1e-6  # no rejection


def test_one_item_is_replaced_by_its_norm_alone():
    assert p_value(drawn_by(2, [3]), dynamic_law(V, [3], POPULARITY)) > 1e-3


def test_changed_factors_are_told():
    """Twice as long, all rows are proposed as often as before; reversed, they are not."""
    assert p_value(drawn_by(2, [0, 1], change=True), dynamic_law(V, [0, 1], POPULARITY)) > 1e-3
    assert p_value(drawn_by(1, [0, 1], change=True), dynamic_law(V[::-1], [0, 1], POPULARITY)) > 1e-3


def test_chance_is_uniform_and_has_nothing_in_common():
    numbers, use = np.arange(20_000), np.zeros(20_000, dtype=np.int64)
    luck = chance(7, numbers, use)
    assert ((luck >= 0) & (luck < 1)).all()
    counts = np.bincount((luck * 50).astype(int), minlength=50)
    assert ((counts - 400) ** 2 / 400).sum() < 100  # chi-square with 49 degrees of freedom
    for other in (chance(8, numbers, use), chance(7, numbers, use + 1), np.roll(luck, 1)):
        assert abs(np.corrcoef(luck, other)[0, 1]) < 0.03
