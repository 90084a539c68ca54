"""What there is to say about a collection of baskets in one screen: the figures, and how they are shown."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from contradpp.data.baskets import Baskets

_SIZE_BINS = [
    ("0", 0, 0), ("1", 1, 1), ("2-3", 2, 3), ("4-7", 4, 7), ("8-15", 8, 15),
    ("16-31", 16, 31), ("32-63", 32, 63), ("64+", 64, np.iinfo(np.int64).max),
]  # fmt: skip


@dataclass(frozen=True)
class Summary:
    """What there is to say about a collection of baskets in one screen."""

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


def summarise(baskets: Baskets) -> Summary:
    """The figures of these baskets."""
    sizes, counts, items = baskets.sizes, baskets.item_counts, baskets.items
    top = np.argsort(-counts, kind="stable")[:5]
    choices = np.zeros(0) if baskets.offered is None else baskets.offered.sizes[baskets.offered.sizes > 0]
    return Summary(
        n_baskets=baskets.n_baskets,
        n_items=baskets.n_items,
        n_entries=len(baskets.indices),
        n_unused_items=int(np.count_nonzero(counts == 0)),
        smallest=int(sizes.min()) if len(sizes) else 0,
        median=float(np.median(sizes)) if len(sizes) else 0.0,
        mean=float(sizes.mean()) if len(sizes) else 0.0,
        largest=int(sizes.max(initial=0)),
        sizes={label: int(np.count_nonzero((sizes >= lo) & (sizes <= hi))) for label, lo, hi in _SIZE_BINS},
        popular={items.name(items[code]): int(counts[code]) for code in top.tolist() if counts[code]},
        mean_offered=float(choices.mean()) if len(choices) else None,
    )
