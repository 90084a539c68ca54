"""The loop on simulated visitors: what is shown and taken is kept, learned from, and more is taken the next time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import contradpp as cd
from contradpp.data.feedback import append_impression, read_choices

ROUNDS, VISITORS, SHOWN = 5, 300, 3


class Visitors:
    """People with two items in their basket, who take a suggestion by its appeal: something that no order tells."""

    def __init__(self, shop: cd.Baskets, seed: int) -> None:
        self.shop = shop
        appeal = np.random.default_rng(seed).normal(-1.0, 1.5, shop.n_items)
        self.rates = 1 / (1 + np.exp(-appeal))

    def share_taken(self, model: cd.LowRankDPP, seed: int, log: Path | None = None) -> float:
        """The share of the suggestions that this round's visitors take."""
        rng = np.random.default_rng(seed)
        baskets = [self.shop[int(number)][:2] for number in rng.integers(0, len(self.shop), VISITORS)]
        suggestions = model.recommend(baskets, SHOWN)[0].tolist()
        luck, n_taken = rng.random((VISITORS, SHOWN)), 0
        for basket, shown, marks in zip(baskets, suggestions, luck, strict=True):
            rates = self.rates[[self.shop.items.code(item) for item in shown]]
            taken = [item for item, yes in zip(shown, marks < rates, strict=True) if yes]
            n_taken += len(taken)
            if log is not None:
                append_impression(log, basket, shown, taken)
        return n_taken / (VISITORS * SHOWN)


@pytest.mark.parametrize("seed", [0, 1])
def test_more_suggestions_are_accepted_from_round_to_round(tmp_path, seed):
    shop = cd.datasets.load("grocer", n_baskets=2000, random_state=0)
    people, make = Visitors(shop, seed), {"objective": "explicit", "max_iter": 10, "random_state": 0}
    model, control = (cd.LowRankDPP(20, **make).fit(shop) for _ in range(2))
    shares = []
    for number in range(ROUNDS):
        log = tmp_path / f"round-{number}.jsonl"
        shares.append((people.share_taken(model, number, log), people.share_taken(control, number)))
        model.partial_fit(read_choices(log), n_iter=3)
    ours, theirs = np.transpose(shares)
    assert ours[0] == theirs[0]
    assert (ours[1:] > theirs[1:]).all()
    assert ours[-1] > ours[0] + 0.05
    assert np.corrcoef(np.arange(ROUNDS), ours)[0, 1] > 0.7  # it rises; a control of the same people does not
    assert (ours - theirs)[-1] > (ours - theirs)[1]


def test_learning_anew_from_orders_and_choices(tmp_path):
    """What `fit --feedback` does: the items that people refuse are suggested less than without feedback."""
    shop = cd.datasets.load("grocer", n_baskets=2000, random_state=0)
    people, make = Visitors(shop, 0), {"objective": "explicit", "max_iter": 10, "random_state": 0}
    before = cd.LowRankDPP(20, **make).fit(shop)
    log = tmp_path / "log.jsonl"
    for number in range(3):
        people.share_taken(before, number, log)
    after = cd.LowRankDPP(20, **make).fit(cd.Baskets.concat([shop, read_choices(log)]))
    assert people.share_taken(after, 99) > people.share_taken(before, 99)
