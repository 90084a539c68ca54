"""The adapters: each framework's own things come back, chosen and ordered as `rerank` does."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import contradpp as cd
from contradpp.errors import DataError, ParameterError
from contradpp.integrations import rerank_things
from contradpp.integrations.frames import rerank_frame

pytestmark = pytest.mark.filterwarnings("default")  # what frameworks warn of is not ours

RNG = np.random.default_rng(0)
VECTORS = RNG.normal(size=(8, 3))
SCORES = np.linspace(1.0, 0.3, 8)
CATEGORIES = ["a", "a", "a", "b", "b", None, "c", "c"]
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "integrations.md"


def expected(k: int, scores: Any = SCORES, **options: Any) -> list[int]:
    return cd.rerank(range(8), scores, k, vectors=VECTORS, **options)[0].tolist()


def needs(module: str) -> Any:
    return pytest.importorskip(module, reason=f"{module} is not installed")


class Counts:
    """Embeddings by hand: the text is the number of a vector, the query the first of them."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [VECTORS[int(text)].tolist() for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return VECTORS[int(text)].tolist()


def test_things_are_chosen_as_rerank_does():
    things = [f"t{number}" for number in range(8)]
    assert rerank_things(things, SCORES, VECTORS, top_k=4) == [things[n] for n in expected(4)]
    shelves = [{"shelf": category} for category in CATEGORIES]
    capped = rerank_things(things, SCORES, VECTORS, shelves, top_k=6, diversity=0.0, category="shelf", at_most=1)
    rules = cd.SlateRules(categories=CATEGORIES, at_most=1)
    assert capped == [things[n] for n in expected(6, diversity=0.0, rules=rules)] == ["t0", "t3", "t5", "t6"]
    windowed = expected(6, method=cd.SlidingWindow())
    assert rerank_things(things, SCORES, VECTORS, top_k=6, method="window") == [things[n] for n in windowed]
    assert rerank_things([], [], [], top_k=4) == []


def test_a_category_that_would_limit_nothing_is_refused():
    things = list(range(8))
    shelves = [{"shelf": category, "page": 1} for category in CATEGORIES]
    with pytest.raises(DataError, match="category='shelves' is in no metadata, which has 'page', 'shelf'"):
        rerank_things(things, SCORES, VECTORS, shelves, category="shelves", at_most=1)
    with pytest.raises(ParameterError, match="pass both or neither"):
        rerank_things(things, SCORES, VECTORS, shelves, category="shelf")
    with pytest.raises(ParameterError, match="pass both or neither"):
        rerank_things(things, SCORES, VECTORS, shelves, at_most=1)


def test_langchain():
    needs("langchain_core")
    from langchain_core.documents import BaseDocumentCompressor, Document

    from contradpp.integrations.langchain import VariedCompressor

    documents = [Document(page_content=str(n), metadata={"category": CATEGORIES[n]}) for n in range(8)]
    compressor = VariedCompressor(embeddings=Counts(), top_k=3, diversity=0.4)
    assert isinstance(compressor, BaseDocumentCompressor)
    cosines = VECTORS @ VECTORS[2] / np.linalg.norm(VECTORS, axis=1) / np.linalg.norm(VECTORS[2])
    kept = compressor.compress_documents(documents, "2")
    assert [int(one.page_content) for one in kept] == expected(3, scores=cosines, diversity=0.4)
    assert kept[0] is documents[2]
    assert list(compressor.compress_documents([], "2")) == []
    one_each = VariedCompressor(embeddings=Counts(), top_k=8, category="category", at_most=1)
    categories = [one.metadata["category"] for one in one_each.compress_documents(documents, "2")]
    assert sorted(map(str, categories)) == ["None", "a", "b", "c"]
    with pytest.raises(ValueError, match="Extra inputs are not permitted"):
        VariedCompressor(embeddings=Counts(), k=3)


