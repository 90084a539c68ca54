"""The figures of a collection of baskets, on one screen."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from contradpp.data.baskets import Baskets

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
    mean_offered: float | None = None  # offered items of a basket, where they are known

    @classmethod
    def of(cls, baskets: Baskets) -> Summary:
        """Summarize baskets."""
        sizes = baskets.sizes
        counts = baskets.item_counts
        histogram, _ = np.histogram(sizes, [*_SIZE_BINS.values(), np.inf])
        popular = [code for code in np.argsort(-counts, kind="stable")[:5].tolist() if counts[code]]
        items = baskets.items
        offered = np.zeros(0) if baskets.offered is None else baskets.offered.sizes
        offered = offered[offered > 0]
        return cls(
            n_baskets=baskets.n_baskets,
            n_items=baskets.n_items,
            n_entries=len(baskets.indices),
            n_unused_items=int(np.count_nonzero(counts == 0)),
            smallest=int(sizes.min()) if len(sizes) else 0,
            median=float(np.median(sizes)) if len(sizes) else 0.0,
            mean=float(sizes.mean()) if len(sizes) else 0.0,
            largest=int(sizes.max(initial=0)),
            sizes=dict(zip(_SIZE_BINS, histogram.tolist(), strict=True)),
            popular={items.name(items[code]): int(counts[code]) for code in popular},
            mean_offered=float(offered.mean()) if len(offered) else None,
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as plain values, for JSON."""
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
                bar = "█" * round(30 * count / most)
                lines.append(f"  {label:>5}  {count:>10,}  {count / self.n_baskets:6.1%}  {bar}")
        if self.popular:
            lines.append("most popular:")
            width = min(max(map(len, self.popular)), 50)
            for name, count in self.popular.items():
                share = count / self.n_baskets
                lines.append(f"  {name:<{width}.50}  {count:>8,}  in {share:.1%} of baskets")
        return "\n".join(lines)
