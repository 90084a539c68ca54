"""LangChain: a document compressor, for a `ContextualCompressionRetriever` or on its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.callbacks import Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document
from pydantic import ConfigDict

from contradpp.integrations import cosines, rerank_things
from contradpp.slates.greedy import SlidingWindow


class VariedCompressor(BaseDocumentCompressor):
    """A compressor that keeps `top_k` documents, near the query and unlike each other.

    Parameters
    ----------
    embeddings : langchain_core.embeddings.Embeddings
        The model of vectors of documents and queries.
    top_k, diversity, at_most, method
        As for `contradpp.rerank`, whose k is `top_k`; "window" is `SlidingWindow()`.
    category : str, optional
        The key of a document's metadata that `at_most` counts, such as "source".
    """

    model_config = ConfigDict(extra="forbid")

    embeddings: Any
    top_k: int = 4
    diversity: float = 0.5
    category: str | None = None
    at_most: int | Mapping[Any, int] | None = None
    method: str | SlidingWindow = "dpp"

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        del callbacks
        if not documents:
            return []
        vectors = self.embeddings.embed_documents([document.page_content for document in documents])
        scores = cosines(self.embeddings.embed_query(query), vectors)
        return rerank_things(
            documents,
            scores,
            vectors,
            [document.metadata for document in documents],
            top_k=self.top_k,
            diversity=self.diversity,
            category=self.category,
            at_most=self.at_most,
            method=self.method,
        )
