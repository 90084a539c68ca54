"""A map of the items of a model, for the report and the service: items that act on each other lie side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from contradpp.data.baskets import Baskets

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

N_LANDMARKS = 300  # the most common items, which are laid out; the rest of any catalogue is put among them
NEVER = -20.0  # log of the ratio at which two items count as never together
PERPLEXITY = 12.0
STEPS = 400  # of t-SNE's descent: more change little for a few hundred items


class Atlas:
    """The places of items, both coordinates from −1 to 1: of some landmarks, and of other items when asked for."""

    def __init__(self, model: Any, landmarks: Codes) -> None:
        self.landmarks = landmarks
        self.ratios = pair_ratios(model, landmarks, landmarks)  # (m, m)
        self.places: Array = layout(np.exp(-np.abs(self.ratios)) * (1 - np.eye(len(landmarks))))
        self._model = model
        self._row = {code: row for row, code in enumerate(landmarks.tolist())}

    def places_of(self, codes: list[int]) -> Array:
        """Return the places of these items (n, 2); one that is no landmark is amid those that it acts on."""
        places = np.zeros((len(codes), 2))
        rows = np.array([self._row.get(code, -1) for code in codes], dtype=np.int64)
        known = rows >= 0
        places[known] = self.places[rows[known]]
        if not known.all():
            others = np.array(codes, dtype=np.int64)[~known]
            near = (1.0 - np.exp(-np.abs(pair_ratios(self._model, others, self.landmarks)))) ** 4 + 1e-12
            places[~known] = (near / near.sum(axis=1, keepdims=True)) @ self.places
        return places


def pair_ratios(model: Any, rows: Codes, columns: Codes) -> Array:
    """Return log P({i,j}) P(∅) / (P({i}) P({j})) for items i of the rows and j of the columns; 0 for i = j.

    It is log det L_{ij} − log L_ii − log L_jj: 0 for items that ignore each other, below it for those that push each
    other out, above it for those that attract, which only a nonsymmetric kernel can express.
    """
    first = np.repeat(rows, len(columns))
    second = np.tile(columns, len(rows))
    differ = first != second
    doubles = model.log_det(_sets(np.stack([first[differ], second[differ]], axis=1).ravel(), 2, model))
    singles = model.log_det(_sets(rows, 1, model))[:, None] + model.log_det(_sets(columns, 1, model))
    ratios = np.zeros(len(first))
    with np.errstate(invalid="ignore"):
        logs = doubles - singles.ravel()[differ]
    ratios[differ] = np.maximum(np.nan_to_num(logs, nan=0.0, neginf=NEVER), NEVER)
    return ratios.reshape(len(rows), len(columns))


def layout(squared_distances: Array, *, seed: int = 0) -> Array:
    """Lay points out in the plane (n, 2), neighbors near each other, by t-SNE (van der Maaten and Hinton 2008).

    Places are fitted into −1..1, a third by rank, so that a far-off group does not squeeze the rest together.
    """
    n = len(squared_distances)
    if n < 4:
        return np.stack([np.linspace(-1, 1, n) if n > 1 else np.zeros(n), np.zeros(n)], axis=1)
    from sklearn.manifold import TSNE

    perplexity = min(PERPLEXITY, (n - 1) / 3)
    tsne = TSNE(
        metric="precomputed", init="random", method="exact", perplexity=perplexity, max_iter=STEPS, random_state=seed
    )
    Y = tsne.fit_transform(np.sqrt(squared_distances)).astype(np.float64)
    linear = (Y - Y.min(axis=0)) / np.maximum(np.ptp(Y, axis=0), 1e-12)
    ranks = np.argsort(np.argsort(Y, axis=0, kind="stable"), axis=0) / (n - 1)
    places: Array = 2 * (0.7 * linear + 0.3 * ranks) - 1
    return places


def clusters(points: Array, k: int) -> Codes:
    """Return the cluster of each point, at most k of them, by Ward's method; the largest cluster is 0."""
    if len(points) < 2:
        return np.zeros(len(points), dtype=np.int64)
    from sklearn.cluster import AgglomerativeClustering

    labels = AgglomerativeClustering(min(k, len(points))).fit_predict(points)
    rank = np.argsort(np.argsort(-np.bincount(labels), kind="stable"))
    found: Codes = rank[labels]
    return found


def _sets(codes: Codes, size: int, model: Any) -> Baskets:
    indptr = np.arange(0, len(codes) + 1, size)
    return Baskets(indptr, codes.astype(np.int32), model.items_)
