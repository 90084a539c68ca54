"""Haystack: a ranker, after a retriever in a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from haystack import Document, component

from contradpp.integrations import Choice, all_there


@component
class VariedRanker:
    """Keeps the k documents that are relevant by their scores and unlike each other by their embeddings.

    Parameters
    ----------
    k, diversity, at_most, method
        As for `contradpp.rerank`.
    category : str, optional
        The key of a document's meta that `at_most` counts.
    """

    def __init__(
        self, k: int = 10, diversity: float = 0.5, category: str | None = None,
        at_most: int | Mapping[Any, int] | None = None, method: str = "dpp",
    ) -> None:  # fmt: skip
        self.k = k
        self.diversity = diversity
        self.category = category
        self.at_most = at_most
        self.method = method

    @component.output_types(documents=list[Document])
    def run(
        self, documents: list[Document], k: int | None = None, diversity: float | None = None
    ) -> dict[str, list[Document]]:
        """Choose documents; k and diversity overrule those of the ranker."""
        vectors = all_there(
            [one.embedding for one in documents], "embedding", "let the retriever return them (return_embedding=True)"
        )
        scores = all_there([one.score for one in documents], "score", "put a retriever before the ranker")
        choice = Choice(
            self.k if k is None else k, self.diversity if diversity is None else diversity, self.at_most, self.method
        )
        return {"documents": choice.of(documents, scores, vectors, [one.meta.get(self.category) for one in documents])}
