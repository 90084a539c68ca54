"""LangChain: a document compressor, for a `ContextualCompressionRetriever` or on its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.callbacks import Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document

from contradpp.integrations import Choice, cosines


class VariedCompressor(BaseDocumentCompressor):
    """Keeps the k documents that answer the query and are unlike each other.

    Parameters
    ----------
    embeddings : langchain_core.embeddings.Embeddings
        What makes vectors of documents and queries.
    k, diversity, at_most, method
        As for `contradpp.rerank`.
    category : str, optional
        The key of a document's metadata that `at_most` counts, such as "source".
    """

    embeddings: Any
    k: int = 4
    diversity: float = 0.5
    category: str | None = None
    at_most: int | Mapping[Any, int] | None = None
    method: str = "dpp"

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """See `BaseDocumentCompressor`."""
        del callbacks
        if not documents:
            return []
        vectors = self.embeddings.embed_documents([document.page_content for document in documents])
        scores = cosines(self.embeddings.embed_query(query), vectors)
        labels = [document.metadata.get(self.category) for document in documents]
        return Choice(self.k, self.diversity, self.at_most, self.method).of(list(documents), scores, vectors, labels)
