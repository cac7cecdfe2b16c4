"""Arguments of the wrong kind are named when they are given."""

from __future__ import annotations

import numpy as np
import pytest
from llama_index.core.schema import QueryBundle, TextNode

from llama_index_graph_rag import (
    GraphRAGIndex,
    GraphRAGRetriever,
    LLMRelationRerank,
    RelationRetriever,
)
from llama_index_graph_rag.errors import (
    GraphRAGError,
    GraphRAGTypeError,
    GraphRAGValueError,
    StoreError,
)
from llama_index_graph_rag.retrievers.options import QueryOptions

NAN = float("nan")
EULER = ("Euler", "was a student of", "Johann Bernoulli")


@pytest.fixture
def index(build_index) -> GraphRAGIndex:
    return build_index(
        [TextNode(text="Euler was a student of Johann Bernoulli.", id_="p")], [[EULER]]
    )


@pytest.mark.parametrize(
    "options",
    [
        {"similarity_top_k": 2.0},
        {"similarity_top_k": True},
        {"similarity_top_k": 0},
        {"similarity_top_k": 10**9},
        {"relation_similarity_cutoff": NAN},
        {"entity_similarity_cutoff": True},
        {"entity_similarity_cutoff": "0.5"},
        {"dense_fill": "no"},
    ],
)
def test_numbers_of_a_retrieval(options) -> None:
    [name] = options
    with pytest.raises(GraphRAGValueError, match=f"{name}="):
        QueryOptions(**options)


def test_numbers_of_numpy_will_do() -> None:
    options = QueryOptions(similarity_top_k=np.int64(2), entity_similarity_cutoff=np.float32(0.5))
    assert options == QueryOptions(similarity_top_k=2, entity_similarity_cutoff=0.5)
    assert type(options.similarity_top_k) is int


@pytest.mark.parametrize("kind", [GraphRAGRetriever, RelationRetriever])
@pytest.mark.parametrize("options", [{"embed_model": "local"}, {"filters": {"author": "Euler"}}])
def test_objects_of_a_retriever(index, kind, options) -> None:
    [name] = options
    with pytest.raises(GraphRAGTypeError, match=f"{name}="):
        kind(index.store, **options)
    with pytest.raises(GraphRAGTypeError, match=r"index\.store"):
        kind(index)


@pytest.mark.parametrize(
    "options",
    [
        {"rerank_top_n": True},
        {"rerank_top_n": "3"},
        {"rerank_top_n": NAN},
        {"max_prompt_tokens": 2.5},
        {"llm": "gpt-4o"},
    ],
)
def test_relation_rerank(options) -> None:
    [name] = options
    with pytest.raises(GraphRAGError, match=f"{name}="):
        LLMRelationRerank(**options)


@pytest.mark.parametrize(
    "options", [{"num_workers": "4"}, {"num_workers": 0}, {"embed_model": "x"}]
)
def test_an_index(index, options) -> None:
    [name] = options
    with pytest.raises(GraphRAGError, match=f"{name}="):
        GraphRAGIndex(index.store, **options)


async def test_ids_to_delete(index) -> None:
    for ids in (None, 5, [None], "p"):
        with pytest.raises(GraphRAGTypeError):
            index.delete_nodes(ids)
        with pytest.raises(GraphRAGTypeError):
            await index.adelete_nodes(ids)
    for id in (None, 5, ["p"]):
        with pytest.raises(GraphRAGTypeError):
            index.delete_ref_doc(id)
        with pytest.raises(GraphRAGTypeError):
            await index.adelete_ref_doc(id)
    assert index.stats()["passages"] == 1
    index.delete_nodes(id for id in ["p"])
    assert index.stats()["passages"] == 0


async def test_an_extractor_that_fails_costs_quality_not_the_answer(index) -> None:
    def broken(question: str) -> list[str]:
        raise ConnectionError("no service")

    retriever = index.as_retriever(entity_extractor=broken)
    for nodes, trace in (
        retriever.retrieve_with_trace("Who taught Euler?"),
        await retriever.aretrieve_with_trace("Who taught Euler?"),
    ):
        assert [node.node_id for node in nodes] == ["p"]
        assert any("no service" in line for line in trace.fallbacks)


def test_vectors_of_different_lengths_are_named(index, embedding, monkeypatch) -> None:
    retriever = index.as_retriever(entity_extractor=lambda question: ["Leibniz", "Newton"])
    monkeypatch.setattr(
        type(embedding), "_get_text_embeddings", lambda self, texts: [[1.0], [1.0, 2.0]]
    )
    with pytest.raises(GraphRAGValueError, match="different lengths"):
        retriever.retrieve("Who taught Euler?")


@pytest.mark.filterwarnings("error")
def test_a_question_with_a_huge_vector(index, embedding) -> None:
    near = index.as_retriever().retrieve(
        QueryBundle("Euler?", embedding=[3e38] * embedding.dimension)
    )
    assert [node.node_id for node in near] == ["p"]


def test_what_is_in_the_way_of_an_index_is_said(tmp_path) -> None:
    (tmp_path / "old.db").write_bytes(b"a file of an older Milvus Lite")
    for place, message in (
        ("old.db", "is a file"),
        ("old.db/inside.db", "cannot write to"),
        (f"{'long' * 100}.db", "File name too long"),
    ):
        with pytest.raises(StoreError, match=message):
            GraphRAGIndex.from_triplets([], [], uri=tmp_path / place)
    assert (tmp_path / "old.db").read_bytes() == b"a file of an older Milvus Lite"


@pytest.mark.parametrize("nodes", [[None], ["text"], TextNode(text="one, not a list")])
def test_nodes_to_insert(index, nodes) -> None:
    with pytest.raises(GraphRAGTypeError, match="give a list of nodes"):
        index.insert_nodes(nodes)


@pytest.mark.parametrize("kind", [GraphRAGRetriever, RelationRetriever])
async def test_lone_surrogates_of_a_question_reach_no_model(index, embedding, kind) -> None:
    retriever = kind(
        index.store, embed_model=embedding, entity_extractor=lambda question: ["Newton\udfff"]
    )
    embedding.texts.clear()
    assert retriever.retrieve("Who taught Euler \ud800?")
    assert await retriever.aretrieve("Who taught Euler \ud800?")
    for text in embedding.texts:
        text.encode()
    assert {"Who taught Euler \ufffd?", "Newton\ufffd"} <= set(embedding.texts)
