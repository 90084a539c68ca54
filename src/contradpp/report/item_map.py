"""A map of the items of a model, for the report and the service: neighbors affect each other."""

from __future__ import annotations

import numpy as np

from contradpp._types import Array, Ints
from contradpp.data.sets import Sets
from contradpp.models.base import DPPRecommender

N_LANDMARKS = 300  # the most common items, which are laid out; other items are put among them
NEVER = -20.0  # smallest log ratio, of items that never occur together
PERPLEXITY = 12.0
STEPS = 400  # of t-SNE: more change little for a few hundred items


class ItemMap:
    """Positions of items, both coordinates from −1 to 1."""

    def __init__(self, model: DPPRecommender, landmarks: Ints) -> None:
        self.landmarks = landmarks
        self.ratios = pair_ratios(model, landmarks, landmarks)  # (m, m)
        self.positions = layout(np.exp(-np.abs(self.ratios)) * (1 - np.eye(len(landmarks))))
        self._model = model
        self._rows = {code: row for row, code in enumerate(landmarks.tolist())}

    def positions_of(self, codes: list[int]) -> Array:
        """Return positions of items (n, 2); others lie between the landmarks that they affect."""
        positions = np.zeros((len(codes), 2))
        rows = np.array([self._rows.get(code, -1) for code in codes], dtype=np.int64)
        known = rows >= 0
        positions[known] = self.positions[rows[known]]
        if not known.all():
            others = np.array(codes, dtype=np.int64)[~known]
            ratios = pair_ratios(self._model, others, self.landmarks)
            weights = (1.0 - np.exp(-np.abs(ratios))) ** 4 + 1e-12
            weights /= weights.sum(axis=1, keepdims=True)
            positions[~known] = weights @ self.positions
        return positions


def pair_ratios(model: DPPRecommender, rows: Ints, columns: Ints) -> Array:
    """Return how much more often two items occur together than unrelated items do, as logarithms.

    The ratio of items i and j, 0 for i = j, is

        log P({i,j}) P(∅) / (P({i}) P({j})) = log det L_{ij} − log L_ii − log L_jj.

    It is 0 for unrelated items, negative for items that repel each other, and positive for items
    that attract each other, which only a nonsymmetric kernel can express.
    """
    first = np.repeat(rows, len(columns))
    second = np.tile(columns, len(rows))
    differ = first != second
    pairs = np.stack([first[differ], second[differ]], axis=1).ravel()
    of_pairs = model.dpp.kernel.log_det(_sets(pairs, 2))
    of_rows = model.dpp.kernel.log_det(_sets(rows, 1))
    of_columns = model.dpp.kernel.log_det(_sets(columns, 1))
    singles = (of_rows[:, None] + of_columns).ravel()
    with np.errstate(invalid="ignore"):
        logs = of_pairs - singles[differ]
    ratios = np.zeros(len(first))
    ratios[differ] = np.maximum(np.nan_to_num(logs, nan=0.0, neginf=NEVER), NEVER)
    return ratios.reshape(len(rows), len(columns))


def _sets(codes: Ints, size: int) -> Sets:
    indptr = np.arange(0, len(codes) + 1, size)
    return Sets(indptr, codes.astype(np.int32))


def layout(squared_distances: Array, *, seed: int = 0) -> Array:
    """Lay points out in the plane (n, 2) by t-SNE (van der Maaten and Hinton 2008).

    Positions are scaled to −1..1. Their rank has a weight of 0.3, so that a distant group does not
    squeeze the others together.
    """
    n = len(squared_distances)
    if n < 4:
        return np.stack([np.linspace(-1, 1, n) if n > 1 else np.zeros(n), np.zeros(n)], axis=1)
    from sklearn.manifold import TSNE

    tsne = TSNE(
        metric="precomputed",
        init="random",
        method="exact",
        perplexity=min(PERPLEXITY, (n - 1) / 3),
        max_iter=STEPS,
        random_state=seed,
    )
    points = tsne.fit_transform(np.sqrt(squared_distances)).astype(np.float64)
    linear = (points - points.min(axis=0)) / np.maximum(np.ptp(points, axis=0), 1e-12)
    ranks = np.argsort(np.argsort(points, axis=0, kind="stable"), axis=0) / (n - 1)
    positions: Array = 2 * (0.7 * linear + 0.3 * ranks) - 1
    return positions
