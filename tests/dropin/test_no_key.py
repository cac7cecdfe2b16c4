"""Without a key and with Settings untouched, nothing asks for an LLM that is not needed."""

from __future__ import annotations

import pytest
from llama_index.core import Settings
from llama_index.core.schema import TextNode

from llama_index_graph_rag import (
    GraphRAGIndex,
    GraphRAGRetriever,
    LLMEntityExtractor,
    LLMRelationRerank,
    RelationRetriever,
    RelationsToPassages,
)


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of what was asked of Settings, each of which fails."""
    asked: list[str] = []

    def refusing(name):
        def get(_):
            asked.append(name)
            raise ValueError(f"no {name}")

        return property(get)

    for name in ("llm", "embed_model"):
        monkeypatch.setattr(type(Settings), name, refusing(name))
    return asked


async def test_build_ask_and_reopen(tmp_path, embed_model, refused) -> None:
    nodes = [TextNode(id_="p", text="Euler was a pupil of Johann.")]
    triplets = [[("Euler", "was a pupil of", "Johann")]]
    where = {"uri": tmp_path / "k.db", "embed_model": embed_model}
    GraphRAGIndex.from_triplets(nodes, triplets, **where).close()
    index = GraphRAGIndex.from_existing(**where)
    retriever = index.as_retriever()
    assert len(retriever.retrieve("Who taught Euler?")) == 1
    assert len(await retriever.aretrieve("Who taught Euler?")) == 1
    relations = RelationRetriever(index.store, embed_model=embed_model).retrieve("Who?")
    assert len(RelationsToPassages(index.store).postprocess_nodes(relations)) == 1
    index.close()
    assert refused == []


def test_constructors_ask_for_nothing(index, refused) -> None:
    LLMRelationRerank()
    LLMEntityExtractor()
    GraphRAGRetriever(index.store)
    GraphRAGRetriever(index.store, relation_reranker=LLMRelationRerank())
    RelationRetriever(index.store)
    GraphRAGIndex(index.store)
    assert refused == []


def test_no_embedding_model_is_said(index, question, refused) -> None:
    with pytest.raises(ValueError, match="embed_model"):
        GraphRAGRetriever(index.store).retrieve(question)


def test_a_reranker_without_an_llm_falls_back(index, embed_model, question, refused) -> None:
    retriever = GraphRAGRetriever(
        index.store, embed_model=embed_model, relation_reranker=LLMRelationRerank()
    )
    nodes, trace = retriever.retrieve_with_trace(question)
    assert len(nodes) == 5
    assert "no llm" in trace.fallbacks[0]
    assert refused == ["llm"]
