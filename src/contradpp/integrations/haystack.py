"""Haystack: a ranker, after a retriever in a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from haystack import Document, component

from contradpp.integrations import require_all, rerank_things
from contradpp.slates.greedy import SlidingWindow


@component
class VariedRanker:
    """A ranker that keeps `top_k` documents, relevant by score and unlike each other by embedding.

    Parameters
    ----------
    top_k, diversity, at_most, method
        As for `contradpp.rerank`, whose k is `top_k`; "window" is `SlidingWindow()`.
    category : str, optional
        The key of a document's meta that `at_most` counts; the two go together.
    """

    def __init__(
        self,
        top_k: int = 10,
        diversity: float = 0.5,
        category: str | None = None,
        at_most: int | Mapping[Any, int] | None = None,
        method: str | SlidingWindow = "dpp",
    ) -> None:
        self.top_k = top_k
        self.diversity = diversity
        self.category = category
        self.at_most = at_most
        self.method = method

    @component.output_types(documents=list[Document])
    def run(
        self, documents: list[Document], top_k: int | None = None, diversity: float | None = None
    ) -> dict[str, list[Document]]:
        """Choose documents; `top_k` and `diversity` replace those of the ranker."""
        vectors = require_all(
            [document.embedding for document in documents],
            "embedding",
            "let the retriever return them (return_embedding=True)",
        )
        scores = require_all(
            [document.score for document in documents], "score", "put a retriever before the ranker"
        )
        chosen = rerank_things(
            documents,
            scores,
            vectors,
            [document.meta for document in documents],
            top_k=self.top_k if top_k is None else top_k,
            diversity=self.diversity if diversity is None else diversity,
            category=self.category,
            at_most=self.at_most,
            method=self.method,
        )
        return {"documents": chosen}
