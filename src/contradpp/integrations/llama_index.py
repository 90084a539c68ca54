"""LlamaIndex: a node post-processor, for `node_postprocessors=[...]` of a query engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle

from contradpp.integrations import Choice, all_there, cosines


class VariedPostprocessor(BaseNodePostprocessor):
    """Keeps the k nodes that answer the query and are unlike each other.

    Parameters
    ----------
    embed_model : llama_index.core.embeddings.BaseEmbedding, optional
        What makes vectors of nodes that have none, and of the query for nodes without a score.
    k, diversity, at_most, method
        As for `contradpp.rerank`.
    category : str, optional
        The key of a node's metadata that `at_most` counts, such as "file_name".
    """

    embed_model: Any = None
    k: int = 4
    diversity: float = 0.5
    category: str | None = None
    at_most: int | Mapping[Any, int] | None = None
    method: str = "dpp"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        vectors = [one.node.embedding for one in nodes]
        missing = [number for number, vector in enumerate(vectors) if vector is None]
        if missing and self.embed_model is not None:
            texts = [nodes[number].node.get_content(metadata_mode=MetadataMode.EMBED) for number in missing]
            for number, vector in zip(missing, self.embed_model.get_text_embedding_batch(texts), strict=True):
                vectors[number] = vector
        vectors = all_there(vectors, "embedding", "pass embed_model=")
        scores = [one.score for one in nodes]
        if None in scores and self.embed_model is not None and query_bundle is not None:
            scores = cosines(self.embed_model.get_query_embedding(query_bundle.query_str), vectors).tolist()
        labels = [one.node.metadata.get(self.category) for one in nodes]
        scores = all_there(scores, "score", "let a retriever give them, or pass embed_model=")
        return Choice(self.k, self.diversity, self.at_most, self.method).of(nodes, scores, vectors, labels)
