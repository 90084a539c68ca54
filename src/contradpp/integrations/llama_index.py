"""LlamaIndex: a node post-processor, for `node_postprocessors=[...]` of a query engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle
from pydantic import ConfigDict

from contradpp.integrations import cosines, require_all, rerank_things
from contradpp.slates.greedy import SlidingWindow


class VariedPostprocessor(BaseNodePostprocessor):
    """A post-processor that keeps `top_k` nodes, near the query and unlike each other.

    Parameters
    ----------
    embed_model : llama_index.core.embeddings.BaseEmbedding, optional
        The model of vectors: of nodes without one, and of the query for nodes without a score.
    top_k, diversity, at_most, method
        As for `contradpp.rerank`, whose k is `top_k`; "window" is `SlidingWindow()`.
    category : str, optional
        The key of a node's metadata that `at_most` counts, such as "file_name".
    """

    model_config = ConfigDict(extra="forbid")

    embed_model: Any = None
    top_k: int = 4
    diversity: float = 0.5
    category: str | None = None
    at_most: int | Mapping[Any, int] | None = None
    method: str | SlidingWindow = "dpp"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        model = self.embed_model
        vectors = [node.node.embedding for node in nodes]
        missing = [number for number, vector in enumerate(vectors) if vector is None]
        if missing and model is not None:
            texts = [nodes[n].node.get_content(metadata_mode=MetadataMode.EMBED) for n in missing]
            found = model.get_text_embedding_batch(texts)
            for number, vector in zip(missing, found, strict=True):
                vectors[number] = vector
        vectors = require_all(vectors, "embedding", "pass embed_model=")
        scores = [node.score for node in nodes]
        if None in scores and model is not None and query_bundle is not None:
            query = model.get_query_embedding(query_bundle.query_str)
            scores = cosines(query, vectors).tolist()
        scores = require_all(scores, "score", "let a retriever give them, or pass embed_model=")
        return rerank_things(
            nodes,
            scores,
            vectors,
            [node.node.metadata for node in nodes],
            top_k=self.top_k,
            diversity=self.diversity,
            category=self.category,
            at_most=self.at_most,
            method=self.method,
        )