def test_llama_index():
    needs("llama_index.core")
    from llama_index.core.schema import NodeWithScore, TextNode

    from contradpp.integrations.llama_index import VariedPostprocessor

    def nodes(*, embedded: bool = True, scored: bool = True) -> list[Any]:
        return [
            NodeWithScore(
                node=TextNode(text=str(n), embedding=VECTORS[n].tolist() if embedded else None),
                score=float(SCORES[n]) if scored else None,
            )
            for n in range(8)
        ]

    class Model:
        def get_text_embedding_batch(self, texts: list[str]) -> list[list[float]]:
            return Counts().embed_documents(texts)

        def get_query_embedding(self, query: str) -> list[float]:
            return Counts().embed_query(query)

    def numbers(found: list[Any]) -> list[int]:
        return [int(one.node.text) for one in found]

    assert numbers(VariedPostprocessor(top_k=3).postprocess_nodes(nodes())) == expected(3)
    model = Model()
    assert numbers(
        VariedPostprocessor(top_k=3, embed_model=model).postprocess_nodes(nodes(embedded=False))
    ) == expected(3)
    cosines = VECTORS @ VECTORS[1] / np.linalg.norm(VECTORS, axis=1) / np.linalg.norm(VECTORS[1])
    found = VariedPostprocessor(top_k=3, embed_model=model).postprocess_nodes(nodes(scored=False), query_str="1")
    assert numbers(found) == expected(3, scores=cosines)
    with pytest.raises(DataError, match="8 of 8 have no embedding: pass embed_model"):
        VariedPostprocessor().postprocess_nodes(nodes(embedded=False))
    with pytest.raises(ValueError, match="Extra inputs are not permitted"):
        VariedPostprocessor(k=3)
    with pytest.raises(DataError, match="no score"):
        VariedPostprocessor().postprocess_nodes(nodes(scored=False))


def test_haystack():
    needs("haystack")
    from haystack import Document, Pipeline

    from contradpp.integrations.haystack import VariedRanker

    documents = [
        Document(
            content=str(n), embedding=VECTORS[n].tolist(), score=float(SCORES[n]), meta={"category": CATEGORIES[n]}
        )
        for n in range(8)
    ]
    pipeline = Pipeline()
    pipeline.add_component("ranker", VariedRanker(top_k=3))
    ranked = pipeline.run({"ranker": {"documents": documents}})["ranker"]["documents"]
    assert [int(one.content) for one in ranked] == expected(3)
    ranker = VariedRanker(category="category", at_most=1)
    assert len(ranker.run(documents=documents)["documents"]) == 4
    best = VariedRanker().run(documents=documents, top_k=2, diversity=0.0)["documents"]
    assert [int(one.content) for one in best] == [0, 1]
    assert ranker.run(documents=[])["documents"] == []
    again = Pipeline.loads(pipeline.dumps(), allowed_modules=["contradpp.integrations.haystack"])
    assert [one.content for one in again.run({"ranker": {"documents": documents}})["ranker"]["documents"]] == [
        one.content for one in ranked
    ]
    with pytest.raises(TypeError, match="unexpected keyword argument 'k'"):
        VariedRanker(k=3)
    with pytest.raises(DataError, match="return_embedding=True"):
        ranker.run(documents=[Document(content="x", score=1.0)])


def test_frames():
    pandas = needs("pandas")
    rows = [(user, f"i{n}", SCORES[n], n + 1, "kept") for user in ("u", "v") for n in range(8 if user == "u" else 2)]
    frame = pandas.DataFrame(rows, columns=["user_id", "item_id", "score", "rank", "more"])
    vectors = {f"i{n}": VECTORS[n] for n in range(8)}
    found = rerank_frame(frame, k=3, vectors=vectors)
    assert found.columns.tolist() == frame.columns.tolist()
    assert found.loc[found.user_id == "u", "item_id"].tolist() == [f"i{n}" for n in expected(3)]
    assert found["rank"].tolist() == [1, 2, 3, 1, 2]
    assert set(found.loc[found.user_id == "v", "item_id"]) == {"i0", "i1"}
    assert rerank_frame(frame.iloc[:0], vectors=vectors).empty
    with pytest.raises(DataError, match="no column 'item'"):
        rerank_frame(frame, item="item", vectors=vectors)


EXAMPLES = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("code", EXAMPLES, ids=lambda code: re.findall(r"contradpp\.integrations\.(\w+)", code)[0])
def test_the_guides_examples_run(code, capsys):
    frameworks = set(re.findall(r"^from (langchain_core|llama_index|haystack)", code, flags=re.MULTILINE))
    for name in frameworks:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    exec(compile(code, str(GUIDE), "exec"), {"__name__": "example"})
    assert capsys.readouterr().out.strip()
